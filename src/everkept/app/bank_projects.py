"""Which project a memory bank belongs to: that of the folder it lies in."""

from collections.abc import Callable
from pathlib import Path

from everkept.app.projects import ProjectRule, empty_store
from everkept.app.workspaces import DEFAULT_PROJECT, Home, checkout_of, home_of, readable
from everkept.core.ports import Library, RecordStore
from everkept.core.projects import Project
from everkept.core.sessions import Call, Session
from everkept.errors import NotFound, ProjectOff
from everkept.families.bank.banks import Bank, last_part
from everkept.values import Value

_FIRST_BANK = "bank of workspace "
_OWNER = "project of bank "


class _Belonging(Value):
    """How a bank's project is found; what is `pending` comes true with the first write."""

    rule: ProjectRule
    first_of: str | None = None  # the workspace whose first bank this becomes
    is_pending: bool = False


class BankProjects:
    """The project of the bank's own folder, whatever project the session works in.

    The first bank of a repository shares the project of the repository, in each of its worktrees.
    A second one gets a project of its own, and so does one on another machine. Where the program
    was started with a project's name, the bank of the start belongs to that one, unless it has
    one already: a bank keeps its project, whoever names another one later.
    """

    def __init__(
        self,
        library: Library,
        *,
        configured: str | None = None,
        place: Path | str | None = None,
        on_open: Callable[[RecordStore], None] | None = None,
    ) -> None:
        self._library = library
        self._configured = configured
        self._place = place
        self._on_open = on_open
        self._projects: dict[str, Project] = {}  # by the bank's address, once they are known
        self._call = Call(Session(client="memory bank"), "memory bank")

    async def project_id(self, bank: Bank) -> str | None:
        """As it was when the bank's records were last opened, or else as it is now."""
        known = self._projects.get(bank.address)
        if known is not None:
            return known.id
        found = await self._belonging(bank)
        project = None if found.is_pending else await found.rule.current(self._call)
        return None if project is None else project.id

    async def to_read(self, bank: Bank) -> RecordStore:
        if store := await self._known(bank):
            return store
        found = await self._belonging(bank)
        return empty_store() if found.is_pending else await found.rule.to_read(self._call, None)

    async def to_write(self, bank: Bank) -> RecordStore:
        if store := await self._known(bank):
            return store
        found = await self._belonging(bank)
        store = await found.rule.to_write(self._call, None)
        if found.first_of is not None:
            _, place = _place(Path(bank.home.address), bank.folder)
            await self._library.set_note(_FIRST_BANK + found.first_of, place)
        project = await found.rule.current(self._call)
        if project is not None:
            await self._library.set_note(_OWNER + bank.address, f"{project.id} {project.name}")
            self._projects[bank.address] = project
        return store

    async def _known(self, bank: Bank) -> RecordStore | None:
        """A bank keeps its project for as long as that exists, so it is asked for by its name."""
        project = self._projects.get(bank.address) or await self._owner(bank)
        if project is None:
            return None
        try:
            opened, store = await self._library.open(project.name)
        except NotFound:
            opened, store = None, None
        if store is None or opened is None or opened.id != project.id:
            self._projects.pop(bank.address, None)
            return None
        if opened.is_off:
            raise ProjectOff(opened.name)
        self._projects[bank.address] = project
        if self._on_open is not None:
            self._on_open(store)
        return store

    async def _owner(self, bank: Bank) -> Project | None:
        """None where it has none yet, or none any more."""
        project_id, _, name = (await self._library.note(_OWNER + bank.address) or "").partition(" ")
        try:
            project = await self._library.project(name) if name else None
        except NotFound:
            return None
        return project if project is not None and project.id == project_id else None

    async def _belonging(self, bank: Bank) -> _Belonging:
        if owner := await self._owner(bank):
            return _Belonging(self._rule(configured=owner.name))
        if self._configured is not None and self._is_of_the_start(bank):
            return _Belonging(self._rule(configured=self._configured), is_pending=True)
        if bank.files.is_remote:
            return _Belonging(self._rule(home=_remote_home(bank)))
        workspace, place = _place(Path(bank.home.address), bank.folder)
        if workspace is None:  # in the home folder, as memories there
            return _Belonging(self._rule(configured=DEFAULT_PROJECT))
        first = await self._library.note(_FIRST_BANK + workspace.key)
        if first in (None, place):
            return _Belonging(self._rule(home=workspace), workspace.key if first is None else None)
        return _Belonging(self._rule(home=Home(bank.address, workspace.name)))

    def _is_of_the_start(self, bank: Bank) -> bool:
        if self._place is None:
            return False
        if bank.files.is_remote or isinstance(self._place, str):
            return self._place in (bank.home.address, bank.address)
        return self._place.resolve() in (Path(bank.home.address), Path(bank.address))

    def _rule(self, *, configured: str | None = None, home: Home | None = None) -> ProjectRule:
        return ProjectRule(
            self._library, configured=configured, workspace=home, on_open=self._on_open
        )


def _place(folder: Path, name: str) -> tuple[Home | None, str]:
    """The workspace, and where in it the bank lies: in each worktree it is the same bank."""
    folder = folder.resolve()
    root = checkout_of(folder) or folder
    return home_of(folder), (folder.relative_to(root) / name).as_posix()


def _remote_home(bank: Bank) -> Home:
    name = last_part(bank.home.address) or last_part(bank.address)
    return Home(bank.address, readable(name))
