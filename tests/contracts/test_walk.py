"""Walks along links: whatever the graph, every engine meets the same links in the same hops."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everkept.core.answers import Direction, Hops
from everkept.core.ports import Library, RecordStore
from everkept.core.records import Delete, RecordFilter, RecordLink, Restore
from everkept.values import replace
from examples import examples
from records import DAY_ONE, batch, entity, link, link_ref, memory, record_ref

ENTITIES, MEMORIES = ["a", "b", "c", "d", "e\0"], ["m", "n"]
KINDS = dict.fromkeys(ENTITIES, "entity") | dict.fromkeys(MEMORIES, "memory")
DIRECTIONS: list[Direction] = ["out", "in", "both"]

IDS = st.sampled_from(list(KINDS))
FEW = st.sampled_from([None, 0, 1, 1, 2, 3])
HOPS = st.builds(
    Hops,
    st.integers(-1, 6) | st.just(3),
    st.sampled_from(DIRECTIONS),
    sources=st.sampled_from([(), (), ("entity",), ("memory", "entity"), ("nothing",)]),
    width=FEW,
    limit=FEW,
)
LINKS = st.lists(st.tuples(IDS, IDS, st.integers(0, 2)), min_size=4, max_size=14, unique_by=lambda x: x[:2])


async def met(store: RecordStore, ids: Sequence[str], hops: Hops) -> list[list[str]]:
    return [[link.id for link in links] for links in await store.walk(ids, hops)]


@pytest.fixture
async def ring(store: RecordStore) -> RecordStore:
    """Four entities in a circle, with a way across it and a memory about one of them."""
    await store.commit(
        batch(
            *(entity(name) for name in "abcd"),
            memory("m"),
            link("a", "to", "b"),
            link("b", "to", "c"),
            link("c", "to", "d"),
            link("d", "to", "a"),
            link("a", "to", "c", created_at=DAY_ONE - 1),
            link("m", "on", "b"),
        )
    )
    return store


@pytest.mark.smoke
async def test_each_link_is_met_once_and_a_circle_ends_the_walk(ring: RecordStore) -> None:
    assert await met(ring, ["a"], Hops(1)) == [["a to c", "a to b", "d to a"]]
    assert await met(ring, ["a"], Hops(9)) == [["a to c", "a to b", "d to a"], ["b to c", "c to d", "m on b"]]
    assert await met(ring, ["a"], Hops(9, "out")) == [["a to c", "a to b"], ["b to c", "c to d"], ["d to a"]]
    assert await met(ring, ["a", "a", "c"], Hops(1, "in")) == [["a to c", "b to c", "d to a"]]


async def test_a_walk_that_goes_nowhere_meets_nothing(ring: RecordStore) -> None:
    assert await met(ring, [], Hops(2)) == []
    assert await met(ring, ["nobody"], Hops(2)) == []
    assert await met(ring, ["a"], Hops(0)) == []
    assert await met(ring, ["m"], Hops(2, "in")) == []


async def test_only_links_that_go_out_from_the_kinds_are_followed(ring: RecordStore) -> None:
    assert await met(ring, ["m"], Hops(3, sources=("entity",))) == []
    assert await met(ring, ["m"], Hops(2, "out", sources=("memory",))) == [["m on b"]]
    assert await met(ring, ["m"], Hops(2, "out", sources=("memory", "entity"))) == [["m on b"], ["b to c"]]


async def test_the_oldest_links_are_followed_and_lead_to_the_next_records(ring: RecordStore) -> None:
    assert await met(ring, ["a"], Hops(2, limit=1)) == [["a to c"]]
    assert await met(ring, ["a"], Hops(2, "out", limit=1)) == [["a to c"], ["c to d"]]
    assert await met(ring, ["a"], Hops(2, "out", width=1)) == [["a to c", "a to b"], ["c to d"]]
    assert await met(ring, ["a"], Hops(9, width=1)) == [
        ["a to c", "a to b", "d to a"],
        ["b to c", "c to d"],
        ["m on b"],
    ]
    assert await met(ring, ["a"], Hops(2, "out", width=0)) == [["a to c", "a to b"]]


async def test_what_is_deleted_is_not_on_the_way(ring: RecordStore) -> None:
    await ring.commit(batch(Delete(link_ref("a to c")), Delete(record_ref("d"))))
    assert await met(ring, ["a"], Hops(3)) == [["a to b"], ["b to c", "m on b"]]
    await ring.commit(batch(Restore(link_ref("a to c"))))
    assert await met(ring, ["a"], Hops(3)) == [["a to c", "a to b"], ["b to c", "m on b"]]


def expected(
    links: Sequence[RecordLink], kinds: Mapping[str, str], ids: Sequence[str], hops: Hops
) -> list[list[RecordLink]]:
    """What the port promises, of links in their order."""
    usable = [x for x in links if not hops.sources or kinds[x.source] in hops.sources]
    walked: list[list[RecordLink]] = []
    gone_on_from, edge = set(ids), list(ids)
    for _ in range(hops.count):
        sides = {"out": ("source",), "in": ("target",), "both": ("source", "target")}
        here = [x for x in usable if any(getattr(x, s) in edge for s in sides[hops.direction])]
        known = [link for before in walked for link in before]
        new = [link for link in here[: hops.limit] if link not in known]
        if not new:
            break
        walked.append(new)
        named = list(dict.fromkeys(end for link in new for end in (link.source, link.target)))
        edge = [end for end in named if end not in gone_on_from][: hops.width]
        gone_on_from |= set(edge)
    return walked


@settings(
    max_examples=examples(25),
    deadline=None,
    # A store of its own is made for each example.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    drawn=LINKS,
    gone=st.sets(st.integers(0, 13), max_size=3),
    dead=st.sets(IDS, max_size=1),
    walks=st.lists(st.tuples(st.lists(IDS, min_size=1, max_size=2), HOPS), min_size=3, max_size=6),
)
async def test_any_walk_through_any_graph_is_the_same(
    library: Library,
    drawn: list[tuple[str, str, int]],
    gone: set[int],
    dead: set[str],
    walks: list[tuple[list[str], Hops]],
) -> None:
    name = f"graph {len(await library.list_projects())}"
    await library.create(name, "")
    _, store = await library.open(name)
    links = [replace(link(source, "to", target), created_at=DAY_ONE + day) for source, target, day in drawn]
    await store.commit(batch(*map(entity, ENTITIES), *map(memory, MEMORIES), *links))
    lost = [x.id for number, x in enumerate(links) if number in gone]
    await store.commit(batch(*(Delete(link_ref(i)) for i in lost), *(Delete(record_ref(i)) for i in dead)))
    live = [x for x in links if x.id not in lost and not dead & {x.source, x.target}]
    live.sort(key=lambda x: x.created_at)
    for ids, hops in walks:
        assert await store.walk(ids, hops) == expected(live, KINDS, ids, hops)


@pytest.fixture
async def told(store: RecordStore) -> RecordStore:
    """Memories about two entities; one of them says two things of both."""
    await store.commit(
        batch(
            *(entity(name) for name in "abc"),
            memory("m"),
            memory("n", type="episodic"),
            memory("own", scope="session", session="one"),
            link("m", "on", "a"),
            link("own", "on", "a", created_at=DAY_ONE + 1),
            link("n", "on", "a", created_at=DAY_ONE + 2),
            link("m", "on", "b", created_at=DAY_ONE - 1),
            link("m", "of", "a", created_at=DAY_ONE + 3),
            link("a", "to", "b"),
            link("m", "on", "c"),
        )
    )
    return store


async def sources(
    store: RecordStore, of: Sequence[str], limit: int = 9, **asked: Any
) -> tuple[Mapping[str, int], list[str]]:
    found = await store.count_sources(of, RecordFilter(**({"kinds": ("memory",)} | asked)), limit)
    return found.counts, [link.id for link in found.links]


async def test_what_links_to_a_record_is_counted_once(told: RecordStore) -> None:
    assert await sources(told, ["a", "b", "a"]) == (
        {"a": 3, "b": 1},
        ["m on b", "m on a", "own on a", "n on a", "m of a"],
    )
    assert await sources(told, ["b"], kinds=()) == ({"b": 2}, ["m on b", "a to b"])
    assert await sources(told, ["m", "nobody"]) == ({}, [])
    assert await sources(told, []) == ({}, [])


async def test_only_the_newest_sources_are_told_with_all_their_links(told: RecordStore) -> None:
    assert await sources(told, ["a"], 1) == ({"a": 3}, ["m on a", "m of a"])
    assert await sources(told, ["a", "b"], 2) == ({"a": 3, "b": 1}, ["m on b", "m on a", "n on a", "m of a"])
    assert await sources(told, ["a"], 0) == ({"a": 3}, [])


async def test_sources_that_do_not_fit_are_not_counted(told: RecordStore) -> None:
    assert await sources(told, ["a"], visible_to="two") == ({"a": 2}, ["m on a", "n on a", "m of a"])
    assert await sources(told, ["a"], visible_to="one", limit=2) == ({"a": 3}, ["m on a", "n on a", "m of a"])
    assert await sources(told, ["a"], types=("episodic",)) == ({"a": 1}, ["n on a"])
    assert await sources(told, ["a"], ids=("own", "n")) == ({"a": 2}, ["own on a", "n on a"])
    await told.commit(batch(Delete(link_ref("m of a")), Delete(record_ref("n"))))
    assert await sources(told, ["a"]) == ({"a": 2}, ["m on a", "own on a"])
