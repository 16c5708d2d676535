"""Walk over the knowledge graph: entities, their relations, and the memories about them.

The project's and the user's store are walked as one graph. Two entities are neighbors if a relation joins them, or if a
memory is about both. The second has no direction: from each end, the other one is what the memory says.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Literal

from everkept.core.commits import note_touched
from everkept.core.ports import AccessCount, AccessCounter, Direction, RecordStore
from everkept.core.records import SESSION_SCOPE, Record, RecordFilter, RecordLink
from everkept.core.text import compute_name_key
from everkept.families.memories.memory_identity import MEMORY_PREFIX
from everkept.families.memories.memory_record import list_linked_entities, read_forgotten_links
from everkept.families.memories.model import (
    MEMORY,
    GraphEntity,
    GraphRelationship,
    GraphStats,
    LinkedEntity,
    MemoryGraph,
    MemoryView,
)
from everkept.families.memories.recall import PROJECT_SCOPES, USER_SCOPES, build_type_warning, count_given_out
from everkept.families.memories.stores import NO_SESSION, MemoryStores
from everkept.graph.entities import ENTITY, find_candidates
from everkept.tools.tool import ToolWarning, build_elsewhere_warning
from everkept.values import Value, field

WalkDirection = Literal["outgoing", "incoming", "both"]
DIRECTIONS: dict[WalkDirection, Direction] = {"outgoing": "out", "incoming": "in", "both": "both"}

MAX_HOP_ENTITIES = 1_000  # entities from which one hop continues
MAX_HOP_LINKS = 20_000  # read in one hop
MAX_OVERVIEW_ENTITIES = 2_000  # entities among which an overview finds the best connected
MAX_MEMORIES = 100  # read; more are only counted
MAX_SHARING_MEMORIES = 30  # of one hop, whose other entities are neighbors; the newest
MAX_SHARED_NEIGHBORS = 50  # of one hop, so that a walk does not end up everywhere
MAX_SHARING_STARTS = 100  # entities of one hop whose memories are asked for
MAX_SHARING_ENTITIES = 20  # of one memory and one hop, whose neighbors it gives
MAX_SEARCHED_MEMORIES = 1_000  # the newest, among which those with a relationship of the wanted type are found

_fold = lru_cache(4_096)(compute_name_key)  # a walk compares few types and verbs very often

EntityKey = tuple[str, str]  # normalized name and type, which identify an entity in both stores


class GraphRoute(Value):
    """Parameters of a graph walk."""

    entity: str | None = None
    relationship_type: str | None = None
    direction: WalkDirection = "both"
    depth: int = 1
    include_memories: bool = True
    include_forgotten: bool = False
    limit: int = 20

    def fits(self, link: RecordLink) -> bool:
        return not self.relationship_type or _fold(link.verb) == _fold(self.relationship_type)


class _ReachedEntity(Value, frozen=False):
    """Entity reached by a walk, combined over both stores."""

    name: str
    type: str
    depth: int
    is_related: bool = False  # False if only memories lead to it
    relationships: dict[tuple[str, str, str], GraphRelationship] = field(
        default_factory=dict[tuple[str, str, str], GraphRelationship]
    )
    memories: dict[str, None] = field(default_factory=dict[str, None])  # the newest of the counted ones
    attached: dict[str, None] = field(default_factory=dict[str, None])
    memory_count: int = 0


class _WalkedStore(Value, frozen=False):
    """One of the stores, with the entities reached in it by id, and those that the last hop reached."""

    store: RecordStore
    scopes: tuple[str, ...]  # of its memories; those that were promoted to the other store have another one
    known: dict[str, Record] = field(default_factory=dict[str, Record])
    edge: dict[str, Record] = field(default_factory=dict[str, Record])
    memories: dict[str, Record] = field(default_factory=dict[str, Record])  # to attach, best first


class _GraphWalk(Value, frozen=False):
    """Entities and relations found so far in all stores."""

    route: GraphRoute
    visible_to: str
    places: Sequence[_WalkedStore]
    met: dict[EntityKey, _ReachedEntity] = field(default_factory=dict[EntityKey, _ReachedEntity])
    edges: set[tuple[EntityKey, str, EntityKey]] = field(default_factory=set[tuple[EntityKey, str, EntityKey]])
    depth: int = 0

    def get_entity(self, record: Record) -> _ReachedEntity:
        return self.met[_get_key(record)]

    def add_entities(self, place: _WalkedStore, records: Iterable[Record], depth: int) -> None:
        for record in records:
            place.known[record.id] = place.edge[record.id] = record
            self.met.setdefault(_get_key(record), _ReachedEntity(record.name or "", record.type or "", depth))

    def add_relation(self, source: Record, verb: str, target: Record) -> None:
        edge = (_get_key(source), verb, _get_key(target))
        self.edges.add(edge)
        for key, other, direction in ((edge[0], target, "outgoing"), (edge[2], source, "incoming")):
            if (end := self.met.get(key)) is not None:
                relationship = (verb, other.name or "", direction)
                end.relationships[relationship] = GraphRelationship(*relationship)
                end.is_related = True

    def add_sharing(self, one: Record, link: RecordLink, other: Record) -> None:
        """Add that a memory about the first entity has this link to the second one."""
        ends = sorted((_get_key(one), _get_key(other)))
        self.edges.add((ends[0], "", ends[1]))
        holder, target, direction = one, other, "outgoing"
        if self.route.direction == "incoming":
            holder, target, direction = other, one, "incoming"
        relationship = (link.verb, target.name or "", direction)
        known = self.get_entity(holder).relationships
        known.setdefault(relationship, GraphRelationship(*relationship, memory_id=link.source))

    def sort_entities(self) -> list[_ReachedEntity]:
        """Sort entities by distance, then related before merely sharing ones, then by number of connections."""

        def rank(entity: _ReachedEntity) -> tuple[int, bool, int, str]:
            connected = len(entity.relationships) + entity.memory_count
            return entity.depth, bool(entity.depth) and not entity.is_related, -connected, entity.name

        return sorted(self.met.values(), key=rank)


async def walk_graph(
    stores: MemoryStores,
    accesses: AccessCounter,
    route: GraphRoute,
    session: str | None,
    time_limit: float | None = None,
) -> MemoryGraph:
    """Walk both stores as one graph. Without an entity, return an overview of the best connected entities.

    The time limit is that of a look into other projects, which only a walk from an unknown entity takes.
    """
    places = [
        _WalkedStore(await stores.open_project(), PROJECT_SCOPES),
        _WalkedStore(await stores.open_user(), (*USER_SCOPES, SESSION_SCOPE)),
    ]
    walk = _GraphWalk(route, session or NO_SESSION, places)
    starts = await asyncio.gather(*(_find_starts(place.store, route) for place in places))
    for place, some in zip(places, starts, strict=True):
        walk.add_entities(place, some, 0)
    is_known = bool(walk.met)
    await _add_counterparts(walk, 0)
    for depth in range(1, 2 if route.entity is None else route.depth + 1):
        await _take_hop(walk, depth)
    if route.relationship_type:
        await _drop_unrelated(walk)
    # The entities of an overview also depend on their memories. Otherwise only memories of shown entities count.
    counting = len(walk.met) if route.entity is None else route.limit
    chosen = {id(entity) for entity in walk.sort_entities()[:counting]}
    for place in places:
        await _read_memories(walk, place, {i: r for i, r in place.known.items() if id(walk.get_entity(r)) in chosen})
    ranked = walk.sort_entities()
    shown = ranked[: route.limit] if route.entity is None else [entity for entity in ranked if id(entity) in chosen]
    seen = {id(entity) for entity in shown}
    elsewhere = None if is_known else await _look_elsewhere(stores, route, time_limit)
    note_touched(i for place in places for i, r in place.known.items() if id(walk.get_entity(r)) in seen)
    return MemoryGraph(
        entities=[GraphEntity(e.name, e.type, list(e.relationships.values()), e.memory_count) for e in shown],
        memories=await _build_memory_views(walk, shown, accesses) if route.include_memories else [],
        graph_stats=GraphStats(len(walk.met), len(walk.edges), walk.depth),
        warnings=_list_warnings(walk, is_known=is_known, elsewhere=elsewhere),
    )


async def find_other_sessions_memories(store: RecordStore, ids: Sequence[str], session: str) -> set[str]:
    """Return the ids of memories that belong to other sessions."""
    if not ids:
        return set()
    where = RecordFilter(kinds=(MEMORY,), ids=tuple(ids), scopes=(SESSION_SCOPE,))
    return {record.id for record in await store.scan(where) if record.session != session}


async def _find_starts(store: RecordStore, route: GraphRoute) -> list[Record]:
    """Find the start entities by name, id or `name (type)`, otherwise by a part of the name."""
    if route.entity is None:
        return await store.scan(RecordFilter(kinds=(ENTITY,)), order="newest", limit=MAX_OVERVIEW_ENTITIES)
    if exact := (await find_candidates(store, [route.entity]))[route.entity]:
        return exact
    wanted = compute_name_key(route.entity)
    found = await store.match_text(wanted, RecordFilter(kinds=(ENTITY,)), route.limit)
    records = await store.get([match.id for match in found]) if found else []
    return [record for record in records if wanted in (record.name_key or "")]


async def _add_counterparts(walk: _GraphWalk, depth: int) -> None:
    """Add the entities that the last hop reached in one store only, if the other store has them too."""
    for place in walk.places:
        there = {_get_key(record) for record in place.known.values()}
        others = (record for other in walk.places if other is not place for record in other.edge.values())
        missing = {key for record in others if (key := _get_key(record)) not in there}
        if missing:
            where = RecordFilter(kinds=(ENTITY,), name_keys=tuple({name for name, _ in missing}))
            found = [record for record in await place.store.scan(where) if _get_key(record) in missing]
            walk.add_entities(place, found, depth)


class _Hop(Value):
    """Findings of one hop in one store: relations, links of memories about its entities, and all their ends."""

    relations: Sequence[RecordLink]
    sharing: Mapping[str, Sequence[RecordLink]]  # by memory
    records: Mapping[str, Record]


async def _take_hop(walk: _GraphWalk, depth: int) -> None:
    hops = await asyncio.gather(*(_read_hop(walk, place) for place in walk.places))
    edges = [set(place.edge) for place in walk.places]
    for place, hop in zip(walk.places, hops, strict=True):
        place.edge = {}
        new = (record for record in sorted(hop.records.values(), key=lambda r: r.id) if record.id not in place.known)
        walk.add_entities(place, new, depth)
    if any(place.edge for place in walk.places):
        walk.depth = depth
    for place, hop, edge in zip(walk.places, hops, edges, strict=True):
        for link in hop.relations:
            if link.source in place.known and link.target in place.known:
                walk.add_relation(place.known[link.source], link.verb, place.known[link.target])
        for links in hop.sharing.values():
            _add_sharing(walk, place, links, edge)
    await _add_counterparts(walk, depth)


async def _read_hop(walk: _GraphWalk, place: _WalkedStore) -> _Hop:
    ids, store, route = list(place.edge)[:MAX_HOP_ENTITIES], place.store, walk.route
    if not ids:
        return _Hop([], {}, {})
    direction = DIRECTIONS[route.direction]
    met, about = await asyncio.gather(
        store.find_links(ids, direction=direction, sources=(ENTITY,), limit=MAX_HOP_LINKS),
        _find_memories_about(walk, store, ids),
    )
    relations = [link for link in met if route.fits(link)]
    sharing: dict[str, list[RecordLink]] = {}
    for link in await store.find_links(about, direction="out") if about else []:
        if not link.target.startswith(MEMORY_PREFIX):
            sharing.setdefault(link.source, []).append(link)
    fitting = (memory_id for memory_id in about if any(map(route.fits, sharing.get(memory_id, ()))))
    sharing = {memory_id: sharing[memory_id] for memory_id in islice(fitting, MAX_SHARING_MEMORIES)}
    ends = dict.fromkeys(end for link in relations for end in (link.source, link.target))
    shared = (end for links in sharing.values() for end in _list_shared_ends(route, links, place.edge))
    new_ones = dict.fromkeys(end for end in shared if end not in ends and end not in place.known)
    ends |= dict.fromkeys(islice(new_ones, MAX_SHARED_NEIGHBORS))
    new = [end for end in ends if end not in place.known]
    found = {record.id: record for record in await store.get(new) if record.kind == ENTITY} if new else {}
    return _Hop(relations, sharing, found)


async def _find_memories_about(walk: _GraphWalk, store: RecordStore, ids: Sequence[str]) -> list[str]:
    """Return the newest memories about the entities, newest first. If a type is wanted, few of them may have it."""
    where = RecordFilter(kinds=(MEMORY,), visible_to=walk.visible_to)
    ids = ids[:MAX_SHARING_STARTS]
    most = MAX_SEARCHED_MEMORIES if walk.route.relationship_type else MAX_SHARING_MEMORIES
    found = (await store.count_sources(ids, where, most)).links
    return list(dict.fromkeys(link.source for link in reversed(found)))


def _list_shared_ends(route: GraphRoute, links: Sequence[RecordLink], edge: Mapping[str, Record]) -> list[str]:
    """Return the entities that one memory leads to from those of the last hop."""
    if route.direction == "incoming" and not any(route.fits(link) for link in links if link.target in edge):
        return []
    return [link.target for link in links if route.direction == "incoming" or route.fits(link)]


def _add_sharing(walk: _GraphWalk, place: _WalkedStore, links: Sequence[RecordLink], edge: set[str]) -> None:
    """Add what one memory says about the entities of the last hop and all others, seen from both."""
    known = [link for link in links if link.target in place.known]
    for here in [link for link in known if link.target in edge][:MAX_SHARING_ENTITIES]:
        for there in known:
            if here.target != there.target:
                for one, other in ((here, there), (there, here)):
                    if walk.route.fits(other):
                        walk.add_sharing(place.known[one.target], other, place.known[other.target])


async def _drop_unrelated(walk: _GraphWalk) -> None:
    """Keep only entities that have a relation or a memory of the wanted type."""
    fitting: set[EntityKey] = {key for key, entity in walk.met.items() if entity.relationships}
    for place in walk.places:
        if place.known:
            links = await place.store.find_links(
                list(place.known), direction="in", sources=(MEMORY,), limit=MAX_HOP_LINKS
            )
            links = [link for link in links if walk.route.fits(link)]
            sources = [link.source for link in links]
            unseen = await find_other_sessions_memories(place.store, sources, walk.visible_to)
            fitting |= {_get_key(place.known[link.target]) for link in links if link.source not in unseen}
    walk.met = {key: entity for key, entity in walk.met.items() if key in fitting}
    for place in walk.places:
        place.known = {i: record for i, record in place.known.items() if _get_key(record) in fitting}


async def _read_memories(walk: _GraphWalk, place: _WalkedStore, entities: Mapping[str, Record]) -> None:
    """Count the memories about the entities that this session may see, and read the newest, best first."""
    if not entities:
        return
    store, route = place.store, walk.route
    where = RecordFilter(kinds=(MEMORY,), visible_to=walk.visible_to)
    found = await store.count_sources(list(entities), where, MAX_MEMORIES)
    for entity_id, count in found.counts.items():
        walk.get_entity(entities[entity_id]).memory_count += count
    # A memory that is being promoted is in both stores.
    for entity_id, memory_id in dict.fromkeys((x.target, x.source) for x in found.links):
        about = walk.get_entity(entities[entity_id])
        about.memory_count -= memory_id in about.memories
        about.memories[memory_id] = None
    links = found.links
    if route.relationship_type:
        links = await store.find_links(list(entities), direction="in", sources=(MEMORY,), limit=MAX_HOP_LINKS)
        links = [link for link in links if route.fits(link)]
    newest = tuple(dict.fromkeys(link.source for link in reversed(links)))[:MAX_MEMORIES]
    records = await store.scan(RecordFilter(ids=newest, visible_to=walk.visible_to)) if newest else []
    if route.include_forgotten:
        forgotten = await read_forgotten_links(store, targets=entities.keys())
        links = [*links, *(link for some in forgotten.values() for link in some if route.fits(link))]
        gone = RecordFilter(ids=tuple(forgotten), scopes=place.scopes, visible_to=walk.visible_to, deleted=True)
        records += await store.scan(gone, order="newest", limit=MAX_MEMORIES) if forgotten else []
    for link in links:
        walk.get_entity(entities[link.target]).attached[link.source] = None

    def rank(record: Record) -> tuple[bool, float, int]:
        return record.deleted_at is not None, -(record.importance or 0.0), -record.effective_at

    place.memories = {record.id: record for record in sorted(records, key=rank)}


async def _build_memory_views(
    walk: _GraphWalk, shown: Sequence[_ReachedEntity], accesses: AccessCounter
) -> list[MemoryView]:
    """Return views of the memories. The nearer the entity a memory is about, the more relevant it is."""
    nearness: dict[str, float] = {}
    for entity in shown:
        for memory_id in entity.attached:
            score = 1 / (1 + entity.depth)
            nearness[memory_id] = max(nearness.get(memory_id, 0.0), score)
    # The user's copy comes last and wins.
    broadest = {
        record.id: (place.store, record)
        for place in walk.places
        for record in place.memories.values()
        if record.id in nearness
    }
    best = sorted(broadest.values(), key=lambda pair: -nearness[pair[1].id])[: walk.route.limit]
    known: dict[str, AccessCount] = {}
    linked: dict[str, list[LinkedEntity]] = {}
    for store in {id(store): store for store, _ in best}.values():
        some = [record for other, record in best if other is store]
        known |= await count_given_out(accesses, store, [record.id for record in some])
        linked |= await list_linked_entities(store, some)
    return [MemoryView.from_record(r, nearness[r.id], known.get(r.id), related=linked.get(r.id)) for _, r in best]


async def _look_elsewhere(stores: MemoryStores, route: GraphRoute, time_limit: float | None) -> ToolWarning | None:
    """Return a warning if another project has an entity that is close to the one looked for."""
    from everkept.retrieval.other_projects import find_entity_elsewhere

    if route.entity is None:
        return None
    found = await find_entity_elsewhere(stores.library, await stores.open_project(), route.entity, time_limit)
    return None if found is None else build_elsewhere_warning(found.project, found.record.name)


def _list_warnings(walk: _GraphWalk, *, is_known: bool, elsewhere: ToolWarning | None) -> list[ToolWarning] | None:
    route = walk.route
    if route.entity is not None and not is_known:
        unknown = f'No entity is named "{route.entity}". Omit `entity` for an overview of the graph.'
        return [ToolWarning("entity_not_found", unknown), *([] if elsewhere is None else [elsewhere])]
    if route.relationship_type and not walk.met:
        return [build_type_warning(route.relationship_type)]
    return None


def _get_key(record: Record) -> EntityKey:
    return record.name_key or "", _fold(record.type or "")
