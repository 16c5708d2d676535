"""Library, stores and searches, restricted to what the acting account may access."""

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar, cast
from uuid import uuid4

from everkept.accounts.grants import (
    Grant,
    build_grant_key,
    build_grants_prefix,
    encode_grant,
    iterate_stored_names,
    list_ended_keys,
    map_shown_names,
    parse_grants,
)
from everkept.accounts.project_rule import get_empty_store
from everkept.accounts.quotas import QuotaScope, StorageGuard, StorageQuotas, StoredAmount
from everkept.core import library as catalog
from everkept.core.answers import Finder, SearchFindings, SearchType, SectionHits, SectionSearch
from everkept.core.library import CatalogAnswers, CatalogChange, CatalogChanges, CatalogQuestion, Condition, Library
from everkept.core.peers import PeerAnswers, PeerQuestion
from everkept.core.projects import (
    TRASH_PREFIX,
    OffPeriod,
    Project,
    build_project_error,
    is_trash_name,
    validate_project_name,
)
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
from everkept.core.text import format_count
from everkept.core.times import Clock
from everkept.errors import (
    NO_FOLDER,
    BankNotFound,
    Conflict,
    EverkeptError,
    InvalidInput,
    NotFound,
    ProjectArchived,
    ProjectExists,
    QuotaExceeded,
    ReadOnly,
    Refused,
    StoreUnreachable,
)
from everkept.values import replace

_RESERVED_NAME = re.compile(rf"@(user|history)( \({NAME_PATTERN}\))?|{TRASH_PREFIX}.*")


def list_private_names(user: str) -> tuple[str, ...]:
    return format_private_name("user", user), format_private_name("history", user)


def is_reserved_name(project_name: str) -> bool:
    """Return whether the name is reserved for private stores or the trash."""
    return _RESERVED_NAME.fullmatch(project_name) is not None


def check_free_name(name: str) -> str:
    """Return the name if a project may have it, otherwise raise InvalidInput."""
    if is_reserved_name(validate_project_name(name)):
        raise InvalidInput(
            f'Project name "{name}" is reserved.', hint="Choose another name.", argument="name", value=name
        )
    return name


def _is_hidden(stored_name: str) -> bool:
    return is_private_name(stored_name) or is_trash_name(stored_name)


A = TypeVar("A")


class GuardedStore(RecordStore):
    """Store that checks access before a write. Readers may add derived data: embeddings and access counts."""

    async def _open_to_read(self) -> RecordStore:
        raise NotImplementedError

    async def _open_to_write(self) -> RecordStore:
        raise NotImplementedError

    async def ask(self, question: StoreQuestion[A]) -> A:
        if isinstance(question, MeasureSize):
            # The size is only for the owner: an engine may know only the size of all stores together.
            return cast("A", 0)
        return await (await self._open_to_read()).ask(question)

    async def _check_quota(self, store: RecordStore, batch: Batch) -> None:
        """Raise QuotaExceeded if the acting account may not store so much."""

    async def commit(self, batch: Batch) -> Change:
        store = await self._open_to_write()
        if get_acting_account() is not None:
            await self._check_quota(store, batch)
        return await store.commit(replace(batch, client=format_signature(batch.client)))

    async def maintain(self, upkeep: Upkeep[A]) -> A:
        is_derived = isinstance(upkeep, PutVectors | NoteAccesses)
        store = await (self._open_to_read() if is_derived else self._open_to_write())
        return await store.maintain(upkeep)


class SharedStore(GuardedStore):
    """A project's store, shared by all accounts with the same name for it and the same access."""

    def __init__(
        self, library: "GuardedLibrary", project_id: str, store: RecordStore, name: str, *, writes: bool, is_own: bool
    ) -> None:
        self.store = store
        self._library = library
        self._project_id = project_id
        self._name = name
        self._writes = writes
        self._is_own = is_own

    async def _open_to_read(self) -> RecordStore:
        return self.store

    async def _open_to_write(self) -> RecordStore:
        self.check_writable()
        return self.store

    async def _check_quota(self, store: RecordStore, batch: Batch) -> None:
        await self._library.check_quota(batch, store, self._project_id, f'Project "{self._name}"', is_own=self._is_own)

    def check_writable(self) -> None:
        if not self._writes:
            raise ReadOnly(
                f'You have read-only access to project "{self._name}".',
                hint="Ask its owner for write access.",
                project=self._name,
            )

    def check_own(self) -> None:
        if not self._is_own:
            raise Refused(
                "This project is shared with you. Moving a memory to your user scope would hide it from all others.",
                hint="Store a new memory with the scope `user` instead.",
            )


class AccountStore(GuardedStore):
    """An account's private store, created at its first write. `guarded` has the quotas of accounts."""

    def __init__(
        self, library: Library, home: PrivateStoreKind, user: str, guarded: "GuardedLibrary | None" = None
    ) -> None:
        self._guarded = guarded
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
            with suppress(Conflict):  # another server created it first
                await self._library.create(self._name, "")
        return (await self._library.open(self._name))[1]

    async def _check_quota(self, store: RecordStore, batch: Batch) -> None:
        if self._guarded is not None:
            await self._guarded.check_quota(batch, store, self._name, "Your private memory", is_own=True)


class OwnerSectionSearch:
    """Search in memory bank sections, only for the owner."""

    def __init__(self, sections: SectionSearch) -> None:
        self._sections = sections

    async def find_sections(self, call: ToolCall, query: str, limit: int) -> SectionHits:
        if get_acting_account() is not None:
            raise BankNotFound(NO_FOLDER)
        return await self._sections.find_sections(call, query, limit)


class OwnerFinder:
    """Search that finds results only for the owner."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder

    @property
    def name(self) -> str:
        return self._finder.name

    async def find(
        self, call: ToolCall, query: str, ways: Sequence[SearchType], limit: int, *, all_projects: bool = False
    ) -> SearchFindings:
        if get_acting_account():
            return SearchFindings([])
        return await self._finder.find(call, query, ways, limit, all_projects=all_projects)

    async def get_stamp(self, call: ToolCall) -> object:
        return None if get_acting_account() else await self._finder.get_stamp(call)


class OwnerPeers:
    """Peers, only for the owner's calls. Accounts and peers find none, so no search is forwarded."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def ask(self, question: PeerQuestion) -> PeerAnswers:
        if get_acting_account() is not None:
            return PeerAnswers(is_anybody=False)
        # Imported here: most calls ask no peers.
        from everkept.peers.client import HttpPeers
        from everkept.peers.peer_file import PeerFile

        return await HttpPeers(PeerFile(self._folder)).ask(question)


DEFAULT_QUOTAS = StorageQuotas()
_WORKSPACE_PREFIX = "account:"  # no path of a folder begins with it
_ShownProjects = dict[str, tuple[Grant, Project]]


class GuardedLibrary(Library):
    """Library restricted to the acting account, which is checked in each call.

    The owner sees everything except the accounts' private stores. An account sees only its granted projects, under its
    own names.
    """

    def __init__(self, library: Library, clock: Clock, quotas: StorageQuotas = DEFAULT_QUOTAS) -> None:
        self._library = library
        self._clock = clock
        self._quotas = quotas
        self._storage = StorageGuard(clock)
        # by project id, name and access
        self._shared: dict[tuple[str, str, bool, bool], SharedStore] = {}
        self._stored_names: dict[str, str] = {}  # of projects, by id
        self._homes: dict[tuple[PrivateStoreKind, str], AccountStore] = {}

    async def ask(self, question: CatalogQuestion[A]) -> A:
        """Answer a question. A question that is missing in the table is only for the owner."""
        answer = self._answers.get(type(question))
        if answer is None:
            return await self._get_owner_library().ask(question)
        return await answer(self, question)

    async def apply(self, change: CatalogChange[A]) -> A:
        """Apply a change. A change that is missing in the table is only for the owner."""
        do = self._changes.get(type(change))
        if do is None:
            return await self._get_owner_library().apply(change)
        return await do(self, change)

    async def _list_projects(self, question: catalog.ListProjects) -> list[Project]:
        account = get_acting_account()
        if account is None:
            found = await self._library.ask(question)
            return [project for project in found if not _is_hidden(project.name)]
        shown = sorted((await self._map_shown(account)).items())
        seen = [replace(project, name=name) for name, (_, project) in shown]
        return [project for project in seen if question.status in (None, project.status)]

    async def _get_project(self, question: catalog.GetProject) -> Project:
        _, project = await self._resolve_project(question.name)
        return replace(project, name=question.name)

    async def open(self, name: str) -> tuple[Project, RecordStore]:
        account = get_acting_account()
        if account is None and not _is_hidden(name):
            return await self._library.open(name)
        grant, project = await self._resolve_project(name)
        with translate_project_errors(project.name, name):
            found, store = await self._library.open(project.name)
        writes = grant is not None and grant.can_write and account is not None and not account.is_peer
        is_own = grant is not None and grant.access == "own"
        # The same object each time, because caches use the store as a key.
        key = found.id, name, writes, is_own
        shared = self._shared.get(key)
        if shared is None or shared.store is not store:
            shared = self._shared[key] = SharedStore(self, found.id, store, name, writes=writes, is_own=is_own)
        return replace(found, name=name), shared

    async def _add_project(self, change: catalog.AddProject) -> Project:
        name = check_free_name(change.name)
        account = get_acting_account()
        if account is None:
            return await self._library.apply(change)
        _refuse_peer(account)
        if name in await self._map_shown(account):
            raise ProjectExists(name)
        await self._check_project_count(account)
        begun = await self._find_begun_grant(account, name)
        granted = begun or Grant(account.name, str(uuid4()), "own", name, self._clock())
        key = build_grant_key(granted.user, granted.project_id)
        # The grant comes before the project, so that a concurrent call with the same name finds it.
        try:
            await self._library.set_note(key, encode_grant(granted))
        except StoreUnreachable:
            raise _build_unreachable_error() from None
        try:
            made = await self._create_project(account, granted, change.description)
        except EverkeptError:
            # A concurrent call may have created the project.
            if begun is None and await self._find_by_id(granted.project_id) is None:
                await self._library.set_note(key, None)
            raise
        # From now on the name refers to the new project.
        for ended in list_ended_keys(await self._library.list_notes(build_grants_prefix(account.name)), name):
            await self._library.set_note(ended, None)
        return replace(made, name=name)

    async def _change_project(self, change: catalog.SetProjectStatus | catalog.SetProjectOff) -> Project:
        stored = await self.resolve_own_project(change.name)
        with translate_project_errors(stored.name, change.name):
            altered = await self._library.apply(replace(change, name=stored.name))
        return replace(altered, name=change.name)

    async def _delete_project(self, change: catalog.DeleteProject) -> None:
        # Imported here: a tool moves a project to the trash instead.
        from everkept.accounts.project_events import delete_permanently

        stored = await self.resolve_own_project(change.name)
        with translate_project_errors(stored.name, change.name):
            await delete_permanently(self._library, stored)

    async def _list_off_periods(self, question: catalog.ListOffPeriods) -> list[OffPeriod]:
        """Return none to an account: it has no conversations in folders of this machine."""
        return await self._library.ask(question) if get_acting_account() is None else []

    async def open_user_store(self) -> RecordStore:
        return self.find_private_store() or await self._library.open_user_store()

    async def open_history_store(self) -> RecordStore:
        return self.find_private_store("history") or await self._library.open_history_store()

    def find_private_store(self, home: PrivateStoreKind = "user") -> RecordStore | None:
        """Return the acting account's private store, or None for the owner."""
        account = get_acting_account()
        if account is None:
            return None
        if account.is_peer:
            return get_empty_store()  # a peer has no private store
        key = home, account.name
        if key not in self._homes:
            self._homes[key] = AccountStore(self._library, home, account.name, self)
        return self._homes[key]

    async def check_quota(self, batch: Batch, store: RecordStore, key: str, title: str, *, is_own: bool) -> None:
        """Raise QuotaExceeded if the acting account may not add this batch to the store."""
        account, quotas = get_acting_account(), self._quotas
        if account is None:
            return

        async def list_one() -> Sequence[RecordStore]:
            return [store]

        project_limits = StoredAmount(quotas.project_records, quotas.project_bytes)
        scopes = [QuotaScope(key, title, ("quota_project_records", "quota_project_bytes"), project_limits, list_one)]
        if is_own:
            names = "quota_account_records", "quota_account_bytes"
            limits = StoredAmount(quotas.account_records, quotas.account_bytes)
            own = partial(self.list_own_stores, account.name)
            scopes.append(QuotaScope(f"account {account.name}", f'Account "{account.name}"', names, limits, own))
        await self._storage.check(batch, scopes)

    async def list_own_stores(self, user: str) -> list[RecordStore]:
        """Return the stores of the private data and the projects that belong to an account."""
        grants = parse_grants(await self._library.list_notes(build_grants_prefix(user)))
        own = {grant.project_id for grant in grants if grant.access == "own"}
        private = list_private_names(user)
        projects = [each for each in await self._library.list_projects() if each.id in own or each.name in private]
        return [await self._library.get_store(project) for project in projects]

    async def _check_project_count(self, account: Account) -> None:
        limit = self._quotas.projects
        grants = (await self._map_shown(account)).values()
        count = sum(grant.access == "own" for grant, _ in grants)
        if 0 < limit <= count:
            raise QuotaExceeded(
                f"You already have {format_count(count, 'project')}; accounts may have {limit:,}.",
                hint="Delete a project, or ask the server's owner for a larger quota_projects.",
                quota="quota_projects",
                limit=limit,
            )

    async def _find_workspace_project(self, question: catalog.FindWorkspaceProject) -> Project | None:
        """Return the account's own project for the folder, otherwise the owner's project if it is granted."""
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
        stored = await self.resolve_own_project(change.project.name)
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
        """The state of the library. An account does not see the address of the database or pending writes."""
        whole = self._library.condition
        if get_acting_account() is None:
            return whole
        told = Condition(whole.engine, whole.mode, whole.status, whole.version)
        return replace(told, since=whole.since, is_catching_up=whole.is_catching_up)

    async def close(self) -> None:
        await self._library.close()

    def _get_owner_library(self) -> Library:
        """Return the unrestricted library. Refuse accounts."""
        if get_acting_account() is not None:
            raise Refused("Only the server's owner can do this.", hint="Ask the server's owner to do it.")
        return self._library

    async def _map_shown(self, account: Account) -> _ShownProjects:
        grants = parse_grants(await self._library.list_notes(build_grants_prefix(account.name)))
        return map_shown_names(grants, await self._library.list_projects()) if grants else {}

    async def _find_granted(self, account: Account, name: str) -> tuple[Grant, Project] | None:
        """Find a granted project by its shown name. Read all projects only if two grants have the same name."""
        grants = parse_grants(await self._library.list_notes(build_grants_prefix(account.name)))
        if _has_equal_names(grants):
            return map_shown_names(grants, await self._library.list_projects()).get(name)
        grant = next((grant for grant in grants if grant.name == name), None)
        project = None if grant is None else await self._find_by_id(grant.project_id)
        return None if grant is None or project is None or is_trash_name(project.name) else (grant, project)

    async def _find_by_id(self, project_id: str) -> Project | None:
        """Find a project, first by the name it had last time, then among all projects."""
        if stored := self._stored_names.get(project_id):
            with suppress(NotFound):
                project = await self._library.get_project(stored)
                if project.id == project_id:
                    return project
        projects = {project.id: project for project in await self._library.list_projects()}
        self._stored_names = {project.id: project.name for project in projects.values()}
        return projects.get(project_id)

    async def _find_own_workspace(self, account: Account, path: str) -> tuple[Project | None, str]:
        """Return the account's project of this folder, otherwise None and a free workspace key.

        The key of a project that the account no longer sees is never reused: it may be from an earlier account of this
        name.
        """
        number = 1
        while True:
            whose = account.name if number == 1 else f"{account.name}:{number}"
            key = f"{_WORKSPACE_PREFIX}{whose}:{path}"
            found = await self._library.find_workspace_project(key)
            seen = None if found is None else await self._find_shown(account, found)
            if found is None or seen is not None:
                return seen, key
            number += 1

    async def _resolve_project(self, name: str) -> tuple[Grant | None, Project]:
        """Return a project under its stored name, and the grant, which is None for the owner."""
        account = get_acting_account()
        if account is not None:
            found = await self._find_granted(account, name)
        else:
            found = None if _is_hidden(name) else (None, await self._library.get_project(name))
        if found is None:
            raise build_project_error(name)
        return found

    async def resolve_own_project(self, name: str) -> Project:
        """Return a project that the caller may archive, delete or turn off."""
        grant, project = await self._resolve_project(name)
        if account := get_acting_account():
            _refuse_peer(account)
        if grant is not None and grant.access != "own":
            raise Refused(
                f'Project "{name}" is shared with you.',
                hint="Ask its owner to archive it, delete it or turn it off.",
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
        """Find the grant of an earlier attempt to create this project that got no reply."""
        grants = parse_grants(await self._library.list_notes(build_grants_prefix(account.name)))
        own = [grant for grant in grants if (grant.access, grant.name) == ("own", name)]
        left = [grant for grant in own if await self._find_by_id(grant.project_id) is None]
        return left[0] if left else None

    async def _create_project(self, account: Account, granted: Grant, description: str) -> Project:
        """Create the project under a stored name that includes the account, so other projects' names do not matter."""
        for stored in iterate_stored_names(granted.name, account.name):
            try:
                return await self._library.create(stored, description, project_id=granted.project_id)
            except Conflict:
                if granted.name in await self._map_shown(account):
                    raise ProjectExists(granted.name) from None
        raise ProjectExists(granted.name)

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
def translate_project_errors(stored: str, shown: str) -> Generator[None, None, None]:
    """Replace the stored project name in errors with the name that the account sees."""
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
        told = Conflict(message, hint=error.hint, project=shown)
        told.code, told.retry_possible = error.code, error.retry_possible
        raise told from None


def _has_equal_names(grants: Sequence[Grant]) -> bool:
    """Return whether two grants have the same name. The shown names then depend on all of them."""
    return len({grant.name for grant in grants}) < len(grants)


def _build_unreachable_error() -> Refused:
    """Build the error without its reason, which only the owner may see. All servers must know an account's projects."""
    error = Refused(
        "Cannot create a project while the database is unreachable.",
        hint="Try again later. Until then use the scope `user` or an existing project.",
    )
    error.retry_possible = error.degraded = True
    return error


def _refuse_peer(account: Account) -> None:
    if account.is_peer:
        raise ReadOnly("Peer servers have read-only access.")
