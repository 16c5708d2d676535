"""Entities with what belongs to them, in three questions for a whole page."""

from collections.abc import Sequence
from typing import cast

from recollect.core.cursors import cursor_of, position_of
from recollect.core.entities import ENTITY, OBSERVATION
from recollect.core.ports import Direction, RecordStore
from recollect.core.records import Link, Record, Where
from recollect.families.graph.model import (
    EntityView,
    GraphPage,
    RelationView,
)


async def with_relations(store: RecordStore, entities: Sequence[Record]) -> list[EntityView]:
    """Each entity with all of its observations and every relation that touches it."""
    ids = [entity.id for entity in entities]
    observations = await observations_of(store, ids)
    links, names = await relations_at(store, entities)
    touching: dict[str, list[RelationView]] = {}
    for link in links:
        view = RelationView.of(link, names)
        for end in {link.source, link.target}:
            touching.setdefault(end, []).append(view)
    return [
        EntityView.of(entity, observations.get(entity.id, []), touching.get(entity.id, []))
        for entity in entities
    ]


async def graph_page(store: RecordStore, limit: int | None, cursor: str | None) -> GraphPage:
    """Entities by name; each relation stands on the page of the entity it starts from."""
    wanted = None if limit is None else limit + 1
    after = None if cursor is None else cast(tuple[str, str], position_of(cursor, str, str))
    entities = await store.scan(Where(kinds=(ENTITY,)), order="name", after=after, limit=wanted)
    more = limit is not None and len(entities) > limit
    entities = entities[:limit]
    ids = [entity.id for entity in entities]
    observations = await observations_of(store, ids)
    links, names = await relations_at(store, entities, direction="out")
    return GraphPage(
        [EntityView.of(entity, observations.get(entity.id, [])) for entity in entities],
        [RelationView.of(link, names) for link in links],
        cursor_of(entities[-1].name_key, entities[-1].variant) if more else None,
    )


async def observations_of(store: RecordStore, ids: Sequence[str]) -> dict[str, list[Record]]:
    by_entity: dict[str, list[Record]] = {}
    if ids:
        for record in await store.scan(Where(kinds=(OBSERVATION,), parents=tuple(ids))):
            by_entity.setdefault(record.parent or "", []).append(record)
    return by_entity


async def relations_at(
    store: RecordStore, entities: Sequence[Record], *, direction: Direction = "both"
) -> tuple[list[Link], dict[str, str]]:
    """The relations at these entities, and the names of their ends.

    A link that does not join two entities is another family's, as from a memory to what it is
    about.
    """
    ids = [entity.id for entity in entities]
    links = await store.links(ids, direction=direction, sources=(ENTITY,)) if ids else []
    names = {entity.id: entity.name or "" for entity in entities}
    others = {end for link in links for end in (link.source, link.target)} - names.keys()
    if others:
        for record in await store.get(sorted(others)):
            if record.kind == ENTITY:
                names[record.id] = record.name or ""
    return [link for link in links if link.source in names and link.target in names], names
