"""Library of a database that may be unreachable, with a local replica and journal."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, TypeVar, cast
from uuid import uuid4

from everkept.core import library as catalog
from everkept.core.answers import LEASE_PREFIX, CatalogData
from everkept.core.library import CatalogChange, CatalogChanges, CatalogQuestion, Condition, Library
from everkept.core.ports import FindRights, find_no_rights
from everkept.core.projects import Project
from everkept.core.sessions import NOTE_PREFIX
from everkept.core.store import RecordStore
from everkept.core.times import Clock, read_clock
from everkept.engines.standby.failover import (
    RETRY_SCHEDULE_SECONDS,
    RETRY_SECONDS,
    WRITE_WAIT_SECONDS,
    Availability,
    FailoverRouter,
    FirstContactMarker,
    Pause,
    RetryPolicy,
    confirm_status,
    defer_act,
)
from everkept.engines.standby.journal import Journal
from everkept.engines.standby.journal_acts import (
    HISTORY_STORE,
    USER_STORE,
    Act,
    AddToken,
    ArchiveProject,
    AssignWorkspace,
    CreateProject,
    MoveWorkspace,
    RestoreProject,
    SetNote,
    SwitchProject,
)
from everkept.engines.standby.replay import replay_pending
from everkept.engines.standby.replica import STANDBY_NOTES, RecentActs, drop_standby_notes, expect_same_database
from everkept.engines.standby.replica_follower import ReplicaFollower
from everkept.engines.standby.store import OwnStorePair, ProjectStorePair, StandbyStore, StorePair
from everkept.errors import Conflict, EverkeptError, NotFound, StoreBusy
from everkept.values import replace

CLOSE_SECONDS = 0.4  # for each half of closing: the user waits up to a second for the program to end


async def close_briefly(*endings: Awaitable[None]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await asyncio.gather(*endings, return_exceptions=True)


A = TypeVar("A")
T = TypeVar("T")
Ask = Callable[[Library], Awaitable[T]]

_MAX_SEARCHES = 1_000_000
_PROBE_NOTE = STANDBY_NOTES + "probe"  # a note that is never written: the smallest possible query


class StandbyLibrary(Library):
    """Library that keeps working while its database is unreachable.

    Reads then return the last known data, and writes go to the journal and the replica. The first call opens all files
    and connections.
    """

    def __init__(
        self,
        primary: Library,
        replica: Library,
        journal: Journal,
        *,
        clock: Clock = read_clock,
        pause: Pause = asyncio.sleep,
        schedule: Sequence[float] = RETRY_SCHEDULE_SECONDS,
        every: float = RETRY_SECONDS,
        patience: float = WRITE_WAIT_SECONDS,
        on_change: Callable[[Condition], None] | None = None,
        rights_of: FindRights = find_no_rights,
    ) -> None:
        """`pause` sleeps for a number of seconds, and `on_change` receives each new condition.

        A pending write of an account is sent only if `rights_of` still gives it access.
        """
        self._primary = primary
        self._replica = replica
        self._journal = journal
        self._clock = clock
        self._on_change = on_change
        self._rights_of = rights_of
        self._reaching = Availability(
            lambda: primary.get_note(_PROBE_NOTE),
            self._replay,
            clock=clock,
            pace=RetryPolicy(pause, schedule, every, patience),
            on_change=self._notify,
            first_contact=FirstContactMarker(journal.folder),
        )
        self._router = FailoverRouter(self._reaching, journal, lambda: self._follower.load_state())
        self._acts = RecentActs()
        self._follower = ReplicaFollower(
            primary,
            replica,
            self._router,
            journal,
            self._acts,
            in_use=lambda: [store.ends for store in self._used.values()],
            everything=self._list_store_pairs,
            clock=clock,
            pause=pause,
            every=every,
        )
        self._stores: dict[str, tuple[StandbyStore, ProjectStorePair]] = {}  # by project id
        self._own = {
            name: StandbyStore(OwnStorePair(name, primary, replica), self._router, self._follower)
            for name in (USER_STORE, HISTORY_STORE)
        }
        self._used: dict[str, StandbyStore] = {}  # by store name

    async def on_change(self, hear: Callable[[], None]) -> bool:
        return await self._primary.on_change(hear)

    @property
    def condition(self) -> Condition:
        counts = self._journal.count_writes()
        return replace(
            self._primary.condition,
            status=self._reaching.status,
            since=self._reaching.since,
            reason=self._reaching.reason,
            never_reached=self._reaching.is_never_reached,
            is_catching_up=not self._reaching.is_connected and self._reaching.absence.is_catching_up,
            waiting=counts.waiting,
            set_aside=counts.aside,
            copy_at=self._follower.level_at,
            accounts_at=self._follower.library_at,
            copy_kept=self._follower.kept,
        )

    async def ask(self, question: CatalogQuestion[A]) -> A:
        asked: CatalogQuestion[Any] = question
        if isinstance(asked, catalog.GetNote) and asked.key.startswith(LEASE_PREFIX):
            return await self._run_unjournaled(lambda library: library.ask(question))
        answer = await self._read(lambda library: library.ask(question))
        if isinstance(asked, catalog.ListNotes):
            return cast("A", drop_standby_notes(cast("Mapping[str, str]", answer)))
        if isinstance(asked, catalog.ReadCatalogData):
            found = cast("CatalogData", answer)
            return cast("A", replace(found, notes=drop_standby_notes(found.notes)))
        return answer

    async def apply(self, change: CatalogChange[A]) -> A:
        return await self._changes[type(change)](self, change)

    async def open(self, name: str) -> tuple[Project, StandbyStore]:
        self._follower.start()

        async def there() -> tuple[Project, StandbyStore]:
            project, found = await self._primary.open(name)
            store, ends = self._get_store(project)
            ends.set_primary(found)
            return project, store

        async def here() -> tuple[Project, StandbyStore]:
            await self._flush_acts()
            for _, ends in list(self._stores.values()):
                if ends.project_name == name:
                    with suppress(NotFound):  # another project with that name
                        await ends.ensure_replica()
            project, _ = await self._replica.open(name)
            return project, self._get_store(project)[0]

        project, store = await self._router.read(there, here)
        self._used[store.ends.name] = store
        return project, store

    async def _add_project(self, change: catalog.AddProject) -> Project:
        # Both sides and every attempt must create the same project.
        name, description = change.name, change.description
        own_id, moment = change.project_id or str(uuid4()), change.at or self._clock()

        async def made(library: Library, error: EverkeptError) -> Project:
            project = await library.get_project(name)
            if project.id != own_id:
                raise error
            return project

        wanted = Project(own_id, name, description, "active", moment, moment)
        project = await self._apply_act(
            defer_act(CreateProject(wanted)),
            lambda library: library.create(name, description, project_id=own_id, at=moment),
            made,
            lambda: wanted,
        )
        self._get_store(project)[1].was_there = True
        return project

    async def _set_project_status(self, change: catalog.SetProjectStatus) -> Project:
        if change.new_name:
            return await self._rename_project(change)
        act = ArchiveProject if change.status == "archived" else RestoreProject
        project = await self._apply_act(
            lambda: self._build_act(change.name, act),
            lambda library: library.apply(change),
            lambda library, error: confirm_status(library, change.name, change.status, error),
        )
        if change.status == "archived":
            self._drop_store(project.id)
        return project

    async def _rename_project(self, change: catalog.SetProjectStatus) -> Project:
        """Rename the project. Refuse it while the database is unreachable: the name may be taken there."""

        async def there(may_be_done: bool) -> Project:
            try:
                return await self._primary.apply(change)
            except NotFound:
                if not may_be_done:
                    raise
                return await self._primary.get_project(change.new_name)

        project = await self._router.run_primary(
            there, f'Cannot change project "{change.name}" while the database is unreachable.'
        )
        with suppress(EverkeptError):  # otherwise the follower does it later
            await self._replica.apply(change)
        if change.status == "archived":
            self._drop_store(project.id)
        return project

    async def _delete_project(self, change: catalog.DeleteProject) -> None:
        """Delete the project. Refuse it while the database is unreachable: other servers may have written there."""
        name = change.name

        async def there(may_be_done: bool) -> None:
            try:
                await self._primary.delete(name)
            except NotFound:
                if not may_be_done:
                    raise

        await self._router.run_primary(there, f'Cannot delete project "{name}" while the database is unreachable.')
        with suppress(EverkeptError):  # otherwise the follower deletes it later
            await self._replica.delete(name)
        for project_id, (_, ends) in list(self._stores.items()):
            if ends.project_name == name:
                self._drop_store(project_id)

    async def _set_project_off(self, change: catalog.SetProjectOff) -> Project:
        name, off = change.name, change.off
        moment = change.at or self._clock()  # the time of the change, also for a later replay
        return await self._apply_act(
            lambda: self._build_act(name, lambda project_id, name: SwitchProject(project_id, name, off, moment)),
            lambda library: library.set_off(name, off=off, at=moment),
        )

    async def open_user_store(self) -> StandbyStore:
        return self._get_own_store(USER_STORE)

    async def open_history_store(self) -> StandbyStore:
        return self._get_own_store(HISTORY_STORE)

    async def _link_workspace(self, change: catalog.LinkWorkspace) -> Project:
        return await self._apply_act(
            defer_act(AssignWorkspace(change.path, change.project.id)),
            lambda library: library.apply(change),
            instead=lambda: change.project,
        )

    async def _move_workspace(self, change: catalog.MoveWorkspace) -> None:
        project_id = None if change.project is None else change.project.id
        await self._apply_act(
            defer_act(MoveWorkspace(change.path, project_id)),
            lambda library: library.apply(change),
            instead=lambda: None,
        )

    async def _write_note(self, change: catalog.WriteNote) -> None:
        if change.key.startswith(LEASE_PREFIX):
            await self._apply_unjournaled(change)
        elif change.key.startswith(NOTE_PREFIX):  # all servers share the accounts
            await self._run_primary_first(
                lambda library: library.apply(change),
                "Cannot change accounts and their access while the database is unreachable.",
            )
        else:
            await self._apply_act(
                defer_act(SetNote(change.key, change.value)),
                lambda library: library.apply(change),
                instead=lambda: None,
            )

    async def _apply_unjournaled(self, change: CatalogChange[None]) -> None:
        await self._run_unjournaled(lambda library: library.apply(change))

    async def _forget_searches(self, _: catalog.ForgetSearches) -> int:
        known = len(await self.list_searches(limit=_MAX_SEARCHES))

        async def there(again: bool) -> int:
            forgotten = await self._primary.forget_searches()
            return max(forgotten, known) if again else forgotten

        forgotten = await self._router.run_primary(
            there, "Cannot delete recorded searches while the database is unreachable: they would stay there."
        )
        return forgotten + await self._replica.forget_searches()

    async def _register_token(self, change: catalog.RegisterToken) -> None:
        async def added(library: Library, error: EverkeptError) -> None:
            if change.token not in await library.list_tokens():
                raise error

        await self._apply_act(
            defer_act(AddToken(change.token, change.secret_hash)),
            lambda library: library.apply(change),
            added,
            lambda: None,
        )

    async def _revoke_token(self, change: catalog.RevokeToken) -> bool:
        known = change.token_id in {token.id for token in await self.list_tokens()}
        removed = await self._run_primary_first(
            lambda library: library.apply(change),
            "Cannot revoke a token while the database is unreachable: it would stay valid there.",
        )
        return removed or known

    async def _replace_catalog_data(self, change: catalog.ReplaceCatalogData) -> None:
        await self._run_primary(
            lambda library: library.apply(change), "Cannot copy data into the database while it is unreachable."
        )
        self._follower.wake_all()

    async def get_store(self, project: Project) -> RecordStore:
        """Return the store in the database, because the replica may be outdated and must not be copied."""
        return await self._run_primary(
            lambda library: library.get_store(project), "Cannot copy data from the database while it is unreachable."
        )

    async def close(self) -> None:
        """Close within a second, even if a connection hangs: pending writes are on disk."""
        await close_briefly(self._follower.close(), self._reaching.close(), self._flush())
        await close_briefly(self._primary.close(), self._replica.close(), self._journal.close())

    async def _read(self, ask: Ask[T]) -> T:
        self._follower.start()

        async def here() -> T:
            await self._flush_acts()
            return await ask(self._replica)

        return await self._router.read(lambda: ask(self._primary), here)

    async def _run_unjournaled(self, ask: Ask[T]) -> T:
        return await self._router.run_unjournaled(lambda: ask(self._primary), lambda: ask(self._replica))

    async def _run_primary(self, ask: Ask[T], sentence: str) -> T:
        return await self._router.run_primary(lambda _: ask(self._primary), sentence)

    async def _run_primary_first(self, ask: Ask[T], sentence: str) -> T:
        self._follower.start()
        done = await self._run_primary(ask, sentence)
        self._acts.add(ask)
        self._follower.wake()
        return done

    async def _apply_act(
        self,
        act: Callable[[], Awaitable[Act]],
        ask: Ask[T],
        settled: Callable[[Library, EverkeptError], Awaitable[T]] | None = None,
        instead: Callable[[], T] | None = None,
    ) -> T:
        """Apply an act to the database, or journal it.

        `settled` returns the result of an earlier attempt without an answer, or raises the error. `instead` returns the
        result if the act can only be journaled.
        """

        async def once(library: Library, again: bool, do: Callable[[], Awaitable[T]]) -> T:
            try:
                return await do()
            except (Conflict, NotFound) as error:
                if not again or settled is None:
                    raise
                return await settled(library, error)

        async def there(again: bool) -> T:
            done = await once(self._primary, again, lambda: ask(self._primary))
            self._acts.add(ask)
            self._follower.wake()
            return done

        async def kept() -> T:
            await self._acts.apply_to(self._replica)
            return await self._router.journal_act(await act(), lambda: ask(self._replica), instead=instead)

        self._follower.start()
        return await self._router.write(there, lambda again: once(self._replica, again, kept))

    async def _flush_acts(self) -> None:
        if self._acts:
            with suppress(StoreBusy):
                async with self._router.lock_replica():
                    await self._acts.apply_to(self._replica)

    async def _flush(self) -> None:
        """Apply recent writes to the replica, for later calls without the database."""
        await self._flush_acts()
        for store in [*self._own.values(), *(store for store, _ in self._stores.values())]:
            await store.flush()

    async def _build_act(self, name: str, kind: Callable[[str, str], Act]) -> Act:
        return kind((await self._replica.get_project(name)).id, name)

    def _get_store(self, project: Project) -> tuple[StandbyStore, ProjectStorePair]:
        """Return the store, the same object as long as the project exists: callers keep data by it."""
        if project.id not in self._stores:
            ends = ProjectStorePair(project, self._primary, self._replica, self._journal)
            self._stores[project.id] = StandbyStore(ends, self._router, self._follower), ends
        return self._stores[project.id]

    def _get_own_store(self, name: str) -> StandbyStore:
        self._follower.start()
        self._used[name] = self._own[name]
        return self._own[name]

    def _drop_store(self, project_id: str) -> None:
        """Forget an archived or deleted project. Callers that still have its store get an error."""
        if project_id in self._stores:
            _, ends = self._stores[project_id]
            self._used.pop(ends.name, None)
            ends.clear()

    async def _list_store_pairs(self) -> list[StorePair]:
        """List the stores by the replica, which has just received the current projects."""
        projects = await self._replica.list_projects()
        for gone in self._stores.keys() - {project.id for project in projects}:
            self._drop_store(gone)
        active = (self._get_store(each)[1] for each in projects if each.status == "active")
        return [*(store.ends for store in self._own.values()), *active]

    async def _replay(self) -> None:
        await expect_same_database(self._primary, self._replica, self._journal)
        await replay_pending(self._journal, self._primary, self._reaching, self._rights_of)
        self._follower.wake_all()

    def _notify(self) -> None:
        if self._on_change is not None:
            self._on_change(self.condition)

    _changes: ClassVar[CatalogChanges] = {
        catalog.AddProject: _add_project,
        catalog.SetProjectStatus: _set_project_status,
        catalog.DeleteProject: _delete_project,
        catalog.SetProjectOff: _set_project_off,
        catalog.LinkWorkspace: _link_workspace,
        catalog.MoveWorkspace: _move_workspace,
        catalog.WriteNote: _write_note,
        catalog.AddSearches: _apply_unjournaled,
        catalog.ForgetSearches: _forget_searches,
        catalog.AddUsage: _apply_unjournaled,
        catalog.RegisterToken: _register_token,
        catalog.RevokeToken: _revoke_token,
        catalog.ReplaceCatalogData: _replace_catalog_data,
    }
