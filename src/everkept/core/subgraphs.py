"""A part of a graph: records, the children of each, and the links between them, as plain rows."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from everkept.core.records import Link, Record

T = TypeVar("T")

# A child of a record: its id, its text and when it was created. There may be many of them, and a
# plain tuple takes a quarter of the time of a named one.
Leaf = tuple[str, str, int]


class Selection(NamedTuple):
    """Which live records of a kind, and which of their links.

    With `ids` these records, in that order. Otherwise all of them by name or by age, or those by
    name behind the `(name_key, variant)` of the last one seen.
    """

    kind: str
    leaf_kind: str
    ids: Sequence[str] | None = None
    order: Literal["name", "age"] = "age"
    after: tuple[str, str] | None = None
    limit: int | None = None
    direction: Literal["out", "both"] = "both"

    @property
    def looked_for(self) -> int | None:
        """The limit, and one more that tells whether there are more."""
        return None if self.limit is None else self.limit + 1


class Node(NamedTuple):
    """A record, and its children by age."""

    id: str
    name: str
    type: str
    name_key: str
    variant: str
    facets: Mapping[str, Any]
    created_at: int
    updated_at: int
    leaves: list[Leaf]


class Edge(NamedTuple):
    """A link between two records of the kind, with the names of both."""

    id: str
    source: str
    source_name: str
    verb: str
    target: str
    target_name: str
    created_at: int


class Subgraph(NamedTuple):
    """Nodes as they were selected, and the edges at them by age, each once.

    It `has_more` nodes behind the last one if a limit ended it.
    """

    nodes: list[Node]
    edges: list[Edge]
    has_more: bool = False


def cut(wanted: Selection, found: Sequence[T]) -> tuple[Sequence[T], bool]:
    """Return what the limit allows of what was looked for, and whether there is more."""
    return found[: wanted.limit], wanted.limit is not None and len(found) > wanted.limit


def other_ends(records: Iterable[Record], links: Iterable[Link]) -> list[str]:
    """The ends of links that are not among the records."""
    ends = {end for link in links for end in (link.source, link.target)}
    return sorted(ends - {record.id for record in records})


def assemble(
    records: Sequence[Record],
    children: Iterable[Record],
    links: Iterable[Link],
    others: Iterable[Record],
    *,
    has_more: bool,
) -> Subgraph:
    """Join what was asked for in parts; `others` are the other ends of links, of any kind."""
    leaves: dict[str, list[Leaf]] = {record.id: [] for record in records}
    for child in children:
        leaves[child.parent or ""].append((child.id, child.text, child.created_at))
    names = {r.id: r.name or "" for r in (*records, *others) if r.kind == records[0].kind}
    return Subgraph(
        [
            Node(
                record.id,
                record.name or "",
                record.type or "",
                record.name_key or "",
                record.variant,
                record.facets,
                record.created_at,
                record.updated_at,
                leaves[record.id],
            )
            for record in records
        ],
        [
            Edge(
                link.id,
                link.source,
                names[link.source],
                link.verb,
                link.target,
                names[link.target],
                link.created_at,
            )
            for link in links
            if link.source in names and link.target in names
        ],
        has_more,
    )
