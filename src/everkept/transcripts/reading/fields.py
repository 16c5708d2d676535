"""Values out of records that others wrote, whatever their shape."""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from everkept.transcripts.reading.decoding import NoRecord, record_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = (
    (datetime(year, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1) for year in (1, 9999)
)
# Numbers below this are seconds, which is until the year 5138; from there on milliseconds.
_MILLISECONDS_FROM = 10**11


def mapping(value: Any) -> Mapping[str, Any]:
    """The object, or an empty one in place of anything else."""
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


def listed(value: Any) -> list[Any]:
    """The list, or an empty one in place of anything else."""
    return cast(list[Any], value) if isinstance(value, list) else []


def string(value: Any) -> str:
    """The text, or an empty one in place of anything else."""
    return value if isinstance(value, str) else ""


def strings(value: Any) -> tuple[str, ...]:
    """The texts in a list, each once, or the one text that stands in place of it."""
    return unique([value] if isinstance(value, str) else listed(value))


def unique(values: Iterable[Any]) -> tuple[str, ...]:
    """Those that are texts and say something, each once, in their order."""
    return tuple(dict.fromkeys(v for v in values if isinstance(v, str) and v.strip()))


def decoded(raw: Any) -> Mapping[str, Any]:
    """The object that a text or bytes are as JSON; an empty one where they are none."""
    if not isinstance(raw, str | bytes):
        return {}
    try:
        return record_of(raw.encode("utf-8", "replace") if isinstance(raw, str) else raw) or {}
    except NoRecord:
        return {}


def moment(value: Any) -> int | None:
    """Microseconds since 1970 of an ISO time, or of a number of seconds or milliseconds.

    A time without a zone is that of this machine. None where it is no time.
    """
    if isinstance(value, str):
        return _written(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return _counted(value)


def fingerprint(*parts: str) -> str:
    """Short, and the same for the same texts only."""
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def _written(text: str) -> int | None:
    try:
        read = datetime.fromisoformat(text).astimezone(UTC)
        return (read - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError, OSError):
        pass
    try:
        return _counted(float(text))
    except ValueError:
        return None


def _counted(number: float) -> int | None:
    scale = 1_000_000 if abs(number) < _MILLISECONDS_FROM else 1_000
    # A comparison also holds for what is no number and for what no float can hold.
    if not _FIRST / scale <= number <= _LAST / scale:
        return None
    return round(number * scale)
