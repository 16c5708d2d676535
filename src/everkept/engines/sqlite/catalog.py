"""The catalog in `_meta.db`: workspaces, notes, tokens, usage, and all of it at once.

To take over another library's is many steps, each of which may be the last before a crash. Each
looks at what there is and does what is left to do, so that whoever begins anew finishes it.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import closing, suppress
from pathlib import Path

import apsw

from everkept.core import library as catalog
from everkept.core.answers import KEPT_SEARCHES, PASSING, Holdings, Search, Token
from everkept.core.mcp import Usage
from everkept.core.projects import Project, Silence, checked_project_name
from everkept.core.times import iso
from everkept.engines.sqlite import project_list
from everkept.engines.sqlite.connection import Connection, connect, transaction, translated
from everkept.engines.sqlite.database import Database
from everkept.engines.sqlite.project_lifecycle import (
    Place,
    checked_id,
    discard,
    make,
    move_away,
    move_back,
)
from everkept.engines.sqlite.project_list import SWITCHED, keep_switching, switching_of
from everkept.engines.sqlite.schema import PROJECT
from everkept.errors import Conflict, InvalidInput, NotFound, StoreDamaged
from everkept.values import Value

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


# Lets go of the file of a project that is to move or to go.
Release = Callable[[Place], Awaitable[None]]


def held(db: Connection) -> Holdings:
    notes = project_list.notes(db, "")
    switched = [key.removeprefix(SWITCHED) for key in sorted(notes) if key.startswith(SWITCHED)]
    tokens = db.execute(
        "SELECT id, label, created_at, secret_hash FROM tokens ORDER BY created_at, id"
    )
    return Holdings(
        projects=project_list.projects(db, None),
        workspaces=dict(db.execute("SELECT path, project FROM workspaces").fetchall()),
        switching={each: switching_of(db, each) for each in switched},
        notes={key: value for key, value in notes.items() if not _is_apart(key)},
        tokens=[(Token(*row), secret_hash) for *row, secret_hash in tokens],
    )


class TakingOver(Value):
    """One library that is to hold what another does."""

    meta: Database
    folder: Path
    release: Release

    async def take_over(self, holdings: Holdings) -> None:
        """Raises InvalidInput, before anything is changed, for what no library could hold."""
        _check(holdings)
        wanted = {project.id: project for project in holdings.projects}
        there = {project.id: project for project in await self._projects()}
        for project_id in there.keys() - wanted.keys():
            await self._give_up(there[project_id])
        for project_id in there.keys() & wanted.keys():
            await self._retell(there[project_id], wanted[project_id])
        # Before the new ones are made: they may have names that others had, or be switched off.
        await self.meta.write(lambda db: _write_down(db, holdings))
        for project in wanted.values():
            await self._place(project, there.get(project.id))
        await self.meta.write(lambda db: _write_down(db, holdings))

    async def _projects(self) -> list[Project]:
        return await self.meta.read(lambda db: project_list.projects(db, None))

    async def _give_up(self, project: Project) -> None:
        await self.release(self._at(project))
        with suppress(NotFound):  # somebody else has deleted it meanwhile
            await discard(self.meta, self._at(project))

    async def _retell(self, known: Project, project: Project) -> None:
        """Its file says the same of it as the catalogue does, and before that."""
        if _told(known) != _told(project):
            await self.release(self._at(project))
            await asyncio.to_thread(_tell_file, self._at(known), project)

    async def _place(self, project: Project, known: Project | None) -> None:
        place, at = self._at(project), exact(project.updated_at)
        status = "active" if known is None else known.status
        if known is None:
            await make(self.meta, place, project.description, exact(project.created_at))
        if status == project.status:
            return
        await self.release(place)
        move = move_away if project.status == "archived" else move_back
        await move(self.meta, place, at)

    def _at(self, project: Project) -> Place:
        return Place(self.folder, project.id, project.name)


def exact(at: int) -> str:
    """A time as the catalogue has it, and to the microsecond where it was given so."""
    shown = iso(at)
    rest = at % 1_000
    return f"{shown[:-1]}{rest:03}Z" if rest else shown


def _check(holdings: Holdings) -> None:
    for project in holdings.projects:
        checked_id(project.id)
        checked_project_name(project.name)
    for trait in ("id", "name"):
        values = [str(getattr(project, trait)) for project in holdings.projects]
        if twice := next((value for value in values if values.count(value) > 1), None):
            raise InvalidInput(f"Two projects have the {trait} {twice}.", **{trait: twice})


def _told(project: Project) -> dict[str, str]:
    """What a project's file tells of its project."""
    return {
        "name": project.name,
        "description": project.description,
        "created_at": exact(project.created_at),
    }


def _tell_file(place: Place, project: Project) -> None:
    """A file that is damaged or gone has nothing to tell."""
    path = place.active if place.active.exists() else place.archived
    with (
        suppress(StoreDamaged, Conflict),
        translated(path, title=place.title),
        closing(connect(path, PROJECT, title=place.title)) as db,
        transaction(db),
    ):
        db.executemany("INSERT OR REPLACE INTO meta VALUES (?,?)", _told(project).items())


def _write_down(db: Connection, holdings: Holdings) -> None:
    """All that `_meta.db` alone has, for the projects that are there by now."""
    there = {row[0] for row in db.execute("SELECT id FROM projects")}
    _write_projects(db, [project for project in holdings.projects if project.id in there])
    db.execute("DELETE FROM workspaces")
    db.executemany(
        "INSERT INTO workspaces VALUES (?,?)",
        [(path, owner) for path, owner in holdings.workspaces.items() if owner in there],
    )
    db.execute("DELETE FROM notes WHERE substr(key, 1, ?) <> ?", (len(PASSING), PASSING))
    db.executemany(
        "INSERT INTO notes VALUES (?,?)",
        [(key, value) for key, value in holdings.notes.items() if not _is_apart(key)],
    )
    for project_id, switching in holdings.switching.items():
        keep_switching(db, project_id, switching)
    db.execute("DELETE FROM tokens")
    db.executemany(
        "INSERT INTO tokens(id, label, secret_hash, created_at) VALUES (?,?,?,?)",
        [(token.id, token.label, secret, token.created_at) for token, secret in holdings.tokens],
    )


def _write_projects(db: Connection, projects: Collection[Project]) -> None:
    # No name begins with a blank: they may trade theirs.
    db.executemany(
        "UPDATE projects SET name = ' ' || id WHERE id = ?", [(each.id,) for each in projects]
    )
    try:
        db.executemany(
            "UPDATE projects SET name = ?, description = ?, created_at = ?, updated_at = ? "
            "WHERE id = ?",
            [(*_told(each).values(), exact(each.updated_at), each.id) for each in projects],
        )
    except apsw.ConstraintError as error:
        raise Conflict(
            "Another project of the same name was made meanwhile.", hint="Try again."
        ) from error


def _is_apart(key: str) -> bool:
    """Whether a note is kept for a moment, or says when a project was switched off."""
    return key.startswith((PASSING, SWITCHED))
