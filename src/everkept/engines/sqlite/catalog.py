"""Workspaces, notes, tokens, searches and tool usage in `_meta.db`."""

import json
from collections.abc import Mapping

import apsw

from everkept.core import catalog
from everkept.core.projects import Project, Silence
from everkept.core.search_ports import KEPT_SEARCHES, Search
from everkept.core.store_values import Token
from everkept.core.upstreams import Usage
from everkept.engines.sqlite import project_list
from everkept.engines.sqlite.sql import Connection
from everkept.errors import Conflict, NotFound

_USAGE = "tool, calls, errors, total_ms, longest_ms, last_at"


def list_silences(db: Connection, _: catalog.ListSilences) -> list[Silence]:
    return project_list.silences(db)


def find_workspace_project(
    db: Connection, question: catalog.FindWorkspaceProject
) -> Project | None:
    return project_list.of_workspace(db, question.path)


def list_workspaces(db: Connection, question: catalog.ListWorkspaces) -> list[str]:
    rows = db.execute(
        "SELECT path FROM workspaces WHERE project = ? ORDER BY path", (question.project.id,)
    )
    return [path for (path,) in rows]


def link_workspace(db: Connection, change: catalog.LinkWorkspace) -> Project:
    path, project = change.path, change.project
    try:
        db.execute("INSERT OR IGNORE INTO workspaces VALUES (?, ?)", (path, project.id))
    except apsw.ConstraintError as error:
        raise NotFound("project", project.name, hint="It was deleted meanwhile.") from error
    return project_list.of_workspace(db, path) or project


def get_note(db: Connection, question: catalog.GetNote) -> str | None:
    return project_list.note(db, question.key)


def list_notes(db: Connection, question: catalog.ListNotes) -> Mapping[str, str]:
    return project_list.notes(db, question.prefix)


def write_note(db: Connection, change: catalog.WriteNote) -> None:
    if change.value is None:
        db.execute("DELETE FROM notes WHERE key = ?", (change.key,))
    else:
        db.execute("INSERT OR REPLACE INTO notes VALUES (?,?)", (change.key, change.value))


def list_tokens(db: Connection, _: catalog.ListTokens) -> list[Token]:
    rows = db.execute("SELECT id, label, created_at FROM tokens ORDER BY created_at, id")
    return [Token(*row) for row in rows]


def has_token(db: Connection, question: catalog.HasToken) -> bool:
    statement = "SELECT count(*) FROM tokens WHERE secret_hash = ?"
    return bool(db.execute(statement, (question.secret_hash,)).get)


def register_token(db: Connection, change: catalog.RegisterToken) -> None:
    token = change.token
    try:
        db.execute(
            "INSERT INTO tokens(id, label, secret_hash, created_at) VALUES (?,?,?,?)",
            (token.id, token.label, change.secret_hash, token.created_at),
        )
    except apsw.ConstraintError as error:
        raise Conflict(f"There is a token {token.id} already.", id=token.id) from error


def revoke_token(db: Connection, change: catalog.RevokeToken) -> bool:
    db.execute("DELETE FROM tokens WHERE id = ?", (change.token_id,))
    return db.changes() > 0


def add_searches(db: Connection, change: catalog.AddSearches) -> None:
    db.executemany(
        "INSERT INTO searches(at, tool, query, results, milliseconds, session, filters) "
        "VALUES (?,?,?,?,?,?,?)",
        [
            (s.at, s.tool, s.query, s.results, s.milliseconds, s.session, _packed(s))
            for s in change.searches
        ],
    )
    db.execute(
        "DELETE FROM searches WHERE seq <= (SELECT max(seq) FROM searches) - ?", (KEPT_SEARCHES,)
    )


def list_searches(db: Connection, question: catalog.ListSearches) -> list[Search]:
    rows = db.execute(
        "SELECT at, tool, query, results, milliseconds, session, filters FROM searches "
        "WHERE ?1 IS NULL OR session = ?1 ORDER BY seq DESC LIMIT ?2",
        (question.session, question.limit),
    )
    return [
        Search(at, tool, query, results, milliseconds, asked_in, json.loads(filters))
        for at, tool, query, results, milliseconds, asked_in, filters in rows
    ]


def forget_searches(db: Connection, _: catalog.ForgetSearches) -> int:
    count: int = db.execute("SELECT count(*) FROM searches").get
    db.execute("DELETE FROM searches")
    return count


def add_usage(db: Connection, change: catalog.AddUsage) -> None:
    """Let the database add the numbers, so that other processes' additions stay."""
    db.executemany(
        f"INSERT INTO usage({_USAGE}) VALUES (?,?,?,?,?,?) ON CONFLICT(tool) DO UPDATE SET "
        "calls = calls + excluded.calls, "
        "errors = errors + excluded.errors, "
        "total_ms = total_ms + excluded.total_ms, "
        "longest_ms = max(longest_ms, excluded.longest_ms), "
        "last_at = max(last_at, excluded.last_at)",
        [(u.tool, u.calls, u.errors, u.total_ms, u.longest_ms, u.last_at) for u in change.rows],
    )


def list_usage(db: Connection, _: catalog.ListUsage) -> list[Usage]:
    rows = db.execute(f"SELECT {_USAGE} FROM usage ORDER BY calls DESC, tool")
    return [Usage(*row) for row in rows]


def _packed(search: Search) -> str:
    return json.dumps(search.filters, ensure_ascii=False)
