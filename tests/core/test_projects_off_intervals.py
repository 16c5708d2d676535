from hypothesis import given
from hypothesis import strategies as st

from everkept.core.projects import OffHistory, OffPeriod

spans = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), max_size=5, unique_by=lambda span: span[0])
moves = st.lists(st.tuples(st.booleans(), st.integers(0, 1_000)))


@given(moves)
def test_spans_follow_each_other_and_only_the_last_may_last(made: list[tuple[bool, int]]) -> None:
    switching = OffHistory()
    for off, at in made:
        switching = switching.with_switch(off=off, at=at)
        assert (switching.off_since is not None) == off
    assert all(until is not None and until >= since for since, until in switching.spans[:-1])
    assert all(until is None or until >= since for since, until in switching.spans)


def test_what_it_is_already_stays_the_same_thing() -> None:
    off = OffHistory().with_switch(off=True, at=5)
    assert off.with_switch(off=True, at=9) is off
    assert OffHistory().with_switch(off=False, at=9) == OffHistory()


def test_a_clock_that_was_put_back_makes_no_span_that_ends_before_it_begins() -> None:
    assert OffHistory(((9, None),)).with_switch(off=False, at=5).spans == ((9, 9),)


def test_silences_hold_for_each_folder() -> None:
    switching = OffHistory(((1, 2), (5, None)))
    assert switching.list_periods(["/a", "/b"]) == [
        OffPeriod("/a", 1, 2),
        OffPeriod("/a", 5, None),
        OffPeriod("/b", 1, 2),
        OffPeriod("/b", 5, None),
    ]


def test_a_deleted_project_was_off_until_it_was_deleted() -> None:
    switching = OffHistory(((1, 2), (5, None))).with_deletion(["/a"], at=7)
    assert switching.off_since == 5
    assert switching.list_last_periods() == [OffPeriod("/a", 1, 2), OffPeriod("/a", 5, 7)]


@given(spans, spans, st.none() | st.integers(100, 140))
def test_together_they_are_off_whenever_one_of_them_is(
    mine: list[tuple[int, int]], others: list[tuple[int, int]], lasting: int | None
) -> None:
    one = OffHistory(tuple((2 * since, 2 * since + took) for since, took in mine))
    if lasting is not None:
        one = OffHistory((*one.spans, (lasting, None)))
    other = OffHistory(tuple((2 * since + 1, 2 * since + took) for since, took in others))
    both = one.merge(other)
    begins = [since for since, _ in both.spans]
    assert begins == sorted(begins)
    assert all(until is not None for _, until in both.spans[:-1])
    for at in range(150):
        assert _is_off(both, at) == (_is_off(one, at) or _is_off(other, at))


def _is_off(switching: OffHistory, at: int) -> bool:
    return any(since <= at and (until is None or at < until) for since, until in switching.spans)


def test_what_was_switched_on_since_is_on_whatever_another_has_known() -> None:
    before, after = OffHistory(((5, None),)), OffHistory(((5, 9),))
    assert after.merge(before).spans == ((5, 9),)
    assert before.merge(OffHistory(((1, 2), (7, 8)))).spans == ((1, 2), (5, None))
