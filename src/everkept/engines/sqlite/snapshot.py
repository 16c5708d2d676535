"""Inspection of databases without changes, and copies of a whole data folder at one moment.

Data that spans two files is written to one and then removed from the other. For example, a promotion goes from a
project to `user.db`, and its undo back. If the files were copied one after the other, a record could be missing in
both. So the write locks of `_meta.db` and `user.db` are held while a read transaction begins on each file. In that
moment no project is created or moved, and nothing is added to or removed from `user.db`. Afterwards all processes write
again, and the copies are made from those transactions.

Pages are copied unchanged. The open transaction keeps SQLite's backup from starting over whenever another process
commits, so that it ends beside any writer. `VACUUM INTO` would take twice as long (0.46 instead of 0.26 seconds for 220
MB) for a file that is 5 % smaller.

The marker of an unfinished restore is here too, for a store that finds its files changed.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast
from uuid import uuid4

import apsw

from everkept.core import disk
from everkept.core.care_results import DatabaseFacts, OwningProject, Progress, UnfinishedOperation, UnfinishedRestore
from everkept.core.disk import create, replace
from everkept.core.locks import FileLock
from everkept.core.projects import Status
from everkept.core.sessions import is_private_name
from everkept.core.text import clip_text, format_count
from everkept.engines.sqlite import project_list
from everkept.engines.sqlite.connection import (
    BusyHandler,
    Connection,
    add_checksums,
    check_kind,
    get_log_path,
    is_disk_full,
    measure_log,
    open_at_rest,
    open_exclusively,
    open_transaction,
    translate_disk_errors,
    translate_errors,
)
from everkept.engines.sqlite.rows import CHECKSUMS
from everkept.engines.sqlite.schema import LIBRARY, PROJECT, Schema
from everkept.errors import EverkeptError, StoreDamaged
from everkept.values import Value, field

STAGE_PREFIX = "restoring-"  # prefix of the folder in which copies are verified
RESTORE_MARKER = "about.json"  # in that folder from the first change on: the backup and the safety copy


def mark_restore(stage: Path, backup: Path, safety: Path | None) -> None:
    """Write the marker of an unfinished restore, before anything is changed."""
    told = {"backup": str(backup), "safety": str(safety) if safety else None}
    replace(stage / RESTORE_MARKER, json.dumps(told).encode("utf-8"))


def unmark_restores(folder: Path) -> None:
    """Remove all markers, including those of earlier interrupted restores. No other restore is running."""
    for about in folder.glob(f"{STAGE_PREFIX}*/{RESTORE_MARKER}"):
        about.unlink()
        shutil.rmtree(about.parent, ignore_errors=True)


def is_restore_unfinished(stage: Path) -> bool:
    return (stage / RESTORE_MARKER).exists()


def find_unfinished_restore(folder: Path) -> UnfinishedRestore | None:
    """Return the newest unfinished restore, or None."""
    found = sorted(folder.glob(f"{STAGE_PREFIX}*/{RESTORE_MARKER}"), key=lambda about: about.stat().st_mtime)
    if not found:
        return None
    try:
        told = json.loads(found[-1].read_text("utf-8"))
        return UnfinishedRestore(folder, str(told["backup"]), told["safety"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return UnfinishedRestore(folder, "FILE", None)


_SELECT_TABLES = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' "
    "AND name NOT LIKE 'sqlite#_%' ESCAPE '#' AND name NOT LIKE 'words#_%' ESCAPE '#' ORDER BY name"
)


def get_schema(name: str) -> Schema:
    """Return the schema of a database with this name in a data folder."""
    return LIBRARY if Path(name).name == "_meta.db" else PROJECT


def open_in_use(path: Path) -> Connection:
    """Open a file that others may use, without creating or migrating it. Closing leaves no other files behind."""
    has_log = measure_log(path) > 0
    connection = cast(Connection, apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE))
    if has_log:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.set_busy_handler(BusyHandler())
    add_checksums(connection)
    try:
        connection.pragma("user_version")
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        connection.close()
        # A write-ahead log cannot be shared in a read-only folder.
        if get_log_path(path).exists():
            raise
        return open_at_rest(path)
    except BaseException as error:
        is_full = is_disk_full(error, connection)
        connection.close()
        if not is_full:
            raise
        connection = open_exclusively(path)
        connection.set_busy_handler(BusyHandler())
        add_checksums(connection)
    return connection


class SchemaDifference(NamedTuple):
    """A part of a database that our schema lacks (`extra`), or that differs from our schema."""

    kind: str  # table, index, trigger or view
    name: str
    problem: Literal["extra", "missing", "changed"]

    @property
    def is_removable(self) -> bool:
        """Whether it holds no data, so that dropping it loses nothing."""
        return self.problem == "extra" and self.kind in ("index", "trigger", "view")

    @property
    def description(self) -> str:
        shown = ascii(clip_text(self.name, 60))[1:-1]
        what = {"extra": "was not created by Everkept", "missing": "is missing", "changed": "was changed"}
        return f'{self.kind} "{shown}" {what[self.problem]}'


def find_schema_differences(db: Connection, schema: Schema) -> list[SchemaDifference]:
    """Compare all tables, indexes, triggers and views with those that our migrations create."""
    found, ours = _list_parts(db), _build_parts(schema, int(db.pragma("user_version")))
    extra = [SchemaDifference(kind, name, "extra") for kind, name in found.keys() - ours.keys()]
    lost = [SchemaDifference(kind, name, "missing") for kind, name in ours.keys() - found.keys()]
    shared = found.keys() & ours.keys()
    changed = [SchemaDifference(*part, "changed") for part in shared if found[part] != ours[part]]
    return [*sorted(extra), *sorted(lost), *sorted(changed)]


def _list_parts(db: Connection) -> dict[tuple[str, str], tuple[str, str | None]]:
    rows = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name <> 'sqlite_stat4'")
    return {
        (str(kind), str(name)): (str(table), None if sql is None else " ".join(str(sql).split()))
        for kind, name, table, sql in rows
    }


@cache
def _build_parts(schema: Schema, version: int) -> dict[tuple[str, str], tuple[str, str | None]]:
    with closing(apsw.Connection(":memory:")) as empty:
        db = cast(Connection, empty)
        add_checksums(db)
        for migration in schema.migrations[: max(version, 0)]:
            db.execute(migration)
        return _list_parts(db)


def _refuse_foreign_parts(db: Connection, schema: Schema, title: str, path: Path) -> None:
    found = find_schema_differences(db, schema)
    if found:
        raise StoreDamaged(f"{title} is not as Everkept creates it: {found[0].description}.", path=str(path))


def read_facts(db: Connection) -> DatabaseFacts:
    tables = [name for (name,) in db.execute(_SELECT_TABLES)]
    rows = {name: int(db.execute(f'SELECT count(*) FROM "{name}"').get) for name in tables}
    newest = db.execute("SELECT coalesce(max(seq), 0) FROM changes").get if "changes" in rows else 0
    return DatabaseFacts(int(db.pragma("user_version")), int(newest), rows)


def read_verified_facts(copy: Path, title: str) -> DatabaseFacts:
    """Return the facts of a copy. Raise StoreDamaged if its schema is not ours, or a full check finds a fault."""
    schema = get_schema(title)
    with translate_errors(copy, schema, title=title), closing(open_at_rest(copy)) as db:
        check_kind(db, copy, schema, title)
        _refuse_foreign_parts(db, schema, title, copy)
        # A wrong row does not make a copy worthless. The doctor reports it.
        found = find_page_faults(db) if schema is LIBRARY else find_faults(db)
        if found:
            raise StoreDamaged(f"{title} is damaged: {found[0]}.", hint=schema.when_damaged)
        return read_facts(db)


def find_faults(db: Connection, *, full: bool = True) -> list[str]:
    """List the faults of a project's database. Without `full`, do not compare indexes."""
    found = find_page_faults(db, full=full)
    unindexed, stale = count_index_faults(db)
    if unindexed:
        found.append(f"the word index lacks {format_count(unindexed, 'record')}")
    if stale:
        found.append(f"the word index has {format_count(stale, 'entry', 'entries')} without a record")
    return found


def find_page_faults(db: Connection, *, full: bool = True) -> list[str]:
    # The check does not notice that another connection has merged the word index since this one last read it, and would
    # call it damaged. A query does notice. A library has no such index.
    with suppress(apsw.SQLError, apsw.CorruptError):
        db.execute("SELECT 1 FROM words WHERE words MATCH 'x' LIMIT 1").fetchall()
    pragma = "integrity_check" if full else "quick_check"
    found = [str(row[0]) for row in db.execute(f"PRAGMA {pragma}") if row[0] != "ok"]
    return found + [f"dangling reference in {row[0]}" for row in db.execute("PRAGMA foreign_key_check")]


def count_index_faults(db: Connection) -> tuple[int, int]:
    """Return the number of live records that the word index lacks, and of its entries without a live record."""
    unindexed = db.execute(
        "SELECT count(*) FROM records r LEFT JOIN words_docsize d ON d.id = r.key "
        "WHERE r.deleted_at IS NULL AND d.id IS NULL"
    ).get
    stale = db.execute(
        "SELECT count(*) FROM words_docsize d LEFT JOIN records r ON r.key = d.id "
        "WHERE r.key IS NULL OR r.deleted_at IS NOT NULL"
    ).get
    return int(unindexed), int(stale)


def find_row_faults(db: Connection) -> list[str]:
    """Describe rows that differ from their checksums, and entries of the log that cannot be read."""
    if int(db.pragma("user_version")) < PROJECT.version:
        return []
    found: list[str] = []
    for table, checksum in CHECKSUMS.items():
        keys = [key for (key,) in db.execute(f"SELECT key FROM {table} WHERE checksum IS NOT {checksum}")]
        if keys:
            verb = "differs from its checksum" if len(keys) == 1 else "differ from their checksums"
            ids = db.execute(f"SELECT CAST(id AS BLOB) FROM {table} WHERE key IN ({keys[0]}, {keys[-1]})").fetchall()
            named = " and ".join(ascii(bytes(row[0] or b"").decode("utf-8", "replace"))[1:-1] for row in ids)
            found.append(f"{format_count(len(keys), table[:-1])} {verb} ({named})")
    unreadable = db.execute(_COUNT_UNREADABLE_EDITS).get
    if unreadable:
        found.append(f"{format_count(unreadable, 'entry', 'entries')} of the change log cannot be read")
    return found


def find_value_faults(db: Connection) -> list[str]:
    """Describe values that a table without checksums cannot have: of another type, no text, or no time."""
    tables = [name for (name,) in db.execute(_SELECT_TABLES) if name not in CHECKSUMS]
    found: list[str] = []
    for table in tables:
        for _, column, kind, is_required, _, place in db.execute(f'PRAGMA table_info("{table}")').fetchall():
            if kind in _VALUE_TYPES:
                empty = "" if is_required or place else ", 'null'"
                wrong = f'SELECT count(*) FROM "{table}" WHERE typeof("{column}") NOT IN (\'{kind.lower()}\'{empty})'
                if count := int(db.execute(wrong).get):
                    found.append(f"{format_count(count, 'row')} of {table} cannot have that {column}")
        try:
            for _ in db.execute(f'SELECT * FROM "{table}"'):
                pass
            if table == "projects":
                project_list.list_projects(db, None)
        except (ValueError, TypeError) as error:
            found.append(f"a row of {table} cannot be read ({error})")
    return found


_VALUE_TYPES = ("TEXT", "INTEGER", "REAL", "BLOB")
_COUNT_UNREADABLE_EDITS = """
SELECT count(*) FROM edits LEFT JOIN changes ON seq = change WHERE seq IS NULL
    OR operation NOT IN ('insert', 'update', 'delete', 'restore') OR subject NOT IN ('record', 'link')
    OR (before IS NOT NULL AND NOT json_valid(before))
"""


@contextmanager
def open_checked(
    path: Path, schema: Schema = PROJECT, *, title: str | None = None
) -> Generator[Connection, None, None]:
    """Open a database without changes. Raise StoreDamaged if it is not one of ours, and StoreTooNew."""
    named = title or path.name
    try:
        with translate_errors(path, schema, title=title), closing(open_in_use(path)) as db:
            check_kind(db, path, schema, named)
            yield db
    except apsw.SQLError as error:  # for example a missing table
        what = f"{named} is damaged, or lacks parts of a {schema.name} database: {error}."
        raise StoreDamaged(what, hint=schema.when_damaged, path=str(path)) from error


META, USER, HISTORY = "_meta.db", "user.db", "history.db"
STEP_PAGES = 2_048  # of 4 KB per step; between two steps the user can interrupt
MAX_OPEN_FILES = 16_384  # for this process: three for each project


def format_project(name: str) -> str:
    """Return the project's name for messages, without the name of a private store."""
    return "the private data of an account" if is_private_name(name) else f'project "{name}"'


class ProjectFile(Value):
    """A project in the catalog. `path` is the path of its file inside the data folder."""

    id: str
    name: str
    status: Status
    path: str
    generation: int
    transition: str | None

    @property
    def title(self) -> str:
        return f"The file of {self.label}"

    @property
    def label(self) -> str:
        """The project's name for messages."""
        return format_project(self.name)


class FolderSnapshot(Value, frozen=False):
    """Read transactions by file path, and the errors of files that cannot be read."""

    databases: dict[str, Connection] = field(default_factory=dict[str, Connection])
    damaged: dict[str, EverkeptError] = field(default_factory=dict[str, EverkeptError])
    projects: list[ProjectFile] = field(default_factory=list[ProjectFile])

    @property
    def owners(self) -> dict[str, OwningProject]:
        """The project of each database, by database name."""
        return get_owners(self.projects)

    def copy(self, name: str, target: Path, report: Progress) -> None:
        copy_to(self.databases[name], target, report)


def get_owners(projects: Iterable[ProjectFile]) -> dict[str, OwningProject]:
    return {kept.path: OwningProject(kept.name, kept.status) for kept in projects}


@contextmanager
def open_snapshot(
    folder: Path, *, lenient: bool = False, is_locked: bool = False
) -> Generator[FolderSnapshot, None, None]:
    """Hold all databases of the folder at one moment until the block ends. Raise UnfinishedOperation during a move.

    An unreadable file is an error; with `lenient` it is listed as damaged. Pass `is_locked` if the caller holds all
    locks.
    """
    allow_many_files()
    with ExitStack() as stack:
        moment = FolderSnapshot()
        with ExitStack() as locks:
            had_user = (folder / USER).exists()
            for name in () if is_locked else (META, USER):
                _lock(locks, folder / name, lenient=lenient)
            _add_database(stack, moment, folder, META, META, lenient=lenient)
            _add_projects(moment, folder / META, lenient=lenient)
            for name, title in _list_others(folder, moment):
                _add_database(stack, moment, folder, name, title, lenient=lenient)
            if (folder / USER).exists() and not had_user:
                raise UnfinishedOperation(f"{USER} was created a moment ago.", hint="Try again.")
        yield moment


def list_project_files(meta: Connection) -> list[ProjectFile]:
    rows = meta.execute("SELECT id, name, status, db_path, generation, transition FROM projects ORDER BY name")
    return [ProjectFile(*row) for row in rows]


def copy_to(source: Connection, path: Path, report: Progress) -> None:
    """Copy all pages to a new file, readable only by its owner."""
    disk.create(path, is_synced=False)
    with translate_errors(path), closing(_open_writable(path)) as target:
        # A copy that a crash interrupts is useless, so there is no need to wait for the disk.
        for pragma in ("journal_mode=OFF", "synchronous=OFF"):
            target.execute(f"PRAGMA {pragma}").fetchall()
        _copy_pages(source, target, report)


def copy_into(live: Path, source: Connection, report: Progress) -> None:
    """Replace the content of a file that others have open, in one transaction. They see it like any commit."""
    with translate_errors(live, get_schema(live.name)), closing(_open_writable(live)) as target:
        target.set_busy_handler(BusyHandler())
        target.execute("PRAGMA synchronous=FULL").fetchall()
        _copy_pages(source, target, report)


def allow_many_files() -> None:
    """Raise the limit of open files as far as the system allows: each database takes three."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _copy_pages(source: Connection, target: Connection, report: Progress) -> None:
    with cast(Any, target).backup("main", source, "main") as copying:
        while not copying.done:
            copying.step(STEP_PAGES)
            report(copying.page_count - copying.remaining, copying.page_count)


def _open_writable(path: Path) -> Connection:
    return cast(Connection, apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE))


def _lock(locks: ExitStack, path: Path, *, lenient: bool) -> None:
    """Block other writers until the locks are released. A read-only folder needs no lock."""
    if not path.exists() or not os.access(path.parent, os.W_OK):
        return
    try:
        with translate_errors(path, get_schema(path.name)):
            connection = open_in_use(path)
            if connection.pragma("locking_mode") == "exclusive":  # the disk is full, and the copy itself will lock it
                connection.close()
                return
            locks.enter_context(closing(connection))
            locks.enter_context(open_transaction(connection))
    except EverkeptError:
        if not lenient:
            raise


def _add_database(
    stack: ExitStack, moment: FolderSnapshot, folder: Path, name: str, title: str, *, lenient: bool
) -> None:
    path, schema = folder / name, get_schema(name)
    try:
        if not path.exists():
            hint = "Run `everkept doctor` to see what to do."
            raise StoreDamaged(f"{title} is missing.", hint=hint, path=str(path))
        with translate_errors(path, schema, title=title):
            connection = stack.enter_context(closing(open_in_use(path)))
            connection.execute("BEGIN")
            check_kind(connection, path, schema, title)
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            moment.databases[name] = connection
    except EverkeptError as error:
        if not lenient:
            raise
        moment.damaged[name] = error


def _add_projects(moment: FolderSnapshot, path: Path, *, lenient: bool) -> None:
    if META not in moment.databases:
        return
    try:
        with translate_errors(path, LIBRARY):
            moment.projects = list_project_files(moment.databases[META])
    except EverkeptError as error:
        if not lenient:
            raise
        moment.damaged[META] = error
        del moment.databases[META]
    for project in [] if lenient else moment.projects:
        if project.transition is not None:
            raise UnfinishedOperation(f'Project "{project.name}" is being moved.', hint="Try again.")


def _list_others(folder: Path, moment: FolderSnapshot) -> list[tuple[str, str]]:
    """Return the databases besides `_meta.db`: the listed projects, or all found files if it is unreadable."""
    owned = [(name, name) for name in (USER, HISTORY) if (folder / name).exists()]
    if META in moment.databases:
        return owned + [(project.path, project.title) for project in moment.projects]
    return owned + [(name, name) for name in list_project_paths(folder)]


def list_databases(folder: Path) -> list[str]:
    """Return the names of all databases in the folder, the catalog first."""
    return [*[name for name in (META, USER, HISTORY) if (folder / name).exists()], *list_project_paths(folder)]


def list_project_paths(folder: Path) -> list[str]:
    """Return the paths of all project files in the folder, listed in the catalog or not."""
    found = [path for part in ("projects", "archive") for path in (folder / part).glob("*.db")]
    return sorted(path.relative_to(folder).as_posix() for path in found)


LOCK_NAME = "in-use.lock"  # locked by the process that works there, until it ends
FRESH_SECONDS = 2.0  # how long a process may take from creating the mark to locking it
STALE_SECONDS = 86_400.0  # without locks, a folder older than this is abandoned


@contextmanager
def open_scratch(
    place: Path, prefix: str, is_kept: Callable[[Path], bool] = lambda _: False
) -> Generator[Path, None, None]:
    """Create a folder with this prefix. Remove it after the block unless `is_kept`, and those of dead processes."""
    for left in list_abandoned(place, prefix):
        _remove(left, is_kept)
    with translate_disk_errors(place):
        folder = place / f"{prefix}{uuid4().hex}"
        folder.mkdir(mode=0o700)
    try:
        lock = _lock_folder(folder)
        try:
            yield folder
        finally:
            lock.release()
    finally:
        _remove(folder, is_kept)


def list_abandoned(place: Path, prefix: str) -> list[Path]:
    """Return the folders whose process has ended."""
    return [folder for folder in sorted(place.glob(f"{prefix}*")) if _is_abandoned(folder)]


def _lock_folder(folder: Path) -> FileLock:
    mark = folder / LOCK_NAME
    with translate_disk_errors(mark):
        create(mark, is_synced=False)
    lock = FileLock(mark)
    with suppress(OSError):  # a file system without locks: only the age of the folder counts
        lock.take()
    return lock


def _is_abandoned(folder: Path) -> bool:
    mark = folder / LOCK_NAME
    try:
        if not mark.exists():
            return _get_age(folder) > STALE_SECONDS
        if _get_age(mark) < FRESH_SECONDS:
            return False
        lock = FileLock(mark)
        is_free = lock.take()
        lock.release()
    except OSError:
        return folder.exists() and _get_age(folder) > STALE_SECONDS
    return is_free


def _get_age(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def _remove(folder: Path, is_kept: Callable[[Path], bool]) -> None:
    if not is_kept(folder):
        shutil.rmtree(folder, ignore_errors=True)
