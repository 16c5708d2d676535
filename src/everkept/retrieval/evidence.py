"""What speaks for each record: both legs and the walk through the graph, within the time given."""

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from everkept.core.ports import Embedder
from everkept.errors import ModelUnavailable
from everkept.language.words import Query
from everkept.retrieval.deadline import Deadline
from everkept.retrieval.legs import (
    Key,
    Question,
    Scores,
    WordsFound,
    by_meaning,
    by_words,
    embedded,
    understood,
)
from everkept.retrieval.profile import Notice, Place, Profile, Strategy, Tier
from everkept.retrieval.walk import closeness
from everkept.values import Value, field, replace

if TYPE_CHECKING:  # loaded by whoever embeds
    import numpy as np
    from numpy.typing import NDArray

NOT_BY_GRAPH = "The query names no entity with anything linked to it; found by words and meaning."
ALSO = 50  # of the best by words whose meaning is compared, however far it is
LEFT_FOR_NEARNESS = 0.25  # of the time, when a word query or the model takes long
NO_MEANING = "Meaning search is switched off; found by words."


class Evidence(Value, frozen=False):
    """What was found, by place and id, and what could not be looked for."""

    strategy: Strategy
    words: Scores = field(default_factory=dict[Key, float])
    cosines: Scores = field(default_factory=dict[Key, float])
    closeness: Scores = field(default_factory=dict[Key, float])
    authors: frozenset[str] = frozenset()
    tier: Tier | None = None
    late: list[str] = field(default_factory=list[str])
    notices: list[Notice] = field(default_factory=list[Notice])


async def gathered(
    places: Sequence[Place],
    query: Query,
    profile: Profile,
    embedder: Embedder | None,
    deadline: Deadline,
) -> Evidence:
    """Embedding the query takes the longest, so that the words are looked up meanwhile."""
    evidence = Evidence(profile.strategy)
    if profile.strategy == "keyword":
        _take_words(evidence, await deadline.one(by_words(places, query, profile)))
        return evidence
    if profile.strategy == "graph":
        places = await _around_entities(places, query, evidence, deadline)
    asked = _Asked(query.text)
    vector = await _both_legs(evidence, asked, places, query, profile, embedder, deadline)
    evidence.authors = asked.question.authors
    if embedder is not None and vector is not None:
        await _take_meaning(evidence, places, embedder.name, vector, deadline)
    elif evidence.strategy != "graph":
        evidence.strategy = "keyword"
    return evidence


class _Asked:
    """The question, read as soon as the stores have said who their authors are."""

    def __init__(self, text: str) -> None:
        self.question = Question(text)

    async def understand(self, places: Sequence[Place]) -> None:
        self.question = await understood(places, self.question.text)

    async def embed(
        self, places: Sequence[Place], embedder: Embedder
    ) -> "NDArray[np.float32] | ModelUnavailable":
        await self.understand(places)
        return await embedded(embedder, self.question.text)


async def _both_legs(
    evidence: Evidence,
    asked: _Asked,
    places: Sequence[Place],
    query: Query,
    profile: Profile,
    embedder: Embedder | None,
    deadline: Deadline,
) -> "NDArray[np.float32] | None":
    """Takes what the words find, where they are wanted, and gives the vector of the question."""
    soon = deadline.sooner(LEFT_FOR_NEARNESS)
    if embedder is None:
        await soon.one(asked.understand(places))
        if profile.strategy == "vector":
            evidence.notices.append(Notice("partial_results", NO_MEANING))
    elif profile.strategy == "vector":
        vector = _vector(evidence, await soon.one(asked.embed(places, embedder)))
        if vector is not None:
            return vector
    else:
        answer, words = await soon.both(
            asked.embed(places, embedder), by_words(places, query, profile)
        )
        _take_words(evidence, words)
        return _vector(evidence, answer)
    _take_words(evidence, await deadline.one(by_words(places, query, profile)))
    return None


async def _around_entities(
    places: Sequence[Place], query: Query, evidence: Evidence, deadline: Deadline
) -> Sequence[Place]:
    """The places narrowed to what the graph leads to, or as they are when it leads nowhere."""
    found = await deadline.one(closeness(places, query.text))
    if not found:
        evidence.strategy = "hybrid"
        evidence.notices.append(Notice("no_entities", NOT_BY_GRAPH))
        return places
    evidence.closeness = found
    return [
        replace(place, where=replace(place.where, ids=tuple(i for at, i in found if at == number)))
        for number, place in enumerate(places)
    ]


def _take_words(evidence: Evidence, found: WordsFound | None) -> None:
    if found is None:
        evidence.late.append("words")
    else:
        evidence.words, evidence.tier = found.scores, found.tier


async def _take_meaning(
    evidence: Evidence,
    places: Sequence[Place],
    model: str,
    vector: "NDArray[np.float32]",
    deadline: Deadline,
) -> None:
    best = islice(evidence.words, ALSO)  # what stands behind them in words is near, or no use
    also = dict.fromkeys([*best, *evidence.closeness])
    found = await deadline.one(by_meaning(places, model, vector, also))
    if found is None:
        evidence.late.append("meaning")
    else:
        evidence.cosines = found


def _vector(
    evidence: Evidence, answer: "NDArray[np.float32] | ModelUnavailable | None"
) -> "NDArray[np.float32] | None":
    if isinstance(answer, ModelUnavailable):
        reason = answer.message.rstrip(".")
        message = f"Meaning search is unavailable ({reason}); found by words."
        evidence.notices.append(Notice("partial_results", message))
        return None
    if answer is None:
        evidence.late.append("meaning")
    return answer
