"""Fusion of the evidence for each candidate into one score.

The fusion is arithmetic on columns. It uses the size of scores, not their rank: on public conversations that finds
about three percent more among the first ten.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from everkept.core.ports import Background, Level
from everkept.retrieval.profile import Fusion, SignalWeights
from everkept.values import Value

RANK_CONSTANT = 60
# Cosines below a third of the best count as no match. That limit stays between these two levels.
FAR_SHARE, FLOOR_LEVELS = 1 / 3, (Level("unrelated", 0.75), Level("unrelated", 0.95))
SURE_LEVEL = Level("answers", 0.1)  # at this level a text is usually about the query
RANGE_LEVELS = Level("unrelated", 0.5), Level("unrelated", 0.99)  # candidates of a large store spread twice as far
WORDS_CONFIDENCE = 0.7  # if words match but the meaning differs
ASKING_FACTOR = 0.95  # of a record that asks, because answers are sought
STRETCH_PER_ACCESS = 0.2  # of its half-life, for each time that a record was returned
MAX_STRETCH = 5.0

Column = Sequence[float | None]
Columns = dict[str, list[float]]  # contribution of each part to the score of each candidate


class NearnessLimits(Value):
    """Limits of cosines for one model."""

    background: Background
    floors: tuple[float, float]
    least: float  # below it, only words make a record a match
    sure: float
    least_range: float

    @classmethod
    def from_background(cls, background: Background, least: Level | None = None) -> "NearnessLimits":
        low, high = map(background.find, FLOOR_LEVELS)
        middle, far = map(background.find, RANGE_LEVELS)
        least_cosine = -1.0 if least is None else background.find(least)
        return cls(background, (low, high), least_cosine, background.find(SURE_LEVEL), far - middle)


class CandidateSignals(Value):
    """Signals for each candidate, in columns of equal length.

    None in a column means no signal: not found by words, or no vector yet. None instead of a column means that the
    query does not ask for it. `neighbours` holds the numbers of the candidates next to each one, and how much they
    count. `asking` marks the candidates that ask something. Without `limits` there are no cosines.
    """

    keyword: Column
    cosine: Column
    neighbours: Sequence[Sequence[tuple[int, float]]]
    author: Sequence[float] | None = None
    date: Sequence[float] | None = None
    closeness: Sequence[float] | None = None
    limits: NearnessLimits | None = None
    asking: Sequence[bool] | None = None


def compute_relevance(signs: CandidateSignals, parts: SignalWeights, fusion: Fusion = "scores") -> Columns:
    """Return the contribution of each part to the relevance of each candidate. The sum is between 0 and 1.

    Parts that the query does not ask for take no weight from the others.
    """
    if fusion == "ranks":
        parts = SignalWeights(keyword=0.5, meaning=0.5, author=0, date=0, neighbour=0, closeness=0)
        keyword, meaning = scale_by_rank(signs.keyword), scale_by_rank(signs.cosine)
    else:
        keyword, meaning = scale_by_best(signs.keyword), scale_by_range(signs.cosine, signs.limits)
        if parts.meaning and any(meaning):
            keyword = [None if share is None else share**parts.word_power for share in keyword]
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
    if signs.asking is None or not parts.neighbour:
        return lifted
    return {
        name: [ASKING_FACTOR * value if asks else value for value, asks in zip(column, signs.asking, strict=True)]
        for name, column in lifted.items()
    }


def scale_by_confidence(columns: Columns, signs: CandidateSignals) -> Columns:
    """Return contributions to scores that are comparable between queries, for a search without a calibrated curve."""
    sure = compute_confidence(signs)
    return {name: [sure * value for value in column] for name, column in columns.items()}


def compute_confidence(signs: CandidateSignals) -> float:
    """Return how likely the best candidate answers the query, 0 to 1.

    It scales all scores: if nothing is near in meaning, being the best counts for less. The order stays the same.
    """
    known = [cosine for cosine in signs.cosine if cosine is not None]
    if not known or signs.limits is None or signs.closeness is not None:
        return 1.0
    by_words = WORDS_CONFIDENCE if any(score is not None for score in signs.keyword) else 0.0
    return min(max(max(known) / signs.limits.sure, by_words, 0.0), 1.0)


def mark_supported(signs: CandidateSignals, parts: SignalWeights) -> list[bool]:
    """Mark the candidates with a word, a near meaning, a requested author or date, the graph, or such a neighbor."""
    floor = compute_floor(signs.cosine, signs.limits)
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
        is_so or any(alone[number] for number, _ in beside)
        for is_so, beside in zip(alone, signs.neighbours, strict=True)
    ]


def compute_floor(cosines: Iterable[float | None], limits: NearnessLimits | None) -> float:
    """Return the cosine from which a record counts as near in meaning."""
    if limits is None:
        return 1.0
    best = max((cosine for cosine in cosines if cosine is not None), default=0.0)
    lowest, highest = limits.floors
    return max(min(max(FAR_SHARE * best, lowest), highest), limits.least)


def sum_columns(columns: Columns) -> list[float]:
    return [sum(values) for values in zip(*columns.values(), strict=True)]


def scale_by_best(scores: Column) -> list[float | None]:
    """Return each score as a share of the best one."""
    best = max((score for score in scores if score is not None), default=0.0)
    if best <= 0:
        return [None if score is None else 1.0 for score in scores]
    return [None if score is None else max(score, 0.0) / best for score in scores]


def scale_by_range(scores: Column, limits: NearnessLimits | None) -> list[float | None]:
    """Scale cosines linearly so that the best is 1 and the worst is at least 0.

    The range has a least width, so that tiny differences among a few similar texts do not decide.
    """
    known = [score for score in scores if score is not None]
    if not known or limits is None:
        return [None] * len(scores)
    high = max(known)
    width = max(high - min(known), limits.least_range)
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


def _lift_by_neighbours(found: Columns, neighbours: Sequence[Sequence[tuple[int, float]]], share: float) -> Columns:
    """Add a share of the best neighbor's score to each score. Scale all down if the best exceeds 1."""
    scores = sum_columns(found)
    if share and any(neighbours):
        lifts = [share * max((factor * scores[i] for i, factor in beside), default=0.0) for beside in neighbours]
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
