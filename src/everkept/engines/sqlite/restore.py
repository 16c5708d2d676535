"""Restore of a data folder from a backup while servers have it open, `_meta.db` last.

Nothing is moved or deleted under anybody: each file gets its new pages in a transaction of its
own, which a process that has it open sees like any other commit. The generation of each grows, so
that such a process writes nothing that rests on what was there before, and begins anew with what
it remembers of it; and the numbers of changes and vectors go on behind the highest ever given, so
that none of them ever means two things.

All write locks are held from before the safety copy on, and a file is frozen as its lock is let go
for its pages: so whatever was acknowledged is in the safety copy, or came after.

What was decided since the backup was made holds. What is off stays off, with all the times that it
was off; tokens, accounts and grants are those of now, so that none that was revoked is valid again,
and what was a removed account's alone does not come back, whoever has its name by now; and notes of
the kinds that the caller names are kept.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import apsw

from everkept.core.care import Added, Prepared, Progress
from everkept.core.disk import make_folder
from everkept.core.projects import Switching
from everkept.core.sessions import NOTES, is_anothers
from everkept.core.times import Clock, iso
from everkept.engines.sqlite import project_list, snapshot
from everkept.engines.sqlite.connection import (
    Connection,
    connect,
    create,
    fold,
    transaction,
    translated,
    unlink_logs,
    usable,
)
from everkept.engines.sqlite.library import free_name, make_library, make_store
from everkept.engines.sqlite.project_lifecycle import Place
from everkept.engines.sqlite.project_list import folders_of, keep_switching, switching_of
from everkept.engines.sqlite.schema import LIBRARY, PROJECT
from everkept.engines.sqlite.snapshot import (
    HISTORY,
    META,
    USER,
    Kept,
    allow_many_files,
    at_rest,
    catalogue,
    copy_into,
    project_files,
    schema_of,
    scratch,
)
from everkept.engines.sqlite.store import DELETED_GENERATION, generation_of
from everkept.errors import EverkeptError, StoreBusy, StoreDamaged
from everkept.values import Value, field, replace

_TOKENS = "id, label, secret_hash, created_at"


class _Switched(Value):
    """A project that is off, or was. One that is deleted has no name any more."""

    id: str
    name: str | None
    description: str
    created_at: str
    switching: Switching
    folders: tuple[str, ...]

    @property
    def is_off(self) -> bool:
        """Or was, when it was deleted."""
        return self.switching.off_since is not None

    @property
    def left(self) -> Switching:
        """What is known of one that was deleted ends there."""
        if self.name is not None:
            return self.switching
        ended = self.switching.switched(off=False, at=self.switching.deleted_at or 0)
        return replace(ended, folders=(), deleted_at=None)


def keep_decisions(
    now: Connection, prepared: Path, prefixes: Sequence[str], at: int, *, was_empty: bool
) -> None:
    """Takes them from the catalogue of now into the one that will replace it.

    A folder that `was_empty` and has no token gets those of the backup, with the accounts.
    """
    with translated(prepared), closing(connect(prepared, LIBRARY)) as db, transaction(db):
        _keep_tokens(now, db, was_empty=was_empty)
        for prefix in prefixes:
            notes = project_list.notes(now, prefix)
            db.executemany("INSERT OR IGNORE INTO notes VALUES (?,?)", list(notes.items()))
        for switched in _switched_of(now):
            _keep(db, prepared.parent, switched, at)


def switched_off(prepared: Path) -> list[str]:
    """The names of projects that are, by this catalogue."""
    with translated(prepared), closing(connect(prepared, LIBRARY)) as db:
        return [project.name for project in project_list.projects(db, None) if project.is_off]


def is_to_be_off(now: Connection, before: Path | None, project_id: str, name: str) -> bool:
    """Whether a project that comes back beside others does so switched off.

    That is so where it is off, was off when it was deleted, or one of its name is; else, as the
    catalogue of the backup has it.
    """
    known = project_list.named(now, name)
    if known is not None and known.project.is_off:
        return True
    switching = switching_of(now, project_id)
    if before is not None:
        with translated(before), closing(connect(before, LIBRARY)) as db:
            switching = switching.united(switching_of(db, project_id))
    return switching.off_since is not None


def _keep_tokens(now: Connection, db: Connection, *, was_empty: bool) -> None:
    tokens = now.execute(f"SELECT {_TOKENS} FROM tokens").fetchall()
    if tokens or not was_empty:
        db.execute("DELETE FROM tokens")
        db.executemany(f"INSERT INTO tokens({_TOKENS}) VALUES (?,?,?,?)", tokens)
        # Whose a token is and what that user sees belongs together.
        before = project_list.notes(db, NOTES)
        db.executemany("DELETE FROM notes WHERE key = ?", [(key,) for key in before])
        accounts = project_list.notes(now, NOTES)
        db.executemany("INSERT INTO notes VALUES (?,?)", list(accounts.items()))
        homes = [
            (each.id,)
            for each in project_list.projects(db, None)
            if is_anothers(each.name, before, accounts)
        ]
        db.executemany("DELETE FROM projects WHERE id = ?", homes)


def _switched_of(now: Connection) -> list[_Switched]:
    found: list[_Switched] = []
    for key in project_list.notes(now, project_list.SWITCHED):
        project_id = key.removeprefix(project_list.SWITCHED)
        switching = switching_of(now, project_id)
        row = now.execute(
            "SELECT name, description, created_at FROM projects WHERE id = ?", (project_id,)
        ).get
        name, description, created_at = row or (None, "", "")
        folders = switching.folders if row is None else tuple(folders_of(now, project_id))
        found.append(_Switched(project_id, name, description, created_at, switching, folders))
    return found


def _keep(db: Connection, stage: Path, switched: _Switched, at: int) -> None:
    heirs = _heirs(db, switched)
    is_back = switched.id in heirs
    if not is_back and switched.name is None:
        keep_switching(db, switched.id, switched.switching)
        return
    if not heirs and switched.is_off:
        _make_anew(db, stage, switched)
        heirs, is_back = [switched.id], True
    if is_back:
        before = switching_of(db, switched.id)
        keep_switching(db, switched.id, switched.left.united(before))
    for heir in heirs[:1] if switched.is_off else []:
        rows = [(folder, heir) for folder in switched.folders]
        db.executemany("INSERT OR IGNORE INTO workspaces VALUES (?,?)", rows)
    _keep_silences_elsewhere(db, switched, at, is_back=is_back)
    for heir in heirs if switched.is_off else []:
        keep_switching(db, heir, switching_of(db, heir).switched(off=True, at=at))


def _heirs(db: Connection, switched: _Switched) -> list[str]:
    """The same project, else whichever has its name or its folders: those are off now."""
    rows = db.execute(
        "SELECT id FROM projects WHERE id = ?1 OR name = ?2 ORDER BY id <> ?1",
        (switched.id, switched.name),
    )
    found = [str(project_id) for (project_id,) in rows]
    for folder in switched.folders:
        owner = db.execute("SELECT project FROM workspaces WHERE path = ?", (folder,)).get
        found += [owner] if owner is not None and switched.name is not None else []
    return list(dict.fromkeys(found))


def _keep_silences_elsewhere(
    db: Connection, switched: _Switched, at: int, *, is_back: bool
) -> None:
    """Of folders that another project has then: as of a project that was deleted."""
    own = folders_of(db, switched.id)
    others = [folder for folder in switched.folders if folder not in own]
    if others:
        key = str(uuid4()) if is_back else switched.id
        keep_switching(db, key, switched.left.leaving(others, at))


def _make_anew(db: Connection, stage: Path, switched: _Switched) -> None:
    """Without anything in it: the folders that were off have a project that is."""
    path = f"projects/{switched.id}.db"
    name = str(switched.name)
    make_folder((stage / path).parent)
    facts = {
        "name": name,
        "description": switched.description,
        "created_at": switched.created_at,
    }
    create(stage / path, PROJECT, facts)
    db.execute(
        "INSERT INTO projects(id, name, description, db_path, created_at, updated_at) "
        "VALUES (?1,?2,?3,?4,?5,?5)",
        (switched.id, name, switched.description, path, switched.created_at),
    )


FOLD_PATIENCE = 1.0  # seconds


class Numbers(NamedTuple):
    """The highest that a store has given out of each."""

    generation: int = 0
    change: int = 0
    vector: int = 0

    def beyond(self, other: "Numbers") -> "Numbers":
        return Numbers(*map(max, self, other))


class Live(Value, frozen=False):
    """The files of a data folder, each with its write lock; damaged ones have none."""

    folder: Path
    databases: dict[str, Connection] = field(default_factory=dict[str, Connection])
    damaged: dict[str, EverkeptError] = field(default_factory=dict[str, EverkeptError])
    projects: list[Kept] = field(default_factory=list[Kept])
    holds_records: bool = False
    _numbers: dict[str, Numbers] = field(default_factory=dict[str, Numbers])

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that could be lost."""
        return not (self.damaged or self.projects or self.holds_records)

    def learn(self, name: str, connection: Connection) -> None:
        if name == META:
            self.projects = catalogue(connection)
        else:
            self._numbers[name] = numbers_of(connection)
            any_record = connection.execute("SELECT EXISTS(SELECT 1 FROM records)").get
            self.holds_records = self.holds_records or bool(any_record)
        self.databases[name] = connection

    def numbers(self, name: str) -> Numbers:
        """None are known of what is damaged, or not there."""
        return self._numbers.get(name, Numbers())

    def let_go(self, name: str, generation: int) -> None:
        """Ends the lock; from its last moment on the file has this generation."""
        connection = self.databases.pop(name)
        _set_generation(connection, generation)
        connection.execute("COMMIT")
        connection.close()


@contextmanager
def locked(folder: Path) -> Generator[Live, None, None]:
    """Nobody else writes in the folder until the block ends. Raises StoreBusy."""
    allow_many_files()
    live = Live(folder)
    with ExitStack() as stack:
        names = [name for name in (META, USER, HISTORY) if (folder / name).exists()]
        for name in [*names, *project_files(folder)]:
            try:
                stack.callback(_release, _lock(live, name))
            except StoreBusy:
                raise
            except EverkeptError as error:
                live.damaged[name] = error
        yield live


def _lock(live: Live, name: str) -> Connection:
    path, schema = live.folder / name, schema_of(name)
    connection = connect(path, schema)
    try:
        with translated(path, schema):
            connection.execute("BEGIN IMMEDIATE")
            live.learn(name, connection)
    except BaseException:
        _release(connection)
        raise
    return connection


def _release(connection: Connection) -> None:
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except apsw.ConnectionClosedError:
        return  # it was let go before
    connection.close()


def numbers_of(db: Connection) -> Numbers:
    given = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").get
    vector = db.execute("SELECT value FROM meta WHERE key = 'vectors'").get
    return Numbers(abs(generation_of(db)), int(given or 0), int(vector or 0))


def prepare_store(path: Path, numbers: Numbers, *, archived: bool = False) -> int:
    """Brings a copy that is to replace a store up to date; gives its new generation."""
    with translated(path), closing(connect(path, PROJECT)) as db:
        reached = numbers_of(db).beyond(numbers)
        generation = reached.generation + 1
        _set_generation(db, -generation if archived else generation)
        db.execute("UPDATE meta SET value = ? WHERE key = 'vectors'", (reached.vector,))
        # A table of SQLite's own that has no row before the first change.
        db.execute("DELETE FROM sqlite_sequence WHERE name = 'changes'")
        db.execute("INSERT INTO sqlite_sequence VALUES ('changes', ?)", (reached.change,))
    return generation


def leave_out_lost(path: Path) -> None:
    """Of a catalogue, the projects whose files are not there to be put back."""
    with translated(path), closing(connect(path, LIBRARY)) as db, transaction(db):
        lost = [(kept.id,) for kept in catalogue(db) if not (path.parent / kept.path).exists()]
        db.executemany("DELETE FROM projects WHERE id = ?", lost)


def prepare_catalogue(path: Path, generations: Mapping[str, int]) -> None:
    with translated(path), closing(connect(path, LIBRARY)) as db, transaction(db):
        db.executemany(
            "UPDATE projects SET generation = ?2 WHERE id = ?1", list(generations.items())
        )


def add_project(
    folder: Path, prepared: Path, like: Kept, at: int, before: Path | None = None
) -> Added:
    """A project of its own beside the others, with the content of the file.

    `before` is the catalogue that the file is from.
    """
    project_id = str(uuid4())
    path = Place(folder, project_id, like.name).active
    with (
        translated(folder / META, LIBRARY),
        closing(connect(folder / META, LIBRARY)) as meta,
        transaction(meta),
    ):
        is_off = is_to_be_off(meta, before, like.id, like.name)
        name = free_name(meta, project_id, like.name)
        with translated(prepared), closing(connect(prepared, PROJECT)) as db:
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
                str(told.get("created_at") or iso(at)),
                iso(at),
                abs(int(told["generation"])),
            ),
        )
        if is_off:
            keep_switching(meta, project_id, Switching(((at, None),)))
        prepared.replace(path)
    return Added(name, is_off)


def put_store(live: Live, name: str, prepared: Path, report: Progress) -> None:
    if name in live.databases:
        live.let_go(name, -live.numbers(name).generation)
    _put(live.folder / name, prepared, report)


def put_catalogue(live: Live, prepared: Path) -> None:
    """Row by row, in the transaction that has locked it all along."""
    path = live.folder / META
    if META not in live.databases:
        _put(path, prepared, lambda _done, _total: None)
        return
    connection = live.databases.pop(META)
    with translated(path, LIBRARY), closing(at_rest(prepared)) as source:
        tables = _tables(source)
        for table in reversed(tables):
            connection.execute(f"DELETE FROM {table}")
        for table in tables:
            rows = source.execute(f"SELECT * FROM {table}").fetchall()
            marks = ",".join("?" * len(rows[0])) if rows else ""
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        connection.execute("COMMIT")
    connection.close()
    prepared.unlink()


def bury(live: Live, names: Sequence[str]) -> None:
    """Nobody writes into these any more; their files go when the catalogue names them no longer."""
    for name in names:
        if name in live.databases:
            live.let_go(name, DELETED_GENERATION)


def remove(folder: Path, names: Sequence[str]) -> list[str]:
    """Gives those that cannot go yet, as on Windows while another process has them open."""
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
        fold(folder / name, schema_of(name), FOLD_PATIENCE)


def _put(path: Path, prepared: Path, report: Progress) -> None:
    """In place where there is a file that others may have open, else by a rename."""
    try:
        if path.exists():
            with closing(at_rest(prepared)) as source:
                copy_into(path, source, report)
            prepared.unlink()
            return
    except StoreDamaged:
        pass  # it is no database at all, and nobody writes there
    unlink_logs(path)
    prepared.replace(path)


def _set_generation(db: Connection, generation: int) -> None:
    db.execute("UPDATE meta SET value = ? WHERE key = 'generation'", (generation,))


def _tables(db: Connection) -> list[str]:
    """Those that others refer to come first."""
    rows = db.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' "
        "AND name NOT LIKE 'sqlite#_%' ESCAPE '#' ORDER BY name <> 'projects', name"
    )
    return [str(name) for (name,) in rows]


class LockedFolder:
    """A data folder in which no other process writes."""

    def __init__(self, live: Live) -> None:
        self._live = live

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that could be lost."""
        return self._live.is_empty

    def prepare(
        self, stage: Path, backup: Path, safety: Path | None, kept_notes: Sequence[str], at: int
    ) -> Prepared:
        """Make the copies in the stage fit to replace the databases. The restore is unfinished
        from now on.

        Decisions since the backup stay: projects that are off, tokens, and notes with these keys.
        """
        live, meta = self._live, stage / META
        leave_out_lost(meta)
        now = live.databases.get(META)
        if now is not None:
            keep_decisions(now, meta, kept_notes, at, was_empty=live.is_empty)
        off = switched_off(meta)
        self._number(stage)
        snapshot.mark_restore(stage, backup, safety)
        return Prepared(off, decisions_lost=now is None)

    def put(self, stage: Path, report: Progress) -> list[str]:
        """Give each database its new content; return the files that cannot be removed yet."""
        live = self._live
        names = [*(kept.path for kept in _listed(stage)), USER, HISTORY]
        gone = [kept.path for kept in live.projects if kept.path not in names]
        for number, name in enumerate(names):
            put_store(live, name, stage / name, lambda _done, _total: None)
            report(number + 1, len(names) + 1)
        bury(live, gone)
        put_catalogue(live, stage / META)
        snapshot.unmark_restores(live.folder)
        report(len(names) + 1, len(names) + 1)
        fold_all(live.folder, [META, *names])
        return remove(live.folder, gone)

    def _number(self, stage: Path) -> None:
        """Brings the copies up to date, and their numbers behind those of what they replace."""
        there = {kept.id: kept for kept in self._live.projects}
        generations: dict[str, int] = {}
        for kept in _listed(stage):
            numbers = self._live.numbers(kept.path)
            if before := there.get(kept.id):
                known = Numbers(generation=before.generation)
                numbers = numbers.beyond(self._live.numbers(before.path)).beyond(known)
            archived = kept.status == "archived"
            generations[kept.id] = prepare_store(stage / kept.path, numbers, archived=archived)
        for name in (USER, HISTORY):
            if not (stage / name).exists():
                create(stage / name, PROJECT)
            prepare_store(stage / name, self._live.numbers(name))
        prepare_catalogue(stage / META, generations)


def restored_beside(folder: Path, copy: Path, name: str, before: Path | None, at: int) -> Added:
    generation = prepare_store(copy, Numbers())
    like = Kept(copy.stem, name, "active", f"projects/{copy.name}", generation, None)
    return add_project(folder, copy, like, at, before)


def found(folder: Path, clock: Clock) -> None:
    """Makes the files that every data folder has, where they are missing."""
    with usable(folder):
        for part in ("projects", "archive"):
            make_folder(folder / part)
        if not (folder / META).exists():
            make_library(folder, clock)
        for name in (USER, HISTORY):
            if not (folder / name).exists():
                make_store(folder / name)


@contextmanager
def staged(folder: Path) -> Generator[Path, None, None]:
    """Where copies are verified; it stays only where a restore was cut short."""
    with usable(folder):
        make_folder(folder)
    with scratch(folder, snapshot.RESTORE_STAGE, snapshot.is_restore_unfinished) as stage:
        yield stage


def _listed(stage: Path) -> list[Kept]:
    with closing(at_rest(stage / META)) as meta:
        return catalogue(meta)
