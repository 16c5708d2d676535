"""`recollect restore`: a backup in place of what is stored, or one of its projects beside it.

It is taken out into a folder inside the data folder and verified there, all of it, before anything
is touched. What is there goes into a safety copy, which is verified too. Then each database gets
its new content, `_meta.db` last (`engines/sqlite/replacing.py`). A crash among these leaves some
of each: the safety copy is there, the folder of the copies tells `recollect doctor`, and the same
command, given again, brings it to an end.
"""

import json
import shutil
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from recollect.app.care import archive
from recollect.app.care.archive import Manifest
from recollect.app.care.backups import write_backup
from recollect.core.times import Clock, iso
from recollect.engines.sqlite.connections import create
from recollect.engines.sqlite.copying import HISTORY, META, USER, Kept, Progress, catalogue
from recollect.engines.sqlite.examining import at_rest
from recollect.engines.sqlite.founding import make_library, make_store
from recollect.engines.sqlite.library import usable
from recollect.engines.sqlite.replacing import (
    Live,
    Numbers,
    add_project,
    bury,
    fold_all,
    locked,
    prepare_catalogue,
    prepare_store,
    put_catalogue,
    put_store,
    remove,
)
from recollect.engines.sqlite.schema import PROJECT
from recollect.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    RecollectError,
    Refused,
    StoreDamaged,
    Unavailable,
)

STAGE = "restoring-"  # begins the name of the folder that copies are verified in
ABOUT = "about.json"  # in it from the first change on: what is restored, and the safety copy

# Says whether to go on: given what is in the backup, and where the safety copy will be.
Ask = Callable[[Manifest, Path | None], bool]


@dataclass(frozen=True, slots=True)
class Restored:
    """What came back; `safety` has what was there before, `left` could not be removed yet."""

    manifest: Manifest
    safety: Path | None
    left: tuple[str, ...] = ()


def restore(
    folder: Path,
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
    safety = safety or _beside(folder, clock())
    is_empty = _is_empty(folder)
    if not is_empty and not replace:
        raise Refused(
            f"{folder} holds data already.",
            hint="--replace puts the backup in its place, after a safety copy of what is there; "
            "--project NAME adds one project of the backup to it.",
            path=str(folder),
        )
    with archive.opened(file) as (backup, manifest), _stage(folder) as stage:
        archive.take_out(backup, file, manifest, stage)
        if not (stage / META).exists():
            raise StoreDamaged(
                f"{file} has no list of projects: that was damaged when the backup was made.",
                hint="Take another one; nothing was changed.",
                path=str(file),
            )
        if not is_empty:
            _check_safety(safety)
        if not ask(manifest, None if is_empty else safety):
            return None
        _found(folder, clock)
        with locked(folder) as live:
            if not live.is_empty and is_empty:
                raise Conflict(f"{folder} was filled meanwhile.", hint="Try again.")
            kept = None if live.is_empty else safety
            if kept is not None:
                write_backup(folder, kept, clock, report, with_damaged=True, is_locked=True)
            left = _replaced(live, stage, file, kept, report)
    return Restored(manifest, kept, tuple(left))


def restore_project(folder: Path, file: Path, name: str, clock: Clock) -> str:
    """One project of the backup beside those that are there; gives the name that was free."""
    with archive.opened(file) as (backup, manifest), _stage(folder) as stage:
        wanted = next((copied for copied in manifest.projects if copied.project == name), None)
        if wanted is None:
            known = ", ".join(f'"{copied.project}"' for copied in manifest.projects[:10])
            raise NotFound(
                "project",
                name,
                message=f'The backup has no project "{name}".',
                hint=f"It has {known}." if known else "It has none.",
            )
        archive.take_out_one(backup, file, wanted, stage / wanted.name)
        _found(folder, clock)
        prepared = stage / wanted.name
        generation = prepare_store(prepared, Numbers())
        like = Kept("", name, "active", wanted.name, generation, None)
        return add_project(folder, prepared, like, iso(clock()))


def _replaced(
    live: Live, stage: Path, file: Path, safety: Path | None, report: Progress
) -> list[str]:
    """Gives the files that could not be removed yet."""
    projects = [kept for kept in _listed(stage) if (stage / kept.path).exists()]
    _prepare(live, stage, projects)
    names = [*(kept.path for kept in projects), USER, HISTORY]
    gone = [kept.path for kept in live.projects if kept.path not in names]
    (stage / ABOUT).write_text(
        json.dumps({"backup": str(file), "safety": str(safety) if safety else None}),
        encoding="utf-8",
    )
    try:
        for number, name in enumerate(names):
            put_store(live, name, stage / name, lambda _done, _total: None)
            report(number + 1, len(names) + 1)
        bury(live, gone)
        put_catalogue(live, stage / META)
    except (RecollectError, OSError, KeyboardInterrupt) as error:
        raise _interrupted(error, safety) from error
    (stage / ABOUT).unlink()
    _remove_interrupted(live.folder)
    report(len(names) + 1, len(names) + 1)
    fold_all(live.folder, [META, *names])
    return remove(live.folder, gone)


def _prepare(live: Live, stage: Path, projects: list[Kept]) -> None:
    """Brings the copies up to date, and their numbers behind those of what they replace."""
    there = {kept.id: kept for kept in live.projects}
    generations: dict[str, int] = {}
    for kept in projects:
        numbers = live.numbers(kept.path)
        if before := there.get(kept.id):
            known = Numbers(generation=before.generation)
            numbers = numbers.beyond(live.numbers(before.path)).beyond(known)
        archived = kept.status == "archived"
        generations[kept.id] = prepare_store(stage / kept.path, numbers, archived=archived)
    for name in (USER, HISTORY):
        if not (stage / name).exists():
            create(stage / name, PROJECT)
        prepare_store(stage / name, live.numbers(name))
    prepare_catalogue(stage / META, generations)


def _listed(stage: Path) -> list[Kept]:
    with closing(at_rest(stage / META)) as meta:
        return catalogue(meta)


def _is_empty(folder: Path) -> bool:
    with locked(folder) as live:
        return live.is_empty


def _found(folder: Path, clock: Clock) -> None:
    """Makes the files that every data folder has, where they are missing."""
    with usable(folder):
        for part in ("projects", "archive"):
            (folder / part).mkdir(mode=0o700, exist_ok=True)
        if not (folder / META).exists():
            make_library(folder, clock)
        for name in (USER, HISTORY):
            if not (folder / name).exists():
                make_store(folder / name)


def _remove_interrupted(folder: Path) -> None:
    """What an earlier restore left when it was cut short; nobody else restores meanwhile."""
    for about in folder.glob(f"{STAGE}*/{ABOUT}"):
        shutil.rmtree(about.parent, ignore_errors=True)


@contextmanager
def _stage(folder: Path) -> Generator[Path, None, None]:
    """Where copies are verified; it stays only where a restore was cut short."""
    with usable(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        stage = folder / f"{STAGE}{uuid4().hex}"
        stage.mkdir(mode=0o700)
    try:
        yield stage
    finally:
        if not (stage / ABOUT).exists():
            shutil.rmtree(stage, ignore_errors=True)


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
