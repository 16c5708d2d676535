"""Parts of the graph from rows, without making records of them."""

from collections.abc import Sequence
from operator import attrgetter

from recollect.core.subgraphs import Edge, Leaf, Node, Selection, Subgraph
from recollect.engines.sqlite.rows import facets_from, listed
from recollect.engines.sqlite.sql import Connection, Row

_NODES = (
    "SELECT r.key, r.id, r.name, r.type, r.name_key, r.variant, r.facets, r.created_at, "
    "r.updated_at FROM records r WHERE r.kind = ? AND r.deleted_at IS NULL "
)
_LEAVES = (
    "SELECT o.parent, o.id, o.text, o.created_at FROM records o "
    "WHERE o.kind = ? AND o.deleted_at IS NULL "
)
_AMONG = "IN (SELECT value FROM json_each(?))"
_AT = f"SELECT key FROM links WHERE deleted_at IS NULL AND {{side}} {_AMONG}"
_EDGES = (
    "SELECT l.id, s.id, s.name, l.verb, t.id, t.name, l.created_at FROM links l "
    # CROSS JOIN: from a link to its ends, never the other way round.
    "CROSS JOIN records s ON s.key = l.source CROSS JOIN records t ON t.key = l.target "
    "WHERE l.key IN ({at}) AND s.kind = ? AND t.kind = ? ORDER BY l.key"
)
_SIDES = {"out": ("source",), "both": ("source", "target")}


def read_subgraph(db: Connection, wanted: Selection) -> Subgraph:
    rows = _node_rows(db, wanted)
    is_whole = wanted.ids is None and wanted.after is None and wanted.limit is None
    keys = None if is_whole else listed([row[0] for row in rows])
    leaves = _leaves(db, wanted, rows, keys)
    nodes = [
        Node(
            record_id,
            name or "",
            record_type or "",
            name_key or "",
            variant,
            facets_from(facets),
            created_at,
            updated_at,
            leaves[key],
        )
        for (
            key,
            record_id,
            name,
            record_type,
            name_key,
            variant,
            facets,
            created_at,
            updated_at,
        ) in rows
    ]
    edges = _every_edge(db, rows) if keys is None else _edges_at(db, wanted, keys)
    edges.sort(key=attrgetter("created_at"))  # by age already, but for what came from elsewhere
    return Subgraph(nodes, edges)


def _node_rows(db: Connection, wanted: Selection) -> Sequence[Row]:
    if wanted.ids is not None:
        found = db.execute(f"{_NODES} AND r.id {_AMONG}", (wanted.kind, listed(wanted.ids)))
        by_id = {row[1]: row for row in found}
        return [by_id[each] for each in dict.fromkeys(wanted.ids) if each in by_id]
    if wanted.order == "age":
        return db.execute(
            f"{_NODES} ORDER BY r.key LIMIT ?", (wanted.kind, _at_most(wanted.limit))
        ).fetchall()
    behind = "" if wanted.after is None else "AND (r.name_key, r.variant) > (?, ?) "
    return db.execute(
        f"{_NODES} AND r.name_key IS NOT NULL {behind}"
        "ORDER BY r.name_key, r.variant, r.key LIMIT ?",
        (wanted.kind, *(wanted.after or ()), _at_most(wanted.limit)),
    ).fetchall()


def _leaves(
    db: Connection, wanted: Selection, parents: Sequence[Row], keys: str | None
) -> dict[int, list[Leaf]]:
    leaves: dict[int, list[Leaf]] = {row[0]: [] for row in parents}
    if keys is None:
        found = db.execute(f"{_LEAVES} ORDER BY o.key", (wanted.leaf_kind,))
    else:
        found = db.execute(
            f"{_LEAVES} AND o.parent {_AMONG} ORDER BY o.parent, o.key", (wanted.leaf_kind, keys)
        )
    for parent, leaf_id, text, created_at in found:
        if parent in leaves:
            leaves[parent].append(Leaf(leaf_id, text, created_at))
    return leaves


def _edges_at(db: Connection, wanted: Selection, keys: str) -> list[Edge]:
    sides = _SIDES[wanted.direction]
    statement = _EDGES.format(at=" UNION ".join(_AT.format(side=side) for side in sides))
    found = db.execute(statement, (*[keys] * len(sides), wanted.kind, wanted.kind))
    return [
        Edge(link_id, source, source_name or "", verb, target, target_name or "", created_at)
        for link_id, source, source_name, verb, target, target_name, created_at in found
    ]


def _every_edge(db: Connection, nodes: Sequence[Row]) -> list[Edge]:
    """All ends are among the nodes, so that only links are read."""
    ends = {row[0]: (row[1], row[2] or "") for row in nodes}
    found = db.execute(
        "SELECT id, source, verb, target, created_at FROM links "
        "WHERE deleted_at IS NULL ORDER BY key"
    )
    return [
        Edge(link_id, *ends[source], verb, *ends[target], created_at)
        for link_id, source, verb, target, created_at in found
        if source in ends and target in ends
    ]


def _at_most(limit: int | None) -> int:
    return -1 if limit is None else limit
