"""Stores of several processes on one SurrealDB server, and ways to it that are watched."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from everkept.engines.surreal.connection import AnswerTooLarge, Connection, Values, WriteContention
from everkept.engines.surreal.store import SurrealStore
from records import DAY_ONE
from surreal_connections import Passing

DATABASE = "project"


def store_over(connection: Connection, name: str = "shop") -> SurrealStore:
    return SurrealStore(connection, DATABASE, lambda: DAY_ONE, name)


class WatchedConnection(Passing):
    """Counts the texts that go through it, and may do something before a transaction does."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.texts = 0
        self.disturb: Callable[[], Awaitable[object]] | None = None
        self.is_contended = False

    async def run(self, database: str, statements: str, values: Values | None = None) -> list[Any]:
        self.texts += 1
        if statements.startswith("BEGIN"):
            disturb, self.disturb = self.disturb, None
            if disturb is not None:
                await disturb()
            if self.is_contended:
                raise WriteContention("always")
        return await self._connection.run(database, statements, values)


class FailingConnection(WatchedConnection):
    """Fails at the next transaction: before the database had it, or, where it `arrives`, after."""

    def __init__(self, connection: Connection, error: Exception, *, arrives: bool) -> None:
        super().__init__(connection)
        self._error = error
        self._arrives = arrives
        self.error_then: Exception | None = None  # of every text behind it
        self.has_failed = False

    async def run(self, database: str, statements: str, values: Values | None = None) -> list[Any]:
        if self.has_failed and self.error_then is not None:
            raise self.error_then
        if self.has_failed or not statements.startswith("BEGIN"):
            return await super().run(database, statements, values)
        self.has_failed = True
        if self._arrives:
            await super().run(database, statements, values)
        raise self._error


class SlowConnection(WatchedConnection):
    """Whose next transactions last so long."""

    pause = "0s"

    async def run(self, database: str, statements: str, values: Values | None = None) -> list[Any]:
        slow = statements.replace("; COMMIT", f"; SLEEP {self.pause}; COMMIT")
        return await super().run(database, slow, values)


class NarrowConnection(WatchedConnection):
    """Gives no more rows than so many in one answer."""

    widest = 1_000_000

    async def run(self, database: str, statements: str, values: Values | None = None) -> list[Any]:
        answer = await super().run(database, statements, values)
        if statements.startswith("SELECT") and "SELECT VALUE id" not in statements:
            for rows in answer:
                if isinstance(rows, list) and len(cast(list[Any], rows)) > self.widest:
                    raise AnswerTooLarge("SurrealDB answered with too much.")
        return answer
