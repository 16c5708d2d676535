"""Doing what waits in the journal, in order and each act once, when the database is back."""

import logging
import time
from collections.abc import Callable

from everkept.core.accounts import Account
from everkept.core.ports import Library
from everkept.core.rights import RightsOf, of_nobody
from everkept.core.text import clipped
from everkept.engines.standby.journal.acts import Act, Commit
from everkept.engines.standby.journal.journal import Entry, Journal
from everkept.engines.standby.replay.doing import Doing
from everkept.engines.standby.replay.permitting import NotPermitted
from everkept.errors import (
    EverkeptError,
    NotFound,
    QueryTimeout,
    ReadOnly,
    StorageFull,
    StoreAway,
    StoreBusy,
)
from everkept.values import Value, replace

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
