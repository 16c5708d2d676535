import numpy as np
import pytest

from everkept.core.ports import AccessCount, RecordVector
from everkept.core.records import Batch, Delete, Insert, Record, RecordFilter, RecordLink, Ref, Update
from everkept.engines.memory.store import MemoryStore
from everkept.errors import Conflict
from everkept.exchange import migration
from everkept.exchange.migration import compare_stores, copy_store
from records import DAY_ONE

MODEL = "model"


def quietly(_count: int) -> None:
    """Nobody looks at how far it is."""


def record(number: int) -> Record:
    return Record(f"r{number}", "note", DAY_ONE, DAY_ONE, text=f"text {number}")


async def stored(count: int) -> MemoryStore:
    store = MemoryStore(lambda: DAY_ONE)
    await store.commit(Batch(tuple(Insert(record(n)) for n in range(count)), DAY_ONE, "test"))
    return store


async def test_two_empty_stores_are_the_same() -> None:
    found = await compare_stores(MemoryStore(), MemoryStore(), MODEL)
    assert found.is_equal
    assert (found.records, found.links, found.changes) == (0, 0, 0)


async def test_every_difference_is_found() -> None:
    source, target = await stored(3), await stored(3)
    await source.commit(Batch((Update("r1", {"text": "other"}, 1),), DAY_ONE + 1, "test"))
    await target.commit(Batch((Insert(record(9)),), DAY_ONE + 1, "test"))
    await source.commit(Batch((Insert(RecordLink("l", "r0", "to", "r1", DAY_ONE)),), DAY_ONE + 2, "test"))
    found = await compare_stores(source, target, MODEL)
    assert [each.id for each in found.differing] == ["r1"]
    assert [each.id for each in found.differing_links] == ["l"]
    assert found.gone == [Ref("record", "r9")]
    assert found.log_from == 2


async def test_a_longer_log_is_a_difference() -> None:
    source, target = await stored(2), await stored(2)
    await target.purge([Ref("record", "r1")])
    await source.purge([Ref("record", "r1")])
    assert (await compare_stores(source, target, MODEL)).is_equal
    await target.commit(Batch((Update("r0", {"text": "x"}, 1),), DAY_ONE, "test"))
    assert (await compare_stores(source, target, MODEL)).log_from == 3


async def test_the_checksum_is_of_what_is_stored_and_not_of_where() -> None:
    source, target = await stored(4), MemoryStore()
    copied = await copy_store(source, target, MODEL, quietly)
    assert copied.digest == (await compare_stores(target, source, MODEL)).digest
    await target.commit(Batch((Update("r0", {"text": "x"}, 1),), DAY_ONE, "test"))
    assert copied.digest != (await compare_stores(target, target, MODEL)).digest


async def test_what_stands_on_another_page_there_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "PAGE_ROWS", 3)
    source, target = await stored(11), MemoryStore()
    await copy_store(source, target, MODEL, quietly)
    for store in (source, target):
        await store.commit(Batch((Delete(Ref("record", "r8")),), DAY_ONE + 1, "test"))
    assert (await compare_stores(source, target, MODEL)).is_equal
    await source.purge([Ref("record", "r1"), Ref("record", "r5")])
    found = await compare_stores(source, target, MODEL)
    assert (found.records, found.differing) == (9, [])
    assert found.gone == [Ref("record", "r1"), Ref("record", "r5")]
    assert found.foreign is None, "it was purged there, and is of nobody else"
    assert (await copy_store(source, target, MODEL, quietly)).is_equal


async def test_vectors_and_how_often_things_were_given_out_are_compared_and_mended() -> None:
    source, target = await stored(3), MemoryStore()
    await copy_store(source, target, MODEL, quietly)
    vector = np.full(4, 0.5, np.float32)
    await source.put_vectors(MODEL, [RecordVector("r1", 1, vector)])
    await source.note_accesses({"r2": 3}, DAY_ONE)
    found = await compare_stores(source, target, MODEL)
    assert [each.id for each in found.differing] == ["r1", "r2"]
    copied = await copy_store(source, target, MODEL, quietly)
    assert copied.vectors == 1
    assert (await target.get_vectors(MODEL, ["r1"]))["r1"].tolist() == vector.tolist()
    assert await target.get_accesses(["r2"]) == {"r2": AccessCount(3, DAY_ONE)}


async def test_what_somebody_else_wrote_to_the_copy_is_not_written_over() -> None:
    source, target = await stored(3), MemoryStore()
    await copy_store(source, target, MODEL, quietly)
    await target.commit(Batch((Insert(record(9)),), DAY_ONE + 5, "store_memory"))
    await source.commit(Batch((Insert(record(4)),), DAY_ONE + 6, "store_memory"))
    with pytest.raises(Conflict, match="store_memory at"):
        await copy_store(source, target, MODEL, quietly)
    assert [each.id for each in await target.scan(RecordFilter())] == ["r0", "r1", "r2", "r9"]


async def test_what_was_written_to_the_copy_while_it_was_made_is_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "PAGE_ROWS", 1)
    source, target = await stored(2), MemoryStore()
    await source.commit(Batch((Update("r0", {"text": "x"}, 1),), DAY_ONE + 1, "test"))
    bring = target.replicate
    is_written = False

    async def replicate(stock: object) -> None:
        nonlocal is_written
        await bring(stock)  # pyright: ignore[reportArgumentType]
        if not is_written:
            is_written = True
            await target.commit(Batch((Insert(record(9)),), DAY_ONE + 5, "store_memory"))

    monkeypatch.setattr(target, "replicate", replicate)
    with pytest.raises(Conflict, match="Another program"):
        await copy_store(source, target, MODEL, quietly)
    assert await target.get(["r9"])
