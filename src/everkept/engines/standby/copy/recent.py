"""What this process has just stored in the database, until the copy here has it.

The database may go before that. Of what other processes have stored nobody here can know.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from everkept.core.copies import Stock
from everkept.core.ports import Library, RecordStore
from everkept.core.records import Batch, Change, Insert, Record, Step, Update
from everkept.engines.planning import plan
from everkept.engines.standby.replay.looking import StoreView
from everkept.errors import Conflict, EverkeptError
from everkept.values import replace

MOST = 500  # commits, or acts
MOST_CHARACTERS = 8 * 1024 * 1024
_EACH = 500  # characters that a step counts for beside its text


class _Made(NamedTuple):
    change: Change
    batch: Batch
    size: int


class RecentCommits:
    """To one store, by the numbers that the database gave them."""

    def __init__(self) -> None:
        self._made: deque[_Made] = deque()
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._made)

    @property
    def is_filling(self) -> bool:
        """It is time that the copy follows: beyond the limits the oldest are given up."""
        return len(self._made) > MOST // 2 or self._size > MOST_CHARACTERS // 2

    def add(self, batch: Batch, change: Change) -> None:
        if not change.seq:  # nothing had to change
            return
        made = _Made(change, batch, sum(_size(step) for step in batch.steps))
        self._made.append(made)
        self._size += made.size
        while len(self._made) > MOST or self._size > MOST_CHARACTERS:
            self._drop(self._made[0])

    def followed(self, seq: int) -> None:
        """The copy has all of the database up to this change."""
        for made in [each for each in self._made if each.change.seq <= seq]:
            self._drop(made)

    def clear(self) -> None:
        self._made.clear()
        self._size = 0

    async def bring_to(self, here: RecordStore) -> None:
        """Only while nobody else changes the copy."""
        for made in sorted(self._made, key=lambda each: each.change.seq):
            with suppress(Conflict):  # what it builds on was never seen here
                await _put(made.batch, made.change, here)
            self._drop(made)

    def _drop(self, made: _Made) -> None:
        with suppress(ValueError):  # it was followed meanwhile
            self._made.remove(made)
            self._size -= made.size


class RecentActs:
    """To the library; each knows how to do it to another."""

    def __init__(self) -> None:
        self._done: deque[tuple[int, Callable[[Library], Awaitable[object]]]] = deque(maxlen=MOST)
        self.count = 0  # of all that there ever were

    def __bool__(self) -> bool:
        return bool(self._done)

    def add(self, act: Callable[[Library], Awaitable[object]]) -> None:
        self.count += 1
        self._done.append((self.count, act))

    def followed(self, count: int) -> None:
        """The copy has what was done when there were so many."""
        while self._done and self._done[0][0] <= count:
            self._done.popleft()

    async def bring_to(self, replica: Library) -> None:
        """Only while nobody else changes the copy."""
        for number, act in list(self._done):
            with suppress(EverkeptError):  # it is so already, or cannot be so here
                await act(replica)
            self.followed(number)


async def _put(batch: Batch, change: Change, here: RecordStore) -> None:
    """Under the number that it has in the database, where the log here has room for that."""
    if change.seq > await here.revision():
        view = StoreView(here)
        await view.read_ahead(batch.steps)
        planned = await plan(batch, view)
        things = list(planned.records.values()), list(planned.links.values())
        await here.restock(Stock(*things, changes=[change]))
        return
    known = await here.changes(after=change.seq - 1, limit=1)
    if [_named(each) for each in known] != [_named(change)]:
        await here.commit(replace(batch, revision=None))


def _named(change: Change) -> tuple[int, int, str, str]:
    return change.seq, change.at, change.tool, change.client


def _size(step: Step) -> int:
    match step:
        case Insert(Record() as record):
            return _EACH + len(record.text)
        case Update():
            return _EACH + len(str(step.values.get("text", "")))
        case _:
            return _EACH
