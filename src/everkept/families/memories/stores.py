"""Stores and session of a call, and the commits in them."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from everkept.core.commits import ChangeWriter, Plan, Planned, T, is_writable
from everkept.core.library import Condition
from everkept.core.ports import Library, ProjectChoice, RecordStore
from everkept.core.records import SESSION_SCOPE, Insert, Record, RecordFilter, Restore, Step, Update
from everkept.core.sessions import Account, ToolCall, act_as, choose_conversation, get_acting_account
from everkept.core.times import Clock
from everkept.errors import Conflict, EverkeptError, InvalidInput, NotFound
from everkept.families.memories.likeness import format_session_summary
from everkept.families.memories.memory_identity import MEMORY_PREFIX, add_prefix
from everkept.families.memories.model import AUTOMATIC, MEMORY, MERGED_INTO, PROMOTED_FACET, SESSION, MemoryOptions
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
        # A command of the owner sees the memories of all sessions.
        self._session = NO_SESSION if session is None and get_acting_account() is not None else session
        self._opened: RecordStore | None = None
        self._opening = asyncio.Lock()
        self.clock = clock
        self.call = call
        self.writer = ChangeWriter(clock, call.tool, call.session.client)

    @property
    def library(self) -> Library:
        """Return the library, which shows only what the account may read."""
        return self._library

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
            found = await self._search_stores(wanted) or await self._search_by_prefix(memory_id)
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
            if self._is_visible(record)
        ]
        live = (pair for pair in found if pair[1].deleted_at is None)
        return next(live, found[0] if found else None)

    async def _search_by_prefix(self, typed: str) -> tuple[RecordStore, Record] | None:
        from everkept.core.short_ids import require_one_id

        stores = (await self.open_user(), await self.open_project())
        found = await find_memories_by_prefix(stores, typed)
        meant = require_one_id(MEMORY, typed, [record for _, record in found if self._is_visible(record)])
        return None if meant is None else await self._search_stores(meant)

    def _is_visible(self, record: Record) -> bool:
        is_seen = record.scope != SESSION_SCOPE or self._session in (None, record.session)
        return record.kind == MEMORY and is_seen


async def find_memories_by_prefix(stores: Sequence[RecordStore], typed: str) -> list[tuple[RecordStore, Record]]:
    """Return the memories whose id begins with the typed text. Case does not matter in ids that Everkept creates."""
    from everkept.core.short_ids import find_by_prefix

    typed = typed.strip()
    found = await find_by_prefix(stores, typed, (MEMORY_PREFIX,), (MEMORY,))
    capital = MEMORY_PREFIX + typed.removeprefix(MEMORY_PREFIX).upper()
    return found or await find_by_prefix(stores, capital, (MEMORY_PREFIX,), (MEMORY,))


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
STARTED_FACET = "started_at"  # of a session's record, if it is older than the record
MAX_COUNTED_MEMORIES = 10_000  # of one session in each store; more are not counted
MAX_SUMMARIZED_MEMORIES = 500  # there is only a second for it
MAX_SESSIONS = 1_000  # sessions whose use is counted; no process has more clients at the same time


def get_session_id(call: ToolCall, given: str | None, options: MemoryOptions) -> str | None:
    """Return the session of the call, or None if the connection has no session."""
    return choose_conversation(call.session, given, options.session_id)


def require_session_id(call: ToolCall, given: str | None, options: MemoryOptions) -> str:
    session = get_session_id(call, given, options)
    if session is None:
        raise InvalidInput("This connection has no session.", hint="Pass `session_id`.", argument="session_id")
    return session


def get_own_start(call: ToolCall, session: str | None, options: MemoryOptions) -> int | None:
    """Return when this process began to serve the session, or None if the session is another one."""
    is_own = session is not None and session == get_session_id(call, None, options)
    return (call.session.started_at or options.started_at or None) if is_own else None


async def find_session(stores: Sequence[RecordStore], session: str) -> list[Record]:
    """Return the records of the session, which may be older than this process."""
    return [record for store in stores for record in await store.get([session]) if record.kind == SESSION]


def get_recorded_start(record: Record) -> int:
    return record.facets.get(STARTED_FACET, record.created_at)


async def build_session_steps(
    store: RecordStore, session: str, client: str, at: int, began: int | None = None
) -> list[Step]:
    """Return steps that create the session's record if it is missing, or correct its start."""
    found = await store.get([session], include_deleted=True)
    began = at if began is None else min(began, at)
    if not found:
        facets = {"client": client} if client else {}
        facets |= {STARTED_FACET: began} if began < at else {}
        return [Insert(Record(id=session, kind=SESSION, name_key=session, created_at=at, updated_at=at, facets=facets))]
    record = found[0]
    if record.kind != SESSION:
        raise InvalidInput(
            f'`session_id` is "{session}", which is the id of another record.',
            hint="Choose another session id.",
            argument="session_id",
            value=session,
        )
    if record.deleted_at is not None:
        return [Restore(record.ref)]
    if began < get_recorded_start(record):
        return [Update(session, {"facets": {**record.facets, STARTED_FACET: began}}, record.version)]
    return []


class SessionMemories(Value):
    """All that a session has stored, the newest first. What was promoted or forgotten since then still counts."""

    records: Sequence[Record]

    @property
    def live(self) -> list[Record]:
        return [record for record in self.records if record.deleted_at is None]

    @property
    def promoted(self) -> int:
        return sum(PROMOTED_FACET in record.facets for record in self.records)

    @property
    def forgotten(self) -> int:
        return sum(r.deleted_at is not None and MERGED_INTO not in r.facets for r in self.records)

    @property
    def changed_at(self) -> int:
        return max((max(r.updated_at, r.deleted_at or 0) for r in self.records), default=0)

    def format_since(self) -> list[str]:
        counts = {"promoted": self.promoted, "forgotten": self.forgotten}
        return [f"{count} {name}" for name, count in counts.items() if count]


async def read_all_of_session(stores: Sequence[RecordStore], session: str) -> SessionMemories:
    """Read the memories that the session stored. The user's store comes last and has the promoted ones."""
    where = RecordFilter(kinds=(MEMORY,), sessions=(session,), deleted=None)
    found: dict[str, Record] = {}
    for store in stores:
        some = await store.scan(where, order="newest", limit=MAX_COUNTED_MEMORIES)
        found |= {record.id: record for record in some}
    return SessionMemories(sorted(found.values(), key=lambda record: record.id, reverse=True))


def compute_start(records: Sequence[Record], stored: SessionMemories, own: int | None) -> int:
    """Return when the session began, by its records and the start of this process, otherwise by its memories."""
    starts = [get_recorded_start(record) for record in records] + ([] if own is None else [own])
    return min(starts or [record.created_at for record in stored.records], default=0)


async def is_known_session(stores: Sequence[RecordStore], session: str) -> bool:
    """Return whether the session ever stored something, even if that was forgotten since."""
    where = RecordFilter(kinds=(MEMORY,), sessions=(session,), deleted=None)
    for store in stores:
        found = await store.get([session], include_deleted=True)
        if any(record.kind == SESSION for record in found) or await store.count_records(where):
            return True
    return False


async def close_session(
    store: RecordStore, session: str, at: int, use: "SessionUse | None" = None, user: RecordStore | None = None
) -> bool:
    """Write the summary of the session, unless it is already up to date. Return whether it was written.

    Numbers of recalls are added to those of earlier processes.
    """

    async def plan(store: RecordStore, _at: int) -> Planned[bool]:
        found = await find_session((store,), session)
        if not found:
            return [], False
        stored = await read_all_of_session([each for each in (store, user) if each is not None], session)
        facets = found[0].facets
        if facets.get("ended_at", 0) > stored.changed_at and not (use and use.queries):
            return [], False
        # Automatic memories do not show what a session was about.
        stated = [record for record in stored.live if not record.facets.get(AUTOMATIC)][:MAX_SUMMARIZED_MEMORIES]
        told = await asyncio.to_thread(format_session_summary, stored.records, stated, stored.format_since())
        changed = {**facets, **(use.add_to(facets) if use else {}), "ended_at": at}
        return [Update(session, {"text": told, "facets": changed}, found[0].version)], True

    try:
        written = await ChangeWriter(lambda: at, CLOSING_TOOL).commit(store, plan)
    except Conflict:
        return False  # other processes of this session keep writing it
    return written


class SessionUse(Value, frozen=False):
    """Activity of a session while this process served it.

    `stored` is None until it is counted; later memories from other processes are not included. `stores` are the project
    stores with memories of the session.
    """

    queries: int = 0
    served: set[str] = field(default_factory=set[str])
    stored: int | None = None
    stores: set[RecordStore] = field(default_factory=set[RecordStore])
    user: RecordStore | None = None  # the store of the user's memories

    def add_to(self, facets: Mapping[str, Any]) -> dict[str, int]:
        """Return the numbers of recalls together with those of earlier processes, which the facets have."""
        return {
            "recalled": facets.get("recalled", 0) + self.queries,
            "served": facets.get("served", 0) + len(self.served),
        }


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
                        await close_session(store, session, at, use, use.user)
                except EverkeptError:
                    continue  # an archived project or a full disk must not stop the others

    def get_use(self, session: str) -> SessionUse:
        key = get_acting_account(), session
        use = self._by_session.setdefault(key, SessionUse())
        self._by_session.move_to_end(key)
        if len(self._by_session) > MAX_SESSIONS:
            self._by_session.popitem(last=False)
        return use
