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
    MAX_EXPANDED_LINE_BYTES,
    MAX_EXPANSION_FACTOR,
    MAX_LINE_BYTES,
    as_mapping,
)
from everkept.values import Value, field

CHUNK_BYTES = 64 * 1024  # bytes that are read at once
HEAD_BYTES = 1024  # bytes at the beginning by which a file is known again
TAIL_BYTES = 64  # bytes at a place by which the place is known again
COMPRESSED_SUFFIX = ".zst"
# What the command `zstd` takes too, unless told otherwise. A file can ask for any amount.
_MAX_WINDOW_BYTES = 2**27


class TranscriptContent(Protocol):
    """What is in a file. Offsets count the bytes that were written, before compression."""

    damaged: bool  # it broke off, and the rest cannot be read

    def read(self) -> bytes:
        """The next bytes; none at the end, where there may be more later."""
        ...

    def seek(self, offset: int, tail: int) -> bytes | None:
        """That many bytes before the offset, from where it is read on; None in a shorter file.

        To be called at most once, before anything is read.
        """
        ...

    def read_head(self) -> bytes:
        """How the file begins; at least what was read of it."""
        ...

    def count_read(self, offset: int) -> int:
        """How much of the file's size was read to get this far."""
        ...


class TranscriptLine(NamedTuple):
    """A line without its end. `data` is None where it is too long to be held."""

    data: bytes | None
    start: int
    end: int
    ended: bool
    tail: bytes  # what stands before `end`


@contextmanager
def open_content(path: Path) -> Generator[TranscriptContent, None, None]:
    """For reading alone. Raises OSError."""
    # A pipe would wait for somebody who writes to it.
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(f"{path} is no file")
    with FileIO(path) as file:
        yield _CompressedContent(file) if path.suffix == COMPRESSED_SUFFIX else _PlainContent(file)


def split_lines(chunks: Iterable[bytes], offset: int) -> Iterator[TranscriptLine]:
    """The lines of what is read from the offset on; the last one may not have ended."""
    held = bytearray()
    start, length = offset, 0
    for chunk in chunks:
        *ends, last = chunk.split(b"\n")
        for piece in ends:
            end = start + length + len(piece) + 1
            yield _build_line(held, piece, start, end)
            held.clear()
            start, length = end, 0
        length += len(last)
        if length <= MAX_LINE_BYTES:
            held += last
        else:
            held = held[-TAIL_BYTES:] + last[-TAIL_BYTES:]
    if length:
        data = bytes(held) if length <= MAX_LINE_BYTES else None
        yield TranscriptLine(data, start, start + length, ended=False, tail=b"")


def read_chunks(content: TranscriptContent) -> Iterator[bytes]:
    """All that is left of it."""
    while chunk := content.read():
        yield chunk


def _build_line(held: bytearray, piece: bytes, start: int, end: int) -> TranscriptLine:
    tail = (bytes(held[-TAIL_BYTES:]) + piece[-TAIL_BYTES:] + b"\n")[-TAIL_BYTES:]
    if end - start - 1 > MAX_LINE_BYTES:
        return TranscriptLine(None, start, end, ended=True, tail=tail)
    return TranscriptLine(bytes(held) + piece if held else piece, start, end, ended=True, tail=tail)


class _PlainContent:
    def __init__(self, file: FileIO) -> None:
        self.damaged = False
        self._file = file

    def read(self) -> bytes:
        return self._file.read(CHUNK_BYTES)

    def seek(self, offset: int, tail: int) -> bytes | None:
        if self._file.seek(0, os.SEEK_END) < offset:
            return None
        self._file.seek(offset - tail)
        return self._file.read(tail)

    def read_head(self) -> bytes:
        place = self._file.tell()
        self._file.seek(0)
        head = self._file.read(HEAD_BYTES)
        self._file.seek(place)
        return head

    def count_read(self, offset: int) -> int:
        return offset


class _CompressedContent:
    def __init__(self, file: FileIO) -> None:
        import zstandard  # Few transcripts are compressed.

        self.damaged = False
        self._file = file
        self._broken = zstandard.ZstdError
        decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
        self._stream = decompressor.stream_reader(file, read_size=CHUNK_BYTES, read_across_frames=True)
        self._head = b""
        self._passed = self._since_line = 0
        self._most = MAX_EXPANDED_LINE_BYTES + MAX_EXPANSION_FACTOR * os.fstat(file.fileno()).st_size

    def read(self) -> bytes:
        return self._read(CHUNK_BYTES)

    def seek(self, offset: int, tail: int) -> bytes | None:
        before = b""
        passed = 0
        while passed < offset and (chunk := self._read(min(CHUNK_BYTES, offset - passed))):
            passed += len(chunk)
            before = (before + chunk)[-TAIL_BYTES:]
        if passed < offset:  # Nobody shortens a compressed file: it was cut off.
            self.damaged = True
            return None
        return before[len(before) - tail :]

    def read_head(self) -> bytes:
        return self._head

    def count_read(self, offset: int) -> int:
        return self._file.tell()

    def _read(self, size: int) -> bytes:
        if self.damaged:
            return b""
        try:
            chunk = self._stream.read(size)
        except self._broken:
            self.damaged = True
            return b""
        self._head += chunk[: HEAD_BYTES - len(self._head)]
        self._passed += len(chunk)
        end = chunk.rfind(b"\n")
        self._since_line = len(chunk) - end - 1 + (self._since_line if end < 0 else 0)
        # A small file can hold any number of zeros.
        self.damaged = self._since_line > MAX_EXPANDED_LINE_BYTES or self._passed > self._most
        return chunk


_MARK_VERSION = 1


class ReadPosition(Value):
    """Between two lines, where no turn is open."""

    offset: int
    line: int  # how many lie before it
    tail: bytes  # what stands before it, by which it is known again
    state: Mapping[str, Any] | None  # the format's
    counts: Mapping[str, int]  # what this reading had skipped when it came here
    # What lies behind it and was skipped and reported before: not to be reported again.
    reported: Mapping[str, int] = field(default_factory=dict[str, int])

    def to_mark(self, head: bytes, reported: Mapping[str, int]) -> dict[str, Any]:
        """From all that the reading has reported so far, and the file's first bytes."""
        behind = {kind: n - self.counts.get(kind, 0) for kind, n in reported.items()}
        return {
            "version": _MARK_VERSION,
            "offset": self.offset,
            "line": self.line,
            "head": _compute_hash(head[: self.offset]),
            "tail": _compute_hash(self.tail),
            "tail_size": len(self.tail),
            "state": dict(self.state or {}),
            "reported": {kind: n for kind, n in behind.items() if n > 0},
        }


START_POSITION = ReadPosition(0, 0, b"", None, {})


def find_position(mark: Mark | None, content: TranscriptContent) -> ReadPosition | None:
    """Where to read on, with the content there; None where the mark fits no place of this file."""
    if mark is None or mark.get("version") != _MARK_VERSION:
        return None
    offset, line, size = (_parse_count(mark.get(name)) for name in ("offset", "line", "tail_size"))
    if offset is None or line is None or size is None or size > min(offset, TAIL_BYTES):
        return None
    tail = content.seek(offset, size)
    if tail is None or _compute_hash(tail) != mark.get("tail"):
        return None
    if _compute_hash(content.read_head()[:offset]) != mark.get("head"):
        return None
    reported = {
        kind: number
        for kind, count in as_mapping(mark.get("reported")).items()
        if (number := _parse_count(count)) is not None
    }
    state = dict(as_mapping(mark.get("state"))) if offset else None
    return ReadPosition(offset, line, tail, state, {}, reported)


def _parse_count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _compute_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
