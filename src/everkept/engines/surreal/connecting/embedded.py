"""SurrealDB inside this process: in memory, or in a folder that is ours alone while it is open.

A commit is on disk once it was told only where SURREAL_SYNC_DATA is in the environment before
the package surrealdb is imported; the settings see to that.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everkept.engines.surreal.connecting.attempts import Attempt, Work
from everkept.engines.surreal.connecting.connection import LONGER, Values, quoted, within, writes
from everkept.engines.surreal.connecting.failures import (
    DiskFailed,
    failure,
    no_turn,
    outcomes,
    too_slow,
    unknown,
)
from everkept.engines.surreal.connecting.folders import Folder
from everkept.errors import StorageFull, StoreAway, StoreDamaged

if TYPE_CHECKING:
    from surrealdb._surrealdb_ext import AsyncEmbeddedDB

TIME_LIMIT = 10.0  # seconds for the statements of one text
LAST_WORK = 0.5  # seconds that work under way has when the connection closes
LETTING_GO = 0.05  # seconds


class EmbeddedConnection:
    """A Connection to an engine of our own; `place` is the folder of its files."""

    def __init__(
        self, place: Path | None, namespace: str, *, time_limit: float = TIME_LIMIT
    ) -> None:
        quoted(namespace)
        self._folder = None if place is None else Folder(place)
        self._namespace = namespace
        self._time_limit = time_limit
        self._engine: AsyncEmbeddedDB | None = None
        self._opening = Attempt(self._started)
        self._working: set[asyncio.Future[Mapping[str, Any]]] = set()
        self._writing = asyncio.Lock()
        self._number = 0
        self._openings = 0
        self._is_broken = False
        self._is_closed = False
        self._is_modern: bool | None = None

    @property
    def is_modern(self) -> bool:
        if self._is_modern is None:
            raise RuntimeError("the connection was not opened yet")
        return self._is_modern

    @property
    def version(self) -> str:
        return ""  # the engine tells that of the package around it

    @property
    def openings(self) -> int:
        return self._openings

    async def open(self) -> None:
        await self._opened()

    async def run(self, database: str, statements: str, values: Values | None = None) -> list[Any]:
        text = within(self._namespace, database, statements)
        engine = await self._opened()
        try:
            answer = await self._asked(engine, [text, dict(values or {})], writes(statements))
            return outcomes(answer)[1:]
        except (StorageFull, DiskFailed) as error:
            # The engine refuses every write from then on; opened anew, it repairs its files.
            self._is_broken = True
            if self._folder is None or isinstance(error, DiskFailed):
                raise
            raise self._folder.full() from error

    async def close(self) -> None:
        """Work under way has a moment to end, then it is given up."""
        self._is_closed = True
        await self._opening.settle(LAST_WORK)
        if self._working:
            await asyncio.wait(self._working, timeout=LAST_WORK)
        for work in self._working:
            work.cancel()
        was_open = self._engine is not None
        await self._put_down()
        if was_open:
            # A thread of the engine that has answered lets go of what it answered with a moment
            # later; where the program ends before that, it is aborted.
            await asyncio.sleep(LETTING_GO)

    async def _opened(self) -> "AsyncEmbeddedDB":
        if self._is_closed:
            raise _closed()
        if self._engine is None or self._is_broken:
            return await self._opening.join()
        return self._engine

    async def _started(self) -> "AsyncEmbeddedDB":
        # It takes half a second: others are served meanwhile.
        await asyncio.to_thread(import_module, "everkept.engines.surreal.connecting.wire")
        await self._put_down()
        if self._folder is not None:
            self._folder.take()
        try:
            self._engine = await self._connected()
        except BaseException:
            if self._folder is not None:
                self._folder.release()
            raise
        self._is_broken = False
        self._openings += 1
        return self._engine

    async def _put_down(self) -> None:
        """Nothing may be at work in the folder once another may take it."""
        if self._working:
            await asyncio.wait(self._working)
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.close()
        if self._folder is not None:
            self._folder.release()

    async def _connected(self) -> "AsyncEmbeddedDB":
        from surrealdb._surrealdb_ext import AsyncEmbeddedDB

        from everkept.engines.surreal.connecting import wire

        url = "mem://" if self._folder is None else self._folder.url
        try:
            engine = await asyncio.to_thread(AsyncEmbeddedDB, url)  # it reads its files
            await engine.connect()
        except RuntimeError as error:
            if self._folder is None:
                raise
            raise self._folder.why_not(str(error)) from error
        self._is_modern = wire.is_modern(await self._answered(engine, [wire.PROBE, {}]))
        return engine

    async def _asked(
        self, engine: "AsyncEmbeddedDB", query: Sequence[Any], in_turn: bool
    ) -> Mapping[str, Any]:
        """What was begun goes on without its asker: nothing stops the engine in the middle."""
        limit = self._time_limit * (LONGER if in_turn else 1)

        async def ask(work: Work[Mapping[str, Any]]) -> Mapping[str, Any]:
            # Of two that write in the same moment the engine may lose one, and say nothing.
            async with self._writing if in_turn else nullcontext():
                work.has_begun = True
                return await self._answered(engine, query)

        work = Work(ask)
        self._working.add(work.task)
        work.task.add_done_callback(self._working.discard)
        if not await work.ended(limit):
            if not work.has_begun:
                raise no_turn(limit)
            if not in_turn:
                raise too_slow(limit)
            if not await work.ended(self._time_limit):
                raise unknown(limit + self._time_limit)
        if work.task.cancelled():
            raise _closed()
        return work.task.result()

    async def _answered(self, engine: "AsyncEmbeddedDB", query: Sequence[Any]) -> Mapping[str, Any]:
        from everkept.engines.surreal.connecting import wire

        self._number += 1
        request = wire.request(self._number, "query", query)
        try:
            return wire.answered(await engine.execute(request))
        except (RuntimeError, ValueError) as error:  # where a server would answer with it
            raise failure(str(error)) from None
        except wire.Unreadable as error:
            raise StoreDamaged("SurrealDB gave what cannot be read.") from error


def _closed() -> StoreAway:
    return StoreAway("SurrealDB was closed.")
