"""Read-only access to a data folder for a short process, in the caller's thread.

The methods are those of the library, and finish without waiting for an event loop.
"""

from math import inf
from pathlib import Path
from typing import Never, TypeVar

import apsw

from everkept.core.projects import OffPeriod, Project, build_project_error
from everkept.core.text import find_forbidden
from everkept.core.times import read_clock
from everkept.engines.sqlite import project_list
from everkept.engines.sqlite.connection import (
    BusyHandler,
    Connection,
    Work,
    connect,
    get_log_path,
    measure_file,
    read_in_snapshot,
    refuse_to_write,
    translate_errors,
)
from everkept.engines.sqlite.project_list import ProjectRow
from everkept.engines.sqlite.schema import LIBRARY, PROJECT, Schema
from everkept.engines.sqlite.store import SqliteStore
from everkept.errors import ProjectArchived


def open_read_only_library(folder: Path) -> "SqliteReadOnlyLibrary | None":
    """Return the library, or None if nothing was ever stored."""
    return SqliteReadOnlyLibrary(folder) if (folder / "_meta.db").exists() else None


class SqliteReadOnlyLibrary:
    """The port over the files of a folder. The first query to a file opens it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._meta = InlineDatabase(folder / "_meta.db", LIBRARY, title="_meta.db")
        self._databases = [self._meta]
        self._stores: dict[Path, SqliteStore] = {}

    async def get_project(self, name: str) -> Project:
        return (await self._require_row(name)).project

    async def find_workspace_project(self, path: str) -> Project | None:
        return await self._meta.read(lambda db: project_list.find_workspace_project(db, path))

    async def get_note(self, key: str) -> str | None:
        return await self._meta.read(lambda db: project_list.find_note(db, key))

    async def open(self, name: str) -> tuple[Project, SqliteStore]:
        found = await self._require_row(name)
        if found.is_archived:
            raise ProjectArchived(name)
        path, title = self._folder / found.db_path, f'The file of project "{name}"'
        return found.project, self._open_store(path, name, found.generation, title)

    async def list_off_periods(self) -> list[OffPeriod]:
        if not await self._meta.read(lambda db: project_list.list_notes(db, project_list.OFF_HISTORY_PREFIX)):
            return []
        return await self._meta.read(project_list.list_off_periods)

    async def open_user_store(self) -> SqliteStore | None:
        return self._open_own_store("user", "The file of user memories")

    async def open_history_store(self) -> SqliteStore | None:
        return self._open_own_store("history", "The file of past conversations")

    async def close(self) -> None:
        for database in self._databases:
            database.close()

    async def _require_row(self, name: str) -> ProjectRow:
        # SQLite cannot store such a name.
        row = None if find_forbidden(name) else await self._meta.read(lambda db: project_list.find_project(db, name))
        if row is None or not row.is_there:
            raise build_project_error(name)
        return row

    def _open_own_store(self, name: str, title: str) -> SqliteStore | None:
        path = self._folder / f"{name}.db"
        return self._open_store(path, name, None, title) if path.exists() else None

    def _open_store(self, path: Path, name: str, generation: int | None, title: str) -> SqliteStore:
        if path not in self._stores:
            database = InlineDatabase(path, PROJECT, title=title)
            self._databases.append(database)
            # FTS5 ranks here: arrays pay off only for repeated queries, and numpy takes long to load.
            self._stores[path] = SqliteStore(database, name, generation, read_clock, many=inf)
        return self._stores[path]


T = TypeVar("T")

BUSY_SECONDS = 2.5  # readers wait only while a file is recovered or locked as a whole; hooks also have their own limits


class InlineDatabase:
    """Reads of one file, which must exist and have the current schema.

    A file that no process writes is read without locks: SQLite's own sharing would leave two more files beside it.
    """

    reopened = 0  # the process ends too soon

    def __init__(self, path: Path, schema: Schema, *, title: str) -> None:
        self._path = path
        self._schema = schema
        self._title = title
        self._connection: Connection | None = None
        self._seen_at_rest: tuple[int, int] | None = None

    async def read(self, question: Work[T], *, aside: bool = False, long: bool = False) -> T:
        with translate_errors(self._path, self._schema, title=self._title):
            while True:
                try:
                    found = read_in_snapshot(self._open(), question)
                except apsw.Error:
                    if not self._was_disturbed():
                        raise
                else:
                    if not self._was_disturbed():
                        return found
                self.close()  # the next connection shares the file with its writers

    def read_later(self, question: Work[None]) -> None:
        """Do nothing: the process ends before it could read."""

    async def write(self, work: Work[T], *, short: bool = False) -> Never:
        refuse_to_write(self._path, self._title)

    async def fold(self, patience: float) -> Never:
        refuse_to_write(self._path, self._title)

    def measure_size(self) -> int:
        return measure_file(self._path)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open(self) -> Connection:
        if self._connection is None:
            self._seen_at_rest = self._find_resting_state()
            self._connection = connect(
                self._path,
                self._schema,
                read_only=True,
                at_rest=self._seen_at_rest is not None,
                busy=BusyHandler(BUSY_SECONDS),
                title=self._title,
            )
        return self._connection

    def _was_disturbed(self) -> bool:
        """Return whether another process wrote to the file while it was read without locks."""
        return self._seen_at_rest is not None and self._find_resting_state() != self._seen_at_rest

    def _find_resting_state(self) -> tuple[int, int] | None:
        """Return size and time of the file, or None if a process may be writing it."""
        if not self._path.exists() or get_log_path(self._path).exists():
            return None
        state = self._path.stat()
        return state.st_size, state.st_mtime_ns
