"""Making, putting away, bringing back and deleting a project's file while others have it open.

Every move first commits its intent to `_meta.db`, then runs inside one write transaction there.
So two moves never overlap, and an intent that is found under the write lock was left by a crash
(or is about to be acted upon by a living process, which then declares it again). It is finished
or taken back by looking where the file is.

A file is never moved while anybody could write to it: its generation is set first, each write
transaction compares it, and the write-ahead log is folded in before the move. What comes back
from the archive is a copy: a process that has had the old file open all along would, on closing
it, delete the write-ahead log that it finds under the old name.
"""

import logging
import os
import re
import shutil
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

import apsw

from everkept.core.projects import Status
from everkept.engines.sqlite.connection import (
    Connection,
    check_version,
    connect,
    create,
    fold,
    transaction,
    translated,
    unlink_logs,
)
from everkept.engines.sqlite.database import Database
from everkept.engines.sqlite.schema import LIBRARY, PROJECT
from everkept.engines.sqlite.store import DELETED_GENERATION, generation_of
from everkept.errors import Conflict, EverkeptError, InvalidInput, NotFound, StoreBusy, StoreDamaged
from everkept.values import Value

log = logging.getLogger(__name__)

Intent = Literal["creating", "archiving", "restoring", "deleting"]

# Seconds to wait for readers before a move is given up; others wait longer for `_meta.db`, which
# is locked meanwhile.
FOLD_PATIENCE = 5.0
ATTEMPTS = 20  # times an intent may be taken for a crash's before the move is given up

_ID = re.compile("[0-9A-Za-z-]{1,64}")


class Place(Value):
    """A project, and the folder that its file is in."""

    folder: Path
    id: str
    name: str

    @property
    def active(self) -> Path:
        return self.folder / "projects" / f"{self.id}.db"

    @property
    def archived(self) -> Path:
        return self.folder / "archive" / f"{self.id}.db"

    @property
    def draft(self) -> Path:
        return self.folder / "archive" / f"{self.id}.db.new"

    @property
    def title(self) -> str:
        return f'The file of project "{self.name}"'

    def relative(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()


def checked_id(project_id: str) -> str:
    """Gives the id back that is to name a file, or says that it cannot."""
    if not _ID.fullmatch(project_id):
        raise InvalidInput(
            f"{project_id!r} is no id of a project: letters, digits and '-' are, 64 at most.",
            argument="project_id",
            value=project_id,
        )
    return project_id


async def make(meta: Database, place: Place, description: str, at: str) -> None:
    def declare(db: Connection) -> bool:
        left = db.execute(
            "SELECT id, name FROM projects WHERE (name = ? OR id = ?) AND transition IS NOT NULL",
            (place.name, place.id),
        ).get
        if left is not None:
            _settle(db, Place(place.folder, *left))
            return False
        _refuse_if_taken(db, place)
        db.execute(
            "INSERT INTO projects(id, name, description, db_path, created_at, updated_at, "
            "transition) VALUES (?1,?2,?3,?4,?5,?5,'creating')",
            (place.id, place.name, description, place.relative(place.active), at),
        )
        return True

    def work(db: Connection) -> None:
        facts = {"name": place.name, "description": description, "created_at": at}
        create(place.active, PROJECT, facts)
        db.execute("UPDATE projects SET transition = NULL WHERE id = ?", (place.id,))

    await meta.maintain(lambda db: _move(db, meta.path, place, "creating", declare, work))


def _refuse_if_taken(db: Connection, place: Place) -> None:
    facts = {"kind": "project", "name": place.name}
    if db.execute("SELECT count(*) FROM projects WHERE name = ?", (place.name,)).get:
        raise Conflict(
            f'There is a project "{place.name}" already.',
            hint="list_projects with status `all` shows it; switch_project selects it.",
            **facts,
        )
    # A file that no project has is somebody's all the same.
    if _is_listed(db, place) or place.active.exists() or place.archived.exists():
        raise Conflict(f"There is a project of the id {place.id} already.", id=place.id, **facts)


async def move_away(meta: Database, place: Place, at: str) -> None:
    def work(db: Connection) -> None:
        _set_generation(place, place.active, lambda found: -abs(found))
        _fold(place, place.active)
        place.active.rename(place.archived)
        unlink_logs(place.active)
        _finish(db, place, "archived", at)

    await meta.maintain(
        lambda db: _move(
            db, meta.path, place, "archiving", lambda db: _declare(db, place, "archiving"), work
        )
    )


async def move_back(meta: Database, place: Place, at: str) -> None:
    def work(db: Connection) -> None:
        _fold(place, place.archived)
        _unlink(place.draft)
        _copy(place.archived, place.draft)
        generation = _set_generation(place, place.draft, lambda found: abs(found) + 1)
        unlink_logs(place.active)
        place.draft.replace(place.active)
        _finish(db, place, "active", at, generation)
        _unlink(place.archived)

    await meta.maintain(
        lambda db: _move(
            db, meta.path, place, "restoring", lambda db: _declare(db, place, "restoring"), work
        )
    )


async def discard(meta: Database, place: Place) -> None:
    await meta.maintain(
        lambda db: _move(
            db,
            meta.path,
            place,
            "deleting",
            lambda db: _declare(db, place, "deleting"),
            lambda db: _discard(db, place),
        )
    )


async def repair(meta: Database, folder: Path) -> None:
    """Finishes or takes back what a crash interrupted, as far as that is possible now."""

    def ask(db: Connection) -> list[tuple[str, str]]:
        rows = db.execute("SELECT id, name FROM projects WHERE transition IS NOT NULL")
        return [(project_id, name) for project_id, name in rows]

    for project_id, name in await meta.read(ask):
        await settle(meta, Place(folder, project_id, name))


async def settle(meta: Database, place: Place) -> None:
    """The same for one project. Waits for a living process that is moving it."""
    try:
        await meta.write(lambda db: _settle(db, place))
    except (EverkeptError, OSError) as error:
        # One project that cannot be repaired must not keep the others shut.
        log.warning("project %s was left in the middle of a move: %s", place.name, error)


def _move(
    db: Connection,
    meta_path: Path,
    place: Place,
    intent: Intent,
    declare: Callable[[Connection], bool],
    work: Callable[[Connection], None],
) -> None:
    for _ in range(ATTEMPTS):
        with _current_transaction(db, meta_path):
            is_declared = declare(db)
        if not is_declared:
            continue
        try:
            with _current_transaction(db, meta_path):
                is_ours = _transition(db, place) == intent
                # Whoever took the intent for a crash's has carried it out.
                is_done = intent == "deleting" and not _is_listed(db, place)
                if is_ours:
                    work(db)
        except BaseException:
            _try_to_take_back(db, meta_path, place)
            raise
        if is_ours or is_done:
            return
    raise Conflict(f'Other processes keep moving project "{place.name}".', hint="Try again.")


@contextmanager
def _current_transaction(db: Connection, meta_path: Path) -> Generator[None]:
    with transaction(db):
        check_version(db, meta_path, LIBRARY)
        yield


def _declare(db: Connection, place: Place, intent: Intent) -> bool:
    """False when there was something to settle first: that must be committed, come what may."""
    if _transition(db, place):
        _settle(db, place)
        return False
    status = db.execute("SELECT status FROM projects WHERE id = ?", (place.id,)).get
    if status is None:
        raise NotFound("project", place.name, hint="It was deleted meanwhile.")
    if intent == "archiving" and status == "archived":
        raise Conflict(f'Project "{place.name}" is already archived.', project=place.name)
    if intent == "restoring" and status == "active":
        raise Conflict(f'Project "{place.name}" is not archived.', project=place.name)
    path = place.archived if status == "archived" else place.active
    if intent != "deleting" and not path.exists():
        raise gone(place, path)
    db.execute("UPDATE projects SET transition = ? WHERE id = ?", (intent, place.id))
    return True


def gone(place: Place, path: Path) -> StoreDamaged:
    return StoreDamaged(
        f"{place.title} is gone.",
        hint="Put it back from a backup, or delete the project.",
        path=str(path),
    )


def _transition(db: Connection, place: Place) -> Intent | None:
    return db.execute("SELECT transition FROM projects WHERE id = ?", (place.id,)).get


def _is_listed(db: Connection, place: Place) -> bool:
    return bool(db.execute("SELECT count(*) FROM projects WHERE id = ?", (place.id,)).get)


def _try_to_take_back(db: Connection, meta_path: Path, place: Place) -> None:
    """After a failure; what a crash left is settled in the same way, but for deletions."""
    is_kept = place.active.exists() or place.archived.exists()
    try:
        with _current_transaction(db, meta_path):
            if _transition(db, place) == "deleting" and is_kept:
                db.execute("UPDATE projects SET transition = NULL WHERE id = ?", (place.id,))
            else:
                _settle(db, place)
    except (EverkeptError, apsw.Error, OSError) as error:
        log.warning("project %s is left in the middle of a move: %s", place.name, error)


def _settle(db: Connection, place: Place) -> None:
    """Finishes or takes back the move that the row names, by looking where the file is."""
    transition = _transition(db, place)
    if transition == "creating":
        _unlink(place.active)
        db.execute("DELETE FROM projects WHERE id = ?", (place.id,))
    elif transition == "deleting":
        _discard(db, place)
    elif transition is not None:
        _unlink(place.draft)
        if place.archived.exists() and not place.active.exists():
            _try_to_set_generation(place, place.archived, lambda found: -abs(found))
            unlink_logs(place.active)
            _finish(db, place, "archived")
        else:
            generation = _try_to_set_generation(place, place.active, abs)
            _finish(db, place, "active", generation=generation)
            _unlink(place.archived)


def _finish(
    db: Connection,
    place: Place,
    status: Status,
    at: str | None = None,
    generation: int | None = None,
) -> None:
    path = place.archived if status == "archived" else place.active
    db.execute(
        "UPDATE projects SET status = ?, db_path = ?, updated_at = coalesce(?, updated_at), "
        "generation = coalesce(?, generation), transition = NULL WHERE id = ?",
        (status, place.relative(path), at, generation, place.id),
    )


def _discard(db: Connection, place: Place) -> None:
    known = db.execute("SELECT generation FROM projects WHERE id = ?", (place.id,)).get
    for path, generation in ((place.active, known), (place.archived, -known)):
        # A process that still has the file open is refused at its next write.
        _try_to_set_generation(place, path, _always(DELETED_GENERATION))
        try:
            path.unlink(missing_ok=True)
        except OSError:
            _try_to_set_generation(place, path, _always(generation))
            raise
        unlink_logs(path)
    _unlink(place.draft)
    db.execute("DELETE FROM workspaces WHERE project = ?", (place.id,))
    db.execute("DELETE FROM projects WHERE id = ?", (place.id,))


def _always(generation: int) -> Callable[[int], int]:
    return lambda _: generation


def _try_to_set_generation(place: Place, path: Path, change: Callable[[int], int]) -> int | None:
    """A file that is damaged or gone is moved and deleted like any other."""
    try:
        return _set_generation(place, path, change) if path.exists() else None
    except StoreDamaged:
        return None


def _set_generation(place: Place, path: Path, change: Callable[[int], int]) -> int:
    with (
        translated(path, title=place.title),
        closing(connect(path, PROJECT, title=place.title)) as db,
        transaction(db),
    ):
        generation = change(generation_of(db))
        db.execute("UPDATE meta SET value = ? WHERE key = 'generation'", (generation,))
    return generation


def _fold(place: Place, path: Path) -> None:
    if not fold(path, PROJECT, FOLD_PATIENCE, title=place.title):
        raise StoreBusy(
            f"{place.title} is being read by another window.",
            hint="Try again when it has finished.",
            path=str(path),
        )


def _copy(source: Path, target: Path) -> None:
    descriptor = os.open(target, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as written, source.open("rb") as read:
        shutil.copyfileobj(read, written)
        written.flush()
        os.fsync(written.fileno())


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)
    unlink_logs(path)
