"""The two stores that a call reaches, and the commits that are made in them."""

import asyncio

from everkept.core.commits import Plan, T, Writer, is_writable
from everkept.core.conditions import Condition
from everkept.core.ports import Library, ProjectChoice, RecordStore
from everkept.core.records import SESSION_SCOPE, Record
from everkept.core.sessions import Call
from everkept.core.times import Clock
from everkept.errors import NotFound
from everkept.families.memories.identity import full_id
from everkept.families.memories.model import MEMORY, MERGED_INTO

MOST_MERGES = 10  # that an old id is followed through


class Stores:
    """The project's store, with session and project memories, and the user's, which holds the
    session memories of an account that may not write in the project.

    With a `session`, the session memories of others are out of reach.
    """

    def __init__(
        self,
        choice: ProjectChoice,
        library: Library,
        call: Call,
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
        self.writer = Writer(clock, call.tool, call.session.client)

    @property
    def condition(self) -> Condition:
        """What everything is kept in, and how that is doing."""
        return self._library.condition

    async def user(self) -> RecordStore:
        return await self._library.user()

    async def project(self) -> RecordStore:
        """To read; one that is yet to be made is empty. The call means the same one throughout."""
        async with self._opening:
            if self._opened is None:
                self._opened = await self._choice.to_read(self.call, self._project)
            return self._opened

    async def to_write(self, scope: str) -> RecordStore:
        """Where memories of the scope live."""
        if scope == "user":
            return await self.user()
        store = self._opened = await self._choice.to_write(self.call, self._project)
        # Whoever may only read in a project has a conversation there all the same.
        return await self.user() if scope == SESSION_SCOPE and not is_writable(store) else store

    async def holding(self, memory_id: str) -> tuple[RecordStore, Record]:
        """Where the memory lives; after a promotion that a crash cut short, the broader one."""
        store, record = await self.finding(memory_id)
        if record.deleted_at is not None:
            raise _forgotten(record)
        return store, record

    async def finding(self, memory_id: str) -> tuple[RecordStore, Record]:
        """Forgotten ones too; what was merged into another is that other one."""
        wanted = full_id(memory_id)
        for _ in range(MOST_MERGES):
            found = await self._having(wanted)
            if found is None:
                break
            into = found[1].facets.get(MERGED_INTO)
            if into is None or found[1].deleted_at is None:
                return found
            wanted = into
        raise no_memory(memory_id)

    async def commit(self, store: RecordStore, plan: Plan[T]) -> T:
        return await self.writer.commit(store, plan)

    async def _having(self, memory_id: str) -> tuple[RecordStore, Record] | None:
        found = [
            (store, record)
            for store in (await self.user(), await self.project())
            for record in await store.get([memory_id], include_deleted=True)
            if record.kind == MEMORY and self._reaches(record)
        ]
        live = (pair for pair in found if pair[1].deleted_at is None)
        return next(live, found[0] if found else None)

    def _reaches(self, record: Record) -> bool:
        return record.scope != SESSION_SCOPE or self._session in (None, record.session)


async def still_there(store: RecordStore, memory_id: str) -> Record:
    """The memory as it is now, for a plan that is made again."""
    found = await store.get([memory_id])
    if not found:
        raise no_memory(memory_id)
    return found[0]


def no_memory(memory_id: str) -> NotFound:
    return NotFound(
        MEMORY,
        memory_id,
        hint="recall_memories, or `everkept list`, finds ids; a memory of another project needs "
        "`project`.",
    )


def _forgotten(record: Record) -> NotFound:
    return NotFound(
        MEMORY,
        record.id,
        message=f'Memory "{record.id}" is forgotten.',
        hint="recall_memories with include_forgotten still finds it.",
    )
