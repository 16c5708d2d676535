"""Projects, workspaces and notes in `_meta.db`, including the periods in which a project was off."""

import json
from collections.abc import Mapping
from typing import Any

from everkept.core.projects import OffHistory, OffPeriod, Project, Status, is_trash_name
from everkept.core.times import parse_time
from everkept.engines.sqlite.connection import Connection
from everkept.engines.sqlite.schema import LIBRARY
from everkept.errors import StoreDamaged
from everkept.values import Value, as_dict

OFF_HISTORY_PREFIX = "switched:"  # followed by a project id: note with the project's off periods
_COLUMNS = (
    "id, name, description, status, created_at, updated_at, db_path, generation, transition, "
    # Start of the last off period, if it has no end yet.
    "(SELECT iif(json_extract(value, '$.spans[#-1][1]') IS NULL, "
    "json_extract(value, '$.spans[#-1][0]'), NULL) FROM notes "
    f"WHERE key = '{OFF_HISTORY_PREFIX}' || projects.id)"
)
# Excludes projects that are not created yet or are being deleted.
_IS_THERE = "coalesce(transition, '') NOT IN ('creating', 'deleting')"


class ProjectRow(Value):
    """The row of a project in `_meta.db`."""

    project: Project
    db_path: str
    generation: int
    transition: str | None

    @property
    def is_there(self) -> bool:
        return self.transition not in ("creating", "deleting")

    @property
    def is_archived(self) -> bool:
        return self.project.status == "archived" or self.transition == "archiving"


def list_projects(db: Connection, status: Status | None) -> list[Project]:
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM projects WHERE {_IS_THERE} AND (?1 IS NULL OR status = ?1) ORDER BY name", (status,)
    )
    return [_decode_row(row).project for row in rows]


def find_project(db: Connection, name: str) -> ProjectRow | None:
    """Return the row, even while the project is being created, moved or deleted."""
    row = db.execute(f"SELECT {_COLUMNS} FROM projects WHERE name = ?", (name,)).get
    return _decode_row(row) if row else None


def find_workspace_project(db: Connection, path: str) -> Project | None:
    row = db.execute(
        f"SELECT {_COLUMNS} FROM projects WHERE {_IS_THERE} AND id = (SELECT project FROM workspaces WHERE path = ?)",
        (path,),
    ).get
    found = _decode_row(row).project if row else None
    return None if found is None or is_trash_name(found.name) else found


def find_note(db: Connection, key: str) -> str | None:
    return db.execute("SELECT value FROM notes WHERE key = ?", (key,)).get


def list_notes(db: Connection, prefix: str) -> Mapping[str, str]:
    found = db.execute("SELECT key, value FROM notes WHERE substr(key, 1, ?) = ?", (len(prefix), prefix))
    return dict(found.fetchall())


def _decode_row(row: tuple[Any, ...]) -> ProjectRow:
    project_id, name, description, status, created, updated, path, generation, transition, off = row
    project = Project(
        id=project_id,
        name=name,
        description=description or "",
        status=status,
        created_at=parse_time(created),
        updated_at=parse_time(updated),
        off_since=off,
    )
    return ProjectRow(project, path, generation, transition)


def set_project_off(db: Connection, project_id: str, *, off: bool, at: int) -> bool:
    """Turn a project off or on. Return False if it does not exist."""
    if not db.execute("SELECT count(*) FROM projects WHERE id = ?", (project_id,)).get:
        return False
    before = read_off_history(db, project_id)
    after = before.with_switch(off=off, at=at)
    if after != before:
        write_off_history(db, project_id, after)
    return True


def note_deletion(db: Connection, project_id: str, at: int) -> None:
    """Note the folders of a project before its deletion. If the deletion fails, the note has no effect."""
    switching = read_off_history(db, project_id)
    if switching.spans:
        write_off_history(db, project_id, switching.with_deletion(list_workspaces(db, project_id), at))


def list_off_periods(db: Connection) -> list[OffPeriod]:
    rows = db.execute(
        "SELECT p.id, n.value FROM notes n LEFT JOIN projects p ON p.id = substr(n.key, ?2) "
        "WHERE substr(n.key, 1, ?2 - 1) = ?1 ORDER BY n.key",
        (OFF_HISTORY_PREFIX, len(OFF_HISTORY_PREFIX) + 1),
    ).fetchall()
    found: list[OffPeriod] = []
    for project_id, value in rows:
        switching = _decode_off_history(value)
        if project_id is None:
            found += switching.list_last_periods()
        else:
            folders = dict.fromkeys([*list_workspaces(db, project_id), *switching.folders])
            found += switching.list_periods(list(folders))
    return found


def list_workspaces(db: Connection, project_id: str) -> list[str]:
    rows = db.execute("SELECT path FROM workspaces WHERE project = ? ORDER BY path", (project_id,))
    return [path for (path,) in rows]


def unlink_workspace(db: Connection, path: str, *, only_trashed: bool) -> None:
    """Free a workspace, or only one that is linked to a project in the trash. The off periods keep the folder."""
    row = db.execute(
        "SELECT p.id, p.name FROM workspaces w JOIN projects p ON p.id = w.project WHERE path = ?", (path,)
    )
    for project_id, name in row.fetchall():
        if is_trash_name(name) or not only_trashed:
            db.execute("DELETE FROM workspaces WHERE path = ?", (path,))
            history = read_off_history(db, project_id)
            if history.spans:
                write_off_history(db, project_id, history.with_folder(path))


def read_off_history(db: Connection, project_id: str) -> OffHistory:
    value = find_note(db, OFF_HISTORY_PREFIX + project_id)
    return OffHistory() if value is None else _decode_off_history(value)


def _decode_off_history(value: str) -> OffHistory:
    try:
        kept = json.loads(value)
        spans = tuple((since, until) for since, until in kept["spans"])
        return OffHistory(spans, tuple(map(str, kept["folders"])), kept["deleted_at"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        message = "_meta.db is damaged: when a project was off cannot be read."
        raise StoreDamaged(message, hint=LIBRARY.when_damaged) from error


def write_off_history(db: Connection, project_id: str, switching: OffHistory) -> None:
    value = json.dumps(as_dict(switching), ensure_ascii=False)
    db.execute("INSERT OR REPLACE INTO notes VALUES (?,?)", (OFF_HISTORY_PREFIX + project_id, value))
