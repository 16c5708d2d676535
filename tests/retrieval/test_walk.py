import pytest

from everkept.core.records import Where
from everkept.values import replace
from making import entity, link
from shelving import MEMORIES, Shelf, memory

GRAPH = replace(MEMORIES, strategy="graph")


@pytest.fixture
async def graph(shelf: Shelf) -> Shelf:
    """A memory at each entity of a chain; the gateway uses the token service, which uses Redis."""
    await shelf.put(
        entity("API Gateway"),
        entity("TokenService"),
        entity("Redis"),
        entity("Disk"),
        memory("it answers in 20 ms"),
        memory("it rotates keys at night"),
        memory("it has 2 GB"),
        memory("it is nearly full"),
        memory("lunch is at noon"),
        link("API Gateway", "uses", "TokenService"),
        link("TokenService", "uses", "Redis"),
        link("Redis", "uses", "Disk"),
        link("it answers in 20 ms", "about", "API Gateway"),
        link("it rotates keys at night", "about", "TokenService"),
        link("it has 2 GB", "about", "Redis"),
        link("it is nearly full", "about", "Disk"),
    )
    return shelf


async def test_memories_are_found_by_the_entities_of_the_query_nearest_first(graph: Shelf) -> None:
    found = await graph.search("What do we know about the api gateway?", GRAPH)
    assert [hit.record.text for hit in found.hits] == [
        "it answers in 20 ms",
        "it rotates keys at night",
        "it has 2 GB",
    ]
    assert found.strategy == "graph"
    assert found.hits[0].why["closeness"] > found.hits[2].why["closeness"] > 0
    assert found.notices == []


@pytest.mark.parametrize(
    "query",
    [
        "TokenService",
        "tokenservice's keys",
        'the "API Gateway" and its friends',
        "gateway",
        "how is the token service",
    ],
)
async def test_a_name_is_found_quoted_in_other_case_and_by_a_word(graph: Shelf, query: str) -> None:
    found = await graph.search(query, GRAPH)
    assert found.strategy == "graph"
    assert "it rotates keys at night" in [hit.record.text for hit in found.hits]


async def test_the_query_decides_among_memories_of_one_entity(graph: Shelf) -> None:
    await graph.put(memory("it was written by Ann"), link("it was written by Ann", "of", "Redis"))
    for query, first in (
        ("how many GB has Redis", "it has 2 GB"),
        ("who was Redis written by", "it was written by Ann"),
    ):
        assert (await graph.texts(query, GRAPH))[0] == first


async def test_filters_hold_on_the_walk(graph: Shelf) -> None:
    assert await graph.texts("Redis", GRAPH, where=Where(tags=("none",))) == []


async def test_without_an_entity_it_is_a_search_by_words_and_meaning(graph: Shelf) -> None:
    found = await graph.search("when is lunch", GRAPH)
    assert found.hits[0].record.text == "lunch is at noon"
    assert found.strategy == "hybrid"
    assert [notice.code for notice in found.notices] == ["no_entities"]


async def test_an_entity_that_nothing_is_linked_to_leads_nowhere(graph: Shelf) -> None:
    await graph.put(entity("Lunch"))
    found = await graph.search("when is lunch", GRAPH)
    assert (found.strategy, found.hits[0].record.text) == ("hybrid", "lunch is at noon")


async def test_entities_of_each_place_lead_to_memories_of_that_place(two_shelves: Shelf) -> None:
    await two_shelves.put(
        entity("Redis"), memory("it has 2 GB"), link("it has 2 GB", "of", "Redis")
    )
    liked = memory("I like it", scope="user")
    await two_shelves.put(entity("Redis"), liked, link("I like it", "of", "Redis"), store=1)
    found = await two_shelves.search("Redis", GRAPH)
    assert {(hit.place, hit.record.text) for hit in found.hits} == {
        (0, "it has 2 GB"),
        (1, "I like it"),
    }
