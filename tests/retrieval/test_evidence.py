import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from everkept.embedders.hashing import HashingEmbedder
from everkept.errors import ModelUnavailable
from everkept.retrieval.search import Strategy
from everkept.values import replace
from shelving import MEMORIES, Shelf, memory

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
async def test_a_model_that_is_still_loading_is_not_waited_for(
    filled: Shelf, strategy: Strategy
) -> None:
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
    stuck = Shelf([Stuck(filled.stores[0], "near")], filled.embedder)
    found = await stuck.search("parser", time_limit=1.0)
    assert [hit.record.text for hit in found.hits] == ["the parser is in Rust"]
    assert [notice.code for notice in found.notices] == ["partial_results"]


async def test_when_nothing_is_there_in_time_the_answer_is_empty_and_says_why(
    filled: Shelf,
) -> None:
    store = Stuck(filled.stores[0], "match", "near", "authors")
    stuck = Shelf([store], filled.embedder)
    found = await stuck.search("parser", time_limit=SHORT)
    assert found.hits == []
    assert [notice.code for notice in found.notices] == ["query_timeout"]
