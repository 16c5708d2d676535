"""The two stores that a call reaches, and the commits that are made in them."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from recollect.core.ports import Library, ProjectChoice, RecordStore
from recollect.core.records import Batch, Record, Step
from recollect.core.sessions import Call
from recollect.core.times import Clock
from recollect.errors import Conflict, NotFound
from recollect.families.memories.identity import full_id
from recollect.families.memories.model import MEMORY

T = TypeVar("T")
Planned = tuple[list[Step], T]
Plan = Callable[[RecordStore, int], Awaitable[Planned[T]]]

ATTEMPTS = 20  # another process may commit between our reading and our writing


class Stores:
    """The project's store, with session and project memories, and the user's."""

    def __init__(
        self, choice: ProjectChoice, library: Library, call: Call, project: str | None, clock: Clock
    ) -> None:
        self._choice = choice
        self._library = library
        self._project = project
        self.clock = clock
        self.call = call

    async def user(self) -> RecordStore:
        return await self._library.user()

    async def project(self) -> RecordStore:
        """To read; one that is yet to be made is empty."""
        return await self._choice.to_read(self.call, self._project)

    async def to_write(self, scope: str) -> RecordStore:
        """Where memories of the scope live."""
        if scope == "user":
            return await self.user()
        return await self._choice.to_write(self.call, self._project)

    async def holding(self, memory_id: str) -> tuple[RecordStore, Record]:
        """Where the memory lives; after a promotion that a crash cut short, the broader one."""
        wanted = full_id(memory_id)
        forgotten: Record | None = None
        for store in (await self.user(), await self.project()):
            for record in await store.get([wanted], include_deleted=True):
                if record.kind == MEMORY and record.deleted_at is None:
                    return store, record
                forgotten = forgotten or record
        if forgotten is not None and forgotten.kind == MEMORY:
            raise _forgotten(forgotten)
        raise no_memory(memory_id)

    async def commit(self, store: RecordStore, plan: Plan[T]) -> T:
        """Reads one state, plans against it, commits; where the state has moved, plans again."""
        attempt = 0
        while True:
            attempt += 1
            at = self.clock()
            steps, answer = await plan(store, at)
            if not steps:
                return answer
            try:
                await store.commit(
                    Batch(tuple(steps), at, self.call.tool, self.call.session.client)
                )
            except Conflict:
                if attempt == ATTEMPTS:
                    raise
            else:
                return answer


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
        hint="recall_memories finds ids; a memory of another project needs `project`.",
    )


def _forgotten(record: Record) -> NotFound:
    return NotFound(
        MEMORY,
        record.id,
        message=f'Memory "{record.id}" is forgotten.',
        hint="recall_memories with include_forgotten still finds it.",
    )
