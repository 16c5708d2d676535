"""SQLite connections: the part of apsw that we use, one way to open a file, errors, disk space."""

import errno
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal, Never, Protocol, TypeVar, cast
from urllib.parse import quote

import apsw

from everkept.core import disk
from everkept.engines.sqlite.schema import PROJECT, Schema
from everkept.errors import (
    Conflict,
    EverkeptError,
    ReadOnly,
    StorageFull,
    StoreBusy,
    StoreDamaged,
    StoreTooNew,
    Unavailable,
)

Row = tuple[Any, ...]
T = TypeVar("T")


class Rows(Protocol):
    def __iter__(self) -> Iterator[Row]: ...

    def fetchall(self) -> list[Row]: ...

    @property
    def get(self) -> Any:
        """The first row, or its value where it has one column; None without a row."""
        ...


class Connection(Protocol):
    def execute(self, statements: str, bindings: Sequence[Any] | None = None) -> Rows: ...

    def executemany(self, statements: str, sequenceofbindings: Iterable[Sequence[Any]]) -> Rows: ...

    def pragma(self, name: str, value: Any = None) -> Any: ...

    def last_insert_rowid(self) -> int: ...

    def changes(self) -> int: ...

    def total_changes(self) -> int: ...

    def readonly(self, name: str) -> bool: ...

    def set_busy_handler(self, callable: Callable[[int], bool] | None) -> None: ...

    def interrupt(self) -> None: ...

    def set_progress_handler(self, callable: Callable[[], bool] | None, nsteps: int = 100) -> None: ...

    def set_wal_hook(self, callable: Callable[[Any, str, int], int] | None) -> None: ...

    def wal_checkpoint(self, *, mode: int = 0) -> tuple[int, int]: ...

    def create_scalar_function(self, name: str, callable: Callable[..., Any] | None, numargs: int = -1) -> None: ...

    def register_fts5_function(self, name: str, function: Callable[..., Any]) -> None: ...

    def config(self, op: int, *args: int) -> int: ...

    def close(self, force: bool = False) -> None: ...

    @property
    def in_transaction(self) -> bool: ...

    @property
    def system_errno(self) -> int:
        """What the system said at the last failure that it was the reason for."""
        ...


Work = Callable[[Connection], T]


class DatabaseFile(Protocol):
    """What a store asks of its file."""

    async def read(self, question: Work[T], *, aside: bool = False, long: bool = False) -> T:
        """Runs the question's statements against one state of the database.

        A `long` question never holds up the caller's thread. One that takes seconds is read
        `aside`, and no other question waits for it.
        """
        ...

    def read_later(self, question: Work[None]) -> None:
        """Runs the question aside soon, where that is possible: the caller does not wait for it."""
        ...

    async def write(self, work: Work[T], *, short: bool = False) -> T:
        """Runs the work in one transaction, unless a newer program owns the file by now.

        `short` work may be run in the caller's thread, and again if it does not end there.
        """
        ...

    async def fold(self, patience: float) -> bool:
        """Empties the write-ahead log into the file; False if a reader needs it still."""
        ...

    def measure_size(self) -> int:
        """The bytes of the file and of its write-ahead log."""
        ...


Synchronous = Literal["normal", "full"]

BUSY_SECONDS = 10.0  # seconds a write waits for another process
_FOLD_RETRY_SECONDS = 0.02
# What the system says of a full disk, a quota and a limit on files; Windows has its own numbers.
_DISK_FULL_CODES = {39, 112, 1295} if os.name == "nt" else {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_FLAGS = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI

# What each of SQLite's result codes means to a caller. Codes that only our own mistakes can
# cause (syntax, misuse, range, ...) are left out on purpose: they are bugs and surface as such.
OUTSIDE_FAILURES: dict[type[apsw.Error], type[EverkeptError]] = {
    apsw.BusyError: StoreBusy,
    apsw.LockedError: StoreBusy,
    apsw.FullError: StorageFull,
    apsw.NotADBError: StoreDamaged,
    apsw.CorruptError: StoreDamaged,
    apsw.FormatError: StoreDamaged,
    apsw.ReadOnlyError: ReadOnly,
    apsw.PermissionsError: ReadOnly,
    apsw.AuthError: ReadOnly,
    apsw.CantOpenError: Unavailable,
    apsw.IOError: Unavailable,
    apsw.ProtocolError: Unavailable,
    apsw.NoLFSError: Unavailable,
    apsw.NoMemError: Unavailable,
    apsw.InterruptError: Unavailable,
    apsw.SchemaChangeError: Unavailable,
    apsw.TooBigError: Unavailable,
}


@contextmanager
def translate_errors(
    path: Path, schema: Schema = PROJECT, *, title: str | None = None, connection: Connection | None = None
) -> Generator[None, None, None]:
    """Raises our error for what the outside did to the file at `path`.

    `title` is what a person knows the file by. The connection knows what the system said.
    """
    try:
        yield
    except tuple(OUTSIDE_FAILURES) as error:
        is_refused = connection is not None and connection.system_errno in _DISK_FULL_CODES
        raise _translate_error(error, path, schema, title or path.name, is_refused) from error


class BusyHandler:
    """Waits for the write lock in short random naps, until a deadline or until we shut down.

    SQLite's own back-off sleeps up to 100 ms at a time, so beside a process that commits in a
    row it starves; naps of 0.5 to 2 ms get their turn.
    """

    def __init__(self, patience: float | None = None) -> None:
        self.closing = False
        self.hurries = False  # the caller cannot wait at all
        self._patience = BUSY_SECONDS if patience is None else patience
        self._started = 0.0

    def __call__(self, earlier_calls: int) -> bool:
        now = time.monotonic()
        if earlier_calls == 0:
            self._started = now
        if self.closing or self.hurries or now - self._started > self._patience:
            return False
        time.sleep(0.0005 + os.urandom(1)[0] / 170_000)
        return True


def connect(
    path: Path,
    schema: Schema,
    *,
    read_only: bool = False,
    at_rest: bool = False,
    synchronous: Synchronous = "normal",
    busy: BusyHandler | None = None,
    title: str | None = None,
) -> Connection:
    """A connection to an existing database of ours, migrated; never makes a new file.

    What is `at_rest` is read as it lies there, without a lock or a log beside it.
    """
    with translate_errors(path, schema, title=title), _expect_file(path, title or path.name):
        connection = _open_at_rest(path) if at_rest else _open(path, read_only=read_only)
        try:
            connection.set_busy_handler(busy or BusyHandler())
            # Otherwise SQLite plans again whenever a value is bound to LIMIT: 30 us a question.
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            connection.create_scalar_function("lowered", _lower, 1)
            _set_pragmas(connection, "temp_store=MEMORY", "cache_size=-64000")
            _check_identity(connection, path, schema, title or path.name)
            if not connection.readonly("main"):
                # WAL lets other processes read while one writes. secure_delete keeps forgotten
                # text out of the file's free space; it costs nothing measurable.
                _set_pragmas(
                    connection, "journal_mode=WAL", "foreign_keys=ON", "secure_delete=ON", f"synchronous={synchronous}"
                )
                migrate(connection, schema)
            _refuse_if_older(connection, path, schema, title or path.name)
            connection.execute(schema.temporary)
            connection.register_fts5_function("occurrences", _count_occurrences)
        except BaseException:
            # The last one to close folds the log in; a file that is refused stays as it is.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.close()
            raise
        return connection


def _set_pragmas(connection: Connection, *pragmas: str) -> None:
    # One statement each: of several in one call, those behind a row that nobody fetches never run.
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}").fetchall()


def create(path: Path, schema: Schema, facts: Mapping[str, str] | None = None) -> None:
    """Makes the file with its whole schema, readable by its owner alone.

    The facts are what a project's file tells of its project.
    """
    disk.create(path, is_synced=False)
    with translate_errors(path):
        connection = _open(path, read_only=False)
        try:
            connection.set_busy_handler(BusyHandler())
            _set_pragmas(connection, f"application_id={schema.application_id}", "journal_mode=WAL")
            migrate(connection, schema)
            connection.executemany("INSERT INTO meta VALUES (?,?)", (facts or {}).items())
        finally:
            connection.close()


def migrate(connection: Connection, schema: Schema) -> None:
    """Applies what is missing, in one transaction; a second process finds nothing to do."""
    if _read_version(connection) >= schema.version:
        return
    with open_transaction(connection):
        for number in range(_read_version(connection), schema.version):
            connection.execute(schema.migrations[number])
        connection.execute(f"PRAGMA user_version={schema.version}")


def fold(path: Path, schema: Schema, patience: float, *, title: str | None = None) -> bool:
    """Moves the write-ahead log into the file and empties it; False if a reader needs it still.

    Whoever tries keeps others from writing, so each try is short.
    """
    deadline = time.monotonic() + patience
    busy = BusyHandler(_FOLD_RETRY_SECONDS)
    with translate_errors(path, schema, title=title), closing(connect(path, schema, busy=busy, title=title)) as db:
        while db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]:
            if time.monotonic() > deadline:
                return False
            time.sleep(_FOLD_RETRY_SECONDS)
        return True


def refuse_to_write(path: Path, title: str) -> Never:
    raise ReadOnly(
        f"{title} is open for reading only.",
        hint="The data folder cannot be written; check its permissions.",
        path=str(path),
    )


def unlink_logs(path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


@contextmanager
def open_transaction(connection: Connection) -> Generator[None, None, None]:
    # IMMEDIATE: a read transaction that upgrades behind another commit fails at once, and no
    # busy handler is asked.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def read_in_snapshot(connection: Connection, question: Callable[[Connection], T]) -> T:
    """Asks several statements of one state of the database."""
    connection.execute("BEGIN")
    try:
        return question(connection)
    finally:
        # Some failures, such as an unreadable disk, have ended the transaction already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def check_version(connection: Connection, path: Path, schema: Schema, title: str | None = None) -> None:
    version = _read_version(connection)
    if version > schema.version:
        raise StoreTooNew(
            f"{title or path.name} has schema version {version}; this program knows {schema.version}.",
            hint="Update Everkept, and restart the windows that still run the old one.",
            path=str(path),
        )


def _check_identity(connection: Connection, path: Path, schema: Schema, title: str) -> None:
    found = connection.pragma("application_id")
    if found != schema.application_id:
        raise StoreDamaged(
            f"{title} is not a {schema.name} database of Everkept.", hint=schema.when_damaged, path=str(path)
        )
    check_version(connection, path, schema, title)


def _refuse_if_older(connection: Connection, path: Path, schema: Schema, title: str) -> None:
    if _read_version(connection) < schema.version:
        raise ReadOnly(
            f"{title} has an older form, and cannot be brought up to date here.",
            hint="Open it once where it can be written.",
            path=str(path),
        )


@contextmanager
def _expect_file(path: Path, title: str) -> Generator[None]:
    """A file may be moved away between any two steps of opening it."""
    try:
        yield
    except (apsw.CantOpenError, apsw.IOError) as error:
        if path.exists():
            raise
        raise Conflict(
            f"{title} is not where it was; it may have been archived or deleted meanwhile.",
            hint="Call again.",
            path=str(path),
        ) from error


def _open(path: Path, *, read_only: bool) -> Connection:
    if not read_only:
        return _as_connection(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE))
    try:
        connection = _as_connection(apsw.Connection(f"{format_uri(path)}?mode=ro", flags=_READ_FLAGS))
        connection.pragma("user_version")
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        # A write-ahead log cannot be shared from a folder nobody may write to. Without the log's
        # files beside it the database is at rest, and may be read as it is.
        if get_log_path(path).exists():
            raise
        connection = _open_at_rest(path)
    return connection


def _open_at_rest(path: Path) -> Connection:
    return _as_connection(apsw.Connection(f"{format_uri(path)}?immutable=1", flags=_READ_FLAGS))


def format_uri(path: Path) -> str:
    # Path.as_uri imports what it needs at the call, when the program's files may be out of reach.
    quoted = quote(os.fsencode(path.resolve().as_posix()), safe="/:")
    return f"file://{quoted}" if quoted.startswith("/") else f"file:///{quoted}"


def _as_connection(connection: apsw.Connection) -> Connection:
    return cast(Connection, connection)


def _lower(text: str | None) -> str | None:
    return None if text is None else text.lower()


def _count_occurrences(found: apsw.FTS5ExtensionApi) -> int:
    """How often a row has the phrase of a query in its three columns, in 16 bits each."""
    name, text, context = map(len, found.phrase_locations(0))
    most = 0xFFFF
    return min(name, most) << 32 | min(text, most) << 16 | min(context, most)


def _read_version(connection: Connection) -> int:
    return int(connection.pragma("user_version"))


def _translate_error(error: apsw.Error, path: Path, schema: Schema, title: str, is_refused: bool) -> EverkeptError:
    """`is_refused` where the system itself has said that there is no room."""
    kind = next(ours for theirs, ours in OUTSIDE_FAILURES.items() if isinstance(error, theirs))
    if isinstance(error, (apsw.IOError, apsw.CantOpenError)) and (is_refused or is_full(path.parent)):
        kind = StorageFull  # of quotas, and of smaller files beside a database, SQLite is silent
    facts = {"path": str(path)}
    if kind is StoreBusy:
        return StoreBusy(
            f"{title} is locked by another process.",
            hint="Try again; an import or a stopped Everkept process may be holding it.",
            **facts,
        )
    if kind is StorageFull:
        return build_storage_full_error(path, title)
    if kind is StoreDamaged:
        return StoreDamaged(f"{title} is damaged or no database ({error}).", hint=schema.when_damaged, **facts)
    if kind is ReadOnly:
        return ReadOnly(
            f"{title} cannot be written here.",
            hint="Check the permissions of the data folder, or choose one with --data-dir.",
            **facts,
        )
    return kind(f"{title} could not be used ({error}).", **facts)


_MIN_FREE_BYTES = 1_000_000  # with fewer on its disk, a file that cannot be used has no room
_AMPLE_BYTES = 100_000_000  # with more, something else than the disk is in the way
_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def measure_file(path: Path) -> int:
    """The bytes of a file and of its write-ahead log."""
    return sum(each.stat().st_size for each in (path, get_log_path(path)) if each.exists())


def get_log_path(path: Path) -> Path:
    """The write-ahead log of a file; it is there while anybody may write."""
    return path.with_name(path.name + "-wal")


def is_full(folder: Path) -> bool:
    """Whether its disk has too little room for anything; False where that cannot be said."""
    free = _find_free_bytes(folder)
    return free is not None and free < _MIN_FREE_BYTES


def build_storage_full_error(path: Path, title: str) -> StorageFull:
    """For a write to a database that its disk, a quota or a limit would not have."""
    size, free = _measure_path(path), _find_free_bytes(path)
    sizes = f"It takes {format_size(size)}" + ("" if free is None else f", and {format_size(free)} are free")
    facts = {} if free is None else {"free": free}
    return StorageFull(
        f"{title} cannot grow: there is no room on its disk. {sizes}. Nothing of this call was stored.",
        hint=(
            "The disk is not full, so a quota or a limit on the size of files is: raise it, or "
            "choose another data folder with --data-dir."
            if free is not None and free > _AMPLE_BYTES
            else "Free some disk space and call again."
        ),
        path=str(path),
        current_size=size,
        **facts,
    )


@contextmanager
def translate_disk_errors(path: Path) -> Generator[None, None, None]:
    """As that of the core, and says how large things are where there is no room."""
    try:
        with disk.translate_os_errors(path):
            yield
    except StorageFull as error:
        raise (error if "current_size" in error.facts else build_storage_full_error(path, str(path))) from error


def format_size(size: int) -> str:
    """As a person says it: `512 bytes`, `3.4 MB`."""
    amount, power = float(size), 0
    while amount >= 999.95 and power < len(_UNITS) - 1:
        amount, power = amount / 1_000, power + 1
    return f"{amount:,.1f} {_UNITS[power]}" if power else f"{size} bytes"


def _measure_path(path: Path) -> int:
    """Of a database, or of all in a folder; 0 for what cannot be looked at."""
    try:
        if not path.is_dir():
            return measure_file(path)
        return sum(measure_file(each) for each in path.rglob("*.db"))
    except OSError:
        return 0


def _find_free_bytes(path: Path) -> int | None:
    """None where it cannot be said."""
    try:
        from shutil import disk_usage  # a hook that starts does not pay for it

        there = next(each for each in (path, *path.parents) if each.exists())
        return disk_usage(there).free
    except (OSError, ImportError):  # the folder or the program's files may be out of reach
        return None
