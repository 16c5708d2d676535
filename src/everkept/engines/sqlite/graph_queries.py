"""Queries about links as SQL: walks, back links, and parts of the graph as plain rows."""

from collections.abc import Sequence
from itertools import islice
from operator import attrgetter
from typing import cast

from everkept.core.answers import Edge, Leaf, Node, Selection, Sources, Subgraph, apply_limit
from everkept.core.fallback_answers import walk_by_hops
from everkept.core.records import RecordLink
from everkept.core.runtime import run_without_loop
from everkept.core.store import CountSources, FindLinks, WalkLinks
from everkept.engines.sqlite import queries
from everkept.engines.sqlite.connection import Connection, Row
from everkept.engines.sqlite.queries import build_conditions
from everkept.engines.sqlite.rows import LINK_COLUMNS, decode_facets, decode_link, encode_list

# CROSS JOIN: start from the links, whatever the filter on their sources is.
_SELECT_SOURCES = (
    "SELECT l.target, l.source, l.key FROM links l CROSS JOIN records r ON r.key = l.source "
    "WHERE l.deleted_at IS NULL AND l.target IN (SELECT value FROM json_each(?)) AND {wanted} "
    "ORDER BY l.created_at, l.key"
)


def walk(db: Connection, question: WalkLinks) -> list[list[RecordLink]]:
    """Read all hops from one state of the file."""

    async def ask(found: FindLinks) -> list[RecordLink]:
        return queries.list_links(db, found)

    return run_without_loop(walk_by_hops(ask, question.ids, question.hops))


def count_sources(db: Connection, question: CountSources) -> Sources:
    """Read the keys of all links, and whole rows only for the returned links."""
    targets: dict[int, str] = dict(
        db.execute(
            "SELECT key, id FROM records WHERE id IN (SELECT value FROM json_each(?))", (encode_list(question.ids),)
        )
    )
    wanted = build_conditions(question.where)
    met = db.execute(_SELECT_SOURCES.format(wanted=wanted.sql), (encode_list(targets), *wanted.bindings)).fetchall()
    about: dict[int, set[int]] = {}
    for target, source, _ in met:
        about.setdefault(target, set()).add(source)
    newest = set(islice(dict.fromkeys(source for _, source, _ in reversed(met)), question.limit))
    found = db.execute(
        f"SELECT {LINK_COLUMNS} FROM links l WHERE l.key IN (SELECT value FROM json_each(?)) "
        "ORDER BY l.created_at, l.key",
        (encode_list(key for _, source, key in met if source in newest),),
    )
    counts = {targets[target]: len(sources) for target, sources in about.items()}
    return Sources(counts, [decode_link(row) for row in found])


_SELECT_NODES = (
    "SELECT r.key, r.id, coalesce(r.name, ''), coalesce(r.type, ''), coalesce(r.name_key, ''), "
    "r.variant, r.facets, r.created_at, r.updated_at FROM records r "
    "WHERE r.kind = ? AND r.deleted_at IS NULL "
)
_SELECT_LEAVES = "SELECT o.parent, o.id, o.text, o.created_at FROM records o WHERE o.kind = ? AND o.deleted_at IS NULL "
_IN_JSON = "IN (SELECT value FROM json_each(?))"
_SELECT_KEYS = f"SELECT key FROM links WHERE deleted_at IS NULL AND {{side}} {_IN_JSON}"
_SELECT_EDGES = (
    "SELECT l.id, s.id, coalesce(s.name, ''), l.verb, t.id, coalesce(t.name, ''), l.created_at "
    "FROM links l "
    # CROSS JOIN: go from a link to its ends, never the other way round.
    "CROSS JOIN records s ON s.key = l.source CROSS JOIN records t ON t.key = l.target "
    "WHERE l.key IN ({at}) AND s.kind = ? AND t.kind = ? ORDER BY l.key"
)
_SELECT_LINKS = "SELECT id, source, verb, target, created_at FROM links WHERE deleted_at IS NULL ORDER BY key"
_SIDES = {"out": ("source",), "both": ("source", "target")}


def read_subgraph(db: Connection, wanted: Selection) -> Subgraph:
    rows, has_more = apply_limit(wanted, _read_nodes(db, wanted))
    is_whole = wanted.ids is None and wanted.after is None and not has_more
    keys = encode_list([row[0] for row in rows])
    leaves = _read_leaves(db, wanted, rows, None if is_whole else keys)
    nodes = [Node._make((*row[1:6], decode_facets(row[6]), *row[7:9], leaves[row[0]])) for row in rows]
    edges = _read_all_edges(db, rows) if is_whole else _read_edges(db, wanted, keys)
    edges.sort(key=attrgetter("created_at"))  # already sorted by age, except for imported links
    return Subgraph(nodes, edges, has_more)


def _read_nodes(db: Connection, wanted: Selection) -> Sequence[Row]:
    if wanted.ids is not None:
        found = db.execute(f"{_SELECT_NODES} AND r.id {_IN_JSON}", (wanted.kind, encode_list(wanted.ids)))
        by_id = {row[1]: row for row in found}
        return [by_id[each] for each in dict.fromkeys(wanted.ids) if each in by_id]
    if wanted.order == "age":
        return db.execute(
            f"{_SELECT_NODES} ORDER BY r.key LIMIT ?", (wanted.kind, _to_limit(wanted.row_limit))
        ).fetchall()
    behind = "" if wanted.after is None else "AND (r.name_key, r.variant) > (?, ?) "
    return db.execute(
        f"{_SELECT_NODES} AND r.name_key IS NOT NULL {behind}ORDER BY r.name_key, r.variant, r.key LIMIT ?",
        (wanted.kind, *(wanted.after or ()), _to_limit(wanted.row_limit)),
    ).fetchall()


def _read_leaves(db: Connection, wanted: Selection, parents: Sequence[Row], keys: str | None) -> dict[int, list[Leaf]]:
    leaves: dict[int, list[Leaf]] = {row[0]: [] for row in parents}
    if keys is None:
        found = db.execute(f"{_SELECT_LEAVES} ORDER BY o.key", (wanted.leaf_kind,))
    else:
        found = db.execute(
            f"{_SELECT_LEAVES} AND o.parent {_IN_JSON} ORDER BY o.parent, o.key", (wanted.leaf_kind, keys)
        )
    for row in found.fetchall():
        if row[0] in leaves:
            leaves[row[0]].append(cast(Leaf, row[1:]))
    return leaves


def _read_all_edges(db: Connection, rows: Sequence[Row]) -> list[Edge]:
    """Read the edges of a whole graph. Its nodes have the names of both ends, so no join is needed."""
    ends = {row[0]: row[1:3] for row in rows}
    return [
        Edge._make((edge_id, *ends[source], verb, *ends[target], created_at))
        for edge_id, source, verb, target, created_at in db.execute(_SELECT_LINKS).fetchall()
        if source in ends and target in ends
    ]


def _read_edges(db: Connection, wanted: Selection, keys: str) -> list[Edge]:
    sides = _SIDES[wanted.direction]
    statement = _SELECT_EDGES.format(at=" UNION ".join(_SELECT_KEYS.format(side=side) for side in sides))
    found = db.execute(statement, (*[keys] * len(sides), wanted.kind, wanted.kind))
    return list(map(Edge._make, found.fetchall()))


def _to_limit(limit: int | None) -> int:
    return -1 if limit is None else limit
