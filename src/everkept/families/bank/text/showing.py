"""Bytes of a file as text for people: what is no UTF-8 is marked, and lines can be picked."""

import re
from itertools import islice

from everkept.errors import InvalidInput, visible
from everkept.families.bank.text.encodings import as_utf8
from everkept.values import Value

_LINE_END = re.compile(rb"\r\n|\r|\n")


class Lines(Value):
    """Some lines of a file, the first and the last of them by number, and how many it has."""

    data: bytes
    first: int
    last: int
    total: int


def shown(data: bytes) -> str:
    """What cannot be decoded becomes U+FFFD; all else stays, the mark of UTF-8 included."""
    return as_utf8(data).decode("utf-8", "replace")


def picked(name: str, data: bytes, start: int | None, end: int | None) -> Lines:
    """From the line `start` to the line `end`, both included; an end beyond the last is fine.

    Line feeds and carriage returns end a line, as everywhere.
    """
    ends = data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
    total = ends + (not data.endswith((b"\n", b"\r")) and bool(data))
    first, last = start or 1, total if end is None else min(end, total)
    if end is not None and end < first:
        raise InvalidInput(
            f"`endLine` is {end}, which is before `startLine`, {first}.", argument="endLine"
        )
    if first > max(total, 1):
        raise InvalidInput(
            f"`startLine` is {first}; {visible(name)} has {total} lines.",
            argument="startLine",
            lines=total,
        )
    begin = _after_lines(data, 0, first - 1)
    return Lines(data[begin : _after_lines(data, begin, last - first + 1)], first, last, total)


def _after_lines(data: bytes, at: int, count: int) -> int:
    """Where the line begins that comes so many lines after the one that begins at `at`."""
    if not count:
        return at
    found = next(islice(_LINE_END.finditer(data, at), count - 1, None), None)
    return len(data) if found is None else found.end()
