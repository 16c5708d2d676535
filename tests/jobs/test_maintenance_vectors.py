import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from everkept.core.ports import RecordVector
from everkept.core.records import Update
from everkept.core.times import read_clock
from everkept.embedders.onnx import OnnxEmbedder
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.memory.store import MemoryStore
from everkept.errors import ModelUnavailable
from everkept.jobs.claims import TurnLease
from everkept.jobs.maintenance import BATCH_TEXTS, EAGER_BATCHES, MAX_AWAITED_BATCHES, Indexer
from hash_embedder import HashingEmbedder
from records import batch, memory

KINDS = ("memory",)
PATIENCE = 60  # seconds; only a hang takes as long


class Counting(HashingEmbedder):
    """Keeps how many texts came at once, and may do something before it answers."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.before_answer: Any = None

    async def embed(self, texts: Sequence[str]) -> Any:
        self.sizes.append(len(texts))
        if self.before_answer is not None:
            action, self.before_answer = self.before_answer, None
            await action()
        return await super().embed(texts)


@pytest.fixture
def embedder() -> Counting:
    return Counting()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


async def test_what_is_stored_gets_its_vector_in_small_batches(embedder: Counting, store: MemoryStore) -> None:
    await store.commit(batch(*(memory(f"fact {i}") for i in range(40))))
    indexer = Indexer(embedder, KINDS)
    indexer.wake(store)
    assert await indexer.wait_until_settled(PATIENCE)
    assert await store.count_vectors(embedder.name, KINDS) == (40, 0)
    assert max(embedder.sizes) <= BATCH_TEXTS
    await indexer.close()


async def test_a_text_that_changes_while_it_is_embedded_gets_the_vector_of_the_new_text(
    embedder: Counting, store: MemoryStore
) -> None:
    await store.commit(batch(memory("old", id="m")))

    async def change() -> None:
        await store.commit(batch(Update("m", {"text": "new"}, 1)))

    embedder.before_answer = change
    indexer = Indexer(embedder, KINDS)
    indexer.wake(store)
    assert await indexer.wait_until_settled(PATIENCE)
    [expected] = await HashingEmbedder().embed(["new"])
    assert ((await store.get_vectors(embedder.name, ["m"]))["m"] == expected).all()
    await indexer.close()


async def test_what_comes_while_it_works_is_embedded_too(embedder: Counting, store: MemoryStore) -> None:
    await store.commit(batch(memory("first")))
    indexer = Indexer(embedder, KINDS)

    async def another() -> None:
        await store.commit(batch(memory("second")))
        indexer.wake(store)

    embedder.before_answer = another
    indexer.wake(store)
    assert await indexer.wait_until_settled(PATIENCE)
    assert await store.count_vectors(embedder.name, KINDS) == (2, 0)
    await indexer.close()


async def test_a_damaged_model_is_a_fault_that_is_kept_and_nothing_is_tried_again(
    store: MemoryStore, tmp_path: Path
) -> None:
    await store.commit(batch(memory("fact")))
    indexer = Indexer(OnnxEmbedder(tmp_path), KINDS)
    indexer.wake(store)
    assert await indexer.wait_until_settled(PATIENCE)
    assert isinstance(indexer.fault, ModelUnavailable)
    assert await store.count_vectors(OnnxEmbedder.name, KINDS) == (0, 1)
    indexer.wake(store)
    assert await indexer.wait_until_settled(PATIENCE)
    await indexer.close()


async def test_a_text_that_cannot_be_embedded_does_not_keep_the_others_waiting(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    class Choking(HashingEmbedder):
        async def embed(self, texts: Sequence[str]) -> Any:
            if "poison" in texts:
                raise ZeroDivisionError
            return await super().embed(texts)

    await store.commit(batch(*(memory(text) for text in ("a", "poison", "b"))))
    indexer = Indexer(Choking(), KINDS)
    indexer.wake(store)
    assert await indexer.wait_until_settled(PATIENCE)
    assert await store.count_vectors("hashing", KINDS) == (3, 0)
    assert "cannot embed poison" in caplog.text
    await indexer.close()


async def test_a_caller_waits_for_the_few_texts_of_its_store_only(embedder: Counting, store: MemoryStore) -> None:
    other = MemoryStore()
    await store.commit(batch(*(memory(f"fact {i}") for i in range(3))))
    await other.commit(batch(memory("elsewhere")))
    reached, never = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        reached.set()
        await never.wait()

    async def hang_next() -> None:
        embedder.before_answer = hang

    embedder.before_answer = hang_next
    indexer = Indexer(embedder, KINDS)
    indexer.wake(store)
    indexer.wake(other)
    assert await indexer.wait_for([store], PATIENCE) == []
    assert await store.count_vectors(embedder.name, KINDS) == (3, 0)
    await reached.wait()
    assert await indexer.wait_for([store, other], 0.01) == [other]
    await indexer.close()


async def test_a_caller_waits_for_texts_that_others_stored_since(embedder: Counting, store: MemoryStore) -> None:
    await store.commit(batch(memory("first")))
    indexer = Indexer(embedder, KINDS)
    indexer.register_store(store)
    await indexer.wait_until_settled()
    await store.commit(batch(memory("second")))
    assert await indexer.wait_for([store], PATIENCE) == []
    assert await store.count_vectors(embedder.name, KINDS) == (2, 0)
    assert embedder.sizes == [1, 1]
    await indexer.close()


async def test_a_caller_does_not_wait_for_many_texts(embedder: Counting, store: MemoryStore) -> None:
    await store.commit(batch(*(memory(f"fact {i}") for i in range((MAX_AWAITED_BATCHES + 2) * BATCH_TEXTS))))
    indexer = Indexer(embedder, KINDS)
    indexer.wake(store)
    assert await indexer.wait_for([store], PATIENCE) == []
    assert (await store.count_vectors(embedder.name, KINDS))[1] > 0
    await indexer.close()


async def test_new_texts_in_a_long_queue_are_not_awaited(embedder: Counting, store: MemoryStore) -> None:
    await store.commit(batch(*(memory(f"fact {i}") for i in range((MAX_AWAITED_BATCHES + 2) * BATCH_TEXTS))))
    indexer = Indexer(embedder, KINDS)
    indexer.wake(store)
    assert await indexer.wait_for([store], PATIENCE) == []
    never = asyncio.Event()
    embedder.before_answer = never.wait
    await store.commit(batch(memory("new")))
    assert await indexer.wait_for([store], 0.01) == []
    await indexer.close()


async def test_a_caller_does_not_wait_for_a_model_that_is_damaged(store: MemoryStore, tmp_path: Path) -> None:
    await store.commit(batch(memory("fact")))
    indexer = Indexer(OnnxEmbedder(tmp_path), KINDS)
    indexer.wake(store)
    assert await indexer.wait_for([store], PATIENCE) == []
    assert isinstance(indexer.fault, ModelUnavailable)
    await indexer.close()


async def test_closing_in_the_middle_leaves_the_rest_queued(embedder: Counting, store: MemoryStore) -> None:
    await store.commit(batch(*(memory(f"fact {i}") for i in range(40))))
    reached, never = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        reached.set()
        await never.wait()

    embedder.before_answer = hang
    indexer = Indexer(embedder, KINDS)
    indexer.wake(store)
    await reached.wait()
    await indexer.close()
    assert await store.count_vectors(embedder.name, KINDS) == (0, 40)
    later = Indexer(HashingEmbedder(), KINDS)
    later.register_store(store)
    assert await later.wait_until_settled(PATIENCE)
    assert await store.count_vectors(embedder.name, KINDS) == (40, 0)
    await later.close()


async def test_another_model_embeds_everything_again(store: MemoryStore) -> None:
    class Renamed(HashingEmbedder):
        name = "another"

    await store.commit(batch(memory("fact")))
    for embedder in (HashingEmbedder(), Renamed()):
        indexer = Indexer(embedder, KINDS)
        seen: list[tuple[int, int]] = []

        def report(done: int, total: int, seen: list[tuple[int, int]] = seen) -> None:
            seen.append((done, total))

        assert await indexer.drain(store, report) == 1
        assert seen == [(1, 1)]
        await indexer.close()
    assert await store.count_vectors("another", KINDS) == (1, 0)
    assert await store.get_vectors("hashing", ["fact"]) == {}


async def test_without_an_embedder_nothing_happens(store: MemoryStore) -> None:
    indexer = Indexer(None, KINDS)
    indexer.wake(store)
    assert await indexer.wait_until_settled(PATIENCE)
    assert indexer.embedder is None
    assert indexer.fault is None
    await indexer.close()


async def test_a_wake_while_it_comes_to_rest_is_heard() -> None:
    class Telling(MemoryStore):
        kept = asyncio.Event()

        async def put_vectors(self, model: str, items: Sequence[RecordVector]) -> int:
            self.kept.set()
            return await super().put_vectors(model, items)

    store = Telling()
    indexer = Indexer(HashingEmbedder(), KINDS)
    for number in range(30):
        store.kept.clear()
        await store.commit(batch(memory(f"fact {number}")))
        indexer.wake(store)
        async with asyncio.timeout(PATIENCE):
            await store.kept.wait()
    assert await indexer.wait_until_settled(PATIENCE)
    assert await store.count_vectors("hashing", KINDS) == (30, 0)
    await indexer.close()


async def test_a_long_queue_is_worked_off_without_a_pause_while_somebody_waits(
    embedder: Counting, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def paused(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", paused)
    await store.commit(batch(*(memory(f"fact {i}") for i in range(BATCH_TEXTS * (EAGER_BATCHES + 3)))))
    indexer = Indexer(embedder, KINDS)
    indexer.wake(store)
    assert await indexer.wait_until_settled(PATIENCE)
    assert pauses == []
    await indexer.close()


async def test_a_long_queue_lets_another_store_in_between(embedder: Counting, store: MemoryStore) -> None:
    other = MemoryStore()
    await store.commit(batch(*(memory(f"old {i}") for i in range((EAGER_BATCHES + 9) * BATCH_TEXTS))))
    await other.commit(batch(memory("new")))
    indexer = Indexer(embedder, KINDS)
    indexer.wake(store)
    indexer.wake(other)
    while (await other.count_vectors(embedder.name, KINDS))[1]:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert (await store.count_vectors(embedder.name, KINDS))[1]
    assert await indexer.wait_until_settled(PATIENCE)
    assert (await store.count_vectors(embedder.name, KINDS))[1] == 0
    await indexer.close()


async def test_two_long_queues_take_turns(embedder: Counting, store: MemoryStore) -> None:
    stores = [store, MemoryStore()]
    many = [memory(f"old {i}") for i in range((EAGER_BATCHES + 3) * BATCH_TEXTS)]
    indexer = Indexer(embedder, KINDS)
    for one in stores:
        await one.commit(batch(*many))
        indexer.wake(one)
    while any([(await one.count_vectors(embedder.name, KINDS))[1] for one in stores]):  # noqa: ASYNC110
        await asyncio.sleep(0)
    await indexer.close()


async def test_one_process_at_a_time_works_off_a_long_queue(embedder: Counting, store: MemoryStore) -> None:
    library = MemoryLibrary()
    theirs = TurnLease(library, "vectors", read_clock)
    assert await theirs.take()
    await store.commit(batch(*(memory(f"old {i}") for i in range((EAGER_BATCHES + 9) * BATCH_TEXTS))))
    indexer = Indexer(embedder, KINDS, TurnLease(library, "vectors", read_clock))
    indexer.wake(store)
    while len(embedder.sizes) < EAGER_BATCHES:  # noqa: ASYNC110
        await asyncio.sleep(0)
    fresh = MemoryStore()
    await fresh.commit(batch(memory("new")))
    indexer.wake(fresh)  # what is new does not wait for the other process
    while (await fresh.count_vectors(embedder.name, KINDS))[1]:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert (await store.count_vectors(embedder.name, KINDS))[1]
    await theirs.end()
    assert await indexer.wait_until_settled(PATIENCE)
    assert (await store.count_vectors(embedder.name, KINDS))[1] == 0
    await indexer.close()
