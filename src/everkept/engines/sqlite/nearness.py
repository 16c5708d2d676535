"""Nearest vectors of one file: an index in memory for each model, kept up to date with the file."""

from collections.abc import Sequence
from itertools import islice
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everkept.core.records import Match, RecordFilter
from everkept.engines.sqlite.connection import Connection, Row
from everkept.engines.sqlite.rows import PARENT_ID, encode_list
from everkept.engines.sqlite.search import FilterCache, Keys
from everkept.engines.sqlite.vectors import read_newest_vector
from everkept.engines.vectors import Floats, Halves, VectorIndex, is_exact, select_best

CHUNK_VECTORS = 1_024  # vectors read together; the process keeps the memory that each chunk needs
CHUNK_SIGNS = 262_144  # the same for signs only
MAX_NEW_VECTORS = 20_000  # more than this take a reader too long: a tenth of a second

_SELECT_SIGNS = (
    "SELECT group_concat(record), CAST(group_concat(code, '') AS BLOB) FROM ("
    "SELECT record, code FROM vectors INDEXED BY vectors_code "
    "WHERE model = ? AND record > ? ORDER BY record LIMIT ?)"
)


class VectorIndexes:
    """The index of each model. Each query first reads vectors that were stored since the last one.

    If they are many, another connection must read them, so that the reader can answer other queries.
    """

    def __init__(self, sieve: FilterCache) -> None:
        self._sieve = sieve
        self._followers: dict[str, _ModelIndex] = {}
        # While a file is being closed, a second thread may already read it.
        self._lock = Lock()

    def find_nearest(
        self, db: Connection, model: str, vector: Floats, where: RecordFilter, limit: int, also: Sequence[str]
    ) -> list[Match] | None:
        """Return the nearest records, or None if the index must be updated first or is being updated."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            found = self._get_index(model).find_nearest(db, vector, where, limit)
        finally:
            self._lock.release()
        if found is None:
            return None
        near = {match.id for match in found}
        far = [record_id for record_id in also if record_id not in near]
        asked = _compute_scores(db, model, vector, far) if far else []
        return sorted((*asked, *found), key=lambda match: -match.score)

    def catch_up(self, db: Connection, model: str) -> None:
        """Read all new vectors, however long that takes."""
        with self._lock:
            self._get_index(model).catch_up(db)

    def _get_index(self, model: str) -> "_ModelIndex":
        return self._followers.setdefault(model, _ModelIndex(model, self._sieve))


class _ModelIndex:
    """The index of one model, and the number of the last vector it has read."""

    def __init__(self, model: str, sieve: FilterCache) -> None:
        self._model = model
        self._sieve = sieve
        self._seen = 0
        self._index: VectorIndex | None = None

    def find_nearest(self, db: Connection, vector: Floats, where: RecordFilter, limit: int) -> list[Match] | None:
        """Return the nearest records, or None if more than MAX_NEW_VECTORS must be read first."""
        if not self.catch_up(db, MAX_NEW_VECTORS):
            return None
        index = self._index
        if index is None or limit <= 0:
            return []

        def fetch(keys: Keys) -> tuple[Keys, Floats]:
            rows = db.execute(
                "SELECT record, vector FROM vectors WHERE record IN (SELECT value FROM json_each(?))",
                (encode_list(keys.tolist()),),
            ).fetchall()
            found, halves = _unpack_rows(rows)
            return found, halves.astype(np.float32)

        scored: dict[int, tuple[Keys, NDArray[Any]]] = {}  # by depth; a second try often needs no second scan

        def rank(limit: int, among: Keys | None) -> tuple[Keys, NDArray[Any]]:
            if among is not None:
                return index.find_nearest(vector, limit, fetch, among)
            depth = index.choose_depth(limit)
            if depth not in scored:
                scored[depth] = index.score(vector, depth, fetch)
            return select_best(*scored[depth], limit)

        return self._sieve.find_best(db, where, rank, limit)

    def catch_up(self, db: Connection, most: int | None = None) -> bool:
        """Read new vectors, unless there are more than `most`. Return whether the index is up to date."""
        newest = read_newest_vector(db)
        if newest < self._seen:  # this connection sees an older state than the last one
            self._seen, self._index = 0, None
        if newest == self._seen:
            return True
        if most is not None and newest - self._seen > most:
            return False
        if self._index is not None:
            # Records that lost their vector, or whose vector is of another model now.
            lost = db.execute(
                "SELECT record FROM vectors INDEXED BY sqlite_autoindex_vectors_1 WHERE seq > ? AND model IS NOT ?",
                (self._seen, self._model),
            )
            self._index.drop(np.fromiter((row[0] for row in lost), np.int64))
        if self._index is None and _are_signs_enough(db, self._model):
            self._read_signs(db)
        else:
            self._read_vectors(db)
        self._seen = newest
        return True

    def _read_vectors(self, db: Connection) -> None:
        """Read the vectors stored since the last time."""
        # Reading all vectors in storage order is faster than by number.
        how = "NOT INDEXED" if self._index is None else "INDEXED BY sqlite_autoindex_vectors_1"
        rows = iter(
            db.execute(
                f"SELECT record, vector FROM vectors {how} WHERE seq > ? AND model = ?", (self._seen, self._model)
            )
        )
        while chunk := list(islice(rows, CHUNK_VECTORS)):
            keys, halves = _unpack_rows(chunk)
            self._index = self._index or VectorIndex(halves.shape[1])
            self._index.put(keys, halves)

    def _read_signs(self, db: Connection) -> None:
        """Read the signs of all vectors, which are enough for a large index."""
        last = -1
        while (found := db.execute(_SELECT_SIGNS, (self._model, last, CHUNK_SIGNS)).get)[0] is not None:
            keys = np.fromstring(found[0], np.int64, sep=",")
            signs = np.frombuffer(found[1], np.uint8).reshape(len(keys), -1)
            self._index = self._index or VectorIndex(8 * signs.shape[1], exact=False)
            self._index.put_signs(keys, signs)
            last = int(keys[-1])


def _are_signs_enough(db: Connection, model: str) -> bool:
    """Return whether the index is not exact and all vectors have signs. Older programs stored none."""
    count, signed = db.execute(
        "SELECT count(*), count(code) FROM vectors INDEXED BY vectors_code WHERE model = ?", (model,)
    ).get
    return not is_exact(count) and signed == count


def _compute_scores(db: Connection, model: str, vector: Floats, ids: Sequence[str]) -> list[Match]:
    rows = db.execute(
        f"SELECT r.id, {PARENT_ID}, v.vector FROM records r JOIN vectors v ON v.record = r.key "
        "WHERE r.id IN (SELECT value FROM json_each(?)) AND +v.model = ?",
        (encode_list(ids), model),
    ).fetchall()
    if not rows:
        return []
    _, halves = _unpack_rows([(0, blob) for _, _, blob in rows])
    scores = (halves.astype(np.float32) @ vector).tolist()
    return [Match(row[0], row[1], score) for row, score in zip(rows, scores, strict=True)]


def _unpack_rows(rows: Sequence[Row]) -> tuple[Keys, Halves]:
    """Return keys and vectors of at least one row. All vectors have the same length."""
    keys = np.fromiter((row[0] for row in rows), np.int64, len(rows))
    halves = np.frombuffer(b"".join(row[1] for row in rows), "<f2")
    return keys, halves.reshape(len(rows), -1)
