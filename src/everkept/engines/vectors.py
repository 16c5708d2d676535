"""Vector index in memory, derived from stored vectors. It can be dropped at any time without loss."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Halves = NDArray[np.float16]
Keys = NDArray[np.int64]
RowNumbers = NDArray[np.intp]
Signs = NDArray[np.uint8]

MAX_EXACT_VECTORS = 20_000  # some 30 MB of floats, searched exactly in a millisecond
# Candidates of a scan over codes that are rescored with floats. More vectors are near to a query in a larger index.
MIN_RESCORED_KEYS, RESCORED_DIVISOR = 400, 500
BLOCK_ROWS = 16_384  # rows per block, so that distances stay in the processor's cache
# `select_best` samples one of SAMPLE_STEP scores if there are SAMPLE_FACTOR times more scores than results.
SAMPLE_STEP, SAMPLE_FACTOR = 32, 8
MAX_TAIL_VECTORS = 1_024  # new vectors kept separately, because an insert copies the whole array

Fetch = Callable[[Keys], tuple[Keys, Floats]]


class VectorIndex:
    """Keys with their vectors: exact if there are few, otherwise one bit per dimension.

    Beyond MAX_EXACT_VECTORS a vector takes one bit per dimension and 8 bytes for its key. The best few hundred of a
    scan over these bits are rescored with the floats that `fetch` reads.
    """

    def __init__(self, dimensions: int, *, exact: bool = True) -> None:
        self._dimensions = dimensions
        self._is_exact = exact
        self._most, self._tail = self._build_part(), self._build_part()

    def __len__(self) -> int:
        return len(self._most.keys) + len(self._tail.keys)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the index uses."""
        return sum(part.keys.nbytes + part.data.nbytes for part in self._parts)

    def put(self, keys: Keys, vectors: Floats | Halves) -> None:
        """Add vectors, or replace those of known keys. Each key must occur once."""
        self._put(keys, self._to_data(vectors))

    def put_signs(self, keys: Keys, signs: Signs) -> None:
        """Add vectors of which only the signs are known, to an index that is not exact."""
        self._put(keys, _to_columns(signs))

    def _put(self, keys: Keys, data: NDArray[Any]) -> None:
        order = np.argsort(keys)
        keys, data = keys[order], np.take(data, order, axis=self._most.axis)
        for part in self._parts:
            is_new = part.replace(keys, data)
            keys, data = keys[is_new], np.compress(is_new, data, axis=part.axis)
        self._tail.insert(keys, data)
        if self._is_exact and not is_exact(len(self)):
            self._is_exact = False
            self._most, self._tail = (_Part(part.keys, _compute_codes(part.data), axis=1) for part in self._parts)
        if len(self._tail.keys) > MAX_TAIL_VECTORS:
            self._most.insert(self._tail.keys, self._tail.data)
            self._tail = self._build_part()

    def drop(self, keys: Keys) -> None:
        for part in self._parts:
            part.drop(keys)

    def find_nearest(self, vector: Floats, limit: int, fetch: Fetch, among: Keys | None = None) -> tuple[Keys, Floats]:
        """Return the keys of the best vectors and their cosines, best first."""
        return select_best(*self.score(vector, self.choose_depth(limit), fetch, among), limit)

    def choose_depth(self, limit: int) -> int:
        """Return how many vectors to compare exactly to find the best `limit`."""
        return len(self) if self._is_exact else max(limit, MIN_RESCORED_KEYS, len(self) // RESCORED_DIVISOR)

    def score(self, vector: Floats, depth: int, fetch: Fetch, among: Keys | None = None) -> tuple[Keys, Floats]:
        """Return the keys and cosines of about `depth` vectors that include the best ones, in any order."""
        chosen = [part.select(among) for part in self._parts]
        keys = np.concatenate([part.keys for part in chosen])
        if self._is_exact:
            # Matrix multiplication is avoided: its threads block each other on a busy machine.
            return keys, np.concatenate([np.vecdot(part.data, vector) for part in chosen])
        distances = np.concatenate([self._count_distances(part.data, vector) for part in chosen])
        keys = keys[distances <= _find_cutoff(distances, depth)]
        if not len(keys):
            return keys, np.empty(0, np.float32)
        keys, floats = fetch(keys)
        return keys, np.vecdot(floats, vector)

    @property
    def _parts(self) -> "tuple[_Part, _Part]":
        return self._most, self._tail

    def _build_part(self) -> "_Part":
        shape = np.empty((0, self._dimensions), np.float32)
        return _Part(np.empty(0, np.int64), self._to_data(shape), 0 if self._is_exact else 1)

    def _to_data(self, vectors: Floats | Halves) -> NDArray[Any]:
        return vectors.astype(np.float32, copy=False) if self._is_exact else _compute_codes(vectors)

    def _count_distances(self, codes: NDArray[np.uint64], vector: Floats) -> NDArray[np.uint16]:
        """Count the differing signs, block by block."""
        code = _compute_codes(vector[None, :])[:, 0]
        distances = np.zeros(codes.shape[1], np.uint16)
        for start in range(0, len(distances), BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            for column, word in zip(codes, code, strict=True):
                distances[block] += np.bitwise_count(column[block] ^ word)
        return distances


class _Part:
    """Vectors or their codes, sorted by key."""

    def __init__(self, keys: Keys, data: NDArray[Any], axis: int) -> None:
        self.keys = keys
        self.data = data
        self.axis = axis  # the axis that counts vectors

    def replace(self, keys: Keys, data: NDArray[Any]) -> NDArray[np.bool]:
        """Replace the data of known keys. Return a mask of the unknown keys."""
        rows, is_known = self._find(keys)
        if is_known.any():
            known = np.compress(is_known, data, axis=self.axis)
            self.data[rows if self.axis == 0 else (slice(None), rows)] = known
        return ~is_known

    def insert(self, keys: Keys, data: NDArray[Any]) -> None:
        if len(keys):
            rows = np.searchsorted(self.keys, keys)
            self.keys = np.insert(self.keys, rows, keys)
            self.data = np.insert(self.data, rows, data, axis=self.axis)

    def drop(self, keys: Keys) -> None:
        rows, is_known = self._find(keys)
        if is_known.any():
            self.keys = np.delete(self.keys, rows)
            self.data = np.delete(self.data, rows, axis=self.axis)

    def select(self, keys: Keys | None) -> "_Part":
        if keys is None:
            return self
        rows, _ = self._find(keys)
        return _Part(self.keys[rows], np.take(self.data, rows, axis=self.axis), self.axis)

    def _find(self, keys: Keys) -> tuple[RowNumbers, NDArray[np.bool]]:
        """Return the rows of known keys, and a mask of these keys."""
        rows = np.searchsorted(self.keys, keys)
        is_known = rows < len(self.keys)
        is_known[is_known] = self.keys[rows[is_known]] == keys[is_known]
        return rows[is_known], is_known


def is_exact(count: int) -> bool:
    """Return whether an index of `count` vectors holds their floats."""
    return count <= MAX_EXACT_VECTORS


def select_best(keys: Keys, scores: NDArray[Any], limit: int) -> tuple[Keys, NDArray[Any]]:
    """Return the highest scores with their keys, best first. Equal scores are sorted by key."""
    if limit < len(keys) // SAMPLE_FACTOR:
        # Keep the scores above a threshold from a sample, if enough of them are.
        sample = np.sort(scores[::SAMPLE_STEP])
        is_likely = scores >= sample[-1 - min(SAMPLE_FACTOR * limit // SAMPLE_STEP, len(sample) - 1)]
        if np.count_nonzero(is_likely) >= limit:
            keys, scores = keys[is_likely], scores[is_likely]
    if limit < len(keys):
        worst = np.partition(scores, len(scores) - limit)[len(scores) - limit :]
        enough = scores >= worst.min(initial=np.inf)
        keys, scores = keys[enough], scores[enough]
    order = np.lexsort((keys, -scores))[:limit]
    return keys[order], scores[order]


def compute_signs(vectors: NDArray[Any]) -> Signs:
    """Return one bit per dimension, padded to rows of whole eight bytes."""
    if vectors.dtype == np.float16:
        # The same comparison on the raw bits is faster: a positive half is a positive integer.
        vectors = vectors.view(np.int16)
    packed = np.packbits(vectors > 0, axis=1)
    missing = -packed.shape[1] % 8
    return np.pad(packed, ((0, 0), (0, missing))) if missing else packed


def _compute_codes(vectors: NDArray[Any]) -> NDArray[np.uint64]:
    return _to_columns(compute_signs(vectors))


def _to_columns(signs: Signs) -> NDArray[np.uint64]:
    """Return the signs as columns of 64 bits, because sums over rows are slow."""
    return np.ascontiguousarray(signs.view(np.uint64).T)


def _find_cutoff(distances: NDArray[np.uint16], at_least: int) -> int:
    """Return the smallest distance that at least `at_least` entries do not exceed."""
    counts = np.cumsum(np.bincount(distances, minlength=1))
    return int(np.searchsorted(counts, min(at_least, len(distances))))
