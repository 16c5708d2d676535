import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.ports import SHARES, Background, Level
from everkept.embedders.onnx import OnnxEmbedder

SHIPPED = OnnxEmbedder().background


@given(st.sampled_from(["unrelated", "answers", "alike"]), st.floats(0, 1), st.floats(0, 1))
def test_a_higher_share_is_at_least_as_near(pairs: str, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert SHIPPED.find(Level(pairs, low)) <= SHIPPED.find(Level(pairs, high))


@given(st.floats(0, 1))
def test_the_share_of_a_cosine_is_that_of_its_level(share: float) -> None:
    assert SHIPPED.compute_share(SHIPPED.find(Level("unrelated", share))) == pytest.approx(share, abs=1e-6)


def test_what_is_nearer_or_farther_than_all_pairs_has_a_share_too() -> None:
    assert [SHIPPED.compute_share(cosine) for cosine in (-1.0, 0.99)] == [0, 1]


def test_levels_between_measured_shares_are_on_a_line() -> None:
    straight = Background(SHARES, SHARES, SHARES)
    assert straight.find(Level("alike", 0.8)) == pytest.approx(0.8)
    assert straight.compute_share(0.33) == pytest.approx(0.33)
