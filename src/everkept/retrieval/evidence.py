"""What speaks for each record: both legs and the walk through the graph, within the time given."""

import asyncio
import re
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from everkept.core.ports import Embedder, RecordStore
from everkept.core.records import Weights, Where
from everkept.core.text import normalised
from everkept.core.walking import Hops, beyond
from everkept.errors import ModelUnavailable
from everkept.graph.entities import ENTITY
from everkept.language.stop_words import STOP_WORDS
from everkept.language.words import Query, parse_query
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
from everkept.retrieval.profile import Deadline, Notice, Place, Profile, Strategy, Tier
from everkept.values import Value, field, replace

if TYPE_CHECKING:  # a hook loads only what it uses
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


HOPS = 2  # from a named entity to the entities whose records count
LONGEST_NAME = 6  # words
LONGEST_READ = 2_000  # characters of the query
BY_WORD = 5  # entities that are taken where no name stands in the query as it is
FRONTIER = 100  # entities of one hop that are gone on from
LINKS = 2_000  # followed at each hop
NEAREST = 200  # records that are weighed
RELATED = Hops(HOPS, sources=(ENTITY,), width=FRONTIER, limit=LINKS)

_WORD = re.compile(r"[^\s,;?!()]+")
_QUOTED = re.compile(r"[\"“„`']([^\"”“`']{1,200})[\"”“`']")
_NAMES_ALONE = Weights(name=1.0, text=0.0, context=0.0)


async def closeness(places: Sequence[Place], query: str) -> dict[Key, float] | None:
    """How near each record is to an entity of the query: 1 at the entity, less with every hop.

    None when the query names no entity.
    """
    named = await asyncio.gather(*(_named(place.store, query) for place in places))
    if not any(named):
        return None
    found = await asyncio.gather(
        *(_around(place, entities) for place, entities in zip(places, named, strict=True))
    )
    return {(i, key): value for i, near in enumerate(found) for key, value in near.items()}


async def _named(store: RecordStore, query: str) -> list[str]:
    """The ids of entities whose names stand in the query, else of those that share a word."""
    keys = tuple(_possible_names(query))
    exact = await store.scan(Where(kinds=(ENTITY,), name_keys=keys)) if keys else []
    if exact:
        return [record.id for record in exact]
    words = parse_query(query[:LONGEST_READ]).any_term()
    if words is None:
        return []
    where = Where(kinds=(ENTITY,))
    matches = await store.match(words, where, _NAMES_ALONE, BY_WORD)
    return [match.id for match in matches if match.score > 0]


def _possible_names(query: str) -> list[str]:
    """Every row of words that may be a name, as names are compared."""
    text = query[:LONGEST_READ]
    words = [word.strip(".:'’\"“”`") for word in _WORD.findall(text)]
    words = [word.removesuffix("'s").removesuffix("’s") for word in words if word]
    rows = [
        " ".join(words[start : start + size])
        for start in range(len(words))
        for size in range(1, min(LONGEST_NAME, len(words) - start) + 1)
    ]
    names = (normalised(row) for row in (*_QUOTED.findall(text), *rows))
    return [name for name in dict.fromkeys(names) if name and name not in STOP_WORDS]


async def _around(place: Place, entities: Sequence[str]) -> dict[str, float]:
    """The newest records about what is nearest, as many as one search can weigh."""
    store, kinds = place.store, place.where.kinds
    near: dict[str, float] = {}

    async def meet(edge: Sequence[str], hop: int) -> bool:
        """Whether there is room for more."""
        about = await store.links(edge, direction="in", sources=kinds, limit=LINKS)
        for link in reversed(about):
            near.setdefault(link.source, 1 / (1 + hop))
        return len(near) < NEAREST

    if entities and await meet(entities, 0):
        seen = set(entities)
        for hop, links in enumerate(await store.walk(entities, RELATED), 1):
            edge = beyond(links, seen, FRONTIER)
            if not edge or not await meet(edge, hop):
                break
            seen.update(edge)
    nearest = tuple(islice(near, NEAREST))
    kept = replace(place.where, ids=nearest)
    allowed = {record.id for record in await store.scan(kept)} if near else set[str]()
    return {record_id: near[record_id] for record_id in nearest if record_id in allowed}
