"""A data folder for who only reads, and only for a moment: it makes and mends nothing.

Its methods are those of the library, and end without ever waiting for an event loop.
"""

from math import inf
from pathlib import Path

from everkept.core.projects import Project, Silence
from everkept.core.text import forbidden_in_text
from everkept.core.times import now
from everkept.engines.sqlite import listing
from everkept.engines.sqlite.inline import InlineDatabase
from everkept.engines.sqlite.listing import Listed, no_such
from everkept.engines.sqlite.schema import LIBRARY, PROJECT
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
        return await self._meta.read(lambda db: listing.of_workspace(db, path))

    async def open(self, name: str) -> tuple[Project, SqliteStore]:
        found = await self._find(name)
        if found.is_archived:
            raise ProjectArchived(name)
        path, title = self._folder / found.db_path, f'The file of project "{name}"'
        return found.project, self._store(path, name, found.generation, title)

    async def silences(self) -> list[Silence]:
        if not await self._meta.read(lambda db: listing.notes(db, listing.SWITCHED)):
            return []
        from everkept.engines.sqlite import switches  # hardly anybody ever switches one off

        return await self._meta.read(switches.silences)

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
            else await self._meta.read(lambda db: listing.named(db, name))
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
