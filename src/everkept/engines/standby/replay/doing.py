"""Doing an act that waited to the database, so that its repetition has no effect."""

from collections.abc import Awaitable, Callable, Mapping

from everkept.core.accounts import Account
from everkept.core.commits import commit, retry
from everkept.core.ports import Library, RecordStore
from everkept.core.projects import Project, Status
from everkept.core.records import Batch
from everkept.core.rights import Rights, RightsOf, of_nobody
from everkept.engines.standby.journal.acts import (
    HISTORY,
    USER,
    Act,
    AddToken,
    ArchiveProject,
    AssignWorkspace,
    Commit,
    CreateProject,
    RemoveToken,
    RestoreProject,
    SetNote,
    SwitchProject,
    project_of,
)
from everkept.engines.standby.journal.journal import SAME_PROJECT, Journal
from everkept.engines.standby.replay.permitting import expect_permitted, expect_there
from everkept.engines.standby.replay.rebasing import rebased
from everkept.errors import Conflict, NotFound
from everkept.values import replace

_OfProject = ArchiveProject | RestoreProject | SwitchProject


class Doing:
    """What was found of the database on the way is kept for the next act."""

    def __init__(self, journal: Journal, library: Library, rights_of: RightsOf = of_nobody) -> None:
        self._journal = journal
        self._library = library
        self._rights_of = rights_of
        self._rights: dict[str, Rights | None] = {}  # by the names of accounts
        self._projects: dict[str, Project] = {}  # as they were last seen, by id
        self._stores: dict[str, RecordStore] = {}

    def look_again(self) -> None:
        """For stores and rights, which are not looked for at each commit."""
        self._stores.clear()
        self._rights.clear()

    async def do(self, act: Act, account: Account | None = None) -> int | None:
        """The number of the commit, where it is one. Raises what keeps the act from being done.

        What an `account` wrote is done only where it may write that by now.
        """
        if account is not None:
            await self._expect_permitted(act, account)
        match act:
            case Commit(store, batch):
                number = await self._commit(store, batch)
                return number or None  # without a number nothing had to change
            case CreateProject(project):
                await self._create(project)
            case ArchiveProject() | RestoreProject() | SwitchProject() as act:
                await self._change_project(act)
            case AssignWorkspace(path, project_id):
                project = await self._project(project_id)
                await self._library.assign_workspace(path, project)
            case SetNote(key, value):
                await self._library.set_note(key, value)
            case AddToken() as act:
                await self._add_token(act)
            case RemoveToken(token_id):
                await self._library.remove_token(token_id)
        return None

    async def _expect_permitted(self, act: Act, account: Account) -> None:
        name = account.name
        if name not in self._rights:
            self._rights[name] = await self._rights_of(self._library, name)
        rights = expect_there(account, self._rights[name])
        expect_permitted(act, await self._project_of(act), rights)

    async def _project_of(self, act: Act) -> Project | None:
        match act:
            case Commit(store):
                project_id = project_of(store)
                return None if project_id is None else await self._project(project_id)
            case CreateProject(project):
                return project
            case ArchiveProject() | RestoreProject() | SwitchProject() | AssignWorkspace():
                return await self._project(act.project_id)
            case _:
                return None

    async def _commit(self, store_name: str, batch: Batch) -> int | None:
        store = await self._store(store_name)
        fitting = replace(batch, revision=None)
        is_there = False  # all of it already

        async def attempt() -> int | None:
            return None if is_there else (await commit(store, fitting)).seq

        async def made_to_fit() -> bool:
            nonlocal fitting, is_there
            made = await rebased(batch, store)
            if made is None:
                return False
            fitting, is_there = made, not made.steps
            return True

        return await retry(attempt, again=made_to_fit)

    async def _store(self, name: str) -> RecordStore:
        if name not in self._stores:
            self._stores[name] = await self._opened(name)
        return self._stores[name]

    async def _opened(self, name: str) -> RecordStore:
        if name == USER:
            return await self._library.user()
        if name == HISTORY:
            return await self._library.history()
        wanted = await self._project(project_of(name) or name)
        project, store = await self._library.open(wanted.name)
        if project.id != wanted.id:
            raise _gone(wanted.name)
        return store

    async def _create(self, project: Project) -> None:
        """Where another one has the name by now, the two are one from here on."""
        try:
            await self._library.create(
                project.name,
                project.description,
                project_id=project.id,
                at=project.created_at,
            )
        except Conflict:
            there = await self._look()
            same_name = [each for each in there.values() if each.name == project.name]
            if project.id in there:
                return
            if not same_name:
                raise
            await self._journal.note(SAME_PROJECT, project.id, same_name[0].id)

    async def _change_project(self, act: _OfProject) -> None:
        await self._look()
        project = await self._project(act.project_id, act.name)
        match act:
            case ArchiveProject():
                await self._bring(project, "archived", self._library.archive)
            case RestoreProject():
                await self._bring(project, "active", self._library.restore)
            case SwitchProject():
                await self._library.switch(project.name, off=act.off, at=act.at)

    async def _bring(
        self, project: Project, status: Status, move: Callable[[str], Awaitable[Project]]
    ) -> None:
        if project.status == status:
            return
        try:
            await move(project.name)
        except Conflict:
            now = (await self._look()).get(project.id)
            if now is None or now.status != status:
                raise

    async def _add_token(self, act: AddToken) -> None:
        try:
            await self._library.add_token(act.token, act.secret_hash)
        except Conflict:
            if act.token not in await self._library.tokens():
                raise

    async def _project(self, project_id: str, name: str = "") -> Project:
        there = await self._journal.lookup(SAME_PROJECT, project_id) or project_id
        if there not in self._projects:
            await self._look()
        if there not in self._projects:
            raise _gone(name or project_id)
        return self._projects[there]

    async def _look(self) -> Mapping[str, Project]:
        self._projects = {project.id: project for project in await self._library.projects()}
        return self._projects


def _gone(name: str) -> NotFound:
    return NotFound("project", name, message=f'Project "{name}" was deleted meanwhile.')
