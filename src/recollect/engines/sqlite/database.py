"""One database file: a thread that reads, a thread that writes, and nothing shared between them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from recollect.engines.sqlite.connections import (
    BusyHandler,
    Synchronous,
    check_version,
    connect,
    in_snapshot,
    transaction,
    translated,
)
from recollect.engines.sqlite.schema import Schema
from recollect.engines.sqlite.sql import Connection
from recollect.errors import ReadOnly

T = TypeVar("T")
Work = Callable[[Connection], T]


class Worker:
    """A connection and the one thread that uses it, both made at the first call.

    One thread per connection makes calls wait for each other without a lock, and a call whose
    caller was cancelled still ends before the next one begins.
    """

    def __init__(self, name: str, open_connection: Callable[[BusyHandler], Connection]) -> None:
        self._name = name
        self._open_connection = open_connection
        self._busy = BusyHandler()
        self._thread: ThreadPoolExecutor | None = None
        self._connection: Connection | None = None

    async def run(self, work: Work[T]) -> T:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix=self._name)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._run_here, work)

    async def close(self, *, interrupt: bool = False) -> None:
        """Waits for the call under way, which stops waiting for locks at once.

        With `interrupt` the statement that is running ends too, with an error.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._busy.closing = True
        if interrupt and self._connection is not None:
            self._connection.interrupt()
        await asyncio.get_running_loop().run_in_executor(thread, self._close_here)
        thread.shutdown(wait=False)
        self._busy = BusyHandler()

    def _run_here(self, work: Work[T]) -> T:
        if self._connection is None:
            self._connection = self._open_connection(self._busy)
        return work(self._connection)

    def _close_here(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class Database:
    """Reads and writes of one file. Closing is not final: the next call opens it again."""

    def __init__(
        self,
        path: Path,
        schema: Schema,
        *,
        synchronous: Synchronous = "normal",
        read_only: bool = False,
    ) -> None:
        self.path = path
        self._schema = schema
        self._read_only = read_only

        def open_connection(busy: BusyHandler) -> Connection:
            # The reading connection may write as well: whoever comes first creates the files of
            # the write-ahead log and migrates.
            return connect(path, schema, read_only=read_only, synchronous=synchronous, busy=busy)

        self._reader = Worker(f"read {path.name}", open_connection)
        self._writer = Worker(f"write {path.name}", open_connection)

    async def read(self, question: Work[T]) -> T:
        """Runs the question's statements against one state of the database."""

        def ask(connection: Connection) -> T:
            with translated(self.path):
                return in_snapshot(connection, question)

        return await self._reader.run(ask)

    async def write(self, work: Work[T]) -> T:
        """Runs the work in one transaction, unless a newer program owns the file by now."""

        def commit(connection: Connection) -> T:
            with translated(self.path), transaction(connection):
                check_version(connection, self.path, self._schema)
                return work(connection)

        self._refuse_if_read_only()
        return await self._writer.run(commit)

    async def maintain(self, work: Work[T]) -> T:
        """Runs work that manages its own transactions, such as a checkpoint."""

        def run(connection: Connection) -> T:
            with translated(self.path):
                return work(connection)

        self._refuse_if_read_only()
        return await self._writer.run(run)

    async def revision(self) -> int:
        """Differs after any commit: our own come from the writing connection."""

        def ask(connection: Connection) -> int:
            with translated(self.path):
                return int(connection.pragma("data_version"))

        return await self._reader.run(ask)

    async def close(self, *, interrupt: bool = False) -> None:
        await self._writer.close(interrupt=interrupt)
        await self._reader.close(interrupt=interrupt)

    def _refuse_if_read_only(self) -> None:
        if self._read_only:
            raise ReadOnly(
                f"{self.path.name} is open for reading only.",
                hint="The data folder cannot be written; check its permissions.",
                path=str(self.path),
            )
