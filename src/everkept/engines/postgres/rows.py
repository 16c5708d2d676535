"""Conversion between rows and values, and of filters to conditions: the one module that knows columns."""

import json
from collections.abc import Sequence
from hashlib import blake2b
from math import isfinite, isnan
from typing import Any, cast
from uuid import UUID

from everkept.core.records import SESSION_SCOPE, Change, Edit, Record, RecordFilter, RecordLink
from everkept.engines.postgres.schema import INDEX_PREFIX_CHARACTERS
from everkept.engines.stored_text import (
    ESCAPE,
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
from everkept.values import Value, field, list_fields

Row = tuple[Any, ...]

report_damage = build_damage_report("PostgreSQL")

# One column for each field of a record, with the same name.
FIELDS = tuple(field.name for field in list_fields(Record))
_FACETS_INDEX, _TAGS_INDEX = FIELDS.index("facets"), FIELDS.index("tags")
_TEXT_INDEXES = tuple(
    number
    for number, name in enumerate(FIELDS)
    if name in {"id", "kind", "text", "name", "type", "name_key", "variant", "parent", "scope", "session", "author"}
)
# Columns that are computed from the fields.
DERIVED_COLUMNS = ("pinned", "automatic", "stands_for")
RECORD_COLUMNS = ", ".join(f"r.{name}" for name in FIELDS)
LINK_COLUMNS = "l.id, l.source, l.verb, l.target, l.facets, l.created_at, l.deleted_at"


def escape_texts(texts: Sequence[str]) -> list[str]:
    """Escape each distinct text, for an array in a statement."""
    return [escape_text(text) for text in dict.fromkeys(texts)]


def encode_field(name: str, value: Any) -> Any:
    match name:
        case "facets":
            return encode_facets(value)
        case "tags":
            return [escape_text(tag) for tag in dict.fromkeys(cast(Sequence[str], value))]
        case "importance":
            return _encode_number(value)
        case _:
            return escape_text(value) if isinstance(value, str) else value


def _encode_number(number: float | None) -> float | str | None:
    """Encode infinity as text, because rows are sent as JSON. NaN becomes None."""
    if number is None or isfinite(number):
        return number
    return None if isnan(number) else f"{'-' if number < 0 else ''}Infinity"


def encode_record(record: Record) -> list[Any]:
    """Return the columns of FIELDS and DERIVED_COLUMNS."""
    columns = [encode_field(name, getattr(record, name)) for name in FIELDS]
    pinned, automatic = (bool(record.facets.get(name)) for name in ("pinned", "automatic"))
    return [*columns, pinned, automatic, hash_live_name(record)]


@report_damage
def decode_record(row: Row) -> Record:
    """Build a Record from a row with the columns in FIELDS."""
    values = list(row)
    for number in _TEXT_INDEXES:
        if (text := values[number]) is not None and ESCAPE in text:
            values[number] = unescape_text(text)
    values[_FACETS_INDEX] = decode_facets(values[_FACETS_INDEX])
    values[_TAGS_INDEX] = tuple(unescape_text(tag) for tag in values[_TAGS_INDEX])
    return check_record(Record(*values))


def hash_live_name(record: Record) -> UUID | None:
    """Return the hash that must be unique among live records, or None if there is no such rule."""
    if record.name_key is None or record.deleted_at is not None:
        return None
    return hash_name(record)


def hash_name(record: Record) -> UUID:
    return _hash_parts([record.kind, record.name_key, record.variant, record.parent])


def hash_live_edge(link: RecordLink) -> UUID | None:
    """Return the hash that must be unique among live links, or None for a deleted link."""
    return None if link.deleted_at is not None else hash_edge(link)


def hash_edge(link: RecordLink) -> UUID:
    return _hash_parts([link.source, link.verb, link.target])


def _hash_parts(parts: Sequence[str | None]) -> UUID:
    return UUID(bytes=blake2b(json.dumps(parts).encode(), digest_size=16).digest())


def encode_link(link: RecordLink) -> list[Any]:
    """Return the columns of LINK_COLUMNS, and `says`."""
    texts = [escape_text(text) for text in (link.id, link.source, link.verb, link.target)]
    return [*texts, encode_facets(link.facets), link.created_at, link.deleted_at, hash_live_edge(link)]


@report_damage
def decode_link(row: Row) -> RecordLink:
    *texts, facets, created_at, deleted_at = row
    facets = decode_facets(facets)
    check_times(created_at, deleted_at)
    return RecordLink(*map(unescape_text, texts), created_at=created_at, facets=facets, deleted_at=deleted_at)


def encode_edits(change: Change) -> list[list[Any]]:
    """Return seq, position, operation, subject, item and before of each edit."""
    return [
        [change.seq, n, edit.operation, edit.subject, edit.id and escape_text(edit.id), encode_before(edit.before)]
        for n, edit in enumerate(change.edits)
    ]


@report_damage
def decode_edit(row: Row) -> Edit:
    """Build an Edit from operation, subject, item and before."""
    operation, subject, item, before = row
    return Edit(operation, subject, item and unescape_text(item), decode_before(before))


@report_damage
def decode_change(row: Row, edits: Sequence[Edit]) -> Change:
    """Build a Change from seq, at, tool, client and undoes."""
    seq, at, tool, client, undoes = row
    check_times(at)
    return Change(seq, at, unescape_text(tool), unescape_text(client), undoes, tuple(edits))


EVENT_TIME = "coalesce(r.occurred_at, r.created_at)"
# Columns of which an index has only the beginning: a query must compare the beginning to use the index.
_PREFIX_INDEXED_COLUMNS = frozenset(("name_key", "scope", "session"))


class Conditions(Value, frozen=False):
    """Conditions that must all hold, with the values of their placeholders."""

    parts: list[str] = field(default_factory=list[str])
    values: list[Any] = field(default_factory=list[Any])

    def add(self, part: str, *values: Any) -> None:
        self.parts.append(part)
        self.values.extend(values)

    def add_in(self, column: str, texts: Sequence[str]) -> None:
        wanted = escape_texts(texts)
        if column in _PREFIX_INDEXED_COLUMNS:
            self._add_any_of(
                f"left(r.{column}, {INDEX_PREFIX_CHARACTERS})", [text[:INDEX_PREFIX_CHARACTERS] for text in wanted]
            )
            if all(len(text) < INDEX_PREFIX_CHARACTERS for text in wanted):
                return
        self._add_any_of(f"r.{column}", wanted)

    def _add_any_of(self, column: str, texts: Sequence[str]) -> None:
        # With one value, an index returns the rows in its order.
        if len(texts) == 1:
            self.add(f"{column} = %s", texts[0])
        else:
            self.add(f"{column} = ANY(%s::text[])", list(texts))

    @property
    def sql(self) -> str:
        return " AND ".join(self.parts) or "true"


def format_filter(where: RecordFilter) -> tuple[str, list[Any]]:
    """Return SQL and values of a filter. The caller adds `r.store = %s`."""
    found = build_filter(where)
    return found.sql, found.values


def build_filter(where: RecordFilter) -> Conditions:
    found = Conditions()
    if where.deleted is not None:
        found.add(f"r.deleted_at IS {'NOT ' if where.deleted else ''}NULL")
    for column, among in (
        ("id", where.ids),
        ("kind", where.kinds or None),
        ("type", where.types or None),
        ("parent", where.parents),
        ("name_key", where.name_keys),
        ("scope", where.scopes or None),
        ("session", where.sessions),
    ):
        if among is not None:
            found.add_in(column, among)
    _add_places(where, found)
    _add_traits(where, found)
    return found


def _add_places(where: RecordFilter, found: Conditions) -> None:
    if where.places is not None:
        found.add_in("session", [session for session, _ in where.places])
        found.add(
            "(r.session, r.position) IN (SELECT * FROM unnest(%s::text[], %s::bigint[]))",
            [escape_text(session) for session, _ in where.places],
            [position for _, position in where.places],
        )
    if where.visible_to is not None:
        found.add(f"(r.scope <> '{SESSION_SCOPE}' OR r.session = %s)", escape_text(where.visible_to))
    if where.tags:
        found.add("r.tags && %s::text[]", escape_texts(where.tags))


def _add_traits(where: RecordFilter, found: Conditions) -> None:
    if where.pinned:
        found.add("r.pinned")
    if where.automatic:
        found.add("r.automatic")
    if where.min_importance is not None:
        found.add("coalesce(r.importance, 0) >= %s", where.min_importance)
    if where.after is not None:
        found.add(f"{EVENT_TIME} >= %s", where.after)
    if where.before is not None:
        found.add(f"{EVENT_TIME} <= %s", where.before)
    if where.created_before is not None:
        found.add("r.created_at <= %s", where.created_before)
    if where.touched_after is not None:
        found.add("greatest(r.updated_at, r.deleted_at) > %s", where.touched_after)
