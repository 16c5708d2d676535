"""Care for the files of one data folder."""

import asyncio
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from everkept.core.care import Added, Facts, Finding, Owner, Unfinished, Waiting
from everkept.core.times import Clock
from everkept.engines.sqlite.care import backup_note, copying, restoring
from everkept.engines.sqlite.care.catalogue import check_catalogue
from everkept.engines.sqlite.care.copying import META
from everkept.engines.sqlite.care.databases import check_databases
from everkept.engines.sqlite.care.leftovers import check_leftovers
from everkept.engines.sqlite.care.mending import settle_moves
from everkept.engines.sqlite.care.replacing import locked
from everkept.engines.sqlite.care.scratch import scratch
from everkept.engines.sqlite.care.waiting import texts_that_wait
from everkept.engines.sqlite.connections import translated
from everkept.engines.sqlite.examining import at_rest, sound_facts
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.unfinished import unfinished

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
            return copying.owners_in(copying.catalogue(db))

    def moment(
        self, *, lenient: bool = False, is_locked: bool = False
    ) -> AbstractContextManager[copying.Moment]:
        """Hold every database at one moment until the block ends.

        A database that cannot be read is an error, unless `lenient`. Raises Unsettled.
        """
        return copying.held(self.folder, lenient=lenient, is_locked=is_locked)

    def settle(self) -> None:
        """Finish or reverse moves that a crash interrupted."""
        asyncio.run(settle_moves(self.folder))

    def last_backup(self) -> tuple[Path, int] | None:
        """Return where and when; None if that is not known."""
        return backup_note.last_backup(self.folder)

    def note_backup(self, file: Path, at: str) -> None:
        """Note a backup, if the folder can be written."""
        backup_note.note_backup(self.folder, file, at)

    def scratch(self, place: Path) -> AbstractContextManager[Path]:
        """Create a folder for copies until the block ends; delete those of dead processes."""
        return scratch(place, COPIES)

    def stage(self) -> AbstractContextManager[Path]:
        """Create a folder for copies; it stays only if a restore was interrupted."""
        return restoring.staged(self.folder)

    def found(self, clock: Clock) -> None:
        """Create the files that every data folder has, if they are missing."""
        restoring.found(self.folder, clock)

    @contextmanager
    def locked(self) -> Generator[restoring.LockedFolder, None, None]:
        """Keep every other process from writing. Raises StoreBusy."""
        with locked(self.folder) as live:
            yield restoring.LockedFolder(live)

    def add_project(self, copy: Path, name: str, catalogue: Path | None, at: int) -> Added:
        """Add a project beside the others; the catalogue is that of the backup."""
        return restoring.restored_beside(self.folder, copy, name, catalogue, at)

    def unfinished(self) -> Unfinished | None:
        return unfinished(self.folder)

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
