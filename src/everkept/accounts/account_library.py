"""The library, its stores and its searches as the acting account may reach them."""

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, TypeVar, cast
from uuid import uuid4

from everkept.accounts.grants import (
    GRANT_NOTES,
    Grant,
    build_grant_key,
    build_grants_prefix,
    encode_ended_grant,
    encode_grant,
    list_ended_keys,
    map_shown_names,
    parse_grants,
)
from everkept.accounts.project_rule import get_empty_store
from everkept.core import library as catalog
from everkept.core.answers import Finder, SearchFindings, SearchType, SectionHits, SectionSearch
from everkept.core.library import CatalogAnswers, CatalogChange, CatalogChanges, CatalogQuestion, Condition, Library
from everkept.core.peers import PeerAnswers, PeerQuestion
from everkept.core.projects import MAX_PROJECT_NAME_CHARACTERS, OffPeriod, Project, validate_project_name
from everkept.core.records import Batch, Change
from everkept.core.sessions import (
    NAME_PATTERN,
    Account,
    PrivateStoreKind,
    ToolCall,
    format_private_name,
    format_signature,
    get_acting_account,
    is_private_name,
)
from everkept.core.store import MeasureSize, NoteAccesses, PutVectors, RecordStore, StoreQuestion, Upkeep
from everkept.core.times import Clock
from everkept.errors import (
    NO_FOLDER,
    BankNotFound,
    Conflict,
    EverkeptError,
    InvalidInput,
    NotFound,
    ProjectArchived,
    ReadOnly,
    Refused,
    StoreUnreachable,
)
from everkept.values import replace

_RESERVED_NAME = re.compile(rf"@(user|history)( \({NAME_PATTERN}\))?")


def list_private_names(user: str) -> tuple[str, ...]:
    return format_private_name("user", user), format_private_name("history", user)


def is_reserved_name(project_name: str) -> bool:
    """Whether no new project may have this name: it is a home's, or would become one's."""
    return _RESERVED_NAME.fullmatch(project_name) is not None


def build_project_error(name: str) -> NotFound:
    """Word for word the same, whether there is one that may not be seen or none at all."""
    readable = name.encode("utf-8", "replace").decode()
    hint = "list_projects shows what exists; create_project makes one."
    return NotFound("project", readable, hint=hint)


A = TypeVar("A")


class GuardedStore(RecordStore):
    """Passes every question on, and checks the account before a write.

    Vectors and access counts are derived: an account that may read may add them.
    """

    async def _open_to_read(self) -> RecordStore:
        raise NotImplementedError

    async def _open_to_write(self) -> RecordStore:
        raise NotImplementedError

    async def ask(self, question: StoreQuestion[A]) -> A:
        if isinstance(question, MeasureSize):
            # The disk is the owner's: an engine may know only the size of all stores together.
            return cast("A", 0)
        return await (await self._open_to_read()).ask(question)

    async def commit(self, batch: Batch) -> Change:
        store = await self._open_to_write()
        return await store.commit(replace(batch, client=format_signature(batch.client)))

    async def maintain(self, upkeep: Upkeep[A]) -> A:
        is_derived = isinstance(upkeep, PutVectors | NoteAccesses)
        store = await (self._open_to_read() if is_derived else self._open_to_write())
        return await store.maintain(upkeep)


class SharedStore(GuardedStore):
    """A project's store; one for all accounts that know it by this name and may do the same."""

    def __init__(self, store: RecordStore, name: str, *, writes: bool, is_own: bool) -> None:
        self.store = store
        self._name = name
        self._writes = writes
        self._is_own = is_own

    async def _open_to_read(self) -> RecordStore:
        return self.store

    async def _open_to_write(self) -> RecordStore:
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
                "This project is shared with you: a memory that becomes yours alone would be gone for all others.",
                hint="Store a memory of your own with the scope `user`.",
            )


class AccountStore(GuardedStore):
    """What is an account's alone; made at its first write."""

    def __init__(self, library: Library, home: PrivateStoreKind, user: str) -> None:
        self._library = library
        self._name = format_private_name(home, user)

    async def _open_to_read(self) -> RecordStore:
        try:
            return (await self._library.open(self._name))[1]
        except NotFound:
            return get_empty_store()

    async def _open_to_write(self) -> RecordStore:
        try:
            return (await self._library.open(self._name))[1]
        except NotFound:
            with suppress(Conflict):  # another server was quicker
                await self._library.create(self._name, "")
        return (await self._library.open(self._name))[1]


class OwnerSectionSearch:
    """Parts of files that no account sees."""

    def __init__(self, sections: SectionSearch) -> None:
        self._sections = sections

    async def find_sections(self, call: ToolCall, query: str, limit: int) -> SectionHits:
        if get_acting_account() is not None:
            raise BankNotFound(NO_FOLDER)
        return await self._sections.find_sections(call, query, limit)


class OwnerFinder:
    """A search that finds nothing for an account."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder

    @property
    def name(self) -> str:
        return self._finder.name

    async def find(self, call: ToolCall, query: str, ways: Sequence[SearchType], limit: int) -> SearchFindings:
        return SearchFindings([]) if get_acting_account() else await self._finder.find(call, query, ways, limit)

    async def get_stamp(self, call: ToolCall) -> object:
        return None if get_acting_account() else await self._finder.get_stamp(call)


class OwnerPeers:
    """What others have granted, they have granted to the owner.

    An account's call finds nobody, as if none were known; so does a peer's, and no question goes
    on from server to server.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def ask(self, question: PeerQuestion) -> PeerAnswers:
        if get_acting_account() is not None:
            return PeerAnswers(is_anybody=False)
        # Loaded here: most calls ask nobody.
        from everkept.peers.client import HttpPeers
        from everkept.peers.peer_file import PeerFile

        return await HttpPeers(PeerFile(self._folder)).ask(question)


_WORKSPACE_PREFIX = "account:"  # how the keys of accounts' workspaces begin
_ShownProjects = dict[str, tuple[Grant, Project]]


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
        self._homes: dict[tuple[PrivateStoreKind, str], AccountStore] = {}

    async def ask(self, question: CatalogQuestion[A]) -> A:
        """Refuse an account every question that is missing in the table."""
        answer = self._answers.get(type(question))
        if answer is None:
            return await self._get_owner_library().ask(question)
        return await answer(self, question)

    async def apply(self, change: CatalogChange[A]) -> A:
        """Refuse an account every change that is missing in the table."""
        do = self._changes.get(type(change))
        if do is None:
            return await self._get_owner_library().apply(change)
        return await do(self, change)

    async def _list_projects(self, question: catalog.ListProjects) -> list[Project]:
        account = get_acting_account()
        if account is None:
            found = await self._library.ask(question)
            return [project for project in found if not is_private_name(project.name)]
        shown = sorted((await self._map_shown(account)).items())
        seen = [replace(project, name=name) for name, (_, project) in shown]
        return [project for project in seen if question.status in (None, project.status)]

    async def _get_project(self, question: catalog.GetProject) -> Project:
        _, project = await self._resolve_project(question.name)
        return replace(project, name=question.name)

    async def open(self, name: str) -> tuple[Project, RecordStore]:
        account = get_acting_account()
        if account is None and not is_private_name(name):
            return await self._library.open(name)
        grant, project = await self._resolve_project(name)
        with _translate_errors(project.name, name):
            found, store = await self._library.open(project.name)
        writes = grant is not None and grant.can_write and account is not None and not account.is_peer
        is_own = grant is not None and grant.access == "own"
        shared = self._get_shared_store(found, store, name, writes=writes, is_own=is_own)
        return replace(found, name=name), shared

    async def _add_project(self, change: catalog.AddProject) -> Project:
        name = validate_project_name(change.name)
        account = get_acting_account()
        if is_reserved_name(name):
            raise InvalidInput(f'Project name "{name}" has a meaning of its own.', argument="name", value=name)
        if account is None:
            return await self._library.apply(change)
        _refuse_peer(account)
        if name in await self._map_shown(account):
            raise _build_exists_error(name)
        begun = await self._find_begun_grant(account, name)
        granted = begun or Grant(account.name, str(uuid4()), "own", name, self._clock())
        key = build_grant_key(granted.user, granted.project_id)
        # Before the project, so that whoever makes the same one at the same time finds it.
        try:
            await self._library.set_note(key, encode_grant(granted))
        except StoreUnreachable:
            raise _build_unreachable_error() from None
        try:
            made = await self._create_project(account, granted, change.description)
        except EverkeptError:
            # Somebody else may have gone on with it meanwhile.
            if begun is None and await self._find_by_id(granted.project_id) is None:
                await self._library.set_note(key, None)
            raise
        # Whoever makes a project of a name means that one from now on.
        for ended in list_ended_keys(await self._library.list_notes(build_grants_prefix(account.name)), name):
            await self._library.set_note(ended, None)
        return replace(made, name=name)

    async def _change_project(self, change: catalog.SetProjectStatus | catalog.SetProjectOff) -> Project:
        stored = await self._resolve_own_project(change.name)
        with _translate_errors(stored.name, change.name):
            altered = await self._library.apply(replace(change, name=stored.name))
        return replace(altered, name=change.name)

    async def _delete_project(self, change: catalog.DeleteProject) -> None:
        """Delete the grants of the project too."""
        stored = await self._resolve_own_project(change.name)
        with _translate_errors(stored.name, change.name):
            await self._library.delete(stored.name)
        for grant in parse_grants(await self._library.list_notes(GRANT_NOTES)):
            if grant.project_id == stored.id:
                await self._library.set_note(build_grant_key(grant.user, stored.id), encode_ended_grant(grant))

    async def _list_off_periods(self, question: catalog.ListOffPeriods) -> list[OffPeriod]:
        """Return none to an account: its past is in no folder of this machine."""
        return await self._library.ask(question) if get_acting_account() is None else []

    async def open_user_store(self) -> RecordStore:
        return self.find_private_store() or await self._library.open_user_store()

    async def open_history_store(self) -> RecordStore:
        return self.find_private_store("history") or await self._library.open_history_store()

    def find_private_store(self, home: PrivateStoreKind = "user") -> RecordStore | None:
        """What is an account's alone; None where the owner acts."""
        account = get_acting_account()
        if account is None:
            return None
        if account.is_peer:
            return get_empty_store()  # another server has nothing of its own here
        key = home, account.name
        if key not in self._homes:
            self._homes[key] = AccountStore(self._library, home, account.name)
        return self._homes[key]

    async def _find_workspace_project(self, question: catalog.FindWorkspaceProject) -> Project | None:
        """Return an account's own, else the one of the folder itself if that is granted."""
        account = get_acting_account()
        if account is None:
            return await self._library.ask(question)
        own, _ = await self._find_own_workspace(account, question.path)
        if own is not None:
            return own
        found = await self._library.ask(question)
        return None if found is None else await self._find_shown(account, found)

    async def _link_workspace(self, change: catalog.LinkWorkspace) -> Project:
        account = get_acting_account()
        if account is None:
            return await self._library.apply(change)
        stored = await self._resolve_own_project(change.project.name)
        found, free = await self._find_own_workspace(account, change.path)
        if found is not None:
            return found
        first = await self._library.link_workspace(free, stored)
        return await self._find_shown(account, first) or change.project

    async def _list_workspaces(self, question: catalog.ListWorkspaces) -> list[str]:
        found = await self._get_owner_library().ask(question)
        return [path for path in found if not path.startswith(_WORKSPACE_PREFIX)]

    async def get_store(self, project: Project) -> RecordStore:
        return await self._get_owner_library().get_store(project)

    async def on_change(self, hear: Callable[[], None]) -> bool:
        return await self._library.on_change(hear)

    @property
    def condition(self) -> Condition:
        """An account is told how it is doing, not where it is or what others wait for."""
        whole = self._library.condition
        if get_acting_account() is None:
            return whole
        told = Condition(whole.engine, whole.mode, whole.status, whole.version)
        return replace(told, since=whole.since, is_catching_up=whole.is_catching_up)

    async def close(self) -> None:
        await self._library.close()

    def _get_owner_library(self) -> Library:
        """The library itself, for what no account has any part in."""
        if get_acting_account() is not None:
            raise Refused("This is for the owner of the server alone.")
        return self._library

    async def _map_shown(self, account: Account) -> _ShownProjects:
        grants = parse_grants(await self._library.list_notes(build_grants_prefix(account.name)))
        return map_shown_names(grants, await self._library.list_projects()) if grants else {}

    async def _find_granted(self, account: Account, name: str) -> tuple[Grant, Project] | None:
        """Looks at the one project alone where its name is told by the grants."""
        grants = parse_grants(await self._library.list_notes(build_grants_prefix(account.name)))
        if _has_equal_names(grants):
            return map_shown_names(grants, await self._library.list_projects()).get(name)
        grant = next((grant for grant in grants if grant.name == name), None)
        project = None if grant is None else await self._find_by_id(grant.project_id)
        return None if grant is None or project is None else (grant, project)

    async def _find_by_id(self, project_id: str) -> Project | None:
        """By the name that it had when it was last seen, before all are looked through."""
        if stored := self._stored_names.get(project_id):
            with suppress(NotFound):
                project = await self._library.get_project(stored)
                if project.id == project_id:
                    return project
        projects = {project.id: project for project in await self._library.list_projects()}
        self._stored_names = {project.id: project.name for project in projects.values()}
        return projects.get(project_id)

    async def _find_own_workspace(self, account: Account, path: str) -> tuple[Project | None, str]:
        """The account's project of this folder, else the key under which it can have one.

        A key stays that of a project which the account sees no longer: another of its name had it.
        """
        number = 1
        while True:
            key = _build_workspace_key(account, path, number)
            found = await self._library.find_workspace_project(key)
            seen = None if found is None else await self._find_shown(account, found)
            if found is None or seen is not None:
                return seen, key
            number += 1

    async def _resolve_project(self, name: str) -> tuple[Grant | None, Project]:
        """The project as it is kept below, and how it is granted; None: to its owner."""
        account = get_acting_account()
        if account is not None:
            found = await self._find_granted(account, name)
        else:
            found = None if is_private_name(name) else (None, await self._library.get_project(name))
        if found is None:
            raise build_project_error(name)
        return found

    async def _resolve_own_project(self, name: str) -> Project:
        """One that whoever is acting may put away or delete."""
        grant, project = await self._resolve_project(name)
        if account := get_acting_account():
            _refuse_peer(account)
        if grant is not None and grant.access != "own":
            raise Refused(
                f'Project "{name}" is shared with you; whoever shares it puts it away, deletes it or switches it off.',
                project=name,
            )
        return project

    async def _find_shown(self, account: Account, project: Project) -> Project | None:
        grants = parse_grants(await self._library.list_notes(build_grants_prefix(account.name)))
        projects = await self._library.list_projects() if _has_equal_names(grants) else [project]
        shown = map_shown_names(grants, projects).items()
        name = next((name for name, (_, each) in shown if each.id == project.id), None)
        return None if name is None else replace(project, name=name)

    async def _find_begun_grant(self, account: Account, name: str) -> Grant | None:
        """What is left of an attempt to make a project of this name that got no answer."""
        grants = parse_grants(await self._library.list_notes(build_grants_prefix(account.name)))
        own = [grant for grant in grants if (grant.access, grant.name) == ("own", name)]
        left = [grant for grant in own if await self._find_by_id(grant.project_id) is None]
        return left[0] if left else None

    async def _create_project(self, account: Account, granted: Grant, description: str) -> Project:
        """Under a name that says whose it is; what others call theirs is nothing to an account."""
        number = 1
        while True:
            stored = _build_stored_name(granted.name, account, number)
            try:
                return await self._library.create(stored, description, project_id=granted.project_id)
            except Conflict:
                if granted.name in await self._map_shown(account):
                    raise _build_exists_error(granted.name) from None
                number += 1

    def _get_shared_store(
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
        catalog.ListOffPeriods: _list_off_periods,
        catalog.FindWorkspaceProject: _find_workspace_project,
        catalog.ListWorkspaces: _list_workspaces,
    }
    _changes: ClassVar[CatalogChanges] = {
        catalog.AddProject: _add_project,
        catalog.SetProjectStatus: _change_project,
        catalog.SetProjectOff: _change_project,
        catalog.DeleteProject: _delete_project,
        catalog.LinkWorkspace: _link_workspace,
    }


@contextmanager
def _translate_errors(stored: str, shown: str) -> Generator[None, None, None]:
    """Errors name a project as the account does."""
    if stored == shown:
        yield
        return
    try:
        yield
    except NotFound:
        raise build_project_error(shown) from None
    except ProjectArchived:
        raise ProjectArchived(shown) from None
    except Conflict as error:
        message = error.message.replace(stored, shown)
        raise Conflict(message, hint=error.hint, project=shown) from None


def _build_stored_name(name: str, account: Account, number: int) -> str:
    suffix = f" ({account.name})" if number == 1 else f" ({account.name} {number})"
    return name[: MAX_PROJECT_NAME_CHARACTERS - len(suffix)] + suffix


def _build_workspace_key(account: Account, path: str, number: int) -> str:
    """No folder is called so."""
    whose = account.name if number == 1 else f"{account.name}:{number}"
    return f"{_WORKSPACE_PREFIX}{whose}:{path}"


def _has_equal_names(grants: Sequence[Grant]) -> bool:
    """Whether two have the same name, so that only all together tell what each is called."""
    return len({grant.name for grant in grants}) < len(grants)


def _build_exists_error(name: str) -> Conflict:
    return Conflict(
        f'There is a project "{name}" already.',
        hint="list_projects with status `all` shows it; switch_project selects it.",
        kind="project",
        name=name,
    )


def _build_unreachable_error() -> Refused:
    """What an account has, all servers are to know of; why it is away is the owner's to know."""
    error = Refused(
        "A new project cannot be made while the database is away.",
        hint="Try again when it is back. Until then store with the scope `user`, or in a project that you see already.",
    )
    error.retry_possible = error.degraded = True
    return error


def _refuse_peer(account: Account) -> None:
    if account.is_peer:
        raise ReadOnly("Another server reads here, and never writes.")
