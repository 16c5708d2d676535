"""The best results of a ranking in memory that also match a filter, which only SQL can check."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everkept.core.records import Match, Where
from everkept.engines.sqlite.commit import newest_change
from everkept.engines.sqlite.queries import conditions
from everkept.engines.sqlite.replication import restocked
from everkept.engines.sqlite.rows import PARENT_ID, listed
from everkept.engines.sqlite.sql import Connection

Keys = NDArray[np.int64]
Scores = NDArray[Any]
# The best keys of a ranking with their scores, best first; among these alone where some are given.
Rank = Callable[[int, Keys | None], tuple[Keys, Scores]]

FEW = 5_000  # keys that are looked up before the ranking rather than after it
SPARE = 32  # keys that are ranked beyond what is wanted, as some may not fit
FIRST_TRY, SECOND_TRY = 1.25, 1.5  # times the keys that are thought to be needed
MOST_TRIED = 3_000  # keys that are looked up one by one; all that fit are read as quickly
KEPT_FILTERS = 4  # whose keys are remembered: the same project is asked about again and again


class Sieve:
    """Filters of one file, and whom they let through as long as nothing changes."""

    def __init__(self) -> None:
        self._revision = (-1, -1)
        self._kept: OrderedDict[Where, Keys] = OrderedDict()

    def sift(self, db: Connection, where: Where, rank: Rank, limit: int) -> list[Match]:
        """The best records that fit, in few statements."""
        if (few := _few(db, where)) is not None:
            return _fitting(db, where, *rank(limit, few))
        wanted = int(FIRST_TRY * limit) + SPARE
        keys, scores = rank(wanted, None)
        found = _fitting(db, where, keys, scores)
        if len(found) >= limit or len(keys) < wanted:
            return found[:limit]
        needed = SECOND_TRY * limit * len(keys) / len(found) if found else MOST_TRIED
        if needed < MOST_TRIED:
            wanted = int(needed) + SPARE
            keys, scores = rank(wanted, None)
            found = _fitting(db, where, keys, scores)
            if len(found) >= limit or len(keys) < wanted:
                return found[:limit]
        return _fitting(db, where, *rank(limit, self._every(db, where)))

    def _every(self, db: Connection, where: Where) -> Keys:
        revision = newest_change(db), restocked(db)
        if revision != self._revision:
            self._kept.clear()
            self._revision = revision
        keys = self._kept.pop(where, None)
        self._kept[where] = keys = _all_keys(db, where) if keys is None else keys
        if len(self._kept) > KEPT_FILTERS:
            self._kept.popitem(last=False)
        return keys


def _few(db: Connection, where: Where) -> Keys | None:
    """The keys of all that fit, where an index finds them and they are few."""
    names = (where.ids, where.name_keys, where.parents, where.sessions, where.places)
    is_indexed = where.tags or any(some is not None for some in names)
    if not is_indexed:
        return None
    keys = _all_keys(db, where, FEW + 1)
    return keys if len(keys) <= FEW else None


def _all_keys(db: Connection, where: Where, limit: int = -1) -> Keys:
    wanted = conditions(where)
    keys = db.execute(
        f"SELECT group_concat(key) FROM (SELECT r.key FROM records r WHERE {wanted.sql} LIMIT ?)",
        (*wanted.bindings, limit),
    ).get
    return np.fromstring(keys or "", np.int64, sep=",")


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
