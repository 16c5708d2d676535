from everkept.core.ports import Access
from everkept.engines.memory.store import MemoryStore
from everkept.jobs.usage_log import BatchedAccesses
from records import DAY_ONE, batch, memory


async def test_counts_are_known_at_once_and_stored_at_the_end() -> None:
    store = MemoryStore()
    await store.commit(batch(memory("a"), memory("b")))
    revision = await store.revision()
    book = BatchedAccesses(lambda: DAY_ONE)
    book.note(store, ["a", "b"])
    book.note(store, ["a"])
    assert (await book.of(store, ["a", "b", "c"]))["a"] == Access(2, DAY_ONE)
    assert await store.accesses(["a"]) == {}
    await book.close()
    assert await store.accesses(["a", "b"]) == {"a": Access(2, DAY_ONE), "b": Access(1, DAY_ONE)}
    assert await store.revision() == revision
    later = BatchedAccesses(lambda: DAY_ONE + 5)
    later.note(store, ["a"])
    assert await later.of(store, ["a"]) == {"a": Access(3, DAY_ONE + 5)}
    await later.close()
