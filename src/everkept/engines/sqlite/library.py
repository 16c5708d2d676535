"""The library on disk: `_meta.db`, a file per project, and the archive folder."""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import WeakSet

import apsw

from everkept.core.conditions import Condition
from everkept.core.ports import RecordStore, Token
from everkept.core.projects import Project, Silence, Status, checked_project_name
from everkept.core.searching import Search
from everkept.core.text import forbidden_in_text
from everkept.core.times import Clock, iso, now
from everkept.core.usage import Usage
from everkept.engines.sqlite import listing, search_log, switches, tool_usage
from everkept.engines.sqlite.absent import AbsentStore
from everkept.engines.sqlite.connections import Synchronous
from everkept.engines.sqlite.database import Database
from everkept.engines.sqlite.founding import make_library, make_store, remove_stale_drafts
from everkept.engines.sqlite.listing import Listed, no_such
from everkept.engines.sqlite.moves import (
    Place,
    checked_id,
    discard,
    gone,
    make,
    move_away,
    move_back,
    repair,
    settle,
)
from everkept.engines.sqlite.schema import LIBRARY, PROJECT, Schema
from everkept.engines.sqlite.sizes import usable
from everkept.engines.sqlite.sql import Connection
from everkept.engines.sqlite.store import SqliteStore
from everkept.errors import Conflict, NotFound, ProjectArchived

if TYPE_CHECKING:  # who copies needs it, and hardly anybody does
    from everkept.core.copies import Holdings

OPEN_STORES = 32  # least recently used ones are closed beyond this; they reopen by themselves


class SqliteLibrary:
    """Every project under one folder. Nothing is opened or made before the first call."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock = now,
        synchronous: Synchronous = "normal",
        inline_writes: bool = False,
    ) -> None:
        """With `inline_writes`, a short write may take the caller's thread: for one client."""
        self._folder = folder
        self._inline_writes = inline_writes
        self._clock = clock
        self._synchronous: Synchronous = synchronous
        self._meta_db: Database | None = None
        self._stores: OrderedDict[str, tuple[SqliteStore, Database]] = OrderedDict()
        # Also those that were dropped from the stores but are in use somewhere, and so open again.
        self._databases: WeakSet[Database] = WeakSet()
        self._owned: dict[str, SqliteStore] = {}
        self._opening = asyncio.Lock()
        self._read_only = False

    async def projects(self, status: Status | None = None) -> list[Project]:
        meta = await self._meta()
        if not self._read_only:
            await repair(meta, self._folder)  # a move that a crash interrupted has no status yet
        return await meta.read(lambda db: listing.projects(db, status))

    async def project(self, name: str) -> Project:
        return (await self._find(name)).project

    async def open(self, name: str) -> tuple[Project, SqliteStore]:
        row = await self._find(name)
        if row.is_archived:
            raise ProjectArchived(name)
        return await self._opened(row)

    async def store_of(self, project: Project) -> SqliteStore:
        _, store = await self._opened(await self._find(project.name))
        return store

    async def _opened(self, row: Listed) -> tuple[Project, SqliteStore]:
        name = row.project.name
        known = self._stores.get(row.db_path)
        if known is not None and known[0].generation == row.generation:
            self._stores.move_to_end(row.db_path)
            return row.project, known[0]
        path, place = self._folder / row.db_path, Place(self._folder, row.project.id, name)
        if not path.exists():
            if (found := await self._find(name)) == row:
                raise gone(place, path)
            return await self._opened(found)  # it was moved meanwhile
        database = self._database(path, PROJECT, title=place.title)
        store = SqliteStore(database, name, row.generation, self._clock)
        self._stores[row.db_path] = (store, database)
        if known is not None:
            await known[1].close()
        while len(self._stores) > OPEN_STORES:
            _, (_, oldest) = self._stores.popitem(last=False)
            await oldest.close()
        return row.project, store

    async def create(
        self, name: str, description: str, *, project_id: str = "", at: int | None = None
    ) -> Project:
        checked_project_name(name)
        place = Place(self._folder, checked_id(project_id or str(uuid4())), name)
        meta = await self._meta()
        with usable(place.active):
            await make(meta, place, description, iso(at or self._clock()))
        return await self.project(name)

    async def archive(self, name: str) -> Project:
        place = await self._place(name)
        await self._forget(place)
        with usable(place.active):
            await move_away(await self._meta(), place, iso(self._clock()))
        return await self.project(name)

    async def restore(self, name: str) -> Project:
        place = await self._place(name)
        await self._forget(place)
        with usable(place.archived):
            await move_back(await self._meta(), place, iso(self._clock()))
        return await self.project(name)

    async def delete(self, name: str) -> None:
        place = await self._place(name)
        await self._forget(place)
        meta, at = await self._meta(), self._clock()
        if await self.note(listing.SWITCHED + place.id):
            await meta.write(lambda db: switches.note_leaving(db, place.id, at))
        with usable(place.active):
            await discard(meta, place)

    async def switch(self, name: str, *, off: bool, at: int | None = None) -> Project:
        project, moment = await self.project(name), at or self._clock()
        if project.is_off == off:
            return project
        meta = await self._meta()
        if not await meta.write(lambda db: switches.switch(db, project.id, off=off, at=moment)):
            raise NotFound("project", name, hint="It was deleted meanwhile.")
        return await self.project(name)

    async def silences(self) -> list[Silence]:
        return await (await self._meta()).read(switches.silences)

    async def user(self) -> RecordStore:
        return await self._own("user", "The file of the user's own memories")

    async def history(self) -> RecordStore:
        return await self._own("history", "The file of past conversations")

    async def _own(self, name: str, title: str) -> RecordStore:
        """One of the stores that belong to no project."""
        await self._meta()
        path = self._folder / f"{name}.db"
        async with self._opening:
            if name in self._owned:
                return self._owned[name]
            with usable(path):
                if not await asyncio.to_thread(path.exists):
                    if self._read_only:
                        return AbsentStore(path)
                    await asyncio.to_thread(make_store, path)
            database = self._database(path, PROJECT, title=title)
            self._owned[name] = SqliteStore(database, name, None, self._clock)
            return self._owned[name]

    async def project_of_workspace(self, path: str) -> Project | None:
        return await (await self._meta()).read(lambda db: listing.of_workspace(db, path))

    async def assign_workspace(self, path: str, project: Project) -> Project:
        def work(db: Connection) -> None:
            try:
                db.execute("INSERT OR IGNORE INTO workspaces VALUES (?, ?)", (path, project.id))
            except apsw.ConstraintError as error:
                raise NotFound("project", project.name, hint="It was deleted meanwhile.") from error

        await (await self._meta()).write(work)
        return await self.project_of_workspace(path) or project

    async def workspaces_of(self, project: Project) -> list[str]:
        rows = await (await self._meta()).read(
            lambda db: db.execute(
                "SELECT path FROM workspaces WHERE project = ? ORDER BY path", (project.id,)
            ).fetchall()
        )
        return [path for (path,) in rows]

    async def note(self, key: str) -> str | None:
        return await (await self._meta()).read(lambda db: listing.note(db, key))

    async def set_note(self, key: str, value: str | None) -> None:
        meta = await self._meta()
        if value is None:
            await meta.write(lambda db: _execute(db, "DELETE FROM notes WHERE key = ?", key))
        else:
            await meta.write(
                lambda db: _execute(db, "INSERT OR REPLACE INTO notes VALUES (?,?)", key, value)
            )

    async def notes(self, prefix: str) -> Mapping[str, str]:
        return await (await self._meta()).read(lambda db: listing.notes(db, prefix))

    async def add_searches(self, searches: Sequence[Search]) -> None:
        await (await self._meta()).write(lambda db: search_log.add(db, searches))

    async def searches(self, *, session: str | None = None, limit: int = 100) -> list[Search]:
        return await (await self._meta()).read(lambda db: search_log.newest(db, session, limit))

    async def forget_searches(self) -> int:
        return await (await self._meta()).write(search_log.forget)

    async def add_usage(self, rows: Sequence[Usage]) -> None:
        await (await self._meta()).write(lambda db: tool_usage.add(db, rows))

    async def usage(self) -> list[Usage]:
        return await (await self._meta()).read(tool_usage.most_called)

    async def tokens(self) -> list[Token]:
        meta = await self._meta()
        rows = await meta.read(
            lambda db: db.execute(
                "SELECT id, label, created_at FROM tokens ORDER BY created_at, id"
            ).fetchall()
        )
        return [Token(*row) for row in rows]

    async def add_token(self, token: Token, secret_hash: str) -> None:
        def work(db: Connection) -> None:
            try:
                db.execute(
                    "INSERT INTO tokens(id, label, secret_hash, created_at) VALUES (?,?,?,?)",
                    (token.id, token.label, secret_hash, token.created_at),
                )
            except apsw.ConstraintError as error:
                raise Conflict(f"There is a token {token.id} already.", id=token.id) from error

        await (await self._meta()).write(work)

    async def remove_token(self, token_id: str) -> bool:
        meta = await self._meta()

        def work(db: Connection) -> bool:
            db.execute("DELETE FROM tokens WHERE id = ?", (token_id,))
            return db.changes() > 0

        return await meta.write(work)

    async def knows_token(self, secret_hash: str) -> bool:
        meta = await self._meta()
        found = await meta.read(
            lambda db: (
                db.execute("SELECT count(*) FROM tokens WHERE secret_hash = ?", (secret_hash,)).get
            )
        )
        return bool(found)

    async def holdings(self) -> "Holdings":
        from everkept.engines.sqlite.holding import held

        await self.projects()  # which mends what a crash left
        return await (await self._meta()).read(held, long=True)

    async def take_over(self, holdings: "Holdings") -> None:
        from everkept.engines.sqlite.holding import TakingOver

        await self.projects()
        with usable(self._folder):
            await TakingOver(await self._meta(), self._folder, self._forget).take_over(holdings)

    async def on_change(self, hear: Callable[[], None]) -> bool:
        return False

    @property
    def condition(self) -> Condition:
        version = apsw.sqlite_lib_version()
        return Condition("sqlite", "embedded-file", version=version, place=str(self._folder))

    async def close(self) -> None:
        """Ends within moments: what still runs is interrupted, what was acknowledged is kept."""
        known = set(self._databases)  # nothing else may hold them from here on
        self._stores.clear()
        self._meta_db = None
        self._owned.clear()
        # Again and again: a call that comes meanwhile opens what it uses anew.
        while opened := [each for each in known.union(self._databases) if each.is_open]:
            for database in opened:
                await database.close(interrupt=True)

    async def _find(self, name: str) -> Listed:
        if forbidden_in_text(name):
            raise no_such(name)
        row = await self._row_of(name)
        if row is not None and row.transition is not None and not self._read_only:
            await settle(await self._meta(), Place(self._folder, row.project.id, name))
            row = await self._row_of(name)
        if row is None or not row.is_there:
            raise no_such(name)
        return row

    async def _row_of(self, name: str) -> Listed | None:
        return await (await self._meta()).read(lambda db: listing.named(db, name))

    async def _place(self, name: str) -> Place:
        return Place(self._folder, (await self._find(name)).project.id, name)

    async def _forget(self, place: Place) -> None:
        for path in (place.active, place.archived):
            known = self._stores.pop(place.relative(path), None)
            if known is not None:
                await known[1].close()

    def _database(self, path: Path, schema: Schema, title: str | None = None) -> Database:
        database = Database(
            path,
            schema,
            synchronous=self._synchronous,
            read_only=self._read_only,
            inline_writes=self._inline_writes,
            title=title,
        )
        self._databases.add(database)
        return database

    async def _meta(self) -> Database:
        """Opens the library at the first call: makes the folder, and mends what a crash left."""
        if self._meta_db is not None:
            return self._meta_db
        async with self._opening:
            if self._meta_db is None:
                self._meta_db = await self._open_meta()
        return self._meta_db

    async def _open_meta(self) -> Database:
        path = self._folder / "_meta.db"
        with usable(self._folder):
            if not path.exists():
                await asyncio.to_thread(make_library, self._folder, self._clock)
            self._read_only = not os.access(self._folder, os.W_OK)
            if not self._read_only:
                remove_stale_drafts(self._folder)
        meta = self._database(path, LIBRARY)
        if not self._read_only:
            await repair(meta, self._folder)
        return meta


def _execute(db: Connection, statement: str, *bindings: Any) -> None:
    db.execute(statement, bindings)
