from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.families.history.unified.period import period

NOW = int(datetime(2026, 3, 18, 12, tzinfo=UTC).timestamp()) * 1_000_000  # a Wednesday


@pytest.mark.parametrize(
    ("question", "days"),
    [
        ("what did we decide yesterday", "on 2026-03-17"),
        ("what did we decide last week about caching", "from 2026-03-09 to 2026-03-15"),
        ("we talked on 2026-03-02", "on 2026-03-02"),
        ("what was said in February", "from 2026-02-01 to 2026-02-28"),
        ("conversations from last month", "from 2026-02-01 to 2026-02-28"),
        ("what did we talk about yesterday", "on 2026-03-17"),
        ("everything since last week", "since 2026-03-09"),
        ("after 2026-03-02", "since 2026-03-03"),
        ("what did we use before February", "until 2026-01-31"),
        ("until yesterday", "until 2026-03-17"),
        ("decisions by 2026-03-02", "until 2026-03-02"),
    ],
)
def test_a_time_narrows_as_its_words_say(question: str, days: str) -> None:
    meant = period(question, NOW, UTC)
    assert meant is not None
    assert meant.days(UTC) == days
    assert meant.said in question


@pytest.mark.parametrize(
    "question",
    [
        "what did we decide",
        "around last week",
        "it was about last week",
        "between 2026-03-02 and 2026-03-09",
        "yesterday or last week",
        "on 31 February 2026",
        "in early March",
    ],
)
def test_no_time_several_or_one_that_is_only_near_narrow_nothing(question: str) -> None:
    assert period(question, NOW, UTC) is None


def test_days_begin_where_the_one_who_asks_is() -> None:
    west = timezone(timedelta(hours=-8))
    meant = period("yesterday", NOW, west)
    assert meant is not None
    assert meant.days(west) == "on 2026-03-17"
    assert meant.after == int(datetime(2026, 3, 17, 8, tzinfo=UTC).timestamp()) * 1_000_000


@given(st.text())
def test_no_question_is_an_error(question: str) -> None:
    meant = period(question, NOW, UTC)
    assert meant is None or meant.days(UTC)
