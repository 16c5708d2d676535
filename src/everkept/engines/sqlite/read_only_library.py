"""A data folder for a short process that only reads, in the caller's own thread.

Its methods are those of the library, and end without ever waiting for an event loop.
"""

from math import inf
from pathlib import Path
from typing import Never, TypeVar

import apsw

from everkept.core.projects import Project, Silence
from everkept.core.text import forbidden_in_text
from everkept.core.times import now
from everkept.engines.sqlite import project_list
from everkept.engines.sqlite.connection import (
    BusyHandler,
    Connection,
    Work,
    connect,
    in_snapshot,
    log_of,
    refuse_to_write,
    size_of,
    translated,
)
from everkept.engines.sqlite.project_list import Listed, no_such
from everkept.engines.sqlite.schema import LIBRARY, PROJECT, Schema
from everkept.engines.sqlite.store import SqliteStore
from everkept.errors import ProjectArchived


def reading_room(folder: Path) -> "SqliteReadingRoom | None":
    """None where nothing was ever stored."""
    return SqliteReadingRoom(folder) if (folder / "_meta.db").exists() else None


class SqliteReadingRoom:
    """The port over the files of a folder; each is opened by the first question to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._meta = InlineDatabase(folder / "_meta.db", LIBRARY, title="_meta.db")
        self._databases = [self._meta]
        self._stores: dict[Path, SqliteStore] = {}

    async def project(self, name: str) -> Project:
        return (await self._find(name)).project

    async def project_of_workspace(self, path: str) -> Project | None:
        return await self._meta.read(lambda db: project_list.of_workspace(db, path))

    async def open(self, name: str) -> tuple[Project, SqliteStore]:
        found = await self._find(name)
        if found.is_archived:
            raise ProjectArchived(name)
        path, title = self._folder / found.db_path, f'The file of project "{name}"'
        return found.project, self._store(path, name, found.generation, title)

    async def silences(self) -> list[Silence]:
        if not await self._meta.read(lambda db: project_list.notes(db, project_list.SWITCHED)):
            return []
        return await self._meta.read(project_list.silences)

    async def user(self) -> SqliteStore | None:
        return self._own("user", "The file of the user's own memories")

    async def history(self) -> SqliteStore | None:
        return self._own("history", "The file of past conversations")

    async def close(self) -> None:
        for database in self._databases:
            database.close()

    async def _find(self, name: str) -> Listed:
        # No statement could hold such a name.
        row = (
            None
            if forbidden_in_text(name)
            else await self._meta.read(lambda db: project_list.named(db, name))
        )
        if row is None or not row.is_there:
            raise no_such(name)
        return row

    def _own(self, name: str, title: str) -> SqliteStore | None:
        path = self._folder / f"{name}.db"
        return self._store(path, name, None, title) if path.exists() else None

    def _store(self, path: Path, name: str, generation: int | None, title: str) -> SqliteStore:
        if path not in self._stores:
            database = InlineDatabase(path, PROJECT, title=title)
            self._databases.append(database)
            # Arrays are for questions that come again, and their maker is long to load: FTS5 it is.
            self._stores[path] = SqliteStore(database, name, generation, now, many=inf)
        return self._stores[path]


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
