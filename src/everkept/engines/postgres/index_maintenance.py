"""Background work: indexes and statistics of large stores, and rows of deleted projects."""

import asyncio
import logging
from typing import NamedTuple

from everkept.engines.postgres import project_lifecycle
from everkept.engines.postgres.connection import Connection
from everkept.engines.postgres.counts import gather, is_stale
from everkept.engines.postgres.database import Database
from everkept.engines.postgres.failures import Pooled
from everkept.engines.postgres.indexes import (
    MANY,
    IndexedVectors,
    build_trigram_index,
    build_vector_index,
    is_trigram_index_wanted,
    orphans,
    remove_orphans,
    unindexed,
)
from everkept.engines.postgres.statements import Cursor, cursor_on
from everkept.errors import EverkeptError

AGAIN = 5.0  # seconds after which is looked whether another has removed what it was removing

log = logging.getLogger(__name__)


class Remover:
    """One for a library. Nothing of it is begun before somebody asks for it."""

    def __init__(self, database: Database, *, again: float = AGAIN) -> None:
        self._database = database
        self._again = again
        self._is_wanted = False
        self._removing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Something may be left. Returns at once."""
        self._is_wanted = True
        if self._removing is None or self._removing.done():
            self._removing = asyncio.create_task(self._remove())

    async def removed(self) -> None:
        """Waits until nothing is left but what another removes; who stops waiting ends nothing."""
        self.look()
        while self._removing is not None and not self._removing.done():
            await asyncio.wait([self._removing])

    async def close(self) -> None:
        """What is half done is begun anew by whoever looks next."""
        self._stop_timer()
        if self._removing is not None:
            self._removing.cancel()
            await asyncio.wait([self._removing])
            self._stop_timer()

    async def _remove(self) -> None:
        while self._is_wanted:
            self._is_wanted = False
            try:
                is_left = await self._database.read(_is_something_left)
                if is_left and await self._database.apart(_remove):
                    self._look_later()
            except Pooled:
                return  # the database has said so, once
            except (EverkeptError, RuntimeError) as error:  # the project is gone all the same
                log.warning("What is left of deleted projects is not removed: %s", error)

    def _look_later(self) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(self._again, self.look)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _is_something_left(cursor: Cursor) -> bool:
    return project_lifecycle.are_left(cursor) or bool(orphans(cursor))


def _remove(connection: Connection) -> bool:
    """Whether there is some that another removes just now."""
    project_lifecycle.remove(connection)
    remove_orphans(connection)
    return project_lifecycle.are_left(cursor_on(connection))


EVERY = 1_000  # vectors that came, after which a store is looked at again
CALM = 5.0  # seconds in which fewer come: what is loaded at once gets its index when it is there
PATIENCE = 1_800.0  # seconds after which it is looked at nevertheless
LATER = 8  # times as many after a failure, and again after each that follows it
MOST_FAILURES = 4  # that are told apart


class IndexKeeper:
    """One for all stores of a library: they get their indexes one after the other."""

    def __init__(
        self,
        database: Database,
        *,
        many: int = MANY,
        every: int = EVERY,
        patience: float = PATIENCE,
        calm: float = CALM,
    ) -> None:
        self._database = database
        self._remover = Remover(database)
        self._many = many
        self._every = every
        self._patience = patience
        self._calm = calm
        self._came: dict[int, int] = {}  # vectors of each store since it was looked at
        self._grew_at: dict[int, float] = {}  # when so many had come last
        self._fast_since: dict[int, float] = {}
        self._put_off: dict[int, asyncio.TimerHandle] = {}
        self._failures: dict[int, int] = {}  # of each store since it last went well
        self._waiting: dict[int, None] = {}
        self._keeping: asyncio.Task[None] | None = None

    def note(self, store: int, vectors: int) -> None:
        """So many have come there. Returns at once."""
        enough = self._every * int(LATER ** self._failures.get(store, 0))
        came = self._came.get(store, enough) + vectors  # others may have stored many before
        self._came[store] = came
        if vectors and came >= enough:
            self._came[store] = 0
            self._look_when_calm(store)

    def note_gone(self, store: int) -> None:
        """It is no more. Returns at once."""
        for kept in (self._came, self._failures, self._grew_at, self._fast_since):
            kept.pop(store, None)
        self._look_at_all_of(store)

    def note_news(self) -> None:
        """Others have changed what belongs to no store, or may have. Returns at once."""
        self._remover.look()

    def note_doubling(self, store: int) -> None:
        """It has twice as much as when this was said before. Returns at once.

        An index over its vectors that was put off stays so.
        """
        self._look_soon(store)

    async def removed(self) -> None:
        """Waits until nothing is left of stores that are no more, but what another removes."""
        await self._remover.removed()

    async def settled(self) -> None:
        """Waits until nothing is left to do; what was put off is done now."""
        for store in list(self._put_off):
            self._look_at_all_of(store)
        while self._keeping is not None and not self._keeping.done():
            await asyncio.wait([self._keeping])

    async def close(self) -> None:
        """What is half made is made anew by whoever looks next."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        await self._remover.close()
        for timer in self._put_off.values():
            timer.cancel()
        for kept in (self._put_off, self._waiting, self._came, self._grew_at, self._fast_since):
            kept.clear()

    def _look_when_calm(self, store: int) -> None:
        """An index over what is there already takes a part of the time that it takes to insert it
        vector by vector, and whoever loads them need not wait."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        grew_at = self._grew_at.get(store, -self._calm)
        self._grew_at[store] = now
        if now - grew_at >= self._calm:
            self._fast_since.pop(store, None)
        elif now - self._fast_since.setdefault(store, grew_at) < self._patience:
            self._stop_timer(store)
            self._put_off[store] = loop.call_later(self._calm, self._look_at_all_of, store)
            return
        self._look_at_all_of(store)

    def _look_at_all_of(self, store: int) -> None:
        self._stop_timer(store)
        self._look_soon(store)

    def _stop_timer(self, store: int) -> None:
        if (timer := self._put_off.pop(store, None)) is not None:
            timer.cancel()

    def _look_soon(self, store: int) -> None:
        self._waiting[store] = None
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        while self._waiting:
            store = next(iter(self._waiting))
            del self._waiting[store]
            try:
                await self._look_at(store)
                self._failures.pop(store, None)
            except Pooled:
                self._waiting.clear()  # the database has said so, once
            except (EverkeptError, RuntimeError) as error:  # nobody waits who could be told
                # Without them answers take longer, and are as right.
                failures = self._failures.get(store, 0) + 1
                self._failures[store] = min(failures, MOST_FAILURES)
                log.warning("The indexes of store %d are not kept: %s", store, error)

    async def _look_at(self, store: int) -> None:
        await self._remover.removed()  # nothing is gathered of what is to go
        wanted = await self._database.read(lambda cursor: _wanted(cursor, store, self._many))
        if store in self._put_off:
            wanted = wanted._replace(vectors=[])
        if any(wanted):
            await self._database.apart(lambda connection: _make(connection, wanted))


class _Wanted(NamedTuple):
    """What is to be made."""

    statistics: bool
    vectors: list[IndexedVectors]
    trigrams: bool


def _wanted(cursor: Cursor, store: int, many: int) -> _Wanted:
    return _Wanted(
        is_stale(cursor),
        unindexed(cursor, store, many),
        is_trigram_index_wanted(cursor),
    )


def _make(connection: Connection, wanted: _Wanted) -> None:
    """What is quick first."""
    if wanted.statistics:
        gather(connection)
    for vectors in wanted.vectors:
        build_vector_index(connection, vectors)
    if wanted.trigrams:
        build_trigram_index(connection)
