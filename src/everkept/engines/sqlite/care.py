"""Maintenance of the files in a data folder: backup, restore, catalog and leftover files."""

import asyncio
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from everkept.core.care_results import FIX_COMMAND, DoctorFinding, PendingEmbeddings, RestoredProject, UnfinishedRestore
from everkept.core.sessions import is_private_name
from everkept.core.text import format_count
from everkept.core.times import Clock, format_ago
from everkept.engines.sqlite import database_checks, project_list, restore
from everkept.engines.sqlite.connection import connect, translate_errors, unlink_logs
from everkept.engines.sqlite.database_checks import (
    add_orphans,
    check_databases,
    count_pending_embeddings,
    find_last_backup,
    fix_generation,
    fix_location,
    format_restore_all,
    format_restore_project,
    is_deleted,
    settle_moves,
)
from everkept.engines.sqlite.library import BASE_DATABASES, STALE_DRAFT_SECONDS, SqliteLibrary
from everkept.engines.sqlite.restore import lock_files
from everkept.engines.sqlite.schema import LIBRARY
from everkept.engines.sqlite.snapshot import (
    META,
    STAGE_PREFIX,
    ProjectFile,
    find_unfinished_restore,
    is_restore_unfinished,
    list_abandoned,
    list_project_files,
    list_project_paths,
    open_checked,
)
from everkept.engines.sqlite.store import read_generation
from everkept.engines.sqlite.upgrade import upgrade_folder
from everkept.errors import EverkeptError, StoreTooNew


def check_leftovers(folder: Path, check: str) -> Iterator[DoctorFinding]:
    for stage in list_abandoned(folder, STAGE_PREFIX):
        if not is_restore_unfinished(stage):
            yield _report_leftover(check, stage, "An abandoned restore left a folder")
    for path in _list_drafts(folder):
        if time.time() - path.stat().st_mtime > STALE_DRAFT_SECONDS:
            yield _report_leftover(check, path, "A process that crashed left a temporary file")
    for process, name in _find_deleted_files(folder):
        what = f"Process {process} still has {name} open, which was deleted. Its next write fails, and is not lost."
        yield DoctorFinding(check, "advice", what, f"restart process {process}")


def _find_deleted_files(folder: Path) -> list[tuple[int, str]]:
    """Return the processes of this user that have a deleted database open, with its name.

    Only Linux shows them. Windows does not delete a file that is open.
    """
    found: set[tuple[int, str]] = set()
    start, end = f"{folder.resolve()}/", ".db (deleted)"
    for link in _list_open_files():
        try:
            target = str(link.readlink())
        except OSError:  # closed since then
            continue
        if target.startswith(start) and target.endswith(end):
            found.add((int(link.parts[2]), target.removeprefix(start).removesuffix(" (deleted)")))
    return sorted(found)


def _list_open_files() -> Iterator[Path]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's process, or one that has ended
            yield from list((process / "fd").iterdir())


def _report_leftover(check: str, path: Path, what: str) -> DoctorFinding:
    def remove() -> str:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return f"removed {path}"

    return DoctorFinding(check, "advice", f"{what}: {path}.", FIX_COMMAND, remove)


def _list_drafts(folder: Path) -> list[Path]:
    founded = [path for name in BASE_DATABASES for path in folder.glob(f"{name}.*.new*")]
    locks = [path for name in BASE_DATABASES for path in folder.glob(f"{name}.lock")]
    return [*founded, *locks, *(folder / "archive").glob("*.db.new*")]


LEASE_PREFIX = "lease."
DAY_MICROSECONDS = 86_400 * 1_000_000
OLD_BACKUP_MICROSECONDS = 30 * DAY_MICROSECONDS


class _CatalogCheck:
    """Check of the list of projects."""

    def __init__(self, folder: Path, check: str, clock: Clock) -> None:
        self._folder = folder
        self._check = check
        self._clock = clock
        self._off: list[str] = []  # names of projects that are off

    def run(self) -> Iterator[DoctorFinding]:
        path = self._folder / META
        if not path.exists():
            if files := list_project_paths(self._folder):
                yield self._report_unlisted(len(files))
            return
        with open_checked(path, LIBRARY) as meta:
            projects = list_project_files(meta)
            every = [each for each in project_list.list_projects(meta, None) if not is_private_name(each.name)]
            self._off = [each.name for each in every if each.is_off]
            notes = project_list.list_notes(meta, LEASE_PREFIX)
        wrong = [each for kept in projects for each in self._check_project(kept)]
        wrong += [*self._check_orphans(projects), *self._check_leases(notes)]
        if not any(finding.severity == "problem" for finding in wrong):
            yield DoctorFinding(self._check, "ok", f"Found {_format_project_count(projects)}, each with its file.")
        yield from wrong
        yield self._check_backup()
        for name in self._off:
            what = f'Project "{name}" is turned off: nothing is stored or recalled.'
            yield DoctorFinding(self._check, "ok", what, f'everkept on --project "{name}"')

    def _report_unlisted(self, files: int) -> DoctorFinding:
        what = (
            f"_meta.db is missing, but the folder has {format_count(files, 'project file')}. Tokens, folder links and "
            "turned-off states are lost. The next command lists the projects again, and all of them are turned on."
        )
        restore_all = format_restore_all(self._folder)
        command = f"first restore _meta.db, for example from the zip file of a backup; or {restore_all}"
        did = "listed the projects again; all are turned on, and tokens must be created again"
        return self._report_problem(what, command, lambda: _settle(self._folder, did))

    def _check_backup(self) -> DoctorFinding:
        last, command = find_last_backup(self._folder), "everkept backup FILE"
        if last is None:
            return DoctorFinding(self._check, "advice", "No backup exists yet.", command)
        file, at = last
        when = format_ago(at, self._clock())
        if not file.is_file():
            what = f"The last backup was written {when}, but {file} no longer exists."
            return DoctorFinding(self._check, "advice", what, command)
        what = f"The last backup was written {when}: {file}."
        if self._clock() - at > OLD_BACKUP_MICROSECONDS:
            return DoctorFinding(self._check, "advice", what, command)
        return DoctorFinding(self._check, "ok", what)

    def _check_project(self, kept: ProjectFile) -> Iterator[DoctorFinding]:
        folder = self._folder
        if kept.transition is not None:
            what = f"{kept.transition.capitalize()} {kept.label} was interrupted."
            yield self._report_problem(what, FIX_COMMAND, lambda: _settle(folder, "finished or reversed it"))
        elif not (folder / kept.path).exists():
            yield self._report_missing(kept)
        elif (found := _find_generation(folder / kept.path)) is not None:
            expected = -kept.generation if kept.status == "archived" else kept.generation
            if found != expected:
                what = f"{kept.title} cannot be written: its generation differs from the catalog's."
                yield self._report_problem(what, FIX_COMMAND, lambda: fix_generation(folder, kept))

    def _report_missing(self, kept: ProjectFile) -> DoctorFinding:
        folder = self._folder
        elsewhere = [name for name in list_project_paths(folder) if Path(name).stem == kept.id]
        if elsewhere:
            what = f"{kept.title} is in {elsewhere[0]}, not in {kept.path}."
            return self._report_problem(what, FIX_COMMAND, lambda: asyncio.run(fix_location(folder, kept)))
        what = f"{kept.title} is missing: {kept.path}."
        back = format_restore_project(folder, kept.name, is_off=kept.name in self._off)
        return self._report_problem(what, f"restore {folder / kept.path} from a copy; or {back}")

    def _check_orphans(self, projects: list[ProjectFile]) -> Iterator[DoctorFinding]:
        known = {kept.id for kept in projects}
        for name in list_project_paths(self._folder):
            path = self._folder / name
            if path.stem in known:
                continue
            generation = _find_generation(path)
            if generation is None:
                continue  # the check of databases reports the error
            if is_deleted(generation):
                what = f"{name} is left over from a deleted project."
                yield DoctorFinding(self._check, "advice", what, FIX_COMMAND, partial(_remove_file, path))
            else:
                what = f"{name} contains a project that the catalog does not list."
                yield self._report_problem(
                    what, FIX_COMMAND, lambda: asyncio.run(add_orphans(self._folder, self._clock))
                )

    def _check_leases(self, notes: Mapping[str, str]) -> Iterator[DoctorFinding]:
        now = self._clock()
        for key, value in notes.items():
            until = value.rpartition(" ")[2]
            if not until.isdecimal() or int(until) < now - DAY_MICROSECONDS:
                what = f'A process that ended long ago still holds the lease "{key.removeprefix(LEASE_PREFIX)}".'
                mend = partial(_end_lease, self._folder / META, key)
                yield DoctorFinding(self._check, "advice", what, FIX_COMMAND, mend)

    def _report_problem(self, what: str, command: str, mend: Callable[[], str] | None = None) -> DoctorFinding:
        return DoctorFinding(self._check, "problem", what, command, mend)


def _find_generation(path: Path) -> int | None:
    """Return the generation, or None if the file cannot be read."""
    try:
        with open_checked(path) as db:
            return read_generation(db)
    except EverkeptError:
        return None


def _format_project_count(projects: list[ProjectFile]) -> str:
    """Format the number of projects and, separately, of private stores of accounts."""
    homes = sum(is_private_name(kept.name) for kept in projects)
    told = format_count(len(projects) - homes, "project")
    return f"{told} and {format_count(homes, 'private store')} of accounts" if homes else told


def _settle(folder: Path, did: str) -> str:
    asyncio.run(settle_moves(folder))
    return did


def _remove_file(path: Path) -> str:
    path.unlink(missing_ok=True)
    unlink_logs(path)
    return f"removed {path.name}"


def _end_lease(meta: Path, key: str) -> str:
    with translate_errors(meta, LIBRARY), closing(connect(meta, LIBRARY)) as db:
        db.execute("DELETE FROM notes WHERE key = ?", (key,))
    return "ended the lease"


class SqliteCare:
    """Maintenance operations on the files of one data folder. Files are open only while an operation needs them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has_data(self) -> bool:
        """Return whether anything was ever stored."""
        return (self.folder / META).exists()

    def upgrade(self) -> None:
        """Upgrade data of an earlier version, after a backup of it."""
        upgrade_folder(self.folder)

    def settle_moves(self) -> None:
        """Finish or reverse moves that a crash interrupted."""
        asyncio.run(settle_moves(self.folder))

    def find_last_backup(self) -> tuple[Path, int] | None:
        """Return the file and time of the last backup, or None if they are unknown."""
        return database_checks.find_last_backup(self.folder)

    def note_backup(self, file: Path, at: str) -> None:
        """Note a backup, if the folder is writable."""
        database_checks.note_backup(self.folder, file, at)

    def open_stage(self) -> AbstractContextManager[Path]:
        """Create a folder for copies. It stays only if a restore is interrupted."""
        return restore.open_stage(self.folder)

    def create_missing_files(self, clock: Clock) -> None:
        """Create missing files that every data folder has."""
        restore.create_missing_files(self.folder, clock)

    @contextmanager
    def lock(self) -> Generator[restore.LockedFolder, None, None]:
        """Prevent all other processes from writing. Raise StoreBusy if one of them does not finish."""
        with suppress(StoreTooNew):  # an earlier version may replace newer data with a backup
            self.upgrade()
        with lock_files(self.folder) as live:
            yield restore.LockedFolder(live)

    def add_project(self, copy: Path, name: str, catalogue: Path | None, at: int) -> RestoredProject:
        """Add a project from a backup with this catalog. Other projects stay unchanged."""
        self.upgrade()
        return restore.restore_project(self.folder, copy, name, catalogue, at)

    def find_unfinished_restore(self) -> UnfinishedRestore | None:
        return find_unfinished_restore(self.folder)

    def refuse_if_unfinished(self) -> None:
        """Raise Unavailable if a restore is unfinished."""
        found = self.find_unfinished_restore()
        if found is not None:
            raise found.build_error()

    def check_databases(self, name: str, *, full: bool) -> Iterable[DoctorFinding]:
        """Return findings about each database and its indexes."""
        return check_databases(self.folder, name, full=full)

    def check_projects(self, name: str, clock: Clock) -> Iterable[DoctorFinding]:
        """Compare the list of projects with their files."""
        return _CatalogCheck(self.folder, name, clock).run()

    def check_leftovers(self, name: str) -> Iterable[DoctorFinding]:
        """Find files that dead processes left."""
        return check_leftovers(self.folder, name)

    def count_pending_embeddings(self, model: str, kinds: Sequence[str]) -> list[PendingEmbeddings]:
        """Count the pending embeddings of writable databases with the current schema."""
        return count_pending_embeddings(self.folder, model, kinds)

    def read_note(self, key: str) -> str | None:
        """Return a note of the catalog, or None if it is missing or the catalog cannot be read."""
        with suppress(EverkeptError), open_checked(self.folder / META, LIBRARY) as db:
            return project_list.find_note(db, key)
        return None

    def read_notes(self, prefix: str) -> Mapping[str, str]:
        """Return the notes of the catalog, or none if the catalog is missing or cannot be read."""
        with suppress(EverkeptError), open_checked(self.folder / META, LIBRARY) as db:
            return project_list.list_notes(db, prefix)
        return {}

    def list_project_names(self) -> set[str]:
        with suppress(EverkeptError), open_checked(self.folder / META, LIBRARY) as db:
            return {project.name for project in project_list.list_projects(db, None)}
        return set()

    def open_library(self) -> SqliteLibrary:
        return SqliteLibrary(self.folder)
