"""What is found out, or known already, when an act is done."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from everkept.core.accounts import acting
from everkept.core.conditions import note_kept_here, note_replica, reads_replica
from everkept.core.ports import Library
from everkept.core.projects import Project, Status
from everkept.core.records import Ref
from everkept.engines.standby.availability import Reaching
from everkept.engines.standby.journal import Journal
from everkept.engines.standby.journal_acts import Act
from everkept.errors import (
    EverkeptError,
    QueryTimeout,
    ReadOnly,
    Refused,
    StoreAway,
    StoreTooNew,
    Unavailable,
)


async def expected(library: Library, name: str, status: Status, error: EverkeptError) -> Project:
    """The project, where an attempt without an answer has given it this status; else the error."""
    project = await library.project(name)
    if project.status != status:
        raise error
    return project


def always(act: Act) -> Callable[[], Awaitable[Act]]:
    async def given() -> Act:
        return act

    return given


T = TypeVar("T")
Ask = Callable[[], Awaitable[T]]

BROKEN = (Unavailable, ReadOnly)  # of the copy: whatever is to be done to it
FIRST = 1.4  # seconds that a question waits which is the first of all
TRIES = 3  # of a call that meets a database which goes as soon as it has come
WAITING = "Writes that were kept here are being brought over."

log = logging.getLogger(__name__)


class Disturbed(Exception):
    """The copy may not be changed now: something waits, or somebody else has changed it."""


class Either:
    """The one place that decides which of both answers a call."""

    def __init__(
        self, reaching: Reaching, journal: Journal, has_copy: Callable[[], Awaitable[bool]]
    ) -> None:
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
            self.look()
        for _ in range(TRIES):
            if reads_replica() or not await self.reaching.is_there_now():
                break
            try:
                return await self._answer_of(there)
            except StoreAway as error:
                self.reaching.lost(error)
            except Refused as error:
                await self._is_shut_out(error)
        self.reaching.expect_fitting()
        note_replica(self.reaching.absence)
        await self._has_copy()
        return await here()

    async def write(
        self, there: Callable[[bool], Awaitable[T]], here: Callable[[bool], Awaitable[T]]
    ) -> T:
        """Both are told whether it may have been done already, by an attempt that got no answer.

        What is done here is done while nobody replays it or changes the copy otherwise.
        """
        tries, may_be_done = 0, False
        while True:
            self.look()
            if tries < TRIES and await self.reaching.is_there():
                tries += 1
                try:
                    done = await self._fitting(there(may_be_done))
                    self._has_answered = True
                    return done
                except StoreAway as error:
                    may_be_done = True
                    self.reaching.lost(error)
                except QueryTimeout as error:
                    # It may be made still: what comes next must not overtake it. Nobody waits for
                    # as long a second time.
                    tries, may_be_done = TRIES, True
                    self.reaching.catch_up(error.message)
                except StoreTooNew:
                    if not may_be_done:
                        raise
                    tries = TRIES  # kept: a newer program settles whether it was done
                except Refused as error:
                    await self._is_shut_out(error)
                continue
            if not may_be_done:
                self.reaching.expect_fitting()
            await self.reaching.make_way()
            async with self._journal.writing():
                # What waited may have been brought over just now, and order must be kept.
                if tries == TRIES or not self.reaching.is_connected:
                    done = await here(may_be_done)
                    self.look()
                    return done

    async def aside(self, there: Ask[T], here: Ask[T]) -> T:
        """For what is no memory: while the database is away it stays here, and nobody is told."""
        if await self.reaching.is_there_now():
            try:
                return await self._fitting(there())
            except StoreAway as error:
                self.reaching.lost(error)
            except Refused as error:
                await self._is_shut_out(error)
        self.reaching.expect_fitting()
        return await here()

    async def promised(self, there: Callable[[bool], Awaitable[T]], sentence: str) -> T:
        """For what cannot wait, and does no harm when it is done twice: now, or it is refused.

        It is told whether it may have been done already, by an attempt that got no answer.
        """
        self.look()
        may_be_done = False
        for _ in range(TRIES):
            if not await self.reaching.is_there():
                break
            try:
                return await self._fitting(there(may_be_done))
            except StoreAway as error:
                self.reaching.lost(error)
                may_be_done = True
        self.reaching.expect_fitting()
        outcome = "Whether it was done is not known." if may_be_done else "Nothing was done."
        raise StoreAway(
            f"{sentence} {outcome} {self.reaching.reason}", hint="Try again when it is back."
        )

    async def kept(
        self,
        act: Act,
        here: Ask[T],
        *,
        local_seq: int | None = None,
        instead: Callable[[], T] | None = None,
    ) -> T:
        """On the disk first; what does not fit here waits for nothing. Only within a write.

        Where the copy cannot be written at all it waits all the same, and `instead` is what was
        done.
        """
        account = acting()
        whose = () if account is None else (account.name, account.id)
        entry = await self._journal.append(act, local_seq, *whose)
        try:
            done = await here()
        except BROKEN as error:
            if instead is None:
                await self._journal.remove(entry)
                raise
            self._tell_once(error)
            done = instead()
        except Exception:
            await self._journal.remove(entry)
            raise
        note_kept_here(self.reaching.absence)
        return done

    async def forget(self, store: str, refs: Sequence[Ref], *, belongings: bool) -> bool:
        """Takes out of what waits or is set aside what was removed for good; whether all is."""
        try:
            return (await self._journal.forget(store, refs, belongings=belongings)).complete
        except EverkeptError as error:
            log.warning("what was removed for good may still stand in the journal: %s", error)
            return False

    def look(self) -> None:
        """Whether something waits, whoever left it: then that comes first."""
        self._has_looked = True
        if self.reaching.is_connected and self._journal.counts().waiting:
            self.reaching.catch_up(WAITING)

    async def _answer_of(self, there: Ask[T]) -> T:
        """A host that takes calls and says nothing is not waited for where there is a copy."""
        if self._has_answered:
            return await self._fitting(there())
        asking = asyncio.ensure_future(self._fitting(there()))
        pausing = asyncio.ensure_future(self.reaching.pause(FIRST))
        try:
            await asyncio.wait([asking, pausing], return_when=asyncio.FIRST_COMPLETED)
            if not asking.done() and await self._has_copy():
                raise StoreAway("It has given no answer yet.")
            answer = await asking
        finally:
            for task in (asking, pausing):
                task.cancel()
            await asyncio.gather(asking, pausing, return_exceptions=True)
        self._has_answered = True
        return answer

    async def _fitting(self, asked: Awaitable[T]) -> T:
        """Whether this program is too old for it is remembered beyond its being there."""
        try:
            answer = await asked
        except StoreTooNew as error:
            self.reaching.outgrown(error)
            raise
        self.reaching.fitted()
        return answer

    async def _is_shut_out(self, error: Refused) -> None:
        """Raises it unless nothing may be asked at all, and there is something to answer with."""
        if type(error) is Refused:
            try:
                await self.reaching.ask()
            except (Refused, StoreAway) as reason:
                if await self._has_copy():
                    self.reaching.lost(StoreAway(reason.message))
                    return
        raise error

    def _tell_once(self, error: EverkeptError) -> None:
        if type(error) not in self._told:
            self._told.add(type(error))
            log.warning("The copy on this machine cannot be written; writes wait on: %s", error)

    def alone(self) -> AbstractAsyncContextManager[None]:
        """While nobody else changes the copy, whatever waits."""
        return self._journal.writing()

    @asynccontextmanager
    async def undisturbed(self) -> AsyncGenerator[None, None]:
        """While nobody else changes the copy, and nothing waits. Raises Disturbed."""
        async with self._journal.writing():
            if not self.reaching.is_connected or self._journal.counts().waiting:
                raise Disturbed
            yield
