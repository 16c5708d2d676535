"""The best of a ranking that fit a filter: the ranking is in memory, what fits only SQL knows."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recollect.core.records import Match, Where
from recollect.engines.sqlite.filters import conditions
from recollect.engines.sqlite.rows import PARENT_ID, listed
from recollect.engines.sqlite.sql import Connection

Keys = NDArray[np.int64]
Scores = NDArray[Any]
# The best keys of a ranking with their scores, best first; among these alone where some are given.
Rank = Callable[[int, Keys | None], tuple[Keys, Scores]]

FEW = 5_000  # keys that are looked up before the ranking rather than after it
SPARE = 32  # keys that are ranked beyond what is wanted, as some may not fit
TRIES = (1.25, 5)  # times the keys that are wanted, before all that fit are looked up


def sift(db: Connection, where: Where, rank: Rank, limit: int) -> list[Match]:
    """The best records that fit, in at most four statements."""
    if (few := _few(db, where)) is not None:
        return _fitting(db, where, *rank(limit, few))
    for times in TRIES:
        wanted = int(times * limit) + SPARE
        keys, scores = rank(wanted, None)
        found = _fitting(db, where, keys, scores)
        if len(found) >= limit or len(keys) < wanted:
            return found[:limit]
    return _fitting(db, where, *rank(limit, _every(db, where)))


def _few(db: Connection, where: Where) -> Keys | None:
    """The keys of all that fit, where an index finds them and they are few."""
    is_indexed = where.tags or any(
        names is not None for names in (where.ids, where.name_keys, where.parents, where.sessions)
    )
    if not is_indexed:
        return None
    keys = _every(db, where, FEW + 1)
    return keys if len(keys) <= FEW else None


def _every(db: Connection, where: Where, limit: int = -1) -> Keys:
    wanted = conditions(where)
    rows = db.execute(
        f"SELECT r.key FROM records r WHERE {wanted.sql} LIMIT ?", (*wanted.bindings, limit)
    )
    return np.fromiter((row[0] for row in rows), np.int64)


def _fitting(db: Connection, where: Where, keys: Keys, scores: Scores) -> list[Match]:
    wanted = conditions(where)
    rows = db.execute(
        f"SELECT r.key, r.id, {PARENT_ID} FROM records r "
        f"WHERE r.key IN (SELECT value FROM json_each(?)) AND {wanted.sql}",
        (listed(keys.tolist()), *wanted.bindings),
    )
    fitting = {row[0]: row for row in rows}
    return [
        Match(fitting[key][1], fitting[key][2], score)
        for key, score in zip(keys.tolist(), scores.tolist(), strict=True)
        if key in fitting
    ]
