"""What every write needs: the store's row as a lock, the rows of a record, and its words."""

import json
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from everkept.core.records import Change, Link, Record, Ref
from everkept.core.runtime import driven
from everkept.engines.postgres.rows import (
    DERIVED,
    FIELDS,
    LINK_COLUMNS,
    RECORD_COLUMNS,
    Row,
    edits_to,
    kept,
    kept_all,
    link_from,
    link_to,
    record_from,
    record_to,
)
from everkept.engines.postgres.schema import PREFIX
from everkept.engines.postgres.statements import Answer, Cursor, ask, ask_last
from everkept.engines.postgres.transactions import note_change
from everkept.engines.postgres.word_index import lexemes
from everkept.engines.stored_text import Aged, Place, Shift, reach
from everkept.errors import NotFound, ProjectArchived
from everkept.values import Value

# One without a name belonged to a project that is deleted.
_STATE = "SELECT seq, moves, ages, is_closed FROM stores WHERE number = %s AND name IS NOT NULL"
# Not FOR UPDATE: rows that only name the store may come meanwhile, as counts of accesses do.
_TAKE = f"{_STATE} FOR NO KEY UPDATE"


class StorePlace(Value):
    """A store among the others of its schema; the title is for whoever reads what went wrong."""

    number: int
    title: str


class State(Value):
    """What a store says of itself."""

    seq: int  # of the newest change
    moves: int  # vectors that came or went
    ages: int  # records and links that ever came
    is_closed: bool


def state(cursor: Cursor, place: StorePlace) -> State:
    """Of a question that asks nothing behind it."""
    return found_state(place, ask_last(cursor, _STATE, place.number).fetchone())


def check_there(cursor: Cursor, place: StorePlace) -> None:
    """Raises NotFound if its project was deleted."""
    found_state(place, ask(cursor, _STATE, place.number).fetchone())


def taken(cursor: Cursor, place: StorePlace) -> State:
    """The store's row, which nobody else has before this transaction ends."""
    found = found_state(place, take(cursor, place).fetchone())
    check_open(place, found)
    return found


def take(cursor: Cursor, place: StorePlace) -> Answer:
    """Asks for the row."""
    return ask(cursor, _TAKE, place.number)


def check_open(place: StorePlace, found: State) -> None:
    """Raises ProjectArchived: what is put away can be read by who has it, and not written."""
    if found.is_closed:
        raise ProjectArchived(place.title)


def found_state(place: StorePlace, row: tuple[Any, ...] | None) -> State:
    if row is None:
        raise NotFound("project", place.title, hint="It was deleted meanwhile.")
    return State(*row)


@contextmanager
def written(
    cursor: Cursor, place: StorePlace, *, seq: int, ages: int
) -> Generator[None, None, None]:
    """What is written inside goes out with the commit, and the store's new numbers behind it.

    Whoever follows is woken soon after the transaction. Where two things would stand for the same,
    it is the commit that raises Conflict.
    """
    yield
    ask(
        cursor,
        "UPDATE stores SET seq = %s, ages = %s WHERE number = %s",
        seq,
        ages,
        place.number,
    )
    note_change(cursor, place.number)


RECORDS = f"SELECT r.age, {RECORD_COLUMNS} FROM records r WHERE r.store = %s AND "
LINKS = f"SELECT l.age, {LINK_COLUMNS} FROM links l WHERE l.store = %s AND "
# UNION, not UNION ALL: what would belong to itself is met once.
_FAMILY = (
    "WITH RECURSIVE family(id) AS (SELECT r.id FROM records r "
    "WHERE r.store = %s AND r.id = ANY(%s::text[]) UNION "
    "SELECT r.id FROM family f JOIN records r ON r.store = %s AND r.parent = f.id) "
)
_MEMBERS = f"{_FAMILY} {RECORDS} r.id IN (SELECT id FROM family) ORDER BY r.age"
# A look into the index for each side: with OR, all links would be read.
_AT_FAMILY = (
    f"{_FAMILY} {LINKS} l.source IN (SELECT id FROM family) UNION "
    f"{LINKS} l.target IN (SELECT id FROM family)"
)


class Belongings(Value):
    """By id, deleted ones too."""

    records: dict[str, Record]
    ages: dict[str, int]
    links: dict[str, Link]

    def __bool__(self) -> bool:
        return bool(self.records or self.links)


def members(cursor: Cursor, store: int, ids: list[str]) -> Answer:
    """Rows of these records and of all below them, the oldest first."""
    return ask(cursor, _MEMBERS, store, ids, store, store)


def links_at_members(cursor: Cursor, store: int, ids: list[str]) -> Answer:
    return ask(cursor, _AT_FAMILY, store, ids, store, store, store)


def belongings(cursor: Cursor, store: int, refs: Iterable[Ref]) -> Belongings:
    """These things, and what goes with them."""
    wanted = list(refs)
    records, links = (
        kept_all([ref.id for ref in wanted if ref.subject == subject])
        for subject in ("record", "link")
    )
    family = members(cursor, store, records)
    ends = links_at_members(cursor, store, records)
    named = ask(cursor, f"{LINKS} l.id = ANY(%s::text[])", store, links)
    aged = [aged_record(row) for row in family.fetchall()]
    found = [aged_link(row)[1] for row in (*ends.fetchall(), *named.fetchall())]
    return Belongings(
        {record.id: record for _, record in aged},
        {record.id: age for age, record in aged},
        {link.id: link for link in found},
    )


def aged_record(row: Row) -> tuple[int, Record]:
    age, *columns = row
    return age, record_from(tuple(columns))


def aged_link(row: Row) -> tuple[int, Link]:
    age, *columns = row
    return age, link_from(tuple(columns))


Columns = Mapping[str, Any]

_BIG = ("age", "position", "occurred_at", "created_at", "updated_at", "deleted_at", "version")
_TYPES = {
    **dict.fromkeys(_BIG, "bigint"),
    **dict.fromkeys(("seq", "at", "undoes", "count", "last_at"), "bigint"),
    **dict.fromkeys(("pinned", "automatic"), "boolean"),
    **dict.fromkeys(("stands_for", "says"), "uuid"),
    "importance": "double precision",
    "tags": "text[]",
    "words": "tsvector",
}
_RECORD = (*FIELDS, *DERIVED)
_LINK = ("id", "source", "verb", "target", "facets", "created_at", "deleted_at", "says")
_CHANGE = ("seq", "at", "tool", "client", "undoes", "key")
_EDIT = ("seq", "position", "operation", "subject", "item", "before")


def record_columns(record: Record) -> dict[str, Any]:
    """All but its age, its words and what its vector is."""
    return dict(zip(_RECORD, record_to(record), strict=True))


def link_columns(link: Link) -> dict[str, Any]:
    """All but its age."""
    return dict(zip(_LINK, link_to(link), strict=True))


def changed_columns(before: Columns, after: Columns) -> dict[str, Any]:
    return {name: value for name, value in after.items() if value != before[name]}


def insert(cursor: Cursor, table: str, store: int, rows: Sequence[Columns]) -> None:
    """All rows have the same columns."""
    if rows:
        names = tuple(rows[0])
        ask(
            cursor,
            f"INSERT INTO {table} (store, {', '.join(names)}) "
            f"SELECT %s::integer, {', '.join(f'n.{name}' for name in names)} {_from(names)}",
            store,
            listed(rows),
        )


def update(cursor: Cursor, table: str, store: int, rows: Mapping[str, Columns]) -> None:
    """Sets these columns of the rows with these ids: one statement for each set of columns."""
    alike: defaultdict[tuple[str, ...], list[Columns]] = defaultdict(list)
    for item_id, columns in rows.items():
        if columns:
            alike[tuple(sorted(columns))].append({**columns, "id": kept(item_id)})
    for names, changed in sorted(alike.items()):
        ask(
            cursor,
            f"UPDATE {table} x SET {', '.join(f'{name} = n.{name}' for name in names)} "
            f"{_from(('id', *names))} WHERE x.store = %s AND x.id = n.id",
            listed(changed),
            store,
        )


def log(cursor: Cursor, store: int, changes: Sequence[Change], key: str | None = None) -> None:
    """`key` is that of the batch, where it is one change."""
    heads = [
        (c.seq, c.at, kept(c.tool), kept(c.client), c.undoes, key and kept(key)) for c in changes
    ]
    insert(cursor, "changes", store, [dict(zip(_CHANGE, head, strict=True)) for head in heads])
    edits = [row for change in changes for row in edits_to(change)]
    insert(cursor, "edits", store, [dict(zip(_EDIT, row, strict=True)) for row in edits])


def listed(rows: Sequence[Columns]) -> str:
    """Rows for a statement that reads them with `json_to_recordset`."""
    return json.dumps(rows, ensure_ascii=False, default=str)


def _from(names: Sequence[str]) -> str:
    columns = ", ".join(f"{name} {_TYPES.get(name, 'text')}" for name in names)
    return f"FROM json_to_recordset(%s::json) AS n({columns})"


_RECORDS = f"SELECT r.age, {RECORD_COLUMNS} FROM records r "
_CHILDREN = f"{_RECORDS} WHERE r.store = %s AND r.parent = ANY(%s::text[]) AND r.deleted_at IS NULL"
_BY_ID = f"{_RECORDS} WHERE r.store = %s AND r.id = ANY(%s::text[])"
_AT_PLACES = (
    f"{_RECORDS} JOIN unnest(%s::text[], %s::bigint[]) AS p(session, position) "
    f"ON left(r.session, {PREFIX}) = left(p.session, {PREFIX}) AND r.session = p.session "
    "AND r.position = p.position WHERE r.store = %s AND r.deleted_at IS NULL"
)


def new_words(cursor: Cursor, store: int, shift: Shift) -> dict[str, str | None]:
    """What the column is to hold of each record that is found by other words now.

    Those that are deleted are found by none, and those that are gone are left out.
    """
    found, lost = driven(reach(shift, _Stored(cursor, store)))
    deleted = [record_id for record_id in lost if shift.now(record_id) is not None]
    words = {record.id: lexemes(store, record, context) for record, context in found}
    return {**dict.fromkeys(deleted), **words}


class _Stored(Value):
    """The surroundings of whatever changes in a store."""

    cursor: Cursor
    store: int

    async def children(self, record_ids: Sequence[str]) -> Iterable[Aged]:
        return map(aged_record, ask(self.cursor, _CHILDREN, self.store, kept_all(record_ids)))

    async def standing_at(self, places: Sequence[Place]) -> Iterable[Aged]:
        sessions, positions = [kept(session) for session, _ in places], [at for _, at in places]
        return map(aged_record, ask(self.cursor, _AT_PLACES, sessions, positions, self.store))

    async def records(self, record_ids: Sequence[str]) -> Iterable[Aged]:
        return map(aged_record, ask(self.cursor, _BY_ID, self.store, kept_all(record_ids)))
