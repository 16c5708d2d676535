"""The links of a memory: to the entities that it is about, and to other memories."""

from collections.abc import Mapping, Sequence
from typing import Any

from everkept.core.ports import RecordStore
from everkept.core.records import Delete, Insert, Link, Record, Step
from everkept.families.memories.identity import PREFIX
from everkept.families.memories.model import DERIVED_FROM, SUPERSEDES, RelatedEntity
from everkept.graph.entities import ENTITY, check_name
from everkept.graph.lookup import ensure_entities, meant_among
from everkept.graph.relations import by_triple, missing_relations, relations_from
from everkept.values import replace

RELINKED = "relinked"  # facet of a memory: how often the links to its entities have changed


def relinked(facets: Mapping[str, Any]) -> dict[str, Any]:
    """The facets after its links have changed: so that is a new version, and nobody misses it."""
    return {**facets, RELINKED: facets.get(RELINKED, 0) + 1}


def check_entities(entities: Sequence[RelatedEntity], argument: str) -> None:
    for i, entity in enumerate(entities):
        check_name(entity.name, f"{argument}[{i}].name")
        check_name(entity.type, f"{argument}[{i}].type")
        check_name(entity.relationship, f"{argument}[{i}].relationship")


async def link_steps(
    store: RecordStore,
    memory_id: str,
    entities: Sequence[RelatedEntity],
    at: int,
    *,
    is_new: bool = False,
) -> list[Step]:
    """Makes the entities that are missing, and the links that the memory does not have yet."""
    if not entities:
        return []
    steps, meant = await ensure_entities(store, [(e.name, e.type) for e in entities], at)
    wanted = [
        (memory_id, entity.relationship.strip(), record.id)
        for entity, record in zip(entities, meant, strict=True)
    ]
    present = {} if is_new else await relations_from(store, [memory_id])
    return [*steps, *(Insert(link) for link in missing_relations(wanted, present, at))]


async def unlink_steps(store: RecordStore, memory_id: str, names: Sequence[str]) -> list[Step]:
    """Takes the links to these entities away; what is not linked does not count."""
    if not names:
        return []
    linked = await linked_entities(store, memory_id)
    meant = meant_among((entity for _, entity in linked), names)
    unwanted = {entity.id for some in meant.values() for entity in some}
    return [Delete(link.ref) for link, entity in linked if entity.id in unwanted]


async def linked_entities(store: RecordStore, memory_id: str) -> list[tuple[Link, Record]]:
    """What a memory is about, with the links that say how."""
    links = await store.links([memory_id], direction="out")
    found = {r.id: r for r in await store.get([x.target for x in links]) if r.kind == ENTITY}
    return [(link, found[link.target]) for link in links if link.target in found]


async def memory_links(store: RecordStore, memory_id: str) -> list[Link]:
    """What a memory was made of, what was made of it, and what replaces what."""
    links = await store.links([memory_id])
    return [
        link
        for link in links
        if link.verb in (DERIVED_FROM, SUPERSEDES)
        and link.source.startswith(PREFIX)
        and link.target.startswith(PREFIX)
    ]


async def carrying_steps(
    store: RecordStore, links: Sequence[Link], old: str, new: str, at: int
) -> list[Step]:
    """Gives one memory the links of another, as far as the other ends live in this store."""
    moved = {
        (new if x.source == old else x.source, x.verb, new if x.target == old else x.target): x
        for x in links
    }
    others = [end for source, _, target in moved for end in (source, target) if end != new]
    live = {new, *(record.id for record in await store.get(others))}
    wanted = {x: link for x, link in moved.items() if x[0] != x[2] and {x[0], x[2]} <= live}
    made = missing_relations(wanted, by_triple(await store.links([new])), at)
    return [Insert(replace(x, facets=wanted[x.source, x.verb, x.target].facets)) for x in made]


def links_made(steps: Sequence[Step]) -> int:
    return sum(isinstance(step, Insert) and isinstance(step.item, Link) for step in steps)
