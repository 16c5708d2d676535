"""Making, putting away, bringing back and deleting projects while others have them open.

Whoever changes one holds its row, and then that of its store, which every commit holds too: so
nothing is committed to a project that is put away or gone, and nothing that was is lost.
"""

import psycopg.errors

from everkept.core.projects import Project, Status
from everkept.core.switching import Switching
from everkept.core.text import digest
from everkept.engines.postgres.catalogue.leftovers import give_up
from everkept.engines.postgres.catalogue.listing import (
    PROJECT,
    SWITCHING,
    Shelved,
    of_workspace,
    shelved,
    switching_from,
    switching_row,
)
from everkept.engines.postgres.catalogue.telling import tell, tell_all
from everkept.engines.postgres.connecting.database import Cursor
from everkept.errors import Conflict, NotFound, StoreBusy
from everkept.values import replace

ATTEMPTS = 3  # to be the first, or to see who was: that project may be deleted in between
NAME_IS_UNIQUE = "projects_name"


def make(cursor: Cursor, project: Project) -> None:
    try:
        made = cursor.execute(
            "WITH shelf AS (INSERT INTO stores(name, title) VALUES (%(id)s, %(name)s) "
            "RETURNING number) INSERT INTO projects "
            "SELECT %(id)s, %(name)s, %(description)s, 'active', %(at)s, %(at)s, NULL, number "
            "FROM shelf RETURNING store",
            {
                "id": project.id,
                "name": project.name,
                "description": project.description,
                "at": project.created_at,
            },
        )
    except psycopg.errors.UniqueViolation as error:
        raise _taken(project, error) from error
    [(store,)] = made
    tell(cursor, store)


def set_status(cursor: Cursor, name: str, status: Status, at: int) -> Project:
    project, store = _held(cursor, name)
    if project.status == status:
        state = "already archived" if status == "archived" else "not archived"
        raise Conflict(f'Project "{name}" is {state}.', project=name)
    cursor.execute(
        "UPDATE projects SET status = %s, updated_at = %s WHERE id = %s", (status, at, project.id)
    )
    cursor.execute(
        "UPDATE stores SET is_closed = %s WHERE number = %s", (status == "archived", store)
    )
    tell(cursor, store)
    return replace(project, status=status, updated_at=at)


def discard(cursor: Cursor, name: str, at: int) -> int:
    """With all its records; gives the number of its store."""
    project, store = _held(cursor, name)
    cursor.execute(
        "UPDATE switching SET deleted_at = %(at)s, folders = "
        "ARRAY(SELECT path FROM workspaces WHERE project = %(id)s ORDER BY path) "
        "WHERE project = %(id)s",
        {"at": at, "id": project.id},
    )
    give_up(cursor, [store])
    tell_all(cursor)  # the store is no more, and of its rows some may be left
    return store


def switch(cursor: Cursor, name: str, *, off: bool, at: int) -> Project:
    project, store = _held(cursor, name)
    before = _switching_of(cursor, project.id)
    after = before.switched(off=off, at=at)
    if after != before:
        cursor.execute(
            f"INSERT INTO switching(project, {SWITCHING}) VALUES (%s, %s, %s, %s, %s) "
            f"ON CONFLICT (project) DO UPDATE SET ({SWITCHING}) = "
            "(excluded.since, excluded.until, excluded.folders, excluded.deleted_at)",
            (project.id, *switching_row(after)),
        )
        cursor.execute(
            "UPDATE projects SET off_since = %s WHERE id = %s", (after.off_since, project.id)
        )
        tell(cursor, store)
    return replace(project, off_since=after.off_since)


def assign(cursor: Cursor, path: str, project: Project) -> Project:
    held = cursor.execute("SELECT FROM projects WHERE id = %s FOR KEY SHARE", (project.id,))
    if held.fetchone() is None:
        raise NotFound("project", project.name, hint="It was deleted meanwhile.")
    for _ in range(ATTEMPTS):
        cursor.execute(
            "INSERT INTO workspaces(key, path, project) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            (digest(path), path, project.id),
        )
        if (found := of_workspace(cursor, path)) is not None:
            break
    else:
        raise StoreBusy("Others keep giving the folder to projects that go.", hint="Try again.")
    tell_all(cursor)
    return found


def _held(cursor: Cursor, name: str) -> Shelved:
    held = cursor.execute(
        f"SELECT {PROJECT}, store FROM projects WHERE name = %s FOR UPDATE", (name,)
    )
    return shelved(held.fetchone(), name)


def _switching_of(cursor: Cursor, project_id: str) -> Switching:
    row = cursor.execute(
        f"SELECT {SWITCHING} FROM switching WHERE project = %s", (project_id,)
    ).fetchone()
    return Switching() if row is None else switching_from(*row)


def _taken(project: Project, error: psycopg.errors.UniqueViolation) -> Conflict:
    if error.diag.constraint_name == NAME_IS_UNIQUE:
        return Conflict(
            f'There is a project "{project.name}" already.',
            hint="list_projects with status `all` shows it; switch_project selects it.",
            kind="project",
            name=project.name,
        )
    return Conflict(
        f"There is a project with the id {project.id} already.", kind="project", id=project.id
    )
