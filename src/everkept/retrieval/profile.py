"""Inputs and results of a search: places, profiles, hits and deadlines, and the calibration of scores.

The order of the records comes from the fusion. A curve turns it into probabilities that a record answers the query. A
record counts by its share of the best relevance. The best one counts by its nearness in meaning and by the words of the
query that it has. So the probabilities of one query keep the order, and queries are comparable.

The curves were fitted to our questions about a coding assistant's memories, half of them without their answer in the
store. `docs/benchmarks.md` shows how well they hold on other questions.
"""

import asyncio
import math
from collections.abc import Coroutine, Mapping
from typing import Any, Literal, TypeVar

from everkept.core.ports import Background, Level, RecordStore
from everkept.core.records import Record, RecordFilter, Weights
from everkept.errors import QueryTimeout
from everkept.language.telling_words import list_stems
from everkept.retrieval.dates import remove_dates
from everkept.retrieval.excerpts import compute_coverage
from everkept.values import Value, field, replace

# A nearness of 0 is that of texts with nothing in common, 1 that of a question and its answer.
FAR_LEVEL, NEAR_LEVEL = Level("unrelated", 0.5), Level("answers", 0.5)

SMALL_POOL, LARGE_POOL = 3, 128  # records that a query compares; the curves were fitted to sizes between them
MAX_NEARNESS = 1.2  # beyond it, the questions that the curves were fitted to show nothing


class Curve(Value):
    """Logistic curve, as summands of the logarithm of the odds."""

    base: float
    share: float  # of the best relevance
    nearness: float  # of the nearest record
    coverage: float  # share of the words of the query that the best record has
    fewness: float  # of the nearest record, if very few records were compared

    def compute_log_odds(self, share: float, nearness: float, coverage: float, fewness: float) -> float:
        by_nearness = self.nearness * nearness + self.fewness * fewness * share * max(nearness, 0.0)
        return self.base + self.share * share + by_nearness + self.coverage * coverage


BY_MEANING = Curve(base=-15.6, share=10.1, nearness=4.1, coverage=2.0, fewness=7.3)
BY_WORDS = Curve(base=-10.8, share=7.2, nearness=0.0, coverage=4.7, fewness=0.0)  # if the best record has no embedding


class QueryFit(Value):
    """How well the best record matches the query."""

    nearness: float | None  # None without an embedding
    coverage: float
    compared: int = LARGE_POOL  # records

    def compute_probability(self, share: float) -> float:
        """Return the probability that a record answers that has this share of the best relevance."""
        curve = BY_WORDS if self.nearness is None else BY_MEANING
        # A text with most of the words, such as the name of a file, answers even if its meaning differs.
        nearness = min(max(self.nearness or 0.0, 2 * self.coverage - 1), MAX_NEARNESS)
        # Among few records, an unrelated one is seldom near by chance, so nearness says more.
        fewness = 1 - math.log(min(max(self.compared, SMALL_POOL), LARGE_POOL)) / math.log(LARGE_POOL)
        return 1 / (1 + math.exp(-curve.compute_log_odds(share, nearness, self.coverage, fewness)))


def compute_nearness(cosine: float, background: Background) -> float:
    """Return where a cosine is between texts with nothing in common and a question and its answer."""
    far, near = background.find(FAR_LEVEL), background.find(NEAR_LEVEL)
    return (cosine - far) / max(near - far, 1e-6)


def compute_query_coverage(query: str, record: Record, date: float | None) -> float:
    """Return the share of the query that a record has: of its words, and of its date as one more word.

    A query that has the whole name of the record, such as the path of its file, is covered.
    """
    asked = list_stems(remove_dates(query))
    if record.name and list_stems(record.name) <= asked:
        return 1.0
    words = len(asked) * compute_coverage(asked, "\n".join(filter(None, (record.name, record.author, record.text))))
    size = len(asked) + (date is not None)
    return (words + (date or 0.0)) / size if size else 0.0


def shift_odds(probability: float, shift: float) -> float:
    """Return a probability after adding the shift to the logarithm of its odds."""
    factor = math.exp(shift)
    return factor * probability / (1 + (factor - 1) * probability)


Strategy = Literal["keyword", "vector", "hybrid", "graph"]
Fusion = Literal["scores", "ranks"]
WordReading = Literal["tiers", "any"]
Tier = Literal["expression", "all", "any", "substring"]

ALL_RECORDS = RecordFilter()
DEFAULT_WEIGHTS = Weights()
SUPERSEDED_BY = "superseded_by"  # facet of a replaced record: the id of the newer one


class SearchPlace(Value):
    """Store to search, and a filter for its records."""

    store: RecordStore
    where: RecordFilter = ALL_RECORDS


class SignalWeights(Value):
    """Relative weights of the signals of relevance."""

    keyword: float = 0.2
    meaning: float = 0.58
    author: float = 0.2
    date: float = 0.38
    neighbour: float = 0.3  # share of its best neighbor's relevance that a record gets on top
    closeness: float = 0.6  # for records that the graph leads to
    word_power: float = 1.5  # above 1, a record with half of the words counts less than half as much as one with all


class Priors(Value):
    """How much importance and recency change the odds that a record answers: summands of their logarithm.

    They order records that are about equally relevant. The odds of an irrelevant record stay near zero.
    """

    importance: float = 0.0  # of the most important record; the least important one has the negative of it
    recency: float = 0.0  # of a new record


class SearchProfile(Value):
    """Search profile of one family: its kinds and weights.

    With reading `tiers`, the most literal reading of the words that finds anything is the answer, in the engine's
    order. With `any`, one matching word is enough and Everkept ranks the results. Everything but `kinds` and `weights`
    applies to `any` only, unless noted.
    """

    kinds: tuple[str, ...]
    weights: Weights = DEFAULT_WEIGHTS
    merge_children: bool = False  # a match in a child counts for its parent; only for tiers
    reading: WordReading = "tiers"
    strategy: Strategy = "keyword"
    fusion: Fusion = "scores"
    parts: SignalWeights = SignalWeights()
    # With priors, a score is the probability that the record answers, and nothing is returned below a floor.
    priors: Priors | None = None
    folds_duplicates: bool = False  # texts that say the same are one hit
    hides_superseded: bool = False  # only the newest version of a fact is a hit
    least_meaning: Level | None = None  # how near a record must be that no word matches
    # Days after which recency drops to half, by type; other types do not fade.
    half_lives: Mapping[str, float] = field(default_factory=dict[str, float])

    def narrow(self, where: RecordFilter) -> RecordFilter:
        """Return the filter with the kinds of this profile, unless it already names kinds."""
        return replace(where, kinds=where.kinds or self.kinds)


class SearchNotice(Value):
    """Warning for the answer."""

    code: str
    message: str


class SearchHit(Value):
    """Record with its score, 0 to 1. The values of `why` add up to it; negative values lower it."""

    record: Record
    score: float
    why: Mapping[str, float] = field(default_factory=dict[str, float])
    place: int = 0  # number of the place it was found in
    nearness: float | None = None  # share of unrelated texts that are less near; None without an embedding
    duplicates: int = 0  # other records that say the same


class SearchPage(Value):
    """Page of hits."""

    hits: list[SearchHit]
    total: int = 0  # of all matching records, or the least number of them
    strategy: Strategy | None = None  # finally used
    tier: Tier | None = None  # how literally the words were read
    next_cursor: str | None = None
    notices: list[SearchNotice] = field(default_factory=list[SearchNotice])
    is_lower_bound: bool = False  # True if more records than `total` may match
    nearest: SearchHit | None = None  # if nothing is relevant enough
    fit: QueryFit | None = None  # of the best record; scores of several searches become comparable with it


A = TypeVar("A")
B = TypeVar("B")


class Deadline(Value):
    """Deadline on the event loop's clock; None means no limit."""

    at: float | None
    seconds: float = 0.0  # time that was left when it was set

    @classmethod
    def from_seconds(cls, seconds: float | None) -> "Deadline":
        if seconds is None:
            return cls(None)
        return cls(asyncio.get_running_loop().time() + seconds, seconds)

    def with_reserve(self, share: float) -> "Deadline":
        """Return an earlier deadline that keeps this share of the time for later work."""
        return self if self.at is None else Deadline(self.at - share * self.seconds)

    @property
    def has_passed(self) -> bool:
        return self.at is not None and asyncio.get_running_loop().time() >= self.at

    async def run(self, work: Coroutine[Any, Any, A]) -> A | None:
        """Return the result, or None if the deadline or the database's own limit stops the work."""
        limit = asyncio.timeout_at(self.at)
        try:
            async with limit:
                return await _run_or_none(work)
        except TimeoutError:
            if limit.expired():
                return None
            raise

    async def run_both(
        self, first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B]
    ) -> tuple[A | None, B | None]:
        """Run two works at the same time and return their results, each like `run`."""
        one, other = (asyncio.create_task(_run_or_none(first)), asyncio.create_task(_run_or_none(second)))
        left = None if self.at is None else max(self.at - asyncio.get_running_loop().time(), 0)
        try:
            await asyncio.wait((one, other), timeout=left, return_when=asyncio.FIRST_EXCEPTION)
            return (one.result() if one.done() else None, other.result() if other.done() else None)
        finally:
            one.cancel()
            other.cancel()
            await asyncio.gather(one, other, return_exceptions=True)


async def _run_or_none(work: Coroutine[Any, Any, A]) -> A | None:
    try:
        return await work
    except QueryTimeout:
        return None
