"""The files of a project's graph, for what changes the graph outside the tools."""

from collections.abc import AsyncIterator

from everkept.core.ports import Library
from everkept.core.projects import USER
from everkept.core.sessions import Call, Session
from everkept.errors import EverkeptError, NotFound
from everkept.families.bank.banks import Bank, Banks, exists
from everkept.families.bank.mirror.mirror import Mirror
from everkept.values import Value, field

NOT_THERE = "the folder is not there now"
ELSEWHERE = "it is on another machine; the next call that uses it does it"
OF_ANOTHER = "it belongs to another project now"
# Whatever else a mirror warns of, its files are up to date.
FAILURES = frozenset({"graph_file_behind", "MARKER_MISMATCH"})


class Settled(Value):
    """The banks whose files say what the graph says, and why others do not."""

    done: list[str] = field(default_factory=list[str])
    left: dict[str, str] = field(default_factory=dict[str, str])


class Mirrors:
    """All banks that a project's graph was ever mirrored in, and the one of the session.

    The latter not where the project was named: then it need not be that of the working folder.
    """

    def __init__(
        self, library: Library, banks: Banks, mirror: Mirror, *, is_project_named: bool
    ) -> None:
        self._library = library
        self._banks = banks
        self._mirror = mirror
        self._is_project_named = is_project_named

    async def meet(self, project: str, session: Session) -> None:
        """Takes in what others put into the files: what is erased must be known before."""
        async for bank in self._of(project, session, Settled()):
            await self._mirror.meet(bank)

    async def settle(self, project: str, session: Session) -> Settled:
        """The files follow the graph before this returns, as far as they can be reached."""
        settled = Settled()
        async for bank in self._of(project, session, settled):
            try:
                warnings = await self._mirror.follow(bank)
                reasons = [w.message for w in warnings if w.code in FAILURES]
                if reasons:
                    settled.left[bank.address] = reasons[0]
                    continue
                await self._mirror.refresh_view(bank)
            except EverkeptError as error:
                settled.left[bank.address] = str(error)
            else:
                settled.done.append(bank.address)
        return settled

    async def _of(self, project: str, session: Session, settled: Settled) -> AsyncIterator[Bank]:
        """Those that can be reached; the others are noted."""
        if project == USER:
            return
        try:
            wanted = (await self._library.project(project)).id
        except NotFound:
            return
        noted = await self._mirror.mirrored()
        here = await self._here(session)
        addresses = [address for address, owner in noted.items() if owner == wanted]
        if here is not None and here not in noted and not self._is_project_named:
            addresses.append(here)
        for address in addresses:
            try:
                bank = await self._banks.at(address)
                reason = await self._obstacle(bank, wanted, here)
            except EverkeptError as error:
                settled.left[address] = str(error)
                continue
            if reason is None:
                yield bank
            elif address in noted:
                settled.left[address] = reason

    async def _here(self, session: Session) -> str | None:
        try:
            bank = await self._banks.chosen(Call(session, "memory bank"))
        except EverkeptError:
            return None  # out of reach, and its address among those that are noted
        return None if bank is None else bank.address

    async def _obstacle(self, bank: Bank, project: str, here: str | None) -> str | None:
        if bank.files.is_remote and bank.address != here:
            return ELSEWHERE
        if not await exists(bank):
            return NOT_THERE
        return None if await self._mirror.project_of(bank) == project else OF_ANOTHER
