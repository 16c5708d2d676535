"""Evidence for each candidate, collected within the time limit."""

import asyncio
import re
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from everkept.core.answers import Hops, list_next_ids
from everkept.core.ports import Embedder, RecordStore
from everkept.core.records import RecordFilter, Weights
from everkept.core.text import compute_name_key
from everkept.errors import ModelUnavailable
from everkept.graph.entities import ENTITY
from everkept.language.words import STOP_WORDS, TypedQuery, parse_query
from everkept.retrieval.candidates import (
    Key,
    MeaningQuestion,
    Scores,
    WordMatches,
    embed_question,
    find_by_meaning,
    find_by_words,
    parse_question,
)
from everkept.retrieval.fusion import NearnessLimits
from everkept.retrieval.profile import Deadline, SearchNotice, SearchPlace, SearchProfile, Strategy, Tier
from everkept.values import Value, field, replace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NO_GRAPH_NOTICE = "The query names no entity with linked records. These results match by words and meaning."
COMPARED_BY_WORDS = 50  # best records by words whose meaning is compared, however far it is
NEARNESS_TIME_SHARE = 0.25  # of the time, kept for comparing vectors if words or the model take long
NO_MEANING_NOTICE = "Search by meaning is turned off. These results match by words."


class Evidence(Value, frozen=False):
    """Scores by place and id, and the parts of the search that are missing."""

    strategy: Strategy
    words: Scores = field(default_factory=dict[Key, float])
    cosines: Scores = field(default_factory=dict[Key, float])
    limits: NearnessLimits | None = None
    closeness: Scores = field(default_factory=dict[Key, float])
    authors: frozenset[str] = frozenset()
    tier: Tier | None = None
    is_capped: bool = False  # True if there were more candidates than a search takes
    late: list[str] = field(default_factory=list[str])
    notices: list[SearchNotice] = field(default_factory=list[SearchNotice])


async def gather_evidence(
    places: Sequence[SearchPlace],
    query: TypedQuery,
    profile: SearchProfile,
    embedder: Embedder | None,
    deadline: Deadline,
) -> Evidence:
    """Search as the profile asks. The search by words runs while the query is embedded, which takes longest."""
    evidence = Evidence(profile.strategy)
    if profile.strategy == "keyword":
        _take_words(evidence, await deadline.run(find_by_words(places, query, profile)))
        return evidence
    if profile.strategy == "graph":
        places = await _narrow_to_graph(places, query, evidence, deadline)
    asked = _MeaningQuery(query.text)
    vector = await _run_both(evidence, asked, places, query, profile, embedder, deadline)
    evidence.authors = asked.question.authors
    if embedder is not None and vector is not None:
        evidence.limits = NearnessLimits.from_background(embedder.background, profile.least_meaning)
        await _take_meaning(evidence, places, embedder.name, vector, deadline)
    elif evidence.strategy != "graph":
        evidence.strategy = "keyword"
    return evidence


class _MeaningQuery:
    """Query whose text and authors are known once the stores have listed their authors."""

    def __init__(self, text: str) -> None:
        self.question = MeaningQuestion(text)

    async def understand(self, places: Sequence[SearchPlace]) -> None:
        self.question = await parse_question(places, self.question.text)

    async def embed(
        self, places: Sequence[SearchPlace], embedder: Embedder
    ) -> "NDArray[np.float32] | ModelUnavailable":
        await self.understand(places)
        return await embed_question(embedder, self.question.text)


async def _run_both(
    evidence: Evidence,
    asked: _MeaningQuery,
    places: Sequence[SearchPlace],
    query: TypedQuery,
    profile: SearchProfile,
    embedder: Embedder | None,
    deadline: Deadline,
) -> "NDArray[np.float32] | None":
    """Collect the evidence by words, if the profile uses it, and return the vector of the query."""
    soon = deadline.with_reserve(NEARNESS_TIME_SHARE)
    if embedder is None:
        await soon.run(asked.understand(places))
        if profile.strategy == "vector":
            evidence.notices.append(SearchNotice("partial_results", NO_MEANING_NOTICE))
    elif profile.strategy == "vector":
        vector = _take_vector(evidence, await soon.run(asked.embed(places, embedder)))
        if vector is not None:
            return vector
    else:
        answer, words = await soon.run_both(asked.embed(places, embedder), find_by_words(places, query, profile))
        _take_words(evidence, words)
        return _take_vector(evidence, answer)
    _take_words(evidence, await deadline.run(find_by_words(places, query, profile)))
    return None


async def _narrow_to_graph(
    places: Sequence[SearchPlace], query: TypedQuery, evidence: Evidence, deadline: Deadline
) -> Sequence[SearchPlace]:
    """Return the places limited to records that the graph reaches, or unchanged if it reaches none."""
    found, evidence.is_capped = await deadline.run(compute_closeness(places, query.text)) or (None, False)
    if not found:
        evidence.strategy = "hybrid"
        evidence.notices.append(SearchNotice("no_entities", NO_GRAPH_NOTICE))
        return places
    evidence.closeness = found
    return [
        replace(place, where=replace(place.where, ids=tuple(i for at, i in found if at == number)))
        for number, place in enumerate(places)
    ]


def _take_words(evidence: Evidence, found: WordMatches | None) -> None:
    if found is None:
        evidence.late.append("search by words")
    else:
        evidence.words, evidence.tier = found.scores, found.tier
        evidence.is_capped |= found.is_capped


async def _take_meaning(
    evidence: Evidence, places: Sequence[SearchPlace], model: str, vector: "NDArray[np.float32]", deadline: Deadline
) -> None:
    best = islice(evidence.words, COMPARED_BY_WORDS)  # lower ones are near in meaning anyway, or useless
    also = dict.fromkeys([*best, *evidence.closeness])
    found = await deadline.run(find_by_meaning(places, model, vector, also))
    if found is None:
        evidence.late.append("search by meaning")
    else:
        evidence.cosines = found


def _take_vector(
    evidence: Evidence, answer: "NDArray[np.float32] | ModelUnavailable | None"
) -> "NDArray[np.float32] | None":
    if isinstance(answer, ModelUnavailable):
        reason = answer.message.rstrip(".")
        message = f"Search by meaning is unavailable ({reason}). These results match by words."
        evidence.notices.append(SearchNotice("partial_results", message))
        return None
    if answer is None:
        evidence.late.append("search by meaning")
    return answer


MAX_HOPS = 2  # from a named entity to the entities whose records count
MAX_NAME_WORDS = 6
MAX_QUERY_CHARACTERS = 2_000
MAX_ENTITIES_BY_WORD = 5  # used if the query contains no entity name literally
MAX_FRONTIER_ENTITIES = 100  # entities of one hop from which the walk continues
MAX_HOP_LINKS = 2_000
MAX_NEAREST_RECORDS = 200
RELATED_HOPS = Hops(MAX_HOPS, sources=(ENTITY,), width=MAX_FRONTIER_ENTITIES, limit=MAX_HOP_LINKS)

_WORD = re.compile(r"[^\s,;?!()]+")
_QUOTED = re.compile(r"[\"“„`']([^\"”“`']{1,200})[\"”“`']")
_NAMES_ALONE = Weights(name=1.0, text=0.0, context=0.0)


async def compute_closeness(places: Sequence[SearchPlace], query: str) -> tuple[dict[Key, float], bool] | None:
    """Return how near each record is to an entity of the query, 1 at the entity, or None without an entity.

    Also return whether more records are near.
    """
    named = await asyncio.gather(*(_find_named(place.store, query) for place in places))
    if not any(named):
        return None
    found = await asyncio.gather(
        *(_find_around(place, entities) for place, entities in zip(places, named, strict=True))
    )
    closeness = {(i, key): value for i, (near, _) in enumerate(found) for key, value in near.items()}
    return closeness, any(is_capped for _, is_capped in found)


async def _find_named(store: RecordStore, query: str) -> list[str]:
    """Return the ids of entities whose names are in the query, otherwise of entities that share a word with it."""
    keys = tuple(_list_possible_names(query))
    exact = await store.scan(RecordFilter(kinds=(ENTITY,), name_keys=keys)) if keys else []
    if exact:
        return [record.id for record in exact]
    words = parse_query(query[:MAX_QUERY_CHARACTERS]).build_any_query()
    if words is None:
        return []
    where = RecordFilter(kinds=(ENTITY,))
    matches = await store.match(words, where, _NAMES_ALONE, MAX_ENTITIES_BY_WORD)
    return [match.id for match in matches if match.score > 0]


def _list_possible_names(query: str) -> list[str]:
    """Return the keys of all word sequences in the query that may be a name."""
    text = query[:MAX_QUERY_CHARACTERS]
    words = [word.strip(".:'’\"“”`") for word in _WORD.findall(text)]
    words = [word.removesuffix("'s").removesuffix("’s") for word in words if word]
    rows = [
        " ".join(words[start : start + size])
        for start in range(len(words))
        for size in range(1, min(MAX_NAME_WORDS, len(words) - start) + 1)
    ]
    names = (compute_name_key(row) for row in (*_QUOTED.findall(text), *rows))
    return [name for name in dict.fromkeys(names) if name and name not in STOP_WORDS]


async def _find_around(place: SearchPlace, entities: Sequence[str]) -> tuple[dict[str, float], bool]:
    """Return the newest records about the nearest entities, up to the limit of one search, and if it was reached."""
    store, kinds = place.store, place.where.kinds
    near: dict[str, float] = {}

    async def meet(edge: Sequence[str], hop: int) -> bool:
        """Add the records about these entities. Return whether the limit allows more."""
        about = await store.find_links(edge, direction="in", sources=kinds, limit=MAX_HOP_LINKS)
        for link in reversed(about):
            near.setdefault(link.source, 1 / (1 + hop))
        return len(near) < MAX_NEAREST_RECORDS

    if entities and await meet(entities, 0):
        seen = set(entities)
        for hop, links in enumerate(await store.walk(entities, RELATED_HOPS), 1):
            edge = list_next_ids(links, seen, MAX_FRONTIER_ENTITIES)
            if not edge or not await meet(edge, hop):
                break
            seen.update(edge)
    wanted = place.where.ids
    kept = replace(place.where, ids=tuple(near) if wanted is None else tuple(near.keys() & set(wanted)))
    allowed = {record.id for record in await store.scan(kept)} if near else set[str]()
    found = (record_id for record_id in near if record_id in allowed)
    nearest = {record_id: near[record_id] for record_id in islice(found, MAX_NEAREST_RECORDS)}
    return nearest, len(near) >= MAX_NEAREST_RECORDS
