"""A lock among all processes that share a folder; it goes with the process that holds it."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import cast

import apsw

from everkept.core.disk import make_folder, usable
from everkept.engines.sqlite.connections import BUSY_DEADLINE, BusyHandler, translated
from everkept.engines.sqlite.sql import Connection
from everkept.errors import StoreBusy


class Lock:
    """Held as SQLite's own lock on an empty file: every system lets go of it after a crash.

    Nothing but SQLite may open the file: to close it anywhere in a process lets go of the lock.
    """

    def __init__(self, path: Path, title: str, patience: float = BUSY_DEADLINE) -> None:
        self._path = path
        self._title = title
        self._patience = patience
        self._turn = asyncio.Lock()

    @contextmanager
    def held(self) -> Generator[None, None, None]:
        """Waits in the thread that asks. Raises StoreBusy."""
        connection = self._take(BusyHandler(self._patience))
        try:
            yield
        finally:
            connection.close()

    @asynccontextmanager
    async def exclusive(self) -> AsyncGenerator[None, None]:
        """Raises StoreBusy when nobody else lets go of it in time."""
        async with self._own_turn():
            connection = await self._taken()
            try:
                yield
            finally:
                connection.close()

    @asynccontextmanager
    async def _own_turn(self) -> AsyncGenerator[None, None]:
        """Among the tasks of this process: only one of them waits in a thread."""
        try:
            async with asyncio.timeout(self._patience):
                await self._turn.acquire()
        except TimeoutError as error:
            raise StoreBusy(
                f"{self._title} is under way for a long time.",
                hint="Try again.",
                path=str(self._path),
            ) from error
        try:
            yield
        finally:
            self._turn.release()

    async def _taken(self) -> Connection:
        busy = BusyHandler(self._patience)
        taking = asyncio.ensure_future(asyncio.to_thread(self._take, busy))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            busy.closing = True
            taking.add_done_callback(_let_go)
            raise

    def _take(self, busy: BusyHandler) -> Connection:
        with usable(self._path):
            make_folder(self._path.parent)
            is_new = not self._path.exists()
        with translated(self._path, title=self._title):
            connection = cast(Connection, apsw.Connection(str(self._path)))
            try:
                connection.set_busy_handler(busy)
                connection.execute("BEGIN EXCLUSIVE")
                if is_new:
                    self._path.chmod(0o600)
            except BaseException:
                connection.close()
                raise
            return connection


def _let_go(taking: "asyncio.Future[Connection]") -> None:
    if not taking.cancelled() and taking.exception() is None:
        taking.result().close()
