"""Hearing at once that another program has changed a store."""

import asyncio
import logging
import random
import selectors
import threading
from collections.abc import Callable

import psycopg

from everkept.engines.postgres.connecting.dialing import Connection
from everkept.engines.postgres.connecting.lines import cut
from everkept.engines.postgres.connecting.news import CHANNEL
from everkept.errors import EverkeptError

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
