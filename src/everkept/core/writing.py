"""Committing what was planned against one state, and planning again where the state has moved."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Step
from everkept.core.times import Clock
from everkept.core.touching import touched
from everkept.errors import Conflict, Refused
from everkept.values import Value

T = TypeVar("T")
Planned = tuple[list[Step], T]
Plan = Callable[[RecordStore, int], Awaitable[Planned[T]]]

ATTEMPTS = 20  # another process may commit between our reading and our writing


@runtime_checkable
class Restricted(Protocol):
    """A store that not everybody who reads it may write."""

    def check_writable(self) -> None:
        """Raises what a commit would."""
        ...


def check_writable(store: RecordStore) -> None:
    """For whoever commits elsewhere first, and would leave that behind where this is refused."""
    if isinstance(store, Restricted):
        store.check_writable()


def is_writable(store: RecordStore) -> bool:
    try:
        check_writable(store)
    except Refused:
        return False
    return True


class Writer(Value):
    """Commits in the name of one tool and client."""

    clock: Clock
    tool: str
    client: str = ""

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
                await self.once(store, steps, at)
            except Conflict:
                if attempt == ATTEMPTS:
                    raise
            else:
                return answer

    async def once(self, store: RecordStore, steps: Sequence[Step], at: int) -> None:
        change = await store.commit(Batch(tuple(steps), at, self.tool, self.client))
        touched(edit.id for edit in change.edits)
