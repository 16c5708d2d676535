"""Ranking by any of some words over many records: FTS5's own bm25, added up over whole arrays.

FTS5 looks up the length of each row that it ranks, one by one, and for common words that is most
of the work. Here a word is an array of the rows that have it, and the scores of all rows are sums
of such arrays. The index of FTS5 stays the only truth: all of this is read from it, and kept for
common words as long as the log of changes says what has become of them.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recollect.core.matching import fields_of
from recollect.core.records import Match, Weights, Where
from recollect.core.stemming import stem
from recollect.core.words import AnyOf, Phrase, WordQuery, to_fts5
from recollect.engines.sqlite.commit import newest_change
from recollect.engines.sqlite.rows import listed
from recollect.engines.sqlite.sifting import Keys, sift
from recollect.engines.sqlite.sql import Connection, Rows
from recollect.engines.sqlite.word_index import index_parts, totals, varints
from recollect.engines.vectors import best

KEPT_SHARE = 0.01  # of all rows: the arrays of a word that is in more of them are kept
KEPT_BYTES = 24_000_000
FOLLOWED = 256  # changed records whose words are counted here; after more, all is read anew

# As in FTS5's bm25().
_K1, _B = 1.2, 0.75
_LEAST_IDF = 1e-6

_COLUMNS = 3  # name, text and context
_PLACES = (
    "SELECT group_concat(doc * 4 + CASE col WHEN 'name' THEN 0 WHEN 'text' THEN 1 ELSE 2 END) "
    "FROM word_places WHERE term = ?"
)
_CHANGED = (
    "SELECT item FROM edits WHERE change > ?1 AND subject = 'record' UNION "
    "SELECT value FROM changes, json_each(changes.reindexed) WHERE seq > ?1"
)

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Posting:
    """The rows that have a word, and how often they have it in each column."""

    keys: NDArray[np.int32]
    counts: NDArray[np.uint16]  # a row for each column

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.counts.nbytes


@dataclass(frozen=True, slots=True)
class _Word:
    """Who has a word: as it was read, and of those that have changed since as it is now."""

    kept: _Posting
    changed: _Posting
    having: int  # rows


class Postings:
    """The arrays of one file. A question first follows what anyone has changed since the last."""

    def __init__(self) -> None:
        self._seen = -1
        self._lengths = np.zeros(0, np.uint32)  # the words of each row, by its key
        self._kept: OrderedDict[str, _Posting] = OrderedDict()
        # What the kept arrays do not know of yet: records with their words of each column.
        self._changed: dict[int, tuple[Counter[str], ...]] = {}
        self._is_changed = np.zeros(0, np.bool)  # the same, by key
        # While a file is being closed, a second thread may read it already.
        self._lock = Lock()

    def match(
        self, db: Connection, words: AnyOf, where: Where, weights: Weights, limit: int
    ) -> list[Match]:
        with self._lock:
            self._follow(db)
            keys, scores = self._scored(db, words, weights)

        def rank(limit: int, among: Keys | None) -> tuple[Keys, NDArray[Any]]:
            if among is None:
                return best(keys, scores, limit)
            is_meant = np.isin(keys, among)
            return best(keys[is_meant], scores[is_meant], limit)

        return sift(db, where, rank, limit)

    def frequencies(self, db: Connection, words: Sequence[str]) -> dict[str, float]:
        with self._lock:
            self._follow(db)
            rows = max(totals(db)[0], 1)
            return {word: self._word(db, stem(word), rows).having / rows for word in words}

    def _scored(self, db: Connection, words: AnyOf, weights: Weights) -> tuple[Keys, Scores]:
        """All rows that have one of the words, each with the sum of what these count."""
        rows, *column_words = totals(db)
        parts = [(part, _term(part)) for part in _alternatives(words)]
        terms = [self._word(db, term, rows) for _, term in parts if term is not None]
        relative = self._lengths * (rows / max(sum(column_words), 1))
        scores = np.zeros(len(self._lengths))
        is_found = np.zeros(len(self._lengths), np.bool)

        def add(keys: NDArray[Any], shares: Scores) -> None:
            scores[keys] += shares
            is_found[keys] = True

        for word in terms:
            add(word.kept.keys, _shares(word.kept, word.having, weights, rows, relative))
        if self._changed:
            changed = list(self._changed)
            scores[changed] = 0.0
            is_found[changed] = False
            for word in terms:
                add(word.changed.keys, _shares(word.changed, word.having, weights, rows, relative))
        for part in (part for part, term in parts if term is None):
            add(*_asked(db, part, weights))
        found = np.flatnonzero(is_found)
        return found, scores[found]

    def _word(self, db: Connection, term: str, rows: int) -> "_Word":
        kept = self._kept.get(term)
        if kept is None:
            kept = _read(db.execute(_PLACES, (term,)).get)
            if len(kept.keys) > KEPT_SHARE * rows:
                self._kept[term] = kept
                while sum(each.nbytes for each in self._kept.values()) > KEPT_BYTES:
                    self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(term)
        changed = self._changed_posting(term)
        outdated = int(self._is_changed[kept.keys].sum()) if self._changed else 0
        return _Word(kept, changed, len(kept.keys) - outdated + len(changed.keys))

    def _changed_posting(self, term: str) -> _Posting:
        having = {
            key: [column[term] for column in columns]
            for key, columns in self._changed.items()
            if any(term in column for column in columns)
        }
        counts = np.array(list(having.values()), np.uint16).reshape(-1, _COLUMNS).T
        return _Posting(np.array(list(having), np.int32), counts)

    def _follow(self, db: Connection) -> None:
        newest = newest_change(db)
        if newest == self._seen:
            return
        if self._is_beyond_following(db, newest):
            self._forget()
            self._lengths = np.zeros(0, np.uint32)
            self._measure(db.execute("SELECT id, sz FROM words_docsize"))
        else:
            self._take_in({row[0] for row in db.execute(_CHANGED, (self._seen,))}, db)
        self._seen = newest

    def _is_beyond_following(self, db: Connection, newest: int) -> bool:
        """What a purge removed is named nowhere, and its keys may be others' by now."""
        return (
            not 0 <= self._seen <= newest
            or db.execute(
                "SELECT count(*) FROM changes WHERE seq > ? AND tool = 'purge'", (self._seen,)
            ).get
            > 0
        )

    def _take_in(self, keys: set[int], db: Connection) -> None:
        self._measure(
            db.execute(
                "SELECT id, sz FROM words_docsize WHERE id IN (SELECT value FROM json_each(?))",
                (listed(keys),),
            )
        )
        if len(self._changed.keys() | keys) > FOLLOWED:
            self._forget()
            return
        parts = index_parts(db, keys)
        self._make_room(max(keys, default=0))  # those that are not indexed any more have keys too
        for key in keys:
            self._changed[key] = tuple(map(Counter, fields_of(*parts.get(key, ("", "", "")))))
        self._is_changed = np.zeros(len(self._lengths), np.bool)
        self._is_changed[list(self._changed)] = True

    def _forget(self) -> None:
        self._kept.clear()
        self._changed.clear()

    def _measure(self, rows: Rows) -> None:
        sizes = {row[0]: _length(row[1]) for row in rows}
        self._make_room(max(sizes, default=0))
        keys = np.fromiter(sizes, np.int64, len(sizes))
        self._lengths[keys] = np.fromiter(sizes.values(), np.uint32, len(sizes))

    def _make_room(self, key: int) -> None:
        missing = key + 1 - len(self._lengths)
        if missing > 0:
            # And for some more, so that not each new record copies all.
            room = missing + len(self._lengths) // 16
            self._lengths = np.concatenate([self._lengths, np.zeros(room, np.uint32)])


def _alternatives(words: WordQuery) -> Iterator[WordQuery]:
    """The parts of which any will do: their scores add up, however they are grouped."""
    if isinstance(words, AnyOf):
        for part in words.parts:
            yield from _alternatives(part)
    else:
        yield words


def _term(part: WordQuery) -> str | None:
    """What the index calls a single word; None for all else."""
    if not isinstance(part, Phrase) or part.prefix or len(part.words) != 1:
        return None
    term = stem(part.words[0])
    return None if "\ufffd" in term else term  # half a character, which only FTS5 can ask for


def _asked(db: Connection, part: WordQuery, weights: Weights) -> tuple[Keys, Scores]:
    """What FTS5 says of a phrase, a beginning or words that belong together: they are rarer."""
    found = db.execute(
        "SELECT rowid, -bm25(words, ?, ?, ?) FROM words WHERE words MATCH ?",
        (weights.name, weights.text, weights.context, to_fts5(part)),
    ).fetchall()
    keys = np.fromiter((row[0] for row in found), np.int64, len(found))
    return keys, np.fromiter((row[1] for row in found), np.float64, len(found))


def _shares(
    posting: _Posting, having: int, weights: Weights, rows: int, relative: NDArray[Any]
) -> Scores:
    """What a word counts in each row; `relative` are the lengths of all, 1 being the average."""
    times = np.array([weights.name, weights.text, weights.context]) @ posting.counts
    idf = max(log((rows - having + 0.5) / (having + 0.5)), _LEAST_IDF)
    return idf * times * (_K1 + 1) / (times + _K1 * (1 - _B + _B * relative[posting.keys]))


def _read(places: str | None) -> _Posting:
    """From a list of numbers, each of them four times the row and the column."""
    found, counts = np.unique(np.fromstring(places or "", np.int64, sep=","), return_counts=True)
    keys, rows = np.unique(found >> 2, return_inverse=True)
    table = np.zeros((_COLUMNS, len(keys)), np.uint16)
    table[found & 3, rows] = np.minimum(counts, np.iinfo(np.uint16).max)
    return _Posting(keys.astype(np.int32), table)


def _length(sizes: bytes) -> int:
    # Nearly always one byte each.
    return sum(sizes) if len(sizes) == _COLUMNS else sum(varints(sizes))
