"""Which records a question means, as conditions of a statement."""

from collections.abc import Iterable
from typing import Any

from everkept.core.records import SESSION_SCOPE, Where
from everkept.engines.surreal.rows import kept, place_to, things
from everkept.values import Value, field

# What never changes of a record stands beside its words and its vector too.
_LASTING = frozenset(("kind", "parent"))
# By the first of these that is asked for, records are found soonest.
_INDEXED = (
    ("parents", "record_parent"),
    ("name_keys", "record_name_key"),
    ("places", "record_place"),
    ("sessions", "record_session"),
)


class Conditions(Value, frozen=False):
    """All of these hold, with these values."""

    beside: bool  # of rows that have their record under `of`
    parts: list[str] = field(default_factory=list[str])
    values: dict[str, Any] = field(default_factory=dict[str, Any])

    def column(self, name: str) -> str:
        return f"of.{name}" if self.beside and name not in _LASTING else name

    def add(self, part: str, **values: Any) -> None:
        self.parts.append(part)
        self.values.update(values)

    def among(self, column: str, name: str, values: Iterable[Any]) -> None:
        self.add(f"{self.column(column)} IN ${name}", **{name: list(values)})

    @property
    def text(self) -> str:
        return " AND ".join(self.parts) or "true"


def conditions(where: Where, *, beside: bool = False) -> Conditions:
    """For rows of `record`, or for those that stand beside one."""
    found = Conditions(beside)
    column = found.column
    if where.deleted is not None:
        found.add(f"{column('deleted_at')} IS {'NOT ' if where.deleted else ''}NONE")
    if where.ids is not None:
        found.add(f"{'of' if beside else 'id'} IN $ids", ids=things("record", where.ids))
    if where.parents is not None:
        found.among("parent", "parents", things("record", where.parents))
    for name, among in (
        ("kind", where.kinds or None),
        ("type", where.types or None),
        ("scope", where.scopes or None),
        ("name_key", where.name_keys),
        ("session", where.sessions),
    ):
        if among is not None:
            found.among(name, f"{name}s", map(kept, dict.fromkeys(among)))
    _add_places(where, found)
    _add_traits(where, found)
    return found


def source(where: Where) -> str:
    """Where a statement over `record` looks."""
    if where.ids is not None:
        return "$ids"
    for name, index in _INDEXED:
        if getattr(where, name) is not None:
            return f"record WITH INDEX {index}"
    # With an index for each half of an `OR`, version 2 would count what fits both halves twice.
    return "record WITH INDEX record_kind" if where.kinds else "record WITH NOINDEX"


def _add_places(where: Where, found: Conditions) -> None:
    if where.places is not None:
        places = dict.fromkeys(place_to(*place) for place in where.places)
        found.among("place", "places", places)
    if where.visible_to is not None:
        scope, session = found.column("scope"), found.column("session")
        found.add(
            f"({scope} != '{SESSION_SCOPE}' OR {session} = $visible_to)",
            visible_to=kept(where.visible_to),
        )
    if where.tags:
        found.add(
            f"{found.column('tags')} CONTAINSANY $tags", tags=[kept(tag) for tag in where.tags]
        )


def _add_traits(where: Where, found: Conditions) -> None:
    column = found.column
    if where.pinned:
        found.add(f"{column('pinned')} = true")
    if where.automatic:
        found.add(f"{column('automatic')} = true")
    if where.min_importance is not None:
        found.add(f"({column('importance')} ?? 0) >= $importance", importance=where.min_importance)
    at = f"({column('occurred_at')} ?? {column('created_at')})"
    if where.after is not None:
        found.add(f"{at} >= $after", after=where.after)
    if where.before is not None:
        found.add(f"{at} <= $before", before=where.before)
    if where.created_before is not None:
        found.add(f"{column('created_at')} <= $created", created=where.created_before)
    if where.touched_after is not None:
        touched = f"math::max([{column('updated_at')}, {column('deleted_at')} ?? 0])"
        found.add(f"{touched} > $touched", touched=where.touched_after)
