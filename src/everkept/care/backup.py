"""Backups: the state of one moment in one file, and its restoration.

A restore extracts the copies into a folder inside the data folder and verifies all of them before it changes anything.
It also writes and verifies a safety copy of the present data. Then each database gets its new content, the list of
projects last. After a crash in between, some databases are old and some new. Then the safety copy exists, `everkept
doctor` finds the folder of copies, and the same command completes the restore.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from everkept.app.history import EXCLUDED_NOTES
from everkept.core.care_results import OmittedAccess, Progress, RestoredProject, UnfinishedOperation
from everkept.core.sessions import is_private_name
from everkept.core.times import Clock
from everkept.engines.sqlite import archive
from everkept.engines.sqlite.archive import ArchiveManifest, WrittenBackup, build_exists_error, write_backup
from everkept.engines.sqlite.snapshot import META
from everkept.errors import Conflict, EverkeptError, InvalidInput, NotFound, Refused, StoreDamaged, Unavailable
from everkept.values import Value

if TYPE_CHECKING:
    from everkept.engines.sqlite.care import SqliteCare

MAX_ATTEMPTS = 20  # while another process moves a project


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
            made = write_backup(folder, file, clock, report, force=force, with_damaged=with_damaged)
        except UnfinishedOperation:
            care.settle_moves()
        else:
            care.note_backup(made.file, made.manifest.created_at)
            return made
    raise Conflict("Other processes keep moving projects.", hint="Try again.")


def _check_target(folder: Path, file: Path, *, force: bool) -> None:
    problem, hint = None, None
    if file.is_dir():
        problem, hint = f"{file} is a folder", "Specify a file in it."
    elif not file.parent.is_dir():
        problem, hint = f"Cannot find the folder {file.parent}", "Make it first."
    elif file.resolve().is_relative_to(folder.resolve()):
        problem = f"{file} is inside the data folder"
        hint = "Choose another folder for the backup, preferably on another disk."
    if problem:
        raise InvalidInput(f"{problem}.", hint=hint, argument="FILE", value=str(file))
    if file.exists() and not force:
        raise build_exists_error(file)


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
        backup, manifest = stack.enter_context(archive.open_backup(file))
        is_empty = _is_empty(care, replace=replace)
        stage = stack.enter_context(care.open_stage())
        archive.extract_databases(backup, file, manifest, stage)
        if not (stage / META).exists():
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
                raise Conflict(f"Another process wrote to {folder} during the restore.", hint="Try again.")
            kept = None if live.is_empty else safety
            if kept is not None:
                write_backup(folder, kept, clock, report, with_damaged=True, is_locked=True)
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
    with archive.open_backup(file) as (backup, manifest), care.open_stage() as stage:
        wanted = next((copied for copied in manifest.projects if copied.project == name), None)
        if wanted is None:
            known = ", ".join(f'"{each}"' for each in manifest.project_names[:10])
            raise NotFound(
                "project",
                name,
                message=f'The backup has no project "{name}".',
                hint=f"It has {known}." if known else "It has none.",
            )
        listed = [copied for copied in manifest.databases if copied.name == META]
        for copied in (wanted, *listed):
            archive.extract_database(backup, file, copied, stage / copied.name)
        care.create_missing_files(clock)
        before = stage / META if listed else None
        return care.add_project(stage / wanted.name, name, before, clock())


def _is_empty(care: "SqliteCare", *, replace: bool) -> bool:
    """Return whether the data folder is empty. Raise Refused if its data must not be replaced."""
    with care.lock() as live:
        is_empty = live.is_empty
    if not is_empty and not replace:
        raise Refused(
            f"{care.folder} already contains data.",
            hint="Pass --replace to replace it after a safety copy, or --project NAME to add one project.",
            path=str(care.folder),
        )
    return is_empty


def _build_safety_path(folder: Path, at: int) -> Path:
    return folder.with_name(f"{folder.name}-before-restore-{archive.format_moment(at)}.zip")


def _check_safety(safety: Path) -> None:
    if safety.exists() or not safety.parent.is_dir():
        what = "already exists" if safety.exists() else "cannot be written because its folder is missing"
        raise InvalidInput(
            f"The safety copy {safety} {what}.",
            hint="Pass another file with --safety-copy FILE.",
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
