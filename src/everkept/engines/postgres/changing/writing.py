"""Rows that come and change, each kind in one statement, however many they are."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from everkept.core.records import Change, Link, Record
from everkept.engines.postgres.connecting.database import Cursor
from everkept.engines.postgres.records.asking import ask
from everkept.engines.postgres.records.rows import (
    DERIVED,
    FIELDS,
    edits_to,
    kept,
    link_to,
    record_to,
)

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
