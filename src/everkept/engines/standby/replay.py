"""Replay of the journal: each pending write is made once if its account still may, or rejected."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from everkept.core.commits import commit, retry
from everkept.core.ports import FindRights, Library, RecordStore, Rights, find_no_rights
from everkept.core.projects import Project, Status
from everkept.core.records import Batch
from everkept.core.sessions import Account, parse_private_name
from everkept.core.text import clip_text
from everkept.engines.standby.failover import Availability
from everkept.engines.standby.journal import PROJECT_TOPIC, Journal, JournalEntry
from everkept.engines.standby.journal_acts import (
    HISTORY_STORE,
    USER_STORE,
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
    parse_project_id,
)
from everkept.engines.standby.rebase import rebase_batch
from everkept.errors import (
    Conflict,
    EverkeptError,
    NotFound,
    QueryTimeout,
    ReadOnly,
    Refused,
    StorageFull,
    StoreBusy,
    StoreUnreachable,
)
from everkept.values import Value, replace


class NotPermitted(Refused):
    """Whoever wrote it may not write it any more."""


def expect_account(account: Account, rights: Rights | None) -> Rights:
    """Raises NotPermitted unless the very account that did it is there, with these rights."""
    user = account.name
    if rights is None:
        raise NotPermitted(f"The account {user} was removed meanwhile.", user=user)
    if rights.account.id != account.id:
        raise NotPermitted(f"The account {user} was removed meanwhile, and another of that name made.", user=user)
    return rights


def expect_permitted(act: Act, project: Project | None, rights: Rights) -> None:
    """Raises NotPermitted. `project` is what the act is about, as the database has it."""
    user = rights.account.name
    if project is None:
        raise NotPermitted(f"The account {user} may not do this.", user=user)
    if (home := parse_private_name(project.name)) is not None:
        is_permitted = home.user == user and isinstance(act, Commit | CreateProject)
    else:
        is_permitted = project.id in (rights.writes if isinstance(act, Commit) else rights.owns)
    if not is_permitted:
        raise NotPermitted(
            f'The account {user} may not write in "{project.name}" any more.', user=user, project=project.name
        )


_ProjectAct = ArchiveProject | RestoreProject | SwitchProject


class ActApplier:
    """What was found of the database on the way is kept for the next act."""

    def __init__(self, journal: Journal, library: Library, rights_of: FindRights = find_no_rights) -> None:
        self._journal = journal
        self._library = library
        self._rights_of = rights_of
        self._rights: dict[str, Rights | None] = {}  # by the names of accounts
        self._projects: dict[str, Project] = {}  # as they were last seen, by id
        self._stores: dict[str, RecordStore] = {}

    def clear_cache(self) -> None:
        """For stores and rights, which are not looked for at each commit."""
        self._stores.clear()
        self._rights.clear()

    async def apply(self, act: Act, account: Account | None = None) -> int | None:
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
                await self._create_project(project)
            case ArchiveProject() | RestoreProject() | SwitchProject() as act:
                await self._change_project(act)
            case AssignWorkspace(path, project_id):
                project = await self._get_project(project_id)
                await self._library.link_workspace(path, project)
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
        rights = expect_account(account, self._rights[name])
        expect_permitted(act, await self._find_project(act), rights)

    async def _find_project(self, act: Act) -> Project | None:
        match act:
            case Commit(store):
                project_id = parse_project_id(store)
                return None if project_id is None else await self._get_project(project_id)
            case CreateProject(project):
                return project
            case ArchiveProject() | RestoreProject() | SwitchProject() | AssignWorkspace():
                return await self._get_project(act.project_id)
            case _:
                return None

    async def _commit(self, store_name: str, batch: Batch) -> int | None:
        store = await self._get_store(store_name)
        fitting = replace(batch, revision=None)
        is_there = False  # all of it already

        async def attempt() -> int | None:
            return None if is_there else (await commit(store, fitting)).seq

        async def made_to_fit() -> bool:
            nonlocal fitting, is_there
            made = await rebase_batch(batch, store)
            if made is None:
                return False
            fitting, is_there = made, not made.steps
            return True

        return await retry(attempt, again=made_to_fit)

    async def _get_store(self, name: str) -> RecordStore:
        if name not in self._stores:
            self._stores[name] = await self._open_store(name)
        return self._stores[name]

    async def _open_store(self, name: str) -> RecordStore:
        if name == USER_STORE:
            return await self._library.open_user_store()
        if name == HISTORY_STORE:
            return await self._library.open_history_store()
        wanted = await self._get_project(parse_project_id(name) or name)
        project, store = await self._library.open(wanted.name)
        if project.id != wanted.id:
            raise _build_gone_error(wanted.name)
        return store

    async def _create_project(self, project: Project) -> None:
        """Where another one has the name by now, the two are one from here on."""
        try:
            await self._library.create(project.name, project.description, project_id=project.id, at=project.created_at)
        except Conflict:
            there = await self._read_projects()
            same_name = [each for each in there.values() if each.name == project.name]
            if project.id in there:
                return
            if not same_name:
                raise
            await self._journal.note(PROJECT_TOPIC, project.id, same_name[0].id)

    async def _change_project(self, act: _ProjectAct) -> None:
        await self._read_projects()
        project = await self._get_project(act.project_id, act.name)
        match act:
            case ArchiveProject():
                await self._set_status(project, "archived", self._library.archive)
            case RestoreProject():
                await self._set_status(project, "active", self._library.restore)
            case SwitchProject():
                await self._library.set_off(project.name, off=act.off, at=act.at)

    async def _set_status(self, project: Project, status: Status, move: Callable[[str], Awaitable[Project]]) -> None:
        if project.status == status:
            return
        try:
            await move(project.name)
        except Conflict:
            now = (await self._read_projects()).get(project.id)
            if now is None or now.status != status:
                raise

    async def _add_token(self, act: AddToken) -> None:
        try:
            await self._library.add_token(act.token, act.secret_hash)
        except Conflict:
            if act.token not in await self._library.list_tokens():
                raise

    async def _get_project(self, project_id: str, name: str = "") -> Project:
        there = await self._journal.look_up(PROJECT_TOPIC, project_id) or project_id
        if there not in self._projects:
            await self._read_projects()
        if there not in self._projects:
            raise _build_gone_error(name or project_id)
        return self._projects[there]

    async def _read_projects(self) -> Mapping[str, Project]:
        self._projects = {project.id: project for project in await self._library.list_projects()}
        return self._projects


def _build_gone_error(name: str) -> NotFound:
    return NotFound("project", name, message=f'Project "{name}" was deleted meanwhile.')


log = logging.getLogger(__name__)

Progress = Callable[[int, int], object]  # how many are done or set aside, and how many still wait

_MAX_TRIES = 2  # of what fails otherwise: the reason may pass
# How often in a row the database may fail over one act and answer right after, before it counts as
# the fault of the act. A connection that breaks says less of it than a limit that is exceeded.
_MAX_TIMEOUTS = 3
_MAX_FAILURES = 10
# whatever the act is
_TRANSIENT_ERRORS = StoreUnreachable, StoreBusy, QueryTimeout, StorageFull, ReadOnly
_MAX_REASON_CHARACTERS = 500
_PROBE_NOTE = "standby.probe"
# Acts that are done under one lock, and seconds after which another process may have its turn.
_GROUP_ENTRIES = 100
_TURN_SECONDS = 1.0


class ReplayResult(Value):
    """How many acts were done, and how many were set aside for the user."""

    count: int
    aside: int


async def replay(
    journal: Journal, library: Library, *, on_progress: Progress, rights_of: FindRights = find_no_rights
) -> ReplayResult:
    """Until nothing waits; others may do the same, and append, meanwhile.

    What an account wrote is done only where `rights_of` gives it the right to, by then.
    An act after which the process ends without warning is begun again, and has no effect twice.
    Raises what keeps the database from answering; the act waits on. What fails for any other
    reason, or again and again while the database answers, is set aside: others wait behind it.
    """
    replaying = _JournalReplay(journal, library, rights_of)
    while await replaying.run_next():
        done = replaying.done + replaying.aside
        on_progress(done, journal.count_writes().waiting)
    return ReplayResult(replaying.done, replaying.aside)


class _JournalReplay:
    def __init__(self, journal: Journal, library: Library, rights_of: FindRights) -> None:
        self._journal = journal
        self._library = library
        self._doing = ActApplier(journal, library, rights_of)
        self._made: dict[int, int | None] = {}  # by entry: commits that the journal still has
        self._told: set[type[Exception]] = set()
        self.done = 0
        self.aside = 0

    async def run_next(self) -> bool:
        """Does what waits longest, for a moment; False when nothing waits."""
        async with self._journal.lock_replay():
            self._doing.clear_cache()
            entries = await self._journal.list_pending(limit=_GROUP_ENTRIES)
            end = time.monotonic() + _TURN_SECONDS
            try:
                for entry in entries:
                    await self._settle(entry)
                    if time.monotonic() > end:
                        break
            finally:
                await self._remove_done()
        return bool(entries)

    async def _settle(self, entry: JournalEntry) -> None:
        if not isinstance(entry.act, Commit):
            # It may put an end to what commits are about, which are then not to be begun again.
            await self._remove_done()
            self._doing.clear_cache()
        failure = None
        for _ in range(_MAX_TRIES):
            try:
                number = await self._doing.apply(await self._with_number(entry), _get_writer(entry))
            except (StoreUnreachable, QueryTimeout) as error:
                await self._expect_few_failures(entry, error)
                failure = error
                break
            except _TRANSIENT_ERRORS:
                raise
            except Exception as error:  # noqa: BLE001 - kept with the act, which others wait behind
                failure = error
                self._doing.clear_cache()
            else:
                await self._note_done(entry, number)
                return
        if failure is not None:
            await self._reject(entry, failure)

    async def _with_number(self, entry: JournalEntry) -> Act:
        """What it takes back has another number there, or none if it was never done."""
        act = entry.act
        if not isinstance(act, Commit) or entry.undoes is None:
            return act
        if entry.undoes in self._made:
            undoes = self._made[entry.undoes]
        else:
            undoes = await self._journal.find_committed_seq(entry.undoes)
        return Commit(act.store, replace(act.batch, undoes=undoes))

    async def _note_done(self, entry: JournalEntry, number: int | None) -> None:
        self._made[entry.seq] = number
        self.done += 1
        if number is None:  # it has no key by which it would be known again
            await self._remove_done()

    async def _remove_done(self) -> None:
        if self._made:
            await self._journal.remove_all(self._made)
            self._made = {}

    async def _expect_few_failures(self, entry: JournalEntry, error: StoreUnreachable | QueryTimeout) -> None:
        """Raises the error where it says nothing of the act, or not yet enough."""
        try:
            await self._library.get_note(_PROBE_NOTE)
        except EverkeptError:
            raise error from None
        most = _MAX_TIMEOUTS if isinstance(error, QueryTimeout) else _MAX_FAILURES
        if await self._journal.count_failure(entry.seq) < most:
            raise error

    async def _reject(self, entry: JournalEntry, failure: Exception) -> None:
        await self._library.get_note(_PROBE_NOTE)  # raises where no other act would be done either
        reason = str(failure) if entry.account is None else _format_reason(failure)
        if not isinstance(failure, EverkeptError):
            if entry.account is None:
                reason = f"{type(failure).__name__}: {failure}"
            if type(failure) not in self._told:
                self._told.add(type(failure))
                log.error("a write that waited was set aside", exc_info=failure)
        await self._journal.reject(entry.seq, clip_text(reason, _MAX_REASON_CHARACTERS))
        self.aside += 1


def _get_writer(entry: JournalEntry) -> Account | None:
    """As the server knew it that took the write; None: the owner."""
    return None if entry.account is None else Account(entry.account, id=entry.account_id)


def _format_reason(failure: Exception) -> str:
    """Whoever decides on it is somebody else: what an error names may be a text of the account."""
    if isinstance(failure, NotPermitted | NotFound):  # they name projects alone
        return str(failure)
    code = failure.code if isinstance(failure, EverkeptError) else type(failure).__name__
    return f"The database would not take it ({code})."


async def replay_pending(journal: Journal, primary: Library, reaching: Availability, rights_of: FindRights) -> None:
    """All of it in its order; then the database counts as back, before anything is added."""
    done = aside = 0
    while True:
        replayed = await replay(journal, primary, on_progress=_build_progress(reaching), rights_of=rights_of)
        done, aside = done + replayed.count, aside + replayed.aside
        async with journal.lock_writes():
            if not journal.count_writes().waiting:
                reaching.note_connected(_format_result(done, aside))
                return


def _format_result(done: int, aside: int) -> str:
    kept = "no write was kept here" if not done else f"{_format_writes(done)} kept here and brought over"
    left = f"; {_format_writes(aside)} set aside, and `everkept journal` tells why" if aside else ""
    return kept + left


def _format_writes(count: int) -> str:
    return "1 write was" if count == 1 else f"{count} writes were"


def _build_progress(reaching: Availability) -> Progress:
    """What is brought over is told to the user when all of it is, and to who waits as it goes."""
    before = 0

    def tell(gone: int, _waiting: int) -> None:
        nonlocal before
        reaching.note_sent(gone - before)
        before = gone

    return tell
