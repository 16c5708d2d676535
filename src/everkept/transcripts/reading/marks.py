"""Marks: how far a file of lines was read, and whether it is still the same file."""

import hashlib
from collections.abc import Mapping
from typing import Any

from everkept.core.transcripts import Mark
from everkept.transcripts.reading.contents import TAIL, Content
from everkept.transcripts.reading.fields import mapping
from everkept.values import Value, field

_VERSION = 1


class Place(Value):
    """Between two lines, where no turn is open."""

    offset: int
    line: int  # how many lie before it
    tail: bytes  # what stands before it, by which it is known again
    state: Mapping[str, Any] | None  # the format's
    counts: Mapping[str, int]  # what this reading had skipped when it came here
    # What lies behind it and was skipped and reported before: not to be reported again.
    reported: Mapping[str, int] = field(default_factory=dict[str, int])

    def mark(self, head: bytes, reported: Mapping[str, int]) -> dict[str, Any]:
        """From all that the reading has reported so far, and the file's first bytes."""
        behind = {kind: n - self.counts.get(kind, 0) for kind, n in reported.items()}
        return {
            "version": _VERSION,
            "offset": self.offset,
            "line": self.line,
            "head": _hash(head[: self.offset]),
            "tail": _hash(self.tail),
            "tail_size": len(self.tail),
            "state": dict(self.state or {}),
            "reported": {kind: n for kind, n in behind.items() if n > 0},
        }


START = Place(0, 0, b"", None, {})


def place_of(mark: Mark | None, content: Content) -> Place | None:
    """Where to read on, with the content there; None where the mark fits no place of this file."""
    if mark is None or mark.get("version") != _VERSION:
        return None
    offset, line, size = (_number(mark.get(name)) for name in ("offset", "line", "tail_size"))
    if offset is None or line is None or size is None or size > min(offset, TAIL):
        return None
    tail = content.go_to(offset, size)
    if tail is None or _hash(tail) != mark.get("tail"):
        return None
    if _hash(content.head()[:offset]) != mark.get("head"):
        return None
    reported = {
        kind: number
        for kind, count in mapping(mark.get("reported")).items()
        if (number := _number(count)) is not None
    }
    state = dict(mapping(mark.get("state"))) if offset else None
    return Place(offset, line, tail, state, {}, reported)


def _number(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
