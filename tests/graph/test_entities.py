from everkept.core.records import Insert, Update
from everkept.engines.memory.library import MemoryLibrary
from everkept.graph.entities import (
    BY_NAME_AND_TYPE,
    STUB_FACETS,
    build_entity,
    build_entity_step,
    build_missing_observations,
    build_observation,
    find_stub,
    list_observations,
)
from everkept.values import replace
from records import batch


def test_an_entity_is_inserted_or_described_in_the_place_of_its_stub() -> None:
    new = build_entity("Ada", "person", "person", 2, {"attrs": {"born": 1815}})
    assert build_entity_step(new, None) == (Insert(new), new)
    stub = build_entity("ada", "unknown", "=ada", 1, STUB_FACETS)
    step, made = build_entity_step(new, stub)
    assert made == replace(new, id=stub.id, created_at=stub.created_at)
    values = {"name": "Ada", "type": "person", "variant": "person", "facets": new.facets}
    assert step == Update(stub.id, values, stub.version)


def test_the_stub_with_the_same_spelling_comes_before_the_first_one() -> None:
    described = build_entity("Ada", "person", "person", 1)
    stubs = [build_entity(name, "unknown", f"={name}", 1, STUB_FACETS) for name in ("ada", "Ada")]
    assert find_stub([described, *stubs], "Ada") == stubs[1]
    assert find_stub([described, *stubs], "ADA") == stubs[0]
    assert find_stub([described], "Ada") is None


async def test_a_text_is_on_an_entity_once() -> None:
    store = await MemoryLibrary().open_user_store()
    ada, bob = (BY_NAME_AND_TYPE.build_entity(name, "person", 1) for name in ("Ada", "Bob"))
    known = build_observation(ada.id, "writes", 1)
    await store.commit(batch(ada, bob, known))
    wanted = {ada.id: ["writes", "reads", "reads"], bob.id: ["writes"]}
    made = await build_missing_observations(store, wanted, 2)
    assert {owner: [o.text for o in many] for owner, many in made.items()} == {ada.id: ["reads"], bob.id: ["writes"]}
    assert [o.id for o in await list_observations(store, [ada.id, bob.id])] == [known.id]
    assert await list_observations(store, [bob.id], ["writes"]) == []
    assert await list_observations(store, [ada.id], []) == []
