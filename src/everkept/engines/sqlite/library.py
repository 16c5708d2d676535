"""Library on disk: `_meta.db`, a file per project and the archive folder.

`user.db`, `history.db` and `_meta.db` are created once. A new `_meta.db` lists the project files that already exist.
"""

import asyncio
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Never, TypeVar
from uuid import uuid4
from weakref import WeakSet

import apsw

from everkept.core import library as questions
from everkept.core.answers import TableFault
from everkept.core.disk import make_folder
from everkept.core.library import CatalogAnswers, CatalogChanges, Condition, TableLibrary
from everkept.core.projects import Project, build_project_error, validate_project_name
from everkept.core.records import Batch
from everkept.core.store import RecordStore, Upkeep
from everkept.core.text import find_forbidden
from everkept.core.times import Clock, format_iso, read_clock
from everkept.engines.memory.store import MemoryStore
from everkept.engines.sqlite import catalog, project_list
from everkept.engines.sqlite.connection import (
    Connection,
    Synchronous,
    connect,
    create,
    open_transaction,
    translate_disk_errors,
    translate_errors,
    unlink_logs,
)
from everkept.engines.sqlite.database import Database
from everkept.engines.sqlite.project_lifecycle import (
    ProjectPaths,
    archive_project,
    build_missing_file_error,
    check_id,
    create_project,
    delete_project,
    rename_project,
    restore_project,
    settle,
    settle_all,
)
from everkept.engines.sqlite.project_list import ProjectRow
from everkept.engines.sqlite.schema import LIBRARY, PROJECT, Schema
from everkept.engines.sqlite.store import DELETED_GENERATION, SqliteStore, read_generation
from everkept.errors import EverkeptError, NotFound, ProjectArchived, ReadOnly, StorageFull, StoreDamaged, Unavailable
from everkept.values import Value

if TYPE_CHECKING:
    from everkept.core.answers import CatalogData

log = logging.getLogger(__name__)

BASE_DATABASES = ("_meta", "user", "history")
STALE_DRAFT_SECONDS = 600.0  # a draft older than this was left by a crash


class _FileFacts(Value):
    """The facts about a project in its own file."""

    name: str
    description: str
    created_at: str | None
    generation: int


def create_library(folder: Path, clock: Clock) -> None:
    """Create the folder and its `_meta.db`. If several processes do so at the same time, one wins."""
    for place in (folder, folder / "projects", folder / "archive"):
        make_folder(place)
    with _open_draft(folder / "_meta.db") as draft:
        create(draft, LIBRARY)
        if add_unlisted_files(folder, draft, clock):
            log.warning("rebuilt _meta.db without the lost settings: turned-off projects, tokens and folder links")


def create_store(path: Path) -> None:
    """Create a store that belongs to no project. If several processes do so at the same time, one wins."""
    with _open_draft(path) as draft:
        create(draft, PROJECT)


def remove_stale_drafts(folder: Path) -> None:
    for draft in (found for name in BASE_DATABASES for found in folder.glob(f"{name}.*.new*")):
        with suppress(FileNotFoundError):
            if time.time() - draft.stat().st_mtime > STALE_DRAFT_SECONDS:
                draft.unlink()


@contextmanager
def _open_draft(target: Path) -> Generator[Path]:
    """Yield a temporary name for the new file, so that no process opens an incomplete one."""
    draft = target.with_name(f"{target.stem}.{uuid4().hex}.new")
    try:
        yield draft
        _publish(draft, target)
    finally:
        draft.unlink(missing_ok=True)
        unlink_logs(draft)


def _publish(draft: Path, target: Path) -> None:
    """Rename the draft under a lock that ends with its process. Not every file system has hard links."""
    # Imported here because most starts find every file.
    from everkept.core.locks import WaitingLock

    lock = target.with_name(f"{target.stem}.lock")
    try:
        with WaitingLock(lock, f"The creation of {target.name}").hold():
            # The process that removed the lock in the meantime has published its draft before.
            if not target.exists():
                # The log of a file that was moved elsewhere would be taken for the new file's.
                unlink_logs(target)
                draft.replace(target)
    except (ReadOnly, Unavailable):  # Windows cannot open a file that is being removed
        if not target.exists():
            raise
    with suppress(OSError):
        lock.unlink()


def add_unlisted_files(folder: Path, meta_path: Path, clock: Clock) -> bool:
    """Add project files that are missing in the catalog. Return whether there are any.

    Each is added with an unfinished move, so that the repair at every start corrects its location.
    """
    files = [path for name in ("projects", "archive") for path in (folder / name).glob("*.db")]
    files.sort(key=lambda path: (path.parent.name == "archive", path.name))
    found = {path: told for path in files if (told := _read_file_facts(path))}
    if not found:
        return False
    log.warning("adding projects that _meta.db does not list from their files")
    with translate_errors(meta_path), closing(connect(meta_path, LIBRARY)) as db, open_transaction(db):
        for path, told in found.items():
            created = told.created_at or format_iso(clock())
            db.execute(
                "INSERT OR IGNORE INTO projects(id, name, description, db_path, status, "
                "created_at, updated_at, generation, transition) "
                "VALUES (?,?,?,?,?,?,?,?,'archiving')",
                (
                    path.stem,
                    choose_free_name(db, path.stem, told.name),
                    told.description,
                    path.relative_to(folder).as_posix(),
                    "active" if path.parent.name == "projects" else "archived",
                    created,
                    created,
                    abs(told.generation),
                ),
            )
    return True


def _read_file_facts(path: Path) -> _FileFacts | None:
    try:
        with translate_errors(path), closing(connect(path, PROJECT)) as db:
            facts = {str(key): value for key, value in db.execute("SELECT key, value FROM meta")}
            generation = read_generation(db)
    except StoreDamaged as error:
        log.warning("project file %s skipped: %s", path, error)
        return None
    if generation == DELETED_GENERATION:
        log.warning("project file %s skipped: it was being deleted", path)
        return None
    return _FileFacts(
        name=str(facts.get("name") or f"recovered-{path.stem[:8]}"),
        description=str(facts.get("description") or ""),
        created_at=facts.get("created_at"),
        generation=generation,
    )


def choose_free_name(db: Connection, project_id: str, name: str) -> str:
    taken = {row[0] for row in db.execute("SELECT name FROM projects WHERE id <> ?", (project_id,))}
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


class AbsentStore(MemoryStore):
    """Empty store of a file that cannot be created. Every write raises the reason."""

    def __init__(self, reason: EverkeptError) -> None:
        super().__init__()
        self._reason = reason

    async def commit(self, batch: Batch) -> Never:
        raise self._reason

    async def maintain(self, upkeep: Upkeep[Any]) -> Never:
        raise self._reason


def _build_uncreated_error(path: Path) -> ReadOnly:
    return ReadOnly(f"Cannot create {path}.", hint="Check the permissions of the data folder.", path=str(path))


MAX_OPEN_STORES = 32  # beyond this, the least recently used stores are closed; the next call reopens them


Q = TypeVar("Q")
T = TypeVar("T")
AnswerMethod = Callable[["SqliteLibrary", Q], Awaitable[T]]


def _make_reader(work: Callable[[Connection, Q], T]) -> "AnswerMethod[Q, T]":
    """Return an answer that reads `_meta.db`."""

    async def answer(library: "SqliteLibrary", question: Q) -> T:
        return await (await library.ensure_meta()).read(lambda db: work(db, question))

    return answer


def _make_writer(work: Callable[[Connection, Q], T]) -> "AnswerMethod[Q, T]":
    """Return a change that is one transaction of `_meta.db`."""

    async def answer(library: "SqliteLibrary", change: Q) -> T:
        return await (await library.ensure_meta()).write(lambda db: work(db, change))

    return answer


class SqliteLibrary(TableLibrary):
    """All projects in one folder. The first call opens or creates the files."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock = read_clock,
        synchronous: Synchronous = "normal",
        inline_writes: bool = False,
    ) -> None:
        """Pass `inline_writes` for a single client: short writes may then run in the caller's thread."""
        self._folder = folder
        self._inline_writes = inline_writes
        self._clock = clock
        self._synchronous: Synchronous = synchronous
        self._meta_db: Database | None = None
        self._stores: OrderedDict[str, tuple[SqliteStore, Database]] = OrderedDict()
        # Includes databases of dropped stores that a caller still uses, which may be open again.
        self._databases: WeakSet[Database] = WeakSet()
        self._owned: dict[str, SqliteStore] = {}
        self._opening = asyncio.Lock()
        self._read_only = False

    async def _list_projects(self, question: questions.ListProjects) -> list[Project]:
        meta = await self.ensure_meta()
        if not self._read_only:
            await settle_all(meta, self._folder)  # a move that a crash interrupted has no status yet
        return await meta.read(lambda db: project_list.list_projects(db, question.status))

    async def _get_project(self, question: questions.GetProject) -> Project:
        return (await self._require_row(question.name)).project

    async def open(self, name: str) -> tuple[Project, SqliteStore]:
        row = await self._require_row(name)
        if row.is_archived:
            raise ProjectArchived(name)
        return await self._open_row(row)

    async def get_store(self, project: Project) -> SqliteStore:
        _, store = await self._open_row(await self._require_row(project.name))
        return store

    async def _open_row(self, row: ProjectRow) -> tuple[Project, SqliteStore]:
        name = row.project.name
        known = self._stores.get(row.db_path)
        if known is not None and known[0].generation == row.generation:
            self._stores.move_to_end(row.db_path)
            return row.project, known[0]
        path, place = self._folder / row.db_path, ProjectPaths(self._folder, row.project.id, name)
        if not path.exists():
            if (found := await self._require_row(name)) == row:
                raise build_missing_file_error(place, path)
            return await self._open_row(found)  # another process moved it since then
        database = self._open_database(path, PROJECT, title=place.title)
        store = SqliteStore(database, name, row.generation, self._clock)
        self._stores[row.db_path] = (store, database)
        if known is not None:
            await known[1].close()
        while len(self._stores) > MAX_OPEN_STORES:
            _, (_, oldest) = self._stores.popitem(last=False)
            await oldest.close()
        return row.project, store

    async def _add_project(self, change: questions.AddProject) -> Project:
        name = validate_project_name(change.name)
        place = ProjectPaths(self._folder, check_id(change.project_id or str(uuid4())), name)
        meta = await self.ensure_meta()
        with translate_disk_errors(place.active_path):
            await create_project(meta, place, change.description, format_iso(change.at or self._clock()))
        return await self.get_project(name)

    async def _set_project_status(self, change: questions.SetProjectStatus) -> Project:
        row = await self._require_row(change.name)
        place = ProjectPaths(self._folder, row.project.id, change.name)
        await self._forget(place)
        meta, at, new_name = await self.ensure_meta(), format_iso(self._clock()), change.new_name or None
        new_name = None if new_name == change.name else new_name
        is_archived = change.status == "archived"
        with translate_disk_errors(place.active_path if is_archived else place.archive_path):
            if row.project.status == change.status and new_name is not None:
                await meta.write(lambda db: rename_project(db, place, change.status, at, new_name))
            else:
                move = archive_project if is_archived else restore_project
                await move(meta, place, at, new_name)
        return await self.get_project(new_name or change.name)

    async def _delete_project(self, change: questions.DeleteProject) -> None:
        place = await self._find_paths(change.name)
        await self._forget(place)
        meta, at = await self.ensure_meta(), self._clock()
        if await self.get_note(project_list.OFF_HISTORY_PREFIX + place.id):
            await meta.write(lambda db: project_list.note_deletion(db, place.id, at))
        with translate_disk_errors(place.active_path):
            await delete_project(meta, place)

    async def _set_project_off(self, change: questions.SetProjectOff) -> Project:
        name, off, moment = change.name, change.off, change.at or self._clock()
        project = await self.get_project(name)
        if project.is_off == off:
            return project
        meta = await self.ensure_meta()
        if not await meta.write(lambda db: project_list.set_project_off(db, project.id, off=off, at=moment)):
            raise NotFound("project", name, hint="It was deleted. Select another project.")
        return await self.get_project(name)

    async def open_user_store(self) -> RecordStore:
        return await self._open_own_store("user", "The file of user memories")

    async def open_history_store(self) -> RecordStore:
        return await self._open_own_store("history", "The file of past conversations")

    async def _open_own_store(self, name: str, title: str) -> RecordStore:
        """Open a store that belongs to no project."""
        await self.ensure_meta()
        path = self._folder / f"{name}.db"
        async with self._opening:
            if name in self._owned:
                return self._owned[name]
            try:
                with translate_disk_errors(path):
                    if not await asyncio.to_thread(path.exists):
                        if self._read_only:
                            return AbsentStore(_build_uncreated_error(path))
                        await asyncio.to_thread(create_store, path)
            except StorageFull as error:
                return AbsentStore(error)
            database = self._open_database(path, PROJECT, title=title)
            self._owned[name] = SqliteStore(database, name, None, self._clock)
            return self._owned[name]

    async def _read_catalog_data(self, _: questions.ReadCatalogData) -> "CatalogData":
        from everkept.engines.sqlite.catalog import read_catalog_data

        await self.list_projects()  # settles moves that a crash interrupted
        return await (await self.ensure_meta()).read(read_catalog_data, long=True)

    async def _find_table_faults(self, _: questions.FindTableFaults) -> list[TableFault]:
        return []

    async def _replace_catalog_data(self, change: questions.ReplaceCatalogData) -> None:
        from everkept.engines.sqlite.catalog import CatalogReplacement

        await self.list_projects()
        with translate_disk_errors(self._folder):
            taking_over = CatalogReplacement(await self.ensure_meta(), self._folder, self._forget)
            await taking_over.apply(change.catalog_data)

    async def on_change(self, hear: Callable[[], None]) -> bool:
        return False

    @property
    def condition(self) -> Condition:
        return Condition("sqlite", "embedded-file", version=apsw.sqlite_lib_version(), place=str(self._folder))

    async def close(self) -> None:
        """Close within moments. Running statements are interrupted; acknowledged writes are kept."""
        known = set(self._databases)  # keeps the databases alive, because nothing else refers to them from here on
        self._stores.clear()
        self._meta_db = None
        self._owned.clear()
        # Repeat: a concurrent call may open a database again.
        while opened := [each for each in known.union(self._databases) if each.is_open]:
            for database in opened:
                await database.close(interrupt=True)

    async def _require_row(self, name: str) -> ProjectRow:
        if find_forbidden(name):
            raise build_project_error(name)
        row = await self._find_row(name)
        if row is not None and row.transition is not None and not self._read_only:
            await settle(await self.ensure_meta(), ProjectPaths(self._folder, row.project.id, name))
            row = await self._find_row(name)
        if row is None or not row.is_there:
            raise build_project_error(name)
        return row

    async def _find_row(self, name: str) -> ProjectRow | None:
        return await (await self.ensure_meta()).read(lambda db: project_list.find_project(db, name))

    async def _find_paths(self, name: str) -> ProjectPaths:
        return ProjectPaths(self._folder, (await self._require_row(name)).project.id, name)

    async def _forget(self, place: ProjectPaths) -> None:
        for path in (place.active_path, place.archive_path):
            known = self._stores.pop(place.to_relative(path), None)
            if known is not None:
                await known[1].close()

    def _open_database(self, path: Path, schema: Schema, title: str | None = None) -> Database:
        database = Database(
            path,
            schema,
            synchronous=self._synchronous,
            read_only=self._read_only,
            inline_writes=self._inline_writes,
            title=title,
        )
        self._databases.add(database)
        return database

    async def ensure_meta(self) -> Database:
        """Open the library at the first call. Create the folder, and settle moves that a crash interrupted."""
        if self._meta_db is not None:
            return self._meta_db
        async with self._opening:
            if self._meta_db is None:
                self._meta_db = await self._open_meta()
        return self._meta_db

    async def _open_meta(self) -> Database:
        path = self._folder / "_meta.db"
        with translate_disk_errors(self._folder):
            if not path.exists():
                await asyncio.to_thread(create_library, self._folder, self._clock)
            self._read_only = not os.access(self._folder, os.W_OK)
            if not self._read_only:
                remove_stale_drafts(self._folder)
        meta = self._open_database(path, LIBRARY)
        if not self._read_only:
            await settle_all(meta, self._folder)
        return meta

    answers: ClassVar[CatalogAnswers] = {
        questions.ListProjects: _list_projects,
        questions.GetProject: _get_project,
        questions.ListOffPeriods: _make_reader(catalog.list_off_periods),
        questions.FindWorkspaceProject: _make_reader(catalog.find_workspace_project),
        questions.ListWorkspaces: _make_reader(catalog.list_workspaces),
        questions.GetNote: _make_reader(catalog.get_note),
        questions.ListNotes: _make_reader(catalog.list_notes),
        questions.ListSearches: _make_reader(catalog.list_searches),
        questions.ListUsage: _make_reader(catalog.list_usage),
        questions.ListTokens: _make_reader(catalog.list_tokens),
        questions.HasToken: _make_reader(catalog.has_token),
        questions.ReadCatalogData: _read_catalog_data,
        questions.FindTableFaults: _find_table_faults,
    }
    changes: ClassVar[CatalogChanges] = {
        questions.AddProject: _add_project,
        questions.SetProjectStatus: _set_project_status,
        questions.DeleteProject: _delete_project,
        questions.SetProjectOff: _set_project_off,
        questions.LinkWorkspace: _make_writer(catalog.link_workspace),
        questions.MoveWorkspace: _make_writer(catalog.move_workspace),
        questions.WriteNote: _make_writer(catalog.write_note),
        questions.AddSearches: _make_writer(catalog.add_searches),
        questions.ForgetSearches: _make_writer(catalog.forget_searches),
        questions.AddUsage: _make_writer(catalog.add_usage),
        questions.RegisterToken: _make_writer(catalog.register_token),
        questions.RevokeToken: _make_writer(catalog.revoke_token),
        questions.ReplaceCatalogData: _replace_catalog_data,
    }
