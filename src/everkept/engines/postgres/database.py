"""One PostgreSQL schema: a connection pool, and threads for queries and transactions."""

import asyncio
import logging
import math
import random
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Generic, TypeVar

import psycopg

from everkept.core.answers import TableFault
from everkept.engines.postgres.connection import (
    CONTENTION_CODES,
    Connection,
    Connector,
    Credentials,
    TooManyConnections,
    build_lost_error,
    build_not_ready_error,
    build_pooler_error,
    build_queue_timeout_error,
    build_timeout_error,
    parse_address,
    translate_error,
)
from everkept.engines.postgres.schema import EMPTY_LAYOUT, Layout, PreparedSchema, prepare, quote_name
from everkept.engines.postgres.table_faults import TableCheck
from everkept.engines.postgres.transactions import (
    ChangeListener,
    ChangeNotifier,
    DatabaseCall,
    PooledConnection,
    SearchPathLost,
    TablesOutdated,
    TransactionFactory,
    Work,
)
from everkept.errors import EverkeptError, InvalidInput, StoreBusy, StoreDamaged, StoreUnreachable
from everkept.values import replace

T = TypeVar("T")
_Job = tuple[Callable[[], Any], "Future[Any]"]


class ThreadPool:
    """Thread pool with a fixed maximum; threads start on demand.

    Its threads do not delay the end of the process. A pool of the standard library would, if a server does not answer.
    """

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._count = 0
        self._busy = 0  # jobs that were submitted and have not ended
        self._lock = threading.Lock()

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """Queue work for a thread. Work that no thread has started can be canceled."""
        future: Future[T] = Future()
        with self._lock:
            self._busy += 1
            if self._busy > self._count < self._size:
                self._count += 1
                name = f"{self._name} {self._count}"
                threading.Thread(target=self._run_jobs, args=(self._jobs,), name=name, daemon=True).start()
            self._jobs.put((work, future))
        return future

    def shut_down(self) -> None:
        """End each thread after its current job. The pool accepts new work afterwards."""
        with self._lock:
            count, self._count = self._count, 0
            jobs, self._jobs = self._jobs, SimpleQueue()
            self._busy = 0
        for _ in range(count):
            jobs.put(None)

    def _run_jobs(self, jobs: "SimpleQueue[_Job | None]") -> None:
        while (job := jobs.get()) is not None:
            _run_job(*job)
            del job  # otherwise the thread keeps the job's data in memory until the next job
            with self._lock:
                if jobs is self._jobs:
                    self._busy -= 1


class _ErrorForwarder:
    """Context manager that passes any error to the future, even BaseException."""

    def __init__(self, future: "Future[Any]") -> None:
        self._future = future

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: TracebackType | None) -> bool:
        if error is not None:
            self._future.set_exception(error)
        return True


def _run_job(work: Callable[[], Any], future: "Future[Any]") -> None:
    if future.set_running_or_notify_cancel():
        with _ErrorForwarder(future):
            future.set_result(work())


MAX_ATTEMPTS = 20
MAX_PAUSE_SECONDS = 0.2  # between attempts
ANSWER_SECONDS = 2.0  # for a connection that was idle for long
POLL_SECONDS = 0.1  # how often a waiting call checks whether it was stopped
CANCELED_CODES = ("57014", "25P03", "25P04")  # a statement or a transaction took too long


log = logging.getLogger(__name__)


class ConnectionPool:
    """Pool with one connection per thread, opened when none is idle."""

    def __init__(
        self,
        dial: Callable[[], Connection],
        schema: str,
        layout: Layout,
        place: str,
        *,
        time_limit: float,
        doubt_after: float,
    ) -> None:
        """Store the parameters. `time_limit` applies to a query."""
        self._dial = dial
        self._schema = schema
        self._layout = layout
        self._place = place
        self._time_limit = time_limit
        self._doubt_after = doubt_after
        self._form = TransactionFactory(schema, layout, place)
        self._search_path = ""
        self._idle: list[PooledConnection] = []  # the last used connection is taken first
        self._lent = 0
        self._epoch = 0  # how often all connections were discarded
        self._lock = threading.Condition()  # notified of each returned connection
        self._is_pooled = False
        self._shares_sessions = False  # a session was found with settings that are not ours
        self._has_warned = False
        self.table_check = TableCheck(dial, schema, layout, place, time_limit)

    def run(self, call: DatabaseCall, work: Work[T]) -> T:
        """Run the work in one transaction. Retry it if another transaction was in the way."""
        for attempt in range(MAX_ATTEMPTS):
            try:
                return self._attempt(call, work)
            except SearchPathLost:  # a pooler that was not detected before
                self._shares_sessions = True
                self.discard()
                continue
            except psycopg.Error as error:
                if error.sqlstate not in CONTENTION_CODES:
                    raise self._translate_error(call, error) from None  # it may quote stored values
            time.sleep(random.uniform(0, min(MAX_PAUSE_SECONDS, 0.002 * 2**attempt)))
        raise StoreBusy("Other processes keep writing to the database.", hint="Try again in a moment.")

    def maintain(self, call: DatabaseCall, work: Callable[[Connection], T]) -> T:
        """Run the work on a separate connection and close that connection afterwards."""
        try:
            line = self._open(call)
            try:
                call.attach(line, is_ready=True)
                self._check_session()
                # Maintenance sets its own limits.
                text = f"RESET ALL; SET search_path = {self._search_path}; SET statement_timeout = 0"
                line.connection.execute(text.encode(), prepare=False)
                return work(line.connection)
            finally:
                call.detach()
                line.close()
        except psycopg.Error as error:
            raise self._translate_error(call, error) from None

    def discard(self) -> None:
        """Close the idle connections now and the others when they are returned."""
        with self._lock:
            self._epoch += 1
            idle, self._idle = self._idle, []
        for line in idle:
            line.close()

    def _attempt(self, call: DatabaseCall, work: Work[T]) -> T:
        """Run the work once. Repeat it on a new connection if the idle one was lost or its tables were removed."""
        line = self._take_idle()
        if line is not None:
            try:
                return self._run_transaction(line, call, work)
            except TablesOutdated:
                self.discard()
            except psycopg.Error:
                if call.why is not None or not self._can_repeat(line, call):
                    raise
                self.discard()  # the other idle connections are lost too
        try:
            return self._run_transaction(self._open_or_wait(call), call, work)
        except TablesOutdated:
            raise self._build_gone_error() from None

    def _can_repeat(self, line: PooledConnection, call: DatabaseCall) -> bool:
        """Return whether the connection was lost and nothing can have been committed."""
        return line.connection.closed and not (call.alters and line.wire.has_answered)

    def _run_transaction(self, line: PooledConnection, call: DatabaseCall, work: Work[T]) -> T:
        with self._lock:
            self._lent += 1
        try:
            call.attach(line, is_ready=True)
            begin = self._form.begin_write if call.alters else self._form.begin_read
            transaction = begin(line, self._search_path, call.limit)
            result = work(transaction)
            transaction.finish()
            call.news = transaction.news
            return result
        finally:
            self._give_back(line, call)

    def _take_idle(self) -> PooledConnection | None:
        """Return the last used idle connection, or None. Check it first if it was idle for long."""
        with self._lock:
            line = self._idle.pop() if self._idle else None
        if line is None or line.idle_seconds < self._doubt_after or line.is_alive(ANSWER_SECONDS):
            return line
        line.close()
        self.discard()  # the others were idle for longer
        return None

    def _open_or_wait(self, call: DatabaseCall) -> PooledConnection:
        try:
            return self._open(call)
        except TooManyConnections:
            line = self._wait_for_return(call)
            if line is None:
                raise
            return line

    def _wait_for_return(self, call: DatabaseCall) -> PooledConnection | None:
        """Return the next connection that is returned, or None if none is lent. Raise the error of a stopped call."""
        with self._lock:
            while not self._idle:
                if call.why is not None:
                    raise call.why
                if not self._lent:
                    return None
                self._lock.wait(POLL_SECONDS)
            return self._idle.pop()

    def _open(self, call: DatabaseCall) -> PooledConnection:
        epoch = self._epoch  # read before dialing: all connections may be discarded while this one opens
        line = PooledConnection(self._dial(), epoch)
        try:
            call.attach(line, is_ready=False)
            found = self._prepare(line.connection)
            is_pooled = found.is_pooled or self._shares_sessions
            if not is_pooled:
                line.claim_session(self._form.build_session_settings(found.search_path, self._time_limit))
        except BaseException:
            call.detach()
            line.close()
            raise
        self._search_path, self._is_pooled = found.search_path, is_pooled
        return line

    def _prepare(self, connection: Connection) -> PreparedSchema:
        """Create or migrate the tables. Tables that this process has used are not created again."""
        is_known = bool(self._search_path)
        layout = replace(self._layout, founds=False) if is_known else self._layout
        try:
            return prepare(connection, self._schema, layout, self._place)
        except InvalidInput:
            if is_known:
                raise self._build_gone_error() from None
            raise

    def _give_back(self, line: PooledConnection, call: DatabaseCall) -> None:
        line.roll_back()
        call.detach()
        with self._lock:
            is_kept = line.is_usable and line.epoch == self._epoch
            if is_kept:
                self._idle.append(line)
            self._lent -= 1
            self._lock.notify()
        if not is_kept:
            line.close()

    def _check_session(self) -> None:
        """Raise PoolerDetected if a setting of one session may reach another."""
        if not self._is_pooled:
            return
        error = build_pooler_error(self._place)
        if not self._has_warned:
            self._has_warned = True
            log.warning("maintenance is off in this process: %s", error)
        raise error

    def _translate_error(self, call: DatabaseCall, error: psycopg.Error) -> Exception:
        """Return our error. An error without a code is not a server's answer, so the outcome of a write is unknown."""
        is_ours = error.sqlstate in CANCELED_CODES or (not error.sqlstate and isinstance(call.why, StoreUnreachable))
        if call.why is not None and is_ours:
            return call.why
        ours = translate_error(error, self._place)
        return ours if isinstance(ours, EverkeptError) else self.table_check.explain(ours)

    def _build_gone_error(self) -> StoreDamaged:
        return StoreDamaged(
            f'The tables in schema "{self._schema}" of PostgreSQL at {self._place} were deleted while in use. '
            "Nothing was stored.",
            hint="Find out what deleted them, then restore a backup. A restarted server begins with empty tables.",
        )


LIVENESS_SECONDS = 3.0
LIVENESS_CACHE_SECONDS = 1.0  # for which one result is reused

# SSLRequest: every server and every pooler answers it before a login.
_TLS_REQUEST = struct.pack("!ii", 8, 80877103)


class LivenessCheck:
    """Liveness check that concurrent callers share."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._felt_at = -LIVENESS_CACHE_SECONDS
        self._feeling: asyncio.Task[bool] | None = None

    async def is_alive(self) -> bool:
        if time.monotonic() - self._felt_at < LIVENESS_CACHE_SECONDS:
            return True
        loop = asyncio.get_running_loop()
        feeling = self._feeling
        if feeling is None or feeling.done() or feeling.get_loop() is not loop:
            feeling = self._feeling = loop.create_task(self._check())
        return await asyncio.shield(feeling)

    async def _check(self) -> bool:
        try:
            async with asyncio.timeout(LIVENESS_SECONDS):
                answer = await self._read_answer()
        except (OSError, TimeoutError):
            return False
        if answer:
            self._felt_at = time.monotonic()
        return bool(answer)

    async def _read_answer(self) -> bytes:
        if self._host.startswith("/"):
            reader, writer = await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._port}")
        else:
            reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(_TLS_REQUEST)
            await writer.drain()
            return await reader.read(1)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


__all__ = ["Database", "Work"]

# Separate pools: a write that waits for its store's lock must not delay queries.
READ_CONNECTIONS, WRITE_CONNECTIONS = 8, 4
MAINTENANCE_CONNECTIONS = 2  # one may build an index for minutes; a purge does not wait for it
QUERY_SECONDS = 10.0
WRITE_TIME_FACTOR = 6  # a write may take this many times as long as a query, because it waits for others
CONNECT_SECONDS = 5.0  # includes the login
IDLE_CHECK_SECONDS = 30.0  # a firewall may drop idle connections without notice
LIVENESS_DELAY_SECONDS = 1.0  # a call that takes longer checks whether the server is alive
STOP_SECONDS = 2.0  # for a server to cancel its work
CLOSE_SECONDS = 0.3  # for calls that run while the database closes


class Database:
    """Reads and writes in one schema. The first call connects.

    Each call that finds its connection lost tries once to reach the server. It raises StoreUnreachable if the server
    cannot be reached or does not answer, and QueryTimeout if the server answers but is too slow. After QueryTimeout,
    nothing was written. StoreUnreachable is raised if the outcome of a write is unknown.
    """

    def __init__(
        self,
        url: str,
        schema: str,
        *,
        layout: Layout = EMPTY_LAYOUT,
        credentials: Credentials | None = None,
        ca: Path | None = None,
        readers: int = READ_CONNECTIONS,
        writers: int = WRITE_CONNECTIONS,
        time_limit: float = QUERY_SECONDS,
        connect_limit: float = CONNECT_SECONDS,
        doubt_after: float = IDLE_CHECK_SECONDS,
    ) -> None:
        """Store the parameters without connecting. `layout` defines the tables, `ca` the trusted certificates.

        A connection that was idle for `doubt_after` seconds is checked before its next use.
        """
        quote_name(schema)
        address = parse_address(url)
        self.schema = schema
        self.place = address.display_url
        self._time_limit = time_limit
        self._dial = Connector(address, credentials, ca, connect_limit)
        self._pool = ConnectionPool(
            self._dial, schema, layout, self.place, time_limit=time_limit, doubt_after=doubt_after
        )
        self._pulse = LivenessCheck(address.host, address.port)
        self._reading = ThreadPool(f"read {schema}", readers)
        self._writing = ThreadPool(f"write {schema}", writers)
        self._keeping = ThreadPool(f"keep {schema}", MAINTENANCE_CONNECTIONS)
        self._stopping = ThreadPool(f"stop {schema}", readers + writers)
        self._asked: set[_PendingCall[Any]] = set()  # calls that have not ended
        self._listeners: list[ChangeListener] = []
        self._teller = ChangeNotifier(self.read)

    async def read(self, question: Work[T]) -> T:
        """Run the query in one read-only snapshot. Canceling the caller stops it."""
        return await self._run(question, DatabaseCall(alters=False, limit=self._time_limit))

    async def write(self, work: Work[T]) -> T:
        """Run the work in one transaction. It may run again if another transaction was in the way.

        Once started, it runs to its end, even if the caller is canceled.
        """
        return await self._run(work, DatabaseCall(alters=True, limit=self._time_limit * WRITE_TIME_FACTOR))

    async def maintain(self, work: Callable[[Connection], T]) -> T:
        """Run maintenance on a separate connection. Each statement is its own transaction and has no time limit.

        Raise PoolerDetected behind a pooler, where a setting of one session may reach another. Canceling the caller
        stops the work, and so does `close`.
        """
        call = DatabaseCall(alters=False, limit=math.inf)
        return await self._wait_for(call, self._keeping.submit(lambda: self._pool.maintain(call, work)))

    async def find_table_faults(self) -> list[TableFault]:
        """Return what is not as Everkept creates it. The check works behind a pooler too."""
        call = DatabaseCall(alters=False, limit=self._time_limit)
        return await self._wait_for(call, self._keeping.submit(self._pool.table_check.find_faults))

    def listen(self, hear: Callable[[int | None], None]) -> None:
        """Call `hear` with the number of each store that changes, or with None if any store may have changed.

        The running event loop makes the calls, until the next `close`.
        """
        listener = ChangeListener(self._dial, self.schema, hear, asyncio.get_running_loop())
        self._listeners.append(listener)

    async def close(self) -> None:
        """Close all connections quickly, even if the server does not answer. The next call opens them again."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.stop()
            self._stopping.submit(listener.close)
        await self._teller.finish(CLOSE_SECONDS)
        # Calls that wait for a connection are canceled.
        begun = [each for each in list(self._asked) if not each.future.cancel()]
        if begun:
            await asyncio.wait([each.ended for each in begun], timeout=CLOSE_SECONDS)
            self._disconnect_all(self._build_closed_error())
            await asyncio.wait([each.ended for each in begun], timeout=CLOSE_SECONDS)
            for each in begun:  # not connected yet: its thread ends when the attempt does
                each.give_up(self._build_closed_error())
        self._teller.drop()
        await asyncio.wrap_future(self._stopping.submit(self._pool.discard))
        for threads in (self._reading, self._writing, self._keeping, self._stopping):
            threads.shut_down()

    async def _run(self, work: Work[T], call: DatabaseCall) -> T:
        threads = self._writing if call.alters else self._reading
        return await self._wait_for(call, threads.submit(lambda: self._pool.run(call, work)))

    async def _wait_for(self, call: DatabaseCall, future: "Future[T]") -> T:
        loop = asyncio.get_running_loop()
        asked = _PendingCall(call, future, loop)
        self._asked.add(asked)
        asked.notify_when_done(self._settle)
        timer = loop.call_later(min(call.limit, LIVENESS_DELAY_SECONDS), self._begin_watch, asked)
        try:
            return await asked.answer
        except asyncio.CancelledError:
            if not future.cancel() and not call.alters:
                self._stopping.submit(lambda: call.stop(build_timeout_error(call.limit, self.place)))
            raise
        finally:
            timer.cancel()

    def _settle(self, asked: "_PendingCall[Any]") -> None:
        """Settle a call, even if no caller waits for it."""
        self._asked.discard(asked)
        self._teller.note(asked.call.news)
        asked.settle(self._build_closed_error)

    def _begin_watch(self, asked: "_PendingCall[Any]") -> None:
        """Watch a call that takes longer than most."""
        asked.watching = asyncio.get_running_loop().create_task(self._watch(asked))

    async def _watch(self, asked: "_PendingCall[Any]") -> None:
        """Wait until the call ends, or stop it if its time is over or the server does not answer."""
        call, ended = asked.call, asked.ended
        while not ended.done():
            left = asked.deadline - asyncio.get_running_loop().time()
            if left <= 0:
                await self._stop(asked)
                return
            if call.is_reached and not await self._pulse.is_alive() and not ended.done():
                # A frozen server fails all calls, including those without a caller.
                self._disconnect_all(build_lost_error(self.place))
                await asyncio.wait({ended}, timeout=STOP_SECONDS)
                continue
            await asyncio.wait({ended}, timeout=min(left, LIVENESS_DELAY_SECONDS))

    async def _stop(self, asked: "_PendingCall[Any]") -> None:
        call, ended = asked.call, asked.ended
        if asked.future.cancel():
            asked.give_up(build_queue_timeout_error(call.limit, self.place))
            return
        self._stopping.submit(lambda: call.stop(build_timeout_error(call.limit, self.place)))
        await asyncio.wait({ended}, timeout=STOP_SECONDS)
        if not ended.done() and call.is_ready:
            self._stopping.submit(lambda: call.disconnect(build_lost_error(self.place)))
            await asyncio.wait({ended}, timeout=STOP_SECONDS)
        if not ended.done():
            is_lost = call.may_have_stored
            asked.give_up(build_lost_error(self.place) if is_lost else build_not_ready_error(call.limit, self.place))

    def _disconnect_all(self, why: StoreUnreachable) -> None:
        for asked in list(self._asked):
            self._stopping.submit(partial(asked.call.disconnect, why))

    def _build_closed_error(self) -> StoreUnreachable:
        return StoreUnreachable(f"The connection to PostgreSQL at {self.place} is closed.", hint="Try again.")


class _PendingCall(Generic[T]):
    """Call with two ends: that of its thread and that of its caller."""

    def __init__(self, call: DatabaseCall, future: "Future[T]", loop: asyncio.AbstractEventLoop) -> None:
        self.call = call
        self.future = future
        self.deadline = loop.time() + call.limit
        self.answer: asyncio.Future[T] = loop.create_future()  # for the caller
        self.ended: asyncio.Future[None] = loop.create_future()  # set even if no caller waits
        self.watching: asyncio.Task[None] | None = None
        self._loop = loop

    def notify_when_done(self, settle: "Callable[[_PendingCall[T]], None]") -> None:
        """Have the event loop call `settle` once the thread is done."""

        def pass_on(_future: "Future[T]") -> None:
            with suppress(RuntimeError):  # the loop is already closed
                self._loop.call_soon_threadsafe(settle, self)

        self.future.add_done_callback(pass_on)

    def settle(self, closed: Callable[[], StoreUnreachable]) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        if self.answer.done():
            return
        if self.future.cancelled():
            self.answer.set_exception(closed())
        elif (error := self.future.exception()) is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(self.future.result())

    def give_up(self, why: EverkeptError) -> None:
        """Fail the call for its caller. The thread continues on its own."""
        if not self.answer.done():
            self.answer.set_exception(why)
