"""The library, its stores and its searches as the acting account may reach them."""

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, TypeVar, cast
from uuid import uuid4

from everkept.accounts.grants import (
    GRANT,
    Grant,
    ended_as,
    ended_text,
    grant_key,
    grant_text,
    grants_in,
    grants_key,
    shown_names,
)
from everkept.core import library as catalog
from everkept.core.answers import Finder, Findings, SearchType, SectionSearch, SectionsFound
from everkept.core.library import (
    CatalogAnswers,
    CatalogChange,
    CatalogChanges,
    CatalogQuestion,
    Condition,
    Library,
)
from everkept.core.peers import Asked, PeerQuestion
from everkept.core.project_rule import empty_store
from everkept.core.projects import PROJECT_NAME_LIMIT, Project, Silence, checked_project_name
from everkept.core.records import Batch, Change
from everkept.core.sessions import NAME, Account, Call, Home, acting, home_name, is_home, signed
from everkept.core.store import MeasureSize, NoteAccesses, PutVectors, Question, RecordStore, Upkeep
from everkept.core.times import Clock
from everkept.errors import (
    NOWHERE,
    BankNotFound,
    Conflict,
    EverkeptError,
    InvalidInput,
    NotFound,
    ProjectArchived,
    ReadOnly,
    Refused,
    StoreAway,
)
from everkept.values import replace

_TAKEN = re.compile(rf"@(user|history)( \({NAME}\))?")


def homes_of(user: str) -> tuple[str, ...]:
    return home_name("user", user), home_name("history", user)


def is_taken(project_name: str) -> bool:
    """Whether no new project may have this name: it is a home's, or would become one's."""
    return _TAKEN.fullmatch(project_name) is not None


def no_project(name: str) -> NotFound:
    """Word for word the same, whether there is one that may not be seen or none at all."""
    readable = name.encode("utf-8", "replace").decode()
    hint = "list_projects shows what exists; create_project makes one."
    return NotFound("project", readable, hint=hint)


A = TypeVar("A")


class GuardedStore(RecordStore):
    """Passes every question on, and checks the account before a write.

    Vectors and access counts are derived: an account that may read may add them.
    """

    async def _to_read(self) -> RecordStore:
        raise NotImplementedError

    async def _to_write(self) -> RecordStore:
        raise NotImplementedError

    async def ask(self, question: Question[A]) -> A:
        if isinstance(question, MeasureSize):
            # The disk is the owner's: an engine may know only the size of all stores together.
            return cast("A", 0)
        return await (await self._to_read()).ask(question)

    async def commit(self, batch: Batch) -> Change:
        store = await self._to_write()
        return await store.commit(replace(batch, client=signed(batch.client)))

    async def maintain(self, upkeep: Upkeep[A]) -> A:
        is_derived = isinstance(upkeep, PutVectors | NoteAccesses)
        store = await (self._to_read() if is_derived else self._to_write())
        return await store.maintain(upkeep)


class SharedStore(GuardedStore):
    """A project's store; one for all accounts that know it by this name and may do the same."""

    def __init__(self, store: RecordStore, name: str, *, writes: bool, is_own: bool) -> None:
        self.store = store
        self._name = name
        self._writes = writes
        self._is_own = is_own

    async def _to_read(self) -> RecordStore:
        return self.store

    async def _to_write(self) -> RecordStore:
        self.check_writable()
        return self.store

    def check_writable(self) -> None:
        if not self._writes:
            raise ReadOnly(
                f'Project "{self._name}" is shared with you for reading alone.',
                hint="Whoever shares it can let you write.",
                project=self._name,
            )

    def check_own(self) -> None:
        if not self._is_own:
            raise Refused(
                "This project is shared with you: a memory that becomes yours alone would be gone "
                "for all others.",
                hint="Store a memory of your own with the scope `user`.",
            )


class HomeStore(GuardedStore):
    """What is an account's alone; made at its first write."""

    def __init__(self, library: Library, home: Home, user: str) -> None:
        self._library = library
        self._name = home_name(home, user)

    async def _to_read(self) -> RecordStore:
        try:
            return (await self._library.open(self._name))[1]
        except NotFound:
            return empty_store()

    async def _to_write(self) -> RecordStore:
        try:
            return (await self._library.open(self._name))[1]
        except NotFound:
            with suppress(Conflict):  # another server was quicker
                await self._library.create(self._name, "")
        return (await self._library.open(self._name))[1]


class OwnersSections:
    """Parts of files that no account sees."""

    def __init__(self, sections: SectionSearch) -> None:
        self._sections = sections

    async def sections(self, call: Call, query: str, limit: int) -> SectionsFound:
        if acting() is not None:
            raise BankNotFound(NOWHERE)
        return await self._sections.sections(call, query, limit)


class OwnersFinder:
    """A search that finds nothing for an account."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder

    @property
    def name(self) -> str:
        return self._finder.name

    async def find(
        self, call: Call, query: str, ways: Sequence[SearchType], limit: int
    ) -> Findings:
        return Findings([]) if acting() else await self._finder.find(call, query, ways, limit)

    async def stamp(self, call: Call) -> object:
        return None if acting() else await self._finder.stamp(call)


class OwnersPeers:
    """What others have granted, they have granted to the owner.

    An account's call finds nobody, as if none were known; so does a peer's, and no question goes
    on from server to server.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def ask(self, question: PeerQuestion) -> Asked:
        if acting() is not None:
            return Asked(is_anybody=False)
        # Loaded here: most calls ask nobody.
        from everkept.peers.client import HttpPeers
        from everkept.peers.peer_file import PeerBook

        return await HttpPeers(PeerBook(self._folder)).ask(question)


_ACCOUNTS = "account:"  # how the keys of accounts' workspaces begin
_Shown = dict[str, tuple[Grant, Project]]


class GuardedLibrary(Library):
    """The owner sees everything but what is an account's alone. An account sees the projects that
    it is granted, under names of its own, and everything else is as if it did not exist.

    Whose call it is is looked at in each call, so one serves all.
    """

    def __init__(self, library: Library, clock: Clock) -> None:
        self._library = library
        self._clock = clock
        # By project, its name, and what may be done there.
        self._shared: dict[tuple[str, str, bool, bool], SharedStore] = {}
        self._stored_names: dict[str, str] = {}  # of projects, by their ids
        self._homes: dict[tuple[Home, str], HomeStore] = {}

    async def ask(self, question: CatalogQuestion[A]) -> A:
        """Refuse an account every question that is missing in the table."""
        answer = self._answers.get(type(question))
        if answer is None:
            return await self._owners().ask(question)
        return await answer(self, question)

    async def apply(self, change: CatalogChange[A]) -> A:
        """Refuse an account every change that is missing in the table."""
        do = self._changes.get(type(change))
        if do is None:
            return await self._owners().apply(change)
        return await do(self, change)

    async def _list_projects(self, question: catalog.ListProjects) -> list[Project]:
        account = acting()
        if account is None:
            found = await self._library.ask(question)
            return [project for project in found if not is_home(project.name)]
        shown = sorted((await self._shown(account)).items())
        seen = [replace(project, name=name) for name, (_, project) in shown]
        return [project for project in seen if question.status in (None, project.status)]

    async def _get_project(self, question: catalog.GetProject) -> Project:
        _, project = await self._named(question.name)
        return replace(project, name=question.name)

    async def open(self, name: str) -> tuple[Project, RecordStore]:
        account = acting()
        if account is None and not is_home(name):
            return await self._library.open(name)
        grant, project = await self._named(name)
        with _called(project.name, name):
            found, store = await self._library.open(project.name)
        writes = grant is not None and grant.writes and account is not None and not account.is_peer
        is_own = grant is not None and grant.access == "own"
        shared = self._sharing(found, store, name, writes=writes, is_own=is_own)
        return replace(found, name=name), shared

    async def _add_project(self, change: catalog.AddProject) -> Project:
        name = checked_project_name(change.name)
        account = acting()
        if is_taken(name):
            raise InvalidInput(
                f'Project name "{name}" has a meaning of its own.', argument="name", value=name
            )
        if account is None:
            return await self._library.apply(change)
        _refuse_peer(account)
        if name in await self._shown(account):
            raise _exists(name)
        begun = await self._begun(account, name)
        granted = begun or Grant(account.name, str(uuid4()), "own", name, self._clock())
        key = grant_key(granted.user, granted.project_id)
        # Before the project, so that whoever makes the same one at the same time finds it.
        try:
            await self._library.set_note(key, grant_text(granted))
        except StoreAway:
            raise _not_yet() from None
        try:
            made = await self._created(account, granted, change.description)
        except EverkeptError:
            # Somebody else may have gone on with it meanwhile.
            if begun is None and await self._with_id(granted.project_id) is None:
                await self._library.set_note(key, None)
            raise
        # Whoever makes a project of a name means that one from now on.
        for ended in ended_as(await self._library.notes(grants_key(account.name)), name):
            await self._library.set_note(ended, None)
        return replace(made, name=name)

    async def _alter(self, change: catalog.SetProjectStatus | catalog.SetProjectOff) -> Project:
        stored = await self._own(change.name)
        with _called(stored.name, change.name):
            altered = await self._library.apply(replace(change, name=stored.name))
        return replace(altered, name=change.name)

    async def _delete_project(self, change: catalog.DeleteProject) -> None:
        """Delete the grants of the project too."""
        stored = await self._own(change.name)
        with _called(stored.name, change.name):
            await self._library.delete(stored.name)
        for grant in grants_in(await self._library.notes(GRANT)):
            if grant.project_id == stored.id:
                await self._library.set_note(grant_key(grant.user, stored.id), ended_text(grant))

    async def _list_silences(self, question: catalog.ListSilences) -> list[Silence]:
        """Return none to an account: its past is in no folder of this machine."""
        return await self._library.ask(question) if acting() is None else []

    async def user(self) -> RecordStore:
        return self.home() or await self._library.user()

    async def history(self) -> RecordStore:
        return self.home("history") or await self._library.history()

    def home(self, home: Home = "user") -> RecordStore | None:
        """What is an account's alone; None where the owner acts."""
        account = acting()
        if account is None:
            return None
        if account.is_peer:
            return empty_store()  # another server has nothing of its own here
        key = home, account.name
        if key not in self._homes:
            self._homes[key] = HomeStore(self._library, home, account.name)
        return self._homes[key]

    async def _find_workspace_project(
        self, question: catalog.FindWorkspaceProject
    ) -> Project | None:
        """Return an account's own, else the one of the folder itself if that is granted."""
        account = acting()
        if account is None:
            return await self._library.ask(question)
        own, _ = await self._own_workspace(account, question.path)
        if own is not None:
            return own
        found = await self._library.ask(question)
        return None if found is None else await self._seen(account, found)

    async def _link_workspace(self, change: catalog.LinkWorkspace) -> Project:
        account = acting()
        if account is None:
            return await self._library.apply(change)
        stored = await self._own(change.project.name)
        found, free = await self._own_workspace(account, change.path)
        if found is not None:
            return found
        first = await self._library.assign_workspace(free, stored)
        return await self._seen(account, first) or change.project

    async def _list_workspaces(self, question: catalog.ListWorkspaces) -> list[str]:
        found = await self._owners().ask(question)
        return [path for path in found if not path.startswith(_ACCOUNTS)]

    async def store_of(self, project: Project) -> RecordStore:
        return await self._owners().store_of(project)

    async def on_change(self, hear: Callable[[], None]) -> bool:
        return await self._library.on_change(hear)

    @property
    def condition(self) -> Condition:
        """An account is told how it is doing, not where it is or what others wait for."""
        whole = self._library.condition
        if acting() is None:
            return whole
        told = Condition(whole.engine, whole.mode, whole.status, whole.version)
        return replace(told, since=whole.since, is_catching_up=whole.is_catching_up)

    async def close(self) -> None:
        await self._library.close()

    def _owners(self) -> Library:
        """The library itself, for what no account has any part in."""
        if acting() is not None:
            raise Refused("This is for the owner of the server alone.")
        return self._library

    async def _shown(self, account: Account) -> _Shown:
        grants = grants_in(await self._library.notes(grants_key(account.name)))
        return shown_names(grants, await self._library.projects()) if grants else {}

    async def _granted(self, account: Account, name: str) -> tuple[Grant, Project] | None:
        """Looks at the one project alone where its name is told by the grants."""
        grants = grants_in(await self._library.notes(grants_key(account.name)))
        if _are_alike(grants):
            return shown_names(grants, await self._library.projects()).get(name)
        grant = next((grant for grant in grants if grant.name == name), None)
        project = None if grant is None else await self._with_id(grant.project_id)
        return None if grant is None or project is None else (grant, project)

    async def _with_id(self, project_id: str) -> Project | None:
        """By the name that it had when it was last seen, before all are looked through."""
        if stored := self._stored_names.get(project_id):
            with suppress(NotFound):
                project = await self._library.project(stored)
                if project.id == project_id:
                    return project
        projects = {project.id: project for project in await self._library.projects()}
        self._stored_names = {project.id: project.name for project in projects.values()}
        return projects.get(project_id)

    async def _own_workspace(self, account: Account, path: str) -> tuple[Project | None, str]:
        """The account's project of this folder, else the key under which it can have one.

        A key stays that of a project which the account sees no longer: another of its name had it.
        """
        number = 1
        while True:
            key = _workspace(account, path, number)
            found = await self._library.project_of_workspace(key)
            seen = None if found is None else await self._seen(account, found)
            if found is None or seen is not None:
                return seen, key
            number += 1

    async def _named(self, name: str) -> tuple[Grant | None, Project]:
        """The project as it is kept below, and how it is granted; None: to its owner."""
        account = acting()
        if account is not None:
            found = await self._granted(account, name)
        else:
            found = None if is_home(name) else (None, await self._library.project(name))
        if found is None:
            raise no_project(name)
        return found

    async def _own(self, name: str) -> Project:
        """One that whoever is acting may put away or delete."""
        grant, project = await self._named(name)
        if account := acting():
            _refuse_peer(account)
        if grant is not None and grant.access != "own":
            raise Refused(
                f'Project "{name}" is shared with you; whoever shares it puts it away, deletes it '
                "or switches it off.",
                project=name,
            )
        return project

    async def _seen(self, account: Account, project: Project) -> Project | None:
        grants = grants_in(await self._library.notes(grants_key(account.name)))
        projects = await self._library.projects() if _are_alike(grants) else [project]
        shown = shown_names(grants, projects).items()
        name = next((name for name, (_, each) in shown if each.id == project.id), None)
        return None if name is None else replace(project, name=name)

    async def _begun(self, account: Account, name: str) -> Grant | None:
        """What is left of an attempt to make a project of this name that got no answer."""
        grants = grants_in(await self._library.notes(grants_key(account.name)))
        own = [grant for grant in grants if (grant.access, grant.name) == ("own", name)]
        left = [grant for grant in own if await self._with_id(grant.project_id) is None]
        return left[0] if left else None

    async def _created(self, account: Account, granted: Grant, description: str) -> Project:
        """Under a name that says whose it is; what others call theirs is nothing to an account."""
        number = 1
        while True:
            stored = _stored_name(granted.name, account, number)
            try:
                return await self._library.create(
                    stored, description, project_id=granted.project_id
                )
            except Conflict:
                if granted.name in await self._shown(account):
                    raise _exists(granted.name) from None
                number += 1

    def _sharing(
        self, project: Project, store: RecordStore, name: str, *, writes: bool, is_own: bool
    ) -> RecordStore:
        """The same object each time: what is kept of a store is known by it."""
        key = project.id, name, writes, is_own
        shared = self._shared.get(key)
        if shared is None or shared.store is not store:
            shared = self._shared[key] = SharedStore(store, name, writes=writes, is_own=is_own)
        return shared

    _answers: ClassVar[CatalogAnswers] = {
        catalog.ListProjects: _list_projects,
        catalog.GetProject: _get_project,
        catalog.ListSilences: _list_silences,
        catalog.FindWorkspaceProject: _find_workspace_project,
        catalog.ListWorkspaces: _list_workspaces,
    }
    _changes: ClassVar[CatalogChanges] = {
        catalog.AddProject: _add_project,
        catalog.SetProjectStatus: _alter,
        catalog.SetProjectOff: _alter,
        catalog.DeleteProject: _delete_project,
        catalog.LinkWorkspace: _link_workspace,
    }


@contextmanager
def _called(stored: str, shown: str) -> Generator[None, None, None]:
    """Errors name a project as the account does."""
    if stored == shown:
        yield
        return
    try:
        yield
    except NotFound:
        raise no_project(shown) from None
    except ProjectArchived:
        raise ProjectArchived(shown) from None
    except Conflict as error:
        message = error.message.replace(stored, shown)
        raise Conflict(message, hint=error.hint, project=shown) from None


def _stored_name(name: str, account: Account, number: int) -> str:
    suffix = f" ({account.name})" if number == 1 else f" ({account.name} {number})"
    return name[: PROJECT_NAME_LIMIT - len(suffix)] + suffix


def _workspace(account: Account, path: str, number: int) -> str:
    """No folder is called so."""
    whose = account.name if number == 1 else f"{account.name}:{number}"
    return f"{_ACCOUNTS}{whose}:{path}"


def _are_alike(grants: Sequence[Grant]) -> bool:
    """Whether two have the same name, so that only all together tell what each is called."""
    return len({grant.name for grant in grants}) < len(grants)


def _exists(name: str) -> Conflict:
    return Conflict(
        f'There is a project "{name}" already.',
        hint="list_projects with status `all` shows it; switch_project selects it.",
        kind="project",
        name=name,
    )


def _not_yet() -> Refused:
    """What an account has, all servers are to know of; why it is away is the owner's to know."""
    error = Refused(
        "A new project cannot be made while the database is away.",
        hint="Try again when it is back. Until then store with the scope `user`, or in a project "
        "that you see already.",
    )
    error.retry_possible = error.degraded = True
    return error


def _refuse_peer(account: Account) -> None:
    if account.is_peer:
        raise ReadOnly("Another server reads here, and never writes.")
