from making import batch

from everkept.engines.memory.library import MemoryLibrary
from everkept.graph.identity import BY_NAME_AND_TYPE
from everkept.graph.observations import missing_observations, new_observation, observations_of


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
