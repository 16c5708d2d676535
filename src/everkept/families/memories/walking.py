"""Walking the graph: entities from hop to hop, and the memories that are about them."""

import asyncio
from collections.abc import Sequence, Set
from typing import Literal

from everkept.core.commits import touched
from everkept.core.ports import Access, AccessBook, Direction, RecordStore
from everkept.core.records import SESSION_SCOPE, Link, Record, Where
from everkept.core.text import normalised
from everkept.core.walking import Hops
from everkept.families.memories.model import (
    MEMORY,
    GraphEntity,
    GraphStats,
    KnowledgeGraph,
    MemoryView,
    Relationship,
)
from everkept.families.memories.recall import given_out
from everkept.families.memories.sessions import NO_SESSION
from everkept.families.memories.stores import Stores
from everkept.graph.entities import ENTITY
from everkept.graph.lookup import candidates
from everkept.graph.relations import walk_around
from everkept.tools.tool import Warned
from everkept.values import Value, field

Way = Literal["outgoing", "incoming", "both"]
DIRECTIONS: dict[Way, Direction] = {"outgoing": "out", "incoming": "in", "both": "both"}

WIDEST = 1_000  # entities that one hop goes on from
MOST_LINKS = 20_000  # looked at in one hop
OVERVIEW = 2_000  # entities among which an overview finds the best connected
MOST_MEMORIES = 100  # looked at; more are only counted

Identity = tuple[str, str]  # the normalised name and type: the same entity in both stores


class Route(Value):
    """How to walk."""

    entity: str | None = None
    relationship_type: str | None = None
    direction: Way = "both"
    depth: int = 1
    include_memories: bool = True
    limit: int = 20


class _Met(Value, frozen=False):
    """An entity on the way, whichever stores have it."""

    name: str
    type: str
    depth: int
    relationships: dict[tuple[str, str, str], Relationship] = field(
        default_factory=dict[tuple[str, str, str], Relationship]
    )
    memories: dict[str, None] = field(default_factory=dict[str, None])  # the newest of them
    memory_count: int = 0


class _Walk(Value, frozen=False):
    """What was met so far, in all stores."""

    met: dict[Identity, _Met] = field(default_factory=dict[Identity, _Met])
    edges: set[tuple[Identity, str, Identity]] = field(
        default_factory=set[tuple[Identity, str, Identity]]
    )
    depth: int = 0

    def meet(self, record: Record, depth: int) -> _Met:
        there = self.met.setdefault(
            _identity(record), _Met(record.name or "", record.type or "", depth)
        )
        there.depth = min(there.depth, depth)
        return there

    def connect(self, source: Record, verb: str, target: Record) -> None:
        edge = (_identity(source), verb, _identity(target))
        self.edges.add(edge)
        if (start := self.met.get(edge[0])) is not None:
            start.relationships[verb, target.name or "", "outgoing"] = Relationship(
                verb, target.name or "", "outgoing"
            )
        if (end := self.met.get(edge[2])) is not None:
            end.relationships[verb, source.name or "", "incoming"] = Relationship(
                verb, source.name or "", "incoming"
            )


async def walk(
    stores: Stores, accesses: AccessBook, route: Route, session: str | None
) -> KnowledgeGraph:
    """Both stores as one graph; without an entity, an overview of the best connected ones."""
    so_far = _Walk()
    places = (await stores.project(), await stores.user())
    starts = await asyncio.gather(*(_starts(store, route) for store in places))
    met = [
        await _go(store, some, route, so_far) for store, some in zip(places, starts, strict=True)
    ]
    # What an overview shows depends on the memories too; else they are those of what is shown.
    counting = len(so_far.met) if route.entity is None else route.limit
    chosen = {id(entity) for entity in _ordered(so_far)[:counting]}
    memories: list[tuple[RecordStore, Record]] = []
    for store, entities in zip(places, met, strict=True):
        wanted = {i: r for i, r in entities.items() if id(so_far.met[_identity(r)]) in chosen}
        if wanted:
            about = await _memories(store, wanted, so_far, route, session or NO_SESSION)
            memories += [(store, record) for record in about]
    shown = _ordered(so_far)[: route.limit] if route.entity is None else _only(so_far, chosen)
    seen = {id(entity) for entity in shown}
    touched(i for some in met for i, r in some.items() if id(so_far.met[_identity(r)]) in seen)
    attached = await _attached(memories, shown, accesses, route) if route.include_memories else []
    missing = route.entity is not None and not so_far.met
    return KnowledgeGraph(
        entities=[_view(entity) for entity in shown],
        memories=attached,
        graph_stats=GraphStats(len(so_far.met), len(so_far.edges), so_far.depth),
        warnings=[_unknown(route.entity or "")] if missing else None,
    )


async def kept_by_others(store: RecordStore, ids: Sequence[str], session: str) -> set[str]:
    """Those of the memories that no session but another one sees."""
    if not ids:
        return set()
    where = Where(kinds=(MEMORY,), ids=tuple(ids), scopes=(SESSION_SCOPE,))
    return {record.id for record in await store.scan(where) if record.session != session}


async def _starts(store: RecordStore, route: Route) -> list[Record]:
    """By name, id or `name (type)`, else by a part of the name."""
    if route.entity is None:
        return await store.scan(Where(kinds=(ENTITY,)), order="newest", limit=OVERVIEW)
    if exact := (await candidates(store, [route.entity]))[route.entity]:
        return exact
    wanted = normalised(route.entity)
    found = await store.containing(wanted, Where(kinds=(ENTITY,)), route.limit)
    records = await store.get([match.id for match in found]) if found else []
    return [record for record in records if wanted in (record.name_key or "")]


async def _go(
    store: RecordStore, starts: Sequence[Record], route: Route, so_far: _Walk
) -> dict[str, Record]:
    """The entities that were met in this store, by id."""
    known = {record.id: record for record in starts}
    for record in starts:
        so_far.meet(record, 0)
    hops = Hops(
        1 if route.entity is None else route.depth,
        DIRECTIONS[route.direction],
        sources=(ENTITY,),
        width=WIDEST,
        limit=MOST_LINKS,
    )
    wanted = normalised(route.relationship_type or "")

    def fits(link: Link) -> bool:
        return normalised(link.verb) == wanted

    depth = 0
    async for hop in walk_around(store, starts, hops, fits=fits if wanted else None):
        depth += 1
        for record in sorted(hop.entities, key=lambda record: record.id):
            known[record.id] = record
            so_far.meet(record, depth)
        for link in hop.relations:
            if link.source in known and link.target in known:
                so_far.connect(known[link.source], link.verb, known[link.target])
        if hop.entities:
            so_far.depth = max(so_far.depth, depth)
    return known


async def _memories(
    store: RecordStore,
    entities: dict[str, Record],
    so_far: _Walk,
    route: Route,
    visible_to: str,
) -> list[Record]:
    """What this session may see of the memories about the entities, the best first."""
    where = Where(kinds=(MEMORY,), visible_to=visible_to)
    found = await store.sources_of(list(entities), where, MOST_MEMORIES)
    for entity_id, count in found.counts.items():
        so_far.met[_identity(entities[entity_id])].memory_count += count
    for entity_id, memory_id in dict.fromkeys((x.target, x.source) for x in found.links):
        about = so_far.met[_identity(entities[entity_id])]
        about.memory_count -= memory_id in about.memories  # one that is moving is in both stores
        about.memories[memory_id] = None
    wanted = normalised(route.relationship_type or "")
    fitting = {link.source for link in found.links if normalised(link.verb) == wanted}
    newest = tuple(dict.fromkeys(link.source for link in found.links))
    records = await store.scan(Where(ids=newest)) if newest else []

    def rank(record: Record) -> tuple[bool, float, int]:
        return record.id not in fitting, -(record.importance or 0.0), -record.at

    return sorted(records, key=rank)


async def _attached(
    memories: Sequence[tuple[RecordStore, Record]],
    shown: Sequence[_Met],
    accesses: AccessBook,
    route: Route,
) -> list[MemoryView]:
    """The nearer the entity that a memory is about, the more relevant it is."""
    nearness: dict[str, float] = {}
    for entity in shown:
        for memory_id in entity.memories:
            score = 1 / (1 + entity.depth)
            nearness[memory_id] = max(nearness.get(memory_id, 0.0), score)
    wanted = [(store, record) for store, record in memories if record.id in nearness]
    broadest = {record.id: (store, record) for store, record in wanted}  # the user's come last
    best = sorted(broadest.values(), key=lambda pair: -nearness[pair[1].id])[: route.limit]
    known: dict[str, Access] = {}
    for store in {id(store): store for store, _ in best}.values():
        ids = [record.id for other, record in best if other is store]
        known |= await given_out(accesses, store, ids)
    return [MemoryView.of(r, nearness[r.id], known.get(r.id)) for _, r in best]


def _only(walk: _Walk, chosen: Set[int]) -> list[_Met]:
    return [entity for entity in _ordered(walk) if id(entity) in chosen]


def _ordered(walk: _Walk) -> list[_Met]:
    """The nearest first, and the best connected of those that are as near."""

    def rank(entity: _Met) -> tuple[int, int, str]:
        connected = len(entity.relationships) + entity.memory_count
        return entity.depth, -connected, entity.name

    return sorted(walk.met.values(), key=rank)


def _view(entity: _Met) -> GraphEntity:
    return GraphEntity(
        entity.name, entity.type, list(entity.relationships.values()), entity.memory_count
    )


def _unknown(name: str) -> Warned:
    return Warned(
        "entity_not_found", f'No entity is named "{name}". Without `entity` the graph is shown.'
    )


def _identity(record: Record) -> Identity:
    return record.name_key or "", normalised(record.type or "")
