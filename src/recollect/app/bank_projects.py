"""Which project a memory bank belongs to: that of the folder it lies in."""

from collections.abc import Callable
from pathlib import Path

from recollect.app.projects import Home, ProjectRule, own_home, readable
from recollect.app.workspaces import checkout_of, workspace_of
from recollect.core.ports import Library, RecordStore
from recollect.core.sessions import Call, Session
from recollect.families.bank.banks import Bank, last_part

_FIRST_BANK = "bank of workspace "


class BankProjects:
    """The project of the bank's own folder, whatever project the session works in.

    A repository's bank shares the project of the repository. A second bank in one repository
    gets a project of its own, and so does one on another machine. The bank of the start belongs
    to the project that the program was started with, where it was named.
    """

    def __init__(
        self,
        library: Library,
        *,
        configured: str | None = None,
        place: Path | None = None,
        on_open: Callable[[RecordStore], None] | None = None,
    ) -> None:
        self._library = library
        self._configured = configured
        self._place = place
        self._on_open = on_open
        self._call = Call(Session(client="memory bank"), "memory bank")

    async def project_id(self, bank: Bank) -> str | None:
        rule, _ = await self._rule(bank)
        project = await rule.current(self._call)
        return None if project is None else project.id

    async def to_read(self, bank: Bank) -> RecordStore:
        rule, _ = await self._rule(bank)
        return await rule.to_read(self._call, None)

    async def to_write(self, bank: Bank) -> RecordStore:
        rule, workspace = await self._rule(bank)
        store = await rule.to_write(self._call, None)
        if workspace is not None and await self._library.note(_FIRST_BANK + workspace) is None:
            await self._library.set_note(_FIRST_BANK + workspace, bank.address)
        return store

    async def _rule(self, bank: Bank) -> tuple[ProjectRule, str | None]:
        """And the workspace whose first bank this is or may become."""
        if self._configured is not None and self._is_of_the_start(bank):
            return self._made(configured=self._configured), None
        if bank.files.is_remote:
            return self._made(home=_remote_home(bank)), None
        folder = Path(bank.home.address)
        shared = _shared_workspace(folder)
        if shared is None:
            return self._made(folder=folder), None
        first = await self._library.note(_FIRST_BANK + shared.key)
        if first in (None, bank.address):
            return self._made(folder=folder), shared.key
        return self._made(home=_home(folder)), None

    def _is_of_the_start(self, bank: Bank) -> bool:
        if self._place is None or bank.files.is_remote:
            return self._place is None
        return self._place.resolve() in (Path(bank.home.address), Path(bank.address))

    def _made(
        self,
        *,
        configured: str | None = None,
        folder: Path | None = None,
        home: Home | None = None,
    ) -> ProjectRule:
        return ProjectRule(
            self._library,
            configured=configured,
            workspace=home or folder,
            on_open=self._on_open,
        )


def _shared_workspace(folder: Path) -> Home | None:
    """The repository of a folder that is not its root: other folders may have a bank too."""
    checkout = checkout_of(folder)
    workspace = workspace_of(folder)
    if workspace is None or checkout in (None, folder.resolve()):
        return None
    return own_home(workspace)


def _home(folder: Path) -> Home:
    return own_home(folder.resolve())


def _remote_home(bank: Bank) -> Home:
    name = last_part(bank.home.address) or last_part(bank.address)
    return Home(bank.address, readable(name))
