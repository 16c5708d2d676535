"""Vectors in memory: derived from what an engine stores, and dropped at any time without loss."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # loaded by the first question: a server that never asks one does not pay
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Keys = NDArray[np.int64]

EXACT_LIMIT = 20_000  # vectors; up to here 30 MB buy an exact answer in a millisecond
RESCORED = 400  # candidates of a scan over codes whose floats are read
BLOCK = 16_384  # rows whose distances are counted inside the processor's cache

Fetch = Callable[["Keys"], tuple["Keys", "Floats"]]


class VectorIndex:
    """Keys with their vectors: exact while there are few, then one bit a dimension.

    Beyond EXACT_LIMIT a vector takes a bit for each of its dimensions and 8 bytes for its key; the
    best few hundred of a scan over these codes are rescored with the floats that `fetch` reads.
    """

    def __init__(self, dimensions: int, fetch: Fetch) -> None:
        import numpy as np

        self._np = np
        self._fetch = fetch
        self._keys: Keys = np.empty(0, np.int64)
        self._exact: Floats | None = np.empty((0, dimensions), np.float32)
        self._codes: NDArray[np.uint64] = np.empty((dimensions // 64, 0), np.uint64)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        """What the index takes of memory."""
        exact = 0 if self._exact is None else self._exact.nbytes
        return self._keys.nbytes + self._codes.nbytes + exact

    def put(self, keys: "Keys", vectors: "Floats") -> None:
        """Adds vectors or replaces those of keys that are there."""
        np = self._np
        order = np.argsort(keys, kind="stable")
        keys, vectors = keys[order], vectors[order]
        rows = np.searchsorted(self._keys, keys)
        known = rows < len(self._keys)
        known[known] = self._keys[rows[known]] == keys[known]
        if self._exact is not None:
            self._exact[rows[known]] = vectors[known]
        else:
            self._codes[:, rows[known]] = self._code(vectors[known])
        self._insert(rows[~known], keys[~known], vectors[~known])

    def nearest(
        self, vector: "Floats", limit: int, among: "Keys | None" = None
    ) -> tuple["Keys", "Floats"]:
        """The keys of the best vectors and their cosines, best first."""
        np = self._np
        rows = None if among is None else self._rows_of(among)
        if self._exact is not None:
            chosen = self._exact if rows is None else self._exact[rows]
            keys = self._keys if rows is None else self._keys[rows]
            scores = chosen @ vector
        else:
            candidates = self._scan(vector, max(limit, RESCORED), rows)
            keys, floats = self._fetch(self._keys[candidates])
            scores = floats @ vector
        best = np.argsort(-scores, kind="stable")[:limit]
        return keys[best], scores[best]

    def _insert(self, rows: "NDArray[Any]", keys: "Keys", vectors: "Floats") -> None:
        np = self._np
        self._keys = np.insert(self._keys, rows, keys)
        if self._exact is not None and len(self._keys) > EXACT_LIMIT:
            self._codes = self._code(np.insert(self._exact, rows, vectors, axis=0))
            self._exact = None
        elif self._exact is not None:
            self._exact = np.insert(self._exact, rows, vectors, axis=0)
        else:
            self._codes = np.insert(self._codes, rows, self._code(vectors), axis=1)

    def _rows_of(self, keys: "Keys") -> "NDArray[Any]":
        np = self._np
        rows = np.searchsorted(self._keys, keys)
        rows = rows[rows < len(self._keys)]
        return rows[np.isin(self._keys[rows], keys)]

    def _code(self, vectors: "Floats") -> "NDArray[np.uint64]":
        """The sign of each dimension, as columns of 64: sums over rows would be slow."""
        np = self._np
        packed = np.packbits(vectors > 0, axis=1).view(np.uint64)
        return np.ascontiguousarray(packed.T)

    def _scan(self, vector: "Floats", at_least: int, rows: "NDArray[Any] | None") -> "NDArray[Any]":
        """The rows with the most equal signs, ties included."""
        np = self._np
        code = self._code(vector[None, :])[:, 0]
        codes = self._codes if rows is None else self._codes[:, rows]
        distance = np.zeros(codes.shape[1], np.uint16)
        for start in range(0, len(distance), BLOCK):
            part = slice(start, start + BLOCK)
            for column, word in zip(codes, code, strict=True):
                distance[part] += np.bitwise_count(column[part] ^ word)
        counts = np.cumsum(np.bincount(distance, minlength=1))
        cut = int(np.searchsorted(counts, min(at_least, len(distance))))
        found = np.flatnonzero(distance <= cut)
        return found if rows is None else rows[found]
