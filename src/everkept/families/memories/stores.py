"""The two stores and the session that a call belongs to, and the commits made in them."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from everkept.core.commits import ChangeWriter, Plan, T, commit, is_writable
from everkept.core.library import Condition
from everkept.core.ports import Library, ProjectChoice, RecordStore
from everkept.core.records import SESSION_SCOPE, Batch, Insert, Record, RecordFilter, Restore, Step, Update
from everkept.core.sessions import Account, ToolCall, act_as, choose_conversation, get_acting_account
from everkept.core.times import Clock
from everkept.errors import Conflict, EverkeptError, InvalidInput, NotFound
from everkept.families.memories.likeness import format_session_summary
from everkept.families.memories.memory_identity import add_prefix
from everkept.families.memories.model import AUTOMATIC, MEMORY, MERGED_INTO, SESSION, MemoryOptions
from everkept.values import Value, field

MAX_MERGES = 10  # that an old id is followed through


class MemoryStores:
    """The project's store, with session and project memories, and the user's, which holds the
    session memories of an account that may not write in the project.

    With a `session`, the session memories of others are out of reach.
    """

    def __init__(
        self,
        choice: ProjectChoice,
        library: Library,
        call: ToolCall,
        project: str | None,
        clock: Clock,
        session: str | None = None,
    ) -> None:
        self._choice = choice
        self._library = library
        self._project = project
        self._session = session
        self._opened: RecordStore | None = None
        self._opening = asyncio.Lock()
        self.clock = clock
        self.call = call
        self.writer = ChangeWriter(clock, call.tool, call.session.client)

    @property
    def condition(self) -> Condition:
        """What everything is kept in, and how that is doing."""
        return self._library.condition

    async def open_user(self) -> RecordStore:
        return await self._library.open_user_store()

    async def open_project(self) -> RecordStore:
        """To read; one that is yet to be made is empty. The call means the same one throughout."""
        async with self._opening:
            if self._opened is None:
                self._opened = await self._choice.open_to_read(self.call, self._project)
            return self._opened

    async def open_for_write(self, scope: str) -> RecordStore:
        """Where memories of the scope live."""
        if scope == "user":
            return await self.open_user()
        store = self._opened = await self._choice.open_to_write(self.call, self._project)
        # Whoever may only read in a project has a conversation there all the same.
        return await self.open_user() if scope == SESSION_SCOPE and not is_writable(store) else store

    async def find_live_memory(self, memory_id: str) -> tuple[RecordStore, Record]:
        """Where the memory lives; after a promotion that a crash cut short, the broader one."""
        store, record = await self.find_memory(memory_id)
        if record.deleted_at is not None:
            raise _build_forgotten(record)
        return store, record

    async def find_memory(self, memory_id: str) -> tuple[RecordStore, Record]:
        """Forgotten ones too; what was merged into another is that other one."""
        wanted = add_prefix(memory_id)
        for _ in range(MAX_MERGES):
            found = await self._search_stores(wanted)
            if found is None:
                break
            into = found[1].facets.get(MERGED_INTO)
            if into is None or found[1].deleted_at is None:
                return found
            wanted = into
        raise build_not_found(memory_id)

    async def commit(self, store: RecordStore, plan: Plan[T]) -> T:
        return await self.writer.commit(store, plan)

    async def _search_stores(self, memory_id: str) -> tuple[RecordStore, Record] | None:
        found = [
            (store, record)
            for store in (await self.open_user(), await self.open_project())
            for record in await store.get([memory_id], include_deleted=True)
            if record.kind == MEMORY and self._is_visible(record)
        ]
        live = (pair for pair in found if pair[1].deleted_at is None)
        return next(live, found[0] if found else None)

    def _is_visible(self, record: Record) -> bool:
        return record.scope != SESSION_SCOPE or self._session in (None, record.session)


async def read_live_memory(store: RecordStore, memory_id: str) -> Record:
    """The memory as it is now, for a plan that is made again."""
    found = await store.get([memory_id])
    if not found:
        raise build_not_found(memory_id)
    return found[0]


def build_not_found(memory_id: str) -> NotFound:
    return NotFound(
        MEMORY,
        memory_id,
        hint="recall_memories, or `everkept list`, finds ids; a memory of another project needs `project`.",
    )


def _build_forgotten(record: Record) -> NotFound:
    return NotFound(
        MEMORY,
        record.id,
        message=f'Memory "{record.id}" is forgotten.',
        hint="recall_memories with include_forgotten still finds it.",
    )


NO_SESSION = ""  # sees what belongs to no session, and no other session's memories
CLOSING_TOOL = "session_end"  # what the log calls it
MAX_SUMMARIZED_MEMORIES = 500  # memories, the newest: there is a second for it
MAX_SESSIONS = 1_000  # whose use is remembered; more clients at once have one process nowhere


def get_session_id(call: ToolCall, given: str | None, options: MemoryOptions) -> str | None:
    """None on a connection that keeps none."""
    return choose_conversation(call.session, given, options.session_id)


def require_session_id(call: ToolCall, given: str | None, options: MemoryOptions) -> str:
    session = get_session_id(call, given, options)
    if session is None:
        raise InvalidInput("This connection keeps no session: pass `session_id`.", argument="session_id")
    return session


async def read_start_time(call: ToolCall, stores: Sequence[RecordStore], session: str, options: MemoryOptions) -> int:
    """When the session began: its record is made with the first memory, and may be from a day
    before, where a later process goes on with it."""
    found = [record for store in stores for record in await store.get([session])]
    made = [record.created_at for record in found if record.kind == SESSION]
    return min([call.session.started_at or options.started_at, *made])


async def build_session_steps(store: RecordStore, session: str, client: str, at: int) -> list[Step]:
    """What makes the session's record where it is missing."""
    found = await store.get([session], include_deleted=True)
    if not found:
        facets = {"client": client} if client else {}
        return [Insert(Record(id=session, kind=SESSION, name_key=session, created_at=at, updated_at=at, facets=facets))]
    if found[0].kind != SESSION:
        raise InvalidInput(
            f'`session_id` is "{session}", which is the id of something else.', argument="session_id", value=session
        )
    return [] if found[0].deleted_at is None else [Restore(found[0].ref)]


async def read_session_memories(stores: Sequence[RecordStore], session: str, limit: int) -> list[Record]:
    """What the session has stored, newest first in each place, up to a limit in all."""
    where = RecordFilter(kinds=(MEMORY,), sessions=(session,))
    found: list[Record] = []
    for store in stores:
        if len(found) < limit:
            found += await store.scan(where, order="newest", limit=limit - len(found))
    return found


async def close_session(store: RecordStore, session: str, at: int, use: "SessionUse | None" = None) -> bool:
    """Writes what the session came to; says whether there was anything to write.

    Whoever comes second finds it written, unless something was stored since.
    """
    found = [record for record in await store.get([session]) if record.kind == SESSION]
    stored = await read_session_memories((store,), session, MAX_SUMMARIZED_MEMORIES) if found else []
    if not found or found[0].facets.get("ended_at", 0) > max((r.created_at for r in stored), default=0):
        return False
    # What nobody asked for tells nobody what a session was about.
    stated = [record for record in stored if not record.facets.get(AUTOMATIC)]
    counted = {"recalled": use.queries, "served": len(use.served)} if use else {}
    values = {
        "text": await asyncio.to_thread(format_session_summary, stated),
        "facets": {**found[0].facets, **counted, "ended_at": at},
    }
    try:
        await commit(store, Batch((Update(session, values, found[0].version),), at, CLOSING_TOOL))
    except Conflict:
        return False  # the other process of this session has written it
    return True


class SessionUse(Value, frozen=False):
    """What a session did while this process served it.

    `stored` is None until it was counted; what other processes store for the session since then
    is not in it. `stores` are the projects' that have something of it.
    """

    queries: int = 0
    served: set[str] = field(default_factory=set[str])
    stored: int | None = None
    stores: set[RecordStore] = field(default_factory=set[RecordStore])


class SessionUses:
    """How each session is used; it is no knowledge, so it lives as long as the process."""

    def __init__(self) -> None:
        # Two who call their sessions the same know nothing of each other.
        self._by_session: OrderedDict[tuple[Account | None, str], SessionUse] = OrderedDict()

    def count_recall(self, session: str | None, ids: Sequence[str]) -> None:
        if session is not None:
            use = self.get_use(session)
            use.queries += 1
            use.served.update(ids)

    async def close(self, at: int) -> None:
        """Writes what every session came to that stored something here."""
        for (account, session), use in list(self._by_session.items()):
            for store in list(use.stores):
                try:
                    with act_as(account):
                        await close_session(store, session, at, use)
                except EverkeptError:
                    continue  # an archived project, a full disk: the others get theirs

    def get_use(self, session: str) -> SessionUse:
        key = get_acting_account(), session
        use = self._by_session.setdefault(key, SessionUse())
        self._by_session.move_to_end(key)
        if len(self._by_session) > MAX_SESSIONS:
            self._by_session.popitem(last=False)
        return use
