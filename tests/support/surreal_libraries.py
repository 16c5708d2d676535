"""Libraries of several processes on one SurrealDB server, and a way to it that is lost."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from everkept.core.times import Clock, read_clock
from everkept.engines.surreal.connection import Connection, Values
from everkept.engines.surreal.library import SurrealLibrary
from everkept.errors import StoreUnreachable
from surreal_connections import Passing
from surreal_server import fresh_namespace, shared

DATABASE = "default"


def library_over(connection: Connection, *, clock: Clock = read_clock, database: str = DATABASE) -> SurrealLibrary:
    return SurrealLibrary(connection, database=database, mode="local-server", place="ws://127.0.0.1", clock=clock)


class Shelf:
    """One namespace of a server, and whoever uses it."""

    def __init__(self, core: int) -> None:
        self._server = shared(core)
        self._namespace = fresh_namespace()
        self._opened: list[Connection] = []

    def connection(self) -> Connection:
        self._opened.append(self._server.connection(self._namespace))
        return self._opened[-1]

    def library(self, **options: Any) -> SurrealLibrary:
        """One more, as another process has it."""
        return library_over(self.connection(), **options)

    async def databases(self) -> set[str]:
        [found] = await self.connection().run(DATABASE, "INFO FOR NS")
        return set(found["databases"])

    async def close(self) -> None:
        for connection in self._opened:
            await connection.close()


@asynccontextmanager
async def shelf_of(core: int) -> AsyncGenerator[Shelf, None]:
    shelf = Shelf(core)
    try:
        yield shelf
    finally:
        await shelf.close()


class LosingConnection(Passing):
    """Is lost at a text and from then on: before the server had it, or before its answer came."""

    def __init__(self, connection: Connection, after: int, *, arrives: bool) -> None:
        super().__init__(connection)
        self._left = after
        self._arrives = arrives
        self.was_lost = False

    async def run(self, database: str, statements: str, values: Values | None = None) -> list[Any]:
        if self._left > 0:
            self._left -= 1
            return await self._connection.run(database, statements, values)
        if self._arrives and not self.was_lost:
            await self._connection.run(database, statements, values)
        self.was_lost = True
        raise StoreUnreachable("The connection was lost.")
