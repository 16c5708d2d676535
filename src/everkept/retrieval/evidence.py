"""Evidence for each candidate, collected within the time limit, and its fusion into one relevance.

The fusion is arithmetic on columns. It uses the size of scores, not their rank: on public conversations that finds
about three percent more among the first ten.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
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
MIN_COSINE_RANGE = 0.25  # of cosines; candidates of a large store spread twice as far
# Cosines below a third of the best count as no match. That limit stays between these two values: unrelated texts have a
# cosine of about 0.05.
FAR_SHARE, FLOOR_COSINES = 1 / 3, (0.1, 0.2)
SURE_COSINE = 0.4  # at this cosine a text is usually about the query
WORDS_CONFIDENCE = 0.7  # if words match but the meaning differs
STRETCH_PER_ACCESS = 0.2  # of its half-life, for each time that a record was returned
MAX_STRETCH = 5.0

Column = Sequence[float | None]
Columns = dict[str, list[float]]  # contribution of each part to the score of each candidate


class CandidateSignals(Value):
    """Signals for each candidate, in columns of equal length.

    None in a column means no signal: not found by words, or no vector yet. None instead of a column means that the
    query does not ask for it. `neighbours` holds the numbers of the candidates next to each one.
    """

    keyword: Column
    cosine: Column
    neighbours: Sequence[Sequence[int]]
    author: Sequence[float] | None = None
    date: Sequence[float] | None = None
    closeness: Sequence[float] | None = None


def compute_relevance(signs: CandidateSignals, parts: SignalWeights, fusion: Fusion = "scores") -> Columns:
    """Return the contribution of each part to the relevance of each candidate. The sum is between 0 and 1.

    Parts that the query does not ask for take no weight from the others.
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
    """Return how likely the best candidate answers the query, 0 to 1.

    It scales all scores: if nothing is near in meaning, being the best counts for less. The order stays the same.
    """
    known = [cosine for cosine in signs.cosine if cosine is not None]
    if not known or signs.closeness is not None:
        return 1.0
    by_words = WORDS_CONFIDENCE if any(score is not None for score in signs.keyword) else 0.0
    return min(max(max(known) / SURE_COSINE, by_words, 0.0), 1.0)


def mark_supported(signs: CandidateSignals, parts: SignalWeights, least_meaning: float = 0.0) -> list[bool]:
    """Mark the candidates with a word, a near meaning, a requested author or date, the graph, or such a neighbor."""
    floor = compute_floor(signs.cosine, least_meaning)
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


def compute_floor(cosines: Iterable[float | None], least_meaning: float = 0.0) -> float:
    """Return the cosine from which a record counts as near in meaning."""
    best = max((cosine for cosine in cosines if cosine is not None), default=0.0)
    lowest, highest = FLOOR_COSINES
    return max(min(max(FAR_SHARE * best, lowest), highest), least_meaning)


def sum_columns(columns: Columns) -> list[float]:
    return [sum(values) for values in zip(*columns.values(), strict=True)]


def scale_by_best(scores: Column) -> list[float | None]:
    """Return each score as a share of the best one."""
    best = max((score for score in scores if score is not None), default=0.0)
    if best <= 0:
        return [None if score is None else 1.0 for score in scores]
    return [None if score is None else max(score, 0.0) / best for score in scores]


def scale_by_range(scores: Column) -> list[float | None]:
    """Scale cosines linearly so that the best is 1 and the worst is at least 0.

    The range is at least MIN_COSINE_RANGE wide, so that tiny differences among a few similar texts do not decide.
    """
    known = [score for score in scores if score is not None]
    if not known:
        return list(scores)
    high = max(known)
    width = max(high - min(known), MIN_COSINE_RANGE)
    return [None if score is None else 1 - (high - score) / width for score in scores]


def scale_by_rank(scores: Column) -> list[float | None]:
    """Return reciprocal ranks, 1 for the best. Equal scores have equal ranks."""
    ordered = sorted((score for score in scores if score is not None), reverse=True)
    ranks = {score: rank for rank, score in reversed(list(enumerate(ordered)))}
    return [None if score is None else (RANK_CONSTANT + 1) / (RANK_CONSTANT + 1 + ranks[score]) for score in scores]


def _judge_by_words(found: list[float], keyword: Column, meaning: Column, weight: float) -> None:
    """Let words count in full for a record without a vector, because its meaning is unknown."""
    for number, (words, cosine) in enumerate(zip(keyword, meaning, strict=True)):
        if cosine is None and words:
            found[number] += weight * words


def _lift_by_neighbours(found: Columns, neighbours: Sequence[Sequence[int]], share: float) -> Columns:
    """Add a share of the best neighbor's score to each score. Scale all down if the best exceeds 1."""
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
    """Return 1 for a new record and 0.5 after one half-life. Ages are in days; use extends the half-life."""
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
    """Return the contributions to each score: relevance, importance, recency and the loss by factors."""
    columns = {name: [shares.relevance * value for value in column] for name, column in relevant.items()}
    if shares.importance:
        columns["importance"] = [shares.importance * value for value in importance]
    if shares.recency:
        columns["recency"] = [shares.recency * value for value in recent]
    for name, factor in factors.items():
        scores = sum_columns(columns)
        columns[name] = [score * (f - 1) for score, f in zip(scores, factor, strict=True)]
    return columns


NO_GRAPH_NOTICE = "The query names no entity with linked records. These results match by words and meaning."
COMPARED_BY_WORDS = 50  # best records by words whose meaning is compared, however far it is
NEARNESS_TIME_SHARE = 0.25  # of the time, kept for comparing vectors if words or the model take long
NO_MEANING_NOTICE = "Search by meaning is turned off. These results match by words."


class Evidence(Value, frozen=False):
    """Scores by place and id, and the parts of the search that are missing."""

    strategy: Strategy
    words: Scores = field(default_factory=dict[Key, float])
    cosines: Scores = field(default_factory=dict[Key, float])
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
