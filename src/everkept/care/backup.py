"""Backups: the state of one moment in one file, and its restoration.

A restore extracts the copies into a folder inside the data folder and verifies all of them before it changes anything.
It also writes and verifies a safety copy of the present data. Then each database gets its new content, the list of
projects last. After a crash in between, some databases are old and some new. Then the safety copy exists, `everkept
doctor` finds the folder of copies, and the same command completes the restore.
"""

import zipfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from everkept import __version__
from everkept.app.history import EXCLUDED_NOTES
from everkept.care import archive
from everkept.care.archive import ArchiveManifest, BackupDatabase
from everkept.core.care_results import OmittedAccess, Progress, RestoredProject, UnfinishedOperation
from everkept.core.disk import translate_os_errors, write_new_file
from everkept.core.sessions import is_private_name
from everkept.core.times import Clock, format_iso
from everkept.errors import Conflict, EverkeptError, InvalidInput, NotFound, Refused, StoreDamaged, Unavailable
from everkept.values import Value

if TYPE_CHECKING:
    from everkept.engines.sqlite.care import SqliteCare
    from everkept.engines.sqlite.snapshot import FolderSnapshot

MAX_ATTEMPTS = 20  # while another process moves a project


class WrittenBackup(Value):
    """Backup that was written and verified."""

    file: Path
    size: int
    manifest: ArchiveManifest


def back_up(
    care: "SqliteCare", file: Path, clock: Clock, report: Progress, *, force: bool = False, with_damaged: bool = False
) -> WrittenBackup:
    """Write a backup of a data folder while servers continue to write.

    `with_damaged` includes unreadable databases; otherwise they are an error.
    """
    folder = care.folder
    if not care.has_data():
        raise NotFound(
            "data",
            str(folder),
            message=f"Found nothing to back up: {folder} holds no data.",
            hint="Pass another data folder with --data-dir.",
        )
    _check_target(folder, file, force=force)
    care.refuse_if_unfinished()
    for _ in range(MAX_ATTEMPTS):
        try:
            made = write_backup(care, file, clock, report, force=force, with_damaged=with_damaged)
        except UnfinishedOperation:
            care.settle_moves()
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
) -> WrittenBackup:
    """Write a backup to a checked target, for a caller that has locked the data folder."""
    with (
        # Next to the target, so that a rename puts it in its place.
        care.open_scratch(file.parent) as scratch,
        translate_os_errors(scratch),
        care.open_snapshot(lenient=with_damaged, is_locked=is_locked) as moment,
    ):
        draft = scratch / "backup.zip"
        manifest = _BackupWriter(care, scratch, moment, report, with_damaged=with_damaged).write(draft, clock())
        archive.verify_backup(care, draft, manifest)
        _publish(draft, file, force=force)
    return WrittenBackup(file, file.stat().st_size, manifest)


class _BackupWriter:
    """One backup while it is written."""

    def __init__(
        self, care: "SqliteCare", scratch: Path, moment: "FolderSnapshot", report: Progress, *, with_damaged: bool
    ) -> None:
        self._care = care
        self._scratch = scratch
        self._moment = moment
        self._report = report
        self._with_damaged = with_damaged
        self._damaged: list[str] = []
        self._done = 0

    def write(self, draft: Path, at: int) -> ArchiveManifest:
        with _open_archive(draft) as target:
            copies = [copy for name in self._moment.databases if (copy := self._add(target, name))]
            for name in self._moment.damaged:
                self._damaged.append(name)
                for each in (name, f"{name}-wal"):
                    path = self._care.folder / each
                    if path.is_file():
                        archive.add_damaged(target, each, path)
            manifest = ArchiveManifest(__version__, format_iso(at), copies, self._damaged)
            archive.add_manifest(target, manifest)
        return manifest

    def _add(self, target: zipfile.ZipFile, name: str) -> BackupDatabase | None:
        copy = self._scratch / "copy.db"
        self._moment.copy(name, copy, self._build_progress())
        self._done += 1
        try:
            owner = self._moment.owners.get(name)
            return archive.add_copy(self._care, target, name, copy, owner)
        except StoreDamaged as error:
            if not self._with_damaged:
                raise _build_damaged_error(error) from error
            # The copy, because closing the file would release our locks on it.
            archive.add_damaged(target, name, copy)
            self._damaged.append(name)
            return None
        finally:
            copy.unlink()

    def _build_progress(self) -> Progress:
        """Weigh each database equally, and its pages within it."""
        steps, total = 100, len(self._moment.databases)

        def report(done: int, pages: int) -> None:
            self._report(self._done * steps + steps * done // max(pages, 1), total * steps)

        return report


def _check_target(folder: Path, file: Path, *, force: bool) -> None:
    problem, hint = None, None
    if file.is_dir():
        problem, hint = f"{file} is a folder", "Specify a file in it."
    elif not file.parent.is_dir():
        problem, hint = f"Cannot find the folder {file.parent}", "Make it first."
    elif file.resolve().is_relative_to(folder.resolve()):
        problem = f"{file} is inside the data folder"
        hint = "Put the backup in another place, best on another disk."
    if problem:
        raise InvalidInput(f"{problem}.", hint=hint, argument="FILE", value=str(file))
    if file.exists() and not force:
        raise _build_exists_error(file)


def _build_exists_error(file: Path) -> InvalidInput:
    return InvalidInput(
        f"The file already exists: {file} already.",
        hint="Specify another one, or pass --force to replace it.",
        argument="FILE",
        value=str(file),
    )


def _build_damaged_error(error: StoreDamaged) -> StoreDamaged:
    return StoreDamaged(
        f"{error.message} No backup was written.",
        hint="For details, run `everkept doctor`. To include it unchanged, pass --with-damaged.",
        **dict(error.facts),
    )


@contextmanager
def _open_archive(draft: Path) -> Generator[zipfile.ZipFile, None, None]:
    """Create a private zip that is on the disk when the block has ended."""
    with (
        write_new_file(draft) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=archive.COMPRESSION_LEVEL) as target,
    ):
        yield target


def _publish(draft: Path, file: Path, *, force: bool) -> None:
    if file.exists() and not force:  # another process has created it
        raise _build_exists_error(file)
    draft.replace(file)


DECISION_NOTES = (EXCLUDED_NOTES,)  # notes about what must not be stored

# Returns whether to continue, given the content of the backup and the place of the safety copy.
ConfirmRestore = Callable[[ArchiveManifest, Path | None], bool]


class RestoreOutcome(Value):
    """Result of a restore. `safety` has the earlier data, `left` could not be deleted yet.

    `off` are projects that are off, some possibly since the backup. `decisions_lost` means that later decisions could
    not be read.
    """

    manifest: ArchiveManifest
    safety: Path | None
    left: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    decisions_lost: bool = False
    omitted: OmittedAccess = OmittedAccess()


def restore(
    care: "SqliteCare",
    file: Path,
    clock: Clock,
    report: Progress,
    ask: ConfirmRestore,
    *,
    replace: bool = False,
    safety: Path | None = None,
    with_access: bool = False,
) -> RestoreOutcome | None:
    """Make the data folder equal to the backup. Return None if the caller declines.

    Existing data is refused unless `replace` is set. Tokens, accounts and grants of the backup are restored only
    `with_access`.
    """
    folder = care.folder
    safety = safety or _build_safety_path(folder, clock())
    with ExitStack() as stack:
        backup, manifest = stack.enter_context(archive.open_backup(care, file))
        is_empty = _is_empty(care, replace=replace)
        stage = stack.enter_context(care.open_stage())
        archive.extract_databases(care, backup, file, manifest, stage)
        if not (stage / care.catalogue).exists():
            raise StoreDamaged(
                f"{file} does not have a list of projects, because it was damaged before the backup.",
                hint="Use another one. Nothing was changed.",
                path=str(file),
            )
        if not is_empty:
            _check_safety(safety)
        if not ask(manifest, None if is_empty else safety):
            return None
        care.create_missing_files(clock)
        with care.lock() as live:
            if not live.is_empty and is_empty:
                raise Conflict(f"{folder} was filled in the meantime.", hint="Try again.")
            kept = None if live.is_empty else safety
            if kept is not None:
                write_backup(care, kept, clock, report, with_damaged=True, is_locked=True)
            prepared = live.prepare(stage, file, kept, DECISION_NOTES, clock(), with_access=with_access)
            try:
                left = live.put(stage, report)
            except (EverkeptError, OSError, KeyboardInterrupt) as error:
                raise _build_interrupted_error(error, kept) from error
    return RestoreOutcome(manifest, kept, tuple(left), tuple(prepared.off), prepared.decisions_lost, prepared.omitted)


def restore_project(care: "SqliteCare", file: Path, name: str, clock: Clock) -> RestoredProject:
    """Add one project of the backup to the existing ones.

    Raise InvalidInput for a private store of an account, which others would see as a project.
    """
    if is_private_name(name):
        raise InvalidInput(
            f'"{name}" is private data of an account, so it cannot become a project.',
            hint="Restore all data with --replace.",
            argument="--project",
            value=name,
        )
    care.refuse_if_unfinished()
    with archive.open_backup(care, file) as (backup, manifest), care.open_stage() as stage:
        wanted = next((copied for copied in manifest.projects if copied.project == name), None)
        if wanted is None:
            known = ", ".join(f'"{each}"' for each in manifest.project_names[:10])
            raise NotFound(
                "project",
                name,
                message=f'The backup has no project "{name}".',
                hint=f"It has {known}." if known else "It has none.",
            )
        listed = [copied for copied in manifest.databases if copied.name == care.catalogue]
        for copied in (wanted, *listed):
            archive.extract_database(care, backup, file, copied, stage / copied.name)
        care.create_missing_files(clock)
        before = stage / care.catalogue if listed else None
        return care.add_project(stage / wanted.name, name, before, clock())


def _is_empty(care: "SqliteCare", *, replace: bool) -> bool:
    """Return whether the data folder is empty. Raise Refused if its data must not be replaced."""
    with care.lock() as live:
        is_empty = live.is_empty
    if not is_empty and not replace:
        raise Refused(
            f"{care.folder} holds data already.",
            hint="Pass --replace to replace it after a safety copy, or --project NAME to add one project.",
            path=str(care.folder),
        )
    return is_empty


def _build_safety_path(folder: Path, at: int) -> Path:
    # With milliseconds, because two restores may follow within a second.
    moment = format_iso(at)[:23].translate(str.maketrans({":": None, ".": "-", "T": "-"}))
    return folder.with_name(f"{folder.name}-before-restore-{moment}.zip")


def _check_safety(safety: Path) -> None:
    if safety.exists() or not safety.parent.is_dir():
        what = "already exists" if safety.exists() else "cannot be written because its folder is missing"
        raise InvalidInput(
            f"The safety copy {safety} {what}.",
            hint="Pass another place with --safety-copy FILE.",
            argument="--safety-copy",
            value=str(safety),
        )


def _build_interrupted_error(error: BaseException, safety: Path | None) -> Unavailable:
    kept = f" The earlier data is in {safety}." if safety else ""
    reason = getattr(error, "message", str(error)) or "it was interrupted."
    return Unavailable(
        f"Only a part of the backup was restored: {reason}",
        hint=f"Run the same command with --replace again.{kept}",
        safety_copy=str(safety) if safety else None,
    )
