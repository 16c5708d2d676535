"""Times are integer microseconds since 1970 in UTC; people and JSON see ISO 8601."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], int]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now() -> int:
    return time.time_ns() // 1000


def iso(at: int) -> str:
    """Milliseconds are shown, as the database's views do."""
    moment = _EPOCH + timedelta(microseconds=at)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def parsed(text: str) -> int:
    """The inverse of `iso`; also takes the forms that SQLite and other tools write."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)
