"""Projects that are created, archived, restored, deleted or replaced while other programs use them.

A change of a project locks its row, and then the row of its store, which every commit locks too. So nothing is
committed to an archived or deleted project, and no commit is lost.

A deleted project disappears immediately, and its store loses its name. Removing many rows takes longer than a call may,
so one statement without a time limit removes them in the background. If it is interrupted, the next check starts it
again.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, LiteralString

import psycopg.errors

from everkept.core.answers import LEASE_PREFIX, CatalogData
from everkept.core.library import SetProjectStatus
from everkept.core.projects import TRASH_PREFIX, OffHistory, Project
from everkept.core.text import compute_digest
from everkept.engines.postgres import catalog
from everkept.engines.postgres.catalog import (
    PROJECT_COLUMNS,
    SWITCHING_COLUMNS,
    StoredProject,
    check_texts,
    decode_project,
    decode_switching,
    encode_switching,
    find_workspace_project,
    note_library_change,
)
from everkept.engines.postgres.connection import Connection
from everkept.engines.postgres.statements import Cursor
from everkept.engines.postgres.transactions import note_change
from everkept.errors import Conflict, InvalidInput, NotFound, ProjectExists, ProjectStatusConflict, StoreBusy
from everkept.values import replace

MAX_DIRECT_ROWS = 100_000  # records, links and changes; up to here, they are removed within the call


def drop_stores(cursor: Cursor, stores: Sequence[int]) -> None:
    """Hide these stores and their projects, and remove the rows if there are few."""
    numbers = list(stores)
    cursor.execute("DELETE FROM projects WHERE store = ANY(%s::int[])", (numbers,))
    cursor.execute(
        "DELETE FROM stores WHERE number = ANY(%(numbers)s::int[]) AND "
        "(SELECT sum(ages + seq) FROM stores WHERE number = ANY(%(numbers)s::int[])) <= %(many)s",
        {"numbers": numbers, "many": MAX_DIRECT_ROWS},
    )
    cursor.execute("UPDATE stores SET name = NULL WHERE number = ANY(%s::int[])", (numbers,))


def has_leftovers(cursor: Cursor) -> bool:
    return cursor.execute("SELECT FROM stores WHERE name IS NULL LIMIT 1").fetchone() is not None


def remove_leftovers(connection: Connection) -> None:
    """Remove the rows of deleted stores, except those that another process is removing."""
    connection.execute(
        "DELETE FROM stores WHERE number IN (SELECT number FROM stores WHERE name IS NULL FOR UPDATE SKIP LOCKED)"
    )


MAX_ATTEMPTS = 3  # to link the folder or to read its project, which may be deleted in between
NAME_CONSTRAINT = "projects_name"


def create_project(cursor: Cursor, project: Project) -> None:
    try:
        made = cursor.execute(
            "WITH shelf AS (INSERT INTO stores(name, title) VALUES (%(id)s, %(name)s) "
            "RETURNING number) INSERT INTO projects "
            "SELECT %(id)s, %(name)s, %(description)s, 'active', %(at)s, %(at)s, NULL, number "
            "FROM shelf RETURNING store",
            {"id": project.id, "name": project.name, "description": project.description, "at": project.created_at},
        )
    except psycopg.errors.UniqueViolation as error:
        raise _build_name_conflict(project, error) from error
    [(store,)] = made
    note_change(cursor, store)


def set_status(cursor: Cursor, change: SetProjectStatus, at: int) -> Project:
    project, store = _lock_project(cursor, change.name)
    name, status = change.new_name or change.name, change.status
    if (project.status, project.name) == (status, name):
        raise ProjectStatusConflict(name, status)
    altered = replace(project, name=name, status=status, updated_at=at)
    try:
        cursor.execute(
            "UPDATE projects SET name = %s, status = %s, updated_at = %s WHERE id = %s", (name, status, at, project.id)
        )
    except psycopg.errors.UniqueViolation as error:
        raise _build_name_conflict(altered, error) from error
    closed = status == "archived"
    cursor.execute("UPDATE stores SET title = %s, is_closed = %s WHERE number = %s", (name, closed, store))
    note_change(cursor, store)
    return altered


def delete_project(cursor: Cursor, name: str, at: int) -> int:
    """Delete the project with all its records. Return the number of its store."""
    project, store = _lock_project(cursor, name)
    cursor.execute(
        "UPDATE switching SET deleted_at = %(at)s, folders = "
        "ARRAY(SELECT path FROM workspaces WHERE project = %(id)s ORDER BY path) "
        "WHERE project = %(id)s",
        {"at": at, "id": project.id},
    )
    drop_stores(cursor, [store])
    note_library_change(cursor)  # the store is gone, but some of its rows may be left
    return store


def set_off(cursor: Cursor, name: str, *, off: bool, at: int) -> Project:
    project, store = _lock_project(cursor, name)
    row = cursor.execute(f"SELECT {SWITCHING_COLUMNS} FROM switching WHERE project = %s", (project.id,)).fetchone()
    before = OffHistory() if row is None else decode_switching(*row)
    after = before.with_switch(off=off, at=at)
    if after != before:
        cursor.execute(
            f"INSERT INTO switching(project, {SWITCHING_COLUMNS}) VALUES (%s, %s, %s, %s, %s) "
            f"ON CONFLICT (project) DO UPDATE SET ({SWITCHING_COLUMNS}) = "
            "(excluded.since, excluded.until, excluded.folders, excluded.deleted_at)",
            (project.id, *encode_switching(after)),
        )
        cursor.execute("UPDATE projects SET off_since = %s WHERE id = %s", (after.off_since, project.id))
        note_change(cursor, store)
    return replace(project, off_since=after.off_since)


def link_workspace(cursor: Cursor, path: str, project: Project) -> Project:
    held = cursor.execute("SELECT FROM projects WHERE id = %s FOR KEY SHARE", (project.id,))
    if held.fetchone() is None:
        raise NotFound("project", project.name, hint="It was deleted. Select another project.")
    _unlink_workspace(cursor, path, only_trashed=True)
    for _ in range(MAX_ATTEMPTS):
        cursor.execute(
            "INSERT INTO workspaces(key, path, project) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            (compute_digest(path), path, project.id),
        )
        if (found := find_workspace_project(cursor, path)) is not None:
            break
    else:
        raise StoreBusy(
            "Other processes keep linking the folder to projects that are then deleted.", hint="Try again in a moment."
        )
    note_library_change(cursor)
    return found


def move_workspace(cursor: Cursor, path: str, project: Project | None) -> None:
    _unlink_workspace(cursor, path, only_trashed=False)
    if project is None:
        note_library_change(cursor)
    else:
        link_workspace(cursor, path, project)


def _unlink_workspace(cursor: Cursor, path: str, *, only_trashed: bool) -> None:
    """Free a folder, or only one that is linked to a project in the trash. The off periods keep the folder."""
    row = cursor.execute(
        "DELETE FROM workspaces USING projects WHERE projects.id = workspaces.project "
        "AND workspaces.key = %s AND projects.name ^@ %s RETURNING projects.id",
        (compute_digest(path), TRASH_PREFIX if only_trashed else ""),
    ).fetchone()
    if row is not None:
        cursor.execute("UPDATE switching SET folders = array_append(folders, %s) WHERE project = %s", (path, *row))


def _lock_project(cursor: Cursor, name: str) -> StoredProject:
    held = cursor.execute(f"SELECT {PROJECT_COLUMNS}, store FROM projects WHERE name = %s FOR UPDATE", (name,))
    return decode_project(held.fetchone(), name)


def _build_name_conflict(project: Project, error: psycopg.errors.UniqueViolation) -> Conflict:
    if error.diag.constraint_name == NAME_CONSTRAINT:
        return ProjectExists(project.name)
    return Conflict(
        f"A project with the id {project.id} already exists.", hint="Use a new id.", kind="project", id=project.id
    )


_PROJECT_ARRAYS: LiteralString = (
    "unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], "
    "%s::bigint[]) AS new(id, name, description, status, created_at, updated_at, off_since)"
)


def read_catalog_data(cursor: Cursor) -> CatalogData:
    kept = catalog.list_notes(cursor, "")
    switches = cursor.ask(f"SELECT project, {SWITCHING_COLUMNS} FROM switching")
    folders = cursor.ask("SELECT path, project FROM workspaces")
    switching = {project: decode_switching(*row) for project, *row in switches}
    return CatalogData(
        workspaces=dict(folders.fetchall()),
        switching=switching,
        projects=catalog.list_projects(cursor),
        notes={key: value for key, value in kept.items() if not key.startswith(LEASE_PREFIX)},
        tokens=catalog.list_tokens(cursor),
    )


def check_catalog_data(catalog_data: CatalogData) -> None:
    """Raise InvalidInput for data that no library could hold."""
    for trait in ("id", "name"):
        counts = Counter(str(getattr(project, trait)) for project in catalog_data.projects)
        if twice := next((value for value, count in counts.items() if count > 1), None):
            raise InvalidInput(f"Two projects have the {trait} {twice}.", hint="Rename one of them.", **{trait: twice})
    check_texts(*(text for each in catalog_data.projects for text in (each.id, each.name, each.description)))
    check_texts(*chain.from_iterable(catalog_data.workspaces.items()))
    check_texts(*chain.from_iterable(catalog_data.notes.items()))
    check_texts(*(text for each in catalog_data.switching.values() for text in each.folders))
    check_texts(*(text for each, secret in catalog_data.tokens for text in (each.id, each.label, secret)))


def replace_catalog_data(cursor: Cursor, catalog_data: CatalogData) -> list[int]:
    """Replace all data of the catalog. Return the numbers of the deleted stores."""
    # Lock the projects first, as every change of a project does.
    cursor.execute("LOCK TABLE projects, workspaces, switching, notes, tokens IN EXCLUSIVE MODE")
    wanted = [project.id for project in catalog_data.projects]
    gone = [store for (store,) in cursor.ask("SELECT store FROM projects WHERE id <> ALL(%s::text[])", (wanted,))]
    drop_stores(cursor, gone)
    try:
        _write_projects(cursor, catalog_data)
    except psycopg.errors.UniqueViolation as error:
        raise Conflict("A project has the id of another store.", hint="Use another id for the project.") from error
    _write_rest(cursor, catalog_data)
    note_library_change(cursor)
    return gone


def _write_projects(cursor: Cursor, catalog_data: CatalogData) -> None:
    off_since = {project: switching.off_since for project, switching in catalog_data.switching.items()}
    rows = [
        (p.id, p.name, p.description, p.status, p.created_at, p.updated_at, off_since.get(p.id))
        for p in catalog_data.projects
    ]
    columns = _transpose(rows, 7)
    cursor.execute(
        "UPDATE projects SET name = new.name, description = new.description, status = new.status, "
        "created_at = new.created_at, updated_at = new.updated_at, off_since = new.off_since "
        f"FROM {_PROJECT_ARRAYS} WHERE projects.id = new.id",
        columns,
    )
    cursor.execute(
        "UPDATE stores SET title = projects.name, is_closed = projects.status = 'archived' "
        "FROM projects WHERE projects.store = stores.number "
        "AND (title, is_closed) IS DISTINCT FROM (projects.name, projects.status = 'archived')"
    )
    cursor.execute(
        "WITH shelves AS (INSERT INTO stores(name, title, is_closed) "
        f"SELECT id, name, status = 'archived' FROM {_PROJECT_ARRAYS} "
        "WHERE NOT EXISTS (SELECT FROM projects WHERE projects.id = new.id) "
        "RETURNING number, name) "
        "INSERT INTO projects SELECT new.*, shelves.number "
        f"FROM {_PROJECT_ARRAYS} JOIN shelves ON shelves.name = new.id",
        [*columns, *columns],
    )


def _write_rest(cursor: Cursor, catalog_data: CatalogData) -> None:
    cursor.execute("DELETE FROM workspaces")
    cursor.execute(
        "INSERT INTO workspaces(key, path, project) "
        "SELECT new.* FROM unnest(%s::text[], %s::text[], %s::text[]) AS new(key, path, project) "
        "JOIN projects ON projects.id = new.project",
        _transpose([(compute_digest(path), path, each) for path, each in catalog_data.workspaces.items()], 3),
    )
    cursor.execute("DELETE FROM switching")
    for project, each in catalog_data.switching.items():
        cursor.ask(
            f"INSERT INTO switching(project, {SWITCHING_COLUMNS}) VALUES (%s, %s, %s, %s, %s)",
            (project, *encode_switching(each)),
        )
    cursor.execute("DELETE FROM notes WHERE NOT key ^@ %s", (LEASE_PREFIX,))
    cursor.execute(
        "INSERT INTO notes(digest, key, value) SELECT * FROM unnest(%s::text[], %s::text[], %s::text[])",
        _transpose(
            [
                (compute_digest(key), key, value)
                for key, value in catalog_data.notes.items()
                if not key.startswith(LEASE_PREFIX)
            ],
            3,
        ),
    )
    cursor.execute("DELETE FROM tokens")
    for token, secret_hash in catalog_data.tokens:
        catalog.register_token(cursor, token, secret_hash)


def _transpose(rows: Iterable[tuple[Any, ...]], count: int) -> list[list[Any]]:
    """Return the columns for `unnest`, which takes one array per column."""
    turned = [list(column) for column in zip(*rows, strict=True)]
    return turned or [[] for _ in range(count)]
