"""Projects, made, archived, restored, deleted or replaced while other programs use them.

Each of them has a database of its own. What is to become of it is written there in the same
transaction as in the library, so that who has it open learns it at the next write. A database is
removed after its project is: what a crash leaves is noted, and removed by whoever deletes next.
"""

from typing import Any
from uuid import UUID, uuid4

from everkept.core.answers import PASSING, Holdings
from everkept.core.ports import Token
from everkept.core.projects import Project, Status
from everkept.core.text import digest
from everkept.engines.surreal.catalog import (
    PROJECT,
    SWITCHING,
    TURN,
    UNDISTURBED,
    WHOSE_TURN,
    WORKSPACE,
    Desk,
    project_from,
    project_row,
    row_id,
    switching_from,
    switching_row,
    undisturbed,
)
from everkept.engines.surreal.connection import Thrown, placing, quoted, retried
from everkept.engines.surreal.schema import META
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


_Rows = dict[str, dict[str, dict[str, Any]]]  # by table and key


async def holdings(desk: Desk) -> Holdings:
    [found] = await desk.ask(
        f"RETURN {{ projects: (SELECT {PROJECT} FROM project), "
        f"workspaces: (SELECT {WORKSPACE} FROM workspace), "
        f"switching: (SELECT {SWITCHING} FROM switching), "
        "notes: (SELECT key, value FROM note), "
        "tokens: (SELECT record::id(id) AS id, label, created_at, secret_hash FROM token) }"
    )
    return Holdings(
        projects=sorted(map(project_from, found["projects"]), key=lambda project: project.name),
        workspaces={row["path"]: row["project"] for row in found["workspaces"]},
        switching={row["id"]: switching_from(row) for row in found["switching"]},
        notes={
            row["key"]: row["value"] for row in found["notes"] if not row["key"].startswith(PASSING)
        },
        tokens=[
            (Token(row["id"], row["label"], row["created_at"]), row["secret_hash"])
            for row in sorted(found["tokens"], key=lambda row: (row["created_at"], row["id"]))
        ],
    )


async def take_over(desk: Desk, holdings: Holdings, at: int) -> None:
    rows = _rows(holdings)
    wanted: dict[str, Status] = {project.id: project.status for project in holdings.projects}

    async def attempt() -> None:
        [turn, found] = await desk.ask(
            f"{WHOSE_TURN}; SELECT record::id(id) AS id, status FROM project"
        )
        known: dict[str, Status] = {row["id"]: row["status"] for row in found}
        values: dict[str, Any] = {
            "turn": turn,
            "at": at,
            "passing": PASSING,
            "leaving": [row_id("leaving", each) for each in known if each not in wanted],
            "coming": [row_id("leaving", each) for each in wanted if each not in known],
        }
        for table, kept in rows.items():
            listed = [{"id": row_id(table, key), **row} for key, row in kept.items()]
            values |= {f"{table}_rows": listed, f"{table}_ids": [row["id"] for row in listed]}
        await undisturbed(desk, _taking_over(desk, wanted, known), values)

    await retried(attempt)
    await sweep(desk, at)


def _taking_over(desk: Desk, wanted: dict[str, Status], known: dict[str, Status]) -> str:
    """One transaction. Rows that stay are changed in place: what is deleted and made anew within
    one is gone in some versions. Names are set aside first, for they may be traded."""
    here = ["UPDATE project SET name = <string> id", "UPDATE token SET secret_hash = <string> id"]
    for table in ("project", "workspace", "switching", "note", "token"):
        meant = "AND !string::starts_with(key, $passing)" if table == "note" else ""
        here += [
            f"DELETE {table} WHERE id NOT IN ${table}_ids {meant}",
            f"FOR $row IN ${table}_rows {{ {placing('$row.id', '$row')} }}",
        ]
    here += ["DELETE $coming", f"FOR $each IN $leaving {{ {placing('$each', '{at: $at}')} }}"]
    here += [removing(desk, each) for each in wanted if each not in known]
    there = [
        marking(desk, each, f"'{wanted.get(each, 'deleted')}'")
        for each, status in known.items()
        if wanted.get(each) != status
    ]
    return "; ".join(["BEGIN", UNDISTURBED, TURN, *here, *there, "COMMIT"]) + ";"


def _rows(holdings: Holdings) -> _Rows:
    return {
        "project": {
            project.id: project_row(replace(project, off_since=_off_since(holdings, project.id)))
            for project in holdings.projects
        },
        "workspace": {
            path: {"path": path, "project": row_id("project", owner)}
            for path, owner in holdings.workspaces.items()
        },
        "switching": {
            project_id: switching_row(switching)
            for project_id, switching in holdings.switching.items()
        },
        "note": {
            key: {"key": key, "value": value}
            for key, value in holdings.notes.items()
            if not key.startswith(PASSING)
        },
        "token": {
            token.id: {
                "label": token.label,
                "secret_hash": secret_hash,
                "created_at": token.created_at,
            }
            for token, secret_hash in holdings.tokens
        },
    }


def _off_since(holdings: Holdings, project_id: str) -> int | None:
    switching = holdings.switching.get(project_id)
    return switching.off_since if switching else None
