"""Replay of the journal: each pending write is sent once if its account still has access, or rejected."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from everkept.core.commits import commit, retry
from everkept.core.ports import FindRights, Library, RecordStore, Rights, find_no_rights
from everkept.core.projects import Project, Status
from everkept.core.records import Batch
from everkept.core.sessions import Account, parse_private_name
from everkept.core.text import clip_text, format_count
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
    DamagedAct,
    MoveWorkspace,
    RemoveToken,
    RestoreProject,
    SetNote,
    SwitchProject,
    format_store_name,
    parse_project_id,
)
from everkept.engines.standby.rebase import rebase_batch, rename_items
from everkept.errors import (
    Conflict,
    EverkeptError,
    NotFound,
    QueryTimeout,
    ReadOnly,
    Refused,
    StorageFull,
    StoreBusy,
    StoreDamaged,
    StoreUnreachable,
)
from everkept.values import Value, replace


class NotPermitted(Refused):
    """The account is no longer allowed to make the write."""


def expect_account(account: Account, rights: Rights | None) -> Rights:
    """Raise NotPermitted unless `rights` belong to the same account that made the write."""
    user = account.name
    if rights is None:
        raise NotPermitted(f"Account {user} was removed.", user=user)
    if rights.account.id != account.id:
        raise NotPermitted(f"Account {user} was removed, and another account has its name now.", user=user)
    return rights


def expect_permitted(act: Act, project: Project | None, rights: Rights) -> None:
    """Raise NotPermitted if the rights do not cover the act. `project` is the act's project in the database."""
    user = rights.account.name
    if project is None:
        raise NotPermitted(f"Account {user} is not allowed to do this.", user=user)
    if (home := parse_private_name(project.name)) is not None:
        is_permitted = home.user == user and isinstance(act, Commit | CreateProject)
    else:
        is_permitted = project.id in (rights.writes if isinstance(act, Commit) else rights.owns)
    if not is_permitted:
        raise NotPermitted(
            f'Account {user} can no longer write to project "{project.name}".', user=user, project=project.name
        )


_ProjectAct = ArchiveProject | RestoreProject | SwitchProject


class ActApplier:
    """Application of acts to the database, with a cache of projects, stores and rights."""

    def __init__(self, journal: Journal, library: Library, rights_of: FindRights = find_no_rights) -> None:
        self._journal = journal
        self._library = library
        self._rights_of = rights_of
        self._rights: dict[str, Rights | None] = {}  # by account name
        self._projects: dict[str, Project] = {}  # last known state, by id
        self._stores: dict[str, RecordStore] = {}
        self._merged: dict[str, dict[str, str]] = {}  # ids of merged items, by store

    def clear_cache(self) -> None:
        """Forget what is not read again for each commit."""
        self._stores.clear()
        self._rights.clear()
        self._projects.clear()
        self._merged.clear()

    async def rename_items(self, act: Act) -> Act:
        """Return the act with the database's ids of the items that were merged with others."""
        if not isinstance(act, Commit):
            return act
        try:
            merged = await self._read_merged(await self._find_name(act.store))
        except NotFound:  # of the project, as its application says
            return act
        return Commit(act.store, rename_items(act.batch, merged))

    async def apply(self, act: Act, account: Account | None = None) -> int | None:
        """Apply the act and return the number of its commit, if any. Check the access of `account` first."""
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
            case MoveWorkspace(path, project_id):
                moved_to = None if project_id is None else await self._get_project(project_id)
                await self._library.move_workspace(path, moved_to)
            case SetNote(key, value):
                await self._library.set_note(key, value)
            case AddToken() as act:
                await self._add_token(act)
            case RemoveToken(token_id):
                await self._library.remove_token(token_id)
            case DamagedAct(reason):
                raise StoreDamaged(f"The pending write is damaged ({reason}).", hint="Restore the file of the journal.")
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
            case MoveWorkspace(project_id=str(project_id)):
                return await self._get_project(project_id)
            case _:
                return None

    async def _commit(self, store_name: str, batch: Batch) -> int | None:
        store, name = await self._get_store(store_name), await self._find_name(store_name)
        fitting = replace(batch, revision=None, late=True)
        is_there = False  # the store already has all of it

        async def attempt() -> int | None:
            if is_there:
                return None
            change = await commit(store, fitting)
            known = await self._read_merged(name)
            await self._note_merged(name, {each.id: None for each in change.edits if each.id in known})
            return change.seq

        async def made_to_fit() -> bool:
            nonlocal fitting, is_there
            made = await rebase_batch(batch, store)
            if made is None:
                return False
            await self._note_merged(name, made.merged)  # before the commit: later writes may name these items
            fitting, is_there = replace(made.batch, late=True), not made.batch.steps
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
        # Also of an archived project, because the write was acknowledged before anyone here knew.
        return await self._library.get_store(await self._get_project(parse_project_id(name) or name))

    async def _find_name(self, name: str) -> str:
        """Return the name of a store by the id of its project in the database."""
        project_id = parse_project_id(name)
        return name if project_id is None else format_store_name((await self._get_project(project_id)).id)

    async def _read_merged(self, store_name: str) -> dict[str, str]:
        if store_name not in self._merged:
            self._merged[store_name] = await self._journal.read_merged(store_name)
        return self._merged[store_name]

    async def _note_merged(self, store_name: str, merged: Mapping[str, str | None]) -> None:
        if merged:
            await self._journal.note_merged(store_name, merged)
            self._merged.pop(store_name, None)

    async def _create_project(self, project: Project) -> None:
        """Create the project. If another project has the name, both are the same project from now on."""
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
    hint = "Discard this write with `everkept journal --discard NUMBER`."
    return NotFound("project", name, message=f'Project "{name}" was deleted.', hint=hint)


log = logging.getLogger(__name__)

Progress = Callable[[int, int], object]  # numbers of writes that are done or rejected, and of pending writes

_MAX_TRIES = 2  # for other errors, whose cause may pass
# How often in a row the database may fail at one act and answer right after, before the act counts as the cause. A
# broken connection is weaker evidence than a timeout.
_MAX_TIMEOUTS = 3
_MAX_FAILURES = 10
# independent of the act
_TRANSIENT_ERRORS = StoreUnreachable, StoreBusy, QueryTimeout, StorageFull, ReadOnly
_MAX_REASON_CHARACTERS = 500
_PROBE_NOTE = "standby.probe"
# Acts applied under one lock, and seconds after which another process may take over.
_GROUP_ENTRIES = 100
_TURN_SECONDS = 1.0


class ReplayResult(Value):
    """The number of acts that were applied, and of those that were rejected."""

    count: int
    aside: int


async def replay(
    journal: Journal, library: Library, *, on_progress: Progress, rights_of: FindRights = find_no_rights
) -> ReplayResult:
    """Replay until no write is pending. Other processes may replay and append at the same time.

    A write of an account is replayed only if `rights_of` still gives it access. If the process crashes after an act,
    the act is repeated without a second effect. Raise the error if the database does not answer; the act stays pending.
    An act that fails for another reason, or repeatedly while the database answers, is rejected because others wait
    behind it.
    """
    replaying = _JournalReplay(journal, library, rights_of)
    while await replaying.run_next():
        on_progress(replaying.done + replaying.aside, journal.count_writes().waiting)
    return ReplayResult(replaying.done, replaying.aside)


class _JournalReplay:
    def __init__(self, journal: Journal, library: Library, rights_of: FindRights) -> None:
        self._journal = journal
        self._library = library
        self._doing = ActApplier(journal, library, rights_of)
        self._made: dict[int, int | None] = {}  # commits that the journal still has, by entry
        self._told: set[type[Exception]] = set()
        self.done = 0
        self.aside = 0

    async def run_next(self) -> bool:
        """Replay the oldest pending writes for a moment. Return False if none is pending."""
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
            # The act may remove the target of earlier commits, which must not be repeated then.
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
            except Exception as error:  # noqa: BLE001 - kept with the act, because others wait behind it
                failure = error
                self._doing.clear_cache()
            else:
                await self._note_done(entry, number)
                return
        if failure is not None:
            await self._reject(entry, failure)

    async def _with_number(self, entry: JournalEntry) -> Act:
        """Return the act with the database's ids and its number of the change to undo.

        The number is None if that change was never applied.
        """
        act = await self._doing.rename_items(entry.act)
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
        if number is None:  # it has no key by which the database would recognize it
            await self._remove_done()

    async def _remove_done(self) -> None:
        if self._made:
            await self._journal.remove_all(self._made)
            self._made = {}

    async def _expect_few_failures(self, entry: JournalEntry, error: StoreUnreachable | QueryTimeout) -> None:
        """Raise the error if the act is not the cause, or has not failed often enough yet."""
        try:
            await self._library.get_note(_PROBE_NOTE)
        except EverkeptError:
            raise error from None
        most = _MAX_TIMEOUTS if isinstance(error, QueryTimeout) else _MAX_FAILURES
        if await self._journal.count_failure(entry.seq) < most:
            raise error

    async def _reject(self, entry: JournalEntry, failure: Exception) -> None:
        await self._library.get_note(_PROBE_NOTE)  # raises if no other act could be applied either
        reason = str(failure) if entry.account is None else _format_reason(failure)
        if not isinstance(failure, EverkeptError):
            if entry.account is None:
                reason = f"{type(failure).__name__}: {failure}"
            if type(failure) not in self._told:
                self._told.add(type(failure))
                log.error("pending write %d rejected", entry.seq, exc_info=failure)
        await self._journal.reject(entry.seq, clip_text(reason, _MAX_REASON_CHARACTERS))
        self.aside += 1


def _get_writer(entry: JournalEntry) -> Account | None:
    """Return the account that the server knew when it accepted the write. None is the owner."""
    return None if entry.account is None else Account(entry.account, id=entry.account_id)


def _format_reason(failure: Exception) -> str:
    """Format the reason without texts of the account: another person decides on the write."""
    if isinstance(failure, NotPermitted | NotFound):  # these errors name only projects
        return str(failure)
    code = failure.code if isinstance(failure, EverkeptError) else type(failure).__name__
    return f"The database rejected it: {code}."


async def replay_pending(journal: Journal, primary: Library, reaching: Availability, rights_of: FindRights) -> None:
    """Replay all writes in order, then mark the database as connected before another write is added."""
    done = aside = 0
    while True:
        replayed = await replay(journal, primary, on_progress=_build_progress(reaching), rights_of=rights_of)
        done, aside = done + replayed.count, aside + replayed.aside
        async with journal.lock_writes():
            if not journal.count_writes().waiting:
                reaching.note_connected(_format_result(done, aside))
                return


def _format_result(done: int, aside: int) -> str:
    sent = f"sent {format_count(done, 'pending write')}" if done else "no writes were pending"
    return f"{sent}; {format_count(aside, 'write')} rejected (to see why, run `everkept journal`)" if aside else sent


def _build_progress(reaching: Availability) -> Progress:
    """Report progress to waiting writers only. The user is told when all writes are sent."""
    before = 0

    def tell(gone: int, _waiting: int) -> None:
        nonlocal before
        reaching.note_sent(gone - before)
        before = gone

    return tell
