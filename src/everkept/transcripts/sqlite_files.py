"""SQLite files of other programs: how to open them without writing anything beside them."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, cast

import apsw

from everkept.core.disk import open_regular

_JOURNAL_MODE_OFFSET = 18  # offset of the header byte with the journal mode
_WAL_MODE = 2
_SIDE_SUFFIXES = ("-wal", "-shm", "-journal")
_IMMUTABLE = "?immutable=1"
_BUSY_TIMEOUT_MILLISECONDS = 2_000  # wait for another process that writes


class ForeignConnection(Protocol):
    def execute(self, statements: str, bindings: Sequence[Any] | None = None) -> Iterator[tuple[Any, ...]]: ...

    def limit(self, id: int, newval: int = -1) -> int: ...

    def set_busy_timeout(self, milliseconds: int) -> None: ...

    def close(self, force: bool = False) -> None: ...


@contextmanager
def open_read_only(uri: str) -> Generator[ForeignConnection, None, None]:
    """Open what `build_read_only_uri` returned."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = cast(ForeignConnection, apsw.Connection(uri, flags=flags))
    try:
        connection.set_busy_timeout(_BUSY_TIMEOUT_MILLISECONDS)
        yield connection
    finally:
        connection.close(True)


def build_read_only_uri(path: Path) -> str:
    """Return a URI that opens the database without writing."""
    name = path.absolute().as_uri()
    _refuse_pipes(path)
    with open_regular(path) as file:
        is_wal = file.read(_JOURNAL_MODE_OFFSET + 1)[_JOURNAL_MODE_OFFSET:] == bytes([_WAL_MODE])
    if is_wal and not _read_size(get_wal_path(path)):
        # The WAL is empty, so the file is complete. A normal open would create two more files beside it.
        return name + _IMMUTABLE
    return f"{name}?mode=ro&readonly_shm=1"


def _refuse_pipes(path: Path) -> None:
    """Raise OSError if a file that SQLite opens beside the database is not a regular one: it would wait for a pipe."""
    for suffix in _SIDE_SUFFIXES:
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            open_regular(beside).close()


def is_immutable(uri: str) -> bool:
    """Return whether the URI assumes that no process writes."""
    return uri.endswith(_IMMUTABLE)


def get_wal_path(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _read_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
