"""What goes on whoever has asked for it: an attempt that several share, a work of its own."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from everkept.engines.surreal.connecting.connection import Contended
from everkept.errors import StoreBusy

T = TypeVar("T")

ATTEMPTS = 60
LONGEST_PAUSE = 0.2  # seconds between attempts


class Attempt(Generic[T]):
    """One at a time. Who waits for it may go: it goes on for the others."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._begin = begin
        self._task: asyncio.Task[T] | None = None

    async def join(self) -> T:
        """Begins one, unless one is under way; all who join it see it end the same way."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._begin())
            self._task.add_done_callback(observed)
        return await asyncio.shield(self._task)

    async def settle(self, patience: float) -> None:
        """Waits for one that is under way, so many seconds; then it is cancelled."""
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=patience)
        self._task.cancel()
        await asyncio.wait({self._task})


class Work(Generic[T]):
    """In a task of its own. Once it has begun nobody stops it in the middle: its asker may go."""

    def __init__(self, do: "Callable[[Work[T]], Coroutine[Any, Any, T]]") -> None:
        """`do` says by `has_begun` from when on it matters that it ends."""
        self.has_begun = False
        self.task = asyncio.create_task(do(self))
        self.task.add_done_callback(observed)

    async def ended(self, patience: float) -> bool:
        """Waits so many seconds. What has not begun by then, or when its asker goes, never will."""
        try:
            await asyncio.wait({self.task}, timeout=patience)
        finally:
            if not self.has_begun:
                self.task.cancel()
        return self.task.done()


def observed(task: "asyncio.Future[Any]") -> None:
    """For add_done_callback: whoever waited may have gone, and no warning is due."""
    if not task.cancelled():
        task.exception()


async def retried(work: Callable[[], Awaitable[T]]) -> T:
    """Attempts it until no other transaction comes in between."""
    for attempt in range(ATTEMPTS):
        try:
            return await work()
        except Contended:
            pause = min(LONGEST_PAUSE, 0.002 * 2 ** min(attempt, 10))
            await asyncio.sleep(random.uniform(0, pause))
    raise StoreBusy("Other processes keep writing to the database.", hint="Try again.")
