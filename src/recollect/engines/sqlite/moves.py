"""Making, putting away, bringing back and deleting a project's file while others have it open.

Every move first commits its intent to `_meta.db`, then runs inside one write transaction there.
So two moves never overlap, a crash leaves an intent that the next start finishes or takes back by
looking where the file is, and a start that finds the intent of a living process waits for it.

A file is never renamed while anybody could write to it: its generation is set first, each write
transaction compares it, and the write-ahead log is folded in before the rename.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from recollect.engines.sqlite.connections import connect, create, transaction
from recollect.engines.sqlite.database import Database
from recollect.engines.sqlite.schema import PROJECT
from recollect.engines.sqlite.sql import Connection
from recollect.engines.sqlite.store import DELETED_GENERATION, generation_of
from recollect.errors import Conflict, StoreBusy, StoreDamaged

FOLD_DEADLINE = 10.0  # seconds to wait for readers before a rename is given up


async def make(meta: Database, folder: Path, project_id: str, db_path: str) -> None:
    """Makes the file of a project whose row says `creating`."""

    def work(db: Connection) -> None:
        _check_intent(db, project_id, "creating")
        create(folder / db_path, PROJECT)
        db.execute("UPDATE projects SET transition = NULL WHERE id = ?", (project_id,))

    try:
        await meta.write(work)
    except BaseException:
        _unlink(folder / db_path)
        await meta.write(
            lambda db: db.execute(
                "DELETE FROM projects WHERE id = ? AND transition = 'creating'", (project_id,)
            )
        )
        raise


async def move_away(meta: Database, folder: Path, project_id: str, db_path: str, at: str) -> None:
    def work(db: Connection) -> None:
        _check_intent(db, project_id, "archiving")
        target = f"archive/{project_id}.db"
        _set_generation(folder / db_path, lambda found: -abs(found))
        try:
            _fold_and_rename(folder / db_path, folder / target)
        except BaseException:
            _set_generation(folder / db_path, abs)
            raise
        _finish(db, project_id, "archived", target, at)

    await _move(meta, project_id, "archiving", work)


async def move_back(meta: Database, folder: Path, project_id: str, db_path: str, at: str) -> None:
    def work(db: Connection) -> None:
        _check_intent(db, project_id, "restoring")
        target = f"projects/{project_id}.db"
        generation = _set_generation(folder / db_path, lambda found: abs(found) + 1)
        try:
            _fold_and_rename(folder / db_path, folder / target)
        except BaseException:
            _set_generation(folder / db_path, lambda found: -abs(found))
            raise
        _finish(db, project_id, "active", target, at, generation)

    await _move(meta, project_id, "restoring", work)


async def discard(meta: Database, folder: Path, project_id: str, db_path: str) -> None:
    await _move(meta, project_id, "deleting", lambda db: _discard(db, folder, project_id, db_path))


async def repair(meta: Database, folder: Path) -> None:
    """Finishes or takes back what a crash interrupted."""
    unfinished = await meta.read(
        lambda db: db.execute("SELECT count(*) FROM projects WHERE transition IS NOT NULL").get
    )
    if unfinished:
        await meta.write(lambda db: _repair(db, folder))


async def _move(
    meta: Database, project_id: str, intent: str, work: Callable[[Connection], None]
) -> None:
    def declare(db: Connection) -> None:
        db.execute(
            "UPDATE projects SET transition = ? WHERE id = ? AND transition IS NULL",
            (intent, project_id),
        )
        if db.changes() == 0:
            raise Conflict("Another process is moving this project.", hint="Try again.")

    await meta.write(declare)
    try:
        await meta.write(work)
    except BaseException:
        await meta.write(
            lambda db: db.execute(
                "UPDATE projects SET transition = NULL WHERE id = ? AND transition = ?",
                (project_id, intent),
            )
        )
        raise


def _check_intent(db: Connection, project_id: str, intent: str) -> None:
    found = db.execute("SELECT transition FROM projects WHERE id = ?", (project_id,)).get
    if found != intent:
        raise Conflict("Another process changed this project meanwhile.", hint="Try again.")


def _set_generation(path: Path, change: Callable[[int], int]) -> int:
    connection = connect(path, PROJECT)
    try:
        with transaction(connection):
            generation = change(generation_of(connection))
            connection.execute("UPDATE meta SET value = ? WHERE key = 'generation'", (generation,))
    finally:
        connection.close()
    return generation


def _fold_and_rename(source: Path, target: Path) -> None:
    connection = connect(source, PROJECT)
    try:
        deadline = time.monotonic() + FOLD_DEADLINE
        while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]:
            if time.monotonic() > deadline:
                raise StoreBusy(
                    f"Another window is reading {source.name}.",
                    hint="Try again when it has finished.",
                    path=str(source),
                )
            time.sleep(0.01)
    finally:
        connection.close()
    source.rename(target)
    _unlink_logs(source)


def _finish(
    db: Connection,
    project_id: str,
    status: str,
    db_path: str,
    at: str,
    generation: int | None = None,
) -> None:
    db.execute(
        "UPDATE projects SET status = ?, db_path = ?, updated_at = ?, transition = NULL, "
        "generation = coalesce(?, generation) WHERE id = ?",
        (status, db_path, at, generation, project_id),
    )


def _discard(db: Connection, folder: Path, project_id: str, db_path: str) -> None:
    _check_intent(db, project_id, "deleting")
    path = folder / db_path
    if path.exists():
        # A process that still has the file open is refused at its next write. A damaged project
        # may be deleted as well.
        with suppress(StoreDamaged):
            _set_generation(path, lambda _: DELETED_GENERATION)
    _unlink(path)
    db.execute("DELETE FROM workspaces WHERE project = ?", (project_id,))
    db.execute("DELETE FROM projects WHERE id = ?", (project_id,))


def _repair(db: Connection, folder: Path) -> None:
    rows = db.execute(
        "SELECT id, transition, db_path, updated_at FROM projects WHERE transition IS NOT NULL"
    ).fetchall()
    for project_id, transition, db_path, updated_at in rows:
        active = folder / "projects" / f"{project_id}.db"
        archived = folder / "archive" / f"{project_id}.db"
        if transition == "creating":
            _unlink(active)
            db.execute("DELETE FROM projects WHERE id = ?", (project_id,))
        elif transition == "deleting":
            _discard(db, folder, project_id, db_path)
        elif archived.exists():
            _set_generation(archived, lambda found: -abs(found))
            _unlink_logs(active)
            _finish(db, project_id, "archived", f"archive/{project_id}.db", updated_at)
        else:
            generation = _set_generation(active, abs)
            _unlink_logs(archived)
            _finish(db, project_id, "active", f"projects/{project_id}.db", updated_at, generation)


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)
    _unlink_logs(path)


def _unlink_logs(path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
