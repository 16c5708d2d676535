"""Conversion between rows and values. Only this module knows the columns and how each is stored."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

from everkept.core.records import AMENDABLE, Record, RecordLink
from everkept.values import Value, list_fields


class _FieldCodec(Value):
    """Conversion between the value of a field and its column."""

    stored: Callable[[Any], Any]
    read: Callable[[Any], Any]


# Stored JSON has no whitespace around it, so the decoder need not skip any.
_decode_json = json.JSONDecoder().raw_decode


def decode_facets(stored: str | None) -> dict[str, Any]:
    return _decode_json(stored)[0] if stored else {}


def encode_facets(facets: Mapping[str, Any]) -> str | None:
    return json.dumps(facets, ensure_ascii=False, sort_keys=True) if facets else None


def _decode_tags(stored: str | None) -> tuple[str, ...]:
    return tuple(_decode_json(stored)[0]) if stored else ()


def _encode_tags(tags: Sequence[str]) -> str | None:
    return json.dumps(list(dict.fromkeys(tags)), ensure_ascii=False) if tags else None


def _encode_importance(importance: float | None) -> float | None:
    return None if importance is None else float(importance)  # as SQLite returns it, so that the checksum is the same


def _keep(stored: Any) -> Any:
    return stored


_CODECS = {
    "facets": _FieldCodec(encode_facets, decode_facets),
    "tags": _FieldCodec(_encode_tags, _decode_tags),
    "importance": _FieldCodec(_encode_importance, _keep),
}

# Each field of a record has a column of the same name.
FIELDS = tuple(field.name for field in list_fields(Record))
_FACETS_POSITION, _TAGS_POSITION = FIELDS.index("facets"), FIELDS.index("tags")
# An insert sets these columns. The parent is stored as a key, and a new record is live.
INSERTED_FIELDS = tuple(name for name in FIELDS if name not in ("parent", "deleted_at", "version"))
_get_values = attrgetter(*INSERTED_FIELDS)
_ENCODED_FIELDS = tuple((INSERTED_FIELDS.index(name), form) for name, form in _CODECS.items())
AMENDABLE_FIELDS = tuple(name for name in FIELDS if name in AMENDABLE)

# Each row has a checksum of these columns. `embedded` changes without a commit, and an index has a copy of it.
_CHECKED = {
    "records": ("parent", "deleted_at", "version", *INSERTED_FIELDS),
    "links": ("id", "source", "verb", "target", "facets", "created_at", "deleted_at"),
}
CHECKSUMS = {table: f"row_checksum({', '.join(columns)})" for table, columns in _CHECKED.items()}

PARENT_ID = "(SELECT p.id FROM records p WHERE p.key = r.parent)"
RECORD_COLUMNS = ", ".join(PARENT_ID if name == "parent" else f"r.{name}" for name in FIELDS)
LINK_COLUMNS = (
    "l.id, (SELECT s.id FROM records s WHERE s.key = l.source), l.verb, "
    "(SELECT t.id FROM records t WHERE t.key = l.target), l.facets, l.created_at, l.deleted_at"
)


@cache
def build_update(table: str, assignments: tuple[tuple[str, str], ...], where: str) -> str:
    """Return a statement that sets columns to expressions, and the checksum with them. It has numbered parameters."""
    given = dict(assignments)
    checksum = f"row_checksum({', '.join(given.get(name, name) for name in _CHECKED[table])})"
    values = ", ".join(f"{name} = {value}" for name, value in (*assignments, ("checksum", checksum)))
    return f"UPDATE {table} SET {values} WHERE {where}"


def compute_checksum(*columns: Any) -> int:
    """Return the checksum of a row's stored columns."""
    from zlib import crc32  # only writes and checks need it

    return crc32("\0".join(map(str, columns)).encode("utf-8", "surrogatepass"))


def encode_field(name: str, value: Any) -> Any:
    return _CODECS[name].stored(value) if name in _CODECS else value


def decode_field(name: str, value: Any) -> Any:
    return _CODECS[name].read(value) if name in _CODECS else value


def encode_record(record: Record) -> list[Any]:
    """Return the columns of INSERTED_FIELDS."""
    columns = list(_get_values(record))
    for place, form in _ENCODED_FIELDS:
        columns[place] = form.stored(columns[place])
    return columns


def decode_record(row: tuple[Any, ...]) -> Record:
    values = list(row)
    values[_FACETS_POSITION] = decode_facets(values[_FACETS_POSITION])
    values[_TAGS_POSITION] = _decode_tags(values[_TAGS_POSITION])
    return Record(*values)


def decode_link(row: tuple[Any, ...]) -> RecordLink:
    link_id, source, verb, target, facets, created_at, deleted_at = row
    return RecordLink(
        id=link_id,
        source=source,
        verb=verb,
        target=target,
        facets=decode_facets(facets),
        created_at=created_at,
        deleted_at=deleted_at,
    )


def encode_before(before: Mapping[str, Any] | None) -> str | None:
    """Encode the old values of an edit for the log."""
    return None if before is None else json.dumps(before, ensure_ascii=False)


def decode_before(stored: str | None) -> dict[str, Any] | None:
    if stored is None:
        return None
    before: dict[str, Any] = json.loads(stored)
    if "tags" in before:
        before["tags"] = tuple(before["tags"])
    return before


def encode_list(values: Iterable[Any]) -> str:
    """Encode values for a statement that reads them with `json_each`."""
    return json.dumps(list(values))
