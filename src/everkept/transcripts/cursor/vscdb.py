"""The database of an editor of the VS Code family, read without a trace beside it."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, cast

import apsw

from everkept.errors import Unavailable
from everkept.transcripts.limits import LARGEST_VALUE

_TABLE = "cursorDiskKV"
_WAIT = 2_000  # milliseconds for whoever writes
_JOURNAL_MODE = 18  # place of the byte in the header that says how changes are written
_WRITE_AHEAD = 2
_LARGEST = f"CASE WHEN octet_length(value) <= {LARGEST_VALUE} THEN CAST(value AS BLOB) END"


class TooLarge:
    """In place of a value that is not read."""


TOO_LARGE = TooLarge()
Stored = bytes | TooLarge | None


class _Connection(Protocol):
    def execute(
        self, statements: str, bindings: Sequence[Any] | None = None
    ) -> Iterator[tuple[Any, ...]]: ...

    def set_busy_timeout(self, milliseconds: int) -> None: ...

    def close(self, force: bool = False) -> None: ...


class Database:
    """No lock is held for longer than it takes to read one value."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def modified(self) -> int:
        """When anything was written last, also what lies beside it until it is taken over."""
        return max(_time(self._path), _time(_ahead(self._path)))

    def keys(self, prefix: str) -> list[str] | None:
        """Those that begin with it; None where the table is missing."""
        with self._opened() as connection:
            if not _has_table(connection):
                return None
            rows = connection.execute(
                f"SELECT CAST(key AS BLOB) FROM {_TABLE} WHERE key >= ? AND key < ?",
                (prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)),
            )
            return [key.decode("utf-8", "replace") for (key,) in rows]

    def values(self, keys: Sequence[str]) -> Iterator[Stored]:
        """Of each key, one after the other; None where there is none."""
        with self._opened() as connection:
            if not _has_table(connection):
                yield from [None] * len(keys)
                return
            for key in keys:
                yield _lookup(connection, key)

    @contextmanager
    def _opened(self) -> Generator[_Connection, None, None]:
        try:
            address, is_fixed = _address(self._path)
            before = self._path.stat()
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            connection = cast(_Connection, apsw.Connection(address, flags=flags))
            try:
                connection.set_busy_timeout(_WAIT)
                yield connection
            finally:
                connection.close(True)
            after = self._path.stat()
        except (apsw.Error, OSError) as error:
            raise _unreadable(self._path, error) from error
        if is_fixed and (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
            raise _changed(self._path)


def _address(path: Path) -> tuple[str, bool]:
    """How to open it without writing anything; and whether that trusts that nobody writes."""
    name = path.absolute().as_uri()
    if _writes_ahead(path) and not _size(_ahead(path)):
        # All is in the file. To open it as usual would make two more files beside it.
        return f"{name}?immutable=1", True
    return f"{name}?mode=ro&readonly_shm=1", False


def _writes_ahead(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(_JOURNAL_MODE + 1)[_JOURNAL_MODE:] == bytes([_WRITE_AHEAD])


def _ahead(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _time(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1000
    except OSError:
        return 0


def _has_table(connection: _Connection) -> bool:
    sought = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
    return any(True for _ in connection.execute(sought, (_TABLE,)))


def _lookup(connection: _Connection, key: str) -> Stored:
    asked = f"SELECT octet_length(value), {_LARGEST} FROM {_TABLE} WHERE key = ?"
    # To the end of the rows, which is what ends the lock.
    rows = list(connection.execute(asked, (key,)))
    return _value(*rows[0]) if rows else None


def _value(size: int | None, value: bytes | None) -> Stored:
    return TOO_LARGE if size is not None and value is None else value


def _unreadable(path: Path, error: Exception) -> Unavailable:
    return Unavailable(
        f"Cursor's database {path} cannot be read: {error}.",
        hint="Close Cursor, or open and close it once, and import again.",
        path=str(path),
    )


def _changed(path: Path) -> Unavailable:
    return Unavailable(
        f"Cursor's database {path} was changed while it was read.",
        hint="Import again.",
        path=str(path),
    )
