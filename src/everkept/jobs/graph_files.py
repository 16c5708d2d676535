"""The files of a memory bank's graph, which follow the graph after every change."""

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

# Seconds without a change before what changed is looked for; the bank's own tools do it at once.
WRITE_QUIET_SECONDS = 0.1
VIEW_QUIET_SECONDS = 2.0  # seconds without a change before the readable view is written anew
CLOSE_SECONDS = 2.0  # seconds that the end of the program may take for what is left

log = logging.getLogger(__name__)


class GraphFileUpdater:
    """Brings the files of a graph up to date soon after a write; the last of it at the end.

    A read is a reason to look, too: another process may have changed the graph, or the files. Of
    a bank on another machine that would cost too much; there the next write does it.
    What a crash leaves behind is caught up with by whoever comes next: the mirror knows how far
    it got.
    """

    def __init__(self, banks: Banks, records: BankRecords, mirror: GraphMirror) -> None:
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
        if not wrote and (session.bank or self._banks.options.place or "").startswith(SSH_SCHEME):
            return
        _, has_written = self._sessions.get(session.bank or "", (session, False))
        self._sessions[session.bank or ""] = session, wrote or has_written
        if wrote:  # whoever reads all the time must not keep the view from being written
            self._news.set()
        if self._task is None or self._task.done():
            with act_as(None):
                self._task = asyncio.create_task(self._run(), name="bank care")

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
                await self._refresh_views()

    async def _refresh_views(self) -> None:
        stale, self._stale = self._stale, {}
        for bank in stale.values():
            await self._attempt(self._mirror.refresh_view(bank))

    async def _follow(self, session: Session, wrote: bool) -> None:
        bank = await self._banks.find_bank(ToolCall(session, "memory bank"))
        if bank is None or not await exists(bank):
            return
        if await self._records.find_project_id(bank) is None:
            return  # what writes elsewhere gives no project to a bank
        if not wrote:
            if await self._mirror.sync(bank):
                self._stale[bank.address] = bank
            return
        for warning in await self._mirror.append_changes(bank):
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


FOLDER_MISSING = "the folder is not there now"
ON_OTHER_MACHINE = "it is on another machine; the next call that uses it does it"
IN_OTHER_PROJECT = "it belongs to another project now"
# Whatever else a mirror warns of, its files are up to date.
FAILURE_CODES = frozenset({"graph_file_behind", "MARKER_MISMATCH"})


class MirrorResult(Value):
    """The banks whose files say what the graph says, and why others do not."""

    done: list[str] = field(default_factory=list[str])
    left: dict[str, str] = field(default_factory=dict[str, str])


class GraphMirrors:
    """All banks that a project's graph was ever mirrored in, and the one of the session.

    The latter not where the project was named: then it need not be that of the working folder.
    """

    def __init__(self, library: Library, banks: Banks, mirror: GraphMirror, *, is_project_named: bool) -> None:
        self._library = library
        self._banks = banks
        self._mirror = mirror
        self._is_project_named = is_project_named

    async def import_files(self, project: str, session: Session) -> None:
        """Takes in what others put into the files: what is erased must be known before."""
        async for bank in self._iterate_banks(project, session, MirrorResult()):
            await self._mirror.merge_log(bank)

    async def update_files(self, project: str, session: Session) -> MirrorResult:
        """The files follow the graph before this returns, as far as they can be reached."""
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
        """Those that can be reached; the others are noted."""
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
            return None  # out of reach, and its address among those that are noted
        return None if bank is None else bank.address

    async def _find_obstacle(self, bank: Bank, project: str, here: str | None) -> str | None:
        if bank.files.is_remote and bank.address != here:
            return ON_OTHER_MACHINE
        if not await exists(bank):
            return FOLDER_MISSING
        return None if await self._mirror.find_project_id(bank) == project else IN_OTHER_PROJECT
