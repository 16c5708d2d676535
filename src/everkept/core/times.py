"""Times are integer microseconds since 1970 in UTC. People and JSON see ISO 8601."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

Clock = Callable[[], int]

WHOLE_UNIT_SHARE = 0.99  # of a unit, from which it counts as a whole one
ROUND_UP_SHARE = 0.3  # missing share of a unit that is still rounded up

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_START = datetime(1970, 1, 1)
MIN_TIME = (datetime.min - _START) // timedelta(microseconds=1)
MAX_TIME = (datetime.max - _START) // timedelta(microseconds=1)
# In minutes; months and years as people use the words.
_UNITS = (("year", 525_600), ("month", 43_200), ("week", 10_080), ("day", 1_440), ("hour", 60), ("minute", 1))


class LocalZone(tzinfo):
    """Time zone of this machine, with its daylight saving time."""

    def utcoffset(self, dt: datetime | None) -> timedelta:
        naive = datetime.now() if dt is None else dt.replace(tzinfo=None)
        return naive.astimezone().utcoffset() or timedelta()

    def dst(self, dt: datetime | None) -> timedelta:
        return timedelta()

    def tzname(self, dt: datetime | None) -> str:
        return "local"

    def fromutc(self, dt: datetime) -> datetime:
        local = dt.replace(tzinfo=UTC).astimezone().replace(tzinfo=None)
        return local.replace(tzinfo=self)


def read_clock() -> int:
    return time.time_ns() // 1000


def to_datetime(at: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


def to_microseconds(moment: datetime) -> int:
    """Reverse `to_datetime`, for a time with a zone."""
    return (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)


@lru_cache(1024)  # data written together has one time
def format_iso(at: int) -> str:
    """Return a time in ISO 8601 with milliseconds, as the database's views do."""
    moment = _START + timedelta(microseconds=at)
    return moment.isoformat(timespec="milliseconds") + "Z"


def parse_time(text: str) -> int:
    """Reverse `format_iso`. Also accepts the forms that SQLite and other tools write."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def format_local(at: int, unit: str = "minutes") -> str:
    """Return a time for people, in the time zone of this machine."""
    return datetime.fromtimestamp(at / 1e6).isoformat(" ", unit)


def format_minute(at: int) -> str:
    """Return a time in UTC, to the minute: `2026-03-01 12:30`."""
    return format_iso(at)[:16].replace("T", " ")


def format_ago(at: int, now: int) -> str:
    """Return how long ago something was, in words: `3 days ago`, or `in 2 hours`."""
    minutes = abs(now - at) / 60_000_000
    for unit, size in _UNITS:
        if minutes >= size * (1 if size == 1 else WHOLE_UNIT_SHARE):
            count = max(int(minutes / size + ROUND_UP_SHARE), 1)
            amount = f"{count} {unit}{'s' if count > 1 else ''}"
            return f"{amount} ago" if at <= now else f"in {amount}"
    return "just now"
