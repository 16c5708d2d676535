"""Care for the files of one data folder: backup, restore, catalog, leftover files."""

import asyncio
import re
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path

from everkept.core.care import DOCTOR_FIX, Added, Facts, Finding, Owner, Unfinished, Waiting
from everkept.core.sessions import is_home
from everkept.core.text import counted
from everkept.core.times import Clock, ago
from everkept.engines.sqlite import database_checks, project_list, restore, snapshot
from everkept.engines.sqlite.connection import connect, translated, unlink_logs
from everkept.engines.sqlite.database_checks import (
    adopt,
    bring_all_back,
    bring_project_back,
    check_databases,
    is_deleted,
    last_backup,
    mend_generation,
    relocate,
    settle_moves,
    texts_that_wait,
)
from everkept.engines.sqlite.library import FOUNDED, STALE, SqliteLibrary
from everkept.engines.sqlite.restore import locked
from everkept.engines.sqlite.schema import LIBRARY
from everkept.engines.sqlite.snapshot import (
    META,
    RESTORE_STAGE,
    Kept,
    abandoned,
    at_rest,
    catalogue,
    find_unfinished_restore,
    is_restore_unfinished,
    looked_at,
    project_files,
    scratch,
    sound_facts,
)
from everkept.engines.sqlite.store import generation_of
from everkept.errors import EverkeptError


def check_leftovers(folder: Path, check: str) -> Iterator[Finding]:
    for stage in abandoned(folder, RESTORE_STAGE):
        if not is_restore_unfinished(stage):
            yield _leftover(check, stage, "A restore that was given up left a folder")
    for path in _drafts(folder):
        if _age(path) > STALE:
            yield _leftover(check, path, "A process that died left a draft")


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def _leftover(check: str, path: Path, what: str) -> Finding:
    def remove() -> str:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return f"removed {path}"

    return Finding(check, "advice", f"{what}: {path}.", DOCTOR_FIX, remove)


def _drafts(folder: Path) -> list[Path]:
    founded = [path for name in FOUNDED for path in folder.glob(f"{name}.*.new*")]
    locks = [path for name in FOUNDED for path in folder.glob(f"{name}.lock")]
    return [*founded, *locks, *(folder / "archive").glob("*.db.new*")]


LEASE = "lease."
DAY = 86_400 * 1_000_000  # microseconds
OLD_BACKUP = 30 * DAY


def check_catalogue(folder: Path, check: str, clock: Clock) -> Iterator[Finding]:
    return _Look(folder, check, clock).findings()


class _Look:
    """At the list of projects."""

    def __init__(self, folder: Path, check: str, clock: Clock) -> None:
        self._folder = folder
        self._check = check
        self._clock = clock
        self._off: list[str] = []  # the names of those that are switched off

    def findings(self) -> Iterator[Finding]:
        path = self._folder / META
        if not path.exists():
            if files := project_files(self._folder):
                yield self._unlisted(len(files))
            return
        with looked_at(path, LIBRARY) as meta:
            projects = catalogue(meta)
            every = [each for each in project_list.projects(meta, None) if not is_home(each.name)]
            self._off = [each.name for each in every if each.is_off]
            notes = project_list.notes(meta, LEASE)
        wrong = [each for kept in projects for each in self._of_project(kept)]
        wrong += [*self._orphans(projects), *self._stale_leases(notes)]
        if not any(finding.severity == "problem" for finding in wrong):
            yield Finding(self._check, "ok", f"{_counted(projects)}, each with its file.")
        yield from wrong
        yield self._of_backup()
        for name in self._off:
            what = f'Project "{name}" is switched off: nothing of it is stored or given out.'
            yield Finding(self._check, "ok", what, f'everkept on --project "{name}"')

    def _unlisted(self, files: int) -> Finding:
        what = (
            f"_meta.db is missing, and there {_are(files)} {counted(files, 'project file')}. Lost "
            "with it: which projects are switched off, tokens, and which folder belongs to which "
            "project. The next command lists the projects anew, and all of them are on then."
        )
        command = (
            "put _meta.db back before anything else, such as the one that is in the zip of a "
            f"backup; or {bring_all_back(self._folder)}"
        )
        return self._problem(what, command, lambda: _listed_anew(self._folder))

    def _of_backup(self) -> Finding:
        last, command = last_backup(self._folder), "everkept backup FILE"
        if last is None:
            return Finding(self._check, "advice", "There is no backup yet.", command)
        file, at = last
        when = ago(at, self._clock())
        if not file.is_file():
            what = f"The last backup was written {when}, and is not at {file} any more."
            return Finding(self._check, "advice", what, command)
        what = f"The last backup was written {when}: {file}."
        if self._clock() - at > OLD_BACKUP:
            return Finding(self._check, "advice", what, command)
        return Finding(self._check, "ok", what)

    def _of_project(self, kept: Kept) -> Iterator[Finding]:
        folder = self._folder
        if kept.transition is not None:
            what = f"{_begun(kept.shown)} was left in the middle of a move ({kept.transition})."
            yield self._problem(what, DOCTOR_FIX, lambda: _settled(folder))
        elif not (folder / kept.path).exists():
            yield self._missing(kept)
        elif (found := _generation(folder / kept.path)) is not None:
            expected = -kept.generation if kept.status == "archived" else kept.generation
            if found != expected:
                what = f"{_begun(kept.shown)} cannot be written: its file and the list differ."
                yield self._problem(what, DOCTOR_FIX, lambda: _renumbered(folder, kept))

    def _missing(self, kept: Kept) -> Finding:
        folder = self._folder
        elsewhere = [name for name in project_files(folder) if Path(name).stem == kept.id]
        if elsewhere:
            what = f"{kept.title} is in {elsewhere[0]}, not in {kept.path}."
            return self._problem(what, DOCTOR_FIX, lambda: _relocated(folder, kept))
        what = f"{kept.title} is gone ({kept.path})."
        back = bring_project_back(folder, kept.name, is_off=kept.name in self._off)
        return self._problem(what, f"put {folder / kept.path} back from a copy, or: {back}")

    def _orphans(self, projects: list[Kept]) -> Iterator[Finding]:
        known = {kept.id for kept in projects}
        for name in project_files(self._folder):
            path = self._folder / name
            if path.stem in known:
                continue
            generation = _generation(path)
            if generation is None:
                continue  # the check of databases says what is wrong with it
            if is_deleted(generation):
                what = f"{name} is what is left of a project that was deleted."
                yield Finding(self._check, "advice", what, DOCTOR_FIX, partial(_removed, path))
            else:
                what = f"{name} holds a project that the list of projects does not have."
                yield self._problem(what, DOCTOR_FIX, lambda: _adopted(self._folder, self._clock))

    def _stale_leases(self, notes: Mapping[str, str]) -> Iterator[Finding]:
        now = self._clock()
        for key, value in notes.items():
            until = value.rpartition(" ")[2]
            if not until.isdecimal() or int(until) < now - DAY:
                whose = key.removeprefix(LEASE)
                what = f"A process that died long ago still has the turn for {whose}."
                mend = partial(_ended, self._folder / META, key)
                yield Finding(self._check, "advice", what, DOCTOR_FIX, mend)

    def _problem(self, what: str, command: str, mend: Callable[[], str] | None = None) -> Finding:
        return Finding(self._check, "problem", what, command, mend)


def _generation(path: Path) -> int | None:
    """None where the file cannot be read."""
    try:
        with looked_at(path) as db:
            return generation_of(db)
    except (EverkeptError, TypeError):
        return None


def _counted(projects: list[Kept]) -> str:
    """What is accounts' alone as one number."""
    homes = sum(is_home(kept.name) for kept in projects)
    told = counted(len(projects) - homes, "project")
    return f"{told} and {counted(homes, 'store')} of accounts alone" if homes else told


def _begun(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _listed_anew(folder: Path) -> str:
    asyncio.run(settle_moves(folder))
    return "listed the projects anew; all of them are on, and tokens are to be made anew"


def _settled(folder: Path) -> str:
    asyncio.run(settle_moves(folder))
    return "finished it, or took it back"


def _renumbered(folder: Path, kept: Kept) -> str:
    mend_generation(folder, kept)
    return f"{kept.shown} can be written again"


def _relocated(folder: Path, kept: Kept) -> str:
    asyncio.run(relocate(folder, kept))
    return f"the list now has {kept.shown} where its file is"


def _adopted(folder: Path, clock: Clock) -> str:
    asyncio.run(adopt(folder, clock))
    return "listed it under its own name, or the next free one"


def _removed(path: Path) -> str:
    path.unlink(missing_ok=True)
    unlink_logs(path)
    return f"removed {path.name}"


def _ended(meta: Path, key: str) -> str:
    with translated(meta, LIBRARY), closing(connect(meta, LIBRARY)) as db:
        db.execute("DELETE FROM notes WHERE key = ?", (key,))
    return "ended it"


COPIES = ".everkept-copies-"  # begins the name of a folder for copies beside a backup
_NAME = re.compile(r"(_meta|user|history)\.db|(projects|archive)/[^/\\:\0]+\.db")


class SqliteCare:
    """Everything that can be done for the files of one data folder.

    It opens each file only for as long as it takes.
    """

    catalogue = META  # the name of the database that lists the projects

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def is_there(self) -> bool:
        """Return whether anything was ever stored."""
        return (self.folder / META).exists()

    def is_name(self, name: str) -> bool:
        """Return whether a data folder can have a database of this name."""
        return bool(_NAME.fullmatch(name)) and ".." not in name

    def facts(self, copy: Path, name: str) -> Facts:
        """Check all of a copy, and return its facts. Raises StoreDamaged."""
        return sound_facts(copy, name)

    def owners(self, catalogue: Path) -> Mapping[str, Owner]:
        """Return the owners in a copy of the catalogue, by the names of their databases."""
        with translated(catalogue), closing(at_rest(catalogue)) as db:
            return snapshot.owners_in(snapshot.catalogue(db))

    def moment(
        self, *, lenient: bool = False, is_locked: bool = False
    ) -> AbstractContextManager[snapshot.Moment]:
        """Hold every database at one moment until the block ends.

        A database that cannot be read is an error, unless `lenient`. Raises Unsettled.
        """
        return snapshot.held(self.folder, lenient=lenient, is_locked=is_locked)

    def settle(self) -> None:
        """Finish or reverse moves that a crash interrupted."""
        asyncio.run(settle_moves(self.folder))

    def last_backup(self) -> tuple[Path, int] | None:
        """Return where and when; None if that is not known."""
        return database_checks.last_backup(self.folder)

    def note_backup(self, file: Path, at: str) -> None:
        """Note a backup, if the folder can be written."""
        database_checks.note_backup(self.folder, file, at)

    def scratch(self, place: Path) -> AbstractContextManager[Path]:
        """Create a folder for copies until the block ends; delete those of dead processes."""
        return scratch(place, COPIES)

    def stage(self) -> AbstractContextManager[Path]:
        """Create a folder for copies; it stays only if a restore was interrupted."""
        return restore.staged(self.folder)

    def found(self, clock: Clock) -> None:
        """Create the files that every data folder has, if they are missing."""
        restore.found(self.folder, clock)

    @contextmanager
    def locked(self) -> Generator[restore.LockedFolder, None, None]:
        """Keep every other process from writing. Raises StoreBusy."""
        with locked(self.folder) as live:
            yield restore.LockedFolder(live)

    def add_project(self, copy: Path, name: str, catalogue: Path | None, at: int) -> Added:
        """Add a project beside the others; the catalogue is that of the backup."""
        return restore.restored_beside(self.folder, copy, name, catalogue, at)

    def unfinished(self) -> Unfinished | None:
        return find_unfinished_restore(self.folder)

    def refuse_if_unfinished(self) -> None:
        """Raise Unavailable if a restore is unfinished."""
        found = self.unfinished()
        if found is not None:
            raise found.refusal()

    def check_databases(self, name: str, *, full: bool) -> Iterable[Finding]:
        """Return findings of a check of that name: each database, and its indexes."""
        return check_databases(self.folder, name, full=full)

    def check_projects(self, name: str, clock: Clock) -> Iterable[Finding]:
        """Compare the list of projects with their files."""
        return check_catalogue(self.folder, name, clock)

    def check_leftovers(self, name: str) -> Iterable[Finding]:
        """Find files that dead processes have left."""
        return check_leftovers(self.folder, name)

    def waiting(self, model: str, kinds: Sequence[str]) -> list[Waiting]:
        """Count pending embeddings of databases that can be written and are of this version."""
        return texts_that_wait(self.folder, model, kinds)

    def library(self) -> SqliteLibrary:
        return SqliteLibrary(self.folder)
