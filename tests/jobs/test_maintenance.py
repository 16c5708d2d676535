import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from conversations import tell
from everkept.app.app import App
from everkept.core.records import Batch, Change, RecordFilter, Update
from everkept.core.sessions import Session
from everkept.embedders.onnx import OnnxEmbedder
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.memory.store import MemoryStore
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import NotFound, StoreDamaged
from everkept.jobs.maintenance import Indexer, Maintenance
from everkept.jobs.memory_access import FORGET_TOOL
from everkept.jobs.usage_log import BatchedAccesses
from everkept.settings import read_settings
from hash_embedder import HashingEmbedder
from memory_shelf import OneShelf
from records import DAY_ONE, batch, memory
from tool_calls import Client

PATIENCE = 60  # seconds; only a hang takes as long


@pytest.fixture
def library() -> MemoryLibrary:
    return MemoryLibrary()


class Pinning(MemoryStore):
    """A store where somebody pins everything right before something is forgotten."""

    async def commit(self, batch: Batch) -> Change:
        if batch.tool == FORGET_TOOL:
            found = [record for record in await self.scan(RecordFilter()) if "pinned" not in record.facets]
            steps = [Update(r.id, {"facets": {**r.facets, "pinned": True}}, r.version) for r in found]
            if steps:
                await super().commit(Batch(tuple(steps), batch.at, "pin", ""))
        return await super().commit(batch)


class Logged(MemoryStore):
    """A store that counts the changes of its log that were read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0
        self.was_read = asyncio.Event()

    async def read_changes(self, **asked: Any) -> list[Change]:
        found = await super().read_changes(**asked)
        self.read += len(found)
        self.was_read.set()
        return found


def maintenance(library: MemoryLibrary) -> Maintenance:
    def clock() -> int:
        return DAY_ONE + 9

    return Maintenance(library, Indexer(HashingEmbedder(), ("memory",)), BatchedAccesses(clock), clock)


async def settled(maintenance: Maintenance) -> None:
    async with asyncio.timeout(PATIENCE):
        await maintenance.wait_until_done()


async def test_the_first_use_of_a_store_finishes_what_a_crash_left(library: MemoryLibrary) -> None:
    await library.create("shop", "")
    _, store = await library.open("shop")
    user = await library.open_user_store()
    await store.commit(batch(memory("both"), memory("waiting")))
    promoted = memory("both", scope="user", facets={"promoted": {"from_scope": "project"}})
    await user.commit(batch(promoted))
    kept = maintenance(library)
    kept.register_store(store)
    await settled(kept)
    assert [r.id for r in await store.scan(RecordFilter(kinds=("memory",)))] == ["waiting"]
    assert await store.count_vectors("hashing", ("memory",)) == (1, 0)
    assert await user.count_vectors("hashing", ("memory",)) == (1, 0)
    await kept.close()


@pytest.mark.parametrize(
    ("tool", "arguments"), [("recall_memories", {"query": "tea"}), ("forget_memory", {"memory_id": "none"})]
)
async def test_the_first_answer_does_not_wait_for_the_care(
    tool: str, arguments: dict[str, str], tmp_path: Path
) -> None:
    """The care begins when the answer is there, also when the call has failed."""
    store = Logged()
    library = OneShelf(store)
    await library.create("shop", "")
    await store.commit(batch(memory("Tea is ready")))
    settings = read_settings({"data_dir": tmp_path, "project": "shop", "embedding_model": "none"}, {})
    app = App(settings, library=library)
    with suppress(NotFound):
        await Client(app)(tool, **arguments)
    assert store.read == 0
    async with asyncio.timeout(PATIENCE):
        await store.was_read.wait()
    assert store.read == 1
    await app.close()


async def test_with_a_damaged_model_everything_works_by_words_and_says_so(
    library: MemoryLibrary, tmp_path: Path
) -> None:
    settings = read_settings({"data_dir": tmp_path, "project": "shop"}, {})
    app = App(settings, library=library, embedder=OnnxEmbedder(tmp_path))
    client = Client(app)
    fact = {"content": "Tea is ready", "type": "semantic", "scope": "project"}
    await client("store_memory", **fact)
    found = await client("recall_memories", query="tea")
    assert [m["content"] for m in found["memories"]] == ["Tea is ready"]
    assert [warning["code"] for warning in found["warnings"]] == ["partial_results"]
    await app.memory_access.catch_up(client.session, PATIENCE)
    again = await client("store_memory", **(fact | {"content": "Coffee is ready"}))
    assert again["embedding_generated"] is False
    assert again["searchable_by"] == "keyword_only"
    assert "embedding_failed" in [warning["code"] for warning in again["warnings"]]
    status = await client("get_memory_status")
    assert status["storage"]["embeddings"]["pending"] == 2
    await app.close()


def test_memories_kept_in_memory_touch_no_file(tmp_path: Path) -> None:
    async def use() -> None:
        flags = {"data_dir": tmp_path / "data", "deployment_mode": "embedded-memory"}
        app = App(read_settings(flags, {}), embedder=HashingEmbedder())
        client = Client(app)
        await client("store_memory", content="x", type="semantic", scope="user")
        assert (await client("get_memory_status"))["connection"]["mode"] == "embedded-memory"
        await app.close()

    asyncio.run(use())
    assert list(tmp_path.iterdir()) == []


async def test_what_somebody_made_their_own_since_it_was_listed_is_not_forgotten(
    library: MemoryLibrary, tmp_path: Path
) -> None:
    settings = read_settings({"data_dir": tmp_path, "project": "shop", "embedding_model": "none"}, {})
    app = App(settings, library=library)
    client = Client(app)
    noticed = {"type": "episodic", "scope": "project", "source": {"tool": "hook:PostToolUse"}}
    for text in ("pinned since", "tagged since", "left alone"):
        await client("store_memory", content=text, **noticed)
    found = await app.memory_access.list_automatic(client.session, RecordFilter())
    listed = {record.text: record.id for record in found["shop"]}
    assert len(listed) == 3
    _, store = await library.open("shop")
    [pinned] = await store.get([listed["pinned since"]])
    facets = {**pinned.facets, "pinned": True}
    await store.commit(batch(Update(pinned.id, {"facets": facets}, pinned.version)))
    await client("tag_memory", memory_id=listed["tagged since"], add=["keep"])
    gone = await app.memory_access.forget_automatic(client.session, found)
    assert gone == {"shop": 1}
    left = await store.scan(RecordFilter(kinds=("memory",)))
    assert sorted(record.text for record in left) == ["pinned since", "tagged since"]
    await app.close()


async def test_what_is_pinned_while_others_are_forgotten_is_not(tmp_path: Path) -> None:
    """The pin comes between the look at the memories and the change that forgets them."""
    store = Pinning()
    library = OneShelf(store)
    settings = read_settings({"data_dir": tmp_path, "project": "shop", "embedding_model": "none"}, {})
    app = App(settings, library=library)
    client = Client(app)
    noticed = {"type": "episodic", "scope": "project", "source": {"tool": "hook:PostToolUse"}}
    await client("store_memory", content="x", **noticed)
    found = await app.memory_access.list_automatic(client.session, RecordFilter())
    assert await app.memory_access.forget_automatic(client.session, found) == {}
    assert [record.text for record in await store.scan(RecordFilter(kinds=("memory",)))] == ["x"]
    await app.close()


@pytest.fixture
async def full(tmp_path: Path) -> AsyncIterator[SqliteLibrary]:
    """A text that waits in each place there is."""
    library = SqliteLibrary(tmp_path / "data")
    for name in ("shop", "blog", "off", "archived"):
        await library.create(name, "")
        _, store = await library.open(name)
        await store.commit(batch(memory(f"About {name}")))
    await library.set_off("off", off=True)
    await library.archive("archived")
    await (await library.open_user_store()).commit(batch(memory("Mine")))
    await tell(await library.open_history_store(), "s", "Said")
    yield library
    await library.close()


def indexing(library: SqliteLibrary, folder: Path) -> App:
    settings = read_settings({"data_dir": folder / "data", "project": "shop", "toolsets": "memories"}, {})
    return App(settings, library=library, embedder=HashingEmbedder())


async def test_all_that_waits_is_embedded_whatever_project_it_is_in(full: SqliteLibrary, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    app = indexing(full, tmp_path)
    indexed = await app.memory_access.index(Session("test"), lambda *step: steps.append(step))
    assert (indexed.done, indexed.problems) == (5, [])
    assert steps == [(number, 5) for number in range(1, 6)]
    assert (await app.overview_reader.read_overview()).totals.without_vectors == 0
    assert (await app.memory_access.index(Session("test"), lambda *_: None)).done == 0
    await full.restore("archived")
    assert (await app.memory_access.index(Session("test"), lambda *_: None)).done == 1


async def test_one_project_is_embedded_where_it_is_named(full: SqliteLibrary, tmp_path: Path) -> None:
    app = indexing(full, tmp_path)
    assert (await app.memory_access.index(Session("test"), lambda *_: None, "blog")).done == 3
    with pytest.raises(NotFound):
        await app.memory_access.index(Session("test"), lambda *_: None, "nope")


async def test_a_project_that_cannot_be_read_keeps_no_other_waiting(full: SqliteLibrary, tmp_path: Path) -> None:
    made = await full.create("broken", "")
    (tmp_path / "data" / "projects" / f"{made.id}.db").write_bytes(b"no database at all" * 500)
    app = indexing(full, tmp_path)
    indexed = await app.memory_access.index(Session("test"), lambda *_: None)
    assert indexed.done == 5
    assert [type(problem) for problem in indexed.problems] == [StoreDamaged]
