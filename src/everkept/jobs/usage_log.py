"""Counts of what was recalled, searched and called: kept in memory, stored in batches."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from everkept.core.answers import MAX_SEARCHES, SearchRecord
from everkept.core.commits import note_touched
from everkept.core.mcp import ToolUsage, UsageLog, sum_usage
from everkept.core.ports import AccessCount, Library, RecordStore
from everkept.core.sessions import Account, act_as, format_session_prefix, get_acting_account
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
        note_touched(ids)
        self._counts.setdefault(store, Counter()).update(ids)
        if self._task is None or self._task.done():
            with act_as(None):
                self._task = asyncio.create_task(self._store_later(), name="accesses")

    async def read_accesses(self, store: RecordStore, ids: Sequence[str]) -> Mapping[str, AccessCount]:
        known = dict(await store.get_accesses(ids))
        waiting = self._counts.get(store, Counter())
        for record_id in ids:
            if count := waiting[record_id]:
                stored = known.get(record_id, AccessCount(0, 0))
                known[record_id] = AccessCount(stored.count + count, self._clock())
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
        self._waiting: list[SearchRecord] = []
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def note(self, search: SearchRecord) -> None:
        account = get_acting_account()
        if account is not None:
            search = replace(search, session=_build_session_id(account, search.session))
        self._waiting.append(search)
        if self._task is None or self._task.done():
            with act_as(None):
                self._task = asyncio.create_task(self._store_later(), name="searches")

    async def list_newest(self, *, session: str | None = None, limit: int = 100) -> list[SearchRecord]:
        account = get_acting_account()
        if account is None:
            return await self._read_newest(session, limit)
        if session is not None:
            found = await self._read_newest(_build_session_id(account, session), limit)
        else:
            every = await self._read_newest(None, MAX_SEARCHES)
            found = [s for s in every if (s.session or "").startswith(_build_session_id(account, None))]
        return [_restore_session_id(search, account) for search in found[:limit]]

    async def _read_newest(self, session: str | None, limit: int) -> list[SearchRecord]:
        waiting = [search for search in reversed(self._waiting) if session is None or search.session == session]
        try:
            stored = await self._library.list_searches(session=session, limit=limit)
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


def _build_session_id(account: Account, session: str | None) -> str:
    return format_session_prefix(account.name) + (session or "")


def _restore_session_id(search: SearchRecord, account: Account) -> SearchRecord:
    own = (search.session or "").removeprefix(_build_session_id(account, None))
    return replace(search, session=own or None)


USAGE_SECONDS = 2.0  # seconds between the first count and its being stored


class BatchedUsage:
    """What a crash loses of it are the counts of two seconds.

    What cannot be stored waits for the next call, and is lost where that never can be either.
    """

    def __init__(self, stored: Callable[[], UsageLog]) -> None:
        """`stored` is asked for when there is something to store, and not before."""
        self._stored = stored
        self._waiting: list[ToolUsage] = []
        # What is being stored would else be counted twice or not at all by who asks meanwhile.
        self._storing = asyncio.Lock()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False

    def note(self, tool: str, milliseconds: float, *, failed: bool, at: int) -> None:
        """One call. After the end nothing is counted any more."""
        if self._closing.is_set():
            return
        self._waiting.append(ToolUsage(tool, 1, int(failed), milliseconds, milliseconds, at))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._store_later(), name="usage")

    async def read_usage(self) -> list[ToolUsage]:
        """With what is counted but not stored yet, the most called first and then by name."""
        async with self._storing:
            try:
                stored = await self._stored().list_usage()
            except EverkeptError as error:
                log.info("earlier calls cannot be counted: %s", error)
                stored = []
            return sum_usage((*stored, *self._waiting))

    async def close(self) -> None:
        self._closing.set()
        if self._task is not None:
            await self._task
            self._task = None
        await self._store_counts()

    async def _store_later(self) -> None:
        is_stored = True
        while self._waiting and is_stored:  # more may come while a batch is stored
            try:
                async with asyncio.timeout(USAGE_SECONDS):
                    await self._closing.wait()
                return  # who closes stores the rest
            except TimeoutError:
                is_stored = await self._store_counts()

    async def _store_counts(self) -> bool:
        async with self._storing:
            if not self._waiting:
                return True
            taken, batch = len(self._waiting), sum_usage(self._waiting)
            try:
                await self._stored().add_usage(batch)
            except EverkeptError as error:
                self._waiting[:taken] = batch  # as few as there are tools, however long it lasts
                self._log_once(error)
                return False
            del self._waiting[:taken]
            return True

    def _log_once(self, error: EverkeptError) -> None:
        if not self._has_failed:
            log.warning("calls of the gateway are not counted on the disk: %s", error)
        self._has_failed = True
