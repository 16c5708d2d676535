"""Catalog in `_meta.db`: workspaces, notes, tokens and usage, and their replacement as a whole.

Replacing the catalog with another library's takes many steps, and a crash may end it after any of them. Each step
checks the current state and does only what is missing, so that a second attempt finishes it.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import closing, suppress
from pathlib import Path

import apsw

from everkept.core import library as catalog
from everkept.core.answers import LEASE_PREFIX, MAX_SEARCHES, CatalogData, SearchRecord, Token
from everkept.core.mcp import ToolUsage
from everkept.core.projects import OffPeriod, Project, validate_project_name
from everkept.core.text import parse_json_object
from everkept.core.times import format_iso
from everkept.engines.sqlite import project_list
from everkept.engines.sqlite.connection import Connection, connect, open_transaction, translate_errors
from everkept.engines.sqlite.database import Database
from everkept.engines.sqlite.project_lifecycle import (
    ProjectPaths,
    archive_project,
    check_id,
    create_project,
    delete_project,
    restore_project,
)
from everkept.engines.sqlite.project_list import OFF_HISTORY_PREFIX, read_off_history, write_off_history
from everkept.engines.sqlite.schema import PROJECT
from everkept.errors import Conflict, InvalidInput, NotFound, StoreDamaged
from everkept.values import Value

_USAGE_COLUMNS = "tool, calls, errors, total_ms, longest_ms, last_at"


def list_off_periods(db: Connection, _: catalog.ListOffPeriods) -> list[OffPeriod]:
    return project_list.list_off_periods(db)


def find_workspace_project(db: Connection, question: catalog.FindWorkspaceProject) -> Project | None:
    return project_list.find_workspace_project(db, question.path)


def list_workspaces(db: Connection, question: catalog.ListWorkspaces) -> list[str]:
    return project_list.list_workspaces(db, question.project.id)


def link_workspace(db: Connection, change: catalog.LinkWorkspace) -> Project:
    path, project = change.path, change.project
    project_list.unlink_workspace(db, path, only_trashed=True)
    try:
        db.execute("INSERT OR IGNORE INTO workspaces VALUES (?, ?)", (path, project.id))
    except apsw.ConstraintError as error:
        raise NotFound("project", project.name, hint="It was deleted. Select another project.") from error
    return project_list.find_workspace_project(db, path) or project


def move_workspace(db: Connection, change: catalog.MoveWorkspace) -> None:
    project_list.unlink_workspace(db, change.path, only_trashed=False)
    if change.project is not None:
        link_workspace(db, catalog.LinkWorkspace(change.path, change.project))


def get_note(db: Connection, question: catalog.GetNote) -> str | None:
    return project_list.find_note(db, question.key)


def list_notes(db: Connection, question: catalog.ListNotes) -> Mapping[str, str]:
    return project_list.list_notes(db, question.prefix)


def write_note(db: Connection, change: catalog.WriteNote) -> None:
    if change.value is None:
        db.execute("DELETE FROM notes WHERE key = ?", (change.key,))
    else:
        db.execute("INSERT OR REPLACE INTO notes VALUES (?,?)", (change.key, change.value))


def list_tokens(db: Connection, _: catalog.ListTokens) -> list[Token]:
    return [Token(*row) for row in db.execute("SELECT id, label, created_at FROM tokens ORDER BY created_at, id")]


def has_token(db: Connection, question: catalog.HasToken) -> bool:
    return bool(db.execute("SELECT count(*) FROM tokens WHERE secret_hash = ?", (question.secret_hash,)).get)


def register_token(db: Connection, change: catalog.RegisterToken) -> None:
    token = change.token
    try:
        db.execute(
            "INSERT INTO tokens(id, label, secret_hash, created_at) VALUES (?,?,?,?)",
            (token.id, token.label, change.secret_hash, token.created_at),
        )
    except apsw.ConstraintError as error:
        message = f"Token {token.id} already exists."
        raise Conflict(message, hint="Create a token with another id.", id=token.id) from error


def revoke_token(db: Connection, change: catalog.RevokeToken) -> bool:
    db.execute("DELETE FROM tokens WHERE id = ?", (change.token_id,))
    return db.changes() > 0


def add_searches(db: Connection, change: catalog.AddSearches) -> None:
    db.executemany(
        "INSERT INTO searches(at, tool, query, results, milliseconds, session, filters) VALUES (?,?,?,?,?,?,?)",
        [
            (s.at, s.tool, s.query, s.results, s.milliseconds, s.session, json.dumps(s.filters, ensure_ascii=False))
            for s in change.searches
        ],
    )
    db.execute("DELETE FROM searches WHERE seq <= (SELECT max(seq) FROM searches) - ?", (MAX_SEARCHES,))


def list_searches(db: Connection, question: catalog.ListSearches) -> list[SearchRecord]:
    rows = db.execute(
        "SELECT at, tool, query, results, milliseconds, session, filters FROM searches "
        "WHERE ?1 IS NULL OR session = ?1 ORDER BY seq DESC LIMIT ?2",
        (question.session, question.limit),
    )
    return [
        SearchRecord(at, tool, query, results, milliseconds, asked_in, parse_json_object(filters) or {})
        for at, tool, query, results, milliseconds, asked_in, filters in rows
    ]


def forget_searches(db: Connection, _: catalog.ForgetSearches) -> int:
    count: int = db.execute("SELECT count(*) FROM searches").get
    db.execute("DELETE FROM searches")
    return count


def add_usage(db: Connection, change: catalog.AddUsage) -> None:
    """Let the database add the numbers, so that concurrent additions of other processes are kept."""
    db.executemany(
        f"INSERT INTO usage({_USAGE_COLUMNS}) VALUES (?,?,?,?,?,?) ON CONFLICT(tool) DO UPDATE SET "
        "calls = calls + excluded.calls, "
        "errors = errors + excluded.errors, "
        "total_ms = total_ms + excluded.total_ms, "
        "longest_ms = max(longest_ms, excluded.longest_ms), "
        "last_at = max(last_at, excluded.last_at)",
        [(u.tool, u.calls, u.errors, u.total_ms, u.longest_ms, u.last_at) for u in change.rows],
    )


def list_usage(db: Connection, _: catalog.ListUsage) -> list[ToolUsage]:
    return [ToolUsage(*row) for row in db.execute(f"SELECT {_USAGE_COLUMNS} FROM usage ORDER BY calls DESC, tool")]


# Closes the file of a project before it is moved or deleted.
ReleaseFile = Callable[[ProjectPaths], Awaitable[None]]


def read_catalog_data(db: Connection) -> CatalogData:
    notes = project_list.list_notes(db, "")
    switched = [key.removeprefix(OFF_HISTORY_PREFIX) for key in sorted(notes) if key.startswith(OFF_HISTORY_PREFIX)]
    tokens = db.execute("SELECT id, label, created_at, secret_hash FROM tokens ORDER BY created_at, id")
    return CatalogData(
        projects=project_list.list_projects(db, None),
        workspaces=dict(db.execute("SELECT path, project FROM workspaces").fetchall()),
        switching={each: read_off_history(db, each) for each in switched},
        notes={key: value for key, value in notes.items() if not _is_excluded_note(key)},
        tokens=[(Token(*row), secret_hash) for *row, secret_hash in tokens],
    )


class CatalogReplacement(Value):
    """Replacement of a library's catalog with that of another."""

    meta: Database
    folder: Path
    release: ReleaseFile

    async def apply(self, catalog_data: CatalogData) -> None:
        """Apply the data. Raise InvalidInput, before anything is changed, if no library could contain it."""
        _check(catalog_data)
        wanted = {project.id: project for project in catalog_data.projects}
        listed = await self.meta.read(lambda db: project_list.list_projects(db, None))
        there = {project.id: project for project in listed}
        for project_id in there.keys() - wanted.keys():
            place = self._get_paths(there[project_id])
            await self.release(place)
            with suppress(NotFound):  # another process deleted it
                await delete_project(self.meta, place)
        for project_id in there.keys() & wanted.keys():
            await self._update_file(there[project_id], wanted[project_id])
        # New projects may have names that others had, or be off, so write the catalog first.
        await self.meta.write(lambda db: _write_catalog_data(db, catalog_data))
        for project in wanted.values():
            await self._create_or_move(project, there.get(project.id))
        await self.meta.write(lambda db: _write_catalog_data(db, catalog_data))

    async def _update_file(self, known: Project, project: Project) -> None:
        """Write the new facts to the project's file, before the catalog has them."""
        if _get_file_facts(known) != _get_file_facts(project):
            await self.release(self._get_paths(project))
            await asyncio.to_thread(_write_file_facts, self._get_paths(known), project)

    async def _create_or_move(self, project: Project, known: Project | None) -> None:
        place, at = self._get_paths(project), format_exact_time(project.updated_at)
        status = "active" if known is None else known.status
        if known is None:
            await create_project(self.meta, place, project.description, format_exact_time(project.created_at))
        if status == project.status:
            return
        await self.release(place)
        move = archive_project if project.status == "archived" else restore_project
        await move(self.meta, place, at)

    def _get_paths(self, project: Project) -> ProjectPaths:
        return ProjectPaths(self.folder, project.id, project.name)


def format_exact_time(at: int) -> str:
    """Format a time for the catalog, with microseconds if it has any."""
    shown = format_iso(at)
    rest = at % 1_000
    return f"{shown[:-1]}{rest:03}Z" if rest else shown


def _check(catalog_data: CatalogData) -> None:
    for project in catalog_data.projects:
        check_id(project.id)
        validate_project_name(project.name)
    for trait in ("id", "name"):
        values = [str(getattr(project, trait)) for project in catalog_data.projects]
        if twice := next((value for value in values if values.count(value) > 1), None):
            hint = f"Change the {trait} of one of them."
            raise InvalidInput(f"Two projects have the {trait} {twice}.", hint=hint, **{trait: twice})


def _get_file_facts(project: Project) -> dict[str, str]:
    """Return the facts that a project's file contains about its project."""
    return {
        "name": project.name,
        "description": project.description,
        "created_at": format_exact_time(project.created_at),
    }


def _write_file_facts(place: ProjectPaths, project: Project) -> None:
    """Write the facts. Skip a damaged or missing file."""
    path = place.active_path if place.active_path.exists() else place.archive_path
    with (
        suppress(StoreDamaged, Conflict),
        translate_errors(path, title=place.title),
        closing(connect(path, PROJECT, title=place.title)) as db,
        open_transaction(db),
    ):
        db.executemany("INSERT OR REPLACE INTO meta VALUES (?,?)", _get_file_facts(project).items())


def _write_catalog_data(db: Connection, catalog_data: CatalogData) -> None:
    """Write everything that only `_meta.db` has, for the projects that exist by now."""
    there = {row[0] for row in db.execute("SELECT id FROM projects")}
    _write_projects(db, [project for project in catalog_data.projects if project.id in there])
    db.execute("DELETE FROM workspaces")
    db.executemany(
        "INSERT INTO workspaces VALUES (?,?)",
        [(path, owner) for path, owner in catalog_data.workspaces.items() if owner in there],
    )
    db.execute("DELETE FROM notes WHERE substr(key, 1, ?) <> ?", (len(LEASE_PREFIX), LEASE_PREFIX))
    db.executemany(
        "INSERT INTO notes VALUES (?,?)",
        [(key, value) for key, value in catalog_data.notes.items() if not _is_excluded_note(key)],
    )
    for project_id, switching in catalog_data.switching.items():
        write_off_history(db, project_id, switching)
    db.execute("DELETE FROM tokens")
    db.executemany(
        "INSERT INTO tokens(id, label, secret_hash, created_at) VALUES (?,?,?,?)",
        [(token.id, token.label, secret, token.created_at) for token, secret in catalog_data.tokens],
    )


def _write_projects(db: Connection, projects: Collection[Project]) -> None:
    # The projects may swap names, so give them temporary ones. No project name begins with a space.
    db.executemany("UPDATE projects SET name = ' ' || id WHERE id = ?", [(each.id,) for each in projects])
    try:
        db.executemany(
            "UPDATE projects SET name = ?, description = ?, created_at = ?, updated_at = ? WHERE id = ?",
            [(*_get_file_facts(each).values(), format_exact_time(each.updated_at), each.id) for each in projects],
        )
    except apsw.ConstraintError as error:
        raise Conflict("Another project with the same name was created since then.", hint="Try again.") from error


def _is_excluded_note(key: str) -> bool:
    """Return whether a note is a lease, or has the off periods of a project."""
    return key.startswith((LEASE_PREFIX, OFF_HISTORY_PREFIX))
