"""SQLite connections: the used part of apsw, opening of files, errors and disk space."""

import errno
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import Any, Literal, Never, Protocol, TypeVar, cast
from urllib.parse import quote

import apsw

from everkept.core import disk
from everkept.core.disk import AMPLE_BYTES, build_size_facts, find_free_bytes
from everkept.core.text import format_size
from everkept.engines.sqlite.rows import compute_checksum
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
        """The first row, or its value if it has one column. None without a row."""
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
        """The system's error number of the last failure that it caused."""
        ...


Work = Callable[[Connection], T]


class DatabaseFile(Protocol):
    """The operations of a file that a store needs."""

    async def read(self, question: Work[T], *, aside: bool = False, long: bool = False) -> T:
        """Run all statements of the query against one state of the database.

        A `long` query never runs in the caller's thread. A query that takes seconds runs `aside`, so that no other
        query waits for it.
        """
        ...

    def read_later(self, question: Work[None]) -> None:
        """Run the query aside soon, if possible. The caller does not wait for it."""
        ...

    async def write(self, work: Work[T], *, short: bool = False) -> T:
        """Run the work in one transaction, unless a newer program has upgraded the file.

        `short` work may run in the caller's thread, and again if it does not finish there.
        """
        ...

    async def fold(self, patience: float) -> bool:
        """Move the write-ahead log into the file. Return False if a reader still needs it."""
        ...

    def measure_size(self) -> int:
        """Return the bytes of the file and of its write-ahead log."""
        ...

    @property
    def reopened(self) -> int:
        """Number of times that another file replaced this one. Caches of its content are invalid then."""
        ...


Synchronous = Literal["normal", "full"]

BUSY_SECONDS = 10.0  # how long a write waits for another process
_FOLD_RETRY_SECONDS = 0.02
# System errors for a full disk, a quota and a file size limit. Windows has its own numbers.
_DISK_FULL_CODES = {39, 112, 1295} if os.name == "nt" else {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_FLAGS = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI

# Our error for each result code of SQLite. Codes that only a bug can cause (syntax, misuse, range, ...) are omitted,
# so that they surface as bugs.
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


UNREADABLE_VALUES = (UnicodeDecodeError, JSONDecodeError)  # errors that only damaged values cause


@contextmanager
def translate_errors(
    path: Path, schema: Schema = PROJECT, *, title: str | None = None, connection: Connection | None = None
) -> Generator[None, None, None]:
    """Translate SQLite errors that the environment caused. `title` is the file's name in messages."""
    try:
        yield
    except UNREADABLE_VALUES as error:
        kind = "UTF-8" if isinstance(error, UnicodeDecodeError) else "JSON"
        what = f"{title or path.name} is damaged: a text in it is not valid {kind}."
        raise StoreDamaged(what, hint=schema.when_damaged, path=str(path)) from error
    except tuple(OUTSIDE_FAILURES) as error:
        is_refused = connection is not None and connection.system_errno in _DISK_FULL_CODES
        raise _translate_error(error, path, schema, title or path.name, is_refused) from error


class BusyHandler:
    """Busy handler that waits for the write lock in short random naps, until a deadline or the shutdown.

    SQLite's own back-off sleeps up to 100 ms, so it starves beside a process that commits in a row. Naps of 0.5 to 2 ms
    get their turn.
    """

    def __init__(self, patience: float | None = None) -> None:
        self.closing = False
        self.hurries = False  # the caller cannot wait
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
    exclusive: bool = False,
    synchronous: Synchronous = "normal",
    busy: BusyHandler | None = None,
    title: str | None = None,
    upgrade: Callable[[Path], object] | None = None,
) -> Connection:
    """Open and migrate an existing database of ours.

    Pass `at_rest` to read it without a lock or a log, and `exclusive` to open it like `open_exclusively`. `upgrade` is
    called before a migration.
    """
    with translate_errors(path, schema, title=title), _expect_file(path, title or path.name):
        if at_rest:
            connection = open_at_rest(path)
        else:
            connection = open_exclusively(path) if exclusive else _open(path, read_only=read_only)
        try:
            connection.set_busy_handler(busy or BusyHandler())
            # Otherwise SQLite plans a query again whenever a value is bound to LIMIT, which takes 30 us.
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            # A trigger that a stranger planted never runs.
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, int(schema.has_triggers))
            connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
            connection.create_scalar_function("lowered", _lower, 1)
            add_checksums(connection)
            with translate_errors(path, schema, title=title, connection=connection):
                _set_pragmas(connection, "temp_store=MEMORY", "cache_size=-64000")
                check_kind(connection, path, schema, title or path.name)
            if not connection.readonly("main"):
                # WAL lets other processes read while one writes. secure_delete overwrites deleted text in the file's
                # free space, at no measurable cost.
                _set_pragmas(
                    connection, "journal_mode=WAL", "foreign_keys=ON", "secure_delete=ON", f"synchronous={synchronous}"
                )
                if upgrade is not None and read_version(connection) < schema.version:
                    upgrade(path)
                migrate(connection, schema)
            _refuse_if_older(connection, path, schema, title or path.name)
            connection.execute(schema.temporary)
            connection.register_fts5_function("occurrences", _count_occurrences)
        except BaseException:
            # The last connection to close folds the log. A file that is refused must stay unchanged.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.close()
            raise
        return connection


def _set_pragmas(connection: Connection, *pragmas: str) -> None:
    # One statement per call: statements after a row that is not fetched never run.
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}").fetchall()


def create(path: Path, schema: Schema, facts: Mapping[str, str] | None = None) -> None:
    """Create the file with its whole schema and the project's `facts`, readable only by its owner."""
    disk.create(path, is_synced=False)
    with translate_errors(path):
        connection = _open(path, read_only=False)
    with closing(connection), translate_errors(path, connection=connection):
        connection.set_busy_handler(BusyHandler())
        _set_pragmas(connection, f"application_id={schema.application_id}", "journal_mode=WAL")
        add_checksums(connection)
        migrate(connection, schema)
        connection.executemany("INSERT INTO meta VALUES (?,?)", (facts or {}).items())


def add_checksums(connection: Connection) -> None:
    """Let statements compute the checksums of rows."""
    connection.create_scalar_function("row_checksum", compute_checksum)


def migrate(connection: Connection, schema: Schema) -> None:
    """Apply missing migrations in one transaction. A second process finds nothing to do."""
    if read_version(connection) >= schema.version:
        return
    with open_transaction(connection):
        apply_migrations(connection, schema)


def apply_migrations(connection: Connection, schema: Schema) -> None:
    """Apply missing migrations in the caller's transaction."""
    for number in range(read_version(connection), schema.version):
        connection.execute(schema.migrations[number])
    connection.execute(f"PRAGMA user_version={schema.version}")


def fold(path: Path, schema: Schema, patience: float, *, title: str | None = None) -> bool:
    """Move the write-ahead log into the file. Return False if a reader still needs it."""
    deadline = time.monotonic() + patience
    busy = BusyHandler(_FOLD_RETRY_SECONDS)  # short, because each attempt blocks other writers
    with translate_errors(path, schema, title=title), closing(connect(path, schema, busy=busy, title=title)) as db:
        while db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]:
            if time.monotonic() > deadline:
                return False
            time.sleep(_FOLD_RETRY_SECONDS)
        return True


def refuse_to_write(path: Path, title: str) -> Never:
    raise ReadOnly(f"{title} is read-only.", hint="Check the permissions of the data folder.", path=str(path))


class DatabaseReplaced(Unavailable):
    """The path of an open database leads to another file, or to none."""


FileIdentity = tuple[int, int]


def read_identity(path: Path) -> FileIdentity | None:
    """Return what tells this file from any other that exists (on Windows, the file id), or None without a file."""
    try:
        found = os.stat(path)  # noqa: PTH116 - half the time of `Path.stat`, for each commit
    except OSError:
        return None
    return found.st_dev, found.st_ino


def build_replaced_error(path: Path, title: str) -> DatabaseReplaced:
    if path.exists():
        what, hint = "was replaced by another file", "Try again: the next call uses the file that is there now."
    else:
        what = "was moved or deleted"
        hint = "Put it back, or restart Everkept to begin with an empty one. `everkept doctor` names backups."
    return DatabaseReplaced(f"{title} {what} while it was open. Nothing was stored.", hint=hint, path=str(path))


def unlink_logs(path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


@contextmanager
def open_transaction(connection: Connection) -> Generator[None, None, None]:
    # IMMEDIATE: a read transaction that upgrades after another commit fails without calling the busy handler.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def read_in_snapshot(connection: Connection, question: Callable[[Connection], T]) -> T:
    """Run all statements of the query against one state of the database."""
    connection.execute("BEGIN")
    try:
        return question(connection)
    finally:
        # Some failures, such as an unreadable disk, end the transaction.
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def check_version(connection: Connection, path: Path, schema: Schema, title: str | None = None) -> None:
    version = read_version(connection)
    if version > schema.version:
        raise StoreTooNew(
            f"{title or path.name} was written by a newer version "
            f"(schema {version}; this version supports {schema.version}).",
            hint="Update Everkept, then restart your assistants.",
            path=str(path),
        )


def check_kind(connection: Connection, path: Path, schema: Schema, title: str) -> None:
    """Raise StoreDamaged if the file is not a database of ours, and StoreTooNew."""
    if connection.pragma("application_id") != schema.application_id:
        raise StoreDamaged(
            f"{title} is not a {schema.name} database of Everkept.", hint=schema.when_damaged, path=str(path)
        )
    check_version(connection, path, schema, title)


def _refuse_if_older(connection: Connection, path: Path, schema: Schema, title: str) -> None:
    if read_version(connection) < schema.version:
        raise ReadOnly(
            f"{title} has an older schema and cannot be upgraded because it is read-only.",
            hint="Open it once from a place where it can be written.",
            path=str(path),
        )


@contextmanager
def _expect_file(path: Path, title: str) -> Generator[None]:
    """Raise Conflict if the file is moved between two steps of opening it."""
    try:
        yield
    except (apsw.CantOpenError, apsw.IOError) as error:
        if path.exists():
            raise
        raise Conflict(
            f"{title} is missing: it was moved, archived or deleted.",
            hint="Try again. If it stays missing, run `everkept doctor`.",
            path=str(path),
        ) from error


def _open(path: Path, *, read_only: bool) -> Connection:
    if not read_only:
        return _as_connection(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE))
    connection = _as_connection(apsw.Connection(f"{format_uri(path)}?mode=ro", flags=_READ_FLAGS))
    try:
        connection.pragma("user_version")
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        # A write-ahead log cannot be shared in a read-only folder. Without a log the database is at rest, and can be
        # read without locks.
        if get_log_path(path).exists():
            raise
        connection = open_at_rest(path)
    except apsw.Error as error:
        if not is_disk_full(error, connection):
            raise
        connection.close()
        connection = open_exclusively(path)
    return connection


def is_disk_full(error: BaseException, connection: Connection) -> bool:
    """Return whether the system reported that the disk, a quota or a limit leaves no space."""
    return isinstance(error, apsw.FullError) or connection.system_errno in _DISK_FULL_CODES


def open_exclusively(path: Path) -> Connection:
    """Open a file on a full disk to read it. Other processes wait until it is closed.

    Connections share a log through a file beside the database, for which the disk has no space. This one does not
    share.
    """
    has_log = measure_log(path) > 0
    connection = _as_connection(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE))
    if has_log:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    _set_pragmas(connection, "locking_mode=EXCLUSIVE")
    return connection


def open_at_rest(path: Path) -> Connection:
    """Open a file that no process uses. No other files are created."""
    connection = _as_connection(apsw.Connection(f"{format_uri(path)}?immutable=1", flags=_READ_FLAGS))
    add_checksums(connection)
    return connection


def format_uri(path: Path) -> str:
    # Path.as_uri imports a module when it is called, and the program's files may be unreachable by then.
    quoted = quote(os.fsencode(path.resolve().as_posix()), safe="/:")
    return f"file://{quoted}" if quoted.startswith("/") else f"file:///{quoted}"


def _as_connection(connection: apsw.Connection) -> Connection:
    return cast(Connection, connection)


def _lower(text: str | None) -> str | None:
    return None if text is None else text.lower()


def _count_occurrences(found: apsw.FTS5ExtensionApi) -> int:
    """Count the occurrences of the query's phrase in the three columns of a row, with 16 bits each."""
    name, text, context = map(len, found.phrase_locations(0))
    most = 0xFFFF
    return min(name, most) << 32 | min(text, most) << 16 | min(context, most)


def read_version(connection: Connection) -> int:
    return int(connection.pragma("user_version"))


def _translate_error(error: apsw.Error, path: Path, schema: Schema, title: str, is_refused: bool) -> EverkeptError:
    """Build our error. `is_refused` means that the system itself reported a lack of disk space."""
    kind = next(ours for theirs, ours in OUTSIDE_FAILURES.items() if isinstance(error, theirs))
    if isinstance(error, (apsw.IOError, apsw.CantOpenError)) and (is_refused or is_full(path.parent)):
        kind = StorageFull  # SQLite does not report quotas, or a disk too full for the files beside a database
    facts = {"path": str(path)}
    if kind is StoreBusy:
        return StoreBusy(
            f"{title} is locked by another process.",
            hint="Try again. If it stays locked, look for a running import or a suspended Everkept process.",
            **facts,
        )
    if kind is StorageFull:
        return build_storage_full_error(path, title)
    if kind is StoreDamaged:
        return StoreDamaged(f"{title} is damaged or not a database: {error}.", hint=schema.when_damaged, **facts)
    if kind is ReadOnly:
        return ReadOnly(
            f"{title} cannot be written.",
            hint="Check the folder's permissions, or choose another one with --data-dir.",
            **facts,
        )
    return kind(f"{title} cannot be used: {error}.", **facts)


_MIN_FREE_BYTES = 1_000_000  # with less, a file that cannot be used lacks disk space


def measure_file(path: Path) -> int:
    """Return the bytes of a file and of its write-ahead log."""
    return _measure(path) + measure_log(path)


def get_log_path(path: Path) -> Path:
    """Return the path of the write-ahead log, which exists while a process may write."""
    return path.with_name(path.name + "-wal")


def measure_log(path: Path) -> int:
    """Return the bytes of a file's write-ahead log, 0 without one."""
    return _measure(get_log_path(path))


def _measure(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # another process may delete a log at any moment
        return 0


def is_full(folder: Path) -> bool:
    """Return whether the disk has too little free space for anything. Return False if that is unknown."""
    free = find_free_bytes(folder)
    return free is not None and free < _MIN_FREE_BYTES


def build_storage_full_error(path: Path, title: str) -> StorageFull:
    """Build the error for a write that the disk, a quota or a limit prevented."""
    size, free = _measure_path(path), find_free_bytes(path)
    sizes = f"It takes {format_size(size)}" + ("" if free is None else f"; {format_size(free)} are free")
    return StorageFull(
        f"{title} cannot be written: no disk space is left. {sizes}. Nothing was stored.",
        hint=(
            "Raise the quota or file size limit, or choose another data folder with --data-dir."
            if free is not None and free > AMPLE_BYTES
            else "Free some disk space and try again."
        ),
        path=str(path),
        **build_size_facts(size, free),
    )


@contextmanager
def translate_disk_errors(path: Path) -> Generator[None, None, None]:
    """Translate system errors like `disk.translate_os_errors`, and add the sizes if the disk is full."""
    try:
        with disk.translate_os_errors(path):
            yield
    except StorageFull as error:
        raise (error if "current_size" in error.facts else build_storage_full_error(path, str(path))) from error


def _measure_path(path: Path) -> int:
    """Return the bytes of a database, or of all databases in a folder. Return 0 if they cannot be read."""
    try:
        if not path.is_dir():
            return measure_file(path)
        return sum(measure_file(each) for each in path.rglob("*.db"))
    except OSError:
        return 0
