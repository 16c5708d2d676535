import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from everkept.cli.options import parse_typed_time
from everkept.errors import InvalidInput

MINUTE = 60_000_000


def micros(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A zone with summer time, an hour or two ahead of UTC, where a process may choose one."""
    set_zone = getattr(time, "tzset", lambda: None)
    monkeypatch.setenv("TZ", "Europe/Berlin")
    set_zone()
    yield
    monkeypatch.undo()
    set_zone()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("2026-11-15T08:05:29Z", micros(2026, 11, 15, 8, 5, 29)), ("2026-11-15 08:05+02:00", micros(2026, 11, 15, 6, 5))],
)
def test_the_time_of_day_counts(typed: str, meant: int) -> None:
    assert parse_typed_time(typed, "since") == meant
    assert parse_typed_time(typed, "until", end=True) == meant


def test_without_a_zone_the_machines_own_counts_with_its_summer_time() -> None:
    for typed, local in (
        ("2026-07-01T12:00", datetime(2026, 7, 1, 12)),
        ("2026-01-01T12:00", datetime(2026, 1, 1, 12)),
        ("2026-07-01", datetime(2026, 7, 1)),
    ):
        assert parse_typed_time(typed, "since") == int(local.astimezone().timestamp()) * 1_000_000
    midnight = int(datetime(2026, 1, 16).astimezone().timestamp()) * 1_000_000
    assert parse_typed_time("2026-01-15", "until", end=True) == midnight - 1


def test_hours_and_minutes_ago_are_exact() -> None:
    now = int(datetime.now(UTC).timestamp() * 1_000_000)
    for typed, passed in (("2 hours ago", 120), ("an hour ago", 60), ("30 minutes ago", 30)):
        at = parse_typed_time(typed, "since")
        assert at is not None
        assert abs(now - passed * MINUTE - at) < MINUTE


def test_days_are_those_of_the_calendar() -> None:
    before, at, after = datetime.now(), parse_typed_time("yesterday", "since"), datetime.now()
    assert at is not None
    begun = datetime.fromtimestamp(at / 1_000_000).astimezone()
    assert begun.date() + timedelta(days=1) in (before.date(), after.date())
    assert (begun.hour, begun.minute) == (0, 0)


@pytest.mark.parametrize("typed", ["whenever", "2026-13-01T00:00", "", "T12:00"])
def test_what_is_no_time_is_refused(typed: str) -> None:
    with pytest.raises(InvalidInput):
        parse_typed_time(typed, "since")
