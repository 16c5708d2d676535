from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.retrieval.dates import OTHER_YEAR_STRENGTH, compute_fit, find_date_phrases, find_spans, remove_dates

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = datetime(2024, 5, 15, 12, tzinfo=UTC)  # a Wednesday


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def days(text: str, now: datetime = NOW) -> list[tuple[str, str]]:
    """The first and last day of each span that counts in full."""
    found = [span for span in find_spans(text, micros(now)) if span.strength == 1]
    return sorted(
        (
            (EPOCH + timedelta(microseconds=span.start)).date().isoformat(),
            (EPOCH + timedelta(microseconds=span.end - 1)).date().isoformat(),
        )
        for span in found
    )


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("what happened today?", "2024-05-15", "2024-05-15"),
        ("what did I do yesterday", "2024-05-14", "2024-05-14"),
        ("the day before yesterday", "2024-05-13", "2024-05-13"),
        ("this morning", "2024-05-15", "2024-05-15"),
        ("last night", "2024-05-14", "2024-05-14"),
        ("tomorrow", "2024-05-16", "2024-05-16"),
        ("an hour ago", "2024-05-14", "2024-05-15"),
        ("3 days ago", "2024-05-12", "2024-05-12"),
        ("three days ago", "2024-05-12", "2024-05-12"),
        ("a day ago", "2024-05-14", "2024-05-14"),
        ("a few days ago", "2024-05-09", "2024-05-13"),
        ("a couple of days ago", "2024-05-12", "2024-05-13"),
        ("2 weeks ago", "2024-04-28", "2024-05-04"),
        ("one month ago", "2024-03-31", "2024-04-30"),
        ("a year ago", "2022-11-13", "2023-11-14"),
        ("the last three days", "2024-05-12", "2024-05-15"),
        ("in the past week", "2024-05-08", "2024-05-15"),
        ("last week", "2024-05-06", "2024-05-12"),
        ("this week", "2024-05-13", "2024-05-19"),
        ("next week", "2024-05-20", "2024-05-26"),
        ("last weekend", "2024-05-11", "2024-05-12"),
        ("last month", "2024-04-01", "2024-04-30"),
        ("this month", "2024-05-01", "2024-05-31"),
        ("last year", "2023-01-01", "2023-12-31"),
        ("this year", "2024-01-01", "2024-12-31"),
        ("on Monday", "2024-05-13", "2024-05-13"),
        ("last Monday", "2024-05-13", "2024-05-13"),
        ("last wednesday", "2024-05-08", "2024-05-08"),
        ("Wednesday", "2024-05-15", "2024-05-15"),
        ("next Friday", "2024-05-17", "2024-05-17"),
        ("in March", "2024-03-01", "2024-03-31"),
        ("in march", "2024-03-01", "2024-03-31"),
        ("in June", "2023-06-01", "2023-06-30"),
        ("last May", "2023-05-01", "2023-05-31"),
        ("this May", "2024-05-01", "2024-05-31"),
        ("in late Sept", "2023-09-01", "2023-09-30"),
        ("the trip of December", "2023-12-01", "2023-12-31"),
        ("in May 2023", "2023-05-01", "2023-05-31"),
        ("May of 2023", "2023-05-01", "2023-05-31"),
        ("on 8 May 2023", "2023-05-08", "2023-05-08"),
        ("on the 8th of May, 2023", "2023-05-08", "2023-05-08"),
        ("May 8th, 2023", "2023-05-08", "2023-05-08"),
        ("on May 8", "2024-05-08", "2024-05-08"),
        ("on 20 May", "2023-05-20", "2023-05-20"),
        ("on 29 February", "2024-02-29", "2024-02-29"),
        ("2023-05-08", "2023-05-08", "2023-05-08"),
        ("2023-05-08T10:00:00Z", "2023-05-08", "2023-05-08"),
        ("25/12/2023", "2023-12-25", "2023-12-25"),
        ("what did we ship in 2023?", "2023-01-01", "2023-12-31"),
        ("since 2023.", "2023-01-01", "2023-12-31"),
    ],
)
def test_dates_in_words_are_spans_of_days(text: str, first: str, last: str) -> None:
    assert days(text) == [(first, last)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "what may I do?",
        "May I ask something?",
        "March on!",
        "version 1.2023",
        "port-2023",
        "2023-13-40",
        "on 31 February 2023",
        "who works on tuesdays",
        "a month in the country",
        "the second line",
        "src/2023/main.py",
    ],
)
def test_other_words_are_no_dates(text: str) -> None:
    assert find_spans(text, micros(NOW)) == ()


def test_a_month_without_its_year_is_that_of_any_year_and_best_of_the_last_one() -> None:
    asked = find_spans("what happened in March?", micros(NOW))
    assert compute_fit(micros(datetime(2024, 3, 31, 23, tzinfo=UTC)), asked) == 1
    assert compute_fit(micros(datetime(2021, 3, 1, tzinfo=UTC)), asked) == OTHER_YEAR_STRENGTH
    assert compute_fit(micros(datetime(2024, 4, 1, tzinfo=UTC)), asked) == 0


def test_slashes_are_read_in_both_orders() -> None:
    assert days("8/5/2023") == [("2023-05-08", "2023-05-08"), ("2023-08-05", "2023-08-05")]


def test_several_dates_all_count() -> None:
    assert days("between 8 May 2023 and yesterday") == [("2023-05-08", "2023-05-08"), ("2024-05-14", "2024-05-14")]


def test_a_day_begins_at_midnight_of_whoever_asks() -> None:
    tokyo = timezone(timedelta(hours=9))
    late = datetime(2024, 5, 15, 20, tzinfo=UTC)  # the 16th in Tokyo
    (asked,) = find_spans("today", micros(late), tokyo)
    assert asked.start == micros(datetime(2024, 5, 16, tzinfo=tokyo))
    assert asked.end == micros(datetime(2024, 5, 17, tzinfo=tokyo))


class SummerFromLastOfMarch(tzinfo):
    """Central Europe in the spring of 2024, without a database of time zones."""

    def utcoffset(self, dt: datetime | None) -> timedelta:
        is_summer = dt is not None and dt.replace(tzinfo=None) >= datetime(2024, 3, 31, 2)
        return timedelta(hours=2 if is_summer else 1)

    def dst(self, dt: datetime | None) -> timedelta:
        return self.utcoffset(dt) - timedelta(hours=1)

    def tzname(self, dt: datetime | None) -> str:
        return "summer" if self.dst(dt) else "winter"


def test_a_day_on_which_the_clocks_change_has_its_own_length() -> None:
    (asked,) = find_spans("on 31 March 2024", micros(NOW), SummerFromLastOfMarch())
    assert asked.end - asked.start == 23 * 3600 * 1_000_000


def test_dates_leave_a_text_without_a_trace() -> None:
    assert remove_dates("What did Ann plan last week, on 8 May 2023?") == "What did Ann plan , on ?"
    assert remove_dates("what may I do?") == "what may I do?"


def test_what_is_said_about_times_is_given_in_its_own_words() -> None:
    asked = "On 8 May 2023, two weeks ago or in March, what may I do by Friday?"
    assert find_date_phrases(asked) == ("8 May 2023", "two weeks ago", "in March", "Friday")
    assert find_date_phrases("what may I do?") == ()


@given(st.text(), st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))
def test_no_text_is_an_error(text: str, now: datetime) -> None:
    for span in find_spans(text, micros(now)):
        assert span.start < span.end
    remove_dates(text)
    assert all(words in text for words in find_date_phrases(text))


@given(
    st.sampled_from(["{} days ago", "the last {} weeks", "{} months ago", "{} years ago"]),
    st.integers(0, 999),
    st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
)
def test_the_past_is_before_now(form: str, count: int, now: datetime) -> None:
    tomorrow = micros(now) + 86_400_000_000
    assert all(span.start < tomorrow for span in find_spans(form.format(count), micros(now)))
