"""What a search is asked and what it answers: places, profiles, hits, and by when."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Literal, TypeVar

from everkept.core.ports import RecordStore
from everkept.core.records import Record, RecordFilter, Weights
from everkept.errors import QueryTimeout
from everkept.values import Value, field, replace

Strategy = Literal["keyword", "vector", "hybrid", "graph"]
Fusion = Literal["scores", "ranks"]
WordReading = Literal["tiers", "any"]
Tier = Literal["expression", "all", "any", "substring"]

ALL_RECORDS = RecordFilter()
DEFAULT_WEIGHTS = Weights()


class SearchPlace(Value):
    """Where to search: a store, and which of its records are meant."""

    store: RecordStore
    where: RecordFilter = ALL_RECORDS


class SignalWeights(Value):
    """What each sign of relevance counts against the others.

    `neighbour` is the share of its best neighbour's relevance that a record gets on top.
    """

    keyword: float = 0.2
    meaning: float = 0.4
    author: float = 0.2
    date: float = 0.3
    neighbour: float = 0.4
    closeness: float = 0.6  # of what the graph leads to


class ScoreShares(Value):
    """What of a score is relevance, and what the record brings along."""

    relevance: float = 1.0
    importance: float = 0.0
    recency: float = 0.0


class SearchProfile(Value):
    """How one family searches: over which kinds, with what counting how much.

    With the reading `tiers` the most literal reading of the words that finds anything is the
    answer, in the order of the engine; everything else here but the weights is for `any`, where
    one word is enough to be found and the order is ours.
    """

    kinds: tuple[str, ...]
    weights: Weights = DEFAULT_WEIGHTS
    merge_children: bool = False  # a hit in a child counts for its parent; for tiers alone
    reading: WordReading = "tiers"
    strategy: Strategy = "keyword"
    fusion: Fusion = "scores"
    parts: SignalWeights = SignalWeights()
    shares: ScoreShares = ScoreShares()
    least_meaning: float = 0.0  # cosine that a record needs for which no word speaks
    # Days after which a record of the type counts half as recent; other types do not fade.
    half_lives: Mapping[str, float] = field(default_factory=dict[str, float])

    def narrow(self, where: RecordFilter) -> RecordFilter:
        """Return which records are searched: the kinds that `where` names, or else ours."""
        return replace(where, kinds=where.kinds or self.kinds)


class SearchNotice(Value):
    """A warning that belongs into the answer."""

    code: str
    message: str


class SearchHit(Value):
    """A record with its score; `place` counts the places that were searched.

    The values of `why` add up to the score; what took something from it is negative. `cosine` is
    how near its meaning is, where that is known.
    """

    record: Record
    score: float
    why: Mapping[str, float] = field(default_factory=dict[str, float])
    place: int = 0
    cosine: float | None = None


class SearchPage(Value):
    """A page of hits.

    `total` counts what was ranked, `strategy` says what was used in the end, and `tier` how
    literally the words were taken.
    """

    hits: list[SearchHit]
    total: int = 0
    strategy: Strategy | None = None
    tier: Tier | None = None
    next_cursor: str | None = None
    notices: list[SearchNotice] = field(default_factory=list[SearchNotice])


A = TypeVar("A")
B = TypeVar("B")


class Deadline(Value):
    """A time of the event loop's clock; None never comes."""

    at: float | None
    seconds: float = 0.0  # that it was away when it was set

    @classmethod
    def from_seconds(cls, seconds: float | None) -> "Deadline":
        if seconds is None:
            return cls(None)
        return cls(asyncio.get_running_loop().time() + seconds, seconds)

    def with_reserve(self, share: float) -> "Deadline":
        """One that leaves this share of the time for what comes after."""
        return self if self.at is None else Deadline(self.at - share * self.seconds)

    @property
    def has_passed(self) -> bool:
        return self.at is not None and asyncio.get_running_loop().time() >= self.at

    async def run(self, work: Coroutine[Any, Any, A]) -> A | None:
        """What the work gives, or None when it is not done in time; then it is cancelled.

        A database that has a limit of its own may say so sooner.
        """
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
        """What two works at once give, each as `run` would."""
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
