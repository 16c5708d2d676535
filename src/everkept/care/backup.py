"""`everkept backup`: everything that is stored, as it was at one moment, in one file."""

import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from everkept import __version__
from everkept.care import archive
from everkept.care.archive import Copied, Manifest
from everkept.core.care import Progress, Unsettled
from everkept.core.disk import new_file, usable
from everkept.core.times import Clock, iso
from everkept.errors import Conflict, InvalidInput, NotFound, StoreDamaged
from everkept.values import Value

if TYPE_CHECKING:
    from everkept.engines.sqlite.care.care import SqliteCare
    from everkept.engines.sqlite.care.snapshot import Moment

ATTEMPTS = 20  # times that somebody may be moving a project just then


class Backup(Value):
    """A backup that was written and read again."""

    file: Path
    size: int
    manifest: Manifest


def back_up(
    care: "SqliteCare",
    file: Path,
    clock: Clock,
    report: Progress,
    *,
    force: bool = False,
    with_damaged: bool = False,
) -> Backup:
    """Writes a backup of a data folder beside which servers go on writing.

    `with_damaged` takes in what cannot be read as it is; without it, that is an error.
    """
    folder = care.folder
    if not care.is_there():
        raise NotFound(
            "data",
            str(folder),
            message=f"There is nothing to back up: {folder} holds no data.",
            hint="--data-dir names another data folder.",
        )
    _check_target(folder, file, force=force)
    care.refuse_if_unfinished()
    for _ in range(ATTEMPTS):
        try:
            made = write_backup(care, file, clock, report, force=force, with_damaged=with_damaged)
        except Unsettled:
            care.settle()
        else:
            care.note_backup(made.file, made.manifest.created_at)
            return made
    raise Conflict("Other processes keep moving projects.", hint="Try again.")


def write_backup(
    care: "SqliteCare",
    file: Path,
    clock: Clock,
    report: Progress,
    *,
    force: bool = False,
    with_damaged: bool = False,
    is_locked: bool = False,
) -> Backup:
    """The same for a target that is checked, and for who has locked the data folder already."""
    with (
        # Beside the target, so that a rename puts the whole in its place.
        care.scratch(file.parent) as scratch,
        usable(scratch),
        care.moment(lenient=with_damaged, is_locked=is_locked) as moment,
    ):
        draft = scratch / "backup.zip"
        manifest = _Writing(care, scratch, moment, report, with_damaged=with_damaged).write(
            draft, clock()
        )
        archive.check_whole(care, draft, manifest)
        _publish(draft, file, force=force)
    return Backup(file, file.stat().st_size, manifest)


class _Writing:
    """One backup in the making."""

    def __init__(
        self,
        care: "SqliteCare",
        scratch: Path,
        moment: "Moment",
        report: Progress,
        *,
        with_damaged: bool,
    ) -> None:
        self._care = care
        self._scratch = scratch
        self._moment = moment
        self._report = report
        self._with_damaged = with_damaged
        self._damaged: list[str] = []
        self._done = 0

    def write(self, draft: Path, at: int) -> Manifest:
        with _new(draft) as target:
            copies = [copy for name in self._moment.databases if (copy := self._add(target, name))]
            for name in self._moment.damaged:
                self._damaged.append(name)
                for each in (name, f"{name}-wal"):
                    path = self._care.folder / each
                    if path.is_file():
                        archive.add_damaged(target, each, path)
            manifest = Manifest(__version__, iso(at), copies, self._damaged)
            archive.add_manifest(target, manifest)
        return manifest

    def _add(self, target: zipfile.ZipFile, name: str) -> Copied | None:
        copy = self._scratch / "copy.db"
        self._moment.copy(name, copy, self._reported())
        self._done += 1
        try:
            owner = self._moment.owners.get(name)
            return archive.add_copy(self._care, target, name, copy, owner)
        except StoreDamaged as error:
            if not self._with_damaged:
                raise _too_damaged(error) from error
            # The copy, not the file: closing that would take the locks that we have on it.
            archive.add_damaged(target, name, copy)
            self._damaged.append(name)
            return None
        finally:
            copy.unlink()

    def _reported(self) -> Progress:
        """Each database counts alike; within it, the pages do."""
        steps, total = 100, len(self._moment.databases)

        def report(done: int, pages: int) -> None:
            self._report(self._done * steps + steps * done // max(pages, 1), total * steps)

        return report


def _check_target(folder: Path, file: Path, *, force: bool) -> None:
    problem, hint = None, None
    if file.is_dir():
        problem, hint = f"{file} is a folder", "Name a file in it."
    elif not file.parent.is_dir():
        problem, hint = f"There is no folder {file.parent}", "Make it first."
    elif file.resolve().is_relative_to(folder.resolve()):
        problem = f"{file} is inside the data folder"
        hint = "A backup belongs elsewhere, best on another disk."
    if problem:
        raise InvalidInput(f"{problem}.", hint=hint, argument="FILE", value=str(file))
    if file.exists() and not force:
        raise _taken(file)


def _taken(file: Path) -> InvalidInput:
    return InvalidInput(
        f"There is a file {file} already.",
        hint="Name another one, or say --force to replace it.",
        argument="FILE",
        value=str(file),
    )


def _too_damaged(error: StoreDamaged) -> StoreDamaged:
    return StoreDamaged(
        f"{error.message} No backup was written.",
        hint="`everkept doctor` tells more; --with-damaged takes it in as it is.",
        **dict(error.facts),
    )


@contextmanager
def _new(draft: Path) -> Generator[zipfile.ZipFile, None, None]:
    """A zip that only its owner may read, on the disk when the block has ended."""
    with (
        new_file(draft) as file,
        zipfile.ZipFile(
            file, "w", zipfile.ZIP_DEFLATED, compresslevel=archive.COMPRESSION
        ) as target,
    ):
        yield target


def _publish(draft: Path, file: Path, *, force: bool) -> None:
    if file.exists() and not force:  # it came into being meanwhile
        raise _taken(file)
    draft.replace(file)
