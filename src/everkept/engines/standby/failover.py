"""Availability of the database, and the choice between it and the replica for each call."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Any, TypeVar

from everkept.core.disk import make_folder
from everkept.core.library import (
    Reachability,
    UnreachableInfo,
    forget_replica_read,
    has_read_replica,
    note_pending_write,
    note_replica_read,
)
from everkept.core.ports import Library
from everkept.core.projects import Project, Status
from everkept.core.records import Ref
from everkept.core.sessions import get_acting_account
from everkept.core.times import Clock
from everkept.engines.standby.journal import Journal
from everkept.engines.standby.journal_acts import Act
from everkept.errors import (
    Conflict,
    EverkeptError,
    QueryTimeout,
    ReadOnly,
    Refused,
    StoreTooNew,
    StoreUnreachable,
    Unavailable,
)
from everkept.values import Value

CONTACT_FILE = "reached"  # exists once the database was reached

NEVER_REACHED = "It has never been reached from this folder. Check the address."


class FirstContactMarker:
    """File that records the first contact, for all programs that use the folder."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / CONTACT_FILE
        self._is_made = False

    @property
    def is_present(self) -> bool:
        self._is_made = self._is_made or self._file.exists()
        return self._is_made

    def create(self) -> None:
        """Record that the database has been reached at least once."""
        if not self.is_present:
            self._is_made = True
            with suppress(OSError):  # the marker is optional
                make_folder(self._file.parent)
                self._file.touch()


# Seconds before each attempt, until the status is degraded.
RETRY_SCHEDULE_SECONDS = 0.0, 1.0, 2.0, 4.0, 8.0
RETRY_SECONDS = 30.0  # between later attempts
WRITE_WAIT_SECONDS = 2.0  # how long a write waits for the first attempts, in total
READ_WAIT_SECONDS = 0.5  # shorter for queries: the last known data is good enough, and searches have a limit
# During a replay, one write may be added for this many sent ones. Otherwise fast writers could prevent its end.
SENT_PER_ADDED = 2
ADD_WAIT_SECONDS = 4.0  # after this a write is added anyway

STILL_UNREACHABLE = "database still unreachable: %s Retrying every %g seconds; writes are saved on this machine"
STILL_BEHIND = "database reachable, but pending writes cannot be sent yet: %s Retrying every %g seconds"

Pause = Callable[[float], Awaitable[object]]

log = logging.getLogger(__name__)


class RetryPolicy(Value):
    """Times of the retries, and how long a call waits for them."""

    pause: Pause = asyncio.sleep
    schedule: Sequence[float] = RETRY_SCHEDULE_SECONDS
    every: float = RETRY_SECONDS
    patience: float = WRITE_WAIT_SECONDS
    reading: float = READ_WAIT_SECONDS


class Availability:
    """State of the database. While it is unreachable, a task retries.

    `ask` sends a small query. `bring_over` replays pending writes. Until that calls `note_connected`, the database
    counts as unreachable.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[object]],
        bring_over: Callable[[], Awaitable[None]],
        *,
        clock: Clock,
        pace: RetryPolicy,
        on_change: Callable[[], None],
        first_contact: FirstContactMarker,
    ) -> None:
        self.ask = ask
        self.pause = pace.pause
        self._bring_over = bring_over
        self._clock = clock
        self._pace = pace
        self._on_change = on_change
        self._acquaintance = first_contact
        self.status: Reachability = "connected"
        self.since: int | None = None
        self._reason = ""
        self.turns = 0  # number of changes between connected and not connected
        self._too_new: StoreTooNew | None = None  # set if a newer program has upgraded the database
        self._is_told = False  # the user has been told that it is unreachable
        self._is_closed = False
        self._grace = asyncio.Event()  # set if no write waits for the next attempt
        self._grace.set()
        self._first = asyncio.Event()  # set if no query waits for it
        self._first.set()
        self._is_bringing = False
        self._hurry = asyncio.Event()  # set if the next attempt should not wait
        self._line: deque[asyncio.Event] = deque()  # writers that wait to add to the replay
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_connected(self) -> bool:
        return self.status == "connected"

    @property
    def reason(self) -> str:
        """The reason why the database is unreachable, and whether it was ever reached."""
        is_away = self._is_told and not self._is_bringing
        return f"{self._reason} {NEVER_REACHED}" if is_away and self.is_never_reached else self._reason

    @property
    def is_never_reached(self) -> bool:
        """Whether the database is unreachable, and was never reached from this folder."""
        return not self.is_connected and not self._acquaintance.is_present

    @property
    def absence(self) -> UnreachableInfo:
        """The state for callers that the replica answered. If the connection was never lost, it is catching up."""
        return UnreachableInfo(self.since, self._is_bringing or not self._is_told, self.is_never_reached)

    async def is_reachable(self) -> bool:
        """Return whether the database is connected. If it was just lost, wait for the first attempts."""
        await self._grace.wait()
        return self.is_connected

    async def is_reachable_now(self) -> bool:
        """Return whether the database is connected. Wait only for the immediate attempt."""
        await self._first.wait()
        return self.is_connected

    async def wait_to_add(self) -> None:
        """Wait for a turn to add a pending write during a replay."""
        if self._is_bringing:
            turn = asyncio.Event()
            self._line.append(turn)
            try:
                await wait_for_first(turn.wait(), self._pace.pause(ADD_WAIT_SECONDS))
            finally:
                with suppress(ValueError):
                    self._line.remove(turn)

    def note_sent(self, count: int) -> None:
        """Let waiting writers continue after `count` writes were sent."""
        self._release_writes(count // SENT_PER_ADDED)

    def note_unreachable(self, error: StoreUnreachable) -> None:
        """Note that the database is unreachable, and start to retry."""
        if self.is_connected:
            self._start_absence(error.message)
            self._log_once()

    def catch_up(self, reason: str) -> None:
        """Count the database as unreachable until pending writes are sent."""
        if self.is_connected:
            self._start_absence(reason)

    def retry_now(self) -> None:
        """Start the next attempt, because another process has reached the database."""
        self._hurry.set()

    def note_too_new(self, error: StoreTooNew) -> None:
        """Note that the database is too new for this program, so that no call waits for another attempt."""
        self._too_new = error
        self._grace.set()
        self._first.set()

    def note_answer(self) -> None:
        """Note an answer: the database is not too new, or no longer."""
        self._too_new = None
        self._acquaintance.create()

    def expect_supported(self) -> None:
        """Raise StoreTooNew if the database is too new. That is different from being unreachable."""
        if (error := self._too_new) is not None:
            raise StoreTooNew(error.message, hint=error.hint, **error.facts)

    def note_connected(self, brought: str) -> None:
        """Note that the database is reachable and no write is pending. `brought` describes the replay."""
        if self._is_told:
            log.warning("database reachable again: %s", brought)
        self._is_told = False
        self.since, self._reason = None, ""
        self._set_status("connected")
        self._grace.set()
        self._first.set()

    async def close(self) -> None:
        """Stop retrying. Waiting calls continue as if the database were unreachable."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._grace.set()
        self._first.set()

    def _start_absence(self, reason: str) -> None:
        self.since, self._reason = self._clock(), reason
        self._set_status("reconnecting")
        if self._is_closed:
            return
        self._grace, self._first = asyncio.Event(), asyncio.Event()
        self._start_task(self._set_after(self._pace.patience, self._grace))
        self._start_task(self._set_after(self._pace.reading, self._first))
        self._start_task(self._reconnect())

    async def _set_after(self, seconds: float, event: asyncio.Event) -> None:
        await self._pace.pause(seconds)
        event.set()

    async def _reconnect(self) -> None:
        for attempt, wait in enumerate(chain(self._pace.schedule, repeat(self._pace.every))):
            if attempt == len(self._pace.schedule):
                self._set_status("degraded")
                log.warning(STILL_UNREACHABLE if self._is_told else STILL_BEHIND, self.reason, self._pace.every)
            if wait:
                await wait_for_first(self._pace.pause(wait), self._hurry.wait())
            self._hurry.clear()
            if await self._try_reconnect():
                return
            self._first.set()

    async def _try_reconnect(self) -> bool:
        try:
            await self.ask()
            self.note_answer()
            self._is_bringing = True
            await self._bring_over()
        except EverkeptError as error:
            self._reason = error.message
            if isinstance(error, StoreUnreachable):
                self._log_once()
            if isinstance(error, StoreTooNew):
                self.note_too_new(error)
        except Exception as error:
            # The next attempt may succeed after any error, and only this task makes it.
            self._reason = f"{type(error).__name__}: {error}"
            log.exception("attempt to reach the database failed")
        finally:
            self._is_bringing = False
            self._release_writes(len(self._line))
        return self.is_connected

    def _release_writes(self, count: int) -> None:
        for _ in range(min(count, len(self._line))):
            self._line.popleft().set()

    def _log_once(self) -> None:
        if not self._is_told:
            self._is_told = True
            log.warning("database unreachable: %s Retrying", self.reason)

    def _set_status(self, status: Reachability) -> None:
        if self.status != status:
            self.turns += "connected" in (self.status, status)
            self.status = status
            self._on_change()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="reaching")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def wait_for_first(*awaited: Awaitable[object]) -> None:
    """Wait until the first of these is done, and cancel the others."""
    tasks = [asyncio.ensure_future(each) for each in awaited]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def confirm_status(library: Library, name: str, status: Status, error: EverkeptError) -> Project:
    """Return the project if an earlier attempt without an answer has set its status. Otherwise raise the error."""
    project = await library.get_project(name)
    if project.status != status:
        raise error
    return project


def defer_act(act: Act) -> Callable[[], Awaitable[Act]]:
    async def given() -> Act:
        return act

    return given


T = TypeVar("T")
Ask = Callable[[], Awaitable[T]]

REPLICA_ERRORS = (Unavailable, ReadOnly)  # errors of the replica that do not depend on the operation
FIRST_READ_SECONDS = 1.4  # for the very first query
MAX_TRIES = 3  # for a call during which the database keeps coming and going
REPLAY_REASON = "Pending writes are being sent."


class ReplicaBusy(Exception):
    """The replica must not be changed now, because writes are pending or another process changed it."""


class FailoverRouter:
    """Router of each call to the database, or to the replica while the database is unreachable."""

    def __init__(self, reaching: Availability, journal: Journal, has_copy: Callable[[], Awaitable[bool]]) -> None:
        """`has_copy` returns whether the replica was ever complete."""
        self.reaching = reaching
        self._journal = journal
        self._has_copy = has_copy
        self._has_answered = False
        self._has_seen_pending = False
        self._told: set[type[Exception]] = set()

    async def read(self, there: Ask[T], here: Ask[T]) -> T:
        """Read from the database, or from the replica with a mark on the answer.

        One answer comes from one side: a call that begins with the replica continues with it. The database lacks
        pending writes, also those of other processes on this machine, so they are sent first.
        """
        self.check_journal()
        for _ in range(MAX_TRIES):
            if has_read_replica() or not await self.reaching.is_reachable_now():
                break
            try:
                return await self._ask_primary(there)
            except StoreUnreachable as error:
                self.reaching.note_unreachable(error)
            except Refused as error:
                await self._handle_refusal(error)
        self.reaching.expect_supported()
        note_replica_read(self.reaching.absence)
        await self._has_copy()
        return await here()

    async def write(self, there: Callable[[bool], Awaitable[T]], here: Callable[[bool], Awaitable[T]]) -> T:
        """Write to the database or journal. Both functions get whether an earlier attempt may have succeeded.

        `here` runs while no other process replays or changes the replica.
        """
        tries, may_be_done = 0, False
        while True:
            self.check_journal()
            if tries < MAX_TRIES and await self.reaching.is_reachable():
                tries += 1
                try:
                    done = await self._track_version(there(may_be_done))
                    self._has_answered = True
                    return done
                except StoreUnreachable as error:
                    may_be_done = True
                    self.reaching.note_unreachable(error)
                except QueryTimeout as error:
                    # The write may still succeed, so the next one must not overtake it. No call waits that long a
                    # second time.
                    tries, may_be_done = MAX_TRIES, True
                    self.reaching.catch_up(error.message)
                except StoreTooNew:
                    if not may_be_done:
                        raise
                    tries = MAX_TRIES  # journaled: a newer program finds out whether it was done
                except Refused as error:
                    await self._handle_refusal(error)
                except Conflict:
                    # The caller plans again. With the replica, which may be older, it would fail again.
                    forget_replica_read()
                    raise
                continue
            if not may_be_done:
                self.reaching.expect_supported()
            await self.reaching.wait_to_add()
            async with self._journal.lock_writes():
                # Pending writes may have been sent just now, and the order must be kept.
                if tries == MAX_TRIES or not self.reaching.is_connected:
                    done = await here(may_be_done)
                    self.check_journal()
                    return done

    async def run_unjournaled(self, there: Ask[T], here: Ask[T]) -> T:
        """Run an operation on data that is not memory. While the database is unreachable, run it only here."""
        if await self.reaching.is_reachable_now():
            try:
                return await self._track_version(there())
            except StoreUnreachable as error:
                self.reaching.note_unreachable(error)
            except Refused as error:
                await self._handle_refusal(error)
        self.reaching.expect_supported()
        return await here()

    async def run_primary(self, there: Callable[[bool], Awaitable[T]], sentence: str) -> T:
        """Run a repeatable operation now or refuse it. It gets whether an earlier attempt may have succeeded."""
        self.check_journal()
        may_be_done = False
        for _ in range(MAX_TRIES):
            if not await self.reaching.is_reachable():
                break
            try:
                return await self._track_version(there(may_be_done))
            except StoreUnreachable as error:
                self.reaching.note_unreachable(error)
                may_be_done = True
        self.reaching.expect_supported()
        outcome = "The outcome is unknown." if may_be_done else "Nothing was changed."
        hint = "Try again when the database is reachable."
        raise StoreUnreachable(f"{sentence} {outcome} {self.reaching.reason}", hint=hint)

    async def journal_act(
        self, act: Act, here: Ask[T], *, local_seq: int | None = None, instead: Callable[[], T] | None = None
    ) -> T:
        """Append the act to the journal, then apply it here. Remove it if that fails. Call this only in a write.

        If the replica cannot be written, the act stays pending, and `instead` returns the result.
        """
        account = get_acting_account()
        whose = () if account is None else (account.name, account.id)
        entry = await self._journal.append(act, local_seq, *whose)
        try:
            done = await here()
        except REPLICA_ERRORS as error:
            if instead is None:
                await self._journal.remove(entry)
                raise
            self._log_once(error)
            done = instead()
        except Exception:
            await self._journal.remove(entry)
            raise
        note_pending_write(self.reaching.absence)
        return done

    async def forget(self, store: str, refs: Sequence[Ref], *, belongings: bool) -> bool:
        """Erase purged data from pending and rejected writes. Return whether no byte is left."""
        try:
            return (await self._journal.forget(store, refs, belongings=belongings)).complete
        except EverkeptError as error:
            log.warning("purged data may remain in the journal: %s", error)
            return False

    def check_journal(self) -> None:
        """Replay pending writes of any process before new ones are sent. Try again if another process has sent them."""
        waiting = self._journal.count_writes().waiting
        if self.reaching.is_connected:
            if waiting:
                self.reaching.catch_up(REPLAY_REASON)
        elif self._has_seen_pending and not waiting:
            self.reaching.retry_now()
        self._has_seen_pending = waiting > 0

    async def _ask_primary(self, there: Ask[T]) -> T:
        """Query the database. If the first call gets no answer and there is a replica, stop waiting for it."""
        if self._has_answered:
            return await self._track_version(there())
        asking = asyncio.ensure_future(self._track_version(there()))
        pausing = asyncio.ensure_future(self.reaching.pause(FIRST_READ_SECONDS))
        try:
            await asyncio.wait([asking, pausing], return_when=asyncio.FIRST_COMPLETED)
            if not asking.done() and await self._has_copy():
                raise StoreUnreachable("The database has not answered yet.")
            answer = await asking
        finally:
            for task in (asking, pausing):
                task.cancel()
            await asyncio.gather(asking, pausing, return_exceptions=True)
        self._has_answered = True
        return answer

    async def _track_version(self, asked: Awaitable[T]) -> T:
        """Await the answer, and remember whether the database is too new for this program."""
        try:
            answer = await asked
        except StoreTooNew as error:
            self.reaching.note_too_new(error)
            raise
        self.reaching.note_answer()
        return answer

    async def _handle_refusal(self, error: Refused) -> None:
        """Raise the error, unless the database refuses every query and there is a replica."""
        if type(error) is Refused:
            try:
                await self.reaching.ask()
            except (Refused, StoreUnreachable) as reason:
                if await self._has_copy():
                    self.reaching.note_unreachable(StoreUnreachable(reason.message))
                    return
        raise error

    def _log_once(self, error: EverkeptError) -> None:
        if type(error) not in self._told:
            self._told.add(type(error))
            log.warning("local copy cannot be written; writes stay pending: %s", error)

    def lock_replica(self) -> AbstractAsyncContextManager[None]:
        """Lock changes of the replica, even if writes are pending."""
        return self._journal.lock_writes()

    @asynccontextmanager
    async def lock_idle_replica(self) -> AsyncGenerator[None, None]:
        """Lock changes of the replica. Raise ReplicaBusy if writes are pending."""
        async with self._journal.lock_writes():
            if not self.reaching.is_connected or self._journal.count_writes().waiting:
                raise ReplicaBusy
            yield
