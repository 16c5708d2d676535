from everkept.core.records import Insert, Update
from everkept.engines.memory.library import MemoryLibrary
from everkept.graph.entities import (
    STUB,
    make_entity,
    missing_observations,
    new_entity,
    new_observation,
    observations_of,
    stub_named,
)
from everkept.graph.lookup import BY_NAME_AND_TYPE
from everkept.values import replace
from records import batch


def test_an_entity_is_inserted_or_described_in_the_place_of_its_stub() -> None:
    new = new_entity("Ada", "person", "person", 2, {"attrs": {"born": 1815}})
    assert make_entity(new, None) == (Insert(new), new)
    stub = new_entity("ada", "unknown", "=ada", 1, STUB)
    step, made = make_entity(new, stub)
    assert made == replace(new, id=stub.id)
    values = {"name": "Ada", "type": "person", "variant": "person", "facets": new.facets}
    assert step == Update(stub.id, values, stub.version)


def test_the_stub_with_the_same_spelling_comes_before_the_first_one() -> None:
    described = new_entity("Ada", "person", "person", 1)
    stubs = [new_entity(name, "unknown", f"={name}", 1, STUB) for name in ("ada", "Ada")]
    assert stub_named([described, *stubs], "Ada") == stubs[1]
    assert stub_named([described, *stubs], "ADA") == stubs[0]
    assert stub_named([described], "Ada") is None


async def test_a_text_is_on_an_entity_once() -> None:
    store = await MemoryLibrary().user()
    ada, bob = (BY_NAME_AND_TYPE.new(name, "person", 1) for name in ("Ada", "Bob"))
    known = new_observation(ada.id, "writes", 1)
    await store.commit(batch(ada, bob, known))
    wanted = {ada.id: ["writes", "reads", "reads"], bob.id: ["writes"]}
    made = await missing_observations(store, wanted, 2)
    assert {owner: [o.text for o in many] for owner, many in made.items()} == {
        ada.id: ["reads"],
        bob.id: ["writes"],
    }
    assert [o.id for o in await observations_of(store, [ada.id, bob.id])] == [known.id]
    assert await observations_of(store, [bob.id], ["writes"]) == []
    assert await observations_of(store, [ada.id], []) == []
