"""Rows to values and back: the one place that knows the columns and how each is stored."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from everkept.core.records import AMENDABLE, Link, Record
from everkept.values import Value, fields


class _Form(Value):
    """How a field that is no plain value stands in its column."""

    stored: Callable[[Any], Any]
    read: Callable[[Any], Any]


# What we have written has no blanks around it, so the decoder need not look for them.
_decoded = json.JSONDecoder().raw_decode


def facets_from(stored: str | None) -> dict[str, Any]:
    return _decoded(stored)[0] if stored else {}


def facets_to(facets: Mapping[str, Any]) -> str | None:
    return json.dumps(facets, ensure_ascii=False, sort_keys=True) if facets else None


def _tags_from(stored: str | None) -> tuple[str, ...]:
    return tuple(_decoded(stored)[0]) if stored else ()


def _tags_to(tags: Sequence[str]) -> str | None:
    return json.dumps(list(dict.fromkeys(tags)), ensure_ascii=False) if tags else None


_FORMS = {"facets": _Form(facets_to, facets_from), "tags": _Form(_tags_to, _tags_from)}

# A column for each field of a record, of the same name.
FIELDS = tuple(field.name for field in fields(Record))
_FACETS, _TAGS = FIELDS.index("facets"), FIELDS.index("tags")
# What an insert gives: the parent is a key in its column, and a record begins live.
INSERTED = tuple(name for name in FIELDS if name not in ("parent", "deleted_at", "version"))
_values = attrgetter(*INSERTED)
_FORMED = tuple((INSERTED.index(name), form) for name, form in _FORMS.items())
AMENDED = tuple(name for name in FIELDS if name in AMENDABLE)

PARENT_ID = "(SELECT p.id FROM records p WHERE p.key = r.parent)"
RECORD_COLUMNS = ", ".join(PARENT_ID if name == "parent" else f"r.{name}" for name in FIELDS)
LINK_COLUMNS = (
    "l.id, (SELECT s.id FROM records s WHERE s.key = l.source), l.verb, "
    "(SELECT t.id FROM records t WHERE t.key = l.target), l.facets, l.created_at, l.deleted_at"
)


def stored(name: str, value: Any) -> Any:
    """A field's value as its column has it."""
    return _FORMS[name].stored(value) if name in _FORMS else value


def read(name: str, value: Any) -> Any:
    """What a column has, as the field's value."""
    return _FORMS[name].read(value) if name in _FORMS else value


def inserted(record: Record) -> list[Any]:
    """The columns of INSERTED."""
    columns = list(_values(record))
    for place, form in _FORMED:
        columns[place] = form.stored(columns[place])
    return columns


def record_from(row: tuple[Any, ...]) -> Record:
    values = list(row)
    values[_FACETS] = facets_from(values[_FACETS])
    values[_TAGS] = _tags_from(values[_TAGS])
    return Record(*values)


def link_from(row: tuple[Any, ...]) -> Link:
    link_id, source, verb, target, facets, created_at, deleted_at = row
    return Link(
        id=link_id,
        source=source,
        verb=verb,
        target=target,
        facets=facets_from(facets),
        created_at=created_at,
        deleted_at=deleted_at,
    )


def before_to(before: Mapping[str, Any] | None) -> str | None:
    """The old values of an edit, as the log has them."""
    return None if before is None else json.dumps(before, ensure_ascii=False)


def before_from(stored: str | None) -> dict[str, Any] | None:
    if stored is None:
        return None
    before: dict[str, Any] = json.loads(stored)
    if "tags" in before:
        before["tags"] = tuple(before["tags"])
    return before


def listed(values: Iterable[Any]) -> str:
    """Values for a statement that reads them with `json_each`."""
    return json.dumps(list(values))
