"""The commit loop: read a state, plan against it, commit, and plan again if the state has moved.

Every write of a family, an import, an undo or a replay goes through `commit`, which records what
the call touched.
"""

import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar, runtime_checkable

from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Change, Step
from everkept.core.times import Clock
from everkept.errors import Conflict, Refused
from everkept.values import Value, field


class Touched(Value, frozen=False):
    """Of one call: the ids of records and links, each once, in the order in which they came."""

    ids: dict[str, None] = field(default_factory=dict[str, None])
    is_over: bool = False


_touched: ContextVar[Touched | None] = ContextVar("touched", default=None)


@contextmanager
def touching() -> Generator[Touched, None, None]:
    """Whatever is said to be touched within, in tasks of its own too, is in what this gives."""
    noted = Touched()
    token = _touched.set(noted)
    try:
        yield noted
    finally:
        noted.is_over = True  # for what goes on in tasks of its own
        _touched.reset(token)


def touched(ids: Iterable[str | None]) -> None:
    """Said where records are given out in an answer that may not name their ids, and where some
    are changed; costs nothing where nobody notes it."""
    noted = _touched.get()
    if noted is not None and not noted.is_over:
        noted.ids.update((each, None) for each in ids if each)


T = TypeVar("T")
Planned = tuple[list[Step], T]
Plan = Callable[[RecordStore, int], Awaitable[Planned[T]]]

ATTEMPTS = 100  # other processes may commit between our reading and our writing

log = logging.getLogger(__name__)


async def commit(store: RecordStore, batch: Batch) -> Change:
    """Commit one batch and record what it touched. Raise Conflict if the state has moved.

    Derived records follow from files, so they are not what the caller changed.
    """
    change = await store.commit(batch)
    if not batch.derived:
        touched(edit.id for edit in change.edits)
    return change


async def retry(
    attempt: Callable[[], Awaitable[T]],
    what: str | None = None,
    *,
    again: Callable[[], Awaitable[bool]] | None = None,
) -> T:
    """Call `attempt`, which reads the store again each time, until it raises no Conflict.

    `again` says after a Conflict whether another attempt has a chance. After the last one the
    Conflict says that others keep changing `what`, or is the last one itself.
    """
    for left in reversed(range(ATTEMPTS)):
        try:
            return await attempt()
        except Conflict as conflict:
            log.debug("another writer was faster: %s", conflict)
            if again is not None and not await again():
                raise
            if not left and what is None:
                raise
    raise Conflict(f"Others keep changing {what}.", hint="Try again when they have finished.")


class Writer(Value):
    """Commits in the name of one tool and client."""

    clock: Clock
    tool: str
    client: str = ""

    async def commit(self, store: RecordStore, plan: Plan[T]) -> T:
        """Plan and commit until the state does not move in between."""
        return await retry(lambda: self.attempt(store, plan))

    async def attempt(self, store: RecordStore, plan: Plan[T]) -> T:
        """Plan and commit once. Raise Conflict if the state has moved in between."""
        at = self.clock()
        steps, answer = await plan(store, at)
        if steps:
            await self.once(store, steps, at)
        return answer

    async def once(self, store: RecordStore, steps: Sequence[Step], at: int) -> Change:
        return await commit(store, Batch(tuple(steps), at, self.tool, self.client))


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
