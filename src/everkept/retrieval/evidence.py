"""What speaks for each record, gathered in the time given, and its fusion into one relevance.

The fusion is arithmetic on columns. Scores are fused by their size, not by their rank: on public
conversations that finds some three of a hundred more among the first ten.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

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
from everkept.retrieval.profile import (
    Deadline,
    Fusion,
    ScoreShares,
    SearchNotice,
    SearchPlace,
    SearchProfile,
    SignalWeights,
    Strategy,
    Tier,
)
from everkept.values import Value, field, replace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RANK_CONSTANT = 60
MIN_COSINE_RANGE = 0.25  # between cosines; candidates of a large store are twice as far apart
# A cosine below a third of the best one says nothing, where that is between these two: texts that
# have nothing in common lie around 0.05.
FAR_SHARE, FLOOR_COSINES = 1 / 3, (0.1, 0.2)
SURE_COSINE = 0.4  # cosine from which a text is about what was asked, in most cases
WORDS_CONFIDENCE = 0.7  # where words were found, but the meaning is another
STRETCH_PER_ACCESS = 0.2  # of its half-life, for each time that a record was given out
MAX_STRETCH = 5.0

Column = Sequence[float | None]
Columns = dict[str, list[float]]  # what each part adds to the score of each candidate


class CandidateSignals(Value):
    """What speaks for each candidate; columns of equal length.

    None in a column means that there is no such sign: not found by words, or no vector yet. None
    for a column: nobody asked. `neighbours` holds the numbers of the candidates beside each one.
    """

    keyword: Column
    cosine: Column
    neighbours: Sequence[Sequence[int]]
    author: Sequence[float] | None = None
    date: Sequence[float] | None = None
    closeness: Sequence[float] | None = None


def compute_relevance(signs: CandidateSignals, parts: SignalWeights, fusion: Fusion = "scores") -> Columns:
    """What each part adds to the relevance of each candidate; the sum is within 0 and 1.

    A part that nobody asked about takes nothing from the others.
    """
    if fusion == "ranks":
        parts = SignalWeights(keyword=0.5, meaning=0.5, author=0, date=0, neighbour=0, closeness=0)
        keyword, meaning = scale_by_rank(signs.keyword), scale_by_rank(signs.cosine)
    else:
        keyword, meaning = scale_by_best(signs.keyword), scale_by_range(signs.cosine)
    columns: dict[str, tuple[float, Column | None]] = {
        "keyword": (parts.keyword, keyword if any(keyword) else None),
        "meaning": (parts.meaning, meaning if any(meaning) else None),
        "author": (parts.author, signs.author),
        "date": (parts.date, signs.date),
        "closeness": (parts.closeness, signs.closeness),
    }
    whole = sum(weight for weight, column in columns.values() if column is not None)
    found = {
        name: [weight / whole * value if value else 0.0 for value in column]
        for name, (weight, column) in columns.items()
        if weight and column is not None
    }
    if not found:
        return {"keyword": [0.0] * len(keyword)}
    if fusion == "scores" and "meaning" in found and "keyword" in found:
        _judge_by_words(found["keyword"], keyword, meaning, parts.meaning / whole)
    lifted = _lift_by_neighbours(found, signs.neighbours, parts.neighbour)
    sure = compute_confidence(signs) if fusion == "scores" and parts.meaning else 1.0
    return {name: [sure * value for value in column] for name, column in lifted.items()}


def compute_confidence(signs: CandidateSignals) -> float:
    """How far the best candidate may be what was meant, 0 to 1: the order stays as it is, but
    where nothing is near in meaning, being the best of all counts for less."""
    known = [cosine for cosine in signs.cosine if cosine is not None]
    if not known or signs.closeness is not None:
        return 1.0
    by_words = WORDS_CONFIDENCE if any(score is not None for score in signs.keyword) else 0.0
    return min(max(max(known) / SURE_COSINE, by_words, 0.0), 1.0)


def mark_supported(signs: CandidateSignals, parts: SignalWeights, least_meaning: float = 0.0) -> list[bool]:
    """For which candidates anything speaks that counts here: a word, a meaning that is not far,
    an author or a date that is asked about, the graph, or a candidate beside them for which
    something does."""
    floor = max(_compute_floor(signs.cosine), least_meaning)
    near = [cosine is not None and cosine >= floor for cosine in signs.cosine]
    columns: tuple[tuple[float, Sequence[Any] | None], ...] = (
        (parts.keyword, [score is not None for score in signs.keyword]),
        (parts.meaning, near),
        (parts.author, signs.author),
        (parts.date, signs.date),
        (parts.closeness, signs.closeness),
    )
    counting = [column for weight, column in columns if weight and column is not None]
    alone = [any(column[i] for column in counting) for i in range(len(near))]
    if not parts.neighbour:
        return alone
    return [
        is_so or any(alone[number] for number in beside) for is_so, beside in zip(alone, signs.neighbours, strict=True)
    ]


def _compute_floor(cosines: Column) -> float:
    best = max((cosine for cosine in cosines if cosine is not None), default=0.0)
    lowest, highest = FLOOR_COSINES
    return min(max(FAR_SHARE * best, lowest), highest)


def sum_columns(columns: Columns) -> list[float]:
    return [sum(values) for values in zip(*columns.values(), strict=True)]


def scale_by_best(scores: Column) -> list[float | None]:
    """Each score as a share of the best one."""
    best = max((score for score in scores if score is not None), default=0.0)
    if best <= 0:
        return [None if score is None else 1.0 for score in scores]
    return [None if score is None else max(score, 0.0) / best for score in scores]


def scale_by_range(scores: Column) -> list[float | None]:
    """Each cosine as its place between the worst and the best one, 1 for the best.

    The range is at least MIN_COSINE_RANGE wide, so that among a few texts that are all alike a
    hair's breadth does not decide.
    """
    known = [score for score in scores if score is not None]
    if not known:
        return list(scores)
    high = max(known)
    width = max(high - min(known), MIN_COSINE_RANGE)
    return [None if score is None else 1 - (high - score) / width for score in scores]


def scale_by_rank(scores: Column) -> list[float | None]:
    """Reciprocal ranks, 1 for the first; equal scores have equal ranks."""
    ordered = sorted((score for score in scores if score is not None), reverse=True)
    ranks = {score: rank for rank, score in reversed(list(enumerate(ordered)))}
    return [None if score is None else (RANK_CONSTANT + 1) / (RANK_CONSTANT + 1 + ranks[score]) for score in scores]


def _judge_by_words(found: list[float], keyword: Column, meaning: Column, weight: float) -> None:
    """What has no vector yet is not known to mean something else: its words count in full."""
    for number, (words, cosine) in enumerate(zip(keyword, meaning, strict=True)):
        if cosine is None and words:
            found[number] += weight * words


def _lift_by_neighbours(found: Columns, neighbours: Sequence[Sequence[int]], share: float) -> Columns:
    """Each with a share of its best neighbour; all scaled down where the best would pass 1."""
    scores = sum_columns(found)
    if share and any(neighbours):
        lifts = [share * max(scores[i] for i in beside) if beside else 0.0 for beside in neighbours]
        found = found | {"neighbour": lifts}
        scores = sum_columns(found)
    best = max(scores, default=0.0)
    if best <= 1:
        return found
    return {name: [value / best for value in column] for name, column in found.items()}


def compute_recency(age: float, half_life: float | None, accesses: int = 0) -> float:
    """1 for what is new, a half after a half-life (both in days), which use makes longer."""
    if half_life is None:
        return 1.0
    stretched = half_life * min(1 + STRETCH_PER_ACCESS * accesses, MAX_STRETCH)
    return 0.5 ** (max(age, 0.0) / stretched)


def mix_scores(
    relevant: Columns,
    importance: Sequence[float],
    recent: Sequence[float],
    shares: ScoreShares,
    factors: Mapping[str, Sequence[float]],
) -> Columns:
    """What makes up each score: the parts of relevance, importance, recency, what factors take."""
    columns = {name: [shares.relevance * value for value in column] for name, column in relevant.items()}
    if shares.importance:
        columns["importance"] = [shares.importance * value for value in importance]
    if shares.recency:
        columns["recency"] = [shares.recency * value for value in recent]
    for name, factor in factors.items():
        scores = sum_columns(columns)
        columns[name] = [score * (f - 1) for score, f in zip(scores, factor, strict=True)]
    return columns


NO_GRAPH_NOTICE = "The query names no entity with anything linked to it; found by words and meaning."
COMPARED_BY_WORDS = 50  # of the best by words whose meaning is compared, however far it is
NEARNESS_TIME_SHARE = 0.25  # of the time, when a word query or the model takes long
NO_MEANING_NOTICE = "Meaning search is switched off; found by words."


class Evidence(Value, frozen=False):
    """What was found, by place and id, and what could not be looked for."""

    strategy: Strategy
    words: Scores = field(default_factory=dict[Key, float])
    cosines: Scores = field(default_factory=dict[Key, float])
    closeness: Scores = field(default_factory=dict[Key, float])
    authors: frozenset[str] = frozenset()
    tier: Tier | None = None
    late: list[str] = field(default_factory=list[str])
    notices: list[SearchNotice] = field(default_factory=list[SearchNotice])


async def gather_evidence(
    places: Sequence[SearchPlace],
    query: TypedQuery,
    profile: SearchProfile,
    embedder: Embedder | None,
    deadline: Deadline,
) -> Evidence:
    """Embedding the query takes the longest, so that the words are looked up meanwhile."""
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
        await _take_meaning(evidence, places, embedder.name, vector, deadline)
    elif evidence.strategy != "graph":
        evidence.strategy = "keyword"
    return evidence


class _MeaningQuery:
    """The question, read as soon as the stores have said who their authors are."""

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
    """Takes what the words find, where they are wanted, and gives the vector of the question."""
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
    """The places narrowed to what the graph leads to, or as they are when it leads nowhere."""
    found = await deadline.run(compute_closeness(places, query.text))
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
        evidence.late.append("words")
    else:
        evidence.words, evidence.tier = found.scores, found.tier


async def _take_meaning(
    evidence: Evidence, places: Sequence[SearchPlace], model: str, vector: "NDArray[np.float32]", deadline: Deadline
) -> None:
    best = islice(evidence.words, COMPARED_BY_WORDS)  # what stands behind them in words is near, or no use
    also = dict.fromkeys([*best, *evidence.closeness])
    found = await deadline.run(find_by_meaning(places, model, vector, also))
    if found is None:
        evidence.late.append("meaning")
    else:
        evidence.cosines = found


def _take_vector(
    evidence: Evidence, answer: "NDArray[np.float32] | ModelUnavailable | None"
) -> "NDArray[np.float32] | None":
    if isinstance(answer, ModelUnavailable):
        reason = answer.message.rstrip(".")
        message = f"Meaning search is unavailable ({reason}); found by words."
        evidence.notices.append(SearchNotice("partial_results", message))
        return None
    if answer is None:
        evidence.late.append("meaning")
    return answer


MAX_HOPS = 2  # from a named entity to the entities whose records count
MAX_NAME_WORDS = 6  # words
MAX_QUERY_CHARACTERS = 2_000  # characters of the query
MAX_ENTITIES_BY_WORD = 5  # entities that are taken where no name stands in the query as it is
MAX_FRONTIER_ENTITIES = 100  # entities of one hop that are gone on from
MAX_HOP_LINKS = 2_000  # followed at each hop
MAX_NEAREST_RECORDS = 200  # records that are weighed
RELATED_HOPS = Hops(MAX_HOPS, sources=(ENTITY,), width=MAX_FRONTIER_ENTITIES, limit=MAX_HOP_LINKS)

_WORD = re.compile(r"[^\s,;?!()]+")
_QUOTED = re.compile(r"[\"“„`']([^\"”“`']{1,200})[\"”“`']")
_NAMES_ALONE = Weights(name=1.0, text=0.0, context=0.0)


async def compute_closeness(places: Sequence[SearchPlace], query: str) -> dict[Key, float] | None:
    """How near each record is to an entity of the query: 1 at the entity, less with every hop.

    None when the query names no entity.
    """
    named = await asyncio.gather(*(_find_named(place.store, query) for place in places))
    if not any(named):
        return None
    found = await asyncio.gather(
        *(_find_around(place, entities) for place, entities in zip(places, named, strict=True))
    )
    return {(i, key): value for i, near in enumerate(found) for key, value in near.items()}


async def _find_named(store: RecordStore, query: str) -> list[str]:
    """The ids of entities whose names stand in the query, else of those that share a word."""
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
    """Every row of words that may be a name, as names are compared."""
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


async def _find_around(place: SearchPlace, entities: Sequence[str]) -> dict[str, float]:
    """The newest records about what is nearest, as many as one search can weigh."""
    store, kinds = place.store, place.where.kinds
    near: dict[str, float] = {}

    async def meet(edge: Sequence[str], hop: int) -> bool:
        """Whether there is room for more."""
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
    nearest = tuple(islice(near, MAX_NEAREST_RECORDS))
    kept = replace(place.where, ids=nearest)
    allowed = {record.id for record in await store.scan(kept)} if near else set[str]()
    return {record_id: near[record_id] for record_id in nearest if record_id in allowed}
