"""Background updates of the graph files in a memory bank after every change of the graph."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any

from everkept.core.ports import Library
from everkept.core.projects import USER_PROJECT
from everkept.core.sessions import Session, ToolCall, act_as
from everkept.errors import EverkeptError, NotFound
from everkept.families.bank.banks import SSH_SCHEME, Bank, BankRecords, Banks, exists
from everkept.families.bank.graph.mirror import GraphMirror
from everkept.values import Value, field

# Idle time before the updater looks for changes. The bank's own tools update the files immediately.
WRITE_QUIET_SECONDS = 0.1
VIEW_QUIET_SECONDS = 2.0  # idle time before the readable view is written
CLOSE_SECONDS = 2.0  # time for pending updates when the program ends

log = logging.getLogger(__name__)


class GraphFileUpdater:
    """Updater of a bank's graph files soon after a write, and when the program ends.

    A read also triggers a check, because another process may have changed the graph or the files. For a bank on another
    machine that would be too slow, so its next write does it. After a crash the next process continues: the mirror
    records how far it got.
    """

    def __init__(self, banks: Banks, records: BankRecords, mirror: GraphMirror) -> None:
        self._banks = banks
        self._records = records
        self._mirror = mirror
        self._sessions: dict[str, tuple[Session, bool]] = {}  # and whether the session wrote
        self._stale: dict[str, Bank] = {}  # banks with an outdated readable view
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._closing = False

    def wake(self, session: Session, *, wrote: bool = True) -> None:
        """Schedule an update after a write or a read. Return immediately."""
        if not wrote and (session.bank or self._banks.options.place or "").startswith(SSH_SCHEME):
            return
        _, has_written = self._sessions.get(session.bank or "", (session, False))
        self._sessions[session.bank or ""] = session, wrote or has_written
        if wrote:  # constant reads must not delay the view
            self._news.set()
        if self._task is None or self._task.done():
            with act_as(None):
                self._task = asyncio.create_task(self._run(), name="graph files")

    async def close(self) -> None:
        self._closing = True
        self._news.set()
        if self._task is not None:
            done, _ = await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
            if not done:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while self._sessions or self._stale:
            while not await self._is_quiet(WRITE_QUIET_SECONDS):
                pass
            while self._sessions:
                _, (session, wrote) = self._sessions.popitem()
                await self._attempt(self._follow(session, wrote))
            if await self._is_quiet(VIEW_QUIET_SECONDS):
                stale, self._stale = self._stale, {}
                for bank in stale.values():
                    await self._attempt(self._mirror.refresh_view(bank))

    async def _follow(self, session: Session, wrote: bool) -> None:
        bank = await self._banks.find_bank(ToolCall(session, "memory bank"))
        if bank is None or not await exists(bank):
            return
        if await self._records.find_project_id(bank) is None:
            return  # writes elsewhere do not assign a project to a bank
        if not wrote:
            if await self._mirror.sync(bank):
                self._stale[bank.address] = bank
            return
        for warning in await self._mirror.append_changes(bank):
            log.warning("%s: %s", bank.address, warning.message)
        self._stale[bank.address] = bank

    async def _is_quiet(self, seconds: float) -> bool:
        """Wait this long. Return whether nothing was written, or the program is ending."""
        self._news.clear()
        if not self._closing:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()
        return self._closing or not self._news.is_set()

    async def _attempt(self, work: Coroutine[Any, Any, None]) -> None:
        """Run one update. An unreachable bank must not delay the others."""
        try:
            await work
        except EverkeptError as error:
            log.info("graph files not updated: %s", error)


FOLDER_MISSING = "the folder does not exist"
ON_OTHER_MACHINE = "it is on another machine; the next call that uses the bank updates them"
IN_OTHER_PROJECT = "the bank now belongs to another project"
# With any other warning the files are up to date.
FAILURE_CODES = frozenset({"graph_file_behind", "MARKER_MISMATCH"})


class MirrorResult(Value):
    """The banks whose files match the graph, and the reason for each of the others."""

    done: list[str] = field(default_factory=list[str])
    left: dict[str, str] = field(default_factory=dict[str, str])


class GraphMirrors:
    """Banks of a project's graph, and the session's bank unless a project was named, which may be another."""

    def __init__(self, library: Library, banks: Banks, mirror: GraphMirror, *, is_project_named: bool) -> None:
        self._library = library
        self._banks = banks
        self._mirror = mirror
        self._is_project_named = is_project_named

    async def import_files(self, project: str, session: Session) -> None:
        """Import changes that other programs made in the files. A purge must know them first."""
        async for bank in self._iterate_banks(project, session, MirrorResult()):
            await self._mirror.merge_log(bank)

    async def update_files(self, project: str, session: Session) -> MirrorResult:
        """Update the files of all reachable banks before returning."""
        settled = MirrorResult()
        async for bank in self._iterate_banks(project, session, settled):
            try:
                warnings = await self._mirror.append_changes(bank)
                reasons = [w.message for w in warnings if w.code in FAILURE_CODES]
                if reasons:
                    settled.left[bank.address] = reasons[0]
                    continue
                await self._mirror.refresh_view(bank)
            except EverkeptError as error:
                settled.left[bank.address] = str(error)
            else:
                settled.done.append(bank.address)
        return settled

    async def _iterate_banks(self, project: str, session: Session, settled: MirrorResult) -> AsyncIterator[Bank]:
        """Yield the reachable banks. Record the reason for each of the others."""
        if project == USER_PROJECT:
            return
        try:
            wanted = (await self._library.get_project(project)).id
        except NotFound:
            return
        noted = await self._mirror.read_mirrored_banks()
        here = await self._find_session_bank(session)
        addresses = [address for address, owner in noted.items() if owner == wanted]
        if here is not None and here not in noted and not self._is_project_named:
            addresses.append(here)
        for address in addresses:
            try:
                bank = await self._banks.open_at(address)
                reason = await self._find_obstacle(bank, wanted, here)
            except EverkeptError as error:
                settled.left[address] = str(error)
                continue
            if reason is None:
                yield bank
            elif address in noted:
                settled.left[address] = reason

    async def _find_session_bank(self, session: Session) -> str | None:
        try:
            bank = await self._banks.find_bank(ToolCall(session, "memory bank"))
        except EverkeptError:
            return None  # unreachable; its address is among the noted ones
        return None if bank is None else bank.address

    async def _find_obstacle(self, bank: Bank, project: str, here: str | None) -> str | None:
        if bank.files.is_remote and bank.address != here:
            return ON_OTHER_MACHINE
        if not await exists(bank):
            return FOLDER_MISSING
        return None if await self._mirror.find_project_id(bank) == project else IN_OTHER_PROJECT
