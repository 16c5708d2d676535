"""One database file, read in the caller's own thread: no event loop, and nobody else waits."""

from pathlib import Path
from typing import Never, TypeVar

import apsw

from everkept.engines.sqlite.connections import (
    BusyHandler,
    connect,
    in_snapshot,
    refuse_to_write,
    translated,
)
from everkept.engines.sqlite.schema import Schema
from everkept.engines.sqlite.sizes import log_of, size_of
from everkept.engines.sqlite.sql import Connection, Work

T = TypeVar("T")

PATIENCE = 0.5  # seconds; readers wait only while a file is recovered, or locked as a whole


class InlineDatabase:
    """Reads of one file, which must be there in the form that this program knows.

    A file that nobody writes is read as it lies there: SQLite's own way to share it would leave
    two more files beside it.
    """

    def __init__(self, path: Path, schema: Schema, *, title: str) -> None:
        self._path = path
        self._schema = schema
        self._title = title
        self._connection: Connection | None = None
        self._seen_at_rest: tuple[int, int] | None = None

    async def read(self, question: Work[T], *, aside: bool = False, long: bool = False) -> T:
        with translated(self._path, self._schema, title=self._title):
            while True:
                try:
                    found = in_snapshot(self._opened(), question)
                except apsw.Error:
                    if not self._was_disturbed():
                        raise
                else:
                    if not self._was_disturbed():
                        return found
                self.close()  # the next one shares the file with whoever writes

    def read_later(self, question: Work[None]) -> None:
        """What is only read for a moment has no later."""

    async def write(self, work: Work[T], *, short: bool = False) -> Never:
        refuse_to_write(self._path, self._title)

    async def fold(self, patience: float) -> Never:
        refuse_to_write(self._path, self._title)

    def size(self) -> int:
        return size_of(self._path)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _opened(self) -> Connection:
        if self._connection is None:
            self._seen_at_rest = self._at_rest()
            self._connection = connect(
                self._path,
                self._schema,
                read_only=True,
                at_rest=self._seen_at_rest is not None,
                busy=BusyHandler(PATIENCE),
                title=self._title,
            )
        return self._connection

    def _was_disturbed(self) -> bool:
        """Whether somebody has written to a file that was read as if nobody did."""
        return self._seen_at_rest is not None and self._at_rest() != self._seen_at_rest

    def _at_rest(self) -> tuple[int, int] | None:
        """What tells two states of the file apart; None where it may be written just now."""
        if not self._path.exists() or log_of(self._path).exists():
            return None
        state = self._path.stat()
        return state.st_size, state.st_mtime_ns
