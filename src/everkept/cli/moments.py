"""Times as people type them: a date, a time, or words such as `yesterday` and `2 hours ago`."""

import re
from datetime import UTC, datetime, timedelta

from everkept.core.times import LocalZone, iso, now
from everkept.errors import InvalidInput
from everkept.retrieval.dates import spans

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CLOCK = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
_AGO = re.compile(r"\s*(\d{1,4}|an?|one)\s+(minute|hour)s?\s+ago\s*", re.IGNORECASE)


def moment(text: str | None, option: str, *, end: bool = False) -> int | None:
    """The beginning of what is meant, or its end; None where nothing was typed.

    Words, and times without a zone, mean the clock and the calendar of this machine.
    """
    if text is None:
        return None
    if ago := _AGO.fullmatch(text):
        count = int(ago[1]) if ago[1].isdecimal() else 1
        passed = timedelta(**{f"{ago[2].lower()}s": count})
        return now() - passed // timedelta(microseconds=1)
    if _CLOCK.match(text.strip()):
        return _time_of_day(text.strip(), option)
    found = spans(text, now(), LocalZone())
    if not found:
        raise _no_time(text, option)
    best = max(found, key=lambda span: (span.strength, span.start))
    return best.end - 1 if end else best.start


def moment_text(text: str | None, option: str, *, end: bool = False) -> str | None:
    """The same as the tools take it."""
    at = moment(text, option, end=end)
    return None if at is None else iso(at)


def _time_of_day(text: str, option: str) -> int:
    try:
        typed = datetime.fromisoformat(text)
    except ValueError:
        raise _no_time(text, option) from None
    return (typed.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)


def _no_time(text: str, option: str) -> InvalidInput:
    return InvalidInput(
        f'"{text}" is no time.',
        hint="Write 2026-03-01, 2026-03-01T14:30, yesterday, last week, 3 days ago …",
        argument=option,
        value=text,
    )
