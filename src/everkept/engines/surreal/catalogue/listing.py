"""What the library's database says of projects and working folders."""

from typing import Any

from everkept.core.projects import Project, Silence
from everkept.core.switching import Span, Switching
from everkept.engines.surreal.catalogue.desk import Desk, row_id
from everkept.errors import NotFound

PROJECT = "record::id(id) AS id, name, description, status, created_at, updated_at, off_since"
WORKSPACE = "path, record::id(project) AS project"
SWITCHING = "record::id(id) AS id, spans, folders, deleted_at"


async def projects(desk: Desk) -> list[Project]:
    [rows] = await desk.ask(f"SELECT {PROJECT} FROM project")
    return sorted(map(project_from, rows), key=lambda project: project.name)


async def named(desk: Desk, name: str) -> Project | None:
    [rows] = await desk.ask(f"SELECT {PROJECT} FROM project WHERE name = $name", {"name": name})
    return project_from(rows[0]) if rows else None


async def of_workspace(desk: Desk, path: str) -> Project | None:
    [rows] = await desk.ask(
        f"SELECT {PROJECT} FROM (SELECT VALUE project FROM $workspace)",
        {"workspace": row_id("workspace", path)},
    )
    return project_from(rows[0]) if rows else None


async def folders_of(desk: Desk, project_id: str) -> list[str]:
    [paths] = await desk.ask(
        "SELECT VALUE path FROM workspace WHERE project = $project",
        {"project": row_id("project", project_id)},
    )
    return sorted(paths)


async def silences(desk: Desk) -> list[Silence]:
    [found] = await desk.ask(
        f"RETURN {{ switching: (SELECT {SWITCHING} FROM switching), "
        f"workspaces: (SELECT {WORKSPACE} FROM workspace), "
        "live: (SELECT VALUE record::id(id) FROM project) }"
    )
    folders: dict[str, list[str]] = {project_id: [] for project_id in found["live"]}
    for row in sorted(found["workspaces"], key=lambda row: row["path"]):
        folders.setdefault(row["project"], []).append(row["path"])
    silences: list[Silence] = []
    for row in sorted(found["switching"], key=lambda row: row["id"]):
        switching, live = switching_from(row), folders.get(row["id"])
        silences += switching.last_silences() if live is None else switching.silences(live)
    return silences


def no_such(name: str) -> NotFound:
    readable = name.encode("utf-8", "replace").decode()
    hint = "list_projects shows what exists; create_project makes one."
    return NotFound("project", readable, hint=hint)


def project_from(row: dict[str, Any]) -> Project:
    return Project(
        id=row["id"],
        name=row["name"],
        description=row["description"],
        status=row["status"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        off_since=row.get("off_since"),
    )


def project_row(project: Project) -> dict[str, Any]:
    return {
        "name": project.name,
        "description": project.description,
        "status": project.status,
        "created_at": project.created_at,
        "updated_at": project.updated_at,
        "off_since": project.off_since,
    }


def switching_from(row: dict[str, Any] | None) -> Switching:
    if row is None:
        return Switching()
    spans = tuple(_span(*span) for span in row["spans"])
    return Switching(spans, tuple(row["folders"]), row.get("deleted_at"))


def switching_row(switching: Switching) -> dict[str, Any]:
    return {
        "spans": [[at for at in span if at is not None] for span in switching.spans],
        "folders": list(switching.folders),
        "deleted_at": switching.deleted_at,
    }


def _span(since: int, until: int | None = None) -> Span:
    return since, until
