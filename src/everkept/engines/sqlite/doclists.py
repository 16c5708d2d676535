"""What FTS5's own index says of a word or a phrase, as arrays: the rows that have it."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everkept.core.records import Weights
from everkept.engines.sqlite.rows import listed
from everkept.engines.sqlite.sql import Connection, Rows
from everkept.language.words import Phrase, to_fts5
from everkept.values import Value

COLUMNS = 3  # name, text and context
MOST_COUNTED = 0xFFFF  # times that a word is in a column; more count as this

_BITS = 4
_SMALL = 0xF

_PLACES = (
    "SELECT group_concat(doc * 4 + CASE col WHEN 'name' THEN 0 WHEN 'text' THEN 1 ELSE 2 END) "
    "FROM word_places WHERE term = ?"
)
_COUNTED = "SELECT rowid, occurrences(words) FROM words WHERE words MATCH ? AND "


class Doclist(Value):
    """The rows that have a word, in the order of their keys, and how often in each column."""

    keys: NDArray[np.int32]
    counts: NDArray[Any]  # a row for each column

    def times(self, weights: Weights) -> NDArray[np.float64]:
        """How often each row has it, a hit in each column counting as much as is said."""
        name, text, context = self.counts
        times = weights.text * text + weights.context * context
        return times + weights.name * name if name.any() else times

    def up_to(self, key: int) -> "Doclist":
        end = int(np.searchsorted(self.keys, key, "right"))
        return Doclist(self.keys[:end], self.counts[:, :end])

    def without(self, keys: Collection[int]) -> "Doclist":
        unwanted = np.fromiter(sorted(keys), np.int32, len(keys))
        is_kept = ~_is_in(self.keys, unwanted)
        return Doclist(self.keys[is_kept], self.counts[:, is_kept])

    def among(self, keys: NDArray[np.int32]) -> "Doclist":
        """What it has of these keys, which stand in order."""
        keys = keys[_is_in(keys, self.keys)]
        return Doclist(keys, self.counts[:, np.searchsorted(self.keys, keys)])

    def joined(self, other: "Doclist") -> "Doclist":
        """With another that has none of the same keys."""
        if not len(other.keys):
            return self
        keys = np.concatenate([self.keys, other.keys])
        counts = np.concatenate([self.counts, other.counts], axis=1)
        if len(self.keys) and self.keys[-1] > other.keys[0]:
            order = np.argsort(keys)
            keys, counts = keys[order], counts[:, order]
        return Doclist(keys, counts)


class PackedDoclist:
    """A doclist in less than half the memory."""

    def __init__(self, doclist: Doclist) -> None:
        steps = np.diff(doclist.keys, prepend=np.int32(0))
        self._steps = steps.astype(np.min_scalar_type(int(steps.max(initial=0))))
        name, text, context = doclist.counts
        # Nearly always: no name has the word, and no text has it often.
        is_small = not name.any() and doclist.counts.max(initial=0) <= _SMALL
        self._counts = text | context << _BITS if is_small else doclist.counts

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def nbytes(self) -> int:
        return self._steps.nbytes + self._counts.nbytes

    def unpacked(self) -> Doclist:
        keys = np.cumsum(self._steps, dtype=np.int32)
        if self._counts.ndim > 1:
            return Doclist(keys, self._counts)
        text, context = self._counts & _SMALL, self._counts >> _BITS
        return Doclist(keys, np.stack([np.zeros_like(text), text, context]))


def read_term(db: Connection, term: str) -> Doclist:
    """All rows that have a word, which the index calls `term`."""
    # From a list of numbers, in their order, each of them four times the row and the column.
    places = np.fromstring(db.execute(_PLACES, (term,)).get or "", np.int64, sep=",")
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    times = np.minimum(np.diff(starts, append=len(places)), MOST_COUNTED)
    rows, columns = places[starts] >> 2, places[starts] & 3
    is_first = np.diff(rows, prepend=-1) != 0
    counts = np.zeros((COLUMNS, int(is_first.sum())), _dtype(times))
    counts[columns, np.cumsum(is_first) - 1] = times
    return Doclist(rows[is_first].astype(np.int32), counts)


def read_after(db: Connection, phrase: Phrase, key: int) -> Doclist:
    """Those of its rows that come after this one."""
    return _counted(db.execute(f"{_COUNTED} rowid > ?", (to_fts5(phrase), key)))


def read_these(db: Connection, phrase: Phrase, keys: Collection[int]) -> Doclist:
    """Those of these rows that have it."""
    wanted = "rowid IN (SELECT value FROM json_each(?)) ORDER BY rowid"
    return _counted(db.execute(_COUNTED + wanted, (to_fts5(phrase), listed(sorted(keys)))))


def read_between(db: Connection, phrase: Phrase, first: int, last: int) -> Doclist:
    """Those of its rows that lie between these two, both included."""
    wanted = "rowid BETWEEN ? AND ?"
    return _counted(db.execute(_COUNTED + wanted, (to_fts5(phrase), first, last)))


def rows_of_term(db: Connection, term: str) -> int:
    return db.execute("SELECT doc FROM word_counts WHERE term = ?", (term,)).get or 0


def common_keys(doclists: Sequence[Doclist]) -> NDArray[np.int32]:
    """Of the rows that are in all of them."""
    first, *others = sorted(doclists, key=lambda each: len(each.keys))
    keys = first.keys
    for other in others:
        keys = keys[_is_in(keys, other.keys)]
    return keys


def _is_in(keys: NDArray[np.int32], others: NDArray[np.int32]) -> NDArray[np.bool]:
    """Which of some keys are among others, that stand in order."""
    if not len(others):
        return np.zeros(len(keys), np.bool)
    places = np.minimum(np.searchsorted(others, keys), len(others) - 1)
    return others[places] == keys


def _counted(found: Rows) -> Doclist:
    rows = found.fetchall()
    packed = np.array(rows, np.int64).reshape(-1, 2)
    times = np.stack([packed[:, 1] >> shift & MOST_COUNTED for shift in (32, 16, 0)])
    return Doclist(packed[:, 0].astype(np.int32), times.astype(_dtype(times)))


def _dtype(times: NDArray[Any]) -> type[np.unsignedinteger[Any]]:
    return np.uint8 if times.max(initial=0) <= np.iinfo(np.uint8).max else np.uint16
