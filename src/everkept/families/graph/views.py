"""Entities with what belongs to them as JSON, from one question to the store."""

from collections.abc import Sequence
from typing import Any, cast

from everkept.core.ports import RecordStore
from everkept.core.search_ports import cursor_of, position_of
from everkept.core.subgraphs import Edge, Node, Selection
from everkept.core.times import iso
from everkept.graph.entities import ENTITY, OBSERVATION
from everkept.graph.lookup import read_entities

JSON = dict[str, Any]


async def with_relations(store: RecordStore, ids: Sequence[str]) -> list[JSON]:
    """Return each entity in the form of EntityView, with every relation that touches it."""
    if not ids:
        return []
    found = await read_entities(store, ids)
    touching: dict[str, list[JSON]] = {node.id: [] for node in found.nodes}
    for edge in found.edges:
        relation = _relation(edge)
        for end in {edge.source, edge.target}:
            if end in touching:
                touching[end].append(relation)
    return [_entity(node) | {"relations": touching[node.id]} for node in found.nodes]


async def graph_page(store: RecordStore, limit: int | None, cursor: str | None) -> JSON:
    """Return a page in the form of GraphPage: entities by name, and the relations from them."""
    after = None if cursor is None else cast(tuple[str, str], position_of(cursor, str, str))
    found = await store.subgraph(
        Selection(ENTITY, OBSERVATION, order="name", after=after, limit=limit, direction="out")
    )
    page: JSON = {
        "entities": [_entity(node) for node in found.nodes],
        "relations": [_relation(edge) for edge in found.edges],
    }
    if found.has_more:
        last = found.nodes[-1]
        page["next_cursor"] = cursor_of(last.name_key, last.variant)
    return page


def _entity(node: Node) -> JSON:
    entity_id = node.id
    return {
        "id": entity_id,
        "name": node.name,
        "entity_type": node.type,
        "observations": [
            {"id": leaf_id, "entity_id": entity_id, "content": text, "created_at": iso(created_at)}
            for leaf_id, text, created_at in node.leaves
        ],
        "created_at": iso(node.created_at),
        "updated_at": iso(node.updated_at),
    }


def _relation(edge: Edge) -> JSON:
    edge_id, source, source_name, verb, target, target_name, created_at = edge
    return {
        "id": edge_id,
        "from": source_name,
        "to": target_name,
        "from_entity": source,
        "to_entity": target,
        "relation_type": verb,
        "created_at": iso(created_at),
    }
