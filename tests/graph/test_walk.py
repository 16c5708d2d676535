import pytest
from making import batch, entity

from everkept.core.ports import RecordStore
from everkept.core.walking import Hops
from everkept.engines.memory.library import MemoryLibrary
from everkept.graph.entities import ENTITY
from everkept.graph.relations import new_relation
from everkept.graph.walk import walk_around


@pytest.fixture
async def store() -> RecordStore:
    """a uses b, c and d; b uses e; d owns f."""
    made = await MemoryLibrary().user()
    entities = [entity(name, variant="thing") for name in "abcdef"]
    edges = ["a uses b", "a uses c", "a uses d", "b uses e", "d owns f"]
    await made.commit(batch(*entities, *(new_relation(*edge.split(), 1) for edge in edges)))
    return made


async def met(
    store: RecordStore, count: int, room: int | None = None
) -> list[tuple[set[str], int]]:
    starts = await store.get(["a"])
    hops = walk_around(store, starts, Hops(count, sources=(ENTITY,)), room=room)
    return [({record.id for record in hop.entities}, hop.left_out) async for hop in hops]


async def test_each_hop_reaches_the_entities_beyond_the_last(store: RecordStore) -> None:
    assert await met(store, 0) == []
    assert await met(store, 1) == [({"b", "c", "d"}, 0)]
    assert await met(store, 2) == [({"b", "c", "d"}, 0), ({"e", "f"}, 0)]


async def test_the_walk_counts_what_it_has_no_room_for(store: RecordStore) -> None:
    found = await met(store, 2, room=5)
    assert [(len(entities), left_out) for entities, left_out in found] == [(3, 0), (1, 1)]
    [(first, left_out), *_] = await met(store, 2, room=3)
    assert (len(first), left_out) == (2, 1)


async def test_the_walk_goes_only_along_relations_that_fit(store: RecordStore) -> None:
    starts = await store.get(["d"])
    hops = walk_around(store, starts, Hops(2), fits=lambda link: link.verb == "owns")
    assert [[record.id for record in hop.entities] async for hop in hops] == [["f"]]
