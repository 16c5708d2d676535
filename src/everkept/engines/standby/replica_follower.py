"""Background task that keeps the replica up to date while the database is reachable."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Sequence
from contextlib import suppress
from pathlib import Path

from everkept.core.ports import Library
from everkept.core.times import Clock
from everkept.engines.standby.failover import REPLICA_ERRORS, FailoverRouter, Pause, ReplicaBusy, wait_for_first
from everkept.engines.standby.journal import Journal
from everkept.engines.standby.replica import (
    IDENTITY_NOTES,
    KEPT_COPY_NOTE,
    STANDBY_NOTES,
    LostChanges,
    RecentActs,
    ReplicaBookmark,
    StoreReplication,
    copy_vectors,
    ensure_identity,
    is_other_database,
    save_copy,
    select_identities,
)
from everkept.engines.standby.store import StorePair
from everkept.errors import EverkeptError, NotFound, ProjectArchived, QueryTimeout, StoreBusy, StoreUnreachable
from everkept.values import replace

DELAY_SECONDS = 0.6  # delay that collects writes made one after the other
FULL_PASS_INTERVAL = 10  # one of this many passes covers everything
LIBRARY_SECONDS = 5.0  # between passes over projects and notes while others change data
MAX_UNUSED_STORES = 50  # stores not in use here that such a pass covers; all of them take turns
LEVEL_NOTE = STANDBY_NOTES + "at"  # note with the time when the replica last equaled the database
# note with the time of the last update of tokens, notes and projects
LIBRARY_NOTE = STANDBY_NOTES + "library_at"
NOTE_MICROSECONDS = 60 * 1_000_000
LIBRARY_NAME = ""  # stands for data that belongs to no store

log = logging.getLogger(__name__)


class ReplicaFollower:
    """Task that updates the replica: stores in use regularly, and stores that were just written soon.

    `in_use` returns the stores that a caller has opened, `everything` all stores that should have a replica.
    """

    def __init__(
        self,
        primary: Library,
        replica: Library,
        router: FailoverRouter,
        journal: Journal,
        acts: RecentActs,
        *,
        in_use: Callable[[], Sequence[StorePair]],
        everything: Callable[[], Awaitable[Sequence[StorePair]]],
        clock: Clock,
        pause: Pause,
        every: float,
    ) -> None:
        self.level_at: int | None = None  # when the replica last equaled the stores of a pass
        self.library_at: int | None = None  # when tokens, notes and projects were last updated
        self._noted: dict[str, int] = {}  # when these times were last written
        self._told: set[type[Exception]] = set()
        self._is_recalled = False
        self._hears = False  # listens to changes by others, if the database reports them
        self._is_told = False  # another process has changed something
        # Time of the last pass over these, by the loop's clock.
        self._library_seen = self._all_at = 0.0
        self.kept = ""  # path of the saved replica of a database that lost data
        self._clock = clock
        self._primary = primary
        self._replica = replica
        self._router = router
        self._journal = journal
        self._acts = acts
        self._in_use = in_use
        self._everything = everything
        self._pause = pause
        self._every = every  # seconds between two passes over the stores in use
        self._woken: set[str] = set()
        self._wakes = asyncio.Event()
        self._hurry = asyncio.Event()
        self._wants_all = True
        self._meaning: tuple[str, tuple[str, ...]] | None = None
        self._seen: dict[str, tuple[int, int]] = {}
        self._turns: dict[str, int] = {}  # number of the last turn of each store
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task. The first pass soon covers everything."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="following")

    def wake(self, name: str = LIBRARY_NAME, *, at_once: bool = False) -> None:
        self._woken.add(name)
        self._wakes.set()
        if at_once:
            self._hurry.set()

    def wake_all(self) -> None:
        self._wants_all = True
        self._wakes.set()

    def learn(self, model: str, kinds: Sequence[str]) -> None:
        if self._meaning != (model, tuple(kinds)):
            self._meaning = (model, tuple(kinds))
            self._seen.clear()

    async def load_state(self) -> bool:
        """Load the state of an earlier replica. Return whether it was ever complete."""
        if self._is_recalled:
            return self.level_at is not None
        try:
            own = await self._replica.list_notes(STANDBY_NOTES)
        except EverkeptError:
            return False
        self.level_at = self.level_at or int(own.get(LEVEL_NOTE) or 0) or None
        self.library_at = self.library_at or int(own.get(LIBRARY_NOTE) or 0) or None
        if (kept := own.get(KEPT_COPY_NOTE)) and await asyncio.to_thread(Path(kept).exists):
            self.kept = kept
        self._is_recalled = self.level_at is not None
        return self.level_at is not None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        looks = 0
        while True:
            await wait_for_first(self._pause(DELAY_SECONDS), self._hurry.wait())
            self._wakes.clear()
            self._hurry.clear()
            try:
                await self._run_pass()
            except Exception:
                log.exception("update of the local copy failed")
            # A reported change does not wait until the next regular pass.
            soon = min(LIBRARY_SECONDS, self._every) if self._is_told else self._every
            await wait_for_first(self._wakes.wait(), self._pause(soon))
            # If others change data all the time, there is never a regular pass.
            is_calm, since = not self._wakes.is_set(), _get_loop_time() - self._all_at
            looks += is_calm
            if looks == FULL_PASS_INTERVAL or (not is_calm and since >= FULL_PASS_INTERVAL * self._every):
                looks, self._wants_all = 0, True

    def _note_change(self) -> None:
        self._is_told = True
        self._wakes.set()

    async def _run_pass(self) -> None:
        self._router.check_journal()
        await self.load_state()
        if not self._router.reaching.is_connected:
            return
        try:
            if not self._hears:
                await self._primary.on_change(self._note_change)
                self._hears = True
            await self.follow()
        except StoreUnreachable as error:
            self._router.reaching.note_unreachable(error)
        except (EverkeptError, ReplicaBusy) as error:
            self._log_problem("everything", error)

    async def follow(self) -> None:
        """Follow the woken stores, and the others in use, or everything if that is due."""
        woken, wants_all = self._woken, self._wants_all
        self._woken, self._wants_all = set(), False
        if wants_all:
            self._all_at = _get_loop_time()
        is_told = self._is_told and _get_loop_time() - self._library_seen >= LIBRARY_SECONDS
        try:
            if wants_all or is_told or LIBRARY_NAME in woken:
                await self._follow_library()
            due = sorted(self._in_use(), key=lambda ends: ends.name not in woken)
            if wants_all or is_told:
                due += await self._select_unused({ends.name for ends in due}, None if wants_all else MAX_UNUSED_STORES)
            followed = [await self._try_follow(ends) for ends in due]
            if all(followed):
                await self._note_level()
        except BaseException:
            self._woken |= woken
            self._wants_all = self._wants_all or wants_all
            self._is_told = self._is_told or is_told
            raise

    async def _select_unused(self, used: Container[str], most: int | None) -> list[StorePair]:
        """Return stores that others may use, those never followed or followed longest ago first."""
        every = [ends for ends in await self._everything() if ends.name not in used]
        self._turns = {ends.name: self._turns.get(ends.name, 0) for ends in every}
        chosen = sorted(every, key=lambda ends: self._turns[ends.name])[:most]
        last = max(self._turns.values(), default=0)
        self._turns.update((ends.name, last + 1) for ends in chosen)
        return chosen

    async def _follow_library(self) -> None:
        self._is_told, self._library_seen = False, _get_loop_time()
        done, at = self._acts.count, self._clock()
        catalog_data = await ensure_identity(self._primary, await self._replica.list_notes(STANDBY_NOTES))
        async with self._router.lock_idle_replica():
            own = await self._replica.read_catalog_data()
            has_lost_name = bool(select_identities(own.notes)) and not select_identities(catalog_data.notes)
            if is_other_database(catalog_data, own):
                await self._save_copy()
                own = await self._replica.read_catalog_data()
            marks = {key: own.notes[key] for key in own.notes if _is_mark(key)}
            wanted = replace(catalog_data, notes={**catalog_data.notes, **marks})
            if own != wanted:
                await self._replica.replace_catalog_data(wanted)
            await self._write_time(LIBRARY_NOTE, at)
        self.library_at = at
        self._acts.drop_until(done)
        if has_lost_name:
            self.wake()  # the database gets a new identity

    async def _save_copy(self) -> None:
        """Save the replica, which then starts over. Call this only while no other process changes it."""
        for ends in self._in_use():
            with suppress(EverkeptError):
                await ends.recent.apply_to(await ends.ensure_replica())
        place = await asyncio.to_thread(save_copy, Path(self._replica.condition.place), self._clock())
        for key in await self._replica.list_notes(STANDBY_NOTES):
            await self._replica.set_note(key, None)
        await self._replica.set_note(KEPT_COPY_NOTE, str(place))
        self.kept, self.level_at, self.library_at = str(place), None, None
        self._noted.clear()
        self._seen.clear()
        self.wake_all()
        log.warning(
            "database lost data that the local copy has: it is empty, or was restored to an older state; "
            "saved the local copy in %s",
            place,
        )

    async def _try_follow(self, ends: StorePair) -> bool:
        """Follow one store. An error does not prevent the others from being followed."""
        try:
            await self._follow_store(ends)
        except StoreUnreachable:
            raise
        except (NotFound, ProjectArchived) as error:
            log.debug("%s no longer exists: %r", ends.name, error)
        except (EverkeptError, ReplicaBusy) as error:
            self._log_problem(ends.name, error)
            return False
        return True

    def _log_problem(self, what: str, error: Exception) -> None:
        """Log a lasting problem once per kind."""
        is_lasting = isinstance(error, REPLICA_ERRORS) and not isinstance(error, (StoreBusy, QueryTimeout))
        if is_lasting and type(error) not in self._told:
            self._told.add(type(error))
            log.warning("local copy of %s cannot be updated: %s", what, error)
        else:
            log.debug("local copy of %s will be updated later: %r", what, error)

    async def _note_level(self) -> None:
        self._told.clear()
        self.level_at = at = self._clock()
        if self._is_due(LEVEL_NOTE, at):
            async with self._router.lock_idle_replica():
                await self._write_time(LEVEL_NOTE, at)

    def _is_due(self, key: str, at: int) -> bool:
        return at - self._noted.get(key, 0) > NOTE_MICROSECONDS

    async def _write_time(self, key: str, at: int) -> None:
        """Write a time for later users of the replica. Call this only while no other process changes it."""
        if self._is_due(key, at):
            await self._replica.set_note(key, str(at))
            self._noted[key] = at

    async def _follow_store(self, ends: StorePair) -> None:
        there, here = await ends.open_primary(), await ends.open_replica()
        stamp = await there.get_stamp()
        bookmark = self._build_bookmark(ends.name)
        copying = StoreReplication(there, here, bookmark, self._router.lock_idle_replica)
        is_as_seen = self._seen.get(ends.name) == stamp
        if is_as_seen and await copying.is_level(stamp[0]):
            ends.recent.drop_until(stamp[0])
            return
        try:
            ends.recent.drop_until(await copying.catch_up())
        except LostChanges as error:
            async with self._router.lock_idle_replica():
                if await bookmark.read() == error.mark:  # otherwise another process has handled it
                    await self._save_copy()
            raise ReplicaBusy from error
        if meaning := self._meaning:
            await copy_vectors(there, here, *meaning, self._router.lock_idle_replica)
        if meaning == self._meaning:
            self._seen[ends.name] = stamp

    def _build_bookmark(self, name: str) -> ReplicaBookmark:
        key = STANDBY_NOTES + name
        return ReplicaBookmark(
            lambda: self._replica.get_note(key),
            lambda text: self._replica.set_note(key, text),
            lambda: self._journal.forget_numbers(name),
        )


def _is_mark(key: str) -> bool:
    """Return whether a note belongs only to the replica, not to the database."""
    return key.startswith(STANDBY_NOTES) and not key.startswith(IDENTITY_NOTES)


def _get_loop_time() -> float:
    return asyncio.get_running_loop().time()
