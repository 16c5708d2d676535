"""Upgrade of a data folder that an earlier version wrote, after a verified backup of all of it.

All files are locked from before the backup until each has the current schema. So the backup has everything that an
earlier version ever wrote. After a crash in between, the next process finds the rest, and saves another backup.
"""

import logging
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from everkept.core.disk import make_folder
from everkept.core.locks import WaitingLock
from everkept.core.times import format_iso, read_clock
from everkept.engines.sqlite.archive import format_moment, write_backup
from everkept.engines.sqlite.connection import (
    Connection,
    apply_migrations,
    check_kind,
    read_version,
    translate_disk_errors,
    translate_errors,
)
from everkept.engines.sqlite.schema import Schema
from everkept.engines.sqlite.snapshot import META, allow_many_files, get_schema, list_databases, open_in_use
from everkept.errors import StoreDamaged

log = logging.getLogger(__name__)

BACKUPS_FOLDER = "backups"  # inside the data folder
LAST_UPGRADE_KEY = "upgrade.last"  # note with the time and the backup
_LOCK_NAME = "upgrade.lock"
_PATIENCE_SECONDS = 300.0  # for another process that saves a large folder


def upgrade_database(path: Path) -> None:
    """Upgrade the whole data folder of a database. Do nothing for a file outside a data folder."""
    folder = path.parent.parent if path.parent.name in ("projects", "archive") else path.parent
    if (folder / META).exists():
        upgrade_folder(folder)


def upgrade_folder(folder: Path) -> Path | None:
    """Give each database the current schema. Return the backup, or None if there was nothing to do.

    Raise StoreTooNew, before anything is changed, if a newer version wrote one of them.
    """
    if not _list_older(folder):
        return None
    with WaitingLock(folder / _LOCK_NAME, f"The upgrade of {folder}", _PATIENCE_SECONDS).hold():
        older = _list_older(folder)  # another process may have upgraded some since then
        return _upgrade(folder, older) if older else None


def _list_older(folder: Path) -> list[str]:
    """Return the names of databases with an earlier schema. Damaged ones are left to the doctor."""
    found: list[str] = []
    for name in list_databases(folder):
        path, schema = folder / name, get_schema(name)
        try:
            with translate_errors(path, schema), closing(open_in_use(path)) as db:
                check_kind(db, path, schema, name)
                if read_version(db) < schema.version:
                    found.append(name)
        except StoreDamaged:
            continue
    return found


def _upgrade(folder: Path, older: list[str]) -> Path:
    at = read_clock()
    file = folder / BACKUPS_FOLDER / f"before-upgrade-{format_moment(at)}.zip"
    log.warning("upgrading %s; its present data is saved to %s first", folder, file)
    allow_many_files()
    with ExitStack() as stack:
        locked: dict[str, Connection] = {}
        for name in list_databases(folder):
            with suppress(StoreDamaged):
                locked[name] = _lock(stack, folder / name, get_schema(name))
        with translate_disk_errors(file):
            make_folder(file.parent)
        write_backup(folder, file, lambda: at, lambda _done, _total: None, with_damaged=True, is_locked=True)
        for name in sorted(locked.keys() & set(older)):
            path, schema = folder / name, get_schema(name)
            with translate_errors(path, schema, connection=locked[name]):
                apply_migrations(locked[name], schema)
        if META in locked:
            note = f"{format_iso(at)} {file}"
            locked[META].execute("INSERT OR REPLACE INTO notes VALUES (?,?)", (LAST_UPGRADE_KEY, note))
        for name, connection in locked.items():
            with translate_errors(folder / name, get_schema(name), connection=connection):
                connection.execute("COMMIT")
    log.warning(
        "upgraded %s; to go back, install the earlier version and run `everkept restore %s --replace`", folder, file
    )
    return file


def _lock(stack: ExitStack, path: Path, schema: Schema) -> Connection:
    """Prevent other processes from writing until the stack ends, or the transaction is committed."""
    with translate_errors(path, schema):
        connection = stack.enter_context(closing(open_in_use(path)))
        check_kind(connection, path, schema, path.name)
        connection.execute("BEGIN IMMEDIATE")
        check_kind(connection, path, schema, path.name)
    return connection
