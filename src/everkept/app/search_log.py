"""What was asked: noted in memory, stored in batches."""

import asyncio
import logging

from everkept.core.accounts import Account, acting, acting_as, sessions_of
from everkept.core.ports import Library
from everkept.core.search_ports import KEPT_SEARCHES, Search
from everkept.errors import EverkeptError
from everkept.values import replace

INTERVAL = 2.0  # seconds between the first note and its being stored

log = logging.getLogger(__name__)


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
            async with asyncio.timeout(INTERVAL):
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
