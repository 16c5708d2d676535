"""What a memory bank needs in the background: its files follow the graph, whoever changed it."""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Protocol

from recollect.core.sessions import Call, Session
from recollect.errors import RecollectError
from recollect.families.bank.banks import Bank, Banks, exists
from recollect.tools.tool import Warned

# Seconds without a change before what changed is looked for; the bank's own tools do it at once.
BRIEF = 0.1
QUIET = 2.0  # seconds without a change before the readable view is written anew
CLOSING = 2.0  # seconds that the end of the program may take for what is left

log = logging.getLogger(__name__)


class GraphFiles(Protocol):
    async def follow(self, bank: Bank) -> list[Warned]: ...

    async def refresh_view(self, bank: Bank) -> None: ...


class BankCare:
    """Brings the files of a graph up to date soon after a write; the last of it at the end.

    What a crash leaves behind is caught up with by whoever comes next: the mirror knows how far
    it got.
    """

    def __init__(self, banks: Banks, mirror: GraphFiles) -> None:
        self._banks = banks
        self._mirror = mirror
        self._sessions: dict[str, Session] = {}
        self._stale: dict[str, Bank] = {}  # whose readable view is old
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._closing = False

    def wake(self, session: Session) -> None:
        """Something was written. Returns at once."""
        self._sessions[session.bank or ""] = session
        self._news.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="bank care")

    async def close(self) -> None:
        self._closing = True
        self._news.set()
        if self._task is not None:
            done, _ = await asyncio.wait([self._task], timeout=CLOSING)
            if not done:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while self._sessions or self._stale:
            while not await self._is_quiet(BRIEF):
                pass
            while self._sessions:
                _, session = self._sessions.popitem()
                await self._attempt(self._follow(session))
            if await self._is_quiet(QUIET):
                await self._refresh_views()

    async def _refresh_views(self) -> None:
        stale, self._stale = self._stale, {}
        for bank in stale.values():
            await self._attempt(self._mirror.refresh_view(bank))

    async def _follow(self, session: Session) -> None:
        bank = await self._banks.chosen(Call(session, "memory bank"))
        if bank is not None and await exists(bank):
            for warning in await self._mirror.follow(bank):
                log.warning("%s: %s", bank.address, warning.message)
            self._stale[bank.address] = bank

    async def _is_quiet(self, seconds: float) -> bool:
        """Whether nothing is written for so long, or the program ends."""
        self._news.clear()
        if not self._closing:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()
        return self._closing or not self._news.is_set()

    async def _attempt(self, work: Coroutine[Any, Any, None]) -> None:
        """A bank that cannot be reached must not keep the others waiting."""
        try:
            await work
        except RecollectError as error:
            log.info("the files of a graph have to wait: %s", error)
