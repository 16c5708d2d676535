"""The shape of a knowledge graph for drawing: names, types and links, without any text."""

from collections import Counter
from collections.abc import Sequence

from everkept.core.answers import Hops
from everkept.core.ports import RecordStore
from everkept.core.records import Record, RecordFilter, RecordLink
from everkept.errors import NotFound
from everkept.families.memories.memory_record import is_hidden_session
from everkept.graph.entities import ENTITY, OBSERVATION
from everkept.values import Value

MAX_ENTITIES = 5_000  # in one outline
MAX_AROUND = 300  # around one entity
SCANNED_RECORDS = 2_000  # read together


class GraphOutline(Value):
    """Entities, and links as pairs of their positions. `types` and `verbs` are named once."""

    ids: Sequence[str]
    names: Sequence[str]
    types: Sequence[str]
    type_of: Sequence[int]  # position in `types`, for each entity
    degrees: Sequence[int]  # number of links, also of the ones that are not in the outline
    verbs: Sequence[str]
    links: Sequence[int]  # source, target and verb of each link, one after another
    total: int  # entities of the whole graph
    total_links: int


async def read_outline(store: RecordStore, limit: int = MAX_ENTITIES) -> GraphOutline:
    """Read the entities with the most links."""
    pages = store.scan_pages(RecordFilter(kinds=(ENTITY,)), SCANNED_RECORDS)
    entities = [record async for page in pages for record in page]
    known = {entity.id for entity in entities}
    links = [link for link in await store.scan_links(deleted=False) if link.source in known and link.target in known]
    degrees = _count_degrees(links)
    shown = sorted(entities, key=lambda entity: (-degrees[entity.id], entity.created_at, entity.id))[:limit]
    return _build_outline(shown, links, degrees, len(entities), len(links))


async def read_surroundings(store: RecordStore, entity_id: str, hops: int, limit: int = MAX_AROUND) -> GraphOutline:
    """Read the entities that a few steps reach from one of them. Raise NotFound."""
    if not any(record.kind == ENTITY for record in await store.get([entity_id])):
        raise NotFound("entity", entity_id, hint="It may have been deleted.")
    walked = await store.walk([entity_id], Hops(count=hops, sources=(ENTITY,), width=limit))
    links = [link for hop in walked for link in hop]
    ids = list(dict.fromkeys([entity_id, *(end for link in links for end in (link.source, link.target))]))
    shown = [record for record in await store.get(ids[:limit]) if record.kind == ENTITY]
    around = await store.find_links([record.id for record in shown], sources=(ENTITY,))
    degrees = _count_degrees(around)
    counts = await store.count_live()
    return _build_outline(shown, around, degrees, counts.get(ENTITY, 0), len(around))


def _count_degrees(links: Sequence[RecordLink]) -> Counter[str]:
    return Counter(end for link in links for end in {link.source, link.target})


def _build_outline(
    shown: Sequence[Record], links: Sequence[RecordLink], degrees: Counter[str], total: int, total_links: int
) -> GraphOutline:
    at = {record.id: position for position, record in enumerate(shown)}
    types = {name: position for position, name in enumerate(dict.fromkeys(record.type or "" for record in shown))}
    kept = [link for link in links if link.source in at and link.target in at]
    verbs = {verb: position for position, verb in enumerate(dict.fromkeys(link.verb for link in kept))}
    return GraphOutline(
        ids=list(at),
        names=[record.name or "" for record in shown],
        types=list(types),
        type_of=[types[record.type or ""] for record in shown],
        degrees=[degrees[record.id] for record in shown],
        verbs=list(verbs),
        links=[number for link in kept for number in (at[link.source], at[link.target], verbs[link.verb])],
        total=total,
        total_links=total_links,
    )


class EntityDetails(Value):
    """One entity with all that is known about it."""

    entity: Record
    observations: Sequence[Record]
    relations: Sequence[tuple[RecordLink, Record]]  # each with the entity at its other end
    memories: Sequence[Record]


async def read_entity(store: RecordStore, entity_id: str) -> EntityDetails:
    """Read one entity. Raise NotFound."""
    found = [record for record in await store.get([entity_id]) if record.kind == ENTITY]
    if not found:
        raise NotFound("entity", entity_id, hint="It may have been deleted.")
    observations = await store.scan(RecordFilter(kinds=(OBSERVATION,), parents=(entity_id,)))
    links = await store.find_links([entity_id])
    others = {link.source if link.target == entity_id else link.target for link in links}
    ends = {record.id: record for record in await store.get(list(others | {entity_id}))}
    relations: list[tuple[RecordLink, Record]] = []
    memories: list[Record] = []
    for link in links:
        other = ends.get(link.source if link.target == entity_id else link.target)
        if other is None:
            continue
        if other.kind == ENTITY:
            relations.append((link, other))
        elif not is_hidden_session(other):
            memories.append(other)
    return EntityDetails(found[0], observations, relations, memories)
