"""`everkept restore`: a backup in place of what is stored, or one of its projects beside it.

It is taken out into a folder inside the data folder and verified there, all of it, before anything
is touched. What is there goes into a safety copy, which is verified too. Then each database gets
its new content, the list of projects last. A crash among these leaves some of each: the safety copy
is there, the folder of the copies tells `everkept doctor`, and the same command, given again,
brings it to an end.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from everkept.app.history import EXCLUDED
from everkept.care import archive
from everkept.care.archive import Manifest
from everkept.care.backup import write_backup
from everkept.core.accounts import is_home
from everkept.core.care import Added, Progress
from everkept.core.times import Clock, iso
from everkept.errors import (
    Conflict,
    EverkeptError,
    InvalidInput,
    NotFound,
    Refused,
    StoreDamaged,
    Unavailable,
)
from everkept.values import Value

if TYPE_CHECKING:
    from everkept.engines.sqlite.care.care import SqliteCare

DECISIONS = (EXCLUDED,)  # notes that say what is not to be stored

# Says whether to go on: given what is in the backup, and where the safety copy will be.
Ask = Callable[[Manifest, Path | None], bool]


class Restored(Value):
    """What came back; `safety` has what was there before, `left` could not be removed yet.

    `off` is switched off, some of it perhaps since the backup was made. What was decided since is
    not known where `decisions_lost`.
    """

    manifest: Manifest
    safety: Path | None
    left: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    decisions_lost: bool = False


def restore(
    care: "SqliteCare",
    file: Path,
    clock: Clock,
    report: Progress,
    ask: Ask,
    *,
    replace: bool = False,
    safety: Path | None = None,
) -> Restored | None:
    """Makes the data folder what the backup is; None where nobody wants that.

    Where there is data already this is refused, unless it may `replace` it.
    """
    folder = care.folder
    safety = safety or _beside(folder, clock())
    with ExitStack() as stack:
        backup, manifest = stack.enter_context(archive.opened(care, file))
        is_empty = _is_empty(care, replace=replace)
        stage = stack.enter_context(care.stage())
        archive.take_out(care, backup, file, manifest, stage)
        if not (stage / care.catalogue).exists():
            raise StoreDamaged(
                f"{file} has no list of projects: that was damaged when the backup was made.",
                hint="Take another one; nothing was changed.",
                path=str(file),
            )
        if not is_empty:
            _check_safety(safety)
        if not ask(manifest, None if is_empty else safety):
            return None
        care.found(clock)
        with care.locked() as live:
            if not live.is_empty and is_empty:
                raise Conflict(f"{folder} was filled meanwhile.", hint="Try again.")
            kept = None if live.is_empty else safety
            if kept is not None:
                write_backup(care, kept, clock, report, with_damaged=True, is_locked=True)
            prepared = live.prepare(stage, file, kept, DECISIONS, clock())
            try:
                left = live.put(stage, report)
            except (EverkeptError, OSError, KeyboardInterrupt) as error:
                raise _interrupted(error, kept) from error
    return Restored(manifest, kept, tuple(left), tuple(prepared.off), prepared.decisions_lost)


def restore_project(care: "SqliteCare", file: Path, name: str, clock: Clock) -> Added:
    """One project of the backup beside those that are there. Raises InvalidInput for what is an
    account's alone: as a project, others would see it."""
    if is_home(name):
        raise InvalidInput(
            f'"{name}" is what an account keeps for itself: it never comes back as a project.',
            hint="--replace brings everything back, and that with it.",
            argument="--project",
            value=name,
        )
    care.refuse_if_unfinished()
    with archive.opened(care, file) as (backup, manifest), care.stage() as stage:
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
            archive.take_out_one(care, backup, file, copied, stage / copied.name)
        care.found(clock)
        before = stage / care.catalogue if listed else None
        return care.add_project(stage / wanted.name, name, before, clock())


def _is_empty(care: "SqliteCare", *, replace: bool) -> bool:
    """Raises Refused where there is data, and it may not be replaced."""
    with care.locked() as live:
        is_empty = live.is_empty
    if not is_empty and not replace:
        raise Refused(
            f"{care.folder} holds data already.",
            hint="--replace puts the backup in its place, after a safety copy of what is there; "
            "--project NAME adds one project of the backup to it.",
            path=str(care.folder),
        )
    return is_empty


def _beside(folder: Path, at: int) -> Path:
    moment = iso(at)[:19].replace(":", "").replace("T", "-")
    return folder.with_name(f"{folder.name}-before-restore-{moment}.zip")


def _check_safety(safety: Path) -> None:
    if safety.exists() or not safety.parent.is_dir():
        what = "is there already" if safety.exists() else "cannot be written: its folder is missing"
        raise InvalidInput(
            f"The safety copy {safety} {what}.",
            hint="--safety-copy FILE names another place.",
            argument="--safety-copy",
            value=str(safety),
        )


def _interrupted(error: BaseException, safety: Path | None) -> Unavailable:
    kept = f" What was there before is in {safety}." if safety else ""
    reason = getattr(error, "message", str(error)) or "it was interrupted."
    return Unavailable(
        f"Only a part of the backup came back: {reason}",
        hint=f"Give the same command with --replace again.{kept}",
        safety_copy=str(safety) if safety else None,
    )
