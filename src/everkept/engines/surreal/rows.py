"""Rows to values and back: the one place that knows the fields and how each is stored."""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from everkept.core.records import Change, Edit, Link, Record
from everkept.engines.stored_text import given as given
from everkept.engines.stored_text import kept as kept
from everkept.errors import StoreDamaged
from everkept.values import fields

P = ParamSpec("P")
T = TypeVar("T")

Row = Mapping[str, Any]

_FIELDS = tuple(field.name for field in fields(Record))


def thing(table: str, item_id: str) -> Any:
    """The id of a row, as the client sends it."""
    from surrealdb import RecordID  # half a second, and a server's start needs none of it

    return RecordID(table, kept(item_id))


def things(table: str, ids: Iterable[str]) -> list[Any]:
    """Each of them once."""
    return [thing(table, item_id) for item_id in dict.fromkeys(ids)]


def numbered(table: str, number: Any) -> Any:
    """The id of a row whose name is a number, or some of them."""
    from surrealdb import RecordID

    return RecordID(table, number)


def id_of(found: Any) -> str:
    return given(found.id)


def record_to(record: Record) -> dict[str, Any]:
    """All fields of a row of `record` but its age, and what its vector is."""
    row = {name: field_to(name, getattr(record, name)) for name in _FIELDS}
    return row | _derived(record)


def changed_fields(old: Record, new: Record) -> dict[str, Any]:
    """The fields of a row that are other ones now."""
    before, after = record_to(old), record_to(new)
    return {name: value for name, value in after.items() if value != before[name]}


def field_to(name: str, value: Any) -> Any:
    match name:
        case "id":
            return thing("record", value)
        case "parent":
            return None if value is None else thing("record", value)
        case "facets":
            return facets_to(value)
        case "tags":
            return [kept(tag) for tag in dict.fromkeys(value)]
        case _:
            return kept(value) if isinstance(value, str) else value


def _derived(record: Record) -> dict[str, Any]:
    """What questions ask for that is no field of its own."""
    return {
        "pinned": bool(record.facets.get("pinned")),
        "automatic": bool(record.facets.get("automatic")),
        "place": place_to(record.session, record.position),
    }


def place_to(session: str | None, position: int | None) -> str | None:
    """A session and a position in it, as one value that an index can have."""
    return None if session is None or position is None else json.dumps([session, position])


def readable(read: Callable[P, T]) -> Callable[P, T]:
    """Raises StoreDamaged where a row lacks what it must have, whoever wrote it so."""

    @wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StoreDamaged(
                "A row in SurrealDB is not one that this program has written.",
                hint="Restore a backup, or export what can still be read.",
            ) from error

    return reading


@readable
def record_from(row: Row) -> Record:
    values: dict[str, Any] = {name: row.get(name) for name in _FIELDS}
    for name, value in values.items():
        if isinstance(value, str):
            values[name] = given(value)
    values["id"] = id_of(row["id"])
    values["parent"] = None if row.get("parent") is None else id_of(row["parent"])
    values["facets"] = facets_from(row.get("facets"))
    values["tags"] = tuple(given(tag) for tag in row.get("tags") or ())
    return Record(**values)


def facets_to(facets: Mapping[str, Any]) -> str | None:
    return json.dumps(facets, sort_keys=True) if facets else None


def facets_from(stored: str | None) -> dict[str, Any]:
    return json.loads(stored) if stored else {}


def link_to(link: Link) -> dict[str, Any]:
    """All fields of a row of `link` but its age."""
    return {
        "id": thing("link", link.id),
        "in": thing("record", link.source),
        "out": thing("record", link.target),
        "verb": kept(link.verb),
        "edge": edge_to(link),
        "facets": facets_to(link.facets),
        "created_at": link.created_at,
        "deleted_at": link.deleted_at,
    }


def edge_to(link: Link) -> str:
    """What is unique among live links, as one value that an index can have."""
    return json.dumps([link.source, link.verb, link.target])


@readable
def link_from(row: Row) -> Link:
    return Link(
        id=id_of(row["id"]),
        source=id_of(row["in"]),
        verb=given(row["verb"]),
        target=id_of(row["out"]),
        facets=facets_from(row.get("facets")),
        created_at=row["created_at"],
        deleted_at=row.get("deleted_at"),
    )


def change_to(change: Change, key: str | None = None) -> dict[str, Any]:
    """A row of `change`; its edits are rows of their own."""
    return {
        "id": numbered("change", change.seq),
        "at": change.at,
        "tool": kept(change.tool),
        "client": kept(change.client),
        "undoes": change.undoes,
        "key": None if key is None else kept(key),
    }


@readable
def change_from(row: Row, edits: Iterable[Row]) -> Change:
    return Change(
        row["id"].id,
        row["at"],
        given(row["tool"]),
        given(row["client"]),
        row.get("undoes"),
        tuple(edit_from(edit) for edit in edits),
    )


def edits_to(change: Change) -> list[dict[str, Any]]:
    return [
        {
            "id": numbered("edit", [change.seq, position]),
            "operation": edit.operation,
            "subject": edit.subject,
            "item": None if edit.id is None else kept(edit.id),
            "before": before_to(edit.before),
        }
        for position, edit in enumerate(change.edits)
    ]


@readable
def edit_from(row: Row) -> Edit:
    item = row.get("item")
    return Edit(
        row["operation"],
        row["subject"],
        None if item is None else given(item),
        before_from(row.get("before")),
    )


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
