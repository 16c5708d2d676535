import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.engines import vectors
from everkept.engines.vectors import VectorIndex
from examples import examples

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
    index = VectorIndex(DIMENSIONS)
    floats = directions(500, 1)
    disk.put(index, np.arange(500), floats)
    for query in directions(20, 2):
        keys, scores = index.find_nearest(query, 10, disk.fetch)
        assert set(keys.tolist()) == exact(floats, query, 10)
        assert sorted(scores.tolist(), reverse=True) == scores.tolist()
    assert disk.read == 0


def test_many_vectors_are_found_nearly_as_well_and_few_of_them_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "MAX_EXACT_VECTORS", 1_000)
    disk = Disk()
    index = VectorIndex(DIMENSIONS)
    floats, queries = np.split(directions(20_050, 3), [20_000])
    for start in range(0, 20_000, 500):
        disk.put(index, np.arange(start, start + 500), floats[start : start + 500])
    hits = sum(
        len(set(index.find_nearest(query, 10, disk.fetch)[0].tolist()) & exact(floats, query, 10)) for query in queries
    )
    assert hits / 500 >= 0.98
    assert disk.read / len(queries) < 2_000


def test_of_a_larger_index_more_vectors_are_compared_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAX_EXACT_VECTORS", 100), ("MIN_RESCORED_KEYS", 10), ("RESCORED_DIVISOR", 20)):
        monkeypatch.setattr(vectors, name, value)
    read: list[int] = []
    for size in (150, 1_000):
        disk, index = Disk(), VectorIndex(DIMENSIONS)
        disk.put(index, np.arange(size), directions(size, 12))
        index.find_nearest(directions(1, 13)[0], 5, disk.fetch)
        read.append(disk.read)
    assert read[0] < 50 <= read[1] < 200


def test_a_vector_takes_at_most_sixty_bytes_beyond_the_small_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "MAX_EXACT_VECTORS", 100)
    index = VectorIndex(DIMENSIONS)
    index.put(np.arange(5_000), directions(5_000, 5))
    assert index.nbytes / len(index) <= 60


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "drop"]), st.integers(0, 30), st.integers(0, 1_000)),
    min_size=1,
    max_size=60,
)


@pytest.mark.parametrize("limit", [3, 10_000])
@given(steps=STEPS, tail=st.sampled_from([0, 2, 1_000]))
@settings(max_examples=examples(60), deadline=None)
def test_the_last_vector_of_each_key_counts(limit: int, steps: list[tuple[str, int, int]], tail: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "MAX_EXACT_VECTORS", limit)
        patch.setattr(vectors, "MAX_TAIL_VECTORS", tail)
        disk = Disk()
        index = VectorIndex(DIMENSIONS)
        last: dict[int, int] = {}
        for step, key, seed in steps:
            if step == "put":
                disk.put(index, np.array([key]), directions(1, seed))
                last[key] = seed
            else:
                index.drop(np.array([key, 99]))
                last.pop(key, None)
        assert len(index) == len(last)
        for key, seed in last.items():
            keys, scores = index.find_nearest(directions(1, seed)[0], 50, disk.fetch)
            best = {k for k, s in zip(keys.tolist(), scores.tolist(), strict=True) if s > 0.999}
            assert best == {k for k, s in last.items() if s == seed}
            assert key in best
            assert len(keys) == len(last)


def test_an_empty_index_has_nothing_near() -> None:
    index = VectorIndex(DIMENSIONS)
    for among in (None, np.array([1, 2])):
        keys, scores = index.find_nearest(directions(1, 1)[0], 5, Disk().fetch, among)
        assert (len(keys), len(scores)) == (0, 0)


def test_vectors_of_half_the_precision_are_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    floats = directions(300, 8)
    for limit in (100, 10_000):
        monkeypatch.setattr(vectors, "MAX_EXACT_VECTORS", limit)
        disk, index = Disk(), VectorIndex(DIMENSIONS)
        disk.put(index, np.arange(300), floats.astype(np.float16))
        for number in (0, 150, 299):
            keys, scores = index.find_nearest(floats[number], 1, disk.fetch)
            assert keys.tolist() == [number]
            assert scores[0] == pytest.approx(1.0, abs=1e-3)


def test_any_number_of_dimensions_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "MAX_EXACT_VECTORS", 10)
    floats = directions(50, 9)[:, :100]
    disk, index = Disk(), VectorIndex(100)
    disk.put(index, np.arange(50), floats)
    assert index.find_nearest(floats[7], 1, disk.fetch)[0].tolist() == [7]


def test_of_equally_near_ones_the_smaller_keys_come_first() -> None:
    disk, index = Disk(), VectorIndex(DIMENSIONS)
    disk.put(index, np.array([5, 3, 9, 1]), np.repeat(directions(1, 4), 4, axis=0))
    assert index.find_nearest(directions(1, 4)[0], 3, disk.fetch)[0].tolist() == [1, 3, 5]


@pytest.mark.thorough
def test_a_hundred_thousand_vectors_are_found_nearly_as_well_as_by_comparing_all() -> None:
    chance = np.random.default_rng(11)
    topics = chance.standard_normal((2_000, DIMENSIONS), dtype=np.float32)
    floats = topics[chance.integers(0, 2_000, 100_030)]
    floats += 0.8 * chance.standard_normal(floats.shape, dtype=np.float32)
    floats /= np.linalg.norm(floats, axis=1, keepdims=True)
    floats, queries = np.split(floats, [100_000])
    index = VectorIndex(DIMENSIONS)
    for start in range(0, 100_000, 10_000):
        index.put(np.arange(start, start + 10_000), floats[start : start + 10_000])
    hits = sum(
        len(
            set(index.find_nearest(query, 10, lambda keys: (keys, floats[keys]))[0].tolist()) & exact(floats, query, 10)
        )
        for query in queries
    )
    assert hits >= 0.98 * 10 * len(queries)
    assert index.nbytes <= 60 * len(index)


def test_only_those_that_are_asked_for_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    floats = directions(2_000, 6)
    for limit in (100, 10_000):
        monkeypatch.setattr(vectors, "MAX_EXACT_VECTORS", limit)
        disk = Disk()
        index = VectorIndex(DIMENSIONS)
        disk.put(index, np.arange(2_000), floats)
        wanted = np.array([7, 1_500, 99_999])
        keys, _ = index.find_nearest(floats[3], 10, disk.fetch, wanted)
        assert set(keys.tolist()) == {7, 1_500}


def test_signs_alone_find_what_the_vectors_would() -> None:
    floats = directions(500, 10).astype(np.float16)
    disk, index = Disk(), VectorIndex(DIMENSIONS, exact=False)
    disk.put(index, np.arange(250), floats[:250])
    disk.floats.update(zip(range(250, 500), floats[250:].astype(np.float32), strict=True))
    order = np.random.default_rng(1).permutation(np.arange(250, 500))
    index.put_signs(order, vectors.compute_signs(floats[order]))
    other = VectorIndex(DIMENSIONS, exact=False)
    other.put(np.arange(500), floats)
    assert (len(index), index.nbytes) == (len(other), other.nbytes)
    for query in directions(5, 11):
        by_signs, by_vectors = (i.find_nearest(query, 20, disk.fetch)[0] for i in (index, other))
        assert by_signs.tolist() == by_vectors.tolist()
