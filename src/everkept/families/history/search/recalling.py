"""Recalling: turns and code that fit a question, found by the one search, in the order shown."""

import asyncio
from collections.abc import Container, Sequence
from datetime import UTC, tzinfo

from everkept.core.ports import Embedder, RecordStore
from everkept.core.records import Record, Where
from everkept.families.history.model import CODE, TURN
from everkept.families.history.search.profiles import RECALL
from everkept.families.history.search.waiting import waiting
from everkept.families.history.search.worth import (
    newest_of_equals,
    one_for_a_turn,
    turn_of,
    worthwhile,
)
from everkept.retrieval.profile import Found, Hit, Place, Profile, Strategy
from everkept.retrieval.search import search
from everkept.values import Value, replace

BUCKET = 0.1  # scores that are no further apart count as one
BLOCK = 10  # results that are put in order among themselves
# Times the results that are wanted: a turn and its code are found apart, and a text many times.
SPARE, FEWEST_READ = 4, 128
LOOKED_AT = 3  # times the results that are wanted: equal texts are one, as are code and its turn


class Asking(Value):
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
    repeated: bool = False,
) -> Found:
    """The best by score that are worth it, a turn and its code once; an empty field does not
    restrict.

    Where code alone is asked for, all code of a turn is given. Texts that are `repeated` are given
    once, unless they are wanted.
    """
    profile = replace(
        profile,
        kinds=tuple(kinds) or profile.kinds,
        strategy=strategy or profile.strategy,
    )
    where = Where(types=tuple(types), scopes=tuple(scopes), after=after, before=before)
    searching = search(
        [Place(store, where)],
        query,
        profile,
        limit=max(limit * SPARE, FEWEST_READ),
        embedder=asking.embedder,
        now=asking.now,
        zone=asking.zone,
        time_limit=asking.time_limit,
    )
    answer, pending = await asyncio.gather(searching, waiting(store, asking.embedder))
    # Where nothing was found by meaning, that was said already, or not wanted.
    by_meaning = answer.strategy in ("hybrid", "vector")
    notices = [*answer.notices, pending] if pending and by_meaning else answer.notices
    hits = worthwhile(answer.hits, query, enough=limit * LOOKED_AT)
    if not repeated:
        hits = newest_of_equals(hits)
    if profile.kinds != (CODE,):
        hits = one_for_a_turn(hits, await _turns(store, hits))
    return replace(answer, hits=hits[:limit], next_cursor=None, notices=notices)


async def _turns(store: RecordStore, hits: Sequence[Hit]) -> dict[str, Record]:
    """Those that were found, and those of code that was found."""
    turns = {hit.record.id: hit.record for hit in hits if hit.record.kind == TURN}
    missing = dict.fromkeys(id for hit in hits if (id := turn_of(hit)) not in turns)
    return turns | {turn.id: turn for turn in await store.get(list(missing))} if missing else turns


def in_order(hits: Sequence[Hit], preferred: Container[str] = ()) -> list[Hit]:
    """The order in which hits are shown, given them best first.

    The better ones first, and of those in one bucket of scores the preferred, given by id, and
    the newest. That is done ten by ten: among fifty results a bucket can hold half of them, and
    what is best would drown in what is new.
    """
    return [
        hit
        for start in range(0, len(hits), BLOCK)
        for hit in sorted(hits[start : start + BLOCK], key=lambda hit: _place(hit, preferred))
    ]


def shown_score(score: float) -> float:
    return round(score, 3)


def bucket_of(score: float) -> int:
    """Of what is shown, so that whoever reads the scores finds them in order."""
    return int(shown_score(score) / BUCKET + 1e-9)


def _place(hit: Hit, preferred: Container[str]) -> tuple[int, bool, int, float, str]:
    return (
        -bucket_of(hit.score),
        hit.record.id not in preferred,
        -hit.record.at,
        -hit.score,
        hit.record.id,
    )
