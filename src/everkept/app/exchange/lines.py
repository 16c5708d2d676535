"""A record or a link as one line of JSON, and back."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from everkept.core.records import Link, Record
from everkept.core.times import parsed
from everkept.values import Field, fields

Thing = Record | Link

_START = datetime(1970, 1, 1)
_MOMENTS = frozenset({"created_at", "updated_at", "occurred_at", "deleted_at"})
_NOT_WRITTEN = frozenset({"version"})  # how often it was changed here, and nothing of it
_RECORD = tuple(field for field in fields(Record) if field.name not in _NOT_WRITTEN)
_LINK = fields(Link)
_LONGEST = 4_000_000  # characters of a line


def line_of(thing: Thing) -> str:
    """The fields in one order, those that are empty left out."""
    shown: dict[str, Any] = {}
    for field in _RECORD if isinstance(thing, Record) else _LINK:
        value: Any = getattr(thing, field.name)
        if value is None or value in ("", (), {}):
            continue
        shown[field.name] = _moment(value) if field.name in _MOMENTS else value
    return json.dumps(shown, ensure_ascii=False)


def record_of(line: str) -> Record:
    """Raises ValueError, with what is wrong."""
    return Record(**_given(line, _RECORD))


def link_of(line: str) -> Link:
    """Raises ValueError, with what is wrong."""
    return Link(**_given(line, _LINK))


def _given(line: str, known: Sequence[Field]) -> dict[str, Any]:
    values = _values(line, {field.name for field in known})
    return {
        field.name: _checked(field.name, values.get(field.name), field.is_required)
        for field in known
        if field.name in values or field.is_required
    }


def _values(line: str, known: set[str]) -> Mapping[str, Any]:
    if len(line) > _LONGEST:
        raise ValueError(f"it is longer than {_LONGEST:,} characters")
    if not _is_whole(line):
        raise ValueError("it is not UTF-8")
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - one kind of error for a bad line
    values = cast(dict[str, Any], found)
    if unknown := sorted(values.keys() - known):
        raise ValueError(f'it has a field "{unknown[0]}", which this program does not know')
    return values


def _checked(name: str, value: Any, is_needed: bool) -> Any:
    if value is None and not is_needed:
        raise ValueError(f"`{name}` is null; leave it out instead")
    try:
        checked = _CHECKS.get(name, _text)(value)
    except (ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"`{name}` is {value!r:.60}; {error}") from error
    return checked


def _moment(at: int) -> str:
    return (_START + timedelta(microseconds=at)).isoformat(timespec="microseconds") + "Z"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("it must be a text")  # noqa: TRY004
    if not _is_whole(value):
        raise ValueError("it has half of a character")
    return value


def _is_whole(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _name(value: Any) -> str:
    if not _text(value):
        raise ValueError("it must not be empty")
    return value


def _time(value: Any) -> int:
    return parsed(_text(value))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError("it must be a number from 0 to 1")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        raise ValueError("it must be a whole number")
    return value


def _labels(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("it must be a list of texts")  # noqa: TRY004
    return tuple(_name(each) for each in cast(list[Any], value))


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("it must be an object")  # noqa: TRY004
    found = cast(dict[str, Any], value)
    _text(json.dumps(found, ensure_ascii=False))
    return found


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_MOMENTS, _time),
    **dict.fromkeys(("id", "kind", "source", "verb", "target"), _name),
    "importance": _number,
    "position": _count,
    "tags": _labels,
    "facets": _object,
}
