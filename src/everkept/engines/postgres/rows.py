"""Rows to values and back, filters as conditions: the one place that knows columns."""

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from math import isfinite, isnan
from typing import Any, cast
from uuid import UUID

from everkept.core.records import SESSION_SCOPE, Change, Edit, Link, Record, Where
from everkept.engines.postgres.schema import PREFIX
from everkept.engines.stored_text import ESCAPE
from everkept.engines.stored_text import given as given
from everkept.engines.stored_text import kept as kept
from everkept.values import Value, field, fields

Row = tuple[Any, ...]

# A column for each field of a record, of the same name.
FIELDS = tuple(field.name for field in fields(Record))
_FACETS, _TAGS = FIELDS.index("facets"), FIELDS.index("tags")
_TEXTS = tuple(
    number
    for number, name in enumerate(FIELDS)
    if name
    in {"id", "kind", "text", "name", "type", "name_key", "variant", "parent", "scope", "session"}
    or name == "author"
)
# What is behind the fields and made of them.
DERIVED = ("pinned", "automatic", "stands_for")
RECORD_COLUMNS = ", ".join(f"r.{name}" for name in FIELDS)
LINK_COLUMNS = "l.id, l.source, l.verb, l.target, l.facets, l.created_at, l.deleted_at"


def kept_all(texts: Sequence[str]) -> list[str]:
    """Each of them once, for an array of a statement."""
    return [kept(text) for text in dict.fromkeys(texts)]


def stored(name: str, value: Any) -> Any:
    """A field's value as its column has it."""
    match name:
        case "facets":
            return facets_to(value)
        case "tags":
            return [kept(tag) for tag in dict.fromkeys(cast(Sequence[str], value))]
        case "importance":
            return _finite(value)
        case _:
            return kept(value) if isinstance(value, str) else value


def _finite(number: float | None) -> float | str | None:
    """JSON, which rows travel in, has no other numbers. What is none is not known."""
    if number is None or isfinite(number):
        return number
    return None if isnan(number) else f"{'-' if number < 0 else ''}Infinity"


def record_to(record: Record) -> list[Any]:
    """The columns of FIELDS and DERIVED."""
    columns = [stored(name, getattr(record, name)) for name in FIELDS]
    pinned, automatic = (bool(record.facets.get(name)) for name in ("pinned", "automatic"))
    return [*columns, pinned, automatic, stands_for(record)]


def record_from(row: Row) -> Record:
    """Of the columns of FIELDS."""
    values = list(row)
    for number in _TEXTS:
        if (text := values[number]) is not None and ESCAPE in text:
            values[number] = given(text)
    values[_FACETS] = facets_from(values[_FACETS])
    values[_TAGS] = tuple(given(tag) for tag in values[_TAGS])
    return Record(*values)


def stands_for(record: Record) -> UUID | None:
    """What only one live record may have; None where it may be like any other."""
    if record.name_key is None or record.deleted_at is not None:
        return None
    return name_hash(record)


def name_hash(record: Record) -> UUID:
    return _hashed([record.kind, record.name_key, record.variant, record.parent])


def says(link: Link) -> UUID | None:
    """What only one live link may have."""
    return None if link.deleted_at is not None else edge_hash(link)


def edge_hash(link: Link) -> UUID:
    return _hashed([link.source, link.verb, link.target])


def _hashed(parts: Sequence[str | None]) -> UUID:
    return UUID(bytes=blake2b(json.dumps(parts).encode(), digest_size=16).digest())


def facets_to(facets: Mapping[str, Any]) -> str | None:
    return json.dumps(facets, sort_keys=True) if facets else None


def facets_from(stored: str | None) -> dict[str, Any]:
    return json.loads(stored) if stored else {}


def link_to(link: Link) -> list[Any]:
    """The columns of LINK_COLUMNS, and `says`."""
    return [
        kept(link.id),
        kept(link.source),
        kept(link.verb),
        kept(link.target),
        facets_to(link.facets),
        link.created_at,
        link.deleted_at,
        says(link),
    ]


def link_from(row: Row) -> Link:
    link_id, source, verb, target, facets, created_at, deleted_at = row
    return Link(
        id=given(link_id),
        source=given(source),
        verb=given(verb),
        target=given(target),
        facets=facets_from(facets),
        created_at=created_at,
        deleted_at=deleted_at,
    )


def edits_to(change: Change) -> list[list[Any]]:
    """Of each edit seq, position, operation, subject, item and before."""
    return [
        [
            change.seq,
            position,
            edit.operation,
            edit.subject,
            None if edit.id is None else kept(edit.id),
            before_to(edit.before),
        ]
        for position, edit in enumerate(change.edits)
    ]


def edit_from(row: Row) -> Edit:
    """Of operation, subject, item and before."""
    operation, subject, item, before = row
    return Edit(operation, subject, None if item is None else given(item), before_from(before))


def before_to(before: Mapping[str, Any] | None) -> str | None:
    """The old values of an edit, as the log has them."""
    return None if before is None else json.dumps(before)


def before_from(stored: str | None) -> dict[str, Any] | None:
    if stored is None:
        return None
    before: dict[str, Any] = json.loads(stored)
    if "tags" in before:
        before["tags"] = tuple(before["tags"])
    return before


AT = "coalesce(r.occurred_at, r.created_at)"
# Columns of which an index has the beginning alone: it is found only by who says that too.
_CUT = frozenset(("name_key", "scope", "session"))


class Conditions(Value, frozen=False):
    """All of these hold, with these values for their placeholders."""

    parts: list[str] = field(default_factory=list[str])
    values: list[Any] = field(default_factory=list[Any])

    def add(self, part: str, *values: Any) -> None:
        self.parts.append(part)
        self.values.extend(values)

    def among(self, column: str, texts: Sequence[str]) -> None:
        wanted = kept_all(texts)
        if column in _CUT:
            self._is_one_of(f"left(r.{column}, {PREFIX})", [text[:PREFIX] for text in wanted])
            if all(len(text) < PREFIX for text in wanted):
                return
        self._is_one_of(f"r.{column}", wanted)

    def _is_one_of(self, column: str, texts: Sequence[str]) -> None:
        # Where it is one, an index gives what fits in its own order.
        if len(texts) == 1:
            self.add(f"{column} = %s", texts[0])
        else:
            self.add(f"{column} = ANY(%s::text[])", list(texts))

    @property
    def sql(self) -> str:
        return " AND ".join(self.parts) or "true"


def condition(where: Where) -> tuple[str, list[Any]]:
    """Of the store nothing is said: whoever asks adds `r.store = %s`."""
    found = conditions(where)
    return found.sql, found.values


def conditions(where: Where) -> Conditions:
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
            found.among(column, among)
    _add_places(where, found)
    _add_traits(where, found)
    return found


def _add_places(where: Where, found: Conditions) -> None:
    if where.places is not None:
        found.among("session", [session for session, _ in where.places])
        found.add(
            "(r.session, r.position) IN (SELECT * FROM unnest(%s::text[], %s::bigint[]))",
            [kept(session) for session, _ in where.places],
            [position for _, position in where.places],
        )
    if where.visible_to is not None:
        found.add(f"(r.scope <> '{SESSION_SCOPE}' OR r.session = %s)", kept(where.visible_to))
    if where.tags:
        found.add("r.tags && %s::text[]", kept_all(where.tags))


def _add_traits(where: Where, found: Conditions) -> None:
    if where.pinned:
        found.add("r.pinned")
    if where.automatic:
        found.add("r.automatic")
    if where.min_importance is not None:
        found.add("coalesce(r.importance, 0) >= %s", where.min_importance)
    if where.after is not None:
        found.add(f"{AT} >= %s", where.after)
    if where.before is not None:
        found.add(f"{AT} <= %s", where.before)
    if where.created_before is not None:
        found.add("r.created_at <= %s", where.created_before)
    if where.touched_after is not None:
        found.add("greatest(r.updated_at, r.deleted_at) > %s", where.touched_after)
