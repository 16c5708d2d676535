"""The library on SurrealDB: a database of its own, and one for each store of records."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from everkept.core.conditions import Condition, Mode
from everkept.core.copies import Holdings
from everkept.core.ports import Token
from everkept.core.projects import Project, Silence, Status, checked_project_name
from everkept.core.searching import Search
from everkept.core.text import forbidden_in_text
from everkept.core.times import Clock, now
from everkept.core.usage import Usage
from everkept.engines.surreal.catalogue import copying, listing, logs, shelves
from everkept.engines.surreal.catalogue.desk import TURN, Desk, row_id
from everkept.engines.surreal.connecting.connection import Connection, Thrown
from everkept.engines.surreal.store import SurrealStore
from everkept.errors import Conflict, NotFound, ProjectArchived


class SurrealLibrary:
    """Every project in one namespace. Nothing is asked or made before the first call."""

    def __init__(
        self,
        connection: Connection,
        *,
        database: str = "default",
        mode: Mode,
        place: str,
        clock: Clock = now,
    ) -> None:
        self._connection = connection
        self._desk = Desk(connection, database)
        self._mode: Mode = mode
        self._place = place
        self._clock = clock
        self._stores: dict[str, SurrealStore] = {}  # by database
        self._opening = asyncio.Lock()

    async def projects(self, status: Status | None = None) -> list[Project]:
        found = await listing.projects(self._desk)
        return [project for project in found if status in (None, project.status)]

    async def project(self, name: str) -> Project:
        found = None if forbidden_in_text(name) else await listing.named(self._desk, name)
        if found is None:
            raise listing.no_such(name)
        return found

    async def open(self, name: str) -> tuple[Project, SurrealStore]:
        project = await self.project(name)
        if project.status == "archived":
            raise ProjectArchived(name)
        store, is_new = await self._store_of(project)
        # It may have been deleted while its database was made ready.
        return await self.open(name) if is_new else (project, store)

    async def store_of(self, project: Project) -> SurrealStore:
        found = await self.project(project.name)
        store, is_new = await self._store_of(found)
        return await self.store_of(project) if is_new else store

    async def create(
        self, name: str, description: str, *, project_id: str = "", at: int | None = None
    ) -> Project:
        checked_project_name(name)
        moment = at or self._clock()
        return await shelves.make(self._desk, name, description, project_id, moment)

    async def archive(self, name: str) -> Project:
        return await self._set_status(name, "archived")

    async def restore(self, name: str) -> Project:
        return await self._set_status(name, "active")

    async def delete(self, name: str) -> None:
        project = await self.project(name)
        self._stores.pop(shelves.database_of(self._desk, project.id), None)
        await shelves.discard(self._desk, project, self._clock())

    async def switch(self, name: str, *, off: bool, at: int | None = None) -> Project:
        project = await self.project(name)
        if project.is_off == off:
            return project
        return await shelves.switch(self._desk, project, off=off, at=at or self._clock())

    async def silences(self) -> list[Silence]:
        return await listing.silences(self._desk)

    async def user(self) -> SurrealStore:
        return await self._store(f"{self._desk.database}_user")

    async def history(self) -> SurrealStore:
        return await self._store(f"{self._desk.database}_history")

    async def project_of_workspace(self, path: str) -> Project | None:
        return await listing.of_workspace(self._desk, path)

    async def assign_workspace(self, path: str, project: Project) -> Project:
        text = f"""
            BEGIN; {TURN};
            IF (SELECT VALUE id FROM ONLY $project) IS NONE {{ THROW 'gone' }};
            IF (SELECT VALUE id FROM ONLY $id) IS NONE {{
                CREATE $id SET path = $path, project = $project
            }};
            COMMIT;"""
        ids = {"id": row_id("workspace", path), "project": row_id("project", project.id)}
        try:
            await self._desk.alter(text, {**ids, "path": path})
        except Thrown as thrown:
            raise NotFound("project", project.name, hint="It was deleted meanwhile.") from thrown
        return await self.project_of_workspace(path) or project

    async def workspaces_of(self, project: Project) -> list[str]:
        return await listing.folders_of(self._desk, project.id)

    async def note(self, key: str) -> str | None:
        [value] = await self._desk.ask(
            "SELECT VALUE value FROM ONLY $id", {"id": row_id("note", key)}
        )
        return value

    async def set_note(self, key: str, value: str | None) -> None:
        values = {"id": row_id("note", key), "key": key, "text": value}
        if value is None:
            await self._desk.alter("DELETE $id", values)
        else:
            await self._desk.alter("UPSERT $id SET key = $key, value = $text", values)

    async def notes(self, prefix: str) -> Mapping[str, str]:
        [rows] = await self._desk.ask(
            "SELECT key, value FROM note WHERE string::starts_with(key, $prefix)",
            {"prefix": prefix},
        )
        return {row["key"]: row["value"] for row in rows}

    async def add_searches(self, searches: Sequence[Search]) -> None:
        await logs.add_searches(self._desk, searches)

    async def searches(self, *, session: str | None = None, limit: int = 100) -> list[Search]:
        return await logs.newest_searches(self._desk, session, limit)

    async def forget_searches(self) -> int:
        return await logs.forget_searches(self._desk)

    async def add_usage(self, rows: Sequence[Usage]) -> None:
        await logs.add_usage(self._desk, rows)

    async def usage(self) -> list[Usage]:
        return await logs.usage(self._desk)

    async def tokens(self) -> list[Token]:
        [rows] = await self._desk.ask("SELECT record::id(id) AS id, label, created_at FROM token")
        return sorted(
            (Token(**row) for row in rows), key=lambda token: (token.created_at, token.id)
        )

    async def add_token(self, token: Token, secret_hash: str) -> None:
        text = """{
            IF (SELECT VALUE id FROM ONLY $id) IS NOT NONE { THROW 'taken' };
            IF (SELECT VALUE id FROM token WHERE secret_hash = $row.secret_hash)[0] IS NOT NONE {
                THROW 'taken'
            };
            CREATE $id CONTENT $row
        }"""
        row = {"label": token.label, "secret_hash": secret_hash, "created_at": token.created_at}
        try:
            await self._desk.alter(text, {"id": row_id("token", token.id), "row": row})
        except Thrown as thrown:
            raise Conflict(f"There is a token {token.id} already.", id=token.id) from thrown

    async def remove_token(self, token_id: str) -> bool:
        [removed] = await self._desk.alter(
            "DELETE $id RETURN BEFORE", {"id": row_id("token", token_id)}
        )
        return bool(removed)

    async def knows_token(self, secret_hash: str) -> bool:
        [found] = await self._desk.ask(
            "SELECT VALUE id FROM token WHERE secret_hash = $hash", {"hash": secret_hash}
        )
        return bool(found)

    async def holdings(self) -> Holdings:
        return await copying.holdings(self._desk)

    async def take_over(self, holdings: Holdings) -> None:
        await copying.take_over(self._desk, holdings, self._clock())
        self._stores.clear()

    async def on_change(self, hear: Callable[[], None]) -> bool:
        return False

    @property
    def condition(self) -> Condition:
        return Condition("surreal", self._mode, version=self._desk.version, place=self._place)

    async def close(self) -> None:
        self._stores.clear()
        self._desk.forget()
        await self._connection.close()

    async def _set_status(self, name: str, status: Status) -> Project:
        project = await self.project(name)
        return await shelves.set_status(self._desk, project, status, self._clock())

    async def _store_of(self, project: Project) -> tuple[SurrealStore, bool]:
        """With whether nobody had asked for it here."""
        database = shelves.database_of(self._desk, project.id)
        is_new = database not in self._stores
        store = await self._store(database, project.name)
        if is_new and project.status == "archived":
            await shelves.tell(self._desk, project)
        return store, is_new

    async def _store(self, database: str, name: str = "") -> SurrealStore:
        """Without the name of a project it belongs to none."""
        async with self._opening:
            if database not in self._stores:
                store = SurrealStore(
                    self._connection, database, self._clock, name, of_project=bool(name)
                )
                await store.revision()  # which makes the database where it is missing
                self._stores[database] = store
            return self._stores[database]
