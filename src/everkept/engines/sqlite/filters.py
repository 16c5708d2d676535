"""Which records a question means, as conditions of a statement over `records r`."""

import json
from typing import Any

from everkept.core.records import SESSION_SCOPE, Where
from everkept.engines.sqlite.rows import listed
from everkept.values import Value, field

KEYS_OF_IDS = "SELECT key FROM records WHERE id IN (SELECT value FROM json_each(?))"

_AT = "coalesce(r.occurred_at, r.created_at)"
_TOUCHED = "max(r.updated_at, coalesce(r.deleted_at, 0))"


class Conditions(Value, frozen=False):
    """All of these hold, with these values for their question marks."""

    parts: list[str] = field(default_factory=list[str])
    bindings: list[Any] = field(default_factory=list[Any])

    def add(self, part: str, *bindings: Any) -> None:
        self.parts.append(part)
        self.bindings.extend(bindings)

    @property
    def sql(self) -> str:
        return " AND ".join(self.parts) or "1"


def conditions(where: Where) -> Conditions:
    found = Conditions()
    if where.deleted is not None:
        found.add(f"r.deleted_at IS {'NOT ' if where.deleted else ''}NULL")
    if where.kinds:
        found.add(f"r.kind {_among(where.kinds)}", *where.kinds)
    if where.ids is not None:
        found.add("r.id IN (SELECT value FROM json_each(?))", listed(where.ids))
    if where.name_keys is not None:
        found.add("r.name_key IN (SELECT value FROM json_each(?))", listed(where.name_keys))
    if where.parents is not None:
        found.add(f"r.parent IN ({KEYS_OF_IDS})", listed(where.parents))
    _add_places(where, found)
    _add_traits(where, found)
    return found


def _add_places(where: Where, found: Conditions) -> None:
    if where.scopes:
        # With several scopes an index would give the records in no order; without it they come
        # by their keys, and a limit ends the reading.
        column = "r.scope" if len(where.scopes) == 1 else "+r.scope"
        found.add(f"{column} {_among(where.scopes)}", *where.scopes)
    if where.sessions is not None:
        found.add("r.session IN (SELECT value FROM json_each(?))", listed(where.sessions))
    if where.places is not None:
        # An index that leaves out what has no session is used only where that is said.
        found.add(
            "r.session IS NOT NULL AND (r.session, r.position) IN "
            "(SELECT value ->> 0, value ->> 1 FROM json_each(?))",
            json.dumps(where.places),
        )
    if where.visible_to is not None:
        found.add(f"(r.scope <> '{SESSION_SCOPE}' OR r.session = ?)", where.visible_to)


def _add_traits(where: Where, found: Conditions) -> None:
    if where.types:
        found.add(f"r.type {_among(where.types)}", *where.types)
    if where.tags:
        found.add(
            "r.key IN (SELECT record FROM tags WHERE tag IN (SELECT value FROM json_each(?)))",
            listed(where.tags),
        )
    if where.pinned:
        found.add("json_extract(r.facets, '$.pinned') = 1")
    if where.automatic:
        found.add("json_extract(r.facets, '$.automatic') = 1")
    if where.min_importance is not None:
        found.add("coalesce(r.importance, 0) >= ?", where.min_importance)
    if where.after is not None:
        found.add(f"{_AT} >= ?", where.after)
    if where.before is not None:
        found.add(f"{_AT} <= ?", where.before)
    if where.created_before is not None:
        found.add("r.created_at <= ?", where.created_before)
    if where.touched_after is not None:
        found.add(f"{_TOUCHED} > ?", where.touched_after)


def _among(values: tuple[str, ...]) -> str:
    return "= ?" if len(values) == 1 else f"IN ({', '.join('?' * len(values))})"
