"""Replay of the journal: each pending write is made once if its account still may, or rejected."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from everkept.core.commits import commit, retry
from everkept.core.ports import Library, RecordStore, Rights, RightsOf, of_nobody
from everkept.core.projects import Project, Status
from everkept.core.records import Batch
from everkept.core.sessions import Account, home_of
from everkept.core.text import clipped
from everkept.engines.standby.failover import Reaching
from everkept.engines.standby.journal import SAME_PROJECT, Entry, Journal
from everkept.engines.standby.journal_acts import (
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
from everkept.engines.standby.rebase import rebased
from everkept.errors import (
    Conflict,
    EverkeptError,
    NotFound,
    QueryTimeout,
    ReadOnly,
    Refused,
    StorageFull,
    StoreAway,
    StoreBusy,
)
from everkept.values import Value, replace


class NotPermitted(Refused):
    """Whoever wrote it may not write it any more."""


def expect_there(account: Account, rights: Rights | None) -> Rights:
    """Raises NotPermitted unless the very account that did it is there, with these rights."""
    user = account.name
    if rights is None:
        raise NotPermitted(f"The account {user} was removed meanwhile.", user=user)
    if rights.account.id != account.id:
        raise NotPermitted(
            f"The account {user} was removed meanwhile, and another of that name made.", user=user
        )
    return rights


def expect_permitted(act: Act, project: Project | None, rights: Rights) -> None:
    """Raises NotPermitted. `project` is what the act is about, as the database has it."""
    user = rights.account.name
    if project is None:
        raise NotPermitted(f"The account {user} may not do this.", user=user)
    if (home := home_of(project.name)) is not None:
        is_permitted = home.user == user and isinstance(act, Commit | CreateProject)
    else:
        is_permitted = project.id in (rights.writes if isinstance(act, Commit) else rights.owns)
    if not is_permitted:
        raise NotPermitted(
            f'The account {user} may not write in "{project.name}" any more.',
            user=user,
            project=project.name,
        )


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


log = logging.getLogger(__name__)

Progress = Callable[[int, int], object]  # how many are done or set aside, and how many still wait

_TRIES = 2  # of what fails otherwise: the reason may pass
# How often in a row the database may fail over one act and answer right after, before it counts as
# the fault of the act. A connection that breaks says less of it than a limit that is exceeded.
_MOST_TIMEOUTS = 3
_MOST_FALLS = 10
_PASSING = (StoreAway, StoreBusy, QueryTimeout, StorageFull, ReadOnly)  # whatever the act is
_LONGEST_REASON = 500  # characters
_PROBE = "standby.probe"
# Acts that are done under one lock, and seconds after which another process may have its turn.
_GROUP = 100
_TURN = 1.0


class Replayed(Value):
    """How many acts were done, and how many were set aside for the user."""

    count: int
    aside: int


async def replay(
    journal: Journal, library: Library, *, on_progress: Progress, rights_of: RightsOf = of_nobody
) -> Replayed:
    """Until nothing waits; others may do the same, and append, meanwhile.

    What an account wrote is done only where `rights_of` gives it the right to, by then.
    An act after which the process ends without warning is begun again, and has no effect twice.
    Raises what keeps the database from answering; the act waits on. What fails for any other
    reason, or again and again while the database answers, is set aside: others wait behind it.
    """
    replaying = _Replay(journal, library, rights_of)
    while await replaying.next():
        done = replaying.done + replaying.aside
        on_progress(done, journal.counts().waiting)
    return Replayed(replaying.done, replaying.aside)


class _Replay:
    def __init__(self, journal: Journal, library: Library, rights_of: RightsOf) -> None:
        self._journal = journal
        self._library = library
        self._doing = Doing(journal, library, rights_of)
        self._made: dict[int, int | None] = {}  # by entry: commits that the journal still has
        self._told: set[type[Exception]] = set()
        self.done = 0
        self.aside = 0

    async def next(self) -> bool:
        """Does what waits longest, for a moment; False when nothing waits."""
        async with self._journal.exclusive():
            self._doing.look_again()
            entries = await self._journal.pending(limit=_GROUP)
            end = time.monotonic() + _TURN
            try:
                for entry in entries:
                    await self._settle(entry)
                    if time.monotonic() > end:
                        break
            finally:
                await self._remove_made()
        return bool(entries)

    async def _settle(self, entry: Entry) -> None:
        if not isinstance(entry.act, Commit):
            # It may put an end to what commits are about, which are then not to be begun again.
            await self._remove_made()
            self._doing.look_again()
        failure = None
        for _ in range(_TRIES):
            try:
                number = await self._doing.do(await self._with_number(entry), _writer(entry))
            except (StoreAway, QueryTimeout) as error:
                await self._expect_few(entry, error)
                failure = error
                break
            except _PASSING:
                raise
            except Exception as error:  # noqa: BLE001 - kept with the act, which others wait behind
                failure = error
                self._doing.look_again()
            else:
                await self._note_done(entry, number)
                return
        if failure is not None:
            await self._give_up(entry, failure)

    async def _with_number(self, entry: Entry) -> Act:
        """What it takes back has another number there, or none if it was never done."""
        act = entry.act
        if not isinstance(act, Commit) or entry.undoes is None:
            return act
        if entry.undoes in self._made:
            undoes = self._made[entry.undoes]
        else:
            undoes = await self._journal.committed_as(entry.undoes)
        return Commit(act.store, replace(act.batch, undoes=undoes))

    async def _note_done(self, entry: Entry, number: int | None) -> None:
        self._made[entry.seq] = number
        self.done += 1
        if number is None:  # it has no key by which it would be known again
            await self._remove_made()

    async def _remove_made(self) -> None:
        if self._made:
            await self._journal.remove_all(self._made)
            self._made = {}

    async def _expect_few(self, entry: Entry, error: StoreAway | QueryTimeout) -> None:
        """Raises the error where it says nothing of the act, or not yet enough."""
        try:
            await self._library.note(_PROBE)
        except EverkeptError:
            raise error from None
        most = _MOST_TIMEOUTS if isinstance(error, QueryTimeout) else _MOST_FALLS
        if await self._journal.failed(entry.seq) < most:
            raise error

    async def _give_up(self, entry: Entry, failure: Exception) -> None:
        await self._library.note(_PROBE)  # raises where no other act would be done either
        reason = str(failure) if entry.account is None else _discreet(failure)
        if not isinstance(failure, EverkeptError):
            if entry.account is None:
                reason = f"{type(failure).__name__}: {failure}"
            if type(failure) not in self._told:
                self._told.add(type(failure))
                log.error("a write that waited was set aside", exc_info=failure)
        await self._journal.set_aside(entry.seq, clipped(reason, _LONGEST_REASON))
        self.aside += 1


def _writer(entry: Entry) -> Account | None:
    """As the server knew it that took the write; None: the owner."""
    return None if entry.account is None else Account(entry.account, id=entry.account_id)


def _discreet(failure: Exception) -> str:
    """Whoever decides on it is somebody else: what an error names may be a text of the account."""
    if isinstance(failure, NotPermitted | NotFound):  # they name projects alone
        return str(failure)
    code = failure.code if isinstance(failure, EverkeptError) else type(failure).__name__
    return f"The database would not take it ({code})."


async def bring_over(
    journal: Journal, primary: Library, reaching: Reaching, rights_of: RightsOf
) -> None:
    """All of it in its order; then the database counts as back, before anything is added."""
    done = aside = 0
    while True:
        replayed = await replay(
            journal, primary, on_progress=_told_to(reaching), rights_of=rights_of
        )
        done, aside = done + replayed.count, aside + replayed.aside
        async with journal.writing():
            if not journal.counts().waiting:
                reaching.arrived(_brought(done, aside))
                return


def _brought(done: int, aside: int) -> str:
    kept = "no write was kept here" if not done else f"{_writes(done)} kept here and brought over"
    left = f"; {_writes(aside)} set aside, and `everkept journal` tells why" if aside else ""
    return kept + left


def _writes(count: int) -> str:
    return "1 write was" if count == 1 else f"{count} writes were"


def _told_to(reaching: Reaching) -> Progress:
    """What is brought over is told to the user when all of it is, and to who waits as it goes."""
    before = 0

    def tell(gone: int, _waiting: int) -> None:
        nonlocal before
        reaching.went(gone - before)
        before = gone

    return tell
