"""The library on PostgreSQL: one schema has the catalogue and the records of every store."""

from collections.abc import Callable, Mapping, Sequence
from typing import LiteralString, TypeVar
from uuid import uuid4

from everkept.core.conditions import Condition, Mode
from everkept.core.copies import Holdings
from everkept.core.ports import Token
from everkept.core.projects import Project, Silence, Status, checked_project_name
from everkept.core.searching import Search
from everkept.core.times import Clock, now
from everkept.core.usage import Usage
from everkept.engines.postgres.catalogue import copying, keeping, listing, logs, shelves
from everkept.engines.postgres.catalogue.listing import no_such
from everkept.engines.postgres.catalogue.texts import check, is_storable
from everkept.engines.postgres.connecting.database import Cursor, Database, Work
from everkept.engines.postgres.searching.index_keeping import IndexKeeper
from everkept.engines.postgres.store import PostgresStore, authors_in
from everkept.errors import ProjectArchived

T = TypeVar("T")


class PostgresLibrary:
    """Every project in one schema, which many servers share. Nothing is asked before a call."""

    def __init__(self, database: Database, *, mode: Mode, place: str, clock: Clock = now) -> None:
        self._database = database
        self._mode: Mode = mode
        self._place = place
        self._clock = clock
        self._version = ""  # of the server, once it is known
        self._own: dict[str, int] = {}  # numbers of the stores that belong to no project
        self._stores: dict[tuple[int, str], PostgresStore] = {}  # by number and title
        self._indexes = IndexKeeper(database)
        self._authors = authors_in(database)

    async def projects(self, status: Status | None = None) -> list[Project]:
        return await self._read(lambda cursor: listing.projects(cursor, status, is_last=True))

    async def project(self, name: str) -> Project:
        project, _ = await self._named(name)
        return project

    async def open(self, name: str) -> tuple[Project, PostgresStore]:
        project, number = await self._named(name)
        if project.status == "archived":
            raise ProjectArchived(name)
        return project, self._store(number, name)

    async def store_of(self, project: Project) -> PostgresStore:
        found, number = await self._read(lambda cursor: listing.identified(cursor, project))
        return self._store(number, found.name)

    async def create(
        self, name: str, description: str, *, project_id: str = "", at: int | None = None
    ) -> Project:
        checked_project_name(name)
        check(description, project_id)
        moment = at or self._clock()
        project = Project(project_id or str(uuid4()), name, description, "active", moment, moment)
        await self._write(lambda cursor: shelves.make(cursor, project))
        return project

    async def archive(self, name: str) -> Project:
        return await self._set_status(name, "archived")

    async def restore(self, name: str) -> Project:
        return await self._set_status(name, "active")

    async def delete(self, name: str) -> None:
        _check_name(name)
        at = self._clock()
        gone = await self._write(lambda cursor: shelves.discard(cursor, name, at))
        await self._let_go([gone])

    async def switch(self, name: str, *, off: bool, at: int | None = None) -> Project:
        project = await self.project(name)
        if project.is_off == off:
            return project
        moment = at or self._clock()
        return await self._write(lambda cursor: shelves.switch(cursor, name, off=off, at=moment))

    async def silences(self) -> list[Silence]:
        return await self._read(listing.silences)

    async def user(self) -> PostgresStore:
        return await self._own_store("user")

    async def history(self) -> PostgresStore:
        return await self._own_store("history")

    async def project_of_workspace(self, path: str) -> Project | None:
        check(path)
        return await self._read(lambda cursor: listing.of_workspace(cursor, path))

    async def assign_workspace(self, path: str, project: Project) -> Project:
        check(path)
        return await self._write(lambda cursor: shelves.assign(cursor, path, project))

    async def workspaces_of(self, project: Project) -> list[str]:
        return await self._read(lambda cursor: listing.folders_of(cursor, project.id))

    async def note(self, key: str) -> str | None:
        check(key)
        return await self._read(lambda cursor: keeping.note(cursor, key))

    async def set_note(self, key: str, value: str | None) -> None:
        check(key, value)
        await self._write(lambda cursor: keeping.set_note(cursor, key, value))

    async def notes(self, prefix: str) -> Mapping[str, str]:
        check(prefix)
        return await self._read(lambda cursor: keeping.notes(cursor, prefix, is_last=True))

    async def add_searches(self, searches: Sequence[Search]) -> None:
        check(*(text for each in searches for text in (each.tool, each.query, each.session)))
        if searches:
            await self._write(lambda cursor: logs.add_searches(cursor, searches))

    async def searches(self, *, session: str | None = None, limit: int = 100) -> list[Search]:
        check(session)
        return await self._read(lambda cursor: logs.newest_searches(cursor, session, limit))

    async def forget_searches(self) -> int:
        return await self._write(logs.forget_searches)

    async def add_usage(self, rows: Sequence[Usage]) -> None:
        check(*(row.tool for row in rows))
        if rows:
            await self._write(lambda cursor: logs.add_usage(cursor, rows))

    async def usage(self) -> list[Usage]:
        return await self._read(logs.usage)

    async def tokens(self) -> list[Token]:
        found = await self._read(lambda cursor: keeping.tokens(cursor, is_last=True))
        return [token for token, _ in found]

    async def add_token(self, token: Token, secret_hash: str) -> None:
        check(token.id, token.label, secret_hash)
        await self._write(lambda cursor: keeping.add_token(cursor, token, secret_hash))

    async def remove_token(self, token_id: str) -> bool:
        check(token_id)
        return await self._write(lambda cursor: keeping.remove_token(cursor, token_id))

    async def knows_token(self, secret_hash: str) -> bool:
        check(secret_hash)
        return await self._read(lambda cursor: keeping.knows_token(cursor, secret_hash))

    async def holdings(self) -> Holdings:
        return await self._read(copying.holdings)

    async def take_over(self, holdings: Holdings) -> None:
        copying.check_holdings(holdings)
        gone = await self._write(lambda cursor: copying.take_over(cursor, holdings))
        await self._let_go(gone)

    @property
    def condition(self) -> Condition:
        return Condition("postgres", self._mode, version=self._version, place=self._place)

    async def on_change(self, hear: Callable[[], None]) -> bool:
        def heard(store: int | None) -> None:
            if store is None:
                self._indexes.note_news()
            hear()

        self._database.listen(heard)
        return True

    async def settled(self) -> None:
        """Waits until all indexes are made that stores are to have: for those who measure."""
        await self._indexes.settled()

    async def close(self) -> None:
        self._stores.clear()
        await self._indexes.close()
        await self._database.close()

    async def _read(self, question: Work[T]) -> T:
        return await self._database.read(self._noting_version(question))

    async def _write(self, work: Work[T]) -> T:
        return await self._database.write(self._noting_version(work))

    def _noting_version(self, work: Work[T]) -> Work[T]:
        def noting(cursor: Cursor) -> T:
            major, minor = divmod(cursor.server_version, 10_000)
            self._version = f"{major}.{minor}"
            return work(cursor)

        return noting

    async def _set_status(self, name: str, status: Status) -> Project:
        _check_name(name)
        at = self._clock()
        return await self._write(lambda cursor: shelves.set_status(cursor, name, status, at))

    async def _named(self, name: str) -> listing.Shelved:
        _check_name(name)
        return await self._read(lambda cursor: listing.named(cursor, name))

    async def _own_store(self, name: LiteralString) -> PostgresStore:
        if name not in self._own:
            self._own[name] = await self._read(lambda cursor: listing.own_store(cursor, name))
        return self._store(self._own[name], name)

    def _store(self, number: int, title: str) -> PostgresStore:
        key = number, title
        if key not in self._stores:
            self._stores[key] = PostgresStore(
                self._database,
                number,
                title,
                self._clock,
                indexes=self._indexes,
                authors=self._authors,
            )
        return self._stores[key]

    async def _let_go(self, gone: Sequence[int]) -> None:
        """With all their rows: a command that has deleted a project may end right after."""
        self._stores = {key: store for key, store in self._stores.items() if key[0] not in gone}
        for store in gone:
            self._indexes.note_gone(store)
        await self._indexes.removed()


def _check_name(name: str) -> None:
    """No project has a name that cannot be stored."""
    if not is_storable(name):
        raise no_such(name)
