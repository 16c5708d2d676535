"""What a memory bank needs in the background: its files follow the graph, whoever changed it."""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from everkept.core.accounts import acting_as
from everkept.core.sessions import Call, Session
from everkept.errors import EverkeptError
from everkept.families.bank.banks import SSH, Bank, BankRecords, Banks, exists
from everkept.families.bank.mirror.mirror import Mirror

# Seconds without a change before what changed is looked for; the bank's own tools do it at once.
BRIEF = 0.1
QUIET = 2.0  # seconds without a change before the readable view is written anew
CLOSING = 2.0  # seconds that the end of the program may take for what is left

log = logging.getLogger(__name__)


class BankCare:
    """Brings the files of a graph up to date soon after a write; the last of it at the end.

    A read is a reason to look, too: another process may have changed the graph, or the files. Of
    a bank on another machine that would cost too much; there the next write does it.
    What a crash leaves behind is caught up with by whoever comes next: the mirror knows how far
    it got.
    """

    def __init__(self, banks: Banks, records: BankRecords, mirror: Mirror) -> None:
        self._banks = banks
        self._records = records
        self._mirror = mirror
        self._sessions: dict[str, tuple[Session, bool]] = {}  # with whether one wrote
        self._stale: dict[str, Bank] = {}  # whose readable view is old
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._closing = False

    def wake(self, session: Session, *, wrote: bool = True) -> None:
        """Something was written, or read. Returns at once."""
        if not wrote and (session.bank or self._banks.options.place or "").startswith(SSH):
            return
        _, has_written = self._sessions.get(session.bank or "", (session, False))
        self._sessions[session.bank or ""] = session, wrote or has_written
        if wrote:  # whoever reads all the time must not keep the view from being written
            self._news.set()
        if self._task is None or self._task.done():
            with acting_as(None):
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
                _, (session, wrote) = self._sessions.popitem()
                await self._attempt(self._follow(session, wrote))
            if await self._is_quiet(QUIET):
                await self._refresh_views()

    async def _refresh_views(self) -> None:
        stale, self._stale = self._stale, {}
        for bank in stale.values():
            await self._attempt(self._mirror.refresh_view(bank))

    async def _follow(self, session: Session, wrote: bool) -> None:
        bank = await self._banks.chosen(Call(session, "memory bank"))
        if bank is None or not await exists(bank):
            return
        if await self._records.project_id(bank) is None:
            return  # what writes elsewhere gives no project to a bank
        if not wrote:
            if await self._mirror.keep_up(bank):
                self._stale[bank.address] = bank
            return
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
        except EverkeptError as error:
            log.info("the files of a graph have to wait: %s", error)
