"""Availability of the database, and the choice between it and the copy here for each act."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Any, TypeVar

from everkept.core.disk import make_folder
from everkept.core.library import Reachability, UnreachableInfo, has_read_replica, note_pending_write, note_replica_read
from everkept.core.ports import Library
from everkept.core.projects import Project, Status
from everkept.core.records import Ref
from everkept.core.sessions import get_acting_account
from everkept.core.times import Clock
from everkept.engines.standby.journal import Journal
from everkept.engines.standby.journal_acts import Act
from everkept.errors import EverkeptError, QueryTimeout, ReadOnly, Refused, StoreTooNew, StoreUnreachable, Unavailable
from everkept.values import Value

CONTACT_FILE = "reached"  # the file that says so

NEVER_REACHED = "It was never reached from this folder: is the address right?"


class FirstContactMarker:
    """Known to all programs that use the folder, and beyond their lives."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / CONTACT_FILE
        self._is_made = False

    @property
    def is_present(self) -> bool:
        self._is_made = self._is_made or self._file.exists()
        return self._is_made

    def create(self) -> None:
        """It was reached."""
        if not self.is_present:
            self._is_made = True
            with suppress(OSError):  # a help, and no reason to refuse anything
                make_folder(self._file.parent)
                self._file.touch()


# seconds before each attempt, until it counts as degraded
RETRY_SCHEDULE_SECONDS = 0.0, 1.0, 2.0, 4.0, 8.0
RETRY_SECONDS = 30.0  # seconds between the attempts from then on
WRITE_WAIT_SECONDS = 2.0  # seconds that writes wait for the first of them, in sum
READ_WAIT_SECONDS = 0.5  # seconds that questions do: what was last seen is as good, and a search has a limit
# While writes are brought over, one may be added for so many that have gone: who adds to them
# faster would never see their end.
SENT_PER_ADDED = 2
ADD_WAIT_SECONDS = 4.0  # seconds after which one is added all the same

STILL_UNREACHABLE = (
    "The database is still away: %s It is tried again every %g seconds; what is stored meanwhile "
    "is kept on this machine."
)
STILL_BEHIND = (
    "The database answers, and what waits on this machine could not be brought over yet: %s It is "
    "tried again every %g seconds; what is stored meanwhile waits too."
)

Pause = Callable[[float], Awaitable[object]]

log = logging.getLogger(__name__)


class RetryPolicy(Value):
    """When it is tried again, and how long a call waits for that."""

    pause: Pause = asyncio.sleep
    schedule: Sequence[float] = RETRY_SCHEDULE_SECONDS
    every: float = RETRY_SECONDS
    patience: float = WRITE_WAIT_SECONDS
    reading: float = READ_WAIT_SECONDS


class Availability:
    """Knows whether it is there; when it is not, tries again until it is.

    `ask` asks something small of it. `bring_over` does what waited for its return; until that has
    called `arrived` it counts as away.
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
        self.turns = 0  # how often it went or came
        self._too_new: StoreTooNew | None = None  # how a newer program has left it, if one has
        self._is_told = False  # that it is away
        self._is_closed = False
        self._grace = asyncio.Event()  # set where nobody waits for the next attempt
        self._grace.set()
        self._first = asyncio.Event()  # set where no question waits for it
        self._first.set()
        self._is_bringing = False
        self._line: deque[asyncio.Event] = deque()  # who would add to what is brought over
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_connected(self) -> bool:
        return self.status == "connected"

    @property
    def reason(self) -> str:
        """Why it is away, and whether it ever was there."""
        is_away = self._is_told and not self._is_bringing
        return f"{self._reason} {NEVER_REACHED}" if is_away and self.is_never_reached else self._reason

    @property
    def is_never_reached(self) -> bool:
        """It is away, and was never reached from this folder."""
        return not self.is_connected and not self._acquaintance.is_present

    @property
    def absence(self) -> UnreachableInfo:
        """For who was answered by another: whoever was never lost has only things to catch up."""
        is_catching_up = self._is_bringing or not self._is_told
        return UnreachableInfo(self.since, is_catching_up, self.is_never_reached)

    async def is_reachable(self) -> bool:
        """Waits where it has just gone: the next attempt may be the last that is needed."""
        await self._grace.wait()
        return self.is_connected

    async def is_reachable_now(self) -> bool:
        """Waits for the attempt that is made at once, and no longer."""
        await self._first.wait()
        return self.is_connected

    async def wait_to_add(self) -> None:
        """Before something is added to what waits."""
        if self._is_bringing:
            turn = asyncio.Event()
            self._line.append(turn)
            try:
                await wait_for_first(turn.wait(), self._pace.pause(ADD_WAIT_SECONDS))
            finally:
                with suppress(ValueError):
                    self._line.remove(turn)

    def note_sent(self, count: int) -> None:
        """So many of what waits were brought over."""
        self._release_writes(count // SENT_PER_ADDED)

    def note_unreachable(self, error: StoreUnreachable) -> None:
        """It was found to be away."""
        if self.is_connected:
            self._start_absence(error.message)
            self._log_once()

    def catch_up(self, reason: str) -> None:
        """Something waits to be brought over: until that is done it counts as away."""
        if self.is_connected:
            self._start_absence(reason)

    def note_too_new(self, error: StoreTooNew) -> None:
        """It is there, and this program is too old for it: nobody waits for another attempt."""
        self._too_new = error
        self._grace.set()
        self._first.set()

    def note_answer(self) -> None:
        """It has answered: whatever a newer program had done to it is so no more."""
        self._too_new = None
        self._acquaintance.create()

    def expect_supported(self) -> None:
        """Raises StoreTooNew: to be too old for a database is not the same as to be without it."""
        if (error := self._too_new) is not None:
            raise StoreTooNew(error.message, hint=error.hint, **error.facts)

    def note_connected(self, brought: str) -> None:
        """It is there, and nothing waits any more; `brought` says what was."""
        if self._is_told:
            log.warning("The database is back; %s.", brought)
        self._is_told = False
        self.since, self._reason = None, ""
        self._set_status("connected")
        self._grace.set()
        self._first.set()

    async def close(self) -> None:
        """Whoever waits is answered as if it were away."""
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
        waits = chain(self._pace.schedule, repeat(self._pace.every))
        for attempt, wait in enumerate(waits):
            if attempt == len(self._pace.schedule):
                self._set_status("degraded")
                log.warning(STILL_UNREACHABLE if self._is_told else STILL_BEHIND, self.reason, self._pace.every)
            if wait:
                await self._pace.pause(wait)
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
            # Whatever it is, the next attempt may go well, and nobody else would make it.
            self._reason = f"{type(error).__name__}: {error}"
            log.exception("the attempt to reach the database failed")
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
            log.warning("The database cannot be reached: %s It is tried again.", self.reason)

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
    """Ends with the first of them, and ends the others."""
    tasks = [asyncio.ensure_future(each) for each in awaited]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def confirm_status(library: Library, name: str, status: Status, error: EverkeptError) -> Project:
    """The project, where an attempt without an answer has given it this status; else the error."""
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

REPLICA_ERRORS = (Unavailable, ReadOnly)  # of the copy: whatever is to be done to it
FIRST_READ_SECONDS = 1.4  # seconds that a question waits which is the first of all
MAX_TRIES = 3  # of a call that meets a database which goes as soon as it has come
REPLAY_REASON = "Writes that were kept here are being brought over."


class ReplicaBusy(Exception):
    """The copy may not be changed now: something waits, or somebody else has changed it."""


class FailoverRouter:
    """The one place that decides which of both answers a call."""

    def __init__(self, reaching: Availability, journal: Journal, has_copy: Callable[[], Awaitable[bool]]) -> None:
        """`has_copy` says whether anything was ever seen of the database."""
        self.reaching = reaching
        self._journal = journal
        self._has_copy = has_copy
        self._has_looked = False
        self._has_answered = False
        self._told: set[type[Exception]] = set()

    async def read(self, there: Ask[T], here: Ask[T]) -> T:
        """What is read here is marked as what was last seen.

        One answer to the outside is of one piece: what begins here goes on here.
        """
        if not self._has_looked:
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
        """Both are told whether it may have been done already, by an attempt that got no answer.

        What is done here is done while nobody replays it or changes the copy otherwise.
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
                    # It may be made still: what comes next must not overtake it. Nobody waits for
                    # as long a second time.
                    tries, may_be_done = MAX_TRIES, True
                    self.reaching.catch_up(error.message)
                except StoreTooNew:
                    if not may_be_done:
                        raise
                    tries = MAX_TRIES  # kept: a newer program settles whether it was done
                except Refused as error:
                    await self._handle_refusal(error)
                continue
            if not may_be_done:
                self.reaching.expect_supported()
            await self.reaching.wait_to_add()
            async with self._journal.lock_writes():
                # What waited may have been brought over just now, and order must be kept.
                if tries == MAX_TRIES or not self.reaching.is_connected:
                    done = await here(may_be_done)
                    self.check_journal()
                    return done

    async def run_unjournaled(self, there: Ask[T], here: Ask[T]) -> T:
        """For what is no memory: while the database is away it stays here, and nobody is told."""
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
        """For what cannot wait, and does no harm when it is done twice: now, or it is refused.

        It is told whether it may have been done already, by an attempt that got no answer.
        """
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
        outcome = "Whether it was done is not known." if may_be_done else "Nothing was done."
        raise StoreUnreachable(f"{sentence} {outcome} {self.reaching.reason}", hint="Try again when it is back.")

    async def journal_act(
        self, act: Act, here: Ask[T], *, local_seq: int | None = None, instead: Callable[[], T] | None = None
    ) -> T:
        """On the disk first; what does not fit here waits for nothing. Only within a write.

        Where the copy cannot be written at all it waits all the same, and `instead` is what was
        done.
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
        """Takes out of what waits or is set aside what was removed for good; whether all is."""
        try:
            return (await self._journal.forget(store, refs, belongings=belongings)).complete
        except EverkeptError as error:
            log.warning("what was removed for good may still stand in the journal: %s", error)
            return False

    def check_journal(self) -> None:
        """Whether something waits, whoever left it: then that comes first."""
        self._has_looked = True
        if self.reaching.is_connected and self._journal.count_writes().waiting:
            self.reaching.catch_up(REPLAY_REASON)

    async def _ask_primary(self, there: Ask[T]) -> T:
        """A host that takes calls and says nothing is not waited for where there is a copy."""
        if self._has_answered:
            return await self._track_version(there())
        asking = asyncio.ensure_future(self._track_version(there()))
        pausing = asyncio.ensure_future(self.reaching.pause(FIRST_READ_SECONDS))
        try:
            await asyncio.wait([asking, pausing], return_when=asyncio.FIRST_COMPLETED)
            if not asking.done() and await self._has_copy():
                raise StoreUnreachable("It has given no answer yet.")
            answer = await asking
        finally:
            for task in (asking, pausing):
                task.cancel()
            await asyncio.gather(asking, pausing, return_exceptions=True)
        self._has_answered = True
        return answer

    async def _track_version(self, asked: Awaitable[T]) -> T:
        """Whether this program is too old for it is remembered beyond its being there."""
        try:
            answer = await asked
        except StoreTooNew as error:
            self.reaching.note_too_new(error)
            raise
        self.reaching.note_answer()
        return answer

    async def _handle_refusal(self, error: Refused) -> None:
        """Raises it unless nothing may be asked at all, and there is something to answer with."""
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
            log.warning("The copy on this machine cannot be written; writes wait on: %s", error)

    def lock_replica(self) -> AbstractAsyncContextManager[None]:
        """While nobody else changes the copy, whatever waits."""
        return self._journal.lock_writes()

    @asynccontextmanager
    async def lock_idle_replica(self) -> AsyncGenerator[None, None]:
        """While nobody else changes the copy, and nothing waits. Raises Disturbed."""
        async with self._journal.lock_writes():
            if not self.reaching.is_connected or self._journal.count_writes().waiting:
                raise ReplicaBusy
            yield
