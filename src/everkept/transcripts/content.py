"""The bytes and lines of a transcript, and marks that say how far it was read."""

import hashlib
import os
import stat
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from everkept.core.transcripts import Mark
from everkept.transcripts.source_programs import (
    LONGEST_EXPANDED_LINE,
    LONGEST_LINE,
    MOST_EXPANDED,
    mapping,
)
from everkept.values import Value, field

CHUNK = 64 * 1024  # bytes that are read at once
HEAD = 1024  # bytes at the beginning by which a file is known again
TAIL = 64  # bytes at a place by which the place is known again
COMPRESSED = ".zst"
# What the command `zstd` takes too, unless told otherwise. A file can ask for any amount.
_WIDEST_WINDOW = 2**27


class Content(Protocol):
    """What is in a file. Offsets count the bytes that were written, before compression."""

    damaged: bool  # it broke off, and the rest cannot be read

    def read(self) -> bytes:
        """The next bytes; none at the end, where there may be more later."""
        ...

    def go_to(self, offset: int, tail: int) -> bytes | None:
        """That many bytes before the offset, from where it is read on; None in a shorter file.

        To be called at most once, before anything is read.
        """
        ...

    def head(self) -> bytes:
        """How the file begins; at least what was read of it."""
        ...

    def done(self, offset: int) -> int:
        """How much of the file's size was read to get this far."""
        ...


class Line(NamedTuple):
    """A line without its end. `data` is None where it is too long to be held."""

    data: bytes | None
    start: int
    end: int
    ended: bool
    tail: bytes  # what stands before `end`


@contextmanager
def opened(path: Path) -> Generator[Content, None, None]:
    """For reading alone. Raises OSError."""
    # A pipe would wait for somebody who writes to it.
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(f"{path} is no file")
    with FileIO(path) as file:
        yield _Compressed(file) if path.suffix == COMPRESSED else _Plain(file)


def lines(chunks: Iterable[bytes], offset: int) -> Iterator[Line]:
    """The lines of what is read from the offset on; the last one may not have ended."""
    held = bytearray()
    start, length = offset, 0
    for chunk in chunks:
        *ends, last = chunk.split(b"\n")
        for piece in ends:
            end = start + length + len(piece) + 1
            yield _line(held, piece, start, end)
            held.clear()
            start, length = end, 0
        length += len(last)
        if length <= LONGEST_LINE:
            held += last
        else:
            held = held[-TAIL:] + last[-TAIL:]
    if length:
        data = bytes(held) if length <= LONGEST_LINE else None
        yield Line(data, start, start + length, ended=False, tail=b"")


def chunks(content: Content) -> Iterator[bytes]:
    """All that is left of it."""
    while chunk := content.read():
        yield chunk


def _line(held: bytearray, piece: bytes, start: int, end: int) -> Line:
    tail = (bytes(held[-TAIL:]) + piece[-TAIL:] + b"\n")[-TAIL:]
    if end - start - 1 > LONGEST_LINE:
        return Line(None, start, end, ended=True, tail=tail)
    return Line(bytes(held) + piece if held else piece, start, end, ended=True, tail=tail)


class _Plain:
    def __init__(self, file: FileIO) -> None:
        self.damaged = False
        self._file = file

    def read(self) -> bytes:
        return self._file.read(CHUNK)

    def go_to(self, offset: int, tail: int) -> bytes | None:
        if self._file.seek(0, os.SEEK_END) < offset:
            return None
        self._file.seek(offset - tail)
        return self._file.read(tail)

    def head(self) -> bytes:
        place = self._file.tell()
        self._file.seek(0)
        head = self._file.read(HEAD)
        self._file.seek(place)
        return head

    def done(self, offset: int) -> int:
        return offset


class _Compressed:
    def __init__(self, file: FileIO) -> None:
        import zstandard  # Few transcripts are compressed.

        self.damaged = False
        self._file = file
        self._broken = zstandard.ZstdError
        decompressor = zstandard.ZstdDecompressor(max_window_size=_WIDEST_WINDOW)
        self._stream = decompressor.stream_reader(file, read_size=CHUNK, read_across_frames=True)
        self._head = b""
        self._passed = self._since_line = 0
        self._most = LONGEST_EXPANDED_LINE + MOST_EXPANDED * os.fstat(file.fileno()).st_size

    def read(self) -> bytes:
        return self._read(CHUNK)

    def go_to(self, offset: int, tail: int) -> bytes | None:
        before = b""
        passed = 0
        while passed < offset and (chunk := self._read(min(CHUNK, offset - passed))):
            passed += len(chunk)
            before = (before + chunk)[-TAIL:]
        if passed < offset:  # Nobody shortens a compressed file: it was cut off.
            self.damaged = True
            return None
        return before[len(before) - tail :]

    def head(self) -> bytes:
        return self._head

    def done(self, offset: int) -> int:
        return self._file.tell()

    def _read(self, size: int) -> bytes:
        if self.damaged:
            return b""
        try:
            chunk = self._stream.read(size)
        except self._broken:
            self.damaged = True
            return b""
        self._head += chunk[: HEAD - len(self._head)]
        self._passed += len(chunk)
        end = chunk.rfind(b"\n")
        self._since_line = len(chunk) - end - 1 + (self._since_line if end < 0 else 0)
        # A small file can hold any number of zeros.
        self.damaged = self._since_line > LONGEST_EXPANDED_LINE or self._passed > self._most
        return chunk


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
