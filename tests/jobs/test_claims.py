import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from everkept.app.app import App
from everkept.core.ports import FIRST_MODEL, SHIPPED_MODEL, Library
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import ModelReplaced, ModelUnavailable
from everkept.jobs.claims import MODEL_NOTE, ClaimedEmbedder, ModelHistory, read_models
from everkept.jobs.maintenance import Indexer
from everkept.settings import read_settings
from hash_embedder import HashingEmbedder
from records import batch, memory
from tool_calls import Client

KINDS = ("memory",)
PATIENCE = 60  # seconds; only a hang takes as long


class Named(HashingEmbedder):
    def __init__(self, name: str, dimensions: int = 384, fault: ModelUnavailable | None = None) -> None:
        self.name = name
        self.dimensions = dimensions
        self._broken = fault

    async def embed(self, texts: Sequence[str]) -> Any:
        if self._broken is not None:
            raise self._broken
        return (await super().embed(texts))[:, : self.dimensions]


@pytest.fixture
def library() -> MemoryLibrary:
    return MemoryLibrary()


def indexer(library: Library, model: str, **more: Any) -> Indexer:
    return Indexer(ClaimedEmbedder(Named(model, **more), library), KINDS)


async def fill(library: Library, count: int = 40) -> Any:
    store = await library.open_user_store()
    await store.commit(batch(*(memory(f"fact {i}") for i in range(count))))
    return store


async def settle(made: Indexer, store: Any) -> None:
    made.wake(store)
    assert await made.wait_until_settled(PATIENCE)


async def test_a_new_model_takes_over_and_embeds_everything_again(library: MemoryLibrary) -> None:
    store = await fill(library)
    for model, dimensions in (("one", 384), ("two", 100)):
        made = indexer(library, model, dimensions=dimensions)
        await settle(made, store)
        assert await store.count_vectors(model, KINDS) == (40, 0)
        assert (await store.get_vectors(model, ["fact 7"]))["fact 7"].shape == (dimensions,)
    assert await read_models(library) == ModelHistory("two", (FIRST_MODEL, "one"), is_unfinished=True)
    assert await store.get_vectors("one", ["fact 7"]) == {}


async def test_a_model_that_was_replaced_does_not_fight(library: MemoryLibrary) -> None:
    store = await fill(library)
    old, new = indexer(library, "old"), indexer(library, "new")
    await settle(old, store)
    await settle(new, store)
    await store.commit(batch(memory("later")))
    for made in (old, indexer(library, "old")):  # one that is running, and one that starts
        await settle(made, store)
        assert isinstance(made.fault, ModelReplaced)
        assert made.embedder is not None
        with pytest.raises(ModelReplaced) as refused:
            await made.embedder.embed(["a question"])
        assert refused.value.facts == {"model": "old", "current": "new"}
    assert await store.count_vectors("new", KINDS) == (40, 1)
    await settle(new, store)
    assert await store.count_vectors("new", KINDS) == (41, 0)


async def test_the_shipped_model_takes_over_from_an_earlier_one_and_never_from_a_chosen_one(
    library: MemoryLibrary,
) -> None:
    store = await fill(library)
    await settle(indexer(library, FIRST_MODEL), store)
    shipped = indexer(library, SHIPPED_MODEL)
    await settle(shipped, store)
    assert shipped.fault is None
    assert await store.count_vectors(SHIPPED_MODEL, KINDS) == (40, 0)
    other = MemoryLibrary()
    store = await fill(other)
    await settle(indexer(other, "chosen"), store)
    default = indexer(other, SHIPPED_MODEL)
    await settle(default, store)
    assert isinstance(default.fault, ModelReplaced)
    assert await store.count_vectors("chosen", KINDS) == (40, 0)


async def test_a_replaced_model_comes_back_where_a_person_asks(library: MemoryLibrary) -> None:
    store = await fill(library)
    old, new = indexer(library, "old"), indexer(library, "new")
    await settle(old, store)
    await settle(new, store)
    await old.reclaim_model()
    assert old.fault is None
    await settle(old, store)
    assert await store.count_vectors("old", KINDS) == (40, 0)
    await store.commit(batch(memory("later")))
    await settle(new, store)
    assert isinstance(new.fault, ModelReplaced)
    assert await read_models(library) == ModelHistory("old", (FIRST_MODEL, "new"), is_unfinished=True)


async def test_a_model_that_does_not_work_replaces_none(library: MemoryLibrary) -> None:
    store = await fill(library)
    await settle(indexer(library, "good"), store)
    broken = indexer(library, "broken", fault=ModelUnavailable("/model", "is damaged"))
    await settle(broken, store)
    assert not isinstance(broken.fault, ModelReplaced)
    assert (await read_models(library)).current == "good"
    await settle(indexer(library, "other"), store)
    returning = indexer(library, "good", fault=ModelUnavailable("/model", "is damaged"))
    with pytest.raises(ModelUnavailable):
        await returning.reclaim_model()
    assert (await read_models(library)).current == "other"


async def test_two_new_models_at_the_same_time_leave_one(library: MemoryLibrary) -> None:
    store = await fill(library)
    both = indexer(library, "a"), indexer(library, "b")
    for made in both:
        made.wake(store)
    for made in both:
        assert await made.wait_until_settled(PATIENCE)
    current = (await read_models(library)).current
    for made in both:
        made.wake(store)
        assert await made.wait_until_settled(PATIENCE)
    assert current in ("a", "b")
    assert await store.count_vectors(current, KINDS) == (40, 0)
    assert sum(isinstance(made.fault, ModelReplaced) for made in both) == 1


async def test_data_of_before_the_note_belongs_to_the_first_model(library: MemoryLibrary) -> None:
    store = await fill(library)
    await settle(indexer(library, "chosen"), store)
    unchanged = indexer(library, FIRST_MODEL)
    await settle(unchanged, store)
    assert isinstance(unchanged.fault, ModelReplaced)
    assert await store.count_vectors("chosen", KINDS) == (40, 0)


@pytest.mark.parametrize("note", ["", "no json", "[1]", '{"replaced": null}'])
async def test_a_note_that_cannot_be_understood_stops_nobody(library: MemoryLibrary, note: str) -> None:
    await library.set_note(MODEL_NOTE, note)
    store = await fill(library)
    await settle(indexer(library, "one"), store)
    assert (await read_models(library)).current == "one"


async def test_meanwhile_recall_works_by_words_and_says_so(library: MemoryLibrary, tmp_path: Path) -> None:
    settings = read_settings({"data_dir": tmp_path, "project": "shop"}, {})
    old = App(settings, library=library, embedder=Named("old"))
    client = Client(old)
    for number in range(40):
        await client("store_memory", content=f"Tea number {number} is ready", type="semantic", scope="project")
    await old.memory_access.catch_up(client.session, PATIENCE)
    new = App(settings, library=library, embedder=Named("new", 64))
    found = await Client(new)("recall_memories", query="tea")
    assert len(found["memories"]) == 10
    assert [warning["message"] for warning in found["warnings"]] == [
        "40 of 40 memories have no embedding yet, so only their words are searched."
    ]
    await new.memory_access.catch_up(client.session, PATIENCE)
    assert "warnings" not in await Client(new)("recall_memories", query="tea")
    told = (await Client(new)("get_memory_status"))["storage"]
    assert (told["embedding_model"], told["embedding_dimensions"]) == ("new", 64)
    assert told["embeddings"] == {"stored": 40, "pending": 0}
    late = App(settings, library=library, embedder=Named("old"))
    found = await Client(late)("recall_memories", query="tea")
    assert len(found["memories"]) == 10
    [warning] = found["warnings"]
    assert warning["code"] == "partial_results"
    assert "uses the embedding model new, but this process is set to old" in warning["message"]
    stored = await Client(late)("store_memory", content="Coffee", type="semantic", scope="project")
    assert stored["searchable_by"] == "keyword_only"
    assert "set to old" in (await Client(late)("get_memory_status"))["storage"]["embeddings"]["problem"]
    for app in (old, new, late):
        await app.close()


async def test_a_server_embeds_projects_that_nobody_opens(library: MemoryLibrary, tmp_path: Path) -> None:
    stores: list[Any] = [await fill(library, 1)]
    for name in ("shop", "blog", "archived"):
        await library.create(name, "")
        _, store = await library.open(name)
        await store.commit(batch(*(memory(f"{name} {i}") for i in range(20))))
        await settle(indexer(library, "old"), store)
        stores.append(store)
    await library.archive("archived")
    settings = read_settings({"data_dir": tmp_path, "project": "shop"}, {})
    command, server = (App(settings, library=library, embedder=Named("new")) for _ in range(2))
    server.start()
    await Client(command)("recall_memories", query="shop")
    await command.memory_access.catch_up(Client(command).session, PATIENCE)
    assert (await read_models(library)).is_unfinished
    assert await stores[2].count_vectors("new", KINDS) == (0, 20)
    await Client(server)("recall_memories", query="shop")
    async with asyncio.timeout(PATIENCE):
        while (await read_models(library)).is_unfinished:  # noqa: ASYNC110
            await asyncio.sleep(0)
    counts = [await store.count_vectors("new", KINDS) for store in stores[:3]]
    assert counts == [(1, 0), (20, 0), (20, 0)]
    for app in (command, server):
        await app.close()


KILLED = """if True:
    import asyncio, os, sys
    from pathlib import Path
    from everkept.engines.sqlite.library import SqliteLibrary
    from everkept.jobs.maintenance import Indexer
    from everkept.jobs.claims import ClaimedEmbedder
    from hash_embedder import HashingEmbedder

    class Dying(HashingEmbedder):
        name, batches = "new", 0

        async def embed(self, texts):
            Dying.batches += 1
            if Dying.batches > 2:
                os._exit(9)
            return await super().embed(texts)

    async def main():
        library = SqliteLibrary(Path(sys.argv[1]))
        indexer = Indexer(ClaimedEmbedder(Dying(), library), ("memory",))
        await indexer.drain(await library.open_user_store(), lambda done, total: print(done, total, flush=True))

    asyncio.run(main())
"""


async def test_after_a_kill_the_next_process_continues(tmp_path: Path) -> None:
    library = SqliteLibrary(tmp_path)
    store = await fill(library)
    await settle(indexer(library, "old"), store)
    path = os.pathsep.join([str(Path(__file__).parents[1] / "support"), *sys.path])
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", KILLED, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout.split("\n")) == (9, ["16 40", "32 40", ""])
    assert await store.count_vectors("new", KINDS) == (32, 8)
    await settle(indexer(library, "new"), store)
    assert await store.count_vectors("new", KINDS) == (40, 0)
    await library.close()
