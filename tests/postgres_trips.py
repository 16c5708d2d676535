"""A way to PostgreSQL on which round trips are counted."""

import asyncio
from collections import Counter
from contextvars import ContextVar

from postgresing import Proxy, Server
from proxying import Direction

_IS_IDLE = b"Z\0\0\0\5I"  # what the server says when it waits, and no transaction is open

_connection: ContextVar[object] = ContextVar("connection")


class Ways(dict[str, int]):
    """Bytes in each direction, and how often that turned from there to here on one connection."""

    def __init__(self) -> None:
        super().__init__(up=0, down=0)
        self._turns: Counter[object] = Counter()
        self._last: dict[object, str] = {}

    @property
    def trips(self) -> int:
        """Of the connection that had most: whoever tells others by another has fewer."""
        return max(self._turns.values(), default=0)

    def __setitem__(self, direction: str, count: int) -> None:
        connection = _connection.get()
        self._turns[connection] += (self._last.get(connection), direction) == ("up", "down")
        self._last[connection] = direction
        super().__setitem__(direction, count)


class Way(Proxy):
    """Knows its connections apart, and counts the transactions that came to their end."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.transactions = 0

    async def _is_let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        _connection.set(object())
        return await super()._is_let_in(reader, writer)

    def _altered(self, data: bytes, direction: Direction) -> bytes:
        if direction == "down":
            self.transactions += data.count(_IS_IDLE)
        return data

    def count(self) -> Ways:
        """From now on, and from nothing."""
        self.transactions = 0
        self.passed = ways = Ways()
        return ways
