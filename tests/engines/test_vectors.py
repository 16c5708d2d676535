import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.engines import vectors
from recollect.engines.vectors import VectorIndex

DIMENSIONS = 384


class Disk:
    """Where the floats are, counting what is read of them."""

    def __init__(self) -> None:
        self.floats: dict[int, np.ndarray] = {}
        self.read = 0

    def fetch(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.read += len(keys)
        return keys, np.array([self.floats[key] for key in keys.tolist()], np.float32)

    def put(self, index: VectorIndex, keys: np.ndarray, floats: np.ndarray) -> None:
        self.floats.update(zip(keys.tolist(), floats, strict=True))
        index.put(keys, floats)


def directions(count: int, seed: int) -> np.ndarray:
    """Unit vectors around a few centres, as texts about a few topics are."""
    chance = np.random.default_rng(seed)
    centres = chance.normal(size=(32, DIMENSIONS))
    spread = chance.normal(scale=0.8, size=(count, DIMENSIONS))
    points = centres[chance.integers(0, 32, count)] + spread
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)


def exact(floats: np.ndarray, vector: np.ndarray, limit: int) -> set[int]:
    return set(np.argsort(-(floats @ vector))[:limit].tolist())


def test_few_vectors_are_compared_exactly_and_nothing_is_read() -> None:
    disk = Disk()
    index = VectorIndex(DIMENSIONS, disk.fetch)
    floats = directions(500, 1)
    disk.put(index, np.arange(500), floats)
    for query in directions(20, 2):
        keys, scores = index.nearest(query, 10)
        assert set(keys.tolist()) == exact(floats, query, 10)
        assert sorted(scores.tolist(), reverse=True) == scores.tolist()
    assert disk.read == 0


def test_many_vectors_are_found_nearly_as_well_and_few_of_them_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vectors, "EXACT_LIMIT", 1_000)
    disk = Disk()
    index = VectorIndex(DIMENSIONS, disk.fetch)
    floats, queries = np.split(directions(20_050, 3), [20_000])
    for start in range(0, 20_000, 500):
        disk.put(index, np.arange(start, start + 500), floats[start : start + 500])
    hits = sum(
        len(set(index.nearest(query, 10)[0].tolist()) & exact(floats, query, 10))
        for query in queries
    )
    assert hits / 500 >= 0.98
    assert disk.read / len(queries) < 2_000


def test_a_vector_takes_at_most_sixty_bytes_beyond_the_small_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vectors, "EXACT_LIMIT", 100)
    index = VectorIndex(DIMENSIONS, Disk().fetch)
    index.put(np.arange(5_000), directions(5_000, 5))
    assert index.nbytes / len(index) <= 60


@pytest.mark.parametrize("limit", [3, 10_000])
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 1_000)), min_size=1, max_size=60))
@settings(max_examples=60, deadline=None)
def test_the_last_vector_of_each_key_counts(limit: int, puts: list[tuple[int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "EXACT_LIMIT", limit)
        disk = Disk()
        index = VectorIndex(DIMENSIONS, disk.fetch)
        for key, seed in puts:
            disk.put(index, np.array([key]), directions(1, seed))
        last = dict(puts)
        assert len(index) == len(last)
        for key, seed in last.items():
            keys, scores = index.nearest(directions(1, seed)[0], 50)
            best = {k for k, s in zip(keys.tolist(), scores.tolist(), strict=True) if s > 0.999}
            assert best == {k for k, s in last.items() if s == seed}
            assert key in best


def test_only_those_that_are_asked_for_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    floats = directions(2_000, 6)
    for limit in (100, 10_000):
        monkeypatch.setattr(vectors, "EXACT_LIMIT", limit)
        disk = Disk()
        index = VectorIndex(DIMENSIONS, disk.fetch)
        disk.put(index, np.arange(2_000), floats)
        wanted = np.array([7, 1_500, 99_999])
        keys, _ = index.nearest(floats[3], 10, wanted)
        assert set(keys.tolist()) == {7, 1_500}
