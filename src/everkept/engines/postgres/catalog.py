"""Tables of a library besides the records: projects, workspaces, notes, tokens and logs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, LiteralString

import psycopg.errors

from everkept.core.answers import LEASE_PREFIX, MAX_SEARCHES, SearchRecord
from everkept.core.mcp import ToolUsage, sum_usage
from everkept.core.ports import Token
from everkept.core.projects import OffHistory, OffPeriod, Project, Status, build_project_error, is_trash_name
from everkept.core.text import clip_text, compute_digest
from everkept.engines.postgres.rows import report_damage
from everkept.engines.postgres.statements import Cursor, ask, ask_last, to_limit
from everkept.engines.postgres.transactions import note_change
from everkept.engines.stored_text import check_project, check_times
from everkept.errors import Conflict, InvalidInput, StoreDamaged


def check_texts(*texts: str | None) -> None:
    """Raise InvalidInput for a text with NUL or an unpaired surrogate."""
    for text in texts:
        if text is not None and not is_storable(text):
            shown = clip_text(ascii(text)[1:-1])
            raise InvalidInput(
                f'"{shown}" contains a character that cannot be stored.',
                hint="Remove the NUL character or the unpaired surrogate.",
                value=shown,
            )


def is_storable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def note_library_change(cursor: Cursor) -> None:
    """Report after the commit a change that belongs to no single store."""
    note_change(cursor, None)


PROJECT_COLUMNS: LiteralString = (
    "projects.id, projects.name, projects.description, projects.status, "
    "projects.created_at, projects.updated_at, projects.off_since"
)
SWITCHING_COLUMNS: LiteralString = "since, until, folders, deleted_at"

# A project and the number of its store.
StoredProject = tuple[Project, int]


def list_projects(cursor: Cursor, status: Status | None = None, *, is_last: bool = False) -> list[Project]:
    asking = cursor.ask_last if is_last else cursor.ask
    rows = asking(
        f"SELECT {PROJECT_COLUMNS} FROM projects WHERE %(status)s::text IS NULL OR status = %(status)s ORDER BY name",
        {"status": status},
    )
    return [build_project(*row) for row in rows]


def find_project(cursor: Cursor, name: str) -> StoredProject:
    found = ask_last(cursor, f"SELECT {PROJECT_COLUMNS}, store FROM projects WHERE name = %s", name)
    return decode_project(found.fetchone(), name)


def find_project_by_id(cursor: Cursor, project: Project) -> StoredProject:
    found = ask_last(cursor, f"SELECT {PROJECT_COLUMNS}, store FROM projects WHERE id = %s", project.id)
    return decode_project(found.fetchone(), project.name)


@report_damage
def build_project(*columns: Any) -> Project:
    """Build a Project from PROJECT_COLUMNS."""
    return check_project(Project(*columns))


def decode_project(row: tuple[Any, ...] | None, name: str) -> StoredProject:
    if row is None:
        raise build_project_error(name)
    return build_project(*row[:-1]), row[-1]


def read_store_number(cursor: Cursor, name: str) -> int:
    """Return the number of a store that belongs to no project."""
    row = ask_last(cursor, "SELECT number FROM stores WHERE name = %s", name).fetchone()
    if row is None:
        raise StoreDamaged(f'The store "{name}" is missing in PostgreSQL.', hint="Restore a backup.")
    return row[0]


def find_workspace_project(cursor: Cursor, path: str) -> Project | None:
    row = ask_last(
        cursor,
        f"SELECT {PROJECT_COLUMNS} FROM workspaces JOIN projects ON projects.id = "
        f"workspaces.project "
        "WHERE workspaces.key = %s",
        compute_digest(path),
    ).fetchone()
    found = None if row is None else build_project(*row)
    return None if found is None or is_trash_name(found.name) else found


def list_workspaces(cursor: Cursor, project_id: str) -> list[str]:
    rows = ask_last(cursor, "SELECT path FROM workspaces WHERE project = %s ORDER BY path", project_id)
    return [path for (path,) in rows]


def list_off_periods(cursor: Cursor) -> list[OffPeriod]:
    rows = ask_last(
        cursor,
        f"SELECT {SWITCHING_COLUMNS}, EXISTS (SELECT FROM projects WHERE id = switching.project), "
        "ARRAY(SELECT path FROM workspaces WHERE project = switching.project ORDER BY path) "
        "FROM switching ORDER BY project",
    )
    found: list[OffPeriod] = []
    for *columns, is_there, folders in rows:
        switching = decode_switching(*columns)
        found += switching.list_periods([*folders, *switching.folders]) if is_there else switching.list_last_periods()
    return found


@report_damage
def decode_switching(
    since: list[int], until: list[int | None], folders: list[str], deleted_at: int | None
) -> OffHistory:
    check_times(*since, *until, deleted_at)
    return OffHistory(tuple(zip(since, until, strict=True)), tuple(folders), deleted_at)


def encode_switching(switching: OffHistory) -> tuple[Any, ...]:
    since, until = zip(*switching.spans, strict=True) if switching.spans else ((), ())
    return list(since), list(until), list(switching.folders), switching.deleted_at


def get_note(cursor: Cursor, key: str) -> str | None:
    row = ask_last(cursor, "SELECT value FROM notes WHERE digest = %s", compute_digest(key)).fetchone()
    return None if row is None else row[0]


def write_note(cursor: Cursor, key: str, value: str | None) -> None:
    if value is None:
        ask(cursor, "DELETE FROM notes WHERE digest = %s", compute_digest(key))
    else:
        ask(
            cursor,
            "INSERT INTO notes(digest, key, value) VALUES (%s, %s, %s) "
            "ON CONFLICT (digest) DO UPDATE SET value = excluded.value",
            compute_digest(key),
            key,
            value,
        )
    if not key.startswith(LEASE_PREFIX):
        note_library_change(cursor)


def list_notes(cursor: Cursor, prefix: str, *, is_last: bool = False) -> Mapping[str, str]:
    asking = cursor.ask_last if is_last else cursor.ask
    rows = asking(
        'SELECT key, value FROM notes WHERE "left"(key, 200) ^@ "left"(%(prefix)s, 200) AND key ^@ %(prefix)s',
        {"prefix": prefix},
    )
    return dict(rows.fetchall())


def list_tokens(cursor: Cursor, *, is_last: bool = False) -> list[tuple[Token, str]]:
    """Return the tokens, each with the hash of its secret."""
    asking = cursor.ask_last if is_last else cursor.ask
    rows = asking("SELECT id, label, created_at, secret_hash FROM tokens ORDER BY created_at, id")
    return [(Token(*row), secret_hash) for *row, secret_hash in rows]


def register_token(cursor: Cursor, token: Token, secret_hash: str) -> None:
    try:
        cursor.execute(
            "INSERT INTO tokens(id, label, secret_hash, created_at) VALUES (%s, %s, %s, %s)",
            (token.id, token.label, secret_hash, token.created_at),
        )
    except psycopg.errors.UniqueViolation as error:
        raise Conflict(
            f"Token {token.id} already exists.", hint="Create a token with another id.", id=token.id
        ) from error
    note_library_change(cursor)


def revoke_token(cursor: Cursor, token_id: str) -> bool:
    is_removed = ask(cursor, "DELETE FROM tokens WHERE id = %s", token_id).rowcount > 0
    if is_removed:
        note_library_change(cursor)
    return is_removed


def has_token(cursor: Cursor, secret_hash: str) -> bool:
    found = ask_last(cursor, "SELECT FROM tokens WHERE secret_hash = %s", secret_hash)
    return found.fetchone() is not None


def add_searches(cursor: Cursor, searches: Sequence[SearchRecord]) -> None:
    kept = searches[-MAX_SEARCHES:]
    cursor.ask(
        "INSERT INTO searches(at, tool, query, results, milliseconds, session, filters) "
        "SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::bigint[], "
        "%s::double precision[], %s::text[], %s::text[])",
        (
            [search.at for search in kept],
            [search.tool for search in kept],
            [search.query for search in kept],
            [search.results for search in kept],
            [search.milliseconds for search in kept],
            [search.session for search in kept],
            [json.dumps(search.filters) for search in kept],
        ),
    )
    cursor.ask(
        "DELETE FROM searches WHERE seq IN "
        # Skip rows that another process is deleting.
        "(SELECT seq FROM searches ORDER BY seq DESC OFFSET %s FOR UPDATE SKIP LOCKED)",
        (MAX_SEARCHES,),
    )


def list_searches(cursor: Cursor, session: str | None, limit: int) -> list[SearchRecord]:
    rows = cursor.ask_last(
        "SELECT at, tool, query, results, milliseconds, session, filters FROM searches "
        "WHERE %(session)s::text IS NULL OR session = %(session)s "
        "ORDER BY seq DESC LIMIT %(limit)s",
        {"session": session, "limit": to_limit(max(limit, 0))},
    )
    return [_build_search(*row) for row in rows]


@report_damage
def _build_search(
    at: int, tool: str, query: str, results: int, milliseconds: float, asked_in: str | None, filters: str
) -> SearchRecord:
    check_times(at)
    return SearchRecord(at, tool, query, results, milliseconds, asked_in, json.loads(filters))


def forget_searches(cursor: Cursor) -> int:
    return cursor.execute("DELETE FROM searches").rowcount


def add_usage(cursor: Cursor, rows: Sequence[ToolUsage]) -> None:
    """Add to the counts. The database computes the sums, so additions of other processes are kept."""
    # Sorted, so that two processes cannot deadlock.
    for u in sorted(sum_usage(rows), key=lambda usage: usage.tool):
        cursor.ask(
            "INSERT INTO usage(digest, tool, calls, errors, total_ms, longest_ms, last_at) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (digest) DO UPDATE SET "
            "calls = usage.calls + excluded.calls, "
            "errors = usage.errors + excluded.errors, "
            "total_ms = usage.total_ms + excluded.total_ms, "
            "longest_ms = greatest(usage.longest_ms, excluded.longest_ms), "
            "last_at = greatest(usage.last_at, excluded.last_at)",
            (compute_digest(u.tool), u.tool, u.calls, u.errors, u.total_ms, u.longest_ms, u.last_at),
        )


def list_usage(cursor: Cursor) -> list[ToolUsage]:
    rows = cursor.ask_last("SELECT tool, calls, errors, total_ms, longest_ms, last_at FROM usage")
    return sum_usage(ToolUsage(*row) for row in rows)
