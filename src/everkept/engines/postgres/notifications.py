"""Notifications that a store has changed: sent soon after a commit, heard at once."""

import asyncio
import logging
import random
import selectors
import threading
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any

import psycopg

from everkept.engines.postgres.connection import Connection
from everkept.engines.postgres.statements import Cursor
from everkept.engines.postgres.transactions import cut
from everkept.errors import EverkeptError

CHANNEL = "everkept"
PAUSE = 0.2  # seconds in which changes are gathered, however many there are

_TELL = (
    f"SELECT pg_notify('{CHANNEL}', current_schema() || ':' || coalesce(store::text, '')) "
    "FROM unnest(%s::integer[]) AS store"
)


def note_change(cursor: Cursor, store: int | None) -> None:
    """Tells the number of a store, once the transaction is committed; None is for the library."""
    cursor.news.add(store)


class Teller:
    """Tells at once what comes after a pause, and the rest together.

    It only wakes: what is not told is found by whoever looks by himself.
    """

    def __init__(self, read: Callable[[Callable[[Cursor], Any]], Awaitable[Any]]) -> None:
        self._read = read
        self._news: set[int | None] = set()
        self._telling: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def note(self, news: Collection[int | None]) -> None:
        """Returns at once. It is told in the loop that runs now."""
        if not news:
            return
        self._news.update(news)
        if self._underway() is None:
            self._hurry = asyncio.Event()
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def finish(self, limit: float) -> None:
        """Tells what is left, if that takes no longer."""
        if (telling := self._underway()) is not None:
            self._hurry.set()
            await asyncio.wait({telling}, timeout=limit)

    def drop(self) -> None:
        """Nothing is told any more of what was noted so far."""
        self._news.clear()
        if (telling := self._underway()) is not None:
            telling.cancel()
        self._telling = None

    def _underway(self) -> asyncio.Task[None] | None:
        telling = self._telling
        is_ours = telling is not None and telling.get_loop() is asyncio.get_running_loop()
        return telling if telling is not None and is_ours and not telling.done() else None

    async def _tell(self) -> None:
        while self._news:
            news, self._news = self._news, set()
            with suppress(EverkeptError):
                await self._read(lambda cursor, news=news: cursor.ask_last(_TELL, [list(news)]))
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE):
                    await self._hurry.wait()


FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds until it is opened again

Hear = Callable[[int | None], None]

log = logging.getLogger(__name__)


class Listener:
    """A connection and a thread of its own, opened again when it was lost.

    Behind a pooler, which lends connections for a transaction at a time, nothing is ever heard.
    """

    def __init__(
        self,
        dial: Callable[[], Connection],
        schema: str,
        hear: Hear,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._dial = dial
        self._schema = schema
        self._hear = hear
        self._loop = loop
        self._connection: Connection | None = None
        self._is_over = threading.Event()
        self._lock = threading.Lock()  # a connection that is being closed must not be cut
        threading.Thread(target=self._run, name=f"listen {schema}", daemon=True).start()

    def end(self) -> None:
        """Nothing more is told, said in the loop; the connection is still to be closed."""
        self._is_over.set()

    def close(self) -> None:
        self.end()
        with self._lock:
            if self._connection is not None:
                cut(self._connection)

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while not self._is_over.is_set():
            try:
                self._open()
                pause = FIRST_PAUSE
                self._listen()
            except (psycopg.Error, OSError, EverkeptError) as error:
                log.debug("nothing is heard from PostgreSQL: %r", error)
            finally:
                self._drop()
            self._is_over.wait(random.uniform(pause / 2, pause))
            pause = min(LONGEST_PAUSE, pause * 2)

    def _open(self) -> None:
        connection = self._dial()
        with self._lock:
            self._connection = connection

    def _drop(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _listen(self) -> None:
        connection = self._connection
        assert connection is not None
        connection.execute(f"LISTEN {CHANNEL}".encode())
        self._tell(None)  # it may have come while nobody listened
        with selectors.DefaultSelector() as selector:
            selector.register(connection.fileno(), selectors.EVENT_READ)
            while not self._is_over.is_set():
                selector.select()
                connection.pgconn.consume_input()
                while (heard := connection.pgconn.notifies()) is not None:
                    self._heard(heard.extra.decode("utf-8", "replace"))

    def _heard(self, text: str) -> None:
        schema, _, number = text.rpartition(":")
        if schema == self._schema:
            self._tell(int(number) if number.isdecimal() else None)

    def _tell(self, store: int | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._pass_on, store)
        except RuntimeError:  # the loop was closed before the database
            self._is_over.set()

    def _pass_on(self, store: int | None) -> None:
        if not self._is_over.is_set():
            self._hear(store)
