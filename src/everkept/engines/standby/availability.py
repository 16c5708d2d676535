"""Whether a database was ever reached from a folder: one with a mistyped address never is."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from everkept.core.conditions import Absence, Reachable
from everkept.core.disk import make_folder
from everkept.core.times import Clock
from everkept.errors import EverkeptError, StoreAway, StoreTooNew
from everkept.values import Value

MARK = "reached"  # the file that says so

UNACQUAINTED = "It was never reached from this folder: is the address right?"


class Acquaintance:
    """Known to all programs that use the folder, and beyond their lives."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / MARK
        self._is_made = False

    @property
    def is_made(self) -> bool:
        self._is_made = self._is_made or self._file.exists()
        return self._is_made

    def make(self) -> None:
        """It was reached."""
        if not self.is_made:
            self._is_made = True
            with suppress(OSError):  # a help, and no reason to refuse anything
                make_folder(self._file.parent)
                self._file.touch()


SCHEDULE = (0.0, 1.0, 2.0, 4.0, 8.0)  # seconds before each attempt, until it counts as degraded
EVERY = 30.0  # seconds between the attempts from then on
PATIENCE = 2.0  # seconds that writes wait for the first of them, in sum
READING = 0.5  # seconds that questions do: what was last seen is as good, and a search has a limit
# While writes are brought over, one may be added for so many that have gone: who adds to them
# faster would never see their end.
FOR_EACH = 2
MAKING_WAY = 4.0  # seconds after which one is added all the same

STILL_AWAY = (
    "The database is still away: %s It is tried again every %g seconds; what is stored meanwhile "
    "is kept on this machine."
)
STILL_BEHIND = (
    "The database answers, and what waits on this machine could not be brought over yet: %s It is "
    "tried again every %g seconds; what is stored meanwhile waits too."
)

Pause = Callable[[float], Awaitable[object]]

log = logging.getLogger(__name__)


class Pace(Value):
    """When it is tried again, and how long a call waits for that."""

    pause: Pause = asyncio.sleep
    schedule: Sequence[float] = SCHEDULE
    every: float = EVERY
    patience: float = PATIENCE
    reading: float = READING


class Reaching:
    """Knows whether it is there; when it is not, tries again until it is.

    `ask` asks something small of it. `bring_over` does what waited for its return; until that has
    called `arrived` it counts as away.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[object]],
        bring_over: Callable[[], Awaitable[None]],
        *,
        clock: Clock,
        pace: Pace,
        on_change: Callable[[], None],
        acquaintance: Acquaintance,
    ) -> None:
        self.ask = ask
        self.pause = pace.pause
        self._bring_over = bring_over
        self._clock = clock
        self._pace = pace
        self._on_change = on_change
        self._acquaintance = acquaintance
        self.status: Reachable = "connected"
        self.since: int | None = None
        self._reason = ""
        self.turns = 0  # how often it went or came
        self._too_new: StoreTooNew | None = None  # how a newer program has left it, if one has
        self._is_told = False  # that it is away
        self._is_closed = False
        self._grace = asyncio.Event()  # set where nobody waits for the next attempt
        self._grace.set()
        self._first = asyncio.Event()  # set where no question waits for it
        self._first.set()
        self._is_bringing = False
        self._line: deque[asyncio.Event] = deque()  # who would add to what is brought over
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_connected(self) -> bool:
        return self.status == "connected"

    @property
    def reason(self) -> str:
        """Why it is away, and whether it ever was there."""
        is_away = self._is_told and not self._is_bringing
        return f"{self._reason} {UNACQUAINTED}" if is_away and self.is_unknown else self._reason

    @property
    def is_unknown(self) -> bool:
        """It is away, and was never reached from this folder."""
        return not self.is_connected and not self._acquaintance.is_made

    @property
    def absence(self) -> Absence:
        """For who was answered by another: whoever was never lost has only things to catch up."""
        is_catching_up = self._is_bringing or not self._is_told
        return Absence(self.since, is_catching_up, self.is_unknown)

    async def is_there(self) -> bool:
        """Waits where it has just gone: the next attempt may be the last that is needed."""
        await self._grace.wait()
        return self.is_connected

    async def is_there_now(self) -> bool:
        """Waits for the attempt that is made at once, and no longer."""
        await self._first.wait()
        return self.is_connected

    async def make_way(self) -> None:
        """Before something is added to what waits."""
        if self._is_bringing:
            turn = asyncio.Event()
            self._line.append(turn)
            try:
                await first_of(turn.wait(), self._pace.pause(MAKING_WAY))
            finally:
                with suppress(ValueError):
                    self._line.remove(turn)

    def went(self, count: int) -> None:
        """So many of what waits were brought over."""
        self._let_pass(count // FOR_EACH)

    def lost(self, error: StoreAway) -> None:
        """It was found to be away."""
        if self.is_connected:
            self._leave(error.message)
            self._tell_once()

    def catch_up(self, reason: str) -> None:
        """Something waits to be brought over: until that is done it counts as away."""
        if self.is_connected:
            self._leave(reason)

    def outgrown(self, error: StoreTooNew) -> None:
        """It is there, and this program is too old for it: nobody waits for another attempt."""
        self._too_new = error
        self._grace.set()
        self._first.set()

    def fitted(self) -> None:
        """It has answered: whatever a newer program had done to it is so no more."""
        self._too_new = None
        self._acquaintance.make()

    def expect_fitting(self) -> None:
        """Raises StoreTooNew: to be too old for a database is not the same as to be without it."""
        if (error := self._too_new) is not None:
            raise StoreTooNew(error.message, hint=error.hint, **error.facts)

    def arrived(self, brought: str) -> None:
        """It is there, and nothing waits any more; `brought` says what was."""
        if self._is_told:
            log.warning("The database is back; %s.", brought)
        self._is_told = False
        self.since, self._reason = None, ""
        self._set("connected")
        self._grace.set()
        self._first.set()

    async def close(self) -> None:
        """Whoever waits is answered as if it were away."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._grace.set()
        self._first.set()

    def _leave(self, reason: str) -> None:
        self.since, self._reason = self._clock(), reason
        self._set("reconnecting")
        if self._is_closed:
            return
        self._grace, self._first = asyncio.Event(), asyncio.Event()
        self._start(self._set_after(self._pace.patience, self._grace))
        self._start(self._set_after(self._pace.reading, self._first))
        self._start(self._regain())

    async def _set_after(self, seconds: float, event: asyncio.Event) -> None:
        await self._pace.pause(seconds)
        event.set()

    async def _regain(self) -> None:
        waits = chain(self._pace.schedule, repeat(self._pace.every))
        for attempt, wait in enumerate(waits):
            if attempt == len(self._pace.schedule):
                self._set("degraded")
                log.warning(
                    STILL_AWAY if self._is_told else STILL_BEHIND, self.reason, self._pace.every
                )
            if wait:
                await self._pace.pause(wait)
            if await self._is_regained():
                return
            self._first.set()

    async def _is_regained(self) -> bool:
        try:
            await self.ask()
            self.fitted()
            self._is_bringing = True
            await self._bring_over()
        except EverkeptError as error:
            self._reason = error.message
            if isinstance(error, StoreAway):
                self._tell_once()
            if isinstance(error, StoreTooNew):
                self.outgrown(error)
        except Exception as error:
            # Whatever it is, the next attempt may go well, and nobody else would make it.
            self._reason = f"{type(error).__name__}: {error}"
            log.exception("the attempt to reach the database failed")
        finally:
            self._is_bringing = False
            self._let_pass(len(self._line))
        return self.is_connected

    def _let_pass(self, count: int) -> None:
        for _ in range(min(count, len(self._line))):
            self._line.popleft().set()

    def _tell_once(self) -> None:
        if not self._is_told:
            self._is_told = True
            log.warning("The database cannot be reached: %s It is tried again.", self.reason)

    def _set(self, status: Reachable) -> None:
        if self.status != status:
            self.turns += "connected" in (self.status, status)
            self.status = status
            self._on_change()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="reaching")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def first_of(*awaited: Awaitable[object]) -> None:
    """Ends with the first of them, and ends the others."""
    tasks = [asyncio.ensure_future(each) for each in awaited]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
