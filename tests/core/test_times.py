import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.times import format_ago, format_iso, parse_time, read_clock

# From the year 1000 to the year 9999.
moments = st.integers(-30_000_000_000_000_000, 253_402_300_799_999_999)


@given(moments)
def test_a_time_read_back_is_the_same_to_the_millisecond(at: int) -> None:
    assert parse_time(format_iso(at)) == at - at % 1_000


@given(moments, moments)
def test_times_sort_as_text(one: int, other: int) -> None:
    assert (format_iso(one) < format_iso(other)) == (one // 1_000 < other // 1_000)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1970-01-01T00:00:00.000Z", 0),
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01 00:00:01", 1_000_000),
        ("1970-01-01T01:00:01+01:00", 1_000_000),
        ("1970-01-01T00:00:00.000001", 1),
        ("1970-01-02", 86_400_000_000),
    ],
)
def test_the_forms_that_other_tools_write_are_read(text: str, at: int) -> None:
    assert parse_time(text) == at


def test_a_time_without_a_zone_is_in_utc() -> None:
    assert parse_time("2024-02-29T12:00:00") == parse_time("2024-02-29T12:00:00Z")


def test_time_does_not_go_back() -> None:
    assert 1_700_000_000_000_000 < read_clock() <= read_clock()


@pytest.mark.parametrize(
    ("minutes", "told"),
    [
        (-5, "in 5 minutes"),
        (0, "just now"),
        (1, "1 minute ago"),
        (59, "59 minutes ago"),
        (90, "1 hour ago"),
        (119, "2 hours ago"),
        (-120, "in 2 hours"),
        (1_440 * 3, "3 days ago"),
        (1_440 * 3 - 144, "3 days ago"),
        (1_440 * 5, "5 days ago"),
        (1_440 * 10, "1 week ago"),
        (1_440 * 40, "1 month ago"),
        (1_440 * 60 - 30, "2 months ago"),
        (1_440 * 800, "2 years ago"),
    ],
)
def test_an_age_is_told_in_a_persons_words(minutes: int, told: str) -> None:
    assert format_ago(0, minutes * 60_000_000) == told
