"""Counts of what was recalled, searched and called: kept in memory, stored in batches."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from everkept.core.answers import KEPT_SEARCHES, Search
from everkept.core.commits import touched
from everkept.core.mcp import Usage, UsageLog, summed
from everkept.core.ports import Access, Library, RecordStore
from everkept.core.sessions import Account, acting, acting_as, sessions_of
from everkept.core.times import Clock
from everkept.errors import EverkeptError
from everkept.values import replace

ACCESS_SECONDS = 2.0  # seconds between the first count and its being stored

log = logging.getLogger(__name__)


class BatchedAccesses:
    """What a crash loses of it are the counts of two seconds, and no memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[RecordStore, Counter[str]] = {}
        self._task: asyncio.Task[None] | None = None

    def note(self, store: RecordStore, ids: Sequence[str]) -> None:
        if not ids:
            return
        touched(ids)
        self._counts.setdefault(store, Counter()).update(ids)
        if self._task is None or self._task.done():
            with acting_as(None):
                self._task = asyncio.create_task(self._store_later(), name="accesses")

    async def of(self, store: RecordStore, ids: Sequence[str]) -> Mapping[str, Access]:
        known = dict(await store.accesses(ids))
        waiting = self._counts.get(store, Counter())
        for record_id in ids:
            if count := waiting[record_id]:
                stored = known.get(record_id, Access(0, 0))
                known[record_id] = Access(stored.count + count, self._clock())
        return known

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._flush()

    async def _store_later(self) -> None:
        await asyncio.sleep(ACCESS_SECONDS)
        await self._flush()

    async def _flush(self) -> None:
        while self._counts:
            store, counts = self._counts.popitem()
            try:
                await store.note_accesses(counts, self._clock())
            except EverkeptError as error:
                log.info("accesses are not counted: %s", error)  # a reader must not suffer for it


SEARCH_SECONDS = 2.0  # seconds between the first note and its being stored


class BatchedSearches:
    """What a crash loses of it are the questions of two seconds.

    An account's are kept under sessions that say whose they are; it sees its own alone.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._waiting: list[Search] = []
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def note(self, search: Search) -> None:
        account = acting()
        if account is not None:
            search = replace(search, session=_session_of(account, search.session))
        self._waiting.append(search)
        if self._task is None or self._task.done():
            with acting_as(None):
                self._task = asyncio.create_task(self._store_later(), name="searches")

    async def newest(self, *, session: str | None = None, limit: int = 100) -> list[Search]:
        account = acting()
        if account is None:
            return await self._newest(session, limit)
        if session is not None:
            found = await self._newest(_session_of(account, session), limit)
        else:
            every = await self._newest(None, KEPT_SEARCHES)
            found = [s for s in every if (s.session or "").startswith(_session_of(account, None))]
        return [_as_asked(search, account) for search in found[:limit]]

    async def _newest(self, session: str | None, limit: int) -> list[Search]:
        waiting = [
            search
            for search in reversed(self._waiting)
            if session is None or search.session == session
        ]
        try:
            stored = await self._library.searches(session=session, limit=limit)
        except EverkeptError as error:
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
            async with asyncio.timeout(SEARCH_SECONDS):
                await self._closing.wait()
        except TimeoutError:
            pass
        while self._waiting:
            batch = list(self._waiting)
            try:
                await self._library.add_searches(batch)
            except EverkeptError as error:
                log.info("searches are not kept: %s", error)  # whoever asked must not suffer for it
            finally:
                del self._waiting[: len(batch)]


def _session_of(account: Account, session: str | None) -> str:
    return sessions_of(account.name) + (session or "")


def _as_asked(search: Search, account: Account) -> Search:
    own = (search.session or "").removeprefix(_session_of(account, None))
    return replace(search, session=own or None)


INTERVAL = 2.0  # seconds between the first count and its being stored


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
