import math
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.ports import SHARES, Background
from everkept.retrieval.fusion import (
    MAX_STRETCH,
    CandidateSignals,
    NearnessLimits,
    compute_recency,
    compute_relevance,
    mark_supported,
    scale_by_best,
    scale_by_confidence,
    scale_by_range,
    scale_by_rank,
    sum_columns,
)
from everkept.retrieval.profile import Fusion, SignalWeights
from everkept.values import replace

# Cosines of a model that is easy to compute with.
MODEL = Background(unrelated=SHARES, answers=SHARES, alike=SHARES)
LIMITS = NearnessLimits(MODEL, floors=(0.1, 0.2), least=-1.0, sure=0.4, least_range=0.25)

COUNTS = st.integers(0, 12)
RAW = st.none() | st.floats(0, 50)
COSINE = st.none() | st.floats(-1, 1)
UNIT = st.floats(0, 1)
PARTS = st.builds(SignalWeights, UNIT, UNIT, UNIT, UNIT, UNIT, UNIT)


@st.composite
def signs(draw: st.DrawFn) -> CandidateSignals:
    count = draw(COUNTS)

    def column(values: st.SearchStrategy[float | None]) -> list[float | None]:
        return draw(st.lists(values, min_size=count, max_size=count))

    def always(values: st.SearchStrategy[float]) -> list[float]:
        return draw(st.lists(values, min_size=count, max_size=count))

    beside = [
        [(other, draw(UNIT)) for other in (number - 1, number + 1) if 0 <= other < count and draw(st.booleans())]
        for number in range(count)
    ]

    def asked(values: st.SearchStrategy[float]) -> list[float] | None:
        return always(values) if draw(st.booleans()) else None

    flags = st.sampled_from([0.0, 1.0])
    return CandidateSignals(column(RAW), column(COSINE), beside, asked(flags), asked(UNIT), asked(UNIT), LIMITS)


def sums(some: CandidateSignals, parts: SignalWeights, fusion: Fusion = "scores") -> list[float]:
    return sum_columns(compute_relevance(some, parts, fusion))


def is_about(value: float, other: float) -> bool:
    return math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-9)


@given(signs(), PARTS, st.sampled_from(["scores", "ranks"]))
def test_relevance_is_within_0_and_1(some: CandidateSignals, parts: SignalWeights, fusion: Fusion) -> None:
    columns = compute_relevance(some, parts, fusion)
    assert all(value >= 0 for column in columns.values() for value in column)
    assert all(score <= 1 + 1e-9 for score in sum_columns(columns))


@given(signs(), st.data(), st.floats(0.01, 1))
def test_more_of_a_sign_never_counts_less(some: CandidateSignals, data: st.DataObject, more: float) -> None:
    some = replace(some, neighbours=[[]] * len(some.keyword))  # a better record outshines its own
    known = [
        (name, i)
        for name in ("keyword", "cosine", "author", "date", "closeness")
        for i, value in enumerate(getattr(some, name) or ())
        if value is not None
    ]
    if not known:
        return
    name, number = data.draw(st.sampled_from(known))
    column = list(getattr(some, name))
    limit = {"keyword": math.inf, "cosine": 1.0}.get(name, 1.0)
    column[number] = min(column[number] + more, limit)
    raised = replace(some, **{name: column})
    before, after = sums(some, SignalWeights())[number], sums(raised, SignalWeights())[number]
    assert after >= before - 1e-9


@given(signs(), st.randoms(use_true_random=False))
def test_the_order_of_candidates_changes_nothing(some: CandidateSignals, random: Random) -> None:
    count = len(some.keyword)
    order = list(range(count))
    random.shuffle(order)
    at = {old: new for new, old in enumerate(order)}

    def reordered(column: Sequence[Any] | None) -> Any:
        return None if column is None else [column[i] for i in order]

    shuffled = CandidateSignals(
        reordered(some.keyword),
        reordered(some.cosine),
        [[(at[j], factor) for j, factor in some.neighbours[i]] for i in order],
        reordered(some.author),
        reordered(some.date),
        reordered(some.closeness),
        LIMITS,
    )
    for fusion in ("scores", "ranks"):
        one, other = sums(some, SignalWeights(), fusion), sums(shuffled, SignalWeights(), fusion)
        assert all(is_about(one[old], other[new]) for old, new in at.items())


@given(signs(), st.floats(0.01, 100))
def test_the_unit_of_the_word_scores_does_not_count(some: CandidateSignals, unit: float) -> None:
    scaled = replace(some, keyword=[None if s is None else s * unit for s in some.keyword])
    one, other = sums(some, SignalWeights()), sums(scaled, SignalWeights())
    assert all(is_about(a, b) for a, b in zip(one, other, strict=True))


def signal(
    keyword: Sequence[float | None], cosine: Sequence[float | None], beside: Any, **more: Any
) -> CandidateSignals:
    return replace(CandidateSignals(keyword, cosine, beside, limits=LIMITS), **more)


def alone(**columns: list[float | None]) -> CandidateSignals:
    count = len(next(iter(columns.values())))
    return signal(columns.get("keyword", [None] * count), columns.get("cosine", [None] * count), [[]] * count)


def test_a_leg_that_found_nothing_takes_nothing_away() -> None:
    assert sums(alone(keyword=[4.0, 2.0]), SignalWeights()) == [1.0, 0.5]
    assert sums(alone(cosine=[0.7, 0.3]), SignalWeights()) == pytest.approx([1.0, 0.0])
    assert sums(alone(keyword=[]), SignalWeights()) == []


def test_what_has_no_vector_yet_is_judged_by_its_words() -> None:
    fresh, older = sums(alone(keyword=[4.0, 4.0], cosine=[None, 0.5]), SignalWeights())
    assert fresh == pytest.approx(older)


def test_a_neighbour_lifts_what_stands_beside_it() -> None:
    some = replace(alone(keyword=[4.0, 1.0, 1.0]), neighbours=[[(1, 0.5)], [(0, 1.0)], []])
    _, beside, apart = sums(some, SignalWeights())
    assert beside > apart
    lifts = compute_relevance(some, SignalWeights())["neighbour"]
    assert lifts[1] > lifts[0] > lifts[2] == 0


def test_of_two_neighbours_the_one_that_counts_more_lifts() -> None:
    some = replace(alone(keyword=[4.0, 1.0, 1.0]), neighbours=[[], [(0, 0.5)], [(0, 1.0)]])
    _, before, after = compute_relevance(some, SignalWeights())["neighbour"]
    assert after == pytest.approx(2 * before)


def test_a_record_that_asks_counts_a_little_less() -> None:
    some = replace(alone(keyword=[4.0, 4.0, 2.0]), asking=[True, False, True])
    asks, tells, half = sums(some, SignalWeights())
    assert tells > asks > 0.9 * tells
    assert asks == pytest.approx(2 * half)
    assert sums(some, SignalWeights(neighbour=0)) == [1.0, 1.0, 0.5]


def test_half_of_the_words_count_less_than_half_if_the_meaning_is_known() -> None:
    some = alone(keyword=[4.0, 2.0], cosine=[0.5, 0.5])
    whole, half = compute_relevance(some, SignalWeights())["keyword"]
    assert 0 < half < 0.4 * whole


def test_an_author_and_a_date_lift_and_never_exclude() -> None:
    some = replace(alone(keyword=[4.0, 2.0, 2.0]), author=[0.0, 1.0, 0.0], date=[0.0, 0.0, 1.0])
    first, second, third = sums(some, SignalWeights())
    assert min(second, third) > first > 0


def test_ranks_count_from_one_and_equal_scores_share_theirs() -> None:
    assert scale_by_rank([9.0, None, 7.0, 9.0]) == [1.0, None, 61 / 63, 1.0]
    assert scale_by_best([4.0, None, 1.0]) == [1.0, None, 0.25]
    assert scale_by_range([0.6, None, 0.2, 0.4], LIMITS) == [1.0, None, pytest.approx(0), pytest.approx(0.5)]


def test_small_differences_of_meaning_stay_small() -> None:
    assert scale_by_range([0.5, 0.49], LIMITS) == [1.0, pytest.approx(0.96)]


@given(st.floats(0, 10_000), st.floats(0.01, 1_000), st.integers(0, 1_000))
def test_recency_fades_with_age_and_slower_with_use(age: float, half: float, used: int) -> None:
    assert 0 <= compute_recency(age, half, used) <= 1
    assert compute_recency(age + 1, half, used) <= compute_recency(age, half, used)
    assert compute_recency(age, half, used + 1) >= compute_recency(age, half, used)
    assert compute_recency(age, half, used) <= compute_recency(age, half * MAX_STRETCH)


def test_recency_halves_after_a_half_life() -> None:
    assert compute_recency(0, 7) == 1
    assert compute_recency(-3, 7) == 1
    assert compute_recency(7, 7) == 0.5
    assert compute_recency(14, 7, accesses=5) == 0.5
    assert compute_recency(1_000, None) == 1


NOTHING: list[list[int]] = [[], [], []]


@pytest.mark.parametrize(
    ("cosines", "expected"),
    [
        ([0.6, 0.21, 0.19], [True, True, False]),
        ([0.45, 0.16, 0.14], [True, True, False]),
        ([0.2, 0.11, 0.09], [True, True, False]),
        ([0.09, -0.5, None], [False, False, False]),
        ([1.0, 0.2, None], [True, True, False]),
    ],
    ids=repr,
)
def test_a_meaning_that_is_far_from_the_query_speaks_for_nobody(
    cosines: list[float | None], expected: list[bool]
) -> None:
    assert mark_supported(signal([None] * 3, cosines, NOTHING), SignalWeights()) == expected


def test_a_family_may_ask_for_more_meaning_where_no_word_speaks() -> None:
    some = signal([None, None, 1.0], [0.24, 0.26, 0.1], NOTHING)
    least = replace(some, limits=replace(LIMITS, least=0.25))
    assert mark_supported(least, SignalWeights()) == [False, True, True]
    assert mark_supported(some, SignalWeights()) == [True, True, True]


def test_whatever_is_asked_about_speaks_for_those_who_have_it() -> None:
    far = signal([None] * 3, [0.0] * 3, NOTHING)
    second = [0.0, 1.0, 0.0]
    for asked in ({"author": second}, {"date": second}, {"closeness": second}):
        assert mark_supported(replace(far, **asked), SignalWeights()) == [False, True, False]
    found = signal([None, 0.0, None], [0.0] * 3, NOTHING)
    assert mark_supported(found, SignalWeights()) == [False, True, False]


def test_what_does_not_count_here_speaks_for_nobody() -> None:
    some = signal([3.0, None, None], [None, 0.9, None], [[], [2], [1]], author=[1.0] * 3)
    by_words, by_meaning = (
        SignalWeights(keyword=keyword, meaning=1 - keyword, author=0, date=0, neighbour=0, closeness=0)
        for keyword in (1, 0)
    )
    assert mark_supported(some, by_words) == [True, False, False]
    assert mark_supported(some, by_meaning) == [False, True, False]


def test_a_candidate_speaks_for_those_beside_it_and_for_no_others() -> None:
    some = signal([None] * 4, [0.5, None, 0.0, 0.0], [[(1, 1.0)], [(0, 1.0), (2, 1.0)], [(1, 1.0)], []])
    assert mark_supported(some, SignalWeights()) == [True, True, False, False]


@given(signs(), PARTS)
def test_without_a_meaning_what_nothing_speaks_for_has_no_relevance(
    some: CandidateSignals, parts: SignalWeights
) -> None:
    unmeant = replace(some, cosine=[None] * len(some.cosine))
    kept = mark_supported(unmeant, parts)
    assert len(kept) == len(some.keyword)
    for is_kept, score in zip(kept, sums(unmeant, parts), strict=True):
        assert is_kept or score == 0


def test_the_best_of_what_is_far_counts_for_less_and_the_order_stays() -> None:
    def scored(some: CandidateSignals) -> list[float]:
        return sum_columns(scale_by_confidence(compute_relevance(some, SignalWeights()), some))

    def by_meaning(*cosines: float) -> list[float]:
        return scored(signal([None] * len(cosines), cosines, [()] * len(cosines)))

    assert by_meaning(0.6, 0.3)[0] == 1
    assert by_meaning(0.1, 0.05)[0] == pytest.approx(0.25)
    assert by_meaning(0.1, 0.05)[0] > by_meaning(0.1, 0.05)[1]
    assert scored(signal([1.0], [0.1], [()]))[0] == pytest.approx(0.7)
    assert scored(signal([None], [0.1], [()], closeness=[1.0]))[0] == pytest.approx(1)
