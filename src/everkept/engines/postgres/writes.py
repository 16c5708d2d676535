"""Parts of every write: the store's row as a lock, the rows of a record, and its words."""

import json
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from everkept.core.records import Change, Record, RecordLink, Ref
from everkept.core.runtime import run_without_loop
from everkept.engines.postgres.rows import (
    DERIVED_COLUMNS,
    FIELDS,
    LINK_COLUMNS,
    RECORD_COLUMNS,
    Row,
    decode_link,
    decode_record,
    encode_edits,
    encode_link,
    encode_record,
    escape_text,
    escape_texts,
)
from everkept.engines.postgres.schema import INDEX_PREFIX_CHARACTERS
from everkept.engines.postgres.statements import Cursor, QueryResult, ask, ask_last
from everkept.engines.postgres.transactions import note_change
from everkept.engines.postgres.word_index import build_tsvector
from everkept.engines.stored_text import AgedRecord, RecordShift, SessionPlace, find_index_changes
from everkept.errors import NotFound, ProjectArchived
from everkept.values import Value

# A store without a name belonged to a deleted project.
_STATE_QUERY = "SELECT seq, moves, ages, is_closed FROM stores WHERE number = %s AND name IS NOT NULL"
# Not FOR UPDATE: rows that reference the store, such as access counts, can still be inserted.
_LOCK_QUERY = f"{_STATE_QUERY} FOR NO KEY UPDATE"


class StorePlace(Value):
    """Number of a store in its schema. The title is for error messages."""

    number: int
    title: str


class StoreState(Value):
    """Counters of a store, from its row."""

    seq: int  # number of the newest change
    moves: int  # vectors that were ever added or removed
    ages: int  # records and links that were ever added
    is_closed: bool


def read_state(cursor: Cursor, place: StorePlace) -> StoreState:
    """Read the state as the last statement of a query."""
    return decode_state(place, ask_last(cursor, _STATE_QUERY, place.number).fetchone())


def check_exists(cursor: Cursor, place: StorePlace) -> None:
    """Raise NotFound if the store's project was deleted."""
    decode_state(place, ask(cursor, _STATE_QUERY, place.number).fetchone())


def lock_store(cursor: Cursor, place: StorePlace) -> StoreState:
    """Lock the store's row until the transaction ends, and return its state."""
    found = decode_state(place, ask_store_lock(cursor, place).fetchone())
    check_open(place, found)
    return found


def ask_store_lock(cursor: Cursor, place: StorePlace) -> QueryResult:
    return ask(cursor, _LOCK_QUERY, place.number)


def check_open(place: StorePlace, found: StoreState) -> None:
    """Raise ProjectArchived if the project is archived: it can be read but not written."""
    if found.is_closed:
        raise ProjectArchived(place.title)


def decode_state(place: StorePlace, row: tuple[Any, ...] | None) -> StoreState:
    if row is None:
        raise NotFound("project", place.title, hint="It was deleted. Select another project.")
    return StoreState(*row)


@contextmanager
def advance_state(cursor: Cursor, place: StorePlace, *, seq: int, ages: int) -> Generator[None, None, None]:
    """Queue the statements inside, then the store's new counters, to be sent with the commit.

    Listeners are notified soon after the commit. If two items would be the same, the commit raises Conflict.
    """
    yield
    ask(cursor, "UPDATE stores SET seq = %s, ages = %s WHERE number = %s", seq, ages, place.number)
    note_change(cursor, place.number)


RECORDS_QUERY = f"SELECT r.age, {RECORD_COLUMNS} FROM records r WHERE r.store = %s AND "
LINKS_QUERY = f"SELECT l.age, {LINK_COLUMNS} FROM links l WHERE l.store = %s AND "
# UNION, not UNION ALL: a cycle of parents ends.
_FAMILY_QUERY = (
    "WITH RECURSIVE family(id) AS (SELECT r.id FROM records r "
    "WHERE r.store = %s AND r.id = ANY(%s::text[]) UNION "
    "SELECT r.id FROM family f JOIN records r ON r.store = %s AND r.parent = f.id) "
)
_MEMBERS_QUERY = f"{_FAMILY_QUERY} {RECORDS_QUERY} r.id IN (SELECT id FROM family) ORDER BY r.age"
# One index lookup per side: with OR, PostgreSQL would read all links.
_MEMBER_LINKS_QUERY = (
    f"{_FAMILY_QUERY} {LINKS_QUERY} l.source IN (SELECT id FROM family) UNION "
    f"{LINKS_QUERY} l.target IN (SELECT id FROM family)"
)


class PurgeSet(Value):
    """Records and links to purge, by id, including deleted ones."""

    records: dict[str, Record]
    ages: dict[str, int]
    links: dict[str, RecordLink]

    def __bool__(self) -> bool:
        return bool(self.records or self.links)


def ask_members(cursor: Cursor, store: int, ids: list[str]) -> QueryResult:
    """Queue the query for these records and their descendants, oldest first."""
    return ask(cursor, _MEMBERS_QUERY, store, ids, store, store)


def ask_member_links(cursor: Cursor, store: int, ids: list[str]) -> QueryResult:
    return ask(cursor, _MEMBER_LINKS_QUERY, store, ids, store, store, store)


def read_purge_set(cursor: Cursor, store: int, refs: Iterable[Ref]) -> PurgeSet:
    """Read these items, the descendants of the records, and the links at them."""
    wanted = list(refs)
    records, links = (
        escape_texts([ref.id for ref in wanted if ref.subject == subject]) for subject in ("record", "link")
    )
    family = ask_members(cursor, store, records)
    ends = ask_member_links(cursor, store, records)
    named = ask(cursor, f"{LINKS_QUERY} l.id = ANY(%s::text[])", store, links)
    aged = [decode_aged_record(row) for row in family.fetchall()]
    found = [decode_aged_link(row)[1] for row in (*ends.fetchall(), *named.fetchall())]
    return PurgeSet(
        {record.id: record for _, record in aged},
        {record.id: age for age, record in aged},
        {link.id: link for link in found},
    )


def decode_aged_record(row: Row) -> tuple[int, Record]:
    age, *columns = row
    return age, decode_record(tuple(columns))


def decode_aged_link(row: Row) -> tuple[int, RecordLink]:
    age, *columns = row
    return age, decode_link(tuple(columns))


Columns = Mapping[str, Any]

_BIGINT_COLUMNS = ("age", "position", "occurred_at", "created_at", "updated_at", "deleted_at", "version")
_COLUMN_TYPES = {
    **dict.fromkeys(_BIGINT_COLUMNS, "bigint"),
    **dict.fromkeys(("seq", "at", "undoes", "count", "last_at"), "bigint"),
    **dict.fromkeys(("pinned", "automatic"), "boolean"),
    **dict.fromkeys(("stands_for", "says"), "uuid"),
    "importance": "double precision",
    "tags": "text[]",
    "words": "tsvector",
}
_RECORD_NAMES = (*FIELDS, *DERIVED_COLUMNS)
_LINK_NAMES = ("id", "source", "verb", "target", "facets", "created_at", "deleted_at", "says")
_CHANGE_NAMES = ("seq", "at", "tool", "client", "undoes", "key")
_EDIT_NAMES = ("seq", "position", "operation", "subject", "item", "before")


def build_record_columns(record: Record) -> dict[str, Any]:
    """Return all columns except age, words and embedded."""
    return dict(zip(_RECORD_NAMES, encode_record(record), strict=True))


def build_link_columns(link: RecordLink) -> dict[str, Any]:
    """Return all columns except age."""
    return dict(zip(_LINK_NAMES, encode_link(link), strict=True))


def diff_columns(before: Columns, after: Columns) -> dict[str, Any]:
    return {name: value for name, value in after.items() if value != before[name]}


def insert(cursor: Cursor, table: str, store: int, rows: Sequence[Columns]) -> None:
    """Queue the insertion of rows that all have the same columns."""
    if rows:
        names = tuple(rows[0])
        ask(
            cursor,
            f"INSERT INTO {table} (store, {', '.join(names)}) "
            f"SELECT %s::integer, {', '.join(f'n.{name}' for name in names)} "
            f"{_format_source(names)}",
            store,
            encode_rows(rows),
        )


def update(cursor: Cursor, table: str, store: int, rows: Mapping[str, Columns]) -> None:
    """Queue the update of these rows by id, with one statement for each set of columns."""
    alike: defaultdict[tuple[str, ...], list[Columns]] = defaultdict(list)
    for item_id, columns in rows.items():
        if columns:
            alike[tuple(sorted(columns))].append({**columns, "id": escape_text(item_id)})
    for names, changed in sorted(alike.items()):
        ask(
            cursor,
            f"UPDATE {table} x SET {', '.join(f'{name} = n.{name}' for name in names)} "
            f"{_format_source(('id', *names))} WHERE x.store = %s AND x.id = n.id",
            encode_rows(changed),
            store,
        )


def log_changes(cursor: Cursor, store: int, changes: Sequence[Change], key: str | None = None) -> None:
    """Queue the log entries. `key` is the key of the batch, if there is one change."""
    heads = [
        (c.seq, c.at, escape_text(c.tool), escape_text(c.client), c.undoes, key and escape_text(key)) for c in changes
    ]
    insert(cursor, "changes", store, [dict(zip(_CHANGE_NAMES, head, strict=True)) for head in heads])
    edits = [row for change in changes for row in encode_edits(change)]
    insert(cursor, "edits", store, [dict(zip(_EDIT_NAMES, row, strict=True)) for row in edits])


def encode_rows(rows: Sequence[Columns]) -> str:
    """Encode rows for a statement that reads them with `json_to_recordset`."""
    return json.dumps(rows, ensure_ascii=False, default=str)


def _format_source(names: Sequence[str]) -> str:
    columns = ", ".join(f"{name} {_COLUMN_TYPES.get(name, 'text')}" for name in names)
    return f"FROM json_to_recordset(%s::json) AS n({columns})"


_FROM_RECORDS = f"SELECT r.age, {RECORD_COLUMNS} FROM records r "
_CHILDREN_QUERY = f"{_FROM_RECORDS} WHERE r.store = %s AND r.parent = ANY(%s::text[]) AND r.deleted_at IS NULL"
_RECORDS_BY_ID = f"{_FROM_RECORDS} WHERE r.store = %s AND r.id = ANY(%s::text[])"
_RECORDS_AT_PLACES = (
    f"{_FROM_RECORDS} JOIN unnest(%s::text[], %s::bigint[]) AS p(session, position) "
    f"ON left(r.session, {INDEX_PREFIX_CHARACTERS}) = left(p.session, {INDEX_PREFIX_CHARACTERS}) "
    f"AND r.session = p.session "
    "AND r.position = p.position WHERE r.store = %s AND r.deleted_at IS NULL"
)


def compute_words(cursor: Cursor, store: int, shift: RecordShift) -> dict[str, str | None]:
    """Return the `words` of each record whose words change, by id.

    A deleted record gets None. Purged records are not included.
    """
    found, lost = run_without_loop(find_index_changes(shift, _StoredRecords(cursor, store)))
    deleted = [record_id for record_id in lost if shift.find_current(record_id) is not None]
    words = {record.id: build_tsvector(store, record, context) for record, context in found}
    return {**dict.fromkeys(deleted), **words}


class _StoredRecords(Value):
    """Stored neighbors of changed records."""

    cursor: Cursor
    store: int

    async def list_children(self, record_ids: Sequence[str]) -> Iterable[AgedRecord]:
        return map(decode_aged_record, ask(self.cursor, _CHILDREN_QUERY, self.store, escape_texts(record_ids)))

    async def list_at_places(self, places: Sequence[SessionPlace]) -> Iterable[AgedRecord]:
        sessions, positions = ([escape_text(session) for session, _ in places], [at for _, at in places])
        return map(decode_aged_record, ask(self.cursor, _RECORDS_AT_PLACES, sessions, positions, self.store))

    async def list_records(self, record_ids: Sequence[str]) -> Iterable[AgedRecord]:
        return map(decode_aged_record, ask(self.cursor, _RECORDS_BY_ID, self.store, escape_texts(record_ids)))
