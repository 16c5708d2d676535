"""Projects that are created, archived, restored, deleted or replaced while other programs use them.

Each project has a separate database. A change of its status is written there in the same transaction as in the library.
So a process that has the database open learns of it at the next write. The database is removed after its project. The
library notes databases that a crash leaves, and the next deletion removes them.
"""

from typing import Any
from uuid import UUID, uuid4

from everkept.core.answers import LEASE_PREFIX, CatalogData
from everkept.core.library import SetProjectStatus
from everkept.core.ports import Token
from everkept.core.projects import Project, Status
from everkept.core.text import compute_digest
from everkept.engines.surreal.catalog import (
    PROJECT_FIELDS,
    SWITCHING_FIELDS,
    TURN_CHECK,
    TURN_QUERY,
    TURN_STATEMENT,
    WORKSPACE_FIELDS,
    CatalogDatabase,
    alter_undisturbed,
    decode_project,
    decode_switching,
    encode_project,
    encode_switching,
)
from everkept.engines.surreal.connection import TransactionThrown, build_put, quote_name, retry
from everkept.engines.surreal.rows import build_row_id
from everkept.engines.surreal.schema import META_DEFINITION
from everkept.errors import Conflict, NotFound, ProjectExists, ProjectStatusConflict
from everkept.values import replace

# How long a removed database is watched: some versions create it again, empty, when another process uses it.
WATCH_MICROSECONDS = 24 * 60 * 60 * 1_000_000
_IS_GONE = "(SELECT VALUE id FROM ONLY $id) IS NONE"


def build_database_name(catalog_db: CatalogDatabase, project_id: str) -> str:
    """Return the name of a project's database, which depends only on the id of the project."""
    try:
        part = UUID(project_id).hex
    except ValueError:
        part = compute_digest(project_id)
    return f"{catalog_db.database}_{part}"


async def create_project(catalog_db: CatalogDatabase, name: str, description: str, project_id: str, at: int) -> Project:
    project = Project(project_id or str(uuid4()), name, description, "active", at, at)
    # A project with this id may have existed and may not be fully removed.
    clearing = f"{build_removal(catalog_db, project.id)};" if project_id else ""
    text = f"""
        BEGIN; {TURN_STATEMENT};
        IF (SELECT VALUE id FROM project WHERE name = $name)[0] IS NOT NONE {{ THROW 'name' }};
        IF (SELECT VALUE id FROM ONLY $id) IS NOT NONE {{ THROW 'id' }};
        CREATE $id CONTENT $row; DELETE $leaving; {clearing}
        COMMIT;"""
    values = {**_build_keys(project.id), "name": name, "row": encode_project(project)}
    try:
        await catalog_db.alter(text, values)
    except TransactionThrown as thrown:
        if str(thrown) == "id":
            message = f"A project with the id {project_id} already exists."
            raise Conflict(message, hint="Use a new id.", kind="project", id=project_id) from thrown
        raise ProjectExists(name) from thrown
    return project


async def set_status(catalog_db: CatalogDatabase, project: Project, change: SetProjectStatus, at: int) -> Project:
    name, status = change.new_name or change.name, change.status
    text = f"""
        BEGIN; {TURN_STATEMENT};
        IF {_IS_GONE} {{ THROW 'gone' }};
        IF (SELECT VALUE [name, status] FROM ONLY $id) = [$name, $status] {{ THROW 'same' }};
        IF (SELECT VALUE id FROM project WHERE name = $name AND id != $id)[0] IS NOT NONE {{ THROW 'name' }};
        UPDATE $id SET name = $name, status = $status, updated_at = $at;
        {build_status_update(catalog_db, project.id)};
        COMMIT;"""
    try:
        await catalog_db.alter(text, {**_build_keys(project.id), "name": name, "status": status, "at": at})
    except TransactionThrown as thrown:
        if str(thrown) == "gone":
            raise _build_deleted_error(project) from thrown
        if str(thrown) == "name":
            raise ProjectExists(name) from thrown
        raise ProjectStatusConflict(project.name, status) from thrown
    return replace(project, name=name, status=status, updated_at=at)


async def sync_status(catalog_db: CatalogDatabase, project: Project) -> None:
    """Write the project's status to its database, which may be new."""
    text = f"""
        BEGIN; {TURN_STATEMENT};
        LET $status = (SELECT VALUE status FROM ONLY $id);
        IF $status IS NONE {{ THROW 'gone' }};
        {build_status_update(catalog_db, project.id)};
        COMMIT;"""
    try:
        await catalog_db.alter(text, _build_keys(project.id))
    except TransactionThrown as thrown:
        raise _build_deleted_error(project) from thrown


async def delete_project(catalog_db: CatalogDatabase, project: Project, at: int) -> None:
    text = f"""
        BEGIN; {TURN_STATEMENT};
        IF {_IS_GONE} {{ THROW 'gone' }};
        UPDATE $switching SET deleted_at = $at,
            folders = (SELECT VALUE path FROM workspace WHERE project = $id ORDER BY path);
        DELETE workspace WHERE project = $id;
        DELETE $id;
        UPSERT $leaving SET at = $at;
        {build_status_update(catalog_db, project.id)};
        COMMIT;"""
    try:
        await catalog_db.alter(text, {**_build_keys(project.id), "status": "deleted", "at": at})
    except TransactionThrown as thrown:
        raise _build_deleted_error(project) from thrown
    await remove_leftovers(catalog_db, at)


async def remove_leftovers(catalog_db: CatalogDatabase, at: int) -> None:
    """Remove the databases of deleted projects."""
    [leaving, space] = await catalog_db.ask("SELECT record::id(id) AS id, at FROM leaving; INFO FOR NS")
    for row in leaving:
        is_there = build_database_name(catalog_db, row["id"]) in space["databases"]
        is_old = row["at"] < at - WATCH_MICROSECONDS
        if not is_there and not is_old:
            continue
        text = f"""
            BEGIN; {TURN_STATEMENT};
            IF (SELECT VALUE id FROM ONLY $leaving) IS NONE {{ THROW 'taken back' }};
            {build_removal(catalog_db, row["id"])}; {"DELETE $leaving;" if is_old else ""}
            COMMIT;"""
        try:
            await catalog_db.alter(text, _build_keys(row["id"]))
        except TransactionThrown:
            continue  # a project with this id exists again


async def set_off(catalog_db: CatalogDatabase, project: Project, *, off: bool, at: int) -> Project:
    async def attempt() -> Project:
        [turn, row] = await catalog_db.ask(
            f"{TURN_QUERY}; SELECT {SWITCHING_FIELDS} FROM ONLY $switching", _build_keys(project.id)
        )
        after = decode_switching(row).with_switch(off=off, at=at)
        text = f"""
            BEGIN; {TURN_CHECK}; {TURN_STATEMENT};
            IF {_IS_GONE} {{ THROW 'gone' }};
            UPSERT $switching CONTENT $row; UPDATE $id SET off_since = $off_since;
            COMMIT;"""
        kept = {"row": encode_switching(after), "off_since": after.off_since, "turn": turn}
        await alter_undisturbed(catalog_db, text, {**_build_keys(project.id), **kept})
        return replace(project, off_since=after.off_since)

    try:
        return await retry(attempt)
    except TransactionThrown as thrown:
        raise _build_deleted_error(project) from thrown


def build_status_update(catalog_db: CatalogDatabase, project_id: str, status: str = "$status") -> str:
    """Return the end of a transaction that sets the status in the project's database, where other processes read it."""
    there, here = (quote_name(build_database_name(catalog_db, project_id)), quote_name(catalog_db.database))
    return f"USE DB {there}; {META_DEFINITION}; UPDATE meta:store SET status = {status}; USE DB {here}"


def build_removal(catalog_db: CatalogDatabase, project_id: str) -> str:
    return f"REMOVE DATABASE IF EXISTS {quote_name(build_database_name(catalog_db, project_id))}"


def _build_keys(project_id: str) -> dict[str, Any]:
    return {
        "id": build_row_id("project", project_id),
        "switching": build_row_id("switching", project_id),
        "leaving": build_row_id("leaving", project_id),
    }


def _build_deleted_error(project: Project) -> NotFound:
    return NotFound("project", project.name, hint="It was deleted. Select another project.")


_RowsByTable = dict[str, dict[str, dict[str, Any]]]  # by table and key


async def read_catalog_data(catalog_db: CatalogDatabase) -> CatalogData:
    [found] = await catalog_db.ask(
        f"RETURN {{ projects: (SELECT {PROJECT_FIELDS} FROM project), "
        f"workspaces: (SELECT {WORKSPACE_FIELDS} FROM workspace), "
        f"switching: (SELECT {SWITCHING_FIELDS} FROM switching), "
        "notes: (SELECT key, value FROM note), "
        "tokens: (SELECT record::id(id) AS id, label, created_at, secret_hash FROM token) }"
    )
    return CatalogData(
        projects=sorted(map(decode_project, found["projects"]), key=lambda project: project.name),
        workspaces={row["path"]: row["project"] for row in found["workspaces"]},
        switching={row["id"]: decode_switching(row) for row in found["switching"]},
        notes={row["key"]: row["value"] for row in found["notes"] if not row["key"].startswith(LEASE_PREFIX)},
        tokens=[
            (Token(row["id"], row["label"], row["created_at"]), row["secret_hash"])
            for row in sorted(found["tokens"], key=lambda row: (row["created_at"], row["id"]))
        ],
    )


async def replace_catalog_data(catalog_db: CatalogDatabase, catalog_data: CatalogData, at: int) -> None:
    rows = _encode_catalog_data(catalog_data)
    wanted: dict[str, Status] = {project.id: project.status for project in catalog_data.projects}

    async def attempt() -> None:
        [turn, found] = await catalog_db.ask(f"{TURN_QUERY}; SELECT record::id(id) AS id, status FROM project")
        known: dict[str, Status] = {row["id"]: row["status"] for row in found}
        values: dict[str, Any] = {
            "turn": turn,
            "at": at,
            "passing": LEASE_PREFIX,
            "leaving": [build_row_id("leaving", each) for each in known if each not in wanted],
            "coming": [build_row_id("leaving", each) for each in wanted if each not in known],
        }
        for table, kept in rows.items():
            listed = [{"id": build_row_id(table, key), **row} for key, row in kept.items()]
            values |= {f"{table}_rows": listed, f"{table}_ids": [row["id"] for row in listed]}
        await alter_undisturbed(catalog_db, _build_replacement(catalog_db, wanted, known), values)

    await retry(attempt)
    await remove_leftovers(catalog_db, at)


def _build_replacement(catalog_db: CatalogDatabase, wanted: dict[str, Status], known: dict[str, Status]) -> str:
    """Return one transaction. It updates the remaining rows in place, because some versions lose a row that is deleted
    and created again in one transaction.

    Names and secrets are first replaced by ids, because projects may swap names.
    """
    here = ["UPDATE project SET name = <string> id", "UPDATE token SET secret_hash = <string> id"]
    for table in ("project", "workspace", "switching", "note", "token"):
        meant = "AND !string::starts_with(key, $passing)" if table == "note" else ""
        here += [
            f"DELETE {table} WHERE id NOT IN ${table}_ids {meant}",
            f"FOR $row IN ${table}_rows {{ {build_put('$row.id', '$row')} }}",
        ]
    here += ["DELETE $coming", f"FOR $each IN $leaving {{ {build_put('$each', '{at: $at}')} }}"]
    here += [build_removal(catalog_db, each) for each in wanted if each not in known]
    there = [
        build_status_update(catalog_db, each, f"'{wanted.get(each, 'deleted')}'")
        for each, status in known.items()
        if wanted.get(each) != status
    ]
    return "; ".join(["BEGIN", TURN_CHECK, TURN_STATEMENT, *here, *there, "COMMIT"]) + ";"


def _encode_catalog_data(catalog_data: CatalogData) -> _RowsByTable:
    off_since = {project: switching.off_since for project, switching in catalog_data.switching.items()}
    return {
        "project": {
            project.id: {**encode_project(project), "off_since": off_since.get(project.id)}
            for project in catalog_data.projects
        },
        "workspace": {
            path: {"path": path, "project": build_row_id("project", owner)}
            for path, owner in catalog_data.workspaces.items()
        },
        "switching": {
            project_id: encode_switching(switching) for project_id, switching in catalog_data.switching.items()
        },
        "note": {
            key: {"key": key, "value": value}
            for key, value in catalog_data.notes.items()
            if not key.startswith(LEASE_PREFIX)
        },
        "token": {
            token.id: {"label": token.label, "secret_hash": secret_hash, "created_at": token.created_at}
            for token, secret_hash in catalog_data.tokens
        },
    }
