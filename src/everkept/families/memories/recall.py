"""Recall of memories by a query, or by a walk over the knowledge graph."""

import asyncio
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Literal

from everkept.core.answers import Hops, SectionHit, SectionSearch
from everkept.core.commits import note_touched
from everkept.core.ports import AccessCount, AccessCounter, Direction, RecordStore, VectorIndexer
from everkept.core.records import SESSION_SCOPE, Record, RecordFilter, RecordLink
from everkept.core.sessions import get_acting_account
from everkept.core.text import compute_name_key
from everkept.errors import EverkeptError, NotFound, Unavailable
from everkept.families.memories.model import (
    MEMORY,
    MEMORY_PROFILE,
    SCOPES,
    GraphEntity,
    GraphRelationship,
    GraphStats,
    MemoryGraph,
    MemoryOptions,
    MemoryView,
    RecalledMemories,
    Strategy,
    TimeRange,
)
from everkept.families.memories.stores import NO_SESSION, MemoryStores
from everkept.graph.entities import ENTITY, walk_around
from everkept.graph.lookup import find_candidates
from everkept.retrieval.profile import SearchHit, SearchPage, SearchPlace
from everkept.retrieval.search import find_pending_notice, search
from everkept.tools.tool import ToolWarning
from everkept.values import Value, field, replace

PROJECT_SCOPES = (SESSION_SCOPE, "project")
USER_SCOPES = ("user",)
MIN_PENDING_MEMORIES = 17  # fewer are embedded in one batch, a moment later
NO_BANK_MESSAGE = "There is no memory bank. Only memories were searched."


class RecallRequest(Value):
    """Query and filters of a recall. An empty field does not filter."""

    query: str
    session: str | None = None  # whose session memories to include; None excludes all session memories
    scopes: Sequence[str] = ()
    types: Sequence[str] = ()
    strategy: Strategy = "hybrid"
    limit: int = 10
    min_importance: float = 0.0
    tags: Sequence[str] = ()
    time_range: TimeRange | None = None
    include_forgotten: bool = False
    as_of: int | None = None
    explain: bool = False
    include_bank: bool = False


class MemoryRecall:
    """Search in the project's and the user's store, depending on the scopes, and in the bank if requested."""

    def __init__(
        self,
        stores: MemoryStores,
        indexing: VectorIndexer,
        accesses: AccessCounter,
        options: MemoryOptions,
        bank: SectionSearch | None = None,
    ) -> None:
        self._bank = bank
        self._stores = stores
        self._indexing = indexing
        self._accesses = accesses
        self._options = options
        self.warnings: dict[ToolWarning, None] = {}  # of all searches so far, each once
        self._known: dict[RecordStore, dict[str, AccessCount | None]] = {}  # access counts that the ranking has read

    async def recall(self, wanted: RecallRequest) -> RecalledMemories:
        started = perf_counter()
        places = await self._open_places(wanted)
        found = await self._search(places, wanted)
        memories = await self._build_views(places, found.hits, explain=wanted.explain)
        sections = await self._find_sections(wanted) if wanted.include_bank else None
        return RecalledMemories(
            memories=memories,
            total_matched=found.total,
            strategy_used=found.strategy or wanted.strategy,
            query_time_ms=round((perf_counter() - started) * 1000, 1),
            bank=sections,
            warnings=list(self.warnings) or None,
        )

    async def find_records(self, wanted: RecallRequest) -> list[Record]:
        """Return matching records, best first, without counting an access."""
        places = await self._open_places(wanted, or_none=True)
        return [hit.record for hit in (await self._search(places, wanted)).hits] if places else []

    async def find_newest(self, where: RecordFilter, session: str | None, limit: int) -> list[Record]:
        """Return the newest records that pass the filter."""
        wanted = RecallRequest("", session, where.scopes, where.types)
        places = await self._open_places(wanted, or_none=True)
        traits = {"pinned": where.pinned, "min_importance": where.min_importance}
        found = await asyncio.gather(
            *(place.store.scan(replace(place.where, **traits), order="newest", limit=limit) for place in places)
        )
        once = {record.id: record for records in found for record in records}  # the user's copy wins
        return sorted(once.values(), key=lambda record: -record.effective_at)[:limit]

    async def count_access(self, given: Sequence[Record]) -> None:
        """Count an access of each memory in the store that holds it."""
        of_user = {record.id for record in given if record.scope == "user"}
        if get_acting_account() is not None:
            own = [record.id for record in given if record.scope == SESSION_SCOPE]
            of_user |= {record.id for record in await (await self._stores.open_user()).get(own)}
        others = [record.id for record in given if record.id not in of_user]
        if of_user:
            self._accesses.note(await self._stores.open_user(), sorted(of_user))
        if others:
            self._accesses.note(await self._stores.open_project(), others)

    async def _find_sections(self, wanted: RecallRequest) -> list[SectionHit]:
        """Search the bank. Warn if it is missing or unavailable, so that the memories are still returned."""
        if self._bank is None:
            self.warnings[ToolWarning("no_memory_bank", NO_BANK_MESSAGE)] = None
            return []
        try:
            found = await self._bank.find_sections(self._stores.call, wanted.query, wanted.limit)
        except NotFound:
            self.warnings[ToolWarning("no_memory_bank", NO_BANK_MESSAGE)] = None
            return []
        except EverkeptError as error:
            self.warnings[ToolWarning("memory_bank_unavailable", error.message)] = None
            return []
        self.warnings |= {ToolWarning("partial_results", notice): None for notice in found.notices}
        return found.hits

    async def _search(self, places: Sequence[SearchPlace], wanted: RecallRequest) -> SearchPage:
        found = await search(
            places,
            wanted.query,
            replace(MEMORY_PROFILE, strategy=wanted.strategy),
            limit=wanted.limit,
            embedder=self._indexing.embedder,
            now=self._stores.clock(),
            zone=self._options.zone,
            as_of=wanted.as_of,
            time_limit=self._options.time_limit,
            accesses=lambda place, ids: self._read_accesses(places[place].store, ids),
        )
        notices = [*found.notices]
        is_by_meaning = found.strategy in ("hybrid", "vector")
        stores = [place.store for place in places if is_by_meaning and self._indexing.is_behind(place.store)]
        if not found.hits or any(hit.cosine is None for hit in found.hits):
            nouns = ("memory", "memories")
            pending = await find_pending_notice(stores, self._indexing.embedder, MEMORY, nouns, MIN_PENDING_MEMORIES)
            notices += [pending] if pending else []
        self.warnings |= {ToolWarning(notice.code, notice.message): None for notice in notices}
        return found

    async def _read_accesses(self, store: RecordStore, ids: Sequence[str]) -> Mapping[str, AccessCount]:
        found = await self._accesses.read_accesses(store, ids)
        self._known.setdefault(store, {}).update((i, found.get(i)) for i in ids)
        return found

    async def _open_places(self, wanted: RecallRequest, *, or_none: bool = False) -> list[SearchPlace]:
        """Open the stores to search. Warn if the user's store is unavailable, so that project memories are still found.

        With `or_none`, warn even if only the user's store was requested.
        """
        where = build_where(wanted)
        scopes = tuple(wanted.scopes) or SCOPES
        of_project = tuple(scope for scope in scopes if scope in PROJECT_SCOPES)
        # The session memories of an account without write access are in its user store.
        of_user = USER_SCOPES if get_acting_account() is None else (*USER_SCOPES, SESSION_SCOPE)
        of_user = tuple(scope for scope in scopes if scope in of_user)
        places: list[SearchPlace] = []
        if of_project:
            store = await self._stores.open_project()
            places.append(SearchPlace(store, replace(where, scopes=of_project)))
        if of_user:
            try:
                store = await self._stores.open_user()
                places.append(SearchPlace(store, replace(where, scopes=of_user)))
            except Unavailable as error:
                if not places and not or_none:
                    raise
                self.warnings[ToolWarning("user_scope_unavailable", error.message)] = None
        return places

    async def _build_views(
        self, places: Sequence[SearchPlace], hits: Sequence[SearchHit], *, explain: bool
    ) -> list[MemoryView]:
        known: dict[str, AccessCount] = {}
        for number, place in enumerate(places):
            ids = [hit.record.id for hit in hits if hit.place == number]
            known |= await self._count_given_out(place.store, ids)
        return [
            MemoryView.from_record(hit.record, hit.score, known.get(hit.record.id), hit.why if explain else None)
            for hit in hits
        ]

    async def _count_given_out(self, store: RecordStore, ids: Sequence[str]) -> dict[str, AccessCount]:
        """Count an access of these memories and return the earlier counts, which the ranking has usually read."""
        known = self._known.get(store, {})
        if not all(i in known for i in ids):
            return await count_given_out(self._accesses, store, ids)
        self._accesses.note(store, ids)
        return {i: access for i in ids if (access := known[i]) is not None}


async def count_given_out(accesses: AccessCounter, store: RecordStore, ids: Sequence[str]) -> dict[str, AccessCount]:
    """Return the earlier access counts of these memories, and count one more access."""
    if not ids:
        return {}
    known = dict(await accesses.read_accesses(store, ids))
    accesses.note(store, ids)
    return known


def build_where(wanted: RecallRequest) -> RecordFilter:
    span = wanted.time_range or TimeRange()
    return RecordFilter(
        kinds=(MEMORY,),
        types=tuple(wanted.types),
        visible_to=wanted.session or NO_SESSION,
        tags=tuple(tag.strip() for tag in wanted.tags),
        min_importance=wanted.min_importance or None,
        after=span.after,
        before=span.before,
        deleted=None if wanted.include_forgotten else False,
    )


WalkDirection = Literal["outgoing", "incoming", "both"]
DIRECTIONS: dict[WalkDirection, Direction] = {"outgoing": "out", "incoming": "in", "both": "both"}

MAX_HOP_ENTITIES = 1_000  # entities from which one hop continues
MAX_HOP_LINKS = 20_000  # read in one hop
MAX_OVERVIEW_ENTITIES = 2_000  # entities among which an overview finds the best connected
MAX_MEMORIES = 100  # read; more are only counted

EntityKey = tuple[str, str]  # normalized name and type, which identify an entity in both stores


class GraphRoute(Value):
    """Parameters of a graph walk."""

    entity: str | None = None
    relationship_type: str | None = None
    direction: WalkDirection = "both"
    depth: int = 1
    include_memories: bool = True
    limit: int = 20


class _ReachedEntity(Value, frozen=False):
    """Entity reached by a walk, combined over both stores."""

    name: str
    type: str
    depth: int
    relationships: dict[tuple[str, str, str], GraphRelationship] = field(
        default_factory=dict[tuple[str, str, str], GraphRelationship]
    )
    memories: dict[str, None] = field(default_factory=dict[str, None])  # the newest ones
    memory_count: int = 0


class _GraphWalk(Value, frozen=False):
    """Entities and relations found so far in all stores."""

    met: dict[EntityKey, _ReachedEntity] = field(default_factory=dict[EntityKey, _ReachedEntity])
    edges: set[tuple[EntityKey, str, EntityKey]] = field(default_factory=set[tuple[EntityKey, str, EntityKey]])
    depth: int = 0

    def add_entity(self, record: Record, depth: int) -> _ReachedEntity:
        there = self.met.setdefault(_get_key(record), _ReachedEntity(record.name or "", record.type or "", depth))
        there.depth = min(there.depth, depth)
        return there

    def add_relation(self, source: Record, verb: str, target: Record) -> None:
        edge = (_get_key(source), verb, _get_key(target))
        self.edges.add(edge)
        for key, other, direction in ((edge[0], target, "outgoing"), (edge[2], source, "incoming")):
            if (end := self.met.get(key)) is not None:
                relationship = (verb, other.name or "", direction)
                end.relationships[relationship] = GraphRelationship(*relationship)


async def walk_graph(
    stores: MemoryStores, accesses: AccessCounter, route: GraphRoute, session: str | None
) -> MemoryGraph:
    """Walk both stores as one graph. Without an entity, return an overview of the best connected entities."""
    so_far = _GraphWalk()
    places = (await stores.open_project(), await stores.open_user())
    starts = await asyncio.gather(*(_find_starts(store, route) for store in places))
    met = [await _walk_store(store, some, route, so_far) for store, some in zip(places, starts, strict=True)]
    # The entities of an overview also depend on their memories. Otherwise only memories of shown entities count.
    counting = len(so_far.met) if route.entity is None else route.limit
    chosen = {id(entity) for entity in _sort_entities(so_far)[:counting]}
    memories: list[tuple[RecordStore, Record]] = []
    for store, entities in zip(places, met, strict=True):
        wanted = {i: r for i, r in entities.items() if id(so_far.met[_get_key(r)]) in chosen}
        if wanted:
            about = await _read_memories(store, wanted, so_far, route, session or NO_SESSION)
            memories += [(store, record) for record in about]
    ranked = _sort_entities(so_far)
    shown = ranked[: route.limit] if route.entity is None else [entity for entity in ranked if id(entity) in chosen]
    seen = {id(entity) for entity in shown}
    note_touched(i for some in met for i, r in some.items() if id(so_far.met[_get_key(r)]) in seen)
    attached = await _build_memory_views(memories, shown, accesses, route) if route.include_memories else []
    unknown = f'No entity is named "{route.entity}". Omit `entity` for an overview of the graph.'
    missing = route.entity is not None and not so_far.met
    return MemoryGraph(
        entities=[GraphEntity(e.name, e.type, list(e.relationships.values()), e.memory_count) for e in shown],
        memories=attached,
        graph_stats=GraphStats(len(so_far.met), len(so_far.edges), so_far.depth),
        warnings=[ToolWarning("entity_not_found", unknown)] if missing else None,
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


async def _walk_store(
    store: RecordStore, starts: Sequence[Record], route: GraphRoute, so_far: _GraphWalk
) -> dict[str, Record]:
    """Walk one store and return the entities reached in it, by id."""
    known = {record.id: record for record in starts}
    for record in starts:
        so_far.add_entity(record, 0)
    hops = Hops(
        1 if route.entity is None else route.depth,
        DIRECTIONS[route.direction],
        sources=(ENTITY,),
        width=MAX_HOP_ENTITIES,
        limit=MAX_HOP_LINKS,
    )
    wanted = compute_name_key(route.relationship_type or "")

    def fits(link: RecordLink) -> bool:
        return compute_name_key(link.verb) == wanted

    depth = 0
    async for hop in walk_around(store, starts, hops, fits=fits if wanted else None):
        depth += 1
        for record in sorted(hop.entities, key=lambda record: record.id):
            known[record.id] = record
            so_far.add_entity(record, depth)
        for link in hop.relations:
            if link.source in known and link.target in known:
                so_far.add_relation(known[link.source], link.verb, known[link.target])
        if hop.entities:
            so_far.depth = max(so_far.depth, depth)
    return known


async def _read_memories(
    store: RecordStore, entities: dict[str, Record], so_far: _GraphWalk, route: GraphRoute, visible_to: str
) -> list[Record]:
    """Return the memories about the entities that this session may see, best first."""
    where = RecordFilter(kinds=(MEMORY,), visible_to=visible_to)
    found = await store.count_sources(list(entities), where, MAX_MEMORIES)
    for entity_id, count in found.counts.items():
        so_far.met[_get_key(entities[entity_id])].memory_count += count
    for entity_id, memory_id in dict.fromkeys((x.target, x.source) for x in found.links):
        about = so_far.met[_get_key(entities[entity_id])]
        about.memory_count -= memory_id in about.memories  # a memory that is being promoted is in both stores
        about.memories[memory_id] = None
    wanted = compute_name_key(route.relationship_type or "")
    fitting = {link.source for link in found.links if compute_name_key(link.verb) == wanted}
    newest = tuple(dict.fromkeys(link.source for link in found.links))
    records = await store.scan(RecordFilter(ids=newest)) if newest else []

    def rank(record: Record) -> tuple[bool, float, int]:
        return record.id not in fitting, -(record.importance or 0.0), -record.effective_at

    return sorted(records, key=rank)


async def _build_memory_views(
    memories: Sequence[tuple[RecordStore, Record]],
    shown: Sequence[_ReachedEntity],
    accesses: AccessCounter,
    route: GraphRoute,
) -> list[MemoryView]:
    """Return views of the memories. The nearer the entity a memory is about, the more relevant it is."""
    nearness: dict[str, float] = {}
    for entity in shown:
        for memory_id in entity.memories:
            score = 1 / (1 + entity.depth)
            nearness[memory_id] = max(nearness.get(memory_id, 0.0), score)
    wanted = [(store, record) for store, record in memories if record.id in nearness]
    broadest = {record.id: (store, record) for store, record in wanted}  # the user's copy comes last and wins
    best = sorted(broadest.values(), key=lambda pair: -nearness[pair[1].id])[: route.limit]
    known: dict[str, AccessCount] = {}
    for store in {id(store): store for store, _ in best}.values():
        ids = [record.id for other, record in best if other is store]
        known |= await count_given_out(accesses, store, ids)
    return [MemoryView.from_record(r, nearness[r.id], known.get(r.id)) for _, r in best]


def _sort_entities(walk: _GraphWalk) -> list[_ReachedEntity]:
    """Sort entities by distance, then by number of connections."""

    def rank(entity: _ReachedEntity) -> tuple[int, int, str]:
        connected = len(entity.relationships) + entity.memory_count
        return entity.depth, -connected, entity.name

    return sorted(walk.met.values(), key=rank)


def _get_key(record: Record) -> EntityKey:
    return record.name_key or "", compute_name_key(record.type or "")
