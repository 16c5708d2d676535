"""Word searches over many records: the bm25 of FTS5, computed on whole arrays, with filters.

FTS5 looks up the length of each row that it ranks, and for common words that is most of the work. Here a word is an
array of the rows that contain it, and scores are sums of such arrays. All arrays are read from the index of FTS5, which
stays authoritative. Arrays of common words are cached and updated from the change log.

Only SQL can check a filter, so the best records of a ranking are looked up afterwards.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from math import log
from threading import Lock
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from everkept.core.records import Match, RecordFilter, Weights
from everkept.engines.sqlite.commit import read_newest_change
from everkept.engines.sqlite.connection import Connection, Rows
from everkept.engines.sqlite.queries import build_conditions
from everkept.engines.sqlite.replication import read_replication_number
from everkept.engines.sqlite.rows import PARENT_ID, encode_list
from everkept.engines.sqlite.word_index import read_totals
from everkept.engines.vectors import select_best
from everkept.language.spellings import stem
from everkept.language.words import AllOf, AnyOf, WordPhrase, WordQuery, to_fts5
from everkept.values import Value, field

Keys = NDArray[np.int64]
RankScores = NDArray[Any]
# Return the best keys of a ranking with their scores, best first. If keys are passed, rank only these.
Rank = Callable[[int, Keys | None], tuple[Keys, RankScores]]

MAX_LOOKUP_KEYS = 5_000  # up to this number, matching keys are read before the ranking rather than checked after it
SPARE_KEYS = 32  # keys ranked beyond the limit, because some may not match the filter
FIRST_TRY_FACTOR, SECOND_TRY_FACTOR = 1.25, 1.5  # multiples of the number of keys that should be enough
MAX_TRIED_KEYS = 3_000  # ranked keys to look up; beyond that, reading all matching keys is as fast
MAX_CACHED_FILTERS = 4  # the same project is searched again and again


class FilterCache:
    """Keys of the records that match recent filters on one file. Any change of the file clears them."""

    def __init__(self) -> None:
        self._revision = (-1, -1)
        self._kept: OrderedDict[RecordFilter, Keys] = OrderedDict()

    def find_best(self, db: Connection, where: RecordFilter, rank: Rank, limit: int) -> list[Match]:
        """Return the best matching records, with few statements."""
        if (few := _find_few_keys(db, where)) is not None:
            return _read_matches(db, where, *rank(limit, few))
        wanted = int(FIRST_TRY_FACTOR * limit) + SPARE_KEYS
        keys, scores = rank(wanted, None)
        found = _read_matches(db, where, keys, scores)
        if len(found) >= limit or len(keys) < wanted:
            return found[:limit]
        needed = SECOND_TRY_FACTOR * limit * len(keys) / len(found) if found else MAX_TRIED_KEYS
        if needed < MAX_TRIED_KEYS:
            wanted = int(needed) + SPARE_KEYS
            keys, scores = rank(wanted, None)
            found = _read_matches(db, where, keys, scores)
            if len(found) >= limit or len(keys) < wanted:
                return found[:limit]
        return _read_matches(db, where, *rank(limit, self._read_all_keys(db, where)))

    def _read_all_keys(self, db: Connection, where: RecordFilter) -> Keys:
        revision = read_newest_change(db), read_replication_number(db)
        if revision != self._revision:
            self._kept.clear()
            self._revision = revision
        keys = self._kept.pop(where, None)
        self._kept[where] = keys = _read_keys(db, where) if keys is None else keys
        if len(self._kept) > MAX_CACHED_FILTERS:
            self._kept.popitem(last=False)
        return keys


def _find_few_keys(db: Connection, where: RecordFilter) -> Keys | None:
    """Return the keys of all matching records, or None if no index finds them or they are many."""
    names = (where.ids, where.name_keys, where.parents, where.sessions, where.places)
    if not (where.tags or any(some is not None for some in names)):
        return None
    keys = _read_keys(db, where, MAX_LOOKUP_KEYS + 1)
    return keys if len(keys) <= MAX_LOOKUP_KEYS else None


def _read_keys(db: Connection, where: RecordFilter, limit: int = -1) -> Keys:
    wanted = build_conditions(where)
    keys = db.execute(
        f"SELECT group_concat(key) FROM (SELECT r.key FROM records r WHERE {wanted.sql} LIMIT ?)",
        (*wanted.bindings, limit),
    ).get
    return np.fromstring(keys or "", np.int64, sep=",")


def _read_matches(db: Connection, where: RecordFilter, keys: Keys, scores: RankScores) -> list[Match]:
    wanted = build_conditions(where)
    rows = db.execute(
        f"SELECT r.key, r.id, {PARENT_ID} FROM records r "
        f"WHERE r.key IN (SELECT value FROM json_each(?)) AND {wanted.sql}",
        (encode_list(keys.tolist()), *wanted.bindings),
    )
    fitting = {row[0]: row for row in rows}
    return [
        Match(fitting[key][1], fitting[key][2], score)
        for key, score in zip(keys.tolist(), scores.tolist(), strict=True)
        if key in fitting
    ]


COLUMN_COUNT = 3  # name, text and context
MAX_COUNT = 0xFFFF  # occurrences of a word in a column; more count as this

_COUNT_BITS = 4
_MAX_SMALL_COUNT = 0xF

_SELECT_PLACES = (
    "SELECT group_concat(doc * 4 + CASE col WHEN 'name' THEN 0 WHEN 'text' THEN 1 ELSE 2 END) "
    "FROM word_places WHERE term = ?"
)
_SELECT_COUNTS = "SELECT rowid, occurrences(words) FROM words WHERE words MATCH ? AND "


class Doclist(Value):
    """The rows that contain a word, sorted by key, with the number of occurrences in each column."""

    keys: NDArray[np.int32]
    counts: NDArray[Any]  # one row per column

    def weigh_counts(self, weights: Weights) -> NDArray[np.float64]:
        """Return the occurrences per row, each column with its weight."""
        name, text, context = self.counts
        times = weights.text * text + weights.context * context
        return times + weights.name * name if name.any() else times

    def truncate(self, key: int) -> "Doclist":
        end = int(np.searchsorted(self.keys, key, "right"))
        return Doclist(self.keys[:end], self.counts[:, :end])

    def exclude(self, keys: Collection[int]) -> "Doclist":
        is_kept = ~_is_in(self.keys, np.fromiter(sorted(keys), np.int32, len(keys)))
        return Doclist(self.keys[is_kept], self.counts[:, is_kept])

    def select(self, keys: NDArray[np.int32]) -> "Doclist":
        """Return the rows with these keys, which must be sorted."""
        keys = keys[_is_in(keys, self.keys)]
        return Doclist(keys, self.counts[:, np.searchsorted(self.keys, keys)])

    def join(self, other: "Doclist") -> "Doclist":
        """Merge with another doclist that has different keys."""
        if not len(other.keys):
            return self
        keys = np.concatenate([self.keys, other.keys])
        counts = np.concatenate([self.counts, other.counts], axis=1)
        if len(self.keys) and self.keys[-1] > other.keys[0]:
            order = np.argsort(keys)
            keys, counts = keys[order], counts[:, order]
        return Doclist(keys, counts)


class PackedDoclist:
    """Doclist in less than half the memory."""

    def __init__(self, doclist: Doclist) -> None:
        steps = np.diff(doclist.keys, prepend=np.int32(0))
        self._steps = steps.astype(np.min_scalar_type(int(steps.max(initial=0))))
        name, text, context = doclist.counts
        # In nearly all cases no name contains the word, and no text contains it often.
        is_small = not name.any() and doclist.counts.max(initial=0) <= _MAX_SMALL_COUNT
        self._counts = text | context << _COUNT_BITS if is_small else doclist.counts

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def nbytes(self) -> int:
        return self._steps.nbytes + self._counts.nbytes

    def unpack(self) -> Doclist:
        keys = np.cumsum(self._steps, dtype=np.int32)
        if self._counts.ndim > 1:
            return Doclist(keys, self._counts)
        text, context = self._counts & _MAX_SMALL_COUNT, self._counts >> _COUNT_BITS
        return Doclist(keys, np.stack([np.zeros_like(text), text, context]))


def read_term(db: Connection, term: str) -> Doclist:
    """Return all rows that contain a word, given as the index spells it."""
    # Each place is four times the row number, plus the column. Places come sorted.
    places = np.fromstring(db.execute(_SELECT_PLACES, (term,)).get or "", np.int64, sep=",")
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    times = np.minimum(np.diff(starts, append=len(places)), MAX_COUNT)
    rows, columns = places[starts] >> 2, places[starts] & 3
    is_first = np.diff(rows, prepend=-1) != 0
    counts = np.zeros((COLUMN_COUNT, int(is_first.sum())), _choose_dtype(times))
    counts[columns, np.cumsum(is_first) - 1] = times
    return Doclist(rows[is_first].astype(np.int32), counts)


def read_after(db: Connection, phrase: WordPhrase, key: int) -> Doclist:
    """Return the rows with the phrase that come after this key."""
    return _decode_counts(db.execute(f"{_SELECT_COUNTS} rowid > ?", (to_fts5(phrase), key)))


def read_rows(db: Connection, phrase: WordPhrase, keys: Collection[int]) -> Doclist:
    """Return those of these rows that contain the phrase."""
    wanted = "rowid IN (SELECT value FROM json_each(?)) ORDER BY rowid"
    return _decode_counts(db.execute(_SELECT_COUNTS + wanted, (to_fts5(phrase), encode_list(sorted(keys)))))


def read_between(db: Connection, phrase: WordPhrase, first: int, last: int) -> Doclist:
    """Return the rows with the phrase between two keys, both included."""
    return _decode_counts(db.execute(_SELECT_COUNTS + "rowid BETWEEN ? AND ?", (to_fts5(phrase), first, last)))


def count_term_rows(db: Connection, term: str) -> int:
    return db.execute("SELECT doc FROM word_counts WHERE term = ?", (term,)).get or 0


def find_common_keys(doclists: Sequence[Doclist]) -> NDArray[np.int32]:
    """Return the keys of rows that are in all doclists."""
    first, *others = sorted(doclists, key=lambda each: len(each.keys))
    keys = first.keys
    for other in others:
        keys = keys[_is_in(keys, other.keys)]
    return keys


def _is_in(keys: NDArray[np.int32], others: NDArray[np.int32]) -> NDArray[np.bool]:
    """Return a mask of the keys that are among `others`, which must be sorted."""
    if not len(others):
        return np.zeros(len(keys), np.bool)
    places = np.minimum(np.searchsorted(others, keys), len(others) - 1)
    return others[places] == keys


def _decode_counts(found: Rows) -> Doclist:
    packed = np.array(found.fetchall(), np.int64).reshape(-1, 2)
    times = np.stack([packed[:, 1] >> shift & MAX_COUNT for shift in (32, 16, 0)])
    return Doclist(packed[:, 0].astype(np.int32), times.astype(_choose_dtype(times)))


def _choose_dtype(times: NDArray[Any]) -> type[np.unsignedinteger[Any]]:
    return np.uint8 if times.max(initial=0) <= np.iinfo(np.uint8).max else np.uint16


MIN_CACHED_ROWS = 256  # a word in fewer rows is read as fast as its cached array
MAX_CACHED_BYTES = 128_000_000  # some three bytes for each row that contains a word
RECENT_KEYS = 10_000  # newest keys; if one of these changes, all later rows are read again
# Rows of an array that are read again in the time of one lookup.
ROWS_PER_LOOKUP = 300

# The constants of bm25() in FTS5.
_K1, _B = 1.2, 0.75
_MIN_IDF = 1e-6

_SELECT_CHANGED = (
    "SELECT item FROM edits WHERE change > ?1 AND subject = 'record' AND item <= ?2 UNION "
    "SELECT value FROM changes, json_each(changes.reindexed) WHERE seq > ?1 AND value <= ?2"
)
_SELECT_SIZES = "SELECT group_concat(id), CAST(group_concat(sz, '') AS BLOB) FROM words_docsize WHERE "

Scores = NDArray[np.float64]


class _CachedDoclist(Value, frozen=False):
    """The array of a word: correct for all rows up to `up_to`, except those in `changed`."""

    packed: PackedDoclist
    up_to: int
    changed: set[int] = field(default_factory=set[int])


class Postings:
    """The arrays of one file. Each query first applies all changes since the last one."""

    def __init__(self, sieve: FilterCache) -> None:
        self._sieve = sieve
        self._seen = -1  # the last change that was applied
        self._restocked: int = -1  # replication number at that time
        self._newest = 0  # the largest key
        self._lengths = np.zeros(0, np.uint32)  # number of words per row, by key
        self._kept: OrderedDict[str, _CachedDoclist] = OrderedDict()
        self._kept_bytes = 0
        # While a file is being closed, a second thread may already read it.
        self._lock = Lock()

    def match(self, db: Connection, words: AnyOf, where: RecordFilter, weights: Weights, limit: int) -> list[Match]:
        with self._lock:
            self._catch_up(db)
            is_found, scores = self._compute_scores(db, words, weights)
        found = np.flatnonzero(is_found)

        def rank(limit: int, among: Keys | None) -> tuple[Keys, NDArray[Any]]:
            keys = found if among is None else among[is_found[among]]
            return select_best(keys, scores[keys], limit)

        return self._sieve.find_best(db, where, rank, limit)

    def measure_words(self, db: Connection, words: Sequence[str]) -> dict[str, float]:
        with self._lock:
            self._catch_up(db)
            rows = max(read_totals(db)[0], 1)
            return {word: self._count_rows(db, word) / rows for word in words}

    def _count_rows(self, db: Connection, word: str) -> int:
        term = stem(word)
        if term in self._kept:
            return len(self._read_doclist(db, WordPhrase((word,))).keys)
        return count_term_rows(db, term)

    def _compute_scores(self, db: Connection, words: AnyOf, weights: Weights) -> tuple[NDArray[np.bool], Scores]:
        """Return a mask of the rows with one of the words, and the sum of their scores, both by key."""
        rows, *column_words = read_totals(db)
        scale = rows / max(sum(column_words), 1)
        keys: list[NDArray[Any]] = [np.zeros(0, np.int32)]
        shares: list[Scores] = [np.zeros(0)]
        for part in _split_alternatives(words):
            counted = self._read_counts(db, part)
            if counted is None:
                having_it, found = _query_fts5(db, part, weights)
                keys.append(having_it)
                shares.append(found)
                continue
            for doclist, having in counted:
                relative = self._lengths[doclist.keys] * scale
                keys.append(doclist.keys)
                shares.append(_compute_shares(doclist.weigh_counts(weights), relative, having, rows))
        every = np.concatenate(keys)
        is_found = np.zeros(len(self._lengths), np.bool)
        is_found[every] = True
        return is_found, cast(Scores, np.bincount(every, np.concatenate(shares), len(self._lengths)))

    def _read_counts(self, db: Connection, part: WordQuery) -> list[tuple[Doclist, int]] | None:
        """Return matching rows with their occurrences, and the number of rows with the word. None means: query FTS5."""
        words = _list_plain_words(part)
        if len(words) == 1:
            doclist = self._read_doclist(db, words[0])
            return [(doclist, len(doclist.keys))]
        # Reading the arrays of all words only for this would take longer than FTS5 does.
        has_arrays = words and all(_get_term(word) in self._kept for word in words)
        doclists = [self._read_doclist(db, word) for word in words] if has_arrays else []
        keys = find_common_keys(doclists) if doclists else None
        if keys is not None and not len(keys):
            return []
        if words and isinstance(part, WordPhrase):
            within = (0, self._newest) if keys is None else (int(keys[0]), int(keys[-1]))
            found = read_between(db, part, *within)
            return [(found, len(found.keys))]
        if keys is None:
            return None
        return [(doclist.select(keys), len(doclist.keys)) for doclist in doclists]

    def _read_doclist(self, db: Connection, word: WordPhrase) -> Doclist:
        """Return all rows that contain a word now."""
        term = _get_term(word)
        kept = self._kept.pop(term, None)
        if kept is not None:
            self._kept_bytes -= kept.packed.nbytes
        if kept is None or self._is_outdated(kept):
            doclist = read_term(db, term)
        elif kept.up_to == self._newest and not kept.changed:
            self._cache(term, kept)
            return kept.packed.unpack()
        else:
            doclist = self._update_doclist(db, word, kept)
        if len(doclist.keys) >= MIN_CACHED_ROWS:
            self._cache(term, _CachedDoclist(PackedDoclist(doclist), self._newest))
        return doclist

    def _cache(self, term: str, kept: _CachedDoclist) -> None:
        self._kept[term] = kept
        self._kept_bytes += kept.packed.nbytes
        while self._kept_bytes > MAX_CACHED_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= oldest.packed.nbytes

    def _is_outdated(self, kept: _CachedDoclist) -> bool:
        """Return whether reading the whole array is faster than applying the changes."""
        is_mostly_new = self._newest - kept.up_to > kept.up_to // 8
        return is_mostly_new or len(kept.changed) * ROWS_PER_LOOKUP > len(kept.packed)

    def _update_doclist(self, db: Connection, word: WordPhrase, kept: _CachedDoclist) -> Doclist:
        doclist = kept.packed.unpack().truncate(kept.up_to)
        changed = {key for key in kept.changed if key <= kept.up_to}
        if changed:
            doclist = doclist.exclude(changed).join(read_rows(db, word, changed))
        if kept.up_to < self._newest:
            doclist = doclist.join(read_after(db, word, kept.up_to))
        return doclist

    def _catch_up(self, db: Connection) -> None:
        newest, number = read_newest_change(db), read_replication_number(db)
        if (newest, number) == (self._seen, self._restocked):
            return
        if number != self._restocked or self._should_read_again(db, newest):
            self._clear()
            self._read_lengths(db, "1")
        else:
            changed = {row[0] for row in db.execute(_SELECT_CHANGED, (self._seen, self._newest))}
            self._note_changed(changed)
            self._read_lengths(db, "id IN (SELECT value FROM json_each(?))", encode_list(changed))
            self._read_lengths(db, "id > ?", self._newest)
        self._seen, self._restocked = newest, number

    def _should_read_again(self, db: Connection, newest: int) -> bool:
        """Return whether a purge happened. The log does not name purged rows, and their keys may be reused."""
        return (
            not 0 <= self._seen <= newest
            or db.execute("SELECT count(*) FROM changes WHERE seq > ? AND tool = 'purge'", (self._seen,)).get > 0
        )

    def _note_changed(self, changed: set[int]) -> None:
        """Note the changed rows. The next query for a word applies them."""
        recent = self._newest - RECENT_KEYS
        end = min((key for key in changed if key > recent), default=self._newest + 1) - 1
        far = {key for key in changed if key <= recent}
        for kept in self._kept.values():
            kept.changed |= far
            kept.up_to = min(kept.up_to, end)

    def _clear(self) -> None:
        self._kept.clear()
        self._kept_bytes = 0
        self._newest = 0
        self._lengths = np.zeros(0, np.uint32)

    def _read_lengths(self, db: Connection, which: str, *bindings: Any) -> None:
        ids, sizes = db.execute(_SELECT_SIZES + which, bindings).get
        if ids is None:
            return
        keys = np.fromstring(ids, np.int64, sep=",")
        self._newest = max(self._newest, int(keys.max()))
        missing = self._newest + 1 - len(self._lengths)
        if missing > 0:
            # Allocate some spare rows, so that not every new record copies the array.
            room = missing + len(self._lengths) // 16
            self._lengths = np.concatenate([self._lengths, np.zeros(room, np.uint32)])
        self._lengths[keys] = _decode_varints(sizes).reshape(-1, COLUMN_COUNT).sum(axis=1)


def _split_alternatives(words: WordQuery) -> Iterator[WordQuery]:
    """Yield the parts of which any may match. Their scores add up, however they are grouped."""
    if isinstance(words, AnyOf):
        for part in words.parts:
            yield from _split_alternatives(part)
    else:
        yield words


def _get_term(word: WordPhrase) -> str:
    """Return the word as the index spells it."""
    return stem(word.words[0])


def _list_plain_words(part: WordQuery) -> list[WordPhrase]:
    """Return the words that a row must contain, as a phrase or anywhere. Return [] if arrays cannot answer."""
    if isinstance(part, AllOf):
        nested = [_list_plain_words(each) if isinstance(each, WordPhrase) else [] for each in part.parts]
        return [words[0] for words in nested] if all(len(words) == 1 for words in nested) else []
    if not isinstance(part, WordPhrase) or part.prefix:
        return []
    # FTS5 replaces invalid Unicode with this character, so only FTS5 can match it.
    is_whole = all("\ufffd" not in stem(word) for word in part.words)
    return [WordPhrase((word,)) for word in part.words] if is_whole else []


def _query_fts5(db: Connection, part: WordQuery, weights: Weights) -> tuple[Keys, Scores]:
    """Let FTS5 score a part with a prefix or with excluded words."""
    found = db.execute(
        "SELECT rowid, -bm25(words, ?, ?, ?) FROM words WHERE words MATCH ?",
        (weights.name, weights.text, weights.context, to_fts5(part)),
    ).fetchall()
    keys = np.fromiter((row[0] for row in found), np.int64, len(found))
    return keys, np.fromiter((row[1] for row in found), np.float64, len(found))


def _compute_shares(times: NDArray[Any], relative: NDArray[Any], having: int, rows: int) -> Scores:
    """Return the score of a word per row from its occurrences. A relative length of 1 is the average."""
    idf = max(log((rows - having + 0.5) / (having + 0.5)), _MIN_IDF)
    return idf * times * (_K1 + 1) / (times + _K1 * (1 - _B + _B * relative))


def _decode_varints(packed: bytes) -> NDArray[np.uint32]:
    """Decode SQLite's varints: seven bits per byte, highest bits first."""
    data = np.frombuffer(packed, np.uint8)
    ends = np.flatnonzero(data < 0x80)
    sizes = np.diff(ends, prepend=-1)
    numbers = np.zeros(len(ends), np.uint32)
    for place in range(int(sizes.max(initial=0))):
        has_more = sizes > place
        numbers[has_more] |= (data[ends[has_more] - place] & 0x7F).astype(np.uint32) << 7 * place
    return numbers
