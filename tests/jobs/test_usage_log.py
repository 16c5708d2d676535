from everkept.core.ports import AccessCount
from everkept.engines.memory.store import MemoryStore
from everkept.jobs.usage_log import BatchedAccesses
from records import DAY_ONE, batch, memory


async def test_counts_are_known_at_once_and_stored_at_the_end() -> None:
    store = MemoryStore()
    await store.commit(batch(memory("a"), memory("b")))
    revision = await store.get_revision()
    book = BatchedAccesses(lambda: DAY_ONE)
    book.note(store, ["a", "b"])
    book.note(store, ["a"])
    assert (await book.read_accesses(store, ["a", "b", "c"]))["a"] == AccessCount(2, DAY_ONE)
    assert await store.get_accesses(["a"]) == {}
    await book.close()
    assert await store.get_accesses(["a", "b"]) == {"a": AccessCount(2, DAY_ONE), "b": AccessCount(1, DAY_ONE)}
    assert await store.get_revision() == revision
    later = BatchedAccesses(lambda: DAY_ONE + 5)
    later.note(store, ["a"])
    assert await later.read_accesses(store, ["a"]) == {"a": AccessCount(3, DAY_ONE + 5)}
    await later.close()
