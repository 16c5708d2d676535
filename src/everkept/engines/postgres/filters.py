"""Which records a question means, as conditions of a statement over `records r`."""

from collections.abc import Sequence
from typing import Any

from everkept.core.records import SESSION_SCOPE, Where
from everkept.engines.postgres.rows import kept, kept_all
from everkept.engines.postgres.schema import PREFIX
from everkept.values import Value, field

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
