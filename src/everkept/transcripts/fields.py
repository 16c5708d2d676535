"""Values from records that other programs wrote: decoded lines, and fields of any shape."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

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


BROKEN = "broken line"
WRONG_SHAPE = "wrong shape"
TOO_LONG = "line too long"

_BLANK = b" \t\r\n\0"  # zeros are what a crash leaves where nothing was written yet
_BOM = b"\xef\xbb\xbf"
# An object for every three bytes would take a hundred times the line's size.
_LONG = 256 * 1024
_MOST_PARTS = 500_000
# Half characters, and control characters: escapes that may mean them.
_UNCLEAN = re.compile(rb"\\u00[01]|\\u[dD][89a-fA-F]|\\[bf]|\x7f")
_COLOURS = re.compile("\x1b\\[[0-?]{0,40}[ -/]?[@-~]")  # of terminals
_CONTROL = {code: None for code in (*range(32), 127) if chr(code) not in "\t\n\r"}


class NoRecord(Exception):
    """A line that holds no record; `reason` is what it is counted as."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def record_of(line: bytes | None) -> Mapping[str, Any] | None:
    """The object; None for a blank line. Texts in it can be stored anywhere.

    A line that is None was too long to be held. Raises NoRecord.
    """
    if line is None:
        raise NoRecord(TOO_LONG)
    data = line.strip(_BLANK).removeprefix(_BOM)
    if not data:
        return None
    if len(data) > _LONG and data.count(b",") + data.count(b"{") + data.count(b"[") > _MOST_PARTS:
        raise NoRecord(TOO_LONG)
    try:
        value = json.loads(data.decode("utf-8", errors="replace"))
        if _UNCLEAN.search(data):
            value = _cleaned(value)
    except (ValueError, RecursionError):
        raise NoRecord(BROKEN) from None
    if not isinstance(value, dict):
        raise NoRecord(WRONG_SHAPE)
    return cast(Mapping[str, Any], value)


def value_in(text: str) -> Any:
    """What a text inside a record means, where it is JSON itself; else None."""
    try:
        return _cleaned(json.loads(text))
    except (ValueError, RecursionError):
        return None


def storable(raw: bytes) -> str:
    """The text of a file, without what no text should hold."""
    return _visible(raw.decode("utf-8-sig", "replace"))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return _visible(value).encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_cleaned(part) for part in cast(list[Any], value)]
    if isinstance(value, dict):
        parts = cast(dict[str, Any], value)
        return {_cleaned(name): _cleaned(part) for name, part in parts.items()}
    return value


def _visible(text: str) -> str:
    return (_COLOURS.sub("", text) if "\x1b" in text else text).translate(_CONTROL)
