"""From signs to scores: how words, meaning, author, date and neighbours become one relevance.

Everything here is arithmetic on columns. Scores are fused by their size, not by their rank: on
public conversations that finds some three of a hundred more among the first ten.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from everkept.retrieval.profile import Fusion, Parts, Shares
from everkept.values import Value

RANK_CONSTANT = 60
NARROWEST = 0.25  # between cosines; candidates of a large store are twice as far apart
# A cosine below a third of the best one says nothing, where that is between these two: texts that
# have nothing in common lie around 0.05.
FAR, FURTHEST = 1 / 3, (0.1, 0.2)
SURE = 0.4  # cosine from which a text is about what was asked, in most cases
SURE_BY_WORDS = 0.7  # where words were found, but the meaning is another
STRETCH = 0.2  # of its half-life, for each time that a record was given out
LONGEST_STRETCH = 5.0

Column = Sequence[float | None]
Columns = dict[str, list[float]]  # what each part adds to the score of each candidate


class Signs(Value):
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


def relevance(signs: Signs, parts: Parts, fusion: Fusion = "scores") -> Columns:
    """What each part adds to the relevance of each candidate; the sum is within 0 and 1.

    A part that nobody asked about takes nothing from the others.
    """
    if fusion == "ranks":
        parts = Parts(keyword=0.5, meaning=0.5, author=0, date=0, neighbour=0, closeness=0)
        keyword, meaning = by_rank(signs.keyword), by_rank(signs.cosine)
    else:
        keyword, meaning = by_best(signs.keyword), by_range(signs.cosine)
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
    lifted = _lifted(found, signs.neighbours, parts.neighbour)
    sure = confidence(signs) if fusion == "scores" and parts.meaning else 1.0
    return {name: [sure * value for value in column] for name, column in lifted.items()}


def confidence(signs: Signs) -> float:
    """How far the best candidate may be what was meant, 0 to 1: the order stays as it is, but
    where nothing is near in meaning, being the best of all counts for less."""
    known = [cosine for cosine in signs.cosine if cosine is not None]
    if not known or signs.closeness is not None:
        return 1.0
    by_words = SURE_BY_WORDS if any(score is not None for score in signs.keyword) else 0.0
    return min(max(max(known) / SURE, by_words, 0.0), 1.0)


def spoken_for(signs: Signs, parts: Parts, least_meaning: float = 0.0) -> list[bool]:
    """For which candidates anything speaks that counts here: a word, a meaning that is not far,
    an author or a date that is asked about, the graph, or a candidate beside them for which
    something does."""
    floor = max(_floor(signs.cosine), least_meaning)
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
        is_so or any(alone[number] for number in beside)
        for is_so, beside in zip(alone, signs.neighbours, strict=True)
    ]


def _floor(cosines: Column) -> float:
    best = max((cosine for cosine in cosines if cosine is not None), default=0.0)
    lowest, highest = FURTHEST
    return min(max(FAR * best, lowest), highest)


def totals(columns: Columns) -> list[float]:
    return [sum(values) for values in zip(*columns.values(), strict=True)]


def by_best(scores: Column) -> list[float | None]:
    """Each score as a share of the best one."""
    best = max((score for score in scores if score is not None), default=0.0)
    if best <= 0:
        return [None if score is None else 1.0 for score in scores]
    return [None if score is None else max(score, 0.0) / best for score in scores]


def by_range(scores: Column) -> list[float | None]:
    """Each cosine as its place between the worst and the best one, 1 for the best.

    The range is at least NARROWEST wide, so that among a few texts that are all alike a hair's
    breadth does not decide.
    """
    known = [score for score in scores if score is not None]
    if not known:
        return list(scores)
    high = max(known)
    width = max(high - min(known), NARROWEST)
    return [None if score is None else 1 - (high - score) / width for score in scores]


def by_rank(scores: Column) -> list[float | None]:
    """Reciprocal ranks, 1 for the first; equal scores have equal ranks."""
    ordered = sorted((score for score in scores if score is not None), reverse=True)
    ranks = {score: rank for rank, score in reversed(list(enumerate(ordered)))}
    return [
        None if score is None else (RANK_CONSTANT + 1) / (RANK_CONSTANT + 1 + ranks[score])
        for score in scores
    ]


def _judge_by_words(found: list[float], keyword: Column, meaning: Column, weight: float) -> None:
    """What has no vector yet is not known to mean something else: its words count in full."""
    for number, (words, cosine) in enumerate(zip(keyword, meaning, strict=True)):
        if cosine is None and words:
            found[number] += weight * words


def _lifted(found: Columns, neighbours: Sequence[Sequence[int]], share: float) -> Columns:
    """Each with a share of its best neighbour; all scaled down where the best would pass 1."""
    scores = totals(found)
    if share and any(neighbours):
        lifts = [share * max(scores[i] for i in beside) if beside else 0.0 for beside in neighbours]
        found = found | {"neighbour": lifts}
        scores = totals(found)
    best = max(scores, default=0.0)
    if best <= 1:
        return found
    return {name: [value / best for value in column] for name, column in found.items()}


def recency(age: float, half_life: float | None, accesses: int = 0) -> float:
    """1 for what is new, a half after a half-life (both in days), which use makes longer."""
    if half_life is None:
        return 1.0
    stretched = half_life * min(1 + STRETCH * accesses, LONGEST_STRETCH)
    return 0.5 ** (max(age, 0.0) / stretched)


def mixed(
    relevant: Columns,
    importance: Sequence[float],
    recent: Sequence[float],
    shares: Shares,
    factors: Mapping[str, Sequence[float]],
) -> Columns:
    """What makes up each score: the parts of relevance, importance, recency, what factors take."""
    columns = {
        name: [shares.relevance * value for value in column] for name, column in relevant.items()
    }
    if shares.importance:
        columns["importance"] = [shares.importance * value for value in importance]
    if shares.recency:
        columns["recency"] = [shares.recency * value for value in recent]
    for name, factor in factors.items():
        scores = totals(columns)
        columns[name] = [score * (f - 1) for score, f in zip(scores, factor, strict=True)]
    return columns
