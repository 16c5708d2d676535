"""What was asked: noted in memory, stored in batches."""

import asyncio
import logging

from recollect.core.ports import Library
from recollect.core.searching import Search
from recollect.errors import RecollectError

INTERVAL = 2.0  # seconds between the first note and its being stored

log = logging.getLogger(__name__)


class BatchedSearches:
    """What a crash loses of it are the questions of two seconds."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._waiting: list[Search] = []
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def note(self, search: Search) -> None:
        self._waiting.append(search)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._store_later(), name="searches")

    async def newest(self, *, session: str | None = None, limit: int = 100) -> list[Search]:
        waiting = [
            search
            for search in reversed(self._waiting)
            if session is None or search.session == session
        ]
        try:
            stored = await self._library.searches(session=session, limit=limit)
        except RecollectError as error:
            log.info("earlier searches cannot be read: %s", error)
            stored = []
        # What is being stored at this moment is in both.
        once = {(s.at, s.tool, s.query, s.session): s for s in (*waiting, *stored)}
        return sorted(once.values(), key=lambda search: -search.at)[:limit]

    async def close(self) -> None:
        self._closing.set()
        if self._task is not None:
            await self._task
            self._task = None

    async def _store_later(self) -> None:
        try:
            async with asyncio.timeout(INTERVAL):
                await self._closing.wait()
        except TimeoutError:
            pass
        while self._waiting:
            batch = list(self._waiting)
            try:
                await self._library.add_searches(batch)
            except RecollectError as error:
                log.info("searches are not kept: %s", error)  # whoever asked must not suffer for it
            finally:
                del self._waiting[: len(batch)]
