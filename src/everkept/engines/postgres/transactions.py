"""Transactions: how each one begins, ends and is stopped, and how other processes learn of its changes."""

import asyncio
import logging
import random
import selectors
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from everkept.engines.postgres.connection import Connection
from everkept.engines.postgres.schema import (
    Layout,
    build_path_version_query,
    build_version_error,
    check_version,
    compute_lock_number,
    parse_version,
)
from everkept.engines.postgres.statements import (
    Cursor,
    QueryResult,
    ResultCheck,
    Statement,
    StatementPipeline,
    Values,
    build_statement,
)
from everkept.errors import EverkeptError

CANCEL_SECONDS = 0.5  # for the server to accept a cancel request


class PooledConnection:
    """Connection that one thread uses at a time. It is not reused after `stop` or `disconnect`."""

    def __init__(self, connection: Connection, epoch: int) -> None:
        self.connection = connection
        self.epoch = epoch  # of its pool
        self.is_pooled = True  # until the session is known to be ours only
        self.wire = StatementPipeline(connection)
        self._is_spent = False
        self._used_at = time.monotonic()

    @property
    def is_usable(self) -> bool:
        return not self._is_spent and not self.connection.closed

    @property
    def idle_seconds(self) -> float:
        """Return the seconds since the last use."""
        return time.monotonic() - self._used_at

    def is_alive(self, limit: float) -> bool:
        """Return whether the server answers within `limit` seconds."""
        connection, deadline = self.connection.pgconn, time.monotonic() + limit
        try:
            connection.send_query(b"SELECT 1")
            with selectors.DefaultSelector() as selector:
                selector.register(connection.socket, selectors.EVENT_READ)
                while connection.is_busy():
                    if not selector.select(max(0, deadline - time.monotonic())):
                        return False
                    connection.consume_input()
            while connection.get_result() is not None:
                pass
        except (psycopg.Error, OSError):
            return False
        return True

    def stop(self) -> None:
        """Ask the server to cancel the running statement. The request may arrive late and hit a later statement."""
        self._is_spent = True  # so the connection has no later statement
        with suppress(psycopg.Error):
            self.connection.cancel_safe(timeout=CANCEL_SECONDS)

    def disconnect(self) -> None:
        """Shut down the socket, so that a waiting thread learns immediately that no answer will come."""
        self._is_spent = True
        shut_down_socket(self.connection)

    def claim_session(self, settings: str) -> None:
        """Set up a session that no one else uses, so that its settings and prepared statements persist."""
        self.connection.execute(settings.encode(), prepare=False)
        self.is_pooled = False
        self.wire = StatementPipeline(self.connection, remembers=True)

    def roll_back(self) -> None:
        """Undo everything that was not committed."""
        self._used_at = time.monotonic()
        self.wire.close()
        pgconn = self.connection.pgconn
        if pgconn.transaction_status in (TransactionStatus.INERROR, TransactionStatus.INTRANS):
            with suppress(psycopg.Error):
                self.connection.execute("ROLLBACK", prepare=False)
        self._is_spent |= (
            pgconn.transaction_status != TransactionStatus.IDLE or pgconn.pipeline_status != PipelineStatus.OFF
        )

    def close(self) -> None:
        self.connection.close()


def shut_down_socket(connection: Connection) -> None:
    """Shut the socket down without closing it: closing would free memory that a waiting thread still uses."""
    with suppress(OSError, psycopg.Error):
        number = connection.fileno()
        with socket.fromfd(number, socket.AF_INET, socket.SOCK_STREAM) as twin:
            twin.shutdown(socket.SHUT_RDWR)


class DatabaseCall:
    """State of one call, shared by its thread and its caller."""

    def __init__(self, *, alters: bool, limit: float) -> None:
        self.alters = alters
        self.limit = limit  # seconds
        self.why: EverkeptError | None = None  # set if the call was stopped
        self.news: set[int | None] = set()  # changed stores, known after the commit
        self._line: PooledConnection | None = None
        self._is_ready = False
        self._was_ready = False
        self._lock = threading.Lock()  # after `detach`, the connection may belong to another call

    @property
    def is_reached(self) -> bool:
        """Return whether the call has a connection. From then on, a silent server counts as unreachable."""
        return self._line is not None

    @property
    def is_ready(self) -> bool:
        """Return whether the tables are ready. A migration is not interrupted."""
        return self._is_ready

    @property
    def may_have_stored(self) -> bool:
        """Return whether a transaction of this call may have been committed."""
        return self.alters and self._was_ready

    def attach(self, line: PooledConnection, *, is_ready: bool) -> None:
        """Set the connection. Raise the reason if the call was already stopped."""
        with self._lock:
            self._line, self._is_ready = line, is_ready
            self._was_ready |= is_ready
            if self.why is not None:
                raise self.why

    def detach(self) -> None:
        with self._lock:
            self._line, self._is_ready = None, False

    def stop(self, why: EverkeptError) -> None:
        """End the call at its next step, and ask the server to cancel the current step."""
        with self._lock:
            self.why = self.why or why
            if self._line is not None and self._is_ready:
                self._line.stop()

    def disconnect(self, why: EverkeptError) -> None:
        """End the call now if it has a connection, otherwise as soon as it gets one."""
        with self._lock:
            self.why = why
            if self._line is not None:
                self._line.disconnect()


T = TypeVar("T")
Work = Callable[[Cursor], T]

_BEGIN_READ = Statement(b"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
_BEGIN_WRITE = Statement(b"BEGIN ISOLATION LEVEL READ COMMITTED")
_COMMIT = Statement(b"COMMIT")
_CONTINUED_MESSAGE = "a transaction continued after one of its statements had failed"
# A frozen program must not hold its locks forever.
_TIMEOUT_SETTINGS = "statement_timeout", "idle_in_transaction_session_timeout"


class TablesOutdated(Exception):
    """The tables are gone, or older than when the connection was opened."""


class SearchPathLost(Exception):
    """The session lost its search path, so a statement might reach another schema."""


class Transaction(Cursor):
    """Transaction that fails as a whole."""

    def __init__(self, wire: StatementPipeline) -> None:
        super().__init__(wire)
        self._has_failed = False
        self._is_finished = False
        wire.open()

    def _send(self, statement: Statement, check: ResultCheck | None = None) -> QueryResult:
        return self._wire.send(statement, self._receive, check)

    def _receive(self) -> None:
        try:
            self._exchange()
        except BaseException:
            self._has_failed = True
            raise

    def finish(self) -> None:
        """End the transaction. Raise RuntimeError if the work ignored a failure in it."""
        if self._has_failed:
            raise RuntimeError(_CONTINUED_MESSAGE)
        if not self._is_finished:
            self._is_finished = True
            self._end()

    def _end(self) -> None:
        raise NotImplementedError


class ReadTransaction(Transaction):
    """Query in one snapshot. With more than one statement, it is read-only.

    A query of one statement, sent with `ask_last`, takes one round trip. In our own session it needs no BEGIN, because
    statements that are sent together are one transaction.
    """

    def __init__(self, wire: StatementPipeline, settings: Statement | None, version: Statement, check: ResultCheck):
        """Prepare the transaction. `settings` apply to it only, and are None if the session has them."""
        super().__init__(wire)
        self._settings = settings
        self._version = version
        self._check = check
        self._is_begun = False
        self._needs_commit = False
        self._is_over = False

    def ask_last(self, statement: str | bytes, values: Values | None = None) -> QueryResult:
        built = build_statement(statement, values)
        self._begin(is_explicit=self._settings is not None)
        answer = self._send(built)
        self._send_end()
        return answer

    def ask(self, statement: str | bytes, values: Values | None = None) -> QueryResult:
        if self._is_over:
            raise RuntimeError("a query continued after its last statement")
        built = build_statement(statement, values)
        self._begin(is_explicit=True)
        return self._send(built)

    def _end(self) -> None:
        if self._is_begun and not self._is_over:
            self._send_end()
        if self._wire.is_waiting:
            self._exchange()

    def _begin(self, *, is_explicit: bool) -> None:
        if self._is_begun:
            return
        self._is_begun, self._needs_commit = True, is_explicit
        if is_explicit:
            self._send(_BEGIN_READ)
        if self._settings is not None:
            self._send(self._settings)
        self._send(self._version, self._check)

    def _send_end(self) -> None:
        self._is_over = True
        if self._needs_commit:
            self._send(_COMMIT)


class WriteTransaction(Transaction):
    """Transaction that writes. It commits only after the version of the tables was checked."""

    def __init__(self, wire: StatementPipeline, opening: Sequence[Statement], version: Statement, check: ResultCheck):
        super().__init__(wire)
        for statement in (_BEGIN_WRITE, *opening):
            self._send(statement)
        self._send(version, check)

    def _end(self) -> None:
        if not self._wire.has_answered:
            self._exchange()
        committed = self._send(_COMMIT)
        self._exchange()
        if committed.status != b"COMMIT":
            raise RuntimeError(_CONTINUED_MESSAGE)


class TransactionFactory:
    """Factory of the transactions in one schema."""

    def __init__(self, schema: str, layout: Layout, place: str) -> None:
        self._schema = schema
        self._layout = layout
        self._place = place
        self._version = Statement(build_path_version_query(schema).encode())
        # All writers share this lock, so that no one changes the tables during a transaction.
        lock = f"SELECT pg_advisory_xact_lock_shared({compute_lock_number(schema)})"
        self._lock = Statement(lock.encode())

    def build_session_settings(self, search_path: str, limit: float) -> str:
        """Return the statements that set up our own session. Each transaction adds its own settings."""
        return "; ".join(
            f"SET {name} = {value}"
            for name, value in (
                ("search_path", search_path),
                *((name, f"'{value}'") for name, value in _build_settings(limit).items()),
                ("default_transaction_isolation", "'repeatable read'"),
            )
        )

    def begin_read(self, line: PooledConnection, search_path: str, limit: float) -> ReadTransaction:
        """Begin a query. Its first result raises StoreTooNew, TablesOutdated or SearchPathLost if the tables differ."""
        settings = None
        if line.is_pooled:
            settings = _build_local_settings({"search_path": search_path, **_build_settings(limit)})
        return ReadTransaction(line.wire, settings, self._version, self._check)

    def begin_write(self, line: PooledConnection, search_path: str, limit: float) -> WriteTransaction:
        """Begin a write. Its first result raises StoreTooNew, TablesOutdated or SearchPathLost if the tables differ."""
        settings = {"search_path": search_path, **_build_settings(limit)}
        if not line.is_pooled:
            settings = {name: settings[name] for name in _TIMEOUT_SETTINGS}
        opening = (_build_local_settings(settings), self._lock)
        return WriteTransaction(line.wire, opening, self._version, self._check)

    def _check(self, answer: QueryResult) -> None:
        if isinstance(answer.error, psycopg.errors.UndefinedTable):
            raise TablesOutdated from answer.error
        if answer.error is not None:
            return
        row = answer.fetchone()
        if row is not None and not row[1]:
            raise SearchPathLost
        version = 0 if row is None else parse_version(row[0])
        if version is None:
            raise build_version_error(self._schema, self._place)
        check_version(version, self._layout, self._place)
        if version < self._layout.version:
            raise TablesOutdated


def _build_settings(limit: float) -> dict[str, str]:
    milliseconds = str(max(1, round(limit * 1000)))
    return {
        **dict.fromkeys(_TIMEOUT_SETTINGS, milliseconds),
        # Stores differ in size, so a generic plan for all of them is bad for most.
        "plan_cache_mode": "force_custom_plan",
    }


def _build_local_settings(settings: dict[str, str]) -> Statement:
    calls = ", ".join(f"set_config('{name}', %s, true)" for name in settings)
    return build_statement(f"SELECT {calls}", list(settings.values()))


CHANNEL = "everkept"
MAX_STORE_DIGITS = 12
NOTIFY_PAUSE_SECONDS = 0.2  # during which changes are collected and then sent together

_NOTIFY_QUERY = (
    f"SELECT pg_notify('{CHANNEL}', current_schema() || ':' || coalesce(store::text, '')) "
    "FROM unnest(%s::integer[]) AS store"
)


def note_change(cursor: Cursor, store: int | None) -> None:
    """Notify other processes of a changed store after the commit. None stands for the library."""
    cursor.news.add(store)


class ChangeNotifier:
    """Sender of change notifications: the first after a pause immediately, later ones together.

    Notifications only wake other processes. A process that misses one finds the change in the log.
    """

    def __init__(self, read: Callable[[Callable[[Cursor], Any]], Awaitable[Any]]) -> None:
        self._read = read
        self._news: set[int | None] = set()
        self._telling: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def note(self, news: Collection[int | None]) -> None:
        """Send the changes in the background, in the running event loop."""
        if not news:
            return
        self._news.update(news)
        if self._find_task() is None:
            self._hurry = asyncio.Event()
            self._telling = asyncio.get_running_loop().create_task(self._notify())

    async def finish(self, limit: float) -> None:
        """Send the remaining changes, for at most `limit` seconds."""
        if (telling := self._find_task()) is not None:
            self._hurry.set()
            await asyncio.wait({telling}, timeout=limit)

    def drop(self) -> None:
        """Discard all changes that were not sent."""
        self._news.clear()
        if (telling := self._find_task()) is not None:
            telling.cancel()
        self._telling = None

    def _find_task(self) -> asyncio.Task[None] | None:
        telling = self._telling
        is_ours = telling is not None and telling.get_loop() is asyncio.get_running_loop()
        return telling if telling is not None and is_ours and not telling.done() else None

    async def _notify(self) -> None:
        while self._news:
            news, self._news = self._news, set()
            with suppress(EverkeptError):
                await self._read(lambda cursor, news=news: cursor.ask_last(_NOTIFY_QUERY, [list(news)]))
            with suppress(TimeoutError):
                async with asyncio.timeout(NOTIFY_PAUSE_SECONDS):
                    await self._hurry.wait()


MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 30.0  # until the next attempt to connect

ChangeCallback = Callable[[int | None], None]

log = logging.getLogger(__name__)


class ChangeListener:
    """Thread that listens on its own connection and reconnects after a loss.

    Behind a pooler that lends connections per transaction, it receives nothing.
    """

    def __init__(
        self, dial: Callable[[], Connection], schema: str, hear: ChangeCallback, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._dial = dial
        self._schema = schema
        self._hear = hear
        self._loop = loop
        self._connection: Connection | None = None
        self._is_over = threading.Event()
        self._lock = threading.Lock()  # do not shut down a connection that is being closed
        threading.Thread(target=self._run, name=f"listen {schema}", daemon=True).start()

    def stop(self) -> None:
        """Stop the calls, from within the event loop. The connection stays open until `close`."""
        self._is_over.set()

    def close(self) -> None:
        self.stop()
        with self._lock:
            if self._connection is not None:
                shut_down_socket(self._connection)

    def _run(self) -> None:
        pause = MIN_PAUSE_SECONDS
        while not self._is_over.is_set():
            try:
                self._open()
                pause = MIN_PAUSE_SECONDS
                self._listen()
            except (psycopg.Error, OSError, EverkeptError) as error:
                log.debug("cannot listen for changes in PostgreSQL: %r", error)
            finally:
                self._drop()
            self._is_over.wait(random.uniform(pause / 2, pause))
            pause = min(MAX_PAUSE_SECONDS, pause * 2)

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
        self._schedule(None)  # a change may have come while no connection listened
        with selectors.DefaultSelector() as selector:
            selector.register(connection.fileno(), selectors.EVENT_READ)
            while not self._is_over.is_set():
                selector.select()
                connection.pgconn.consume_input()
                while (heard := connection.pgconn.notifies()) is not None:
                    self._handle(heard.extra.decode("utf-8", "replace"))

    def _handle(self, text: str) -> None:
        schema, _, number = text.rpartition(":")
        if schema == self._schema:
            # Any user of the database can send a notification.
            self._schedule(int(number) if number.isdecimal() and len(number) < MAX_STORE_DIGITS else None)

    def _schedule(self, store: int | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._pass_on, store)
        except RuntimeError:  # the loop closed before the database
            self._is_over.set()

    def _pass_on(self, store: int | None) -> None:
        if not self._is_over.is_set():
            self._hear(store)
