"""Creation of the files that a data folder has once: `user.db`, `history.db` and `_meta.db`.

The last is empty, or lists the project files that are there already.
"""

import logging
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from everkept.core.disk import make_folder
from everkept.core.times import Clock, iso
from everkept.engines.sqlite.connection import connect, create, transaction, translated, unlink_logs
from everkept.engines.sqlite.schema import LIBRARY, PROJECT
from everkept.engines.sqlite.sql import Connection
from everkept.engines.sqlite.store import DELETED_GENERATION, generation_of
from everkept.errors import ReadOnly, StoreDamaged, Unavailable
from everkept.values import Value

log = logging.getLogger(__name__)

FOUNDED = ("_meta", "user", "history")
STALE = 600.0  # seconds after which a draft was left by a crash


class _Found(Value):
    """What a project's file says of its project."""

    name: str
    description: str
    created_at: str | None
    generation: int


def make_library(folder: Path, clock: Clock) -> None:
    """Makes the folder and its `_meta.db`; of several that do so at once, one wins."""
    for place in (folder, folder / "projects", folder / "archive"):
        make_folder(place)
    with _drafted(folder / "_meta.db") as draft:
        create(draft, LIBRARY)
        if list_files(folder, draft, clock):
            log.warning(
                "lost with the former _meta.db: which projects are off, tokens, and which folder "
                "belongs to which project"
            )


def make_store(path: Path) -> None:
    """Makes a store that belongs to no project; of several that do so at once, one wins."""
    with _drafted(path) as draft:
        create(draft, PROJECT)


def remove_stale_drafts(folder: Path) -> None:
    for draft in (found for name in FOUNDED for found in folder.glob(f"{name}.*.new*")):
        with suppress(FileNotFoundError):
            if time.time() - draft.stat().st_mtime > STALE:
                draft.unlink()


@contextmanager
def _drafted(target: Path) -> Generator[Path]:
    """A name to make the file under, so that nobody opens a half-made one."""
    draft = target.with_name(f"{target.stem}.{uuid4().hex}.new")
    try:
        yield draft
        _publish(draft, target)
    finally:
        draft.unlink(missing_ok=True)
        unlink_logs(draft)


def _publish(draft: Path, target: Path) -> None:
    """Under a lock that goes with its process: not every file system has hard links."""
    # Imported here: most starts find every file.
    from everkept.core.locks import WaitingLock

    lock = target.with_name(f"{target.stem}.lock")
    try:
        with WaitingLock(lock, f"The creation of {target.name}").held():
            # The process that removed the lock in the meantime has published before.
            if not target.exists():
                # The log of a file that was moved away would be taken for the new one's.
                unlink_logs(target)
                draft.replace(target)
    except (ReadOnly, Unavailable):  # Windows opens no file that is just being removed
        if not target.exists():
            raise
    with suppress(OSError):
        lock.unlink()


def list_files(folder: Path, meta_path: Path, clock: Clock) -> bool:
    """Those that the catalogue does not name yet, each with a move under way, so that the repair
    at every start sees where it belongs. Says whether there are any."""
    files = [path for name in ("projects", "archive") for path in (folder / name).glob("*.db")]
    found = {path: told for path in sorted(files, key=_age) if (told := _read(path))}
    if not found:
        return False
    log.warning("projects that _meta.db does not name are listed anew from their files")
    with translated(meta_path), closing(connect(meta_path, LIBRARY)) as db, transaction(db):
        for path, told in found.items():
            created = told.created_at or iso(clock())
            db.execute(
                "INSERT OR IGNORE INTO projects(id, name, description, db_path, status, "
                "created_at, updated_at, generation, transition) "
                "VALUES (?,?,?,?,?,?,?,?,'archiving')",
                (
                    path.stem,
                    free_name(db, path.stem, told.name),
                    told.description,
                    path.relative_to(folder).as_posix(),
                    "active" if path.parent.name == "projects" else "archived",
                    created,
                    created,
                    abs(told.generation),
                ),
            )
    return True


def _age(path: Path) -> tuple[bool, str]:
    return path.parent.name == "archive", path.name


def _read(path: Path) -> _Found | None:
    try:
        with translated(path), closing(connect(path, PROJECT)) as db:
            facts = {str(key): value for key, value in db.execute("SELECT key, value FROM meta")}
            generation = generation_of(db)
    except StoreDamaged as error:
        log.warning("%s is left out of the list of projects: %s", path, error)
        return None
    if generation == DELETED_GENERATION:
        log.warning("%s is left out of the list of projects: it was being deleted", path)
        return None
    return _Found(
        name=str(facts.get("name") or f"recovered-{path.stem[:8]}"),
        description=str(facts.get("description") or ""),
        created_at=facts.get("created_at"),
        generation=generation,
    )


def free_name(db: Connection, project_id: str, name: str) -> str:
    taken = {row[0] for row in db.execute("SELECT name FROM projects WHERE id <> ?", (project_id,))}
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
