"""Recalling: turns and code that fit a question, found by the one search, in the order shown."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo

from recollect.core.ports import Embedder, RecordStore
from recollect.core.records import Where
from recollect.families.history.model import CODE
from recollect.families.history.search.profiles import RECALL
from recollect.retrieval.profile import Found, Hit, Place, Profile, Strategy
from recollect.retrieval.search import search

BUCKET = 0.1  # scores that are no further apart count as one
BLOCK = 10  # results that are put in order among themselves
SPARE = 2  # times the results that are wanted: a turn and its code are found apart


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks when, with what at hand."""

    embedder: Embedder | None = None
    now: int = 0
    zone: tzinfo = UTC
    time_limit: float | None = None


async def found(
    store: RecordStore,
    query: str,
    *,
    limit: int,
    asking: Asking,
    profile: Profile = RECALL,
    kinds: Sequence[str] = (),
    types: Sequence[str] = (),
    scopes: Sequence[str] = (),
    after: int | None = None,
    before: int | None = None,
    strategy: Strategy | None = None,
) -> Found:
    """The best by score, a turn and its code once; an empty field does not restrict.

    Where code alone is asked for, all code of a turn is given.
    """
    profile = replace(
        profile,
        kinds=tuple(kinds) or profile.kinds,
        strategy=strategy or profile.strategy,
    )
    where = Where(types=tuple(types), scopes=tuple(scopes), after=after, before=before)
    answer = await search(
        [Place(store, where)],
        query,
        profile,
        limit=limit * SPARE,
        embedder=asking.embedder,
        now=asking.now,
        zone=asking.zone,
        time_limit=asking.time_limit,
    )
    hits = answer.hits if profile.kinds == (CODE,) else each_turn_once(answer.hits)
    return replace(answer, hits=hits[:limit], next_cursor=None)


def each_turn_once(hits: Sequence[Hit]) -> list[Hit]:
    """The better one of a turn and each code of it, which come best first."""
    best: dict[str, Hit] = {}
    for hit in hits:
        best.setdefault(turn_of(hit), hit)
    return list(best.values())


def turn_of(hit: Hit) -> str:
    """The id of the turn that a hit belongs to."""
    record = hit.record
    return record.parent if record.kind == CODE and record.parent else record.id


def in_order(hits: Sequence[Hit]) -> list[Hit]:
    """The order in which hits are shown, given them best first.

    The better ones first, and of those in one bucket of scores the newest. That is done ten by
    ten: among fifty results a bucket can hold half of them, and what is best would drown in what
    is new.
    """
    return [
        hit
        for start in range(0, len(hits), BLOCK)
        for hit in sorted(hits[start : start + BLOCK], key=_place)
    ]


def shown_score(score: float) -> float:
    return round(score, 3)


def _place(hit: Hit) -> tuple[int, int, float, str]:
    # Of what is shown, so that whoever reads the scores finds them in order.
    bucket = int(shown_score(hit.score) / BUCKET + 1e-9)
    return -bucket, -hit.record.at, -hit.score, hit.record.id
