"""Stores and session of a call, and the commits in them."""

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

MAX_MERGES = 10  # steps from an old id to the memory it was merged into


class MemoryStores:
    """Project store, with session and project memories, and user store.

    The user store also holds the session memories of an account without write access to the project. With a `session`,
    the session memories of other sessions are hidden.
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

        return self._library.condition

    async def open_user(self) -> RecordStore:
        return await self._library.open_user_store()

    async def open_project(self) -> RecordStore:
        """Open the project store to read, once per call. A project that does not exist yet is empty."""
        async with self._opening:
            if self._opened is None:
                self._opened = await self._choice.open_to_read(self.call, self._project)
            return self._opened

    async def open_for_write(self, scope: str) -> RecordStore:
        """Open the store for memories of the scope."""
        if scope == "user":
            return await self.open_user()
        store = self._opened = await self._choice.open_to_write(self.call, self._project)
        # An account with read-only access to a project can still have a session there.
        return await self.open_user() if scope == SESSION_SCOPE and not is_writable(store) else store

    async def find_live_memory(self, memory_id: str) -> tuple[RecordStore, Record]:
        """Find a memory and its store. After an interrupted promotion, return the one with the wider scope."""
        store, record = await self.find_memory(memory_id)
        if record.deleted_at is not None:
            raise _build_forgotten(record)
        return store, record

    async def find_memory(self, memory_id: str) -> tuple[RecordStore, Record]:
        """Find a memory, even a forgotten one. If it was merged into another, return that one."""
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
            if record.kind == MEMORY and (record.scope != SESSION_SCOPE or self._session in (None, record.session))
        ]
        live = (pair for pair in found if pair[1].deleted_at is None)
        return next(live, found[0] if found else None)


async def read_live_memory(store: RecordStore, memory_id: str) -> Record:
    """Return the current state of the memory, for a plan that may be repeated."""
    found = await store.get([memory_id])
    if not found:
        raise build_not_found(memory_id)
    return found[0]


def build_not_found(memory_id: str) -> NotFound:
    return NotFound(
        MEMORY, memory_id, hint="Find ids with recall_memories. For a memory in another project, pass `project`."
    )


def _build_forgotten(record: Record) -> NotFound:
    return NotFound(
        MEMORY,
        record.id,
        message=f'Memory "{record.id}" is forgotten.',
        hint="To see it, call recall_memories with include_forgotten. To restore it, undo the change that forgot it.",
    )


NO_SESSION = ""  # no session: hides the session memories of all sessions
CLOSING_TOOL = "session_end"  # in the change log
MAX_SUMMARIZED_MEMORIES = 500  # the newest; there is only a second for it
MAX_SESSIONS = 1_000  # sessions whose use is counted; no process has more clients at the same time


def get_session_id(call: ToolCall, given: str | None, options: MemoryOptions) -> str | None:
    """Return the session of the call, or None if the connection has no session."""
    return choose_conversation(call.session, given, options.session_id)


def require_session_id(call: ToolCall, given: str | None, options: MemoryOptions) -> str:
    session = get_session_id(call, given, options)
    if session is None:
        raise InvalidInput("This connection has no session.", hint="Pass `session_id`.", argument="session_id")
    return session


async def read_start_time(call: ToolCall, stores: Sequence[RecordStore], session: str, options: MemoryOptions) -> int:
    """Return when the session began. Its record may be older than this process, which can continue a session."""
    found = [record for store in stores for record in await store.get([session])]
    made = [record.created_at for record in found if record.kind == SESSION]
    return min([call.session.started_at or options.started_at, *made])


async def build_session_steps(store: RecordStore, session: str, client: str, at: int) -> list[Step]:
    """Return steps that create the session's record if it is missing."""
    found = await store.get([session], include_deleted=True)
    if not found:
        facets = {"client": client} if client else {}
        return [Insert(Record(id=session, kind=SESSION, name_key=session, created_at=at, updated_at=at, facets=facets))]
    if found[0].kind != SESSION:
        raise InvalidInput(
            f'`session_id` is "{session}", which is the id of another record.',
            hint="Choose another session id.",
            argument="session_id",
            value=session,
        )
    return [] if found[0].deleted_at is None else [Restore(found[0].ref)]


async def read_session_memories(stores: Sequence[RecordStore], session: str, limit: int) -> list[Record]:
    """Return the session's memories, newest first in each store, up to a limit in total."""
    where = RecordFilter(kinds=(MEMORY,), sessions=(session,))
    found: list[Record] = []
    for store in stores:
        if len(found) < limit:
            found += await store.scan(where, order="newest", limit=limit - len(found))
    return found


async def is_known_session(stores: Sequence[RecordStore], session: str) -> bool:
    """Return whether the session ever stored something, even if that was forgotten since."""
    where = RecordFilter(kinds=(MEMORY,), sessions=(session,), deleted=None)
    for store in stores:
        found = await store.get([session], include_deleted=True)
        if any(record.kind == SESSION for record in found) or await store.count_records(where):
            return True
    return False


async def close_session(store: RecordStore, session: str, at: int, use: "SessionUse | None" = None) -> bool:
    """Write the summary of the session, unless it is already up to date. Return whether it was written."""
    found = [record for record in await store.get([session]) if record.kind == SESSION]
    stored = await read_session_memories((store,), session, MAX_SUMMARIZED_MEMORIES) if found else []
    if not found or found[0].facets.get("ended_at", 0) > max((r.created_at for r in stored), default=0):
        return False
    # Automatic memories do not show what a session was about.
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
    """Activity of a session while this process served it.

    `stored` is None until it is counted; later memories from other processes are not included. `stores` are the project
    stores with memories of the session.
    """

    queries: int = 0
    served: set[str] = field(default_factory=set[str])
    stored: int | None = None
    stores: set[RecordStore] = field(default_factory=set[RecordStore])


class SessionUses:
    """Activity of each session, kept in memory only, because it is statistics."""

    def __init__(self) -> None:
        # Sessions of different accounts with the same id are separate.
        self._by_session: OrderedDict[tuple[Account | None, str], SessionUse] = OrderedDict()

    def count_recall(self, session: str | None, ids: Sequence[str]) -> None:
        if session is not None:
            use = self.get_use(session)
            use.queries += 1
            use.served.update(ids)

    async def close(self, at: int) -> None:
        """Write the summary of every session that stored something here."""
        for (account, session), use in list(self._by_session.items()):
            for store in list(use.stores):
                try:
                    with act_as(account):
                        await close_session(store, session, at, use)
                except EverkeptError:
                    continue  # an archived project or a full disk must not stop the others

    def get_use(self, session: str) -> SessionUse:
        key = get_acting_account(), session
        use = self._by_session.setdefault(key, SessionUse())
        self._by_session.move_to_end(key)
        if len(self._by_session) > MAX_SESSIONS:
            self._by_session.popitem(last=False)
        return use
