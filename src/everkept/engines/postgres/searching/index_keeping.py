"""Sees to it, in the background, that large stores have what makes their answers quick, and that
nothing stays of those that were deleted."""

import asyncio
import logging
from typing import NamedTuple

from everkept.engines.postgres.connecting.database import Cursor, Database
from everkept.engines.postgres.connecting.dialing import Connection
from everkept.engines.postgres.connecting.failures import Pooled
from everkept.engines.postgres.records.statistics import gather, is_stale
from everkept.engines.postgres.searching import trigrams
from everkept.engines.postgres.searching.removing import Remover
from everkept.engines.postgres.searching.vector_index import (
    MANY,
    IndexedVectors,
    build,
    unindexed,
)
from everkept.errors import EverkeptError

EVERY = 1_000  # vectors that came, after which a store is looked at again
CALM = 5.0  # seconds in which fewer come: what is loaded at once gets its index when it is there
PATIENCE = 1_800.0  # seconds after which it is looked at nevertheless
LATER = 8  # times as many after a failure, and again after each that follows it
MOST_FAILURES = 4  # that are told apart

log = logging.getLogger(__name__)


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
        trigrams.is_wanted(cursor),
    )


def _make(connection: Connection, wanted: _Wanted) -> None:
    """What is quick first."""
    if wanted.statistics:
        gather(connection)
    for vectors in wanted.vectors:
        build(connection, vectors)
    if wanted.trigrams:
        trigrams.build(connection)
