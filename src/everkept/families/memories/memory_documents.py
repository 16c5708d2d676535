"""Status of the memories, and the four resources that show them."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence

from everkept.core.answers import SearchRecord
from everkept.core.commits import note_touched
from everkept.core.context_text import as_data
from everkept.core.ports import RecordStore, VectorIndexer
from everkept.core.records import RecordFilter, RecordLink
from everkept.core.text import clip_text, format_count
from everkept.core.times import format_iso, format_minute
from everkept.errors import NotFound
from everkept.families.memories.context import fence_memories
from everkept.families.memories.graph_walk import MAX_OVERVIEW_ENTITIES, find_other_sessions_memories
from everkept.families.memories.likeness import MEMORY_TYPES, extract_key_topics
from everkept.families.memories.model import MEMORY, SESSION, MemoryOptions
from everkept.families.memories.stores import (
    NO_SESSION,
    MemoryStores,
    SessionUse,
    compute_start,
    find_session,
    get_own_start,
    get_session_id,
    read_all_of_session,
)
from everkept.graph.entities import ENTITY, OBSERVATION, list_relations_among
from everkept.tools.schema import to_json
from everkept.values import Value

WORKING_TYPE = "working"  # listed in the counts only if it occurs
_SECOND_MICROSECONDS = 1_000_000


class DatabaseStatus(Value):
    status: str
    engine: str
    mode: str
    uptime_seconds: int
    version: str
    path: str | None = None
    since: str | None = None  # since when it has been unreachable
    reason: str | None = None
    waiting_writes: int | None = None  # kept on this machine until it is reachable
    writes_set_aside: int | None = None  # rejected by the database
    copy_kept: str | None = None  # copy of the earlier data, if it came back with less


class ScopeCounts(Value):
    session: int
    project: int
    user: int


class TypeCounts(Value):
    episodic: int
    semantic: int
    procedural: int
    working: int | None = None


class MemoryCounts(Value):
    total: int
    by_scope: ScopeCounts
    by_type: TypeCounts
    forgotten: int
    entities: int
    relationships: int


class EmbeddingCounts(Value):
    """Numbers of embedded and pending texts: memories and, in a project with a bank, sections of its files."""

    stored: int
    pending: int
    problem: str | None = None


class StorageStatus(Value):
    database_size_bytes: int
    embedding_dimensions: int
    embedding_model: str
    embeddings: EmbeddingCounts | None = None


class SessionStatus(Value):
    """What a session has stored; `promoted` and `forgotten` are part of it. An ended session has a summary."""

    session_id: str
    memories_this_session: int
    promoted: int
    forgotten: int
    started_at: str
    ended_at: str | None = None
    summary: str | None = None


class MemoryStatus(Value):
    connection: DatabaseStatus
    counts: MemoryCounts
    storage: StorageStatus
    current_session: SessionStatus | None = None


async def read_memory_status(
    stores: MemoryStores, indexing: VectorIndexer, options: MemoryOptions, session: str | None
) -> MemoryStatus:
    uptime = (stores.clock() - options.started_at) // _SECOND_MICROSECONDS
    counts, storage = await _read_counts(stores), await _read_storage(stores, indexing)
    own = await _read_session(stores, options, session) if session is not None else None
    condition = stores.condition  # after the queries above, which update it
    well = condition.status != "connected" or indexing.fault is None
    is_away = condition.since is not None and not condition.is_catching_up
    connection = DatabaseStatus(
        status=condition.status if well else "degraded",
        engine=condition.engine,
        mode=condition.mode,
        uptime_seconds=max(uptime, 0),
        version=condition.version,
        path=condition.place or None,
        since=format_iso(condition.since or 0) if is_away else None,
        reason=condition.reason or None,
        waiting_writes=condition.waiting or None,
        writes_set_aside=condition.set_aside or None,
        copy_kept=condition.copy_kept or None,
    )
    return MemoryStatus(connection, counts, storage, own)


async def _read_counts(stores: MemoryStores) -> MemoryCounts:
    scopes: Counter[str] = Counter()
    types: Counter[str] = Counter()
    things: Counter[str] = Counter()
    forgotten = 0
    for store, foreign in ((await stores.open_project(), "user"), (await stores.open_user(), "")):
        things.update(await store.count_live())
        for tally in await store.tally((MEMORY,)):
            if not tally.is_deleted:
                scopes[tally.scope] += tally.count
                types[tally.type or ""] += tally.count
            elif tally.scope != foreign:  # a project's deleted user memories were promoted
                forgotten += tally.count
    return MemoryCounts(
        total=scopes.total(),
        by_scope=ScopeCounts(scopes["session"], scopes["project"], scopes["user"]),
        by_type=TypeCounts(types["episodic"], types["semantic"], types["procedural"], types[WORKING_TYPE] or None),
        forgotten=forgotten,
        entities=things[ENTITY],
        relationships=things["link"],
    )


async def _read_storage(stores: MemoryStores, indexing: VectorIndexer) -> StorageStatus:
    both = (await stores.open_project(), await stores.open_user())
    size = sum([await store.measure_size() for store in both])
    fault = await indexing.find_fault()
    problem = fault.message if fault else None
    embedder = indexing.embedder
    if embedder is None:
        return StorageStatus(size, 0, "none", EmbeddingCounts(0, 0, problem) if problem else None)
    counts = [await store.count_vectors(embedder.name, indexing.kinds) for store in both]
    stored, pending = (sum(column) for column in zip(*counts, strict=True))
    return StorageStatus(size, embedder.dimensions, embedder.name, EmbeddingCounts(stored, pending, problem))


async def _read_session(stores: MemoryStores, options: MemoryOptions, session: str) -> SessionStatus:
    """Describe the session. Raise NotFound if it is not the session of the call and has left nothing."""
    both = (await stores.open_project(), await stores.open_user())
    records, stored = await find_session(both, session), await read_all_of_session(both, session)
    if not records and not stored.records and session != get_session_id(stores.call, None, options):
        raise NotFound(SESSION, session, hint="Omit `session_id` for the current session.")
    ended = [record for record in records if record.text]
    return SessionStatus(
        session,
        len(stored.records),
        stored.promoted,
        stored.forgotten,
        format_iso(compute_start(records, stored, get_own_start(stores.call, session, options))),
        format_iso(max(record.facets["ended_at"] for record in ended)) if ended else None,
        ended[0].text if ended else None,
    )


STATUS_URI = "memory://status"
SESSION_SUMMARY_URI = "memory://session/summary"
KNOWLEDGE_GRAPH_URI = "memory://project/knowledge-graph"
PREFERENCES_URI = "memory://user/preferences"

MAX_READ_MEMORIES = 1_000  # the newest
MAX_PREFERENCES = 50
MAX_SEARCHES = 10
MAX_ENTITIES = 30
MAX_LISTED_TYPES = 20
MAX_LINKS = 10_000  # from memories to entities
LINE_CHARACTERS = 300  # shown of each memory


def format_status(status: MemoryStatus) -> str:
    return json.dumps(to_json(status), ensure_ascii=False, indent=2)


async def read_session_document(
    stores: Sequence[RecordStore],
    session: str | None,
    started_at: int | None,
    use: SessionUse,
    searches: Sequence[SearchRecord] = (),
) -> str:
    """Describe what the session has stored, recalled and searched for so far, in all its processes."""
    if session is None:
        return "## Session Memory Summary\nThis connection has no session.\n"
    records, stored = await find_session(stores, session), await read_all_of_session(stores, session)
    note_touched([session, *(record.id for record in stored.live)])
    counts = Counter(record.type or "" for record in stored.records)
    listed = ", ".join(f"{counts[kind]} {kind}" for kind in MEMORY_TYPES if counts[kind])
    since = "".join(f" | {counted}" for counted in stored.format_since())
    consolidated = sum("consolidated" in record.facets for record in stored.records)
    began = format_minute(compute_start(records, stored, started_at))
    recalls = use.add_to(records[0].facets if records else {})
    topics = _clip_line(", ".join(await asyncio.to_thread(extract_key_topics, stored.live[:MAX_READ_MEMORIES])))
    return "\n".join(
        [
            "## Session Memory Summary",
            f"**Session:** {_clip_line(session)} | Started: {began}",
            f"**Memories stored:** {len(stored.records)}" + (f" ({listed})" if listed else "") + since,
            f"**Memories recalled:** {format_count(recalls['recalled'], 'query', 'queries')}, "
            f"{format_count(recalls['served'], 'unique memory', 'unique memories')} returned",
            f"**Memories consolidated:** {consolidated}",
            fence_memories(f"**Key topics:** {topics}\n") if topics else "**Key topics:** none yet",
            *_format_searches(searches),
            "",
        ]
    )


def _format_searches(searches: Sequence[SearchRecord]) -> list[str]:

    if not searches:
        return []
    lines = [
        f"- {search.tool}: {_clip_line(search.query)}{_format_filters(search)}; "
        f"{format_count(search.results, 'result')}\n"
        for search in searches[:MAX_SEARCHES]
    ]
    return [f"**Past conversations searched:** {format_count(len(searches), 'time')}", fence_memories("".join(lines))]


def _format_filters(search: SearchRecord) -> str:
    named = ", ".join(f"{name} {value}" for name, value in search.filters.items())
    return f" ({_clip_line(named)})" if named else ""


async def read_graph_document(project: RecordStore, session: str | None = None) -> str:
    """Describe the entities and relations of the graph, counting only memories that the session may see."""
    counts = await project.count_live()
    entities = await project.scan(RecordFilter(kinds=(ENTITY,)), order="newest", limit=MAX_OVERVIEW_ENTITIES)
    by_id = {entity.id: entity for entity in entities}
    relations = await list_relations_among(project, by_id.keys())
    about = await _read_memory_links(project, list(by_id), session or NO_SESSION) if by_id else []
    degrees = Counter(end for link in relations for end in (link.source, link.target))
    degrees.update(link.target for link in about)
    total = counts.get(ENTITY, 0)
    possible = len(entities) * (len(entities) - 1)
    lines = [
        "## Project Knowledge Graph",
        f"**Entities:** {total}",
        f"**Relationships:** {len(relations)}",
        f"**Observations:** {counts.get(OBSERVATION, 0)}",
        f"**Links from memories:** {len(about)}",
        f"**Density:** {f'{len(relations) / possible:.4f}' if possible else '0'}",
    ]
    if len(entities) < total:
        newest = format_count(len(entities), "entity", "entities")
        lines.append(f"Relationships and links are counted for the newest {newest}.")
    body = _format_counts("Entity types", Counter(entity.type or "" for entity in entities))
    body += _format_counts("Relationship types", Counter(link.verb for link in relations))
    most = degrees.most_common(MAX_ENTITIES)
    note_touched([*(entity for entity, _ in most), *by_id])
    best = [
        f"- {_clip_line(by_id[entity].name)} ({_clip_line(by_id[entity].type)}): {format_count(count, 'link')}\n"
        for entity, count in most
    ]
    body += "".join(["### Most connected\n", *best]) if best else ""
    return "\n".join([*lines, *(["", fence_memories(body)] if body else []), ""])


async def read_preferences_document(user: RecordStore) -> str:
    """List the user's facts and procedures, the most important first."""
    where = RecordFilter(kinds=(MEMORY,), scopes=("user",), types=("semantic", "procedural"))
    current = [
        record
        for record in await user.scan(where, order="newest", limit=MAX_READ_MEMORIES)
        if "superseded_by" not in record.facets
    ]
    current.sort(key=lambda r: ("pinned" not in r.facets, -(r.importance or 0.0), -r.effective_at))
    lines = ["## User Preferences"]
    if not current:
        return "\n".join([*lines, "No preferences of the user are stored yet.", ""])
    body = ""
    for title, kind in (("Facts and preferences", "semantic"), ("Procedures", "procedural")):
        shown = [r for r in current[:MAX_PREFERENCES] if r.type == kind]
        note_touched(record.id for record in shown)
        body += f"\n### {title}\n" if shown else ""
        body += "".join(
            f"- {_clip_line(r.text)} ({format_minute(r.effective_at)[:10]}; {as_data(r.id)})\n" for r in shown
        )
    return "\n".join([*lines, fence_memories(body), ""])


async def _read_memory_links(project: RecordStore, entities: Sequence[str], session: str) -> list[RecordLink]:
    """Return the links from memories to the entities, without session memories of other sessions."""
    links = await project.find_links(entities, direction="in", sources=(MEMORY,), limit=MAX_LINKS)
    sources = list(dict.fromkeys(link.source for link in links))
    unseen = await find_other_sessions_memories(project, sources, session)
    return [link for link in links if link.source not in unseen]


def _format_counts(title: str, counts: Counter[str]) -> str:
    if not counts:
        return ""
    named = (f"{count} {_clip_line(name)}" for name, count in counts.most_common(MAX_LISTED_TYPES))
    return f"**{title}:** {', '.join(named)}\n"


def _clip_line(text: str | None) -> str:
    return as_data(clip_text(text or "", LINE_CHARACTERS))
