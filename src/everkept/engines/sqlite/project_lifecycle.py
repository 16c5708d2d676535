"""Creation, archiving, restoring and deletion of a project's file while other processes have it open.

Every move first commits its intent to `_meta.db`, then runs inside one write transaction there. So two moves never
overlap. An intent that is found under the write lock was usually left by a crash. If a running process is about to act
on it instead, that process declares it again. The location of the file decides whether the move is finished or
reversed.

A file is never moved while a process could write to it. Its generation is set first, each write transaction compares
it, and the write-ahead log is folded in before the move. A restored file is a copy. Otherwise a process that still has
the old file open would, on closing it, delete the write-ahead log that it finds under the old name.
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
    open_transaction,
    translate_errors,
    unlink_logs,
)
from everkept.engines.sqlite.database import Database
from everkept.engines.sqlite.schema import LIBRARY, PROJECT
from everkept.engines.sqlite.store import DELETED_GENERATION, read_generation
from everkept.errors import (
    Conflict,
    EverkeptError,
    InvalidInput,
    NotFound,
    ProjectExists,
    ProjectStatusConflict,
    StoreBusy,
    StoreDamaged,
)
from everkept.values import Value

log = logging.getLogger(__name__)

Intent = Literal["creating", "archiving", "restoring", "deleting"]

# Seconds to wait for readers before a move fails. Other processes wait longer for `_meta.db`, which is locked by then.
FOLD_SECONDS = 5.0
MAX_ATTEMPTS = 20  # times that another process may settle the intent before the move fails

_ID_PATTERN = re.compile("[0-9A-Za-z-]{1,64}")


class ProjectPaths(Value):
    """A project, with the paths that its file can have."""

    folder: Path
    id: str
    name: str

    @property
    def active_path(self) -> Path:
        return self.folder / "projects" / f"{self.id}.db"

    @property
    def archive_path(self) -> Path:
        return self.folder / "archive" / f"{self.id}.db"

    @property
    def draft_path(self) -> Path:
        return self.folder / "archive" / f"{self.id}.db.new"

    @property
    def title(self) -> str:
        return f'The file of project "{self.name}"'

    def to_relative(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()


def check_id(project_id: str) -> str:
    """Return the id if it can name a file, otherwise raise InvalidInput."""
    if not _ID_PATTERN.fullmatch(project_id):
        raise InvalidInput(
            f"{project_id!r} is not a project id.",
            hint="Use 1 to 64 letters, digits and '-'.",
            argument="project_id",
            value=project_id,
        )
    return project_id


async def create_project(meta: Database, place: ProjectPaths, description: str, at: str) -> None:
    def declare(db: Connection) -> bool:
        left = db.execute(
            "SELECT id, name FROM projects WHERE (name = ? OR id = ?) AND transition IS NOT NULL",
            (place.name, place.id),
        ).get
        if left is not None:
            _settle(db, ProjectPaths(place.folder, *left))
            return False
        _refuse_if_taken(db, place)
        db.execute(
            "INSERT INTO projects(id, name, description, db_path, created_at, updated_at, "
            "transition) VALUES (?1,?2,?3,?4,?5,?5,'creating')",
            (place.id, place.name, description, place.to_relative(place.active_path), at),
        )
        return True

    def work(db: Connection) -> None:
        create(place.active_path, PROJECT, {"name": place.name, "description": description, "created_at": at})
        db.execute("UPDATE projects SET transition = NULL WHERE id = ?", (place.id,))

    await meta.maintain(lambda db: _move(db, meta.path, place, "creating", work, declare))


def _refuse_if_taken(db: Connection, place: ProjectPaths) -> None:
    if db.execute("SELECT count(*) FROM projects WHERE name = ?", (place.name,)).get:
        raise ProjectExists(place.name)
    # A file that no project owns may still be someone's data.
    if _is_listed(db, place) or place.active_path.exists() or place.archive_path.exists():
        message = f"A project with the id {place.id} already exists."
        raise Conflict(message, hint="Use a new id.", id=place.id, kind="project", name=place.name)


def rename_project(db: Connection, place: ProjectPaths, status: Status, at: str, new_name: str) -> None:
    """Rename a project that keeps its status."""
    _refuse_if_name_taken(db, place, new_name)
    db.execute(
        "UPDATE projects SET name = ?, updated_at = ? WHERE id = ? AND status = ? AND transition IS NULL",
        (new_name, at, place.id, status),
    )
    if not db.changes():
        raise Conflict(f'Project "{place.name}" was changed by another process.', hint="Try again.")


def _refuse_if_name_taken(db: Connection, place: ProjectPaths, new_name: str | None) -> None:
    if db.execute("SELECT count(*) FROM projects WHERE name = ? AND id <> ?", (new_name, place.id)).get:
        raise ProjectExists(new_name or "")


async def archive_project(meta: Database, place: ProjectPaths, at: str, new_name: str | None = None) -> None:
    """Archive a project. With a new name, it has that from the intent on, so that a crash leaves it under that name."""

    def declare(db: Connection) -> bool:
        _refuse_if_name_taken(db, place, new_name)
        return _declare(db, place, "archiving", new_name)

    def work(db: Connection) -> None:
        _set_generation(place, place.active_path, lambda found: -abs(found))
        _fold(place, place.active_path)
        place.active_path.rename(place.archive_path)
        unlink_logs(place.active_path)
        _finish(db, place, "archived", at)

    await meta.maintain(lambda db: _move(db, meta.path, place, "archiving", work, declare))


async def restore_project(meta: Database, place: ProjectPaths, at: str, new_name: str | None = None) -> None:
    def work(db: Connection) -> None:
        _refuse_if_name_taken(db, place, new_name)
        _fold(place, place.archive_path)
        _unlink(place.draft_path)
        _copy(place.archive_path, place.draft_path)
        generation = _set_generation(place, place.draft_path, lambda found: abs(found) + 1, new_name)
        unlink_logs(place.active_path)
        place.draft_path.replace(place.active_path)
        _finish(db, place, "active", at, generation, new_name)
        _unlink(place.archive_path)

    await meta.maintain(lambda db: _move(db, meta.path, place, "restoring", work))


async def delete_project(meta: Database, place: ProjectPaths) -> None:
    await meta.maintain(lambda db: _move(db, meta.path, place, "deleting", lambda db: _delete_project(db, place)))


async def settle_all(meta: Database, folder: Path) -> None:
    """Finish or reverse moves that a crash interrupted, as far as that is possible now."""

    def ask(db: Connection) -> list[tuple[str, str]]:
        rows = db.execute("SELECT id, name FROM projects WHERE transition IS NOT NULL")
        return [(project_id, name) for project_id, name in rows]

    for project_id, name in await meta.read(ask):
        await settle(meta, ProjectPaths(folder, project_id, name))


async def settle(meta: Database, place: ProjectPaths) -> None:
    """Finish or reverse an interrupted move of one project. Wait for a running process that is moving it."""
    try:
        await meta.write(lambda db: _settle(db, place))
    except (EverkeptError, OSError) as error:
        # A project that cannot be repaired must not keep the others closed.
        log.warning("interrupted move of project %s cannot be settled: %s", place.name, error)


def _move(
    db: Connection,
    meta_path: Path,
    place: ProjectPaths,
    intent: Intent,
    work: Callable[[Connection], None],
    declare: Callable[[Connection], bool] | None = None,
) -> None:
    for _ in range(MAX_ATTEMPTS):
        with _open_current_transaction(db, meta_path):
            is_declared = declare(db) if declare else _declare(db, place, intent)
        if not is_declared:
            continue
        try:
            with _open_current_transaction(db, meta_path):
                is_ours = _read_transition(db, place) == intent
                # Another process took the intent for one left by a crash, and carried it out.
                is_done = intent == "deleting" and not _is_listed(db, place)
                if is_ours:
                    work(db)
        except BaseException:
            _try_to_reverse(db, meta_path, place)
            raise
        if is_ours or is_done:
            return
    raise Conflict(f'Other processes keep changing project "{place.name}".', hint="Try again.")


@contextmanager
def _open_current_transaction(db: Connection, meta_path: Path) -> Generator[None]:
    with open_transaction(db):
        check_version(db, meta_path, LIBRARY)
        yield


def _declare(db: Connection, place: ProjectPaths, intent: Intent, new_name: str | None = None) -> bool:
    """Return False after settling an earlier move, which must be committed in any case."""
    if _read_transition(db, place):
        _settle(db, place)
        return False
    status = db.execute("SELECT status FROM projects WHERE id = ?", (place.id,)).get
    if status is None:
        raise NotFound("project", place.name, hint="It was deleted. Select another project.")
    if (intent, status) in (("archiving", "archived"), ("restoring", "active")):
        raise ProjectStatusConflict(place.name, str(status))
    path = place.archive_path if status == "archived" else place.active_path
    if intent != "deleting" and not path.exists():
        raise build_missing_file_error(place, path)
    db.execute(
        "UPDATE projects SET transition = ?, name = coalesce(?, name) WHERE id = ?", (intent, new_name, place.id)
    )
    return True


def build_missing_file_error(place: ProjectPaths, path: Path) -> StoreDamaged:
    return StoreDamaged(
        f"{place.title} is missing.", hint="Restore it from a backup, or delete the project.", path=str(path)
    )


def _read_transition(db: Connection, place: ProjectPaths) -> Intent | None:
    return db.execute("SELECT transition FROM projects WHERE id = ?", (place.id,)).get


def _is_listed(db: Connection, place: ProjectPaths) -> bool:
    return bool(db.execute("SELECT count(*) FROM projects WHERE id = ?", (place.id,)).get)


def _try_to_reverse(db: Connection, meta_path: Path, place: ProjectPaths) -> None:
    """Reverse a failed move. Only a deletion differs from settling after a crash: it is reversed, not finished."""
    is_kept = place.active_path.exists() or place.archive_path.exists()
    try:
        with _open_current_transaction(db, meta_path):
            if _read_transition(db, place) == "deleting" and is_kept:
                db.execute("UPDATE projects SET transition = NULL WHERE id = ?", (place.id,))
            else:
                _settle(db, place)
                db.execute(
                    "UPDATE OR IGNORE projects SET name = ? WHERE id = ? AND status = 'active'", (place.name, place.id)
                )
    except (EverkeptError, apsw.Error, OSError) as error:
        log.warning("failed move of project %s cannot be reversed: %s", place.name, error)


def _settle(db: Connection, place: ProjectPaths) -> None:
    """Finish or reverse the move that the row names, depending on where the file is."""
    transition = _read_transition(db, place)
    if transition == "creating":
        _unlink(place.active_path)
        db.execute("DELETE FROM projects WHERE id = ?", (place.id,))
    elif transition == "deleting":
        _delete_project(db, place)
    elif transition is not None:
        _unlink(place.draft_path)
        if place.archive_path.exists() and not place.active_path.exists():
            _try_to_set_generation(place, place.archive_path, lambda found: -abs(found))
            unlink_logs(place.active_path)
            _finish(db, place, "archived")
        else:
            generation = _try_to_set_generation(place, place.active_path, abs)
            _finish(db, place, "active", generation=generation)
            _unlink(place.archive_path)


def _finish(
    db: Connection,
    place: ProjectPaths,
    status: Status,
    at: str | None = None,
    generation: int | None = None,
    new_name: str | None = None,
) -> None:
    path = place.archive_path if status == "archived" else place.active_path
    db.execute(
        "UPDATE projects SET status = ?, db_path = ?, updated_at = coalesce(?, updated_at), "
        "generation = coalesce(?, generation), name = coalesce(?, name), transition = NULL WHERE id = ?",
        (status, place.to_relative(path), at, generation, new_name, place.id),
    )


def _delete_project(db: Connection, place: ProjectPaths) -> None:
    known = db.execute("SELECT generation FROM projects WHERE id = ?", (place.id,)).get
    for path, generation in ((place.active_path, known), (place.archive_path, -known)):
        # A process that still has the file open is refused at its next write.
        _try_to_set_generation(place, path, lambda _: DELETED_GENERATION)
        try:
            path.unlink(missing_ok=True)
        except OSError:
            _try_to_set_generation(place, path, lambda _, known=generation: known)
            raise
        unlink_logs(path)
    _unlink(place.draft_path)
    db.execute("DELETE FROM workspaces WHERE project = ?", (place.id,))
    db.execute("DELETE FROM projects WHERE id = ?", (place.id,))


def _try_to_set_generation(place: ProjectPaths, path: Path, change: Callable[[int], int]) -> int | None:
    """Set the generation. Return None for a damaged or missing file, which is moved and deleted like any other."""
    try:
        return _set_generation(place, path, change) if path.exists() else None
    except StoreDamaged:
        return None


def _set_generation(place: ProjectPaths, path: Path, change: Callable[[int], int], new_name: str | None = None) -> int:
    with (
        translate_errors(path, title=place.title),
        closing(connect(path, PROJECT, title=place.title)) as db,
        open_transaction(db),
    ):
        generation = change(read_generation(db))
        db.execute("UPDATE meta SET value = ? WHERE key = 'generation'", (generation,))
        if new_name is not None:
            db.execute("UPDATE meta SET value = ? WHERE key = 'name'", (new_name,))
    return generation


def _fold(place: ProjectPaths, path: Path) -> None:
    if not fold(path, PROJECT, FOLD_SECONDS, title=place.title):
        raise StoreBusy(
            f"{place.title} is in use by another process.", hint="Try again when it has finished.", path=str(path)
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
