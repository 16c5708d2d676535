"""All that a library has beside the records, given out and taken over."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, LiteralString

import psycopg.errors

from everkept.core.copies import PASSING, Holdings
from everkept.core.projects import Project
from everkept.core.text import digest
from everkept.engines.postgres.catalogue import keeping, listing
from everkept.engines.postgres.catalogue.leftovers import give_up
from everkept.engines.postgres.catalogue.listing import SWITCHING, switching_from, switching_row
from everkept.engines.postgres.catalogue.telling import tell_all
from everkept.engines.postgres.catalogue.texts import check
from everkept.engines.postgres.connecting.database import Cursor
from everkept.errors import Conflict, InvalidInput

_ARRAYS: LiteralString = (
    "unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], "
    "%s::bigint[]) AS new(id, name, description, status, created_at, updated_at, off_since)"
)


def holdings(cursor: Cursor) -> Holdings:
    kept = keeping.notes(cursor, "")
    switches = cursor.ask(f"SELECT project, {SWITCHING} FROM switching")
    folders = cursor.ask("SELECT path, project FROM workspaces")
    switching = {project: switching_from(*row) for project, *row in switches}
    return Holdings(
        workspaces=dict(folders.fetchall()),
        switching=switching,
        projects=listing.projects(cursor),
        notes={key: value for key, value in kept.items() if not key.startswith(PASSING)},
        tokens=keeping.tokens(cursor),
    )


def check_holdings(holdings: Holdings) -> None:
    """Raises InvalidInput for what no library could hold."""
    for trait in ("id", "name"):
        counts = Counter(str(getattr(project, trait)) for project in holdings.projects)
        if twice := next((value for value, count in counts.items() if count > 1), None):
            raise InvalidInput(f"Two projects have the {trait} {twice}.", **{trait: twice})
    check(*(text for each in holdings.projects for text in (each.id, each.name, each.description)))
    check(*chain.from_iterable(holdings.workspaces.items()))
    check(*chain.from_iterable(holdings.notes.items()))
    check(*(text for each in holdings.switching.values() for text in each.folders))
    check(*(text for each, secret in holdings.tokens for text in (each.id, each.label, secret)))


def take_over(cursor: Cursor, holdings: Holdings) -> list[int]:
    """Gives the numbers of the stores that are gone."""
    # The projects first, as whoever changes one does.
    cursor.execute("LOCK TABLE projects, workspaces, switching, notes, tokens IN EXCLUSIVE MODE")
    gone = _give_up_others(cursor, [project.id for project in holdings.projects])
    try:
        _place_projects(cursor, holdings)
    except psycopg.errors.UniqueViolation as error:
        raise Conflict(
            "A project has an id that belongs to another store.", hint="Give it another one."
        ) from error
    _place_the_rest(cursor, holdings)
    tell_all(cursor)
    return gone


def _give_up_others(cursor: Cursor, wanted: Sequence[str]) -> list[int]:
    others = cursor.ask("SELECT store FROM projects WHERE id <> ALL(%s::text[])", (wanted,))
    gone = [store for (store,) in others]
    give_up(cursor, gone)
    return gone


def _place_projects(cursor: Cursor, holdings: Holdings) -> None:
    columns = _columns(map(_row, holdings.projects, _off_since(holdings)), 7)
    cursor.execute(
        "UPDATE projects SET name = new.name, description = new.description, status = new.status, "
        "created_at = new.created_at, updated_at = new.updated_at, off_since = new.off_since "
        f"FROM {_ARRAYS} WHERE projects.id = new.id",
        columns,
    )
    cursor.execute(
        "UPDATE stores SET title = projects.name, is_closed = projects.status = 'archived' "
        "FROM projects WHERE projects.store = stores.number "
        "AND (title, is_closed) IS DISTINCT FROM (projects.name, projects.status = 'archived')"
    )
    cursor.execute(
        "WITH shelves AS (INSERT INTO stores(name, title, is_closed) "
        f"SELECT id, name, status = 'archived' FROM {_ARRAYS} "
        "WHERE NOT EXISTS (SELECT FROM projects WHERE projects.id = new.id) "
        "RETURNING number, name) "
        "INSERT INTO projects SELECT new.*, shelves.number "
        f"FROM {_ARRAYS} JOIN shelves ON shelves.name = new.id",
        [*columns, *columns],
    )


def _place_the_rest(cursor: Cursor, holdings: Holdings) -> None:
    cursor.execute("DELETE FROM workspaces")
    cursor.execute(
        "INSERT INTO workspaces(key, path, project) "
        "SELECT new.* FROM unnest(%s::text[], %s::text[], %s::text[]) AS new(key, path, project) "
        "JOIN projects ON projects.id = new.project",
        _columns([(digest(path), path, each) for path, each in holdings.workspaces.items()], 3),
    )
    cursor.execute("DELETE FROM switching")
    for project, each in holdings.switching.items():
        cursor.ask(
            f"INSERT INTO switching(project, {SWITCHING}) VALUES (%s, %s, %s, %s, %s)",
            (project, *switching_row(each)),
        )
    cursor.execute("DELETE FROM notes WHERE NOT key ^@ %s", (PASSING,))
    cursor.execute(
        "INSERT INTO notes(digest, key, value) SELECT * "
        "FROM unnest(%s::text[], %s::text[], %s::text[])",
        _columns(
            [
                (digest(key), key, value)
                for key, value in holdings.notes.items()
                if not key.startswith(PASSING)
            ],
            3,
        ),
    )
    cursor.execute("DELETE FROM tokens")
    for token, secret_hash in holdings.tokens:
        keeping.add_token(cursor, token, secret_hash)


def _columns(rows: Iterable[tuple[Any, ...]], count: int) -> list[list[Any]]:
    """For `unnest`, which takes an array for each column."""
    turned = [list(column) for column in zip(*rows, strict=True)]
    return turned or [[] for _ in range(count)]


def _row(project: Project, off_since: int | None) -> tuple[Any, ...]:
    told = (project.id, project.name, project.description, project.status)
    return *told, project.created_at, project.updated_at, off_since


def _off_since(holdings: Holdings) -> list[int | None]:
    """It is the switching that says it."""
    found = [holdings.switching.get(project.id) for project in holdings.projects]
    return [switching.off_since if switching else None for switching in found]
