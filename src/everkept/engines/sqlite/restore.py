"""Restore of a data folder from a backup while servers have it open, `_meta.db` last.

No open file is moved or deleted. Each file gets its new pages in its own transaction, which other processes see like
any other commit. The generation of each file grows. So such a process writes nothing that is based on the old data, and
discards its caches. The numbers of changes and vectors continue after the highest ever used, so that no number ever has
two meanings.

All write locks are held from before the safety copy on. A file is frozen when its lock is released for its new pages.
So every acknowledged write is in the safety copy, or came after the restore.

Decisions since the backup stay in force. Projects that are off stay off, with all their off periods. Tokens, accounts
and grants are the current ones, so that no revoked one is valid again, and none that a stranger added to the backup;
the caller can ask for those of the backup. The private data of an account that does not exist is not restored, even if
another account has its name now. Notes with the caller's prefixes are kept.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import apsw

from everkept.core.care_results import OmittedAccess, Progress, RestoredProject, RestorePreview
from everkept.core.disk import make_folder
from everkept.core.projects import OffHistory
from everkept.core.sessions import ENDED_ACCESS, GRANT_NOTE_PREFIX, NOTE_PREFIX, USER_NOTE_PREFIX, is_orphaned_private
from everkept.core.text import parse_json_object
from everkept.core.times import Clock, format_iso
from everkept.engines.sqlite import project_list, snapshot
from everkept.engines.sqlite.connection import (
    Connection,
    connect,
    create,
    fold,
    open_transaction,
    translate_disk_errors,
    translate_errors,
    unlink_logs,
)
from everkept.engines.sqlite.library import choose_free_name, create_library, create_store
from everkept.engines.sqlite.project_lifecycle import ProjectPaths
from everkept.engines.sqlite.project_list import list_workspaces, read_off_history, write_off_history
from everkept.engines.sqlite.schema import LIBRARY, PROJECT
from everkept.engines.sqlite.snapshot import (
    HISTORY,
    META,
    USER,
    ProjectFile,
    allow_many_files,
    copy_into,
    get_schema,
    list_databases,
    list_project_files,
    open_at_rest,
    open_scratch,
)
from everkept.engines.sqlite.store import DELETED_GENERATION, read_generation
from everkept.errors import EverkeptError, StoreBusy, StoreDamaged
from everkept.values import Value, field, replace

_TOKEN_COLUMNS = "id, label, secret_hash, created_at"


class _SwitchedProject(Value):
    """A project that is or was off. A deleted project has no name."""

    id: str
    name: str | None
    description: str
    created_at: str
    switching: OffHistory
    folders: tuple[str, ...]

    @property
    def is_off(self) -> bool:
        """Whether the project is off, or was off when it was deleted."""
        return self.switching.off_since is not None

    @property
    def past_off_history(self) -> OffHistory:
        """The off history, which ends with the deletion if the project was deleted."""
        if self.name is not None:
            return self.switching
        ended = self.switching.with_switch(off=False, at=self.switching.deleted_at or 0)
        return replace(ended, folders=(), deleted_at=None)


def keep_decisions(now: Connection, prepared: Path, prefixes: Sequence[str], at: int) -> None:
    """Copy decisions from the current catalog."""
    with translate_errors(prepared), closing(connect(prepared, LIBRARY)) as db, open_transaction(db):
        for prefix in prefixes:
            notes = project_list.list_notes(now, prefix)
            db.executemany("INSERT OR IGNORE INTO notes VALUES (?,?)", list(notes.items()))
        for switched in _list_switched(now):
            _keep_off(db, prepared.parent, switched, at)


def list_off_projects(prepared: Path) -> list[str]:
    """Return the names of projects that are off according to this catalog."""
    with translate_errors(prepared), closing(connect(prepared, LIBRARY)) as db:
        return [project.name for project in project_list.list_projects(db, None) if project.is_off]


def should_be_off(now: Connection, before: Path | None, project_id: str, name: str) -> bool:
    """Return whether a project that is restored beside others must be turned off.

    It must if it is off, if it was off when it was deleted, or if a project with its name is off. Otherwise the catalog
    of the backup decides.
    """
    known = project_list.find_project(now, name)
    if known is not None and known.project.is_off:
        return True
    switching = read_off_history(now, project_id)
    if before is not None:
        with translate_errors(before), closing(connect(before, LIBRARY)) as db:
            switching = switching.merge(read_off_history(db, project_id))
    return switching.off_since is not None


def keep_access(now: Connection | None, prepared: Path) -> OmittedAccess:
    """Give the prepared catalog the current tokens, accounts and grants, or none if these are unknown.

    A stranger who can change a backup could add a token to it. Return what this omits.
    """
    select = f"SELECT {_TOKEN_COLUMNS} FROM tokens"
    with translate_errors(prepared), closing(connect(prepared, LIBRARY)) as db, open_transaction(db):
        tokens = [] if now is None else now.execute(select).fetchall()
        omitted = {row[0] for row in db.execute(select)} - {row[0] for row in tokens}
        db.execute("DELETE FROM tokens")
        db.executemany(f"INSERT INTO tokens({_TOKEN_COLUMNS}) VALUES (?,?,?,?)", tokens)
        # The owner of a token and the access of that user belong together.
        before = project_list.list_notes(db, NOTE_PREFIX)
        db.executemany("DELETE FROM notes WHERE key = ?", [(key,) for key in before])
        accounts: Mapping[str, str] = {} if now is None else project_list.list_notes(now, NOTE_PREFIX)
        db.executemany("INSERT INTO notes VALUES (?,?)", list(accounts.items()))
        homes = [
            (each.id,)
            for each in project_list.list_projects(db, None)
            if is_orphaned_private(each.name, before, accounts)
        ]
        db.executemany("DELETE FROM projects WHERE id = ?", homes)
    lost = {key: note for key, note in before.items() if key not in accounts}
    users = [key for key in lost if key.startswith(USER_NOTE_PREFIX)]
    grants = [key for key, note in lost.items() if key.startswith(GRANT_NOTE_PREFIX) and not _is_revoked(note)]
    return OmittedAccess(len(omitted), len(users), len(grants))


def _is_revoked(grant: str) -> bool:
    """Return whether a grant only keeps the name of a project reserved."""
    fields = parse_json_object(grant)
    return fields is None or fields.get("access") == ENDED_ACCESS


def _list_switched(now: Connection) -> list[_SwitchedProject]:
    found: list[_SwitchedProject] = []
    for key in project_list.list_notes(now, project_list.OFF_HISTORY_PREFIX):
        project_id = key.removeprefix(project_list.OFF_HISTORY_PREFIX)
        switching = read_off_history(now, project_id)
        row = now.execute("SELECT name, description, created_at FROM projects WHERE id = ?", (project_id,)).get
        name, description, created_at = row or (None, "", "")
        folders = switching.folders if row is None else tuple(list_workspaces(now, project_id))
        found.append(_SwitchedProject(project_id, name, description, created_at, switching, folders))
    return found


def _keep_off(db: Connection, stage: Path, switched: _SwitchedProject, at: int) -> None:
    heirs = _find_successors(db, switched)
    is_back = switched.id in heirs
    if not is_back and switched.name is None:
        write_off_history(db, switched.id, switched.switching)
        return
    if not heirs and switched.is_off:
        _create_empty_project(db, stage, switched)
        heirs, is_back = [switched.id], True
    if is_back:
        write_off_history(db, switched.id, switched.past_off_history.merge(read_off_history(db, switched.id)))
    for heir in heirs[:1] if switched.is_off else []:
        rows = [(folder, heir) for folder in switched.folders]
        db.executemany("INSERT OR IGNORE INTO workspaces VALUES (?,?)", rows)
    _keep_off_periods(db, switched, at, is_back=is_back)
    for heir in heirs if switched.is_off else []:
        write_off_history(db, heir, read_off_history(db, heir).with_switch(off=True, at=at))


def _find_successors(db: Connection, switched: _SwitchedProject) -> list[str]:
    """Return the same project, and those that have its name or folders. They must be off now."""
    rows = db.execute(
        "SELECT id FROM projects WHERE id = ?1 OR name = ?2 ORDER BY id <> ?1", (switched.id, switched.name)
    )
    found = [str(project_id) for (project_id,) in rows]
    for folder in switched.folders:
        owner = db.execute("SELECT project FROM workspaces WHERE path = ?", (folder,)).get
        found += [owner] if owner is not None and switched.name is not None else []
    return list(dict.fromkeys(found))


def _keep_off_periods(db: Connection, switched: _SwitchedProject, at: int, *, is_back: bool) -> None:
    """Keep the off periods of folders that now belong to another project, as for a deleted project."""
    own = list_workspaces(db, switched.id)
    others = [folder for folder in switched.folders if folder not in own]
    if others:
        key = str(uuid4()) if is_back else switched.id
        write_off_history(db, key, switched.past_off_history.with_deletion(others, at))


def _create_empty_project(db: Connection, stage: Path, switched: _SwitchedProject) -> None:
    """Create an empty project that is off, so that its folders stay off."""
    path = f"projects/{switched.id}.db"
    name = str(switched.name)
    make_folder((stage / path).parent)
    facts = {"name": name, "description": switched.description, "created_at": switched.created_at}
    create(stage / path, PROJECT, facts)
    db.execute(
        "INSERT INTO projects(id, name, description, db_path, created_at, updated_at) VALUES (?1,?2,?3,?4,?5,?5)",
        (switched.id, name, switched.description, path, switched.created_at),
    )


FOLD_SECONDS = 1.0


class StoreNumbers(NamedTuple):
    """The highest numbers that a store has used."""

    generation: int = 0
    change: int = 0
    vector: int = 0

    def merge_highest(self, other: "StoreNumbers") -> "StoreNumbers":
        return StoreNumbers(*map(max, self, other))


class LockedFiles(Value, frozen=False):
    """The files of a data folder, each with its write lock. Damaged files have none."""

    folder: Path
    databases: dict[str, Connection] = field(default_factory=dict[str, Connection])
    damaged: dict[str, EverkeptError] = field(default_factory=dict[str, EverkeptError])
    projects: list[ProjectFile] = field(default_factory=list[ProjectFile])
    holds_records: bool = False
    _numbers: dict[str, StoreNumbers] = field(default_factory=dict[str, StoreNumbers])

    @property
    def is_empty(self) -> bool:
        """Whether there is no data that could be lost."""
        return not (self.damaged or self.projects or self.holds_records)

    def add(self, name: str, connection: Connection) -> None:
        if name == META:
            self.projects = list_project_files(connection)
        else:
            self._numbers[name] = read_numbers(connection)
            any_record = connection.execute("SELECT EXISTS(SELECT 1 FROM records)").get
            self.holds_records = self.holds_records or bool(any_record)
        self.databases[name] = connection

    def get_numbers(self, name: str) -> StoreNumbers:
        """Return the numbers of a store, or zeros if it is damaged or missing."""
        return self._numbers.get(name, StoreNumbers())

    def release(self, name: str, generation: int) -> None:
        """End the lock. The file has this generation from the last moment of the lock on."""
        connection = self.databases.pop(name)
        _set_generation(connection, generation)
        connection.execute("COMMIT")
        connection.close()


@contextmanager
def lock_files(folder: Path) -> Generator[LockedFiles, None, None]:
    """Prevent other processes from writing in the folder until the block ends. Raise StoreBusy."""
    allow_many_files()
    live = LockedFiles(folder)
    with ExitStack() as stack:
        for name in list_databases(folder):
            try:
                stack.callback(_release, _lock(live, name))
            except StoreBusy:
                raise
            except EverkeptError as error:
                live.damaged[name] = error
        yield live


def _lock(live: LockedFiles, name: str) -> Connection:
    path, schema = live.folder / name, get_schema(name)
    connection = connect(path, schema)
    try:
        with translate_errors(path, schema):
            connection.execute("BEGIN IMMEDIATE")
            live.add(name, connection)
    except BaseException:
        _release(connection)
        raise
    return connection


def _release(connection: Connection) -> None:
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except apsw.ConnectionClosedError:
        return  # it was released before
    connection.close()


def read_numbers(db: Connection) -> StoreNumbers:
    given = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").get
    vector = db.execute("SELECT value FROM meta WHERE key = 'vectors'").get
    return StoreNumbers(abs(read_generation(db)), int(given or 0), int(vector or 0))


def prepare_store(path: Path, numbers: StoreNumbers, *, archived: bool = False) -> int:
    """Prepare a copy that will replace a store. Return its new generation."""
    with translate_errors(path), closing(connect(path, PROJECT)) as db:
        reached = read_numbers(db).merge_highest(numbers)
        generation = reached.generation + 1
        _set_generation(db, -generation if archived else generation)
        db.execute("UPDATE meta SET value = ? WHERE key = 'vectors'", (reached.vector,))
        # SQLite's own table has no row before the first change.
        db.execute("DELETE FROM sqlite_sequence WHERE name = 'changes'")
        db.execute("INSERT INTO sqlite_sequence VALUES ('changes', ?)", (reached.change,))
    return generation


def drop_lost_projects(path: Path) -> None:
    """Remove projects from a catalog whose files are missing in the backup."""
    with translate_errors(path), closing(connect(path, LIBRARY)) as db, open_transaction(db):
        lost = [(kept.id,) for kept in list_project_files(db) if not (path.parent / kept.path).exists()]
        db.executemany("DELETE FROM projects WHERE id = ?", lost)


def prepare_catalog(path: Path, generations: Mapping[str, int]) -> None:
    with translate_errors(path), closing(connect(path, LIBRARY)) as db, open_transaction(db):
        db.executemany("UPDATE projects SET generation = ?2 WHERE id = ?1", list(generations.items()))


def add_project(
    folder: Path, prepared: Path, like: ProjectFile, at: int, before: Path | None = None
) -> RestoredProject:
    """Add a new project with the content of the file. `before` is the catalog that the file is from."""
    project_id = str(uuid4())
    path = ProjectPaths(folder, project_id, like.name).active_path
    with (
        translate_errors(folder / META, LIBRARY),
        closing(connect(folder / META, LIBRARY)) as meta,
        open_transaction(meta),
    ):
        is_off = should_be_off(meta, before, like.id, like.name)
        name = choose_free_name(meta, project_id, like.name)
        with translate_errors(prepared), closing(connect(prepared, PROJECT)) as db:
            told = {str(key): value for key, value in db.execute("SELECT key, value FROM meta")}
            db.execute("INSERT OR REPLACE INTO meta VALUES ('name', ?)", (name,))
        meta.execute(
            "INSERT INTO projects(id, name, description, db_path, created_at, updated_at, "
            "generation) VALUES (?,?,?,?,?,?,?)",
            (
                project_id,
                name,
                str(told.get("description") or ""),
                f"projects/{path.name}",
                str(told.get("created_at") or format_iso(at)),
                format_iso(at),
                abs(int(told["generation"])),
            ),
        )
        if is_off:
            write_off_history(meta, project_id, OffHistory(((at, None),)))
        prepared.replace(path)
    return RestoredProject(name, is_off)


def put_store(live: LockedFiles, name: str, prepared: Path, report: Progress) -> None:
    if name in live.databases:
        live.release(name, -live.get_numbers(name).generation)
    _put_file(live.folder / name, prepared, report)


def put_catalog(live: LockedFiles, prepared: Path) -> None:
    """Replace the catalog row by row, in the transaction that has locked it since the beginning."""
    path = live.folder / META
    if META not in live.databases:
        _put_file(path, prepared, lambda _done, _total: None)
        return
    connection = live.databases.pop(META)
    with translate_errors(path, LIBRARY), closing(open_at_rest(prepared)) as source:
        tables = _list_tables(source)
        for table in reversed(tables):
            connection.execute(f"DELETE FROM {table}")
        for table in tables:
            rows = source.execute(f"SELECT * FROM {table}").fetchall()
            marks = ",".join("?" * len(rows[0])) if rows else ""
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        connection.execute("COMMIT")
    connection.close()
    prepared.unlink()


def mark_deleted(live: LockedFiles, names: Sequence[str]) -> None:
    """Close these files to writers. They are removed once the catalog no longer lists them."""
    for name in names:
        if name in live.databases:
            live.release(name, DELETED_GENERATION)


def remove_files(folder: Path, names: Sequence[str]) -> list[str]:
    """Remove files. Return those that cannot be removed yet, for example on Windows while a process has them open."""
    left: list[str] = []
    for name in names:
        path = folder / name
        try:
            path.unlink(missing_ok=True)
            unlink_logs(path)
        except OSError:
            left.append(name)
    return left


def fold_all(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        fold(folder / name, get_schema(name), FOLD_SECONDS)


def _put_file(path: Path, prepared: Path, report: Progress) -> None:
    """Replace the pages of a file that others may have open. A missing file is created by a rename."""
    try:
        if path.exists():
            with closing(open_at_rest(prepared)) as source:
                copy_into(path, source, report)
            prepared.unlink()
            return
    except StoreDamaged:
        pass  # the file is not a database, and no process writes to it
    unlink_logs(path)
    prepared.replace(path)


def _set_generation(db: Connection, generation: int) -> None:
    db.execute("UPDATE meta SET value = ? WHERE key = 'generation'", (generation,))


def _list_tables(db: Connection) -> list[str]:
    """Return the tables, those that others refer to first."""
    rows = db.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' "
        "AND name NOT LIKE 'sqlite#_%' ESCAPE '#' ORDER BY name <> 'projects', name"
    )
    return [str(name) for (name,) in rows]


class LockedFolder:
    """Data folder in which no other process writes."""

    def __init__(self, live: LockedFiles) -> None:
        self._live = live

    @property
    def is_empty(self) -> bool:
        """Whether there is no data that could be lost."""
        return self._live.is_empty

    def prepare(
        self,
        stage: Path,
        backup: Path,
        safety: Path | None,
        kept_notes: Sequence[str],
        at: int,
        *,
        with_access: bool = False,
    ) -> RestorePreview:
        """Prepare the copies in the stage for replacing the databases. From now on the restore is unfinished.

        Decisions since the backup stay: turned-off projects, and notes with these prefixes. Tokens, accounts and
        grants stay too, unless those of the backup are restored `with_access`.
        """
        live, meta = self._live, stage / META
        drop_lost_projects(meta)
        now = live.databases.get(META)
        omitted = OmittedAccess() if with_access else keep_access(now, meta)
        if now is not None:
            keep_decisions(now, meta, kept_notes, at)
        off = list_off_projects(meta)
        self._renumber(stage)
        snapshot.mark_restore(stage, backup, safety)
        return RestorePreview(off, decisions_lost=now is None, omitted=omitted)

    def put(self, stage: Path, report: Progress) -> list[str]:
        """Give each database its new content. Return the files that cannot be removed yet."""
        live = self._live
        names = [*(kept.path for kept in _list_stage_projects(stage)), USER, HISTORY]
        gone = [kept.path for kept in live.projects if kept.path not in names]
        for number, name in enumerate(names):
            put_store(live, name, stage / name, lambda _done, _total: None)
            report(number + 1, len(names) + 1)
        mark_deleted(live, gone)
        put_catalog(live, stage / META)
        snapshot.unmark_restores(live.folder)
        report(len(names) + 1, len(names) + 1)
        fold_all(live.folder, [META, *names])
        return remove_files(live.folder, gone)

    def _renumber(self, stage: Path) -> None:
        """Prepare the copies, with higher numbers than those of the files they replace."""
        there = {kept.id: kept for kept in self._live.projects}
        generations: dict[str, int] = {}
        for kept in _list_stage_projects(stage):
            numbers = self._live.get_numbers(kept.path)
            if before := there.get(kept.id):
                known = StoreNumbers(generation=before.generation)
                numbers = numbers.merge_highest(self._live.get_numbers(before.path)).merge_highest(known)
            generations[kept.id] = prepare_store(stage / kept.path, numbers, archived=kept.status == "archived")
        for name in (USER, HISTORY):
            if not (stage / name).exists():
                create(stage / name, PROJECT)
            prepare_store(stage / name, self._live.get_numbers(name))
        prepare_catalog(stage / META, generations)


def restore_project(folder: Path, copy: Path, name: str, before: Path | None, at: int) -> RestoredProject:
    generation = prepare_store(copy, StoreNumbers())
    like = ProjectFile(copy.stem, name, "active", f"projects/{copy.name}", generation, None)
    return add_project(folder, copy, like, at, before)


def create_missing_files(folder: Path, clock: Clock) -> None:
    """Create missing files that every data folder has."""
    with translate_disk_errors(folder):
        for part in ("projects", "archive"):
            make_folder(folder / part)
        if not (folder / META).exists():
            create_library(folder, clock)
        for name in (USER, HISTORY):
            if not (folder / name).exists():
                create_store(folder / name)


@contextmanager
def open_stage(folder: Path) -> Generator[Path, None, None]:
    """Yield a folder for the copies to verify. It stays only if a restore is interrupted."""
    with translate_disk_errors(folder):
        make_folder(folder)
    with open_scratch(folder, snapshot.STAGE_PREFIX, snapshot.is_restore_unfinished) as stage:
        yield stage


def _list_stage_projects(stage: Path) -> list[ProjectFile]:
    with closing(open_at_rest(stage / META)) as meta:
        return list_project_files(meta)
