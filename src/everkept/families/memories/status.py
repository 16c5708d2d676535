"""The state of the memories: how many there are, where they lie, and how they are searched."""

from collections import Counter

from everkept.core.ports import Indexing
from everkept.core.records import Where
from everkept.core.times import iso
from everkept.families.memories.model import MEMORY, Options
from everkept.families.memories.sessions import started_at
from everkept.families.memories.stores import Stores
from everkept.graph.entities import ENTITY
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
