"""One database file: threads that read, a thread that writes, and nothing shared between them.

A short query runs in the caller's thread if the connection is idle: handing it over would take half of its time.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import apsw

from everkept.engines.sqlite.connection import (
    UNREADABLE_VALUES,
    BusyHandler,
    Connection,
    DatabaseReplaced,
    FileIdentity,
    Synchronous,
    Work,
    build_replaced_error,
    check_version,
    connect,
    fold,
    measure_file,
    open_transaction,
    read_identity,
    read_in_snapshot,
    refuse_to_write,
    translate_errors,
)
from everkept.engines.sqlite.schema import Schema
from everkept.errors import StorageFull

log = logging.getLogger(__name__)

INTERRUPT_SECONDS = 0.01
IDENTITY_SECONDS = 1.0  # a read looks whether the file is still there once in that time; a write always does
MAX_SHORT_SECONDS = 0.005  # processor time of a query before it moves to its own thread
STEPS_PER_CHECK = 1_000  # instructions of SQLite between two checks of the clock
MAX_LOG_PAGES = 1_000  # in the write-ahead log; beyond that it is folded into the file
MAX_SHORT_STREAK = 32  # queries in the caller's thread before other tasks get their turn

T = TypeVar("T")


class _ConnectionThread:
    """A thread with its connection. The caller's thread may use the connection while this one is idle."""

    def __init__(self, name: str) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self.busy = BusyHandler()
        self.connection: Connection | None = None
        self._calls: list[Future[Any]] = []  # the thread may not have finished these yet
        self._began = 0.0  # processor time at which a query began in the caller's thread
        self._is_stopped = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        call = self.thread.submit(work)
        self._calls.append(call)
        return call

    @property
    def is_idle(self) -> bool:
        """Whether the connection is open and unused, also by calls whose caller was canceled."""
        if self._calls:
            self._calls = [call for call in self._calls if not call.done()]
        return self.connection is not None and not self._calls

    def run_here(self, connection: Connection, work: Work[T]) -> T:
        """Run work in the caller's thread while this one is idle. It waits for no lock, and fails if it takes long."""
        self._began, self._is_stopped = time.thread_time(), False
        self.busy.hurries = True
        connection.set_progress_handler(self._has_taken_long, STEPS_PER_CHECK)
        try:
            return work(connection)
        finally:
            connection.set_progress_handler(None)
            self.busy.hurries = False

    def _has_taken_long(self) -> bool:
        """Return whether to stop now. Return True only once, so that the rollback can finish.

        Processor time counts, because large texts take long in few instructions.
        """
        is_late = not self._is_stopped and time.thread_time() - self._began > MAX_SHORT_SECONDS
        self._is_stopped |= is_late
        return is_late

    def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            # An interrupt without a running statement would prevent the log from being folded. A new statement clears
            # it.
            with suppress(apsw.InterruptError):
                connection.execute("SELECT 1").fetchall()
            connection.close()

    def interrupt(self) -> None:
        connection = self.connection
        if connection is not None:
            with suppress(apsw.ConnectionClosedError):
                connection.interrupt()


class NeedsOwnThread(Exception):
    """Error for work that must run in its own thread. It has had no effect yet."""


class ConnectionWorker:
    """A connection and the one thread that uses it, both created at the first call.

    One thread per connection serializes calls without a lock. A call whose caller was canceled still ends before the
    next one begins. A call that comes while the connection is being closed gets a new thread and connection.
    """

    def __init__(self, name: str, open_connection: Callable[[BusyHandler], Connection]) -> None:
        self._name = name
        self._open_connection = open_connection
        self._lane: _ConnectionThread | None = None
        self._closing: dict[_ConnectionThread, asyncio.Future[None]] = {}
        self._in_a_row = 0  # calls in the caller's thread since the event loop had its turn

    async def run(self, work: Work[T]) -> T:
        self._in_a_row = 0
        return await asyncio.wrap_future(self.submit(work))

    def submit(self, work: Work[T]) -> Future[T]:
        if self._lane is None:
            self._lane = _ConnectionThread(self._name)
        return self._lane.submit(partial(self._run_in, self._lane, work))

    def run_here(self, work: Work[T]) -> T:
        """Run short work in the caller's thread. Raise NeedsOwnThread if that is not possible."""
        lane = self._lane
        if lane is None or not lane.is_idle or lane.connection is None or not self._take_turn():
            raise NeedsOwnThread
        try:
            return lane.run_here(lane.connection, work)
        # The connection is busy, the work is long, or its own thread will meet the same error.
        except (apsw.Error, *UNREADABLE_VALUES) as error:
            raise NeedsOwnThread from error

    def _take_turn(self) -> bool:
        if not self._in_a_row:
            asyncio.get_running_loop().call_soon(self._reset_streak)
        self._in_a_row += 1
        return self._in_a_row <= MAX_SHORT_STREAK

    def _reset_streak(self) -> None:
        self._in_a_row = 0

    async def close(self, *, interrupt: bool = False) -> None:
        """Wait for the running call, which stops waiting for locks. With `interrupt`, its statements fail too."""
        loop = asyncio.get_running_loop()
        lane, self._lane = self._lane, None
        if lane is not None:
            lane.busy.closing = True
            self._closing[lane] = loop.run_in_executor(lane.thread, lane.close)
        # Includes one that another caller is already closing, perhaps without an interrupt.
        for lane, closing in list(self._closing.items()):
            while not closing.done():
                # Repeat: the call may be between two statements.
                if interrupt:
                    lane.interrupt()
                await asyncio.wait([closing], timeout=INTERRUPT_SECONDS if interrupt else None)
            if self._closing.pop(lane, None):
                lane.thread.shutdown(wait=False)
                closing.result()

    def discard(self) -> None:
        """Close the connection after its calls. The next call opens another one."""
        lane, self._lane = self._lane, None
        if lane is None:
            return
        closing = asyncio.get_running_loop().run_in_executor(lane.thread, lane.close)
        self._closing[lane] = closing

        def finish(_: object) -> None:
            if self._closing.pop(lane, None):
                lane.thread.shutdown(wait=False)

        closing.add_done_callback(finish)

    @property
    def is_open(self) -> bool:
        return self._lane is not None or bool(self._closing)

    def _run_in(self, lane: _ConnectionThread, work: Work[T]) -> T:
        if lane.connection is None:
            lane.connection = self._open_connection(lane.busy)
        return work(lane.connection)


def _upgrade_folder_of(path: Path) -> None:
    """Upgrade the data folder of a database that an earlier version wrote."""
    from everkept.engines.sqlite.upgrade import upgrade_database  # rare, and slow to import

    upgrade_database(path)


class Database:
    """Reads and writes of one file. After closing, the next call opens it again."""

    def __init__(
        self,
        path: Path,
        schema: Schema,
        *,
        synchronous: Synchronous = "normal",
        read_only: bool = False,
        inline_writes: bool = False,
        title: str | None = None,
    ) -> None:
        """Pass `inline_writes` to run short writes in the caller's thread. Other clients would wait for them."""
        self.path = path
        self._title = title or path.name
        self._schema = schema
        self._read_only = read_only
        # With "full", each commit waits for the disk.
        self._writes_inline = inline_writes and synchronous == "normal"
        self._log_pages = 0  # after the last write; 0 also after the log was folded
        self.reopened = 0
        self._identities: WeakKeyDictionary[Connection, FileIdentity | None] = WeakKeyDictionary()
        self._looked_at = 0.0  # when a read last compared the identities
        self._exclusive = Lock()

        def open_connection(busy: BusyHandler) -> Connection:
            # Before it is opened: a file that replaces it in this moment is then found to be another one.
            identity = read_identity(path)
            # The reading connection may write too: the first connection creates the log and migrates.
            connection = connect(
                path,
                schema,
                read_only=read_only,
                synchronous=synchronous,
                busy=busy,
                title=title,
                upgrade=_upgrade_folder_of,
            )
            self._identities[connection] = identity
            return connection

        def open_aside(busy: BusyHandler) -> Connection:
            connection = open_connection(busy)
            # The pages are read only once, so they are not cached.
            connection.execute("PRAGMA cache_size=-2000").fetchall()
            return connection

        self._reader = ConnectionWorker(f"read {path.name}", open_connection)
        self._aside = ConnectionWorker(f"read aside {path.name}", open_aside)
        self._writer = ConnectionWorker(f"write {path.name}", self._open_to_write(open_connection))

    async def read(self, question: Work[T], *, aside: bool = False, long: bool = False) -> T:
        try:
            return await self._read(question, aside=aside, long=long)
        except DatabaseReplaced:
            self._discard_connections()
            return await self._read(question, aside=aside, long=long)
        except StorageFull:
            return await asyncio.to_thread(self._read_exclusively, question)

    def _read_exclusively(self, question: Work[T]) -> T:
        """Read a file that cannot be opened to share it, because the disk is full."""
        with self._exclusive, translate_errors(self.path, self._schema, title=self._title):
            connection = connect(self.path, self._schema, exclusive=True, title=self._title, upgrade=_upgrade_folder_of)
            try:
                return read_in_snapshot(connection, question)
            finally:
                connection.close()

    async def _read(self, question: Work[T], *, aside: bool, long: bool) -> T:
        def ask_here(connection: Connection) -> T:
            now = time.monotonic()
            if now - self._looked_at > IDENTITY_SECONDS:
                self._looked_at = now
                self._check_identity(connection)
            return read_in_snapshot(connection, question)

        def ask(connection: Connection) -> T:
            with self._translate_errors(connection):
                return ask_here(connection)

        if not aside and not long:
            with suppress(NeedsOwnThread):
                return self._reader.run_here(ask_here)
        return await (self._aside if aside else self._reader).run(ask)

    def read_later(self, question: Work[None]) -> None:
        self._aside.submit(lambda connection: read_in_snapshot(connection, question))

    async def write(self, work: Work[T], *, short: bool = False) -> T:
        try:
            return await self._write(work, short=short)
        except DatabaseReplaced:
            self._discard_connections()
            raise

    async def _write(self, work: Work[T], *, short: bool) -> T:
        def commit(connection: Connection) -> T:
            with open_transaction(connection):
                check_version(connection, self.path, self._schema, self._title)
                done = work(connection)
                self._check_identity(connection)
                return done

        def commit_here(connection: Connection) -> T:
            with self._translate_errors(connection):
                try:
                    return commit(connection)
                except (apsw.BusyError, apsw.InterruptError) as error:  # the transaction was rolled back
                    raise NeedsOwnThread from error

        def commit_there(connection: Connection) -> T:
            with self._translate_errors(connection):
                return commit(connection)

        self._refuse_if_read_only()
        # The first write to a log waits for the disk, and so does folding.
        if short and self._writes_inline and 0 < self._log_pages < MAX_LOG_PAGES:
            with suppress(NeedsOwnThread):
                return self._writer.run_here(commit_here)
        return await self._writer.run(commit_there)

    async def maintain(self, work: Work[T]) -> T:
        """Run work that manages its own transactions. All of it runs even if the caller is canceled."""

        def run(connection: Connection) -> T:
            with self._translate_errors(connection):
                self._check_identity(connection)
                return work(connection)

        self._refuse_if_read_only()
        try:
            return await self._writer.run(run)
        except DatabaseReplaced:
            self._discard_connections()
            raise

    async def fold(self, patience: float) -> bool:
        return await asyncio.to_thread(fold, self.path, self._schema, patience, title=self._title)

    async def close(self, *, interrupt: bool = False) -> None:
        for worker in self._workers:
            await worker.close(interrupt=interrupt)

    @property
    def is_open(self) -> bool:
        return any(worker.is_open for worker in self._workers)

    def measure_size(self) -> int:
        return measure_file(self.path)

    @property
    def _workers(self) -> tuple[ConnectionWorker, ...]:
        return self._writer, self._aside, self._reader

    def _open_to_write(
        self, open_connection: Callable[[BusyHandler], Connection]
    ) -> Callable[[BusyHandler], Connection]:
        if not self._writes_inline:
            return open_connection

        def open_with_hook(busy: BusyHandler) -> Connection:
            connection = open_connection(busy)

            def note_log(_connection: object, _name: str, pages: int) -> int:
                """Fold a long log, like SQLite itself, but never in the caller's thread."""
                if pages >= MAX_LOG_PAGES and not busy.hurries:
                    with suppress(apsw.Error):
                        pages, folded = connection.wal_checkpoint()
                        pages -= folded
                self._log_pages = pages
                return apsw.SQLITE_OK

            connection.set_wal_hook(note_log)
            return connection

        return open_with_hook

    def _translate_errors(self, connection: Connection) -> AbstractContextManager[None]:
        return translate_errors(self.path, self._schema, title=self._title, connection=connection)

    def _check_identity(self, connection: Connection) -> None:
        """Raise DatabaseReplaced if the file was moved, deleted or replaced since the connection opened it.

        SQLite does not notice that: it would write to a file that has no name.
        """
        if read_identity(self.path) != self._identities.get(connection):
            raise build_replaced_error(self.path, self._title)

    def _discard_connections(self) -> None:
        log.warning("%s was replaced or removed while it was open; opening the file that is there now", self.path)
        self.reopened += 1
        self._log_pages = 0
        for worker in self._workers:
            worker.discard()

    def _refuse_if_read_only(self) -> None:
        if self._read_only:
            refuse_to_write(self.path, self._title)
