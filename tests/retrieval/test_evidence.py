import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from everkept.core.records import RecordFilter
from everkept.errors import ModelUnavailable
from everkept.retrieval.profile import Strategy
from everkept.values import replace
from hash_embedder import HashingEmbedder
from memory_shelf import MEMORIES, Shelf, memory
from records import entity, link

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SHORT = 1.0  # seconds; what is waited for here never comes


class Broken(HashingEmbedder):
    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        raise ModelUnavailable("model.onnx", "is damaged")


class Loading(HashingEmbedder):
    """A model that is ready only when it is told so."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        await self.ready.wait()
        return await super().embed(texts)


class Stuck:
    """A store whose answers never come, as on a disk that hangs."""

    def __init__(self, store: Any, *hanging: str) -> None:
        self._store = store
        self._hanging = hanging

    def __getattr__(self, name: str) -> Any:
        return self._never if name in self._hanging else getattr(self._store, name)

    async def _never(self, *_: Any, **__: Any) -> None:
        await asyncio.Event().wait()


@pytest.fixture
async def filled(shelf: Shelf) -> Shelf:
    await shelf.put(memory("the parser is in Rust"), memory("lunch is at noon"))
    return shelf


@pytest.mark.parametrize("strategy", ["vector", "hybrid"])
async def test_a_broken_model_leaves_the_search_by_words(filled: Shelf, strategy: Strategy) -> None:
    found = await filled.search("parser", replace(MEMORIES, strategy=strategy), embedder=Broken())
    assert [hit.record.text for hit in found.hits] == ["the parser is in Rust"]
    assert found.strategy == "keyword"
    assert [notice.code for notice in found.notices] == ["partial_results"]
    assert "damaged" in found.notices[0].message


@pytest.mark.parametrize("strategy", ["vector", "hybrid"])
async def test_a_model_that_is_still_loading_is_not_waited_for(filled: Shelf, strategy: Strategy) -> None:
    model = Loading()
    profile = replace(MEMORIES, strategy=strategy)
    found = await filled.search("parser", profile, embedder=model, time_limit=SHORT)
    assert [hit.record.text for hit in found.hits] == ["the parser is in Rust"]
    assert [notice.code for notice in found.notices] == ["partial_results"]
    model.ready.set()
    found = await filled.search("parser", profile, embedder=model, time_limit=60)
    assert (found.strategy, found.notices) == (strategy, [])


async def test_without_meaning_hybrid_is_by_words_and_says_no_more(filled: Shelf) -> None:
    found = await filled.search("parser", embedder=None)
    assert (len(found.hits), found.strategy, found.notices) == (1, "keyword", [])


async def test_who_asks_for_meaning_hears_that_there_is_none(filled: Shelf) -> None:
    found = await filled.search("parser", replace(MEMORIES, strategy="vector"), embedder=None)
    assert (found.hits[0].score, found.strategy) == (1, "keyword")
    assert [notice.code for notice in found.notices] == ["partial_results"]


async def test_words_that_take_too_long_leave_the_meaning(filled: Shelf) -> None:
    stuck = Shelf([Stuck(filled.stores[0], "match")], filled.embedder)
    await filled.search("parser")  # whose vectors are in memory from here on
    found = await stuck.search("parser in Rust", time_limit=1.0)
    assert found.hits[0].record.text == "the parser is in Rust"
    assert [notice.code for notice in found.notices] == ["partial_results"]


async def test_nearness_that_takes_too_long_leaves_the_words(filled: Shelf) -> None:
    stuck = Shelf([Stuck(filled.stores[0], "find_near")], filled.embedder)
    found = await stuck.search("parser", time_limit=1.0)
    assert [hit.record.text for hit in found.hits] == ["the parser is in Rust"]
    assert [notice.code for notice in found.notices] == ["partial_results"]


async def test_when_nothing_is_there_in_time_the_answer_is_empty_and_says_why(filled: Shelf) -> None:
    store = Stuck(filled.stores[0], "match", "find_near", "list_authors")
    stuck = Shelf([store], filled.embedder)
    found = await stuck.search("parser", time_limit=SHORT)
    assert found.hits == []
    assert [notice.code for notice in found.notices] == ["query_timeout"]


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
    assert [hit.record.text for hit in found.hits] == ["it answers in 20 ms", "it rotates keys at night", "it has 2 GB"]
    assert found.strategy == "graph"
    assert found.hits[0].why["closeness"] > found.hits[2].why["closeness"] > 0
    assert found.notices == []


@pytest.mark.parametrize(
    "query",
    ["TokenService", "tokenservice's keys", 'the "API Gateway" and its friends', "gateway", "how is the token service"],
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
    assert await graph.texts("Redis", GRAPH, where=RecordFilter(tags=("none",))) == []


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
    await two_shelves.put(entity("Redis"), memory("it has 2 GB"), link("it has 2 GB", "of", "Redis"))
    liked = memory("I like it", scope="user")
    await two_shelves.put(entity("Redis"), liked, link("I like it", "of", "Redis"), store=1)
    found = await two_shelves.search("Redis", GRAPH)
    assert {(hit.place, hit.record.text) for hit in found.hits} == {(0, "it has 2 GB"), (1, "I like it")}
