"""The library's own database: projects, folders, notes, tokens, and logs of searches and calls."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from everkept.core.answers import KEPT_SEARCHES, Search
from everkept.core.mcp import Usage, summed
from everkept.core.projects import Project, Silence, Span, Switching
from everkept.core.text import clipped
from everkept.engines.surreal.connection import (
    Connection,
    Contended,
    Missing,
    Thrown,
    Values,
    quoted,
    retried,
)
from everkept.errors import InvalidInput, NotFound, StoreTooNew

T = TypeVar("T")

VERSION = 1  # of the tables below

# Whoever changes projects, folders or silences takes a turn: so two that do never overlap, even
# where they touch different rows.
TURN = "UPSERT meta:library SET turn += 1"

WHOSE_TURN = "RETURN (SELECT VALUE turn FROM ONLY meta:library) ?? 0"
UNDISTURBED = "IF ((SELECT VALUE turn FROM ONLY meta:library) ?? 0) != $turn { THROW 'disturbed' }"

_FIRST = """
DEFINE TABLE IF NOT EXISTS meta SCHEMAFULL;
DEFINE FIELD IF NOT EXISTS version ON meta TYPE option<int>;
DEFINE FIELD IF NOT EXISTS turn ON meta TYPE option<int>;
DEFINE FIELD IF NOT EXISTS last ON meta TYPE option<int>;
SELECT VALUE version FROM ONLY meta:library;
"""
_TABLES: Mapping[str, Mapping[str, str]] = {
    "project": {
        "name": "string",
        "description": "string",
        "status": "string",
        "created_at": "int",
        "updated_at": "int",
        "off_since": "option<int>",
    },
    "workspace": {"path": "string", "project": "record<project>"},
    "switching": {
        "spans": "array<array<int>>",  # one that lasts has no second number
        "folders": "array<string>",
        "deleted_at": "option<int>",
    },
    "leaving": {"at": "int"},  # by the id of a project whose database is to go
    "note": {"key": "string", "value": "string"},
    "token": {"label": "string", "secret_hash": "string", "created_at": "int"},
    "search": {
        "at": "int",
        "tool": "string",
        "query": "string",
        "results": "int",
        "milliseconds": "float",
        "session": "option<string>",
        "filters": "string",
    },
    "usage": {
        "tool": "string",
        "calls": "int",
        "errors": "int",
        "total_ms": "float",
        "longest_ms": "float",
        "last_at": "int",
    },
}
_UNIQUE = {"project": "name", "token": "secret_hash"}


class Desk:
    """Nothing is asked or made before the first text."""

    def __init__(self, connection: Connection, database: str) -> None:
        self.connection = connection
        self.database = database
        self._ready_since: int | None = None  # by the openings of the connection
        self._readying = asyncio.Lock()
        # Tasks of one process need not run into each other.
        self._altering = asyncio.Lock()

    async def ask(self, statements: str, values: Values | None = None) -> list[Any]:
        _check_texts(values)
        await self._ready()
        try:
            return await self.connection.run(self.database, statements, values)
        except Missing:  # a server that keeps nothing on disk was started anew
            self.forget()
            await self._ready()
            return await self.connection.run(self.database, statements, values)

    async def alter(self, statements: str, values: Values | None = None) -> list[Any]:
        """All of it or nothing, where it is one statement or one transaction."""
        async with self._altering:
            return await retried(lambda: self.ask(statements, values))

    @property
    def version(self) -> str:
        """Of the database, as exactly as it is known without asking."""
        if self._ready_since is None:
            return ""
        return self.connection.version or ("3.x" if self.connection.is_modern else "2.x")

    def forget(self) -> None:
        """What was known of the database, which may be another the next time."""
        self._ready_since = None

    async def _ready(self) -> None:
        await self.connection.open()
        if self._ready_since == self.connection.openings:
            return
        async with self._readying:
            while self._ready_since != (opening := self.connection.openings):
                await retried(self._make)
                self._ready_since = opening

    async def _make(self) -> None:
        found = (
            await self.connection.run(
                self.database, f"DEFINE DATABASE IF NOT EXISTS {quoted(self.database)}; {_FIRST}"
            )
        )[-1]
        if found is not None and found > VERSION:
            raise StoreTooNew(
                f"Database {self.database} was written by a newer version of the program.",
                hint="Update Everkept.",
                found=found,
                known=VERSION,
            )
        if found != VERSION:
            await self.connection.run(self.database, _definitions())


async def undisturbed(desk: Desk, text: str, values: Values) -> None:
    """For a text that begins with what says so: raises Contended where somebody had a turn."""
    try:
        await desk.alter(text, values)
    except Thrown as thrown:
        if str(thrown) == "disturbed":
            raise Contended(str(thrown)) from thrown
        raise


def row_id(table: str, key: str | int) -> Any:
    # Imported here: the client takes half a second.
    from surrealdb import RecordID

    return RecordID(table, key)


def _check_texts(value: Any) -> None:
    """Some versions cannot store what others can; none of them is asked to."""
    if isinstance(value, str) and "\0" in value:
        shown = clipped(ascii(value)[1:-1])
        raise InvalidInput(f'"{shown}" holds a character that cannot be stored.', value=shown)
    if isinstance(value, Mapping):
        for each in cast(Mapping[Any, Any], value).values():
            _check_texts(each)
    elif isinstance(value, list):
        for each in cast(list[Any], value):
            _check_texts(each)


def _definitions() -> str:
    lines: list[str] = []
    for table, fields in _TABLES.items():
        lines.append(f"DEFINE TABLE IF NOT EXISTS {table} SCHEMAFULL")
        lines += [
            f"DEFINE FIELD IF NOT EXISTS {name} ON {table} TYPE {kind}"
            for name, kind in fields.items()
        ]
    lines += [
        f"DEFINE INDEX IF NOT EXISTS {table}_{field} ON {table} FIELDS {field} UNIQUE"
        for table, field in _UNIQUE.items()
    ]
    lines.append(f"UPSERT meta:library SET version = {VERSION}")
    return ";\n".join(lines) + ";"


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


AT_ONCE = 500  # rows in one transaction
_LAST = "((SELECT VALUE last FROM ONLY meta:searches) ?? 0)"


async def add_searches(desk: Desk, searches: Sequence[Search]) -> None:
    kept = searches[-KEPT_SEARCHES:]
    for start in range(0, len(kept), AT_ONCE):
        some = kept[start : start + AT_ONCE]
        await retried(lambda some=some: _add_some(desk, some))


async def newest_searches(desk: Desk, session: str | None, limit: int) -> list[Search]:
    if limit <= 0:
        return []
    meant = "WHERE session = $asked_in" if session is not None else ""
    [rows] = await desk.ask(
        f"SELECT * FROM search {meant} ORDER BY id DESC LIMIT $limit",
        {"asked_in": session, "limit": limit},
    )
    return [
        Search(
            row["at"],
            row["tool"],
            row["query"],
            row["results"],
            row["milliseconds"],
            row.get("session"),
            json.loads(row["filters"]),
        )
        for row in rows
    ]


async def forget_searches(desk: Desk) -> int:
    [count] = await desk.alter(
        "{ LET $gone = (SELECT VALUE id FROM search); DELETE $gone; RETURN count($gone) }"
    )
    return count


async def add_usage(desk: Desk, rows: Sequence[Usage]) -> None:
    """What others have added meanwhile stays: the sum is made by the database."""
    if not rows:
        return
    added = [
        {
            "id": row_id("usage", row.tool),
            "tool": row.tool,
            "calls": row.calls,
            "errors": row.errors,
            "total_ms": row.total_ms,
            "longest_ms": row.longest_ms,
            "last_at": row.last_at,
        }
        for row in summed(rows)
    ]
    await desk.alter(
        "FOR $row IN $rows { UPSERT $row.id SET tool = $row.tool, calls += $row.calls, "
        "errors += $row.errors, total_ms += $row.total_ms, "
        "longest_ms = math::max([longest_ms ?? 0f, $row.longest_ms]), "
        "last_at = math::max([last_at ?? 0, $row.last_at]) }",
        {"rows": added},
    )


async def usage(desk: Desk) -> list[Usage]:
    [rows] = await desk.ask("SELECT tool, calls, errors, total_ms, longest_ms, last_at FROM usage")
    return summed(Usage(**row) for row in rows)


async def _add_some(desk: Desk, searches: Sequence[Search]) -> None:
    [last] = await desk.ask(f"RETURN {_LAST}")
    rows = [_row(last + number, search) for number, search in enumerate(searches, 1)]
    end = last + len(rows)
    oldest = [
        row_id("search", number)
        for number in range(last - KEPT_SEARCHES + 1, end - KEPT_SEARCHES + 1)
        if number > 0
    ]
    try:
        await desk.alter(
            f"{{ IF {_LAST} != $last {{ THROW 'disturbed' }}; "
            "UPSERT meta:searches SET last = $end; "
            "FOR $row IN $rows { CREATE $row.id CONTENT $row RETURN NONE }; DELETE $oldest }",
            {"last": last, "end": end, "rows": rows, "oldest": oldest},
        )
    except Thrown as thrown:
        raise Contended(str(thrown)) from thrown


def _row(number: int, search: Search) -> dict[str, Any]:
    return {
        "id": row_id("search", number),
        "at": search.at,
        "tool": search.tool,
        "query": search.query,
        "results": search.results,
        "milliseconds": search.milliseconds,
        "session": search.session,
        "filters": json.dumps(search.filters, ensure_ascii=False),
    }
