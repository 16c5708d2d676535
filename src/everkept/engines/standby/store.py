"""One project's records in a database that may be unreachable, and in its local replica."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar, cast
from uuid import uuid4

from everkept.core import store as questions
from everkept.core.answers import PurgeResult
from everkept.core.ports import Library
from everkept.core.projects import Project
from everkept.core.records import Batch, Change, Delete, Edit, Insert, Ref, Restore, Step, Update
from everkept.core.store import RecordStore, StoreQuestion, Upkeep
from everkept.engines.standby.failover import REPLICA_ERRORS, FailoverRouter
from everkept.engines.standby.journal import PROJECT_TOPIC, Journal
from everkept.engines.standby.journal_acts import USER_STORE, Commit, format_store_name
from everkept.engines.standby.rebase import rebase_batch
from everkept.engines.standby.replica import RecentCommits
from everkept.errors import Conflict, EverkeptError, NotFound, StoreUnreachable
from everkept.values import replace


class StorePair(Protocol):
    """A store in the database and its replica. Both are opened again whenever they may have changed."""

    @property
    def name(self) -> str:
        """The name of the store in the journal."""
        ...

    @property
    def recent(self) -> RecentCommits:
        """Recent commits to the database."""
        ...

    async def open_primary(self) -> RecordStore: ...

    async def open_replica(self) -> RecordStore: ...

    async def ensure_replica(self) -> RecordStore:
        """Open the replica. Create it if the database became unreachable before it was replicated."""
        ...


class OwnStorePair:
    """A store that belongs to no project."""

    def __init__(self, name: str, primary: Library, replica: Library) -> None:
        self.name = name
        self.recent = RecentCommits()
        self._primary = primary
        self._replica = replica

    async def open_primary(self) -> RecordStore:
        return await _open_own(self._primary, self.name)

    async def open_replica(self) -> RecordStore:
        return await _open_own(self._replica, self.name)

    async def ensure_replica(self) -> RecordStore:
        return await self.open_replica()


class ProjectStorePair:
    """The store of a project. If a project created here also exists in the database, both are the same one."""

    def __init__(self, project: Project, primary: Library, replica: Library, journal: Journal) -> None:
        self.recent = RecentCommits()
        self._project = project
        self._primary = primary
        self._replica = replica
        self._journal = journal
        self._there: RecordStore | None = None
        self.was_there = False

    @property
    def project_name(self) -> str:
        return self._project.name

    @property
    def name(self) -> str:
        return format_store_name(self._project.id)

    def set_primary(self, store: RecordStore) -> None:
        """Note that the store was opened in the database."""
        self._there, self.was_there = store, True

    def clear(self) -> None:
        """Forget the store of an archived or deleted project."""
        self._there, self.was_there = None, False
        self.recent.clear()

    async def open_primary(self) -> RecordStore:
        if self._there is None:
            project, store = await self._primary.open(self._project.name)
            await self._expect_project(project)
            self.set_primary(store)
            return store
        return self._there

    async def open_replica(self) -> RecordStore:
        project, store = await self._replica.open(self._project.name)
        await self._expect_project(project)
        return store

    async def ensure_replica(self) -> RecordStore:
        with suppress(NotFound):
            return await self.open_replica()
        if self.was_there:
            with suppress(Conflict):  # another process has created it
                await self._replica.create(
                    self._project.name,
                    self._project.description,
                    project_id=self._project.id,
                    at=self._project.created_at,
                )
        return await self.open_replica()

    async def _expect_project(self, project: Project) -> None:
        if project.id == self._project.id:
            return
        if await self._journal.look_up(PROJECT_TOPIC, self._project.id) != project.id:
            raise NotFound("project", project.name, hint="It was deleted. Select another project.")
        self._project = project


async def _open_own(library: Library, name: str) -> RecordStore:
    return await (library.open_user_store() if name == USER_STORE else library.open_history_store())


A = TypeVar("A")
T = TypeVar("T")

MAX_SEARCHED_CHANGES = 200  # recent changes among which a repeated commit is searched
# Added to stamps so that they differ between both sides. No count of vectors is as large.
_STAMP_OFFSET = 1 << 40
_PURGE_REFUSAL = "Cannot erase data permanently while the database is unreachable: a copy would stay there."

log = logging.getLogger(__name__)


class ReplicaWaker(Protocol):
    """Background task that keeps the replica up to date."""

    def wake(self, name: str, *, at_once: bool = False) -> None:
        """Follow this store soon, because it was written."""
        ...

    def learn(self, model: str, kinds: Sequence[str]) -> None:
        """Copy vectors of this model, for records of these kinds."""
        ...


class StandbyStore(RecordStore):
    """Store that stays valid when the database comes and goes. Both sides are opened when needed."""

    def __init__(self, ends: StorePair, router: FailoverRouter, follower: ReplicaWaker) -> None:
        self.ends = ends
        self._router = router
        self._follower = follower

    async def commit(self, batch: Batch) -> Change:
        keyed = batch if batch.key else replace(batch, key=uuid4().hex)

        async def there(_again: bool) -> Change:
            change = await (await self.ends.open_primary()).commit(keyed)
            recent = self.ends.recent
            recent.add(keyed, change)
            self._follower.wake(self.ends.name, at_once=recent.is_filling)
            return change

        return await self._router.write(there, lambda unknown: self._commit_here(keyed, unknown=unknown))

    async def ask(self, question: StoreQuestion[A]) -> A:
        asked: StoreQuestion[Any] = question
        if isinstance(asked, questions.FindUnembedded | questions.CountVectors):
            self._follower.learn(asked.model, asked.kinds)

        def do(store: RecordStore) -> Awaitable[A]:
            return store.ask(question)

        answer = await self._router.read(lambda: self._run_primary(do), lambda: self._run_replica(do))
        return cast("A", self._shift_stamp(answer)) if isinstance(asked, questions.GetStamp) else answer

    async def maintain(self, upkeep: Upkeep[A]) -> A:
        def do(store: RecordStore) -> Awaitable[A]:
            return store.maintain(upkeep)

        kind: Upkeep[Any] = upkeep
        match kind:
            case questions.PutVectors() | questions.NoteAccesses():
                return await self._router.run_unjournaled(lambda: self._run_primary(do), lambda: self._run_replica(do))
            case questions.Purge() | questions.Redact():
                return cast("A", await self._erase(kind))
            case _:
                done = await self._router.run_primary(
                    lambda _: self._run_primary(do), "Cannot copy data into the database while it is unreachable."
                )
                self._follower.wake(self.ends.name)
                return done

    async def _run_primary(self, do: Callable[[RecordStore], Awaitable[T]]) -> T:
        return await do(await self.ends.open_primary())

    async def _run_replica(self, do: Callable[[RecordStore], Awaitable[T]]) -> T:
        await self.flush()
        return await do(await self.ends.ensure_replica())

    def _shift_stamp(self, stamp: Any) -> tuple[int, int]:
        newest, moves = stamp
        return newest, moves + self._router.reaching.turns * _STAMP_OFFSET

    async def flush(self) -> None:
        """Apply recent commits to the replica, as far as possible."""
        if not self.ends.recent:
            return
        try:
            async with self._router.lock_replica():
                await self.ends.recent.apply_to(await self.ends.ensure_replica())
        except EverkeptError as error:
            log.debug("recent writes to %s are not in the local copy: %r", self.ends.name, error)

    async def _erase(self, upkeep: questions.Purge | questions.Redact) -> PurgeResult:
        """Erase data in the database, in the replica, and in pending and rejected writes."""

        def do(store: RecordStore) -> Awaitable[PurgeResult]:
            return store.maintain(upkeep)

        async def there(again: bool) -> PurgeResult:
            done = await self._run_primary(do)
            return await self._add_replica_counts(done, upkeep.refs) if again else done

        done = await self._router.run_primary(there, _PURGE_REFUSAL)
        is_forgotten = await self._router.forget(
            self.ends.name, upkeep.refs, belongings=isinstance(upkeep, questions.Purge)
        )
        try:
            is_gone_here = (await self._run_replica(do)).complete
        except EverkeptError:  # the follower removes the rest later
            is_gone_here = False
        self._follower.wake(self.ends.name)
        return replace(done, complete=done.complete and is_forgotten and is_gone_here)

    async def _add_replica_counts(self, done: PurgeResult, refs: Sequence[Ref]) -> PurgeResult:
        """Count data that an earlier attempt without an answer may have erased: the replica still has it."""
        try:
            records, links = await self._run_replica(lambda store: _count_items(store, refs))
        except EverkeptError:
            return replace(done, complete=False)
        return replace(done, records=max(done.records, records), links=max(done.links, links))

    async def _commit_here(self, batch: Batch, *, unknown: bool) -> Change:
        try:
            store = await self.ends.ensure_replica()
            await self.ends.recent.apply_to(store)
            await store.get_revision()
        except REPLICA_ERRORS as error:
            return await self._router.journal_act(
                Commit(self.ends.name, batch), _defer_error(error), instead=lambda: _build_change(batch)
            )
        try:
            return await self._journal_batch(batch, store, batch)
        except Conflict:
            if not unknown:
                raise
        if made := await _find_logged(batch, store):
            return made
        # A refusal would make the caller repeat a write that may already be done.
        fitting = await rebase_batch(batch, store)
        if fitting is None:
            raise StoreUnreachable(
                "Lost the connection to the database during a write; the outcome is unknown. "
                f"{self._router.reaching.reason}",
                hint="Check whether it was stored once the database is back.",
            )
        return await self._journal_batch(batch, store, fitting.batch)

    async def _journal_batch(self, batch: Batch, store: RecordStore, here: Batch) -> Change:
        return await self._router.journal_act(
            Commit(self.ends.name, batch),
            lambda: store.commit(here),
            local_seq=await store.get_revision() + 1,
            instead=lambda: _build_change(here),
        )


async def _find_logged(batch: Batch, store: RecordStore) -> Change | None:
    """Return the change of a batch that was replicated from the database."""
    wanted = {_get_id(step) for step in batch.steps}
    for change in await store.read_changes(limit=MAX_SEARCHED_CHANGES, newest_first=True):
        is_like_it = (change.at, change.tool, change.client) == (batch.at, batch.tool, batch.client)
        if is_like_it and wanted <= {edit.id for edit in change.edits}:
            return change
    return None


async def _count_items(store: RecordStore, refs: Sequence[Ref]) -> tuple[int, int]:
    records = [ref.id for ref in refs if ref.subject == "record"]
    links = [ref.id for ref in refs if ref.subject == "link"]
    return (
        len(await store.get(records, include_deleted=True)),
        len(await store.get_links(links, include_deleted=True)),
    )


def _defer_error(error: Exception) -> Callable[[], Awaitable[Change]]:
    async def fails() -> Change:
        raise error

    return fails


def _build_change(batch: Batch) -> Change:
    """Build the change of a batch without the stored data. It has no number yet."""
    edits = tuple(_build_edit(step) for step in batch.steps)
    return Change(0, batch.at, batch.tool, batch.client, batch.undoes, edits)


def _build_edit(step: Step) -> Edit:
    match step:
        case Insert(item):
            return Edit("insert", item.ref.subject, item.id)
        case Update():
            return Edit("update", "record", step.id, {})
        case Delete(ref):
            return Edit("delete", ref.subject, ref.id, {"deleted_at": None})
        case Restore(ref):
            return Edit("restore", ref.subject, ref.id, {})


def _get_id(step: Step) -> str:
    match step:
        case Insert(item):
            return item.id
        case Update():
            return step.id
        case Delete(ref) | Restore(ref):
            return ref.id
