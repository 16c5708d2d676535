"""Database of a library besides the records: projects, workspaces, notes, tokens and logs."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from everkept.core.answers import MAX_SEARCHES, SearchRecord
from everkept.core.mcp import ToolUsage, sum_usage
from everkept.core.projects import OffHistory, OffPeriod, Project, is_trash_name
from everkept.core.text import clip_text
from everkept.engines.stored_text import check_project, check_times
from everkept.engines.surreal.connection import (
    Connection,
    MissingTable,
    TransactionThrown,
    Values,
    WriteContention,
    quote_name,
    retry,
)
from everkept.engines.surreal.rows import build_row_id, report_damage
from everkept.engines.surreal.table_faults import DatabaseLayout
from everkept.errors import InvalidInput, StoreTooNew

T = TypeVar("T")

VERSION = 1  # of these tables

# Each change of projects, workspaces or off periods takes a turn, so that no two overlap even if they touch different
# rows.
TURN_STATEMENT = "UPSERT meta:library SET turn += 1"

TURN_QUERY = "RETURN (SELECT VALUE turn FROM ONLY meta:library) ?? 0"
TURN_CHECK = "IF ((SELECT VALUE turn FROM ONLY meta:library) ?? 0) != $turn { THROW 'disturbed' }"

_META_DEFINITIONS = """
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
        "spans": "array<array<int>>",  # a span that has not ended has one number
        "folders": "array<string>",
        "deleted_at": "option<int>",
    },
    "leaving": {"at": "int"},  # keyed by the id of a project whose database is to be removed
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
_UNIQUE_FIELDS = {"project": "name", "token": "secret_hash"}


class CatalogDatabase:
    """Database of the catalog. It connects and creates its tables on first use."""

    def __init__(self, connection: Connection, database: str) -> None:
        self.connection = connection
        self.database = database
        self._ready_since: int | None = None  # opening of the connection after which the tables were checked
        self._readying = asyncio.Lock()
        # Keeps tasks of one process from conflicting with each other.
        self._altering = asyncio.Lock()

    async def ask(self, statements: str, values: Values | None = None) -> list[Any]:
        _check_texts(values)
        await self._ensure_ready()
        try:
            return await self.connection.run(self.database, statements, values)
        except MissingTable:  # an in-memory server was restarted
            self.reset()
            await self._ensure_ready()
            return await self.connection.run(self.database, statements, values)

    async def alter(self, statements: str, values: Values | None = None) -> list[Any]:
        """Write everything or nothing, if it is one statement or one transaction."""
        async with self._altering:
            return await retry(lambda: self.ask(statements, values))

    @property
    def version(self) -> str:
        """Return the version of the database if it is known without a query, otherwise an empty text."""
        if self._ready_since is None:
            return ""
        return self.connection.version or ("3.x" if self.connection.is_modern else "2.x")

    def reset(self) -> None:
        """Forget that the tables were checked: the next connection may reach another database."""
        self._ready_since = None

    async def _ensure_ready(self) -> None:
        await self.connection.open()
        if self._ready_since == self.connection.openings:
            return
        async with self._readying:
            while self._ready_since != (opening := self.connection.openings):
                await retry(self._create_tables)
                self._ready_since = opening

    async def _create_tables(self) -> None:
        found = (
            await self.connection.run(
                self.database, f"DEFINE DATABASE IF NOT EXISTS {quote_name(self.database)}; {_META_DEFINITIONS}"
            )
        )[-1]
        if found is not None and found > VERSION:
            raise StoreTooNew(
                f"Database {self.database} was written by a newer version (schema {found}; this version supports "
                f"{VERSION}).",
                hint="Update Everkept on this machine, then restart your assistants.",
                found=found,
                known=VERSION,
            )
        if found != VERSION:
            await self.connection.run(self.database, _build_definitions())


async def alter_undisturbed(catalog_db: CatalogDatabase, text: str, values: Values) -> None:
    """Run statements that begin with a check. Raise WriteContention if they throw 'disturbed'."""
    try:
        await catalog_db.alter(text, values)
    except TransactionThrown as thrown:
        if str(thrown) == "disturbed":
            raise WriteContention(str(thrown)) from thrown
        raise


def _check_texts(value: Any) -> None:
    """Raise InvalidInput for a text with NUL, which some versions cannot store."""
    if isinstance(value, str) and "\0" in value:
        shown = clip_text(ascii(value)[1:-1])
        raise InvalidInput(
            f'"{shown}" contains a character that cannot be stored.', hint="Remove the NUL character.", value=shown
        )
    if isinstance(value, Mapping):
        for each in cast(Mapping[Any, Any], value).values():
            _check_texts(each)
    elif isinstance(value, list):
        for each in cast(list[Any], value):
            _check_texts(each)


def _build_definitions() -> str:
    lines: list[str] = []
    for table, fields in _TABLES.items():
        lines.append(f"DEFINE TABLE IF NOT EXISTS {table} SCHEMAFULL")
        lines += [f"DEFINE FIELD IF NOT EXISTS {name} ON {table} TYPE {kind}" for name, kind in fields.items()]
    lines += [
        f"DEFINE INDEX IF NOT EXISTS {table}_{field} ON {table} FIELDS {field} UNIQUE"
        for table, field in _UNIQUE_FIELDS.items()
    ]
    lines.append(f"UPSERT meta:library SET version = {VERSION}")
    return ";\n".join(lines) + ";"


LAYOUT = DatabaseLayout(
    {**_TABLES, "meta": dict.fromkeys(("version", "turn", "last"), "option<int>")},
    {table: (field,) for table, field in _UNIQUE_FIELDS.items()},
    unique=tuple(_UNIQUE_FIELDS),
)

PROJECT_FIELDS = "record::id(id) AS id, name, description, status, created_at, updated_at, off_since"
WORKSPACE_FIELDS = "path, record::id(project) AS project"
SWITCHING_FIELDS = "record::id(id) AS id, spans, folders, deleted_at"


async def list_projects(catalog_db: CatalogDatabase) -> list[Project]:
    [rows] = await catalog_db.ask(f"SELECT {PROJECT_FIELDS} FROM project")
    return sorted(map(decode_project, rows), key=lambda project: project.name)


async def find_project(catalog_db: CatalogDatabase, name: str) -> Project | None:
    [rows] = await catalog_db.ask(f"SELECT {PROJECT_FIELDS} FROM project WHERE name = $name", {"name": name})
    return decode_project(rows[0]) if rows else None


async def find_workspace_project(catalog_db: CatalogDatabase, path: str) -> Project | None:
    [rows] = await catalog_db.ask(
        f"SELECT {PROJECT_FIELDS} FROM (SELECT VALUE project FROM $workspace)",
        {"workspace": build_row_id("workspace", path)},
    )
    found = decode_project(rows[0]) if rows else None
    return None if found is None or is_trash_name(found.name) else found


async def list_workspaces(catalog_db: CatalogDatabase, project_id: str) -> list[str]:
    [paths] = await catalog_db.ask(
        "SELECT VALUE path FROM workspace WHERE project = $project", {"project": build_row_id("project", project_id)}
    )
    return sorted(paths)


async def list_off_periods(catalog_db: CatalogDatabase) -> list[OffPeriod]:
    [found] = await catalog_db.ask(
        f"RETURN {{ switching: (SELECT {SWITCHING_FIELDS} FROM switching), "
        f"workspaces: (SELECT {WORKSPACE_FIELDS} FROM workspace), "
        "live: (SELECT VALUE record::id(id) FROM project) }"
    )
    folders: dict[str, list[str]] = {project_id: [] for project_id in found["live"]}
    for row in sorted(found["workspaces"], key=lambda row: row["path"]):
        folders.setdefault(row["project"], []).append(row["path"])
    silences: list[OffPeriod] = []
    for row in sorted(found["switching"], key=lambda row: row["id"]):
        switching, live = decode_switching(row), folders.get(row["id"])
        folders_off = None if live is None else [*live, *switching.folders]
        silences += switching.list_last_periods() if folders_off is None else switching.list_periods(folders_off)
    return silences


@report_damage
def decode_project(row: dict[str, Any]) -> Project:
    return check_project(Project(**row))


def encode_project(project: Project) -> dict[str, Any]:
    return {name: getattr(project, name) for name in _TABLES["project"]}


@report_damage
def decode_switching(row: dict[str, Any] | None) -> OffHistory:
    if row is None:
        return OffHistory()
    spans = tuple((since, until[0] if until else None) for since, *until in row["spans"])
    return OffHistory(spans, tuple(row["folders"]), row.get("deleted_at"))


def encode_switching(switching: OffHistory) -> dict[str, Any]:
    return {
        "spans": [[at for at in span if at is not None] for span in switching.spans],
        "folders": list(switching.folders),
        "deleted_at": switching.deleted_at,
    }


MAX_WRITE_ROWS = 500  # in one transaction
_LAST_SEARCH = "((SELECT VALUE last FROM ONLY meta:searches) ?? 0)"


async def add_searches(catalog_db: CatalogDatabase, searches: Sequence[SearchRecord]) -> None:
    kept = searches[-MAX_SEARCHES:]
    for start in range(0, len(kept), MAX_WRITE_ROWS):
        some = kept[start : start + MAX_WRITE_ROWS]
        await retry(lambda some=some: _add_chunk(catalog_db, some))


async def list_searches(catalog_db: CatalogDatabase, session: str | None, limit: int) -> list[SearchRecord]:
    if limit <= 0:
        return []
    meant = "WHERE session = $asked_in" if session is not None else ""
    [rows] = await catalog_db.ask(
        f"SELECT * FROM search {meant} ORDER BY id DESC LIMIT $limit", {"asked_in": session, "limit": limit}
    )
    return [_decode_search(row) for row in rows]


@report_damage
def _decode_search(row: dict[str, Any]) -> SearchRecord:
    values: dict[str, Any] = {name: row.get(name) for name in _TABLES["search"]}
    check_times(values["at"])
    return SearchRecord(**values | {"filters": json.loads(row["filters"])})


async def forget_searches(catalog_db: CatalogDatabase) -> int:
    [count] = await catalog_db.alter("{ LET $gone = (SELECT VALUE id FROM search); DELETE $gone; RETURN count($gone) }")
    return count


async def add_usage(catalog_db: CatalogDatabase, rows: Sequence[ToolUsage]) -> None:
    """Add to the counts. The database computes the sums, so additions of other processes are kept."""
    if not rows:
        return
    added = [
        {"id": build_row_id("usage", row.tool), **{name: getattr(row, name) for name in _TABLES["usage"]}}
        for row in sum_usage(rows)
    ]
    await catalog_db.alter(
        "FOR $row IN $rows { UPSERT $row.id SET tool = $row.tool, calls += $row.calls, "
        "errors += $row.errors, total_ms += $row.total_ms, "
        "longest_ms = math::max([longest_ms ?? 0f, $row.longest_ms]), "
        "last_at = math::max([last_at ?? 0, $row.last_at]) }",
        {"rows": added},
    )


async def list_usage(catalog_db: CatalogDatabase) -> list[ToolUsage]:
    [rows] = await catalog_db.ask("SELECT tool, calls, errors, total_ms, longest_ms, last_at FROM usage")
    return sum_usage(ToolUsage(**row) for row in rows)


async def _add_chunk(catalog_db: CatalogDatabase, searches: Sequence[SearchRecord]) -> None:
    [last] = await catalog_db.ask(f"RETURN {_LAST_SEARCH}")
    rows = [_encode_search(last + number, search) for number, search in enumerate(searches, 1)]
    end = last + len(rows)
    oldest = [
        build_row_id("search", number)
        for number in range(last - MAX_SEARCHES + 1, end - MAX_SEARCHES + 1)
        if number > 0
    ]
    await alter_undisturbed(
        catalog_db,
        f"{{ IF {_LAST_SEARCH} != $last {{ THROW 'disturbed' }}; "
        "UPSERT meta:searches SET last = $end; "
        "FOR $row IN $rows { CREATE $row.id CONTENT $row RETURN NONE }; DELETE $oldest }",
        {"last": last, "end": end, "rows": rows, "oldest": oldest},
    )


def _encode_search(number: int, search: SearchRecord) -> dict[str, Any]:
    row = {name: getattr(search, name) for name in _TABLES["search"]}
    filters = json.dumps(search.filters, ensure_ascii=False)
    return {**row, "id": build_row_id("search", number), "filters": filters}
