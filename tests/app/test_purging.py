import pytest

from recollect.app.purging import select
from recollect.core.ports import RecordStore
from recollect.core.records import Batch, Delete, Insert, Record
from recollect.engines.memory import MemoryStore
from recollect.errors import NotFound


@pytest.fixture
async def store() -> RecordStore:
    store = MemoryStore()
    ada = Record("1", "entity", 1, 1, name="Ada", name_key="ada")
    fact = Record("2", "observation", 1, 1, text="the password is xyzzy", parent="1")
    bob = Record("3", "entity", 1, 1, name="Bob", name_key="bob")
    await store.commit(Batch((Insert(ada), Insert(fact), Insert(bob)), 1, "test"))
    await store.commit(Batch((Delete(bob.ref),), 2, "test"))
    return store


async def test_names_choose_live_and_deleted_records(store: RecordStore) -> None:
    chosen = await select(store, ["ADA", "Bob"], deleted=False, containing=None)
    assert {record.id for record in chosen} == {"1", "3"}


async def test_ids_choose_too(store: RecordStore) -> None:
    chosen = await select(store, ["2"], deleted=False, containing=None)
    assert [record.id for record in chosen] == ["2"]


async def test_an_unknown_name_is_an_error(store: RecordStore) -> None:
    with pytest.raises(NotFound):
        await select(store, ["Eve"], deleted=False, containing=None)


async def test_everything_that_was_deleted_can_be_chosen(store: RecordStore) -> None:
    chosen = await select(store, [], deleted=True, containing=None)
    assert [record.id for record in chosen] == ["3"]


async def test_a_text_chooses_every_record_that_holds_it(store: RecordStore) -> None:
    chosen = await select(store, [], deleted=False, containing="XYZZY")
    assert [record.id for record in chosen] == ["2"]
    chosen = await select(store, [], deleted=False, containing="BOB")
    assert [record.id for record in chosen] == ["3"]
