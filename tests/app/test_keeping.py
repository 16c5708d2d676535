import asyncio
from pathlib import Path

import pytest

from calling import Client
from making import DAY_ONE, batch, memory
from recollect.app.accesses import BatchedAccesses
from recollect.app.app import App
from recollect.app.indexing import Indexer
from recollect.app.keeping import Keeper
from recollect.core.records import Where
from recollect.embedders.hashing import HashingEmbedder
from recollect.embedders.onnx import OnnxEmbedder
from recollect.engines.memory.library import MemoryLibrary
from recollect.settings import load

PATIENCE = 10  # seconds; only a hang takes as long


@pytest.fixture
def library() -> MemoryLibrary:
    return MemoryLibrary()


def keeper(library: MemoryLibrary) -> Keeper:
    def clock() -> int:
        return DAY_ONE + 9

    return Keeper(library, Indexer(HashingEmbedder(), ("memory",)), BatchedAccesses(clock), clock)


async def settled(keeper: Keeper) -> None:
    async with asyncio.timeout(PATIENCE):
        await keeper.settled()


async def test_the_first_use_of_a_store_finishes_what_a_crash_left(library: MemoryLibrary) -> None:
    await library.create("shop", "")
    _, store = await library.open("shop")
    user = await library.user()
    await store.commit(batch(memory("both"), memory("waiting")))
    promoted = memory("both", scope="user", facets={"promoted": {"from_scope": "project"}})
    await user.commit(batch(promoted))
    kept = keeper(library)
    kept.meet(store)
    await settled(kept)
    assert [r.id for r in await store.scan(Where(kinds=("memory",)))] == ["waiting"]
    assert await store.vector_counts("hashing", ("memory",)) == (1, 0)
    assert await user.vector_counts("hashing", ("memory",)) == (1, 0)
    await kept.close()


async def test_with_a_damaged_model_everything_works_by_words_and_says_so(
    library: MemoryLibrary, tmp_path: Path
) -> None:
    settings = load({"data_dir": tmp_path, "project": "shop"}, {})
    app = App(settings, library=library, embedder=OnnxEmbedder(tmp_path))
    client = Client(app)
    fact = {"content": "Tea is ready", "type": "semantic", "scope": "project"}
    await client("store_memory", **fact)
    found = await client("recall_memories", query="tea")
    assert [m["content"] for m in found["memories"]] == ["Tea is ready"]
    assert [warning["code"] for warning in found["warnings"]] == ["partial_results"]
    await app.shelf.catch_up(client.session, PATIENCE)
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
        app = App(load(flags, {}), embedder=HashingEmbedder())
        client = Client(app)
        await client("store_memory", content="x", type="semantic", scope="user")
        assert (await client("get_memory_status"))["connection"]["mode"] == "embedded-memory"
        await app.close()

    asyncio.run(use())
    assert list(tmp_path.iterdir()) == []
