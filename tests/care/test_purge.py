import pytest

from everkept.care.purge import select_items
from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Delete, Insert, Record, RecordLink, Ref
from everkept.engines.memory.store import MemoryStore
from everkept.errors import AmbiguousName
from everkept.values import replace


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
    chosen = await select_items(store, ["ADA", "Bob"], deleted=False, containing=None)
    assert {record.id for record in chosen} == {"1", "3"}


async def test_ids_choose_too(store: RecordStore) -> None:
    chosen = await select_items(store, ["2"], deleted=False, containing=None)
    assert [record.id for record in chosen] == ["2"]


async def test_an_unknown_name_means_nothing(store: RecordStore) -> None:
    assert await select_items(store, ["Eve"], deleted=False, containing=None) == []


async def test_everything_that_was_deleted_can_be_chosen(store: RecordStore) -> None:
    chosen = await select_items(store, [], deleted=True, containing=None)
    assert [record.id for record in chosen] == ["3"]


async def test_a_text_chooses_every_record_that_holds_it(store: RecordStore) -> None:
    chosen = await select_items(store, [], deleted=False, containing="XYZZY")
    assert [record.id for record in chosen] == ["2"]
    chosen = await select_items(store, [], deleted=False, containing="BOB")
    assert [record.id for record in chosen] == ["3"]


async def test_everything_that_was_deleted_includes_relations(store: RecordStore) -> None:
    relation = RecordLink("4", "1", "is fond of", "1", 1)
    await store.commit(Batch((Insert(relation), Insert(replace(relation, id="5", verb="x"))), 3, ""))
    await store.commit(Batch((Delete(relation.ref),), 4, "test"))
    chosen = await select_items(store, [], deleted=True, containing=None)
    assert [thing.ref for thing in chosen] == [Ref("record", "3"), Ref("link", "4")]


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_text_is_looked_for_in_verbs_and_types_too(store: RecordStore, *, deleted: bool) -> None:
    relation = RecordLink("4", "1", "is fond of", "1", 1)
    spy = Record("5", "entity", 1, 1, name="Eve", name_key="eve", type="fondling")
    await store.commit(Batch((Insert(relation), Insert(spy)), 3, "test"))
    if deleted:
        await store.commit(Batch((Delete(relation.ref), Delete(spy.ref)), 4, "test"))
    chosen = await select_items(store, [], deleted=False, containing="FOND")
    assert {thing.ref for thing in chosen} == {relation.ref, spy.ref}


@pytest.fixture
async def namesakes(store: RecordStore) -> RecordStore:
    """Two deleted people and a live ship called Zoe."""
    person = Record("p1", "entity", 1, 1, name="Zoe", name_key="zoe", type="person", variant="p")
    again = replace(person, id="p2", type="Person")
    ship = replace(person, id="s", type="ship", variant="s")
    for step in (Insert(person), Delete(person.ref), Insert(again), Delete(again.ref)):
        await store.commit(Batch((step,), 3, "test"))
    await store.commit(Batch((Insert(ship),), 3, "test"))
    return store


async def test_a_name_that_fits_entities_of_several_types_is_ambiguous(namesakes: RecordStore) -> None:
    with pytest.raises(AmbiguousName) as caught:
        await select_items(namesakes, ["zoe"], deleted=False, containing=None)
    candidates = caught.value.facts["candidates"]
    assert {found["use"] for found in candidates} == {"Zoe (Person)", "Zoe (ship)"}
    assert candidates[-1] == {"id": "s", "name": "Zoe", "entity_type": "ship", "use": "Zoe (ship)"}


@pytest.mark.parametrize(("name", "ids"), [("Zoe (person)", ["p1", "p2"]), ("zoe (SHIP)", ["s"]), ("p1", ["p1"])])
async def test_a_name_with_its_type_or_an_id_chooses_among_namesakes(
    namesakes: RecordStore, name: str, ids: list[str]
) -> None:
    chosen = await select_items(namesakes, [name], deleted=False, containing=None)
    assert [thing.id for thing in chosen] == ids


async def test_what_is_no_entity_has_no_name_to_be_chosen_by(store: RecordStore) -> None:
    fact = Record("6", "observation", 1, 1, name_key="fact", text="x", parent="1")
    await store.commit(Batch((Insert(fact),), 3, "test"))
    assert await select_items(store, ["fact"], deleted=False, containing=None) == []
