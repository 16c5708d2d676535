"""The state of the memories, and the four documents that show them to a reader."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence

from everkept.core.answers import Search
from everkept.core.commits import touched
from everkept.core.context_text import as_data
from everkept.core.ports import Indexing, RecordStore
from everkept.core.records import Link, Where
from everkept.core.text import clipped
from everkept.core.times import iso
from everkept.families.memories.context import fenced
from everkept.families.memories.likeness import TYPES, key_topics
from everkept.families.memories.model import MEMORY, Options
from everkept.families.memories.recall import OVERVIEW, kept_by_others
from everkept.families.memories.stores import NO_SESSION, Stores, Use, started_at, stored_by
from everkept.graph.entities import ENTITY, OBSERVATION, relations_among
from everkept.tools.schema import to_json
from everkept.values import Value

WORKING = "working"  # a type that the counts name only where it occurs
_SECOND = 1_000_000  # microseconds


class Connection(Value):
    status: str
    engine: str
    mode: str
    uptime_seconds: int
    version: str
    path: str | None = None
    since: str | None = None  # when it went, where it is away
    reason: str | None = None
    waiting_writes: int | None = None  # that are kept here until it is back
    writes_set_aside: int | None = None  # that could not be made there
    copy_kept: str | None = None  # what it had, where it came back with less


class ByScope(Value):
    session: int
    project: int
    user: int


class ByType(Value):
    episodic: int
    semantic: int
    procedural: int
    working: int | None = None


class Counts(Value):
    total: int
    by_scope: ByScope
    by_type: ByType
    forgotten: int
    entities: int
    relationships: int


class Embeddings(Value):
    """How many texts have their vector, and how many wait for it: memories, and in a project with
    a memory bank the sections of its files."""

    stored: int
    pending: int
    problem: str | None = None


class Storage(Value):
    database_size_bytes: int
    embedding_dimensions: int
    embedding_model: str
    embeddings: Embeddings | None = None


class CurrentSession(Value):
    session_id: str
    memories_this_session: int
    started_at: str


class MemoryStatus(Value):
    connection: Connection
    counts: Counts
    storage: Storage
    current_session: CurrentSession | None = None


async def memory_status(
    stores: Stores, indexing: Indexing, options: Options, session: str | None
) -> MemoryStatus:
    uptime = (stores.clock() - options.started_at) // _SECOND
    counts, storage = await _counts(stores), await _storage(stores, indexing)
    own = await _current_session(stores, options, session) if session is not None else None
    condition = stores.condition  # as those questions have found it
    well = condition.status != "connected" or indexing.fault is None
    is_away = condition.since is not None and not condition.is_catching_up
    connection = Connection(
        status=condition.status if well else "degraded",
        engine=condition.engine,
        mode=condition.mode,
        uptime_seconds=max(uptime, 0),
        version=condition.version,
        path=condition.place or None,
        since=iso(condition.since or 0) if is_away else None,
        reason=condition.reason or None,
        waiting_writes=condition.waiting or None,
        writes_set_aside=condition.set_aside or None,
        copy_kept=condition.copy_kept or None,
    )
    return MemoryStatus(connection, counts, storage, own)


async def _counts(stores: Stores) -> Counts:
    scopes: Counter[str] = Counter()
    types: Counter[str] = Counter()
    things: Counter[str] = Counter()
    forgotten = 0
    for store, foreign in ((await stores.project(), "user"), (await stores.user(), "")):
        things.update(await store.count())
        for tally in await store.tally((MEMORY,)):
            if not tally.is_deleted:
                scopes[tally.scope] += tally.count
                types[tally.type or ""] += tally.count
            elif tally.scope != foreign:  # what a project has of the user's was promoted
                forgotten += tally.count
    return Counts(
        total=scopes.total(),
        by_scope=ByScope(scopes["session"], scopes["project"], scopes["user"]),
        by_type=ByType(
            types["episodic"],
            types["semantic"],
            types["procedural"],
            types[WORKING] or None,
        ),
        forgotten=forgotten,
        entities=things[ENTITY],
        relationships=things["link"],
    )


async def _storage(stores: Stores, indexing: Indexing) -> Storage:
    both = (await stores.project(), await stores.user())
    size = sum([await store.size() for store in both])
    problem = indexing.fault.message if indexing.fault else None
    embedder = indexing.embedder
    if embedder is None:
        return Storage(size, 0, "none", Embeddings(0, 0, problem) if problem else None)
    counts = [await store.vector_counts(embedder.name, indexing.kinds) for store in both]
    stored, pending = (sum(column) for column in zip(*counts, strict=True))
    return Storage(size, embedder.dimensions, embedder.name, Embeddings(stored, pending, problem))


async def _current_session(stores: Stores, options: Options, session: str) -> CurrentSession:
    both = (await stores.project(), await stores.user())
    where = Where(kinds=(MEMORY,), sessions=(session,))
    stored = sum([await store.how_many(where) for store in both])
    return CurrentSession(
        session, stored, iso(await started_at(stores.call, both, session, options))
    )


STATUS = "memory://status"
SESSION_SUMMARY = "memory://session/summary"
KNOWLEDGE_GRAPH = "memory://project/knowledge-graph"
PREFERENCES = "memory://user/preferences"

MOST_SUMMED_UP = 1_000  # memories, the newest
MOST_PREFERENCES = 50
MOST_SEARCHES = 10
MOST_ENTITIES = 30
MOST_VERBS = 20
MOST_LINKS = 10_000  # from memories that are counted for their entities
LINE = 300  # characters of a memory


def status_text(status: MemoryStatus) -> str:
    return json.dumps(to_json(status), ensure_ascii=False, indent=2)


async def session_text(
    project: RecordStore,
    user: RecordStore,
    session: str | None,
    started_at: int,
    use: Use,
    searches: Sequence[Search] = (),
) -> str:
    """What the session has stored, recalled and searched for so far."""
    if session is None:
        return "## Session Memory Summary\nThis connection keeps no session.\n"
    stores = (project, user)
    stored = await stored_by(stores, session, MOST_SUMMED_UP)
    touched([session, *(record.id for record in stored)])
    counts = {kind: await _how_many(stores, session, (kind,)) for kind in TYPES}
    listed = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    consolidated = sum("consolidated" in record.facets for record in stored)
    topics = _short(", ".join(await asyncio.to_thread(key_topics, stored)))
    return "\n".join(
        [
            "## Session Memory Summary",
            f"**Session:** {_short(session)} | Started: {_minute(started_at)}",
            f"**Memories stored:** {await _how_many(stores, session)}"
            + (f" ({listed})" if listed else ""),
            f"**Memories recalled:** {use.queries} queries, "
            f"{len(use.served)} unique memories served",
            f"**Memories consolidated:** {consolidated}",
            fenced(f"**Key topics:** {topics}\n") if topics else "**Key topics:** none yet",
            *_searched(searches),
            "",
        ]
    )


def _searched(searches: Sequence[Search]) -> list[str]:
    """What was asked of past conversations, the newest first."""
    if not searches:
        return []
    lines = [
        f"- {search.tool}: {_short(search.query)}{_filters(search)}; "
        f"{search.results} result{'' if search.results == 1 else 's'}\n"
        for search in searches[:MOST_SEARCHES]
    ]
    return [f"**Past conversations searched:** {len(searches)} times", fenced("".join(lines))]


def _filters(search: Search) -> str:
    named = ", ".join(f"{name} {value}" for name, value in search.filters.items())
    return f" ({_short(named)})" if named else ""


async def graph_text(project: RecordStore, session: str | None = None) -> str:
    """Entities, the kinds of their relations, and how closely they are knit.

    Memories count that the session may see.
    """
    counts = await project.count()
    entities = await project.scan(Where(kinds=(ENTITY,)), order="newest", limit=OVERVIEW)
    by_id = {entity.id: entity for entity in entities}
    relations = await relations_among(project, by_id.keys())
    about = await _about(project, list(by_id), session or NO_SESSION) if by_id else []
    degrees = Counter(end for link in relations for end in (link.source, link.target))
    degrees.update(link.target for link in about)
    total = counts.get(ENTITY, 0)
    lines = [
        "## Project Knowledge Graph",
        f"**Entities:** {total}",
        f"**Relationships:** {len(relations)}",
        f"**Observations:** {counts.get(OBSERVATION, 0)}",
        f"**Links from memories:** {len(about)}",
        f"**Density:** {_density(len(relations), len(entities))}",
    ]
    if len(entities) < total:
        lines.append(f"Relationships and links are those of the newest {len(entities):,} entities.")
    body = _listed("Entity types", Counter(entity.type or "" for entity in entities))
    body += _listed("Relationship types", Counter(link.verb for link in relations))
    most = degrees.most_common(MOST_ENTITIES)
    touched([*(entity for entity, _ in most), *by_id])
    best = [
        f"- {_short(by_id[entity].name)} ({_short(by_id[entity].type)}): {count} links\n"
        for entity, count in most
    ]
    body += "".join(["### Best connected\n", *best]) if best else ""
    return "\n".join([*lines, *(["", fenced(body)] if body else []), ""])


async def preferences_text(user: RecordStore) -> str:
    """The user's facts and procedures, the weightiest first."""
    where = Where(kinds=(MEMORY,), scopes=("user",), types=("semantic", "procedural"))
    current = [
        record
        for record in await user.scan(where, order="newest", limit=MOST_SUMMED_UP)
        if "superseded_by" not in record.facets
    ]
    current.sort(key=lambda r: ("pinned" not in r.facets, -(r.importance or 0.0), -r.at))
    lines = ["## User Preferences"]
    if not current:
        return "\n".join([*lines, "Nothing is remembered of the user yet.", ""])
    body = ""
    for title, kind in (("Facts and preferences", "semantic"), ("Procedures", "procedural")):
        shown = [r for r in current[:MOST_PREFERENCES] if r.type == kind]
        touched(record.id for record in shown)
        body += f"\n### {title}\n" if shown else ""
        body += "".join(
            f"- {_short(r.text)} ({_minute(r.at)[:10]}; {as_data(r.id)})\n" for r in shown
        )
    return "\n".join([*lines, fenced(body), ""])


async def _how_many(
    stores: Sequence[RecordStore], session: str, types: tuple[str, ...] = ()
) -> int:
    where = Where(kinds=(MEMORY,), sessions=(session,), types=types)
    return sum([await store.how_many(where) for store in stores])


async def _about(project: RecordStore, entities: Sequence[str], session: str) -> list[Link]:
    """The links from memories to the entities, but those of other sessions' own memories."""
    links = await project.links(entities, direction="in", sources=(MEMORY,), limit=MOST_LINKS)
    sources = list(dict.fromkeys(link.source for link in links))
    unseen = await kept_by_others(project, sources, session)
    return [link for link in links if link.source not in unseen]


def _listed(title: str, counts: Counter[str]) -> str:
    if not counts:
        return ""
    named = (f"{count} {_short(name)}" for name, count in counts.most_common(MOST_VERBS))
    return f"**{title}:** {', '.join(named)}\n"


def _short(text: str | None) -> str:
    return as_data(clipped(text or "", LINE))


def _density(relations: int, entities: int) -> str:
    possible = entities * (entities - 1)
    return f"{relations / possible:.4f}" if possible else "0"


def _minute(at: int) -> str:
    return iso(at)[:16].replace("T", " ")
