import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.ports import SHARES, Background
from everkept.retrieval.profile import QueryFit, compute_nearness, compute_query_coverage, shift_odds
from memory_shelf import memory

UNIT = st.floats(0, 1)
FITS = st.builds(QueryFit, st.none() | st.floats(-2, 4), UNIT, st.integers(0, 300))


@given(FITS, UNIT, UNIT)
def test_a_probability_keeps_the_order_of_the_fusion(fit: QueryFit, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 < fit.compute_probability(low) <= fit.compute_probability(high) < 1


@given(UNIT, st.floats(-0.5, 1))
def test_nearer_texts_with_more_words_are_more_probable(coverage: float, nearness: float) -> None:
    known = QueryFit(nearness, coverage).compute_probability(1)
    assert known <= QueryFit(nearness + 0.1, coverage).compute_probability(1)
    assert known <= QueryFit(nearness, min(coverage + 0.1, 1)).compute_probability(1)


def test_neither_words_nor_meaning_make_an_answer_improbable() -> None:
    assert QueryFit(0.3, 0.0).compute_probability(1) < 0.02
    assert QueryFit(1.0, 0.5).compute_probability(1) > 0.3
    assert QueryFit(0.0, 1.0).compute_probability(1) > 0.5
    assert QueryFit(None, 1.0).compute_probability(1) > 0.5


def test_a_near_text_is_more_probable_among_few_and_a_far_one_is_not() -> None:
    assert QueryFit(0.6, 0.3).compute_probability(1) < 0.2
    assert QueryFit(0.6, 0.3, compared=3).compute_probability(1) > 0.5
    assert QueryFit(0.6, 0.3, compared=3).compute_probability(0.3) < 0.05
    assert QueryFit(0.1, 0.0, compared=3).compute_probability(1) < 0.05
    assert QueryFit(None, 0.3, compared=3).compute_probability(1) == QueryFit(None, 0.3).compute_probability(1)


@given(st.floats(0.001, 0.999), st.floats(-2, 2))
def test_priors_lift_nothing_irrelevant(probability: float, shift: float) -> None:
    shifted = shift_odds(probability, shift)
    assert 0 < shifted < 1
    assert (shifted > probability) == (shift > 0) or shifted == pytest.approx(probability)
    assert shift_odds(0.01, 0.5) < 0.02
    assert shift_odds(0.0, shift) == 0


def test_nearness_is_between_unrelated_texts_and_answers() -> None:
    model = Background(unrelated=tuple(share / 4 for share in SHARES), answers=SHARES, alike=SHARES)
    assert compute_nearness(0.125, model) == pytest.approx(0)
    assert compute_nearness(0.5, model) == pytest.approx(1)


@pytest.mark.parametrize(
    ("query", "name", "date", "expected"),
    [
        ("where does the parser live", None, None, 0.5),
        ("the parser", None, None, 1.0),
        ("yesterday", None, 1.0, 1.0),
        ("the parser yesterday", None, 0.0, 0.5),
        ("", None, None, 0.0),
        ("fix /home/ada/src/parse.py today please", "src/parse.py", None, 1.0),
    ],
)
def test_a_record_covers_words_dates_and_its_name(
    query: str, name: str | None, date: float | None, expected: float
) -> None:
    record = memory("The parser was split", name=name)
    assert compute_query_coverage(query, record, date) == pytest.approx(expected)
