"""A way to PostgreSQL on which round trips are counted."""

import asyncio
from collections import Counter
from contextvars import ContextVar

from postgres_server import Proxy, Server
from proxies import Direction

COMMITTED_AND_TOLD = 2  # transactions: whoever follows is woken behind the commit

_IS_IDLE = b"Z\0\0\0\5I"  # what the server says when it waits, and no transaction is open

_IS_READY = b"Z\0\0\0\5"  # the same, also within a transaction

_connection: ContextVar[object] = ContextVar("connection")


class Ways(dict[str, int]):
    """Bytes in each direction, and how often the server of one connection had answered all."""

    def __init__(self) -> None:
        super().__init__(up=0, down=0)
        self._answers: Counter[object] = Counter()
        self._tails: dict[object, bytes] = {}

    @property
    def trips(self) -> int:
        """Of the connection that had most: whoever tells others by another has fewer."""
        return max(self._answers.values(), default=0)

    def take(self, data: bytes) -> None:
        """Count in what the server said: a large batch is answered while it is still being sent."""
        connection = _connection.get()
        said = self._tails.get(connection, b"") + data
        self._answers[connection] += said.count(_IS_READY)
        self._tails[connection] = said[1 - len(_IS_READY) :]  # the rest of it may follow


class Way(Proxy):
    """Knows its connections apart, and counts the transactions that came to their end."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.transactions = 0
        self.passed = Ways()

    async def _is_let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        _connection.set(object())
        return await super()._is_let_in(reader, writer)

    def _altered(self, data: bytes, direction: Direction) -> bytes:
        if direction == "down":
            self.transactions += data.count(_IS_IDLE)
            self.passed.take(data)
        return data

    def count(self) -> Ways:
        """From now on, and from nothing."""
        self.transactions = 0
        self.passed = ways = Ways()
        return ways
