"""Conversion between rows and values: the one module that knows the fields and how each is stored."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from everkept.core.records import Change, Edit, Record, RecordLink
from everkept.engines.stored_text import (
    check_record,
    check_times,
    decode_before,
    decode_facets,
    encode_before,
    encode_facets,
)
from everkept.engines.stored_text import escape_text as escape_text
from everkept.engines.stored_text import report_damage as build_damage_report
from everkept.engines.stored_text import unescape_text as unescape_text
from everkept.values import list_fields

Row = Mapping[str, Any]

_FIELDS = tuple(field.name for field in list_fields(Record))


def encode_id(table: str, item_id: str) -> Any:
    """Return the id of a row for the client."""
    from surrealdb import RecordID  # the import takes half a second, and the start of a server does not need it

    return RecordID(table, escape_text(item_id))


def encode_ids(table: str, ids: Iterable[str]) -> list[Any]:
    """Encode each distinct id."""
    return [encode_id(table, item_id) for item_id in dict.fromkeys(ids)]


def build_row_id(table: str, key: Any) -> Any:
    """Return the id of a row whose key is a text, a number or a list of numbers."""
    # Imported here because the import takes half a second.
    from surrealdb import RecordID

    return RecordID(table, key)


def decode_id(found: Any) -> str:
    return unescape_text(found.id)


def encode_record(record: Record) -> dict[str, Any]:
    """Return all fields of a row of `record` except age and embedded."""
    row = {name: encode_field(name, getattr(record, name)) for name in _FIELDS}
    return row | _build_derived_fields(record)


def diff_fields(old: Record, new: Record) -> dict[str, Any]:
    before, after = encode_record(old), encode_record(new)
    return {name: value for name, value in after.items() if value != before[name]}


def encode_field(name: str, value: Any) -> Any:
    match name:
        case "id":
            return encode_id("record", value)
        case "parent":
            return None if value is None else encode_id("record", value)
        case "facets":
            return encode_facets(value)
        case "tags":
            return [escape_text(tag) for tag in dict.fromkeys(value)]
        case _:
            return escape_text(value) if isinstance(value, str) else value


def _build_derived_fields(record: Record) -> dict[str, Any]:
    """Return the fields for queries that are computed from others."""
    return {
        "pinned": bool(record.facets.get("pinned")),
        "automatic": bool(record.facets.get("automatic")),
        "place": encode_place(record.session, record.position),
    }


def encode_place(session: str | None, position: int | None) -> str | None:
    """Return a session and a position as one value for an index."""
    return None if session is None or position is None else json.dumps([session, position])


report_damage = build_damage_report("SurrealDB")


@report_damage
def decode_record(row: Row) -> Record:
    values: dict[str, Any] = {name: row.get(name) for name in _FIELDS}
    for name, value in values.items():
        if isinstance(value, str):
            values[name] = unescape_text(value)
    values["id"] = decode_id(row["id"])
    values["parent"] = None if row.get("parent") is None else decode_id(row["parent"])
    values["facets"] = decode_facets(row.get("facets"))
    values["tags"] = tuple(unescape_text(tag) for tag in row.get("tags") or ())
    return check_record(Record(**values))


def encode_link(link: RecordLink) -> dict[str, Any]:
    """Return all fields of a row of `link` except age."""
    return {
        "id": encode_id("link", link.id),
        "in": encode_id("record", link.source),
        "out": encode_id("record", link.target),
        "verb": escape_text(link.verb),
        "edge": encode_edge(link),
        "facets": encode_facets(link.facets),
        "created_at": link.created_at,
        "deleted_at": link.deleted_at,
    }


def encode_edge(link: RecordLink) -> str:
    """Return the parts that must be unique among live links as one value for an index."""
    return json.dumps([link.source, link.verb, link.target])


@report_damage
def decode_link(row: Row) -> RecordLink:
    check_times(row["created_at"], row.get("deleted_at"))
    return RecordLink(
        id=decode_id(row["id"]),
        source=decode_id(row["in"]),
        verb=unescape_text(row["verb"]),
        target=decode_id(row["out"]),
        facets=decode_facets(row.get("facets")),
        created_at=row["created_at"],
        deleted_at=row.get("deleted_at"),
    )


def encode_change(change: Change, key: str | None = None) -> dict[str, Any]:
    """Return a row of `change`. Its edits are separate rows."""
    return {
        "id": build_row_id("change", change.seq),
        "at": change.at,
        "tool": escape_text(change.tool),
        "client": escape_text(change.client),
        "undoes": change.undoes,
        "key": None if key is None else escape_text(key),
    }


@report_damage
def decode_change(row: Row, edits: Iterable[Row]) -> Change:
    check_times(row["at"])
    return Change(
        row["id"].id,
        row["at"],
        unescape_text(row["tool"]),
        unescape_text(row["client"]),
        row.get("undoes"),
        tuple(decode_edit(edit) for edit in edits),
    )


def encode_edits(change: Change) -> list[dict[str, Any]]:
    return [
        {
            "id": build_row_id("edit", [change.seq, position]),
            "operation": edit.operation,
            "subject": edit.subject,
            "item": None if edit.id is None else escape_text(edit.id),
            "before": encode_before(edit.before),
        }
        for position, edit in enumerate(change.edits)
    ]


@report_damage
def decode_edit(row: Row) -> Edit:
    item = row.get("item")
    return Edit(
        row["operation"],
        row["subject"],
        None if item is None else unescape_text(item),
        decode_before(row.get("before")),
    )
