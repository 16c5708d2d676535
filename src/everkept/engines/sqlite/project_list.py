"""Projects, workspaces and notes in `_meta.db`, and the notes of when a project was off."""

import json
from collections.abc import Mapping
from typing import Any

from everkept.core.projects import Project, Silence, Status, Switching
from everkept.core.times import parsed
from everkept.engines.sqlite.connection import Connection
from everkept.errors import NotFound
from everkept.values import Value, as_dict

SWITCHED = "switched:"  # notes of this name and a project's id: when that was switched off
_COLUMNS = (
    "id, name, description, status, created_at, updated_at, db_path, generation, transition, "
    # When it was switched off last, if that has no end yet.
    "(SELECT iif(json_extract(value, '$.spans[#-1][1]') IS NULL, "
    "json_extract(value, '$.spans[#-1][0]'), NULL) FROM notes "
    f"WHERE key = '{SWITCHED}' || projects.id)"
)
# Not yet made, or all but gone.
_THERE = "coalesce(transition, '') NOT IN ('creating', 'deleting')"


class Listed(Value):
    """A project as `_meta.db` has it."""

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


def projects(db: Connection, status: Status | None) -> list[Project]:
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM projects WHERE {_THERE} "
        "AND (?1 IS NULL OR status = ?1) ORDER BY name",
        (status,),
    )
    return [_listed(row).project for row in rows]


def named(db: Connection, name: str) -> Listed | None:
    """Whatever becomes of it just now."""
    row = db.execute(f"SELECT {_COLUMNS} FROM projects WHERE name = ?", (name,)).get
    return _listed(row) if row else None


def of_workspace(db: Connection, path: str) -> Project | None:
    row = db.execute(
        f"SELECT {_COLUMNS} FROM projects WHERE {_THERE} "
        "AND id = (SELECT project FROM workspaces WHERE path = ?)",
        (path,),
    ).get
    return _listed(row).project if row else None


def note(db: Connection, key: str) -> str | None:
    return db.execute("SELECT value FROM notes WHERE key = ?", (key,)).get


def notes(db: Connection, prefix: str) -> Mapping[str, str]:
    found = db.execute(
        "SELECT key, value FROM notes WHERE substr(key, 1, ?) = ?", (len(prefix), prefix)
    )
    return dict(found.fetchall())


def no_such(name: str) -> NotFound:
    readable = name.encode("utf-8", "replace").decode()
    hint = "list_projects shows what exists; create_project makes one."
    return NotFound("project", readable, hint=hint)


def _listed(row: tuple[Any, ...]) -> Listed:
    project_id, name, description, status, created, updated, path, generation, transition, off = row
    project = Project(
        id=project_id,
        name=name,
        description=description or "",
        status=status,
        created_at=parsed(created),
        updated_at=parsed(updated),
        off_since=off,
    )
    return Listed(project, path, generation, transition)


def switch(db: Connection, project_id: str, *, off: bool, at: int) -> bool:
    """False where there is no such project."""
    if not db.execute("SELECT count(*) FROM projects WHERE id = ?", (project_id,)).get:
        return False
    before = switching_of(db, project_id)
    after = before.switched(off=off, at=at)
    if after != before:
        keep_switching(db, project_id, after)
    return True


def note_leaving(db: Connection, project_id: str, at: int) -> None:
    """Before a project is deleted; where that fails then, nothing follows from it."""
    switching = switching_of(db, project_id)
    if switching.spans:
        keep_switching(db, project_id, switching.leaving(folders_of(db, project_id), at))


def silences(db: Connection) -> list[Silence]:
    rows = db.execute(
        "SELECT p.id, n.value FROM notes n LEFT JOIN projects p ON p.id = substr(n.key, ?2) "
        "WHERE substr(n.key, 1, ?2 - 1) = ?1 ORDER BY n.key",
        (SWITCHED, len(SWITCHED) + 1),
    ).fetchall()
    found: list[Silence] = []
    for project_id, value in rows:
        switching = _switching_from(value)
        if project_id is None:
            found += switching.last_silences()
        else:
            found += switching.silences(folders_of(db, project_id))
    return found


def folders_of(db: Connection, project_id: str) -> list[str]:
    rows = db.execute("SELECT path FROM workspaces WHERE project = ? ORDER BY path", (project_id,))
    return [path for (path,) in rows]


def switching_of(db: Connection, project_id: str) -> Switching:
    value = note(db, SWITCHED + project_id)
    return Switching() if value is None else _switching_from(value)


def _switching_from(value: str) -> Switching:
    kept = json.loads(value)
    spans = tuple((since, until) for since, until in kept["spans"])
    return Switching(spans, tuple(kept["folders"]), kept["deleted_at"])


def keep_switching(db: Connection, project_id: str, switching: Switching) -> None:
    value = json.dumps(as_dict(switching), ensure_ascii=False)
    db.execute("INSERT OR REPLACE INTO notes VALUES (?,?)", (SWITCHED + project_id, value))
