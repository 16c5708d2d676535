"""Making, putting away, bringing back and deleting projects while others have them open.

Each of them has a database of its own. What is to become of it is written there in the same
transaction as in the library, so that who has it open learns it at the next write. A database is
removed after its project is: what a crash leaves is noted, and removed by whoever deletes next.
"""

from typing import Any
from uuid import UUID, uuid4

from everkept.core.projects import Project, Status
from everkept.core.text import digest
from everkept.engines.surreal.catalogue.desk import (
    TURN,
    UNDISTURBED,
    WHOSE_TURN,
    Desk,
    row_id,
    undisturbed,
)
from everkept.engines.surreal.catalogue.listing import (
    SWITCHING,
    project_row,
    switching_from,
    switching_row,
)
from everkept.engines.surreal.connecting.attempts import retried
from everkept.engines.surreal.connecting.connection import Thrown, quoted
from everkept.engines.surreal.records.schema import META
from everkept.errors import Conflict, NotFound
from everkept.values import replace

# Microseconds that a removed database is watched: some versions make it anew, and empty, when a
# process asks for it that has not heard.
WATCHED = 24 * 60 * 60 * 1_000_000
_IS_GONE = "(SELECT VALUE id FROM ONLY $id) IS NONE"


def database_of(desk: Desk, project_id: str) -> str:
    """By the id alone, whatever that is made of."""
    try:
        part = UUID(project_id).hex
    except ValueError:
        part = digest(project_id)
    return f"{desk.database}_{part}"


async def make(desk: Desk, name: str, description: str, project_id: str, at: int) -> Project:
    project = Project(project_id or str(uuid4()), name, description, "active", at, at)
    # One of that id may have been here, and not be wholly gone.
    clearing = f"{removing(desk, project.id)};" if project_id else ""
    text = f"""
        BEGIN; {TURN};
        IF (SELECT VALUE id FROM project WHERE name = $name)[0] IS NOT NONE {{ THROW 'name' }};
        IF (SELECT VALUE id FROM ONLY $id) IS NOT NONE {{ THROW 'id' }};
        CREATE $id CONTENT $row; DELETE $leaving; {clearing}
        COMMIT;"""
    values = {**_keys(project.id), "name": name, "row": project_row(project)}
    try:
        await desk.alter(text, values)
    except Thrown as thrown:
        if str(thrown) == "id":
            raise Conflict(
                f"There is a project with the id {project_id} already.",
                kind="project",
                id=project_id,
            ) from thrown
        raise Conflict(
            f'There is a project "{name}" already.',
            hint="list_projects with status `all` shows it; switch_project selects it.",
            kind="project",
            name=name,
        ) from thrown
    return project


async def set_status(desk: Desk, project: Project, status: Status, at: int) -> Project:
    text = f"""
        BEGIN; {TURN};
        IF {_IS_GONE} {{ THROW 'gone' }};
        IF (SELECT VALUE status FROM ONLY $id) = $status {{ THROW 'same' }};
        UPDATE $id SET status = $status, updated_at = $at;
        {marking(desk, project.id)};
        COMMIT;"""
    try:
        await desk.alter(text, {**_keys(project.id), "status": status, "at": at})
    except Thrown as thrown:
        if str(thrown) == "gone":
            raise _gone(project) from thrown
        state = "already archived" if status == "archived" else "not archived"
        raise Conflict(f'Project "{project.name}" is {state}.', project=project.name) from thrown
    return replace(project, status=status, updated_at=at)


async def tell(desk: Desk, project: Project) -> None:
    """What the library says of it, to a database that may be new."""
    text = f"""
        BEGIN; {TURN};
        LET $status = (SELECT VALUE status FROM ONLY $id);
        IF $status IS NONE {{ THROW 'gone' }};
        {marking(desk, project.id)};
        COMMIT;"""
    try:
        await desk.alter(text, _keys(project.id))
    except Thrown as thrown:
        raise _gone(project) from thrown


async def discard(desk: Desk, project: Project, at: int) -> None:
    text = f"""
        BEGIN; {TURN};
        IF {_IS_GONE} {{ THROW 'gone' }};
        UPDATE $switching SET deleted_at = $at,
            folders = (SELECT VALUE path FROM workspace WHERE project = $id ORDER BY path);
        DELETE workspace WHERE project = $id;
        DELETE $id;
        UPSERT $leaving SET at = $at;
        {marking(desk, project.id)};
        COMMIT;"""
    try:
        await desk.alter(text, {**_keys(project.id), "status": "deleted", "at": at})
    except Thrown as thrown:
        raise _gone(project) from thrown
    await sweep(desk, at)


async def sweep(desk: Desk, at: int) -> None:
    """Removes the databases of projects that are no more."""
    [leaving, space] = await desk.ask("SELECT record::id(id) AS id, at FROM leaving; INFO FOR NS")
    for row in leaving:
        is_there = database_of(desk, row["id"]) in space["databases"]
        is_old = row["at"] < at - WATCHED
        if not is_there and not is_old:
            continue
        text = f"""
            BEGIN; {TURN};
            IF (SELECT VALUE id FROM ONLY $leaving) IS NONE {{ THROW 'taken back' }};
            {removing(desk, row["id"])}; {"DELETE $leaving;" if is_old else ""}
            COMMIT;"""
        try:
            await desk.alter(text, _keys(row["id"]))
        except Thrown:
            continue  # there is a project of that id again


async def switch(desk: Desk, project: Project, *, off: bool, at: int) -> Project:
    async def attempt() -> Project:
        [turn, row] = await desk.ask(
            f"{WHOSE_TURN}; SELECT {SWITCHING} FROM ONLY $switching", _keys(project.id)
        )
        after = switching_from(row).switched(off=off, at=at)
        text = f"""
            BEGIN; {UNDISTURBED}; {TURN};
            IF {_IS_GONE} {{ THROW 'gone' }};
            UPSERT $switching CONTENT $row; UPDATE $id SET off_since = $off_since;
            COMMIT;"""
        kept = {"row": switching_row(after), "off_since": after.off_since, "turn": turn}
        await undisturbed(desk, text, {**_keys(project.id), **kept})
        return replace(project, off_since=after.off_since)

    try:
        return await retried(attempt)
    except Thrown as thrown:
        raise _gone(project) from thrown


def marking(desk: Desk, project_id: str, status: str = "$status") -> str:
    """Tells whoever has the project's database open, at the end of a transaction."""
    there, here = quoted(database_of(desk, project_id)), quoted(desk.database)
    return f"USE DB {there}; {META}; UPDATE meta:store SET status = {status}; USE DB {here}"


def removing(desk: Desk, project_id: str) -> str:
    return f"REMOVE DATABASE IF EXISTS {quoted(database_of(desk, project_id))}"


def _keys(project_id: str) -> dict[str, Any]:
    return {
        "id": row_id("project", project_id),
        "switching": row_id("switching", project_id),
        "leaving": row_id("leaving", project_id),
    }


def _gone(project: Project) -> NotFound:
    return NotFound("project", project.name, hint="It was deleted meanwhile.")
