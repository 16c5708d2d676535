"""The bytes and lines of a transcript, and marks that record how far it was read."""

import hashlib
import os
import stat
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from everkept.core.transcripts import Mark
from everkept.transcripts.source_programs import (
    MAX_EXPANDED_LINE_BYTES,
    MAX_EXPANSION_FACTOR,
    MAX_LINE_BYTES,
    as_mapping,
)
from everkept.values import Value, field

if TYPE_CHECKING:
    from backports.zstd import ZstdDecompressor

CHUNK_BYTES = 64 * 1024  # bytes per read
HEAD_BYTES = 1024  # bytes at the beginning that identify a file
TAIL_BYTES = 64  # bytes before a position that identify it
COMPRESSED_SUFFIX = ".zst"
# The default limit of the command `zstd`. A file can ask for any amount of memory.
_MAX_WINDOW_LOG = 27


class TranscriptContent(Protocol):
    """The content of a file. Offsets count uncompressed bytes."""

    damaged: bool  # the file is truncated or corrupt, so the rest cannot be read

    def read(self) -> bytes:
        """Return the next bytes, or none at the end. The file may grow later."""
        ...

    def seek(self, offset: int, tail: int) -> bytes | None:
        """Move to the offset once, before reading. Return `tail` bytes before it, or None if the file is shorter."""
        ...

    def read_head(self) -> bytes:
        """Return the first bytes of the file, at least those read so far."""
        ...

    def count_read(self, offset: int) -> int:
        """Return how many bytes of the file's size were read to reach the offset."""
        ...


class TranscriptLine(NamedTuple):
    """A line without its line break. `data` is None if the line exceeds MAX_LINE_BYTES."""

    data: bytes | None
    start: int
    end: int
    ended: bool
    tail: bytes  # the last bytes before `end`


@contextmanager
def open_content(path: Path) -> Generator[TranscriptContent, None, None]:
    """Open a file read-only. Raise OSError if it cannot be read."""
    # Opening a pipe would block until a process writes to it.
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(f"{path} is not a regular file")
    with FileIO(path) as file:
        yield _CompressedContent(file) if path.suffix == COMPRESSED_SUFFIX else _PlainContent(file)


def split_lines(chunks: Iterable[bytes], offset: int) -> Iterator[TranscriptLine]:
    """Yield the lines from the offset on. The last line may not have ended."""
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
        self.damaged = False
        self._file = file
        self._frame = _open_frame()
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
        if passed < offset:  # Compressed files do not shrink, so this one was truncated.
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
            chunk = self._expand(size)
        except _load_zstd().ZstdError:
            self.damaged = True
            return b""
        self._head += chunk[: HEAD_BYTES - len(self._head)]
        self._passed += len(chunk)
        end = chunk.rfind(b"\n")
        self._since_line = len(chunk) - end - 1 + (self._since_line if end < 0 else 0)
        # A small file can expand to any number of zeros.
        self.damaged = self._since_line > MAX_EXPANDED_LINE_BYTES or self._passed > self._most
        return chunk

    def _expand(self, size: int) -> bytes:
        """Return the next bytes, at most `size`, or none at the end of the file."""
        while True:
            data = b""
            if self._frame.eof:
                data, self._frame = self._frame.unused_data, _open_frame()
            if not data and self._frame.needs_input and not (data := self._file.read(CHUNK_BYTES)):
                return b""
            if chunk := self._frame.decompress(data, size):
                return chunk


def _open_frame() -> "ZstdDecompressor":
    zstd = _load_zstd()
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _MAX_WINDOW_LOG})


def _load_zstd() -> Any:  # few transcripts are compressed
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


_MARK_VERSION = 1


class ReadPosition(Value):
    """A position between two lines at which no turn is open."""

    offset: int
    line: int  # number of lines before it
    tail: bytes  # bytes before it, which identify the position
    state: Mapping[str, Any] | None  # state of the format
    counts: Mapping[str, int]  # records that this reading skipped before the position
    # Records after the position that were already reported as skipped. They are not reported again.
    reported: Mapping[str, int] = field(default_factory=dict[str, int])

    def to_mark(self, head: bytes, reported: Mapping[str, int]) -> dict[str, Any]:
        """Build the mark from the file's first bytes and the counts reported so far."""
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
    """Return the position of the mark and move the content there. Return None if the mark does not match this file."""
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
