"""Scores of the candidates of a search: their signals, and the versions of one fact among the hits."""

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, tzinfo
from functools import lru_cache
from math import ceil

from everkept.core.ports import AccessCount, Embedder
from everkept.core.records import Record
from everkept.language.words import TypedQuery
from everkept.retrieval.candidates import Key
from everkept.retrieval.dates import compute_fit, find_spans
from everkept.retrieval.evidence import Evidence
from everkept.retrieval.fusion import (
    CandidateSignals,
    Columns,
    compute_recency,
    compute_relevance,
    mark_supported,
    scale_by_confidence,
    sum_columns,
)
from everkept.retrieval.profile import (
    LARGE_POOL,
    SUPERSEDED_BY,
    Priors,
    QueryFit,
    SearchHit,
    SearchPlace,
    SearchProfile,
    SignalWeights,
    Strategy,
    compute_nearness,
    compute_query_coverage,
    shift_odds,
)
from everkept.values import Value, replace

Accesses = Callable[[int, Sequence[str]], Awaitable[Mapping[str, AccessCount]]]

# Factor by which a set facet multiplies the score.
SCORE_FACTORS = {"superseded": (SUPERSEDED_BY, 0.5), "consolidated": ("consolidated", 0.8)}
UNKNOWN_IMPORTANCE = 0.5
# If not even the best record answers with this probability, none is returned. It loses at most 0.002 of R@10 on
# conversations, and 0.010 on the coding set.
MIN_PROBABILITY = 0.035
# How much the records beside one count. What is said answers what was said before, most of all a question.
ASKED_FACTOR = 1.2  # of the record before, if it ends with a question
TOLD_FACTOR = 0.8  # of the record before otherwise
FOLLOWING_FACTOR = 0.65  # of the next record
KEYWORD_WEIGHTS = SignalWeights(keyword=1, meaning=0, author=0, date=0, neighbour=0, closeness=0)
MEANING_WEIGHTS = SignalWeights(keyword=0, meaning=1, author=0, date=0, neighbour=0, closeness=0)

_DAY_MICROSECONDS = 86_400 * 1_000_000
_QUESTION = re.compile(r"\?(?<=[\w\"'”’]\?)(?!\S{0,100}\w)")  # not a?b in code or an address


class RankingContext(Value):
    """Inputs of a ranked search besides the query."""

    embedder: Embedder | None = None
    now: int = 0
    zone: tzinfo = UTC
    as_of: int | None = None
    time_limit: float | None = None
    accesses: Accesses | None = None


class Ranking(Value):
    """All supported records, best first. If none is relevant enough, only the nearest one is known."""

    hits: list[SearchHit]
    nearest: SearchHit | None = None
    fit: QueryFit | None = None


async def rank_candidates(
    query: TypedQuery,
    profile: SearchProfile,
    around: RankingContext,
    evidence: Evidence,
    pool: Mapping[Key, Record],
    places: Sequence[SearchPlace],
) -> Ranking:
    """Rank the supported records of the pool."""
    signs = collect_signals(query, around, evidence, pool)
    parts = choose_weights(profile, evidence.strategy)
    columns = compute_relevance(signs, parts, profile.fusion)
    supported = [number for number, is_so in enumerate(mark_supported(signs, parts)) if is_so]
    nearest: SearchHit | None = None
    fit = _fit_best(query, columns, supported, signs, pool)
    if profile.priors is not None:
        columns = _calibrate(columns, supported, fit)
        probabilities = sum_columns(columns)
        # In a small store the floor is that of a large one, because an unrelated text is not relevant in either.
        best = replace(fit, compared=LARGE_POOL).compute_probability(1.0) if fit else 0.0
        if not any(probabilities[i] for i in supported) or best < MIN_PROBABILITY:
            nearest = next(iter(_build_hits(supported or range(len(pool)), columns, evidence, pool)), None)
            supported = []
        columns |= await _apply_priors(columns, pool, profile, around)
    elif profile.fusion == "scores" and parts.meaning:
        columns = scale_by_confidence(columns, signs)
    columns |= _apply_factors(columns, pool)
    hits = _build_hits(supported, columns, evidence, pool)
    if profile.hides_superseded:
        hits = await show_newest_versions(hits, places)
        nearest = next(iter(await show_newest_versions([nearest], places)), None) if nearest else None
    return Ranking(fold_duplicates(hits) if profile.folds_duplicates else hits, nearest, fit)


def calibrate_hits(hits: Sequence[SearchHit], fit: QueryFit | None) -> list[SearchHit]:
    """Return the hits of a search without priors with the probability that each answers as its score."""
    best = max((hit.score for hit in hits), default=0.0)
    if fit is None or best <= 0:
        return list(hits)
    return [replace(hit, score=fit.compute_probability(hit.score / best)) for hit in hits]


def _build_hits(
    numbers: Iterable[int], columns: Columns, evidence: Evidence, pool: Mapping[Key, Record]
) -> list[SearchHit]:
    """Return the hits of these candidates, best first."""
    scores, keys, records = sum_columns(columns), list(pool), list(pool.values())
    order = sorted(numbers, key=lambda i: (-scores[i], -records[i].effective_at, keys[i][1]))
    return [
        SearchHit(
            records[i],
            min(scores[i], 1.0),
            {name: column[i] for name, column in columns.items() if column[i]},
            keys[i][0],
            _compute_nearness(evidence.cosines.get(keys[i]), evidence),
        )
        for i in order
    ]


def collect_signals(
    query: TypedQuery, around: RankingContext, evidence: Evidence, pool: Mapping[Key, Record]
) -> CandidateSignals:
    dates = find_spans(query.text, around.now, around.zone)
    authors, close = evidence.authors, evidence.closeness
    return CandidateSignals(
        keyword=[evidence.words.get(key) for key in pool],
        cosine=[evidence.cosines.get(key) for key in pool],
        neighbours=_list_neighbours(pool),
        author=[float(r.author in authors) for r in pool.values()] if authors else None,
        date=[compute_fit(r.effective_at, dates) for r in pool.values()] if dates else None,
        closeness=[close.get(key, 0.0) for key in pool] if close else None,
        limits=evidence.limits,
        asking=[_QUESTION.search(r.text) is not None for r in pool.values()],
    )


def fit_query(query: str, best: int, signs: CandidateSignals, record: Record) -> QueryFit:
    """Return how well the best record matches the query. The graph counts like meaning."""
    date = None if signs.date is None else signs.date[best]
    coverage = compute_query_coverage(query, record, date)
    near = [cosine for cosine in signs.cosine if cosine is not None]
    close = max(signs.closeness or (), default=None)
    if signs.limits is None or (signs.cosine[best] is None and close is None):
        return QueryFit(close, coverage, len(signs.cosine))
    nearest = max((compute_nearness(cosine, signs.limits.background) for cosine in near), default=0.0)
    return QueryFit(max(nearest, close or 0.0), coverage, len(signs.cosine))


def _fit_best(
    query: TypedQuery, columns: Columns, supported: Sequence[int], signs: CandidateSignals, pool: Mapping[Key, Record]
) -> QueryFit | None:
    if not supported:
        return None
    scores = sum_columns(columns)
    best = max(supported, key=lambda i: scores[i])
    return fit_query(query.text, best, signs, list(pool.values())[best])


def _calibrate(columns: Columns, supported: Sequence[int], fit: QueryFit | None) -> Columns:
    """Scale the contributions of each record so that their sum is the probability that it answers."""
    if fit is None:
        return columns
    scores = sum_columns(columns)
    best = max(scores[i] for i in supported)
    factors = [fit.compute_probability(score / best if best else 0.0) / score if score else 0.0 for score in scores]
    return {name: [f * value for f, value in zip(factors, column, strict=True)] for name, column in columns.items()}


async def _apply_priors(
    columns: Columns, pool: Mapping[Key, Record], profile: SearchProfile, around: RankingContext
) -> Columns:
    """Return what importance and recency add to the probability of each record."""
    records, priors = pool.values(), profile.priors or Priors()
    counts = await _read_access_counts(pool, priors, around.accesses)
    now = around.now if around.as_of is None else around.as_of
    by_importance = [
        priors.importance * (2 * (UNKNOWN_IMPORTANCE if r.importance is None else r.importance) - 1) for r in records
    ]
    by_recency = [
        priors.recency
        * compute_recency(
            (now - record.effective_at) / _DAY_MICROSECONDS,
            None if record.facets.get("pinned") else profile.half_lives.get(record.type or ""),
            counts.get(key, 0),
        )
        for key, record in pool.items()
    ]
    found = sum_columns(columns)
    important = [shift_odds(p, shift) for p, shift in zip(found, by_importance, strict=True)]
    recent = [shift_odds(p, shift) for p, shift in zip(important, by_recency, strict=True)]
    return {
        "importance": [after - before for before, after in zip(found, important, strict=True)],
        "recency": [after - before for before, after in zip(important, recent, strict=True)],
    }


def _apply_factors(columns: Columns, pool: Mapping[Key, Record]) -> Columns:
    """Return what the facets of each record take from its score."""
    found, scores = dict[str, list[float]](), sum_columns(columns)
    for name, (facet, factor) in SCORE_FACTORS.items():
        losses = [(factor - 1) * s if r.facets.get(facet) else 0.0 for s, r in zip(scores, pool.values(), strict=True)]
        if any(losses):
            found[name] = losses
            scores = [score + loss for score, loss in zip(scores, losses, strict=True)]
    return found


def _compute_nearness(cosine: float | None, evidence: Evidence) -> float | None:
    return None if cosine is None or evidence.limits is None else evidence.limits.background.compute_share(cosine)


def choose_weights(profile: SearchProfile, used: Strategy) -> SignalWeights:
    """Return the weights of the profile, or those of a single leg if the caller asked for only that leg."""
    if profile.strategy in ("keyword", "vector"):
        return MEANING_WEIGHTS if used == "vector" else KEYWORD_WEIGHTS
    return profile.parts


def _list_neighbours(pool: Mapping[Key, Record]) -> list[list[tuple[int, float]]]:
    """Return for each record the numbers of the records just before and after it in its session, and their factors."""
    sessions: dict[tuple[int, str, str], dict[int, int]] = {}
    records = list(pool.values())
    for number, ((place, _), record) in enumerate(pool.items()):
        if record.session is not None and record.position is not None:
            turns = sessions.setdefault((place, record.kind, record.session), {})
            turns[record.position] = number
    beside: list[list[tuple[int, float]]] = [[] for _ in pool]
    for turns in sessions.values():
        for position, number in turns.items():
            if (following := turns.get(position + 1)) is not None:
                beside[number].append((following, FOLLOWING_FACTOR))
                asks = records[number].text.rstrip().endswith("?")
                beside[following].append((number, ASKED_FACTOR if asks else TOLD_FACTOR))
    return beside


async def _read_access_counts(pool: Mapping[Key, Record], priors: Priors, accesses: Accesses | None) -> dict[Key, int]:
    """Return how often each record was returned before, if recency counts."""
    if accesses is None or not priors.recency:
        return {}
    ids: dict[int, list[str]] = {}
    for place, record_id in pool:
        ids.setdefault(place, []).append(record_id)
    found = await asyncio.gather(*(accesses(place, some) for place, some in ids.items()))
    return {
        (place, record_id): access.count
        for place, some in zip(ids, found, strict=True)
        for record_id, access in some.items()
    }


MAX_VERSIONS = 20  # of one fact that are followed
MIN_SHARED_WORDS = 0.85  # of all words of two texts that say the same
MAX_COMPARED_CHARACTERS = 2_000
EVENT_TYPE = "episodic"  # two events stay two events, however similar their texts are
_NEGATION_LIST = """
    aren cannot couldn didn doesn don hasn isn kein keine never no none nor not nicht shouldn t wasn without won wouldn
"""
NEGATIONS = frozenset(_NEGATION_LIST.split())

_WORD = re.compile(r"[^\W_]+")


class _Statement(Value):
    """Words of a text. Another number or negation makes it another statement."""

    words: frozenset[str]
    marks: frozenset[str]
    sorted_words: tuple[str, ...]

    def equals(self, other: "_Statement") -> bool:
        """Compare it with a statement that has the same marks."""
        ours, theirs = len(self.words), len(other.words)
        if min(ours, theirs) < MIN_SHARED_WORDS * max(ours, theirs):
            return False
        shared = len(self.words & other.words)
        return shared > 0 and shared >= MIN_SHARED_WORDS * (ours + theirs - shared)

    def list_rarest_words(self, counts: Mapping[str, int]) -> list[str]:
        """Return so many of its rarest words that a statement without any of them does not equal it."""
        omissible = len(self.words) - ceil(MIN_SHARED_WORDS * len(self.words))
        return sorted(self.sorted_words, key=counts.__getitem__)[: omissible + 1]


@lru_cache(512)  # most candidates of a search were candidates of the one before
def _read_statement(text: str) -> _Statement:
    words = frozenset(map(str.casefold, _WORD.findall(text)))
    marks = frozenset(word for word in words if word in NEGATIONS or not word.isalpha())
    return _Statement(words, marks, tuple(sorted(words)))


def fold_duplicates(hits: Sequence[SearchHit]) -> list[SearchHit]:
    """Return the hits without those that say the same as a better one. Each kept hit counts its duplicates.

    Only statements of one author with the same marks are compared, and events never are.
    """
    told = {
        (hit.place, hit.record.id): _read_statement(hit.record.text[:MAX_COMPARED_CHARACTERS])
        for hit in hits
        if hit.record.type != EVENT_TYPE
    }
    counts = Counter(word for said in told.values() for word in said.words)
    kept: list[SearchHit] = []
    rivals: defaultdict[tuple[str | None, frozenset[str], str], list[tuple[int, _Statement]]] = defaultdict(list)
    for hit in hits:
        said = told.get((hit.place, hit.record.id))
        if said is None:
            kept.append(hit)
            continue
        # Two that are equal share one of their rarest words, so most are never compared.
        lists = [rivals[hit.record.author, said.marks, word] for word in said.list_rarest_words(counts)]
        number = min((place for others in lists for place, other in others if said.equals(other)), default=None)
        if number is not None:
            kept[number] = replace(kept[number], duplicates=kept[number].duplicates + 1)
            continue
        for others in lists:
            others.append((len(kept), said))
        kept.append(hit)
    return kept


async def show_newest_versions(hits: Sequence[SearchHit], places: Sequence[SearchPlace]) -> list[SearchHit]:
    """Replace facts by their newest version, which gets the best score of all of them.

    A fact whose newer version is forgotten or outside the search stays.
    """
    known = {hit.record.id: (hit.place, hit.record) for hit in hits}
    shown: list[SearchHit] = []
    for hit in hits:
        place, newest = await _find_newest(hit, places, known)
        shown.append(hit if newest is hit.record else _move(hit, place, newest))
    shown.sort(key=lambda hit: -hit.score)
    best: dict[str, SearchHit] = {}
    for hit in shown:
        best.setdefault(hit.record.id, hit)
    return list(best.values())


def _move(hit: SearchHit, place: int, newer: Record) -> SearchHit:
    """Return the hit with its newer version. It takes the place of the older one, whose loss does not count."""
    why = {part: value for part, value in hit.why.items() if part != "superseded"}
    return replace(hit, record=newer, place=place, score=min(sum(why.values()), 1.0), why=why)


async def _find_newest(
    hit: SearchHit, places: Sequence[SearchPlace], known: Mapping[str, tuple[int, Record]]
) -> tuple[int, Record]:
    """Return the newest version within the search, and the number of its place."""
    newest = hit.place, hit.record
    for _ in range(MAX_VERSIONS):
        newer_id = newest[1].facets.get(SUPERSEDED_BY)
        newer = (known.get(newer_id) or await _read_version(newer_id, places)) if newer_id else None
        if newer is None or newer[1].deleted_at is not None:
            break
        newest = newer
    return newest


async def _read_version(record_id: str, places: Sequence[SearchPlace]) -> tuple[int, Record] | None:
    for number, place in enumerate(places):
        for record in await place.store.scan(replace(place.where, ids=(record_id,)), limit=1):
            return number, record
    return None
