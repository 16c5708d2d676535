"""The library on PostgreSQL: one schema has the catalogue and the records of every store."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, LiteralString, TypeVar
from uuid import uuid4

from everkept.core import catalog
from everkept.core.conditions import Condition, Mode
from everkept.core.copies import Holdings
from everkept.core.library import CatalogAnswers, CatalogChanges, TableLibrary
from everkept.core.ports import Token
from everkept.core.projects import Project, Silence, checked_project_name
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


class PostgresLibrary(TableLibrary):
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

    async def _list_projects(self, question: catalog.ListProjects) -> list[Project]:
        return await self._read(
            lambda cursor: listing.projects(cursor, question.status, is_last=True)
        )

    async def _get_project(self, question: catalog.GetProject) -> Project:
        project, _ = await self._named(question.name)
        return project

    async def open(self, name: str) -> tuple[Project, PostgresStore]:
        project, number = await self._named(name)
        if project.status == "archived":
            raise ProjectArchived(name)
        return project, self._store(number, name)

    async def store_of(self, project: Project) -> PostgresStore:
        found, number = await self._read(lambda cursor: listing.identified(cursor, project))
        return self._store(number, found.name)

    async def _add_project(self, change: catalog.AddProject) -> Project:
        name, description = checked_project_name(change.name), change.description
        check(description, change.project_id)
        moment = change.at or self._clock()
        own_id = change.project_id or str(uuid4())
        project = Project(own_id, name, description, "active", moment, moment)
        await self._write(lambda cursor: shelves.make(cursor, project))
        return project

    async def _set_project_status(self, change: catalog.SetProjectStatus) -> Project:
        name, status, at = change.name, change.status, self._clock()
        _check_name(name)
        return await self._write(lambda cursor: shelves.set_status(cursor, name, status, at))

    async def _delete_project(self, change: catalog.DeleteProject) -> None:
        _check_name(change.name)
        at = self._clock()
        gone = await self._write(lambda cursor: shelves.discard(cursor, change.name, at))
        await self._let_go([gone])

    async def _set_project_off(self, change: catalog.SetProjectOff) -> Project:
        project = await self.project(change.name)
        if project.is_off == change.off:
            return project
        moment = change.at or self._clock()
        return await self._write(
            lambda cursor: shelves.switch(cursor, change.name, off=change.off, at=moment)
        )

    async def _list_silences(self, _: catalog.ListSilences) -> list[Silence]:
        return await self._read(listing.silences)

    async def user(self) -> PostgresStore:
        return await self._own_store("user")

    async def history(self) -> PostgresStore:
        return await self._own_store("history")

    async def _find_workspace_project(
        self, question: catalog.FindWorkspaceProject
    ) -> Project | None:
        check(question.path)
        return await self._read(lambda cursor: listing.of_workspace(cursor, question.path))

    async def _link_workspace(self, change: catalog.LinkWorkspace) -> Project:
        check(change.path)
        return await self._write(lambda cursor: shelves.assign(cursor, change.path, change.project))

    async def _list_workspaces(self, question: catalog.ListWorkspaces) -> list[str]:
        return await self._read(lambda cursor: listing.folders_of(cursor, question.project.id))

    async def _get_note(self, question: catalog.GetNote) -> str | None:
        check(question.key)
        return await self._read(lambda cursor: keeping.note(cursor, question.key))

    async def _write_note(self, change: catalog.WriteNote) -> None:
        check(change.key, change.value)
        await self._write(lambda cursor: keeping.set_note(cursor, change.key, change.value))

    async def _list_notes(self, question: catalog.ListNotes) -> Mapping[str, str]:
        check(question.prefix)
        return await self._read(lambda cursor: keeping.notes(cursor, question.prefix, is_last=True))

    async def _add_searches(self, change: catalog.AddSearches) -> None:
        check(*(text for each in change.searches for text in (each.tool, each.query, each.session)))
        if change.searches:
            await self._write(lambda cursor: logs.add_searches(cursor, change.searches))

    async def _list_searches(self, question: catalog.ListSearches) -> list[Search]:
        check(question.session)
        return await self._read(
            lambda cursor: logs.newest_searches(cursor, question.session, question.limit)
        )

    async def _forget_searches(self, _: catalog.ForgetSearches) -> int:
        return await self._write(logs.forget_searches)

    async def _add_usage(self, change: catalog.AddUsage) -> None:
        check(*(row.tool for row in change.rows))
        if change.rows:
            await self._write(lambda cursor: logs.add_usage(cursor, change.rows))

    async def _list_usage(self, _: catalog.ListUsage) -> list[Usage]:
        return await self._read(logs.usage)

    async def _list_tokens(self, _: catalog.ListTokens) -> list[Token]:
        found = await self._read(lambda cursor: keeping.tokens(cursor, is_last=True))
        return [token for token, _ in found]

    async def _register_token(self, change: catalog.RegisterToken) -> None:
        check(change.token.id, change.token.label, change.secret_hash)
        await self._write(
            lambda cursor: keeping.add_token(cursor, change.token, change.secret_hash)
        )

    async def _revoke_token(self, change: catalog.RevokeToken) -> bool:
        check(change.token_id)
        return await self._write(lambda cursor: keeping.remove_token(cursor, change.token_id))

    async def _has_token(self, question: catalog.HasToken) -> bool:
        check(question.secret_hash)
        return await self._read(lambda cursor: keeping.knows_token(cursor, question.secret_hash))

    async def _read_holdings(self, _: catalog.ReadHoldings) -> Holdings:
        return await self._read(copying.holdings)

    async def _replace_holdings(self, change: catalog.ReplaceHoldings) -> None:
        copying.check_holdings(change.holdings)
        gone = await self._write(lambda cursor: copying.take_over(cursor, change.holdings))
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

    answers: ClassVar[CatalogAnswers] = {
        catalog.ListProjects: _list_projects,
        catalog.GetProject: _get_project,
        catalog.ListSilences: _list_silences,
        catalog.FindWorkspaceProject: _find_workspace_project,
        catalog.ListWorkspaces: _list_workspaces,
        catalog.GetNote: _get_note,
        catalog.ListNotes: _list_notes,
        catalog.ListSearches: _list_searches,
        catalog.ListUsage: _list_usage,
        catalog.ListTokens: _list_tokens,
        catalog.HasToken: _has_token,
        catalog.ReadHoldings: _read_holdings,
    }
    changes: ClassVar[CatalogChanges] = {
        catalog.AddProject: _add_project,
        catalog.SetProjectStatus: _set_project_status,
        catalog.DeleteProject: _delete_project,
        catalog.SetProjectOff: _set_project_off,
        catalog.LinkWorkspace: _link_workspace,
        catalog.WriteNote: _write_note,
        catalog.AddSearches: _add_searches,
        catalog.ForgetSearches: _forget_searches,
        catalog.AddUsage: _add_usage,
        catalog.RegisterToken: _register_token,
        catalog.RevokeToken: _revoke_token,
        catalog.ReplaceHoldings: _replace_holdings,
    }


def _check_name(name: str) -> None:
    """No project has a name that cannot be stored."""
    if not is_storable(name):
        raise no_such(name)
