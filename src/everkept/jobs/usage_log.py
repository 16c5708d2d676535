"""Counts of accesses, searches and tool calls: collected in memory, stored in batches."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from everkept.core.answers import MAX_SEARCHES, SearchRecord
from everkept.core.commits import note_touched
from everkept.core.mcp import ToolUsage, UsageLog, sum_usage
from everkept.core.ports import AccessCount, Library, RecordStore
from everkept.core.sessions import Account, act_as, format_session_prefix, get_acting_account
from everkept.core.times import Clock
from everkept.errors import EverkeptError
from everkept.values import replace

ACCESS_SECONDS = 2.0  # delay of a batch

log = logging.getLogger(__name__)


_IS_COUNTED: ContextVar[bool] = ContextVar("is_counted", default=True)


@contextmanager
def stop_counting() -> Generator[None]:
    """Count no access of memories, for example when a person looks at them."""
    before = _IS_COUNTED.set(False)
    try:
        yield
    finally:
        _IS_COUNTED.reset(before)


class BatchedAccesses:
    """Access counts, stored in batches. A crash loses at most the counts of two seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[RecordStore, Counter[str]] = {}
        self._task: asyncio.Task[None] | None = None

    def note(self, store: RecordStore, ids: Sequence[str]) -> None:
        if not ids:
            return
        note_touched(ids)
        if not _IS_COUNTED.get():
            return
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
                log.info("access counts not stored: %s", error)  # the read itself must succeed


SEARCH_SECONDS = 2.0  # delay of a batch


class BatchedSearches:
    """Search log, stored in batches. A crash loses at most the searches of two seconds.

    Session ids of an account's searches begin with the account, and an account sees only its own searches.
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
        prefix = _build_session_id(account, None)
        return [replace(s, session=(s.session or "").removeprefix(prefix) or None) for s in found[:limit]]

    async def _read_newest(self, session: str | None, limit: int) -> list[SearchRecord]:
        waiting = [search for search in reversed(self._waiting) if session is None or search.session == session]
        try:
            stored = await self._library.list_searches(session=session, limit=limit)
        except EverkeptError as error:
            log.info("cannot read earlier searches: %s", error)
            stored = []
        # A batch that is being stored is in both lists.
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
                log.info("searches not stored: %s", error)  # the search itself must succeed
            finally:
                del self._waiting[: len(batch)]


def _build_session_id(account: Account, session: str | None) -> str:
    return format_session_prefix(account.name) + (session or "")


USAGE_SECONDS = 2.0  # delay of a batch


class BatchedUsage:
    """Counts of gateway calls. A crash loses at most those of two seconds. A failed batch is stored later."""

    def __init__(self, stored: Callable[[], UsageLog]) -> None:
        """Keep `stored`, which is called only when there is something to store."""
        self._stored = stored
        self._waiting: list[ToolUsage] = []
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False

    def note(self, tool: str, milliseconds: float, *, failed: bool, at: int) -> None:
        """Count one call. Ignored after close()."""
        if self._closing.is_set():
            return
        self._waiting.append(ToolUsage(tool, 1, int(failed), milliseconds, milliseconds, at))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._store_later(), name="usage")

    async def close(self) -> None:
        self._closing.set()
        if self._task is not None:
            await self._task
            self._task = None
        await self._store_counts()

    async def _store_later(self) -> None:
        is_stored = True
        while self._waiting and is_stored:  # calls may arrive while a batch is stored
            try:
                async with asyncio.timeout(USAGE_SECONDS):
                    await self._closing.wait()
                return  # close() stores the rest
            except TimeoutError:
                is_stored = await self._store_counts()

    async def _store_counts(self) -> bool:
        if not self._waiting:
            return True
        taken, batch = len(self._waiting), sum_usage(self._waiting)
        try:
            await self._stored().add_usage(batch)
        except EverkeptError as error:
            self._waiting[:taken] = batch  # one count per tool, however long the failure lasts
            if not self._has_failed:
                log.warning("gateway call counts not stored: %s", error)
            self._has_failed = True
            return False
        del self._waiting[:taken]
        return True
