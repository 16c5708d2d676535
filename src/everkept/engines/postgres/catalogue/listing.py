"""What the tables say of projects and working folders."""

from typing import Any, LiteralString

from everkept.core.projects import Project, Silence, Status
from everkept.core.switching import Switching
from everkept.core.text import digest
from everkept.engines.postgres.connecting.cursor import Cursor
from everkept.engines.postgres.records.asking import ask_last
from everkept.errors import NotFound

PROJECT: LiteralString = (
    "projects.id, projects.name, projects.description, projects.status, "
    "projects.created_at, projects.updated_at, projects.off_since"
)
SWITCHING: LiteralString = "since, until, folders, deleted_at"

# A project, and the number of its store.
Shelved = tuple[Project, int]


def projects(
    cursor: Cursor, status: Status | None = None, *, is_last: bool = False
) -> list[Project]:
    asking = cursor.ask_last if is_last else cursor.ask
    rows = asking(
        f"SELECT {PROJECT} FROM projects WHERE %(status)s::text IS NULL OR status = %(status)s "
        "ORDER BY name",
        {"status": status},
    )
    return [Project(*row) for row in rows]


def named(cursor: Cursor, name: str) -> Shelved:
    found = ask_last(cursor, f"SELECT {PROJECT}, store FROM projects WHERE name = %s", name)
    return shelved(found.fetchone(), name)


def identified(cursor: Cursor, project: Project) -> Shelved:
    found = ask_last(cursor, f"SELECT {PROJECT}, store FROM projects WHERE id = %s", project.id)
    return shelved(found.fetchone(), project.name)


def shelved(row: tuple[Any, ...] | None, name: str) -> Shelved:
    if row is None:
        raise no_such(name)
    return Project(*row[:-1]), row[-1]


def own_store(cursor: Cursor, name: str) -> int:
    """The number of one that belongs to no project."""
    [(number,)] = ask_last(cursor, "SELECT number FROM stores WHERE name = %s", name)
    return number


def of_workspace(cursor: Cursor, path: str) -> Project | None:
    row = ask_last(
        cursor,
        f"SELECT {PROJECT} FROM workspaces JOIN projects ON projects.id = workspaces.project "
        "WHERE workspaces.key = %s",
        digest(path),
    ).fetchone()
    return None if row is None else Project(*row)


def folders_of(cursor: Cursor, project_id: str) -> list[str]:
    rows = ask_last(
        cursor, "SELECT path FROM workspaces WHERE project = %s ORDER BY path", project_id
    )
    return [path for (path,) in rows]


def silences(cursor: Cursor) -> list[Silence]:
    rows = ask_last(
        cursor,
        f"SELECT {SWITCHING}, EXISTS (SELECT FROM projects WHERE id = switching.project), "
        "ARRAY(SELECT path FROM workspaces WHERE project = switching.project ORDER BY path) "
        "FROM switching ORDER BY project",
    )
    found: list[Silence] = []
    for *columns, is_there, folders in rows:
        switching = switching_from(*columns)
        found += switching.silences(folders) if is_there else switching.last_silences()
    return found


def switching_from(
    since: list[int], until: list[int | None], folders: list[str], deleted_at: int | None
) -> Switching:
    return Switching(tuple(zip(since, until, strict=True)), tuple(folders), deleted_at)


def switching_row(switching: Switching) -> tuple[Any, ...]:
    since, until = zip(*switching.spans, strict=True) if switching.spans else ((), ())
    return list(since), list(until), list(switching.folders), switching.deleted_at


def no_such(name: str) -> NotFound:
    readable = name.encode("utf-8", "replace").decode()
    hint = "list_projects shows what exists; create_project makes one."
    return NotFound("project", readable, hint=hint)
