"""The library as whoever is acting may see it."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from uuid import uuid4

from everkept.app.accounts.grants import (
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
from everkept.app.accounts.homes import Home, is_home, is_taken, no_project
from everkept.app.accounts.stores import HomeStore, SharedStore
from everkept.app.projects import empty_store
from everkept.core.accounts import Account, acting
from everkept.core.conditions import Condition
from everkept.core.copies import Holdings
from everkept.core.ports import Library, RecordStore, Token
from everkept.core.projects import (
    PROJECT_NAME_LIMIT,
    Project,
    Silence,
    Status,
    checked_project_name,
)
from everkept.core.searching import Search
from everkept.core.times import Clock
from everkept.core.usage import Usage
from everkept.errors import (
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

_ACCOUNTS = "account:"  # how the keys of accounts' workspaces begin
_Shown = dict[str, tuple[Grant, Project]]


class GuardedLibrary:
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

    async def projects(self, status: Status | None = None) -> list[Project]:
        account = acting()
        if account is None:
            found = await self._library.projects(status)
            return [project for project in found if not is_home(project.name)]
        shown = sorted((await self._shown(account)).items())
        seen = [replace(project, name=name) for name, (_, project) in shown]
        return [project for project in seen if status in (None, project.status)]

    async def project(self, name: str) -> Project:
        _, project = await self._named(name)
        return replace(project, name=name)

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

    async def create(
        self, name: str, description: str, *, project_id: str = "", at: int | None = None
    ) -> Project:
        checked_project_name(name)
        account = acting()
        if is_taken(name):
            raise InvalidInput(
                f'Project name "{name}" has a meaning of its own.', argument="name", value=name
            )
        if account is None:
            return await self._library.create(name, description, project_id=project_id, at=at)
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
            made = await self._created(account, granted, description)
        except EverkeptError:
            # Somebody else may have gone on with it meanwhile.
            if begun is None and await self._with_id(granted.project_id) is None:
                await self._library.set_note(key, None)
            raise
        # Whoever makes a project of a name means that one from now on.
        for ended in ended_as(await self._library.notes(grants_key(account.name)), name):
            await self._library.set_note(ended, None)
        return replace(made, name=name)

    async def archive(self, name: str) -> Project:
        stored = await self._own(name)
        with _called(stored.name, name):
            return replace(await self._library.archive(stored.name), name=name)

    async def restore(self, name: str) -> Project:
        stored = await self._own(name)
        with _called(stored.name, name):
            return replace(await self._library.restore(stored.name), name=name)

    async def switch(self, name: str, *, off: bool, at: int | None = None) -> Project:
        stored = await self._own(name)
        with _called(stored.name, name):
            return replace(await self._library.switch(stored.name, off=off, at=at), name=name)

    async def delete(self, name: str) -> None:
        """With what was granted of it."""
        stored = await self._own(name)
        with _called(stored.name, name):
            await self._library.delete(stored.name)
        for grant in grants_in(await self._library.notes(GRANT)):
            if grant.project_id == stored.id:
                await self._library.set_note(grant_key(grant.user, stored.id), ended_text(grant))

    async def silences(self) -> list[Silence]:
        """An account's past is in no folder of this machine."""
        return await self._library.silences() if acting() is None else []

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

    async def project_of_workspace(self, path: str) -> Project | None:
        """An account's own, else the one of the folder itself where that is granted."""
        account = acting()
        if account is None:
            return await self._library.project_of_workspace(path)
        own, _ = await self._own_workspace(account, path)
        if own is not None:
            return own
        found = await self._library.project_of_workspace(path)
        return None if found is None else await self._seen(account, found)

    async def assign_workspace(self, path: str, project: Project) -> Project:
        account = acting()
        if account is None:
            return await self._library.assign_workspace(path, project)
        stored = await self._own(project.name)
        found, free = await self._own_workspace(account, path)
        if found is not None:
            return found
        first = await self._library.assign_workspace(free, stored)
        return await self._seen(account, first) or project

    async def workspaces_of(self, project: Project) -> list[str]:
        found = await self._owners().workspaces_of(project)
        return [path for path in found if not path.startswith(_ACCOUNTS)]

    async def note(self, key: str) -> str | None:
        return await self._owners().note(key)

    async def set_note(self, key: str, value: str | None) -> None:
        await self._owners().set_note(key, value)

    async def notes(self, prefix: str) -> Mapping[str, str]:
        return await self._owners().notes(prefix)

    async def add_searches(self, searches: Sequence[Search]) -> None:
        await self._owners().add_searches(searches)

    async def searches(self, *, session: str | None = None, limit: int = 100) -> list[Search]:
        return await self._owners().searches(session=session, limit=limit)

    async def forget_searches(self) -> int:
        return await self._owners().forget_searches()

    async def add_usage(self, rows: Sequence[Usage]) -> None:
        await self._owners().add_usage(rows)

    async def usage(self) -> list[Usage]:
        return await self._owners().usage()

    async def tokens(self) -> list[Token]:
        return await self._owners().tokens()

    async def add_token(self, token: Token, secret_hash: str) -> None:
        await self._owners().add_token(token, secret_hash)

    async def remove_token(self, token_id: str) -> bool:
        return await self._owners().remove_token(token_id)

    async def knows_token(self, secret_hash: str) -> bool:
        return await self._owners().knows_token(secret_hash)

    async def store_of(self, project: Project) -> RecordStore:
        return await self._owners().store_of(project)

    async def holdings(self) -> Holdings:
        return await self._owners().holdings()

    async def take_over(self, holdings: Holdings) -> None:
        await self._owners().take_over(holdings)

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
