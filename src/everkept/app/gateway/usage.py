"""How often tools are called: counted in memory, stored in batches."""

import asyncio
import logging
from collections.abc import Callable

from everkept.core.upstreams import Usage, UsageLog, summed
from everkept.errors import EverkeptError

INTERVAL = 2.0  # seconds between the first count and its being stored

log = logging.getLogger(__name__)


class BatchedUsage:
    """What a crash loses of it are the counts of two seconds.

    What cannot be stored waits for the next call, and is lost where that never can be either.
    """

    def __init__(self, stored: Callable[[], UsageLog]) -> None:
        """`stored` is asked for when there is something to store, and not before."""
        self._stored = stored
        self._waiting: list[Usage] = []
        # What is being stored would else be counted twice or not at all by who asks meanwhile.
        self._storing = asyncio.Lock()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False

    def note(self, tool: str, milliseconds: float, *, failed: bool, at: int) -> None:
        """One call. After the end nothing is counted any more."""
        if self._closing.is_set():
            return
        self._waiting.append(Usage(tool, 1, int(failed), milliseconds, milliseconds, at))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._store_later(), name="usage")

    async def now(self) -> list[Usage]:
        """With what is counted but not stored yet, the most called first and then by name."""
        async with self._storing:
            try:
                stored = await self._stored().usage()
            except EverkeptError as error:
                log.info("earlier calls cannot be counted: %s", error)
                stored = []
            return summed((*stored, *self._waiting))

    async def close(self) -> None:
        self._closing.set()
        if self._task is not None:
            await self._task
            self._task = None
        await self._store()

    async def _store_later(self) -> None:
        is_stored = True
        while self._waiting and is_stored:  # more may come while a batch is stored
            try:
                async with asyncio.timeout(INTERVAL):
                    await self._closing.wait()
                return  # who closes stores the rest
            except TimeoutError:
                is_stored = await self._store()

    async def _store(self) -> bool:
        async with self._storing:
            if not self._waiting:
                return True
            taken, batch = len(self._waiting), summed(self._waiting)
            try:
                await self._stored().add_usage(batch)
            except EverkeptError as error:
                self._waiting[:taken] = batch  # as few as there are tools, however long it lasts
                self._tell_once(error)
                return False
            del self._waiting[:taken]
            return True

    def _tell_once(self, error: EverkeptError) -> None:
        if not self._has_failed:
            log.warning("calls of the gateway are not counted on the disk: %s", error)
        self._has_failed = True
