from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from everkept.core.ports import Level
from everkept.embedders.onnx import OnnxEmbedder
from everkept.families.memories.consolidation import MIN_TOPIC_LIKENESS
from everkept.families.memories.likeness import cluster_rows, compute_likeness
from hash_embedder import HashingEmbedder

BACKGROUND = OnnxEmbedder().background


def matrix(numbers: Sequence[int]) -> NDArray[np.float32]:
    """As many rows as the numbers are enough for, alike by distinct amounts."""
    size = int(((1 + 8 * len(numbers)) ** 0.5 + 1) / 2)
    alike = np.eye(size, dtype=np.float32)
    for (row, column), number in zip(_pairs(size), numbers, strict=False):
        alike[row, column] = alike[column, row] = number / 1_000
    return alike


def _pairs(size: int) -> list[tuple[int, int]]:
    return [(row, column) for column in range(size) for row in range(column)]


matrices = st.lists(st.integers(0, 999), min_size=1, max_size=45, unique=True).map(matrix)


@settings(deadline=None)
@given(matrices, st.floats(0.1, 0.9))
def test_every_row_is_in_one_group(alike: NDArray[np.float32], threshold: float) -> None:
    found = cluster_rows(alike, threshold)
    assert sorted(row for rows in found for row in rows) == list(range(len(alike)))


@settings(deadline=None)
@given(matrices, st.floats(0.1, 0.9))
def test_the_rows_of_a_group_are_alike_on_average_and_no_two_groups_are(
    alike: NDArray[np.float32], threshold: float
) -> None:
    found = cluster_rows(alike, threshold)
    for rows in found:
        others = [other for other in found if other != rows]
        assert all(alike[np.ix_(rows, other)].mean() < threshold + 1e-5 for other in others)
    together = [rows for rows in found if len(rows) == 2]
    assert all(alike[first, second] >= threshold - 1e-5 for first, second in together)


@settings(deadline=None)
@given(matrices, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(alike: NDArray[np.float32], random: Any) -> None:
    order = list(range(len(alike)))
    random.shuffle(order)
    shuffled = cluster_rows(alike[np.ix_(order, order)], 0.5)
    assert {frozenset(order[row] for row in rows) for rows in shuffled} == {
        frozenset(rows) for rows in cluster_rows(alike, 0.5)
    }


def test_two_thousand_rows_fall_into_their_groups() -> None:
    random = np.random.default_rng(1)
    centres = random.normal(size=(50, 64))
    rows = centres[np.arange(2_000) % 50] + 0.3 * random.normal(size=(2_000, 64))
    vectors = [row.astype(np.float32) for row in rows / np.linalg.norm(rows, axis=1)[:, None]]
    found = cluster_rows(compute_likeness([[]] * 2_000, vectors, BACKGROUND), 0.5)
    assert found == [list(range(number, 2_000, 50)) for number in range(50)]


def test_texts_are_alike_by_their_vectors() -> None:
    one, other = np.float32([1, 0]), np.float32([0.6, 0.8])
    assert 0.5 < compute_likeness([["a"], ["b"]], [one, other], BACKGROUND)[0, 1] < 0.7
    assert compute_likeness([["a"], ["b"]], [one, one], BACKGROUND)[0, 1] == pytest.approx(1)


def test_likeness_means_the_same_for_each_model() -> None:
    unrelated = Level("unrelated", 0.998)
    for background in (BACKGROUND, HashingEmbedder().background):
        near = background.find(unrelated)
        one, other = np.float32([1, 0]), np.float32([near, (1 - near**2) ** 0.5])
        alike = compute_likeness([["a"], ["b"]], [one, other], background)
        assert alike[0, 1] == pytest.approx(MIN_TOPIC_LIKENESS, abs=0.001)


def test_words_stand_in_for_a_vector_that_is_missing() -> None:
    vector = np.float32([1, 0])
    alike = compute_likeness([["redis", "cache"], ["redis", "cache"], ["sidebar"]], [vector, None, vector], BACKGROUND)
    assert alike[0, 1] > 0.99
    assert alike[1, 2] == 0
    assert alike[0, 2] == pytest.approx(1)


def test_texts_without_words_are_like_nothing() -> None:
    alike = compute_likeness([[], []], [None, None], None)
    assert alike[0, 1] == 0
