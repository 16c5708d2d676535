"""Statements and their values in the form in which PostgreSQL takes them."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

MAX_REMEMBERED_TEXTS = 2_000
UNKNOWN, INT4, INT8, NUMERIC, FLOAT8, BOOL, UUID_TYPE = 0, 23, 20, 1700, 701, 16, 2950
LAST_INT4, LAST_INT8 = 2**31 - 1, 2**63 - 1

Values = Sequence[Any] | Mapping[str, Any]

_PLACE = re.compile(r"%(?:%|s|\((\w+)\)s)")
_SPECIAL = re.compile(r'(["\\])')


class Statement(NamedTuple):
    """What is sent: two that differ in values only are the same to a server that remembers it."""

    text: bytes
    values: Sequence[bytes | None] = ()
    types: tuple[int, ...] = ()


def build_statement(text: str | bytes, values: Values | None = None) -> Statement:
    """Return the statement with its values beside it. Without values, `%` is just a character.

    Raises DataError for NUL, and UnicodeEncodeError for an unpaired surrogate.
    """
    if isinstance(text, bytes):
        text = text.decode()
    if values is None:
        return Statement(text.encode())
    numbered, names = _number(text)
    given = values if isinstance(values, Sequence) else [values[name] for name in names]
    encoded = [_encode(value) for value in given]
    return Statement(numbered, [each[0] for each in encoded], tuple([each[1] for each in encoded]))


@lru_cache(MAX_REMEMBERED_TEXTS)
def _number(text: str) -> tuple[bytes, tuple[str, ...]]:
    """The text with `$1` for `%s` or `%(name)s`, and the names."""
    names: dict[str, int] = {}

    def place(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        name = found[1] or f"{len(names)}"
        return f"${names.setdefault(name, len(names) + 1)}"

    return _PLACE.sub(place, text).encode(), tuple(names)


def _encode(value: Any) -> tuple[bytes | None, int]:
    """The value as text, and its type; UNKNOWN leaves that to the statement."""
    if (encode := _ENCODERS.get(value.__class__)) is not None:
        return encode(value)
    for kind in (str, bool, int, float, Sequence):  # what is one of these by descent
        if isinstance(value, kind):
            return _ENCODERS[kind](value)
    raise TypeError(f"{type(value).__name__} cannot be a value of a statement")


def _without_nul(text: str) -> bytes:
    encoded = text.encode()
    if b"\0" in encoded:
        raise psycopg.DataError("a text holds NUL (0x00)")
    return encoded


def _type_of(number: int) -> int:
    if -LAST_INT4 <= number <= LAST_INT4:
        return INT4
    return INT8 if -LAST_INT8 <= number <= LAST_INT8 else NUMERIC


def _array(values: Sequence[Any]) -> str:
    return f"{{{','.join(map(_element, values))}}}"


def _element(value: Any) -> str:
    return _ELEMENTS.get(value.__class__, _quote)(value)


def _quote(value: Any) -> str:
    text = str(value)
    return f'"{_SPECIAL.sub(_ESCAPED, text)}"' if _SPECIAL.search(text) else f'"{text}"'


_ESCAPED = r"\\\1"
_ELEMENTS: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: "NULL",
    bool: lambda value: "t" if value else "f",
    int: str,
    float: repr,
    UUID: str,
}
_ENCODERS: dict[type, Callable[[Any], tuple[bytes | None, int]]] = {
    type(None): lambda _: (None, UNKNOWN),
    str: lambda value: (_without_nul(value), UNKNOWN),
    bool: lambda value: (b"t" if value else b"f", BOOL),
    int: lambda value: (b"%d" % value, _type_of(value)),
    float: lambda value: (repr(float(value)).encode(), FLOAT8),
    UUID: lambda value: (str(value).encode(), UUID_TYPE),
    list: lambda value: (_without_nul(_array(value)), UNKNOWN),
    Sequence: lambda value: (_without_nul(_array(value)), UNKNOWN),
}
