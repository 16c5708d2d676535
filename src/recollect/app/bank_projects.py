"""Which project a memory bank belongs to: that of the folder it lies in."""

from collections.abc import Callable
from pathlib import Path

from recollect.app.projects import DEFAULT_PROJECT, Home, ProjectRule, home_of, readable
from recollect.app.workspaces import checkout_of
from recollect.core.ports import Library, RecordStore
from recollect.core.projects import Project
from recollect.core.sessions import Call, Session
from recollect.errors import NotFound
from recollect.families.bank.banks import Bank, last_part

_FIRST_BANK = "bank of workspace "


class BankProjects:
    """The project of the bank's own folder, whatever project the session works in.

    The first bank of a repository shares the project of the repository, in each of its worktrees.
    A second one gets a project of its own, and so does one on another machine. The bank of the
    start belongs to the project that the program was started with, where it was named.
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
        # By the bank's address: where a folder belongs is looked up once, not in each call.
        self._rules: dict[str, tuple[ProjectRule, str | None]] = {}
        self._projects: dict[str, Project] = {}
        self._call = Call(Session(client="memory bank"), "memory bank")

    async def project_id(self, bank: Bank) -> str | None:
        """As it was when the bank's records were last opened, or else as it is now."""
        known = self._projects.get(bank.address)
        if known is not None:
            return known.id
        rule, _ = await self._rule(bank)
        project = await rule.current(self._call)
        return None if project is None else project.id

    async def to_read(self, bank: Bank) -> RecordStore:
        if store := await self._known(bank):
            return store
        rule, workspace = await self._rule(bank)
        store = await rule.to_read(self._call, None)
        if workspace is None:
            await self._remember(bank, rule)
        return store

    async def to_write(self, bank: Bank) -> RecordStore:
        if store := await self._known(bank):
            return store
        rule, workspace = await self._rule(bank)
        store = await rule.to_write(self._call, None)
        if workspace is not None:
            _, place = _place(Path(bank.home.address), bank.folder)
            await self._library.set_note(_FIRST_BANK + workspace, place)
        await self._remember(bank, rule)
        return store

    async def _known(self, bank: Bank) -> RecordStore | None:
        """A folder keeps its project for as long as that exists, so it is asked for by its name."""
        project = self._projects.get(bank.address)
        if project is None:
            return None
        try:
            opened, store = await self._library.open(project.name)
        except NotFound:
            opened, store = None, None
        if store is None or opened is None or opened.id != project.id:
            self._projects.pop(bank.address, None)
            return None
        if self._on_open is not None:
            self._on_open(store)
        return store

    async def _remember(self, bank: Bank, rule: ProjectRule) -> None:
        project = await rule.current(self._call)
        if project is not None:
            self._projects[bank.address] = project

    async def _rule(self, bank: Bank) -> tuple[ProjectRule, str | None]:
        """And the workspace whose first bank this may become."""
        if bank.address not in self._rules:
            rule, workspace = await self._found_rule(bank)
            if workspace is None:
                self._rules[bank.address] = rule, None
            return rule, workspace
        return self._rules[bank.address]

    async def _found_rule(self, bank: Bank) -> tuple[ProjectRule, str | None]:
        if self._configured is not None and self._is_of_the_start(bank):
            return self._made(configured=self._configured), None
        if bank.files.is_remote:
            return self._made(home=_remote_home(bank)), None
        workspace, place = _place(Path(bank.home.address), bank.folder)
        if workspace is None:  # in the home folder, as memories there
            return self._made(configured=DEFAULT_PROJECT), None
        first = await self._library.note(_FIRST_BANK + workspace.key)
        if first is None:
            return self._made(home=workspace), workspace.key
        if first == place:
            return self._made(home=workspace), None
        return self._made(home=Home(bank.address, workspace.name)), None

    def _is_of_the_start(self, bank: Bank) -> bool:
        if self._place is None:
            return False
        if bank.files.is_remote or isinstance(self._place, str):
            return self._place in (bank.home.address, bank.address)
        return self._place.resolve() in (Path(bank.home.address), Path(bank.address))

    def _made(
        self,
        *,
        configured: str | None = None,
        home: Home | None = None,
    ) -> ProjectRule:
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
