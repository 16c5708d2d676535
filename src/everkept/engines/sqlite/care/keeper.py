"""The port of care over the files of one data folder."""

import asyncio
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from everkept.core.care import Added, Facts, Finding, Owner, Progress, Unfinished, Waiting
from everkept.core.times import Clock
from everkept.engines.sqlite.care import backup_note, copying, restoring
from everkept.engines.sqlite.care.catalogue import check_catalogue
from everkept.engines.sqlite.care.copying import META, Kept
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


class HeldMoment:
    """The port over read transactions."""

    def __init__(self, moment: copying.Moment) -> None:
        self._moment = moment

    @property
    def names(self) -> Sequence[str]:
        return [*self._moment.databases]

    @property
    def damaged(self) -> Sequence[str]:
        return [*self._moment.damaged]

    @property
    def owners(self) -> Mapping[str, Owner]:
        return _owners(self._moment.projects)

    def copy(self, name: str, target: Path, report: Progress) -> None:
        copying.copy_to(self._moment.databases[name], target, report)


class SqliteCare:
    """Opens each file only for as long as it takes."""

    catalogue = META

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def is_there(self) -> bool:
        return (self.folder / META).exists()

    def is_name(self, name: str) -> bool:
        return bool(_NAME.fullmatch(name)) and ".." not in name

    def facts(self, copy: Path, name: str) -> Facts:
        return sound_facts(copy, name)

    def owners(self, catalogue: Path) -> Mapping[str, Owner]:
        with translated(catalogue), closing(at_rest(catalogue)) as db:
            return _owners(copying.catalogue(db))

    @contextmanager
    def moment(
        self, *, lenient: bool = False, is_locked: bool = False
    ) -> Generator[HeldMoment, None, None]:
        with copying.held(self.folder, lenient=lenient, is_locked=is_locked) as moment:
            yield HeldMoment(moment)

    def settle(self) -> None:
        asyncio.run(settle_moves(self.folder))

    def last_backup(self) -> tuple[Path, int] | None:
        return backup_note.last_backup(self.folder)

    def note_backup(self, file: Path, at: str) -> None:
        backup_note.note_backup(self.folder, file, at)

    @contextmanager
    def scratch(self, place: Path) -> Generator[Path, None, None]:
        with scratch(place, COPIES) as folder:
            yield folder

    @contextmanager
    def stage(self) -> Generator[Path, None, None]:
        with restoring.staged(self.folder) as stage:
            yield stage

    def found(self, clock: Clock) -> None:
        restoring.found(self.folder, clock)

    @contextmanager
    def locked(self) -> Generator[restoring.LockedFolder, None, None]:
        with locked(self.folder) as live:
            yield restoring.LockedFolder(live)

    def add_project(self, copy: Path, name: str, catalogue: Path | None, at: int) -> Added:
        return restoring.restored_beside(self.folder, copy, name, catalogue, at)

    def unfinished(self) -> Unfinished | None:
        return unfinished(self.folder)

    def check_databases(self, name: str, *, full: bool) -> Iterable[Finding]:
        return check_databases(self.folder, name, full=full)

    def check_projects(self, name: str, clock: Clock) -> Iterable[Finding]:
        return check_catalogue(self.folder, name, clock)

    def check_leftovers(self, name: str) -> Iterable[Finding]:
        return check_leftovers(self.folder, name)

    def waiting(self, model: str, kinds: Sequence[str]) -> list[Waiting]:
        return texts_that_wait(self.folder, model, kinds)

    def library(self) -> SqliteLibrary:
        return SqliteLibrary(self.folder)


def _owners(projects: Sequence[Kept]) -> dict[str, Owner]:
    return {kept.path: Owner(kept.name, kept.status) for kept in projects}
