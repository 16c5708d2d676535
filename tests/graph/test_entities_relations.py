import pytest

from everkept.core.answers import Hops
from everkept.core.ports import RecordStore
from everkept.core.text import compute_name_key
from everkept.engines.memory.library import MemoryLibrary
from everkept.graph.entities import (
    ENTITY,
    build_missing_relations,
    build_relation,
    list_relations_among,
    list_relations_from,
    map_names,
    walk_around,
)
from records import batch, entity


async def test_a_relation_is_known_by_its_ends_and_its_verb() -> None:
    store = await MemoryLibrary().open_user_store()
    ends = [entity(name, variant="thing") for name in ("a", "b", "c")]
    known = [build_relation("a", "Uses", "b", 1), build_relation("b", "owns", "c", 1)]
    await store.commit(batch(*ends, *known))
    exact = await list_relations_from(store, ["a"])
    assert exact == {("a", "Uses", "b"): [known[0]]}
    assert await list_relations_from(store, ["a"], compute_name_key) == {("a", "uses", "b"): [known[0]]}
    wanted = [("a", "uses", "b"), ("a", "Uses", "b"), ("a", "uses", "b")]
    assert [link.verb for link in build_missing_relations(wanted, exact, 2)] == ["uses"]
    assert await list_relations_among(store, {"a", "b"}) == [known[0]]
    assert map_names([*ends, None]) == {"a": "a", "b": "b", "c": "c"}


@pytest.fixture
async def store() -> RecordStore:
    """a uses b, c and d; b uses e; d owns f."""
    made = await MemoryLibrary().open_user_store()
    entities = [entity(name, variant="thing") for name in "abcdef"]
    edges = ["a uses b", "a uses c", "a uses d", "b uses e", "d owns f"]
    await made.commit(batch(*entities, *(build_relation(*edge.split(), 1) for edge in edges)))
    return made


async def met(store: RecordStore, count: int, room: int = 100) -> list[tuple[set[str], int]]:
    starts = await store.get(["a"])
    hops = walk_around(store, starts, Hops(count, sources=(ENTITY,)), room)
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
