"""Library on PostgreSQL: one schema holds the catalog and the records of every store."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, LiteralString, TypeVar
from uuid import uuid4

from everkept.core import library as questions
from everkept.core.answers import CatalogData, SearchRecord, TableFault
from everkept.core.library import CatalogAnswers, CatalogChanges, Condition, Mode, TableLibrary
from everkept.core.mcp import ToolUsage
from everkept.core.ports import Token
from everkept.core.projects import OffPeriod, Project, build_project_error, validate_project_name
from everkept.core.times import Clock, read_clock
from everkept.engines.postgres import catalog, project_lifecycle
from everkept.engines.postgres import schema as tables
from everkept.engines.postgres.catalog import check_texts, is_storable
from everkept.engines.postgres.connection import Credentials
from everkept.engines.postgres.database import CONNECT_SECONDS, QUERY_SECONDS, Database, Work
from everkept.engines.postgres.indexes import IndexMaintenance
from everkept.engines.postgres.statements import Cursor
from everkept.engines.postgres.store import PostgresStore, build_author_query
from everkept.errors import ProjectArchived
from everkept.values import replace

T = TypeVar("T")


def open_database(
    url: str,
    schema: str,
    *,
    credentials: Credentials | None = None,
    ca: Path | None = None,
    time_limit: float = QUERY_SECONDS,
    connect_limit: float = CONNECT_SECONDS,
    founds: bool = True,
) -> Database:
    """Open a schema. Its tables are created or migrated before the first query.

    Without `founds`, a schema without tables is refused.
    """
    return Database(
        url,
        schema,
        layout=replace(tables.LAYOUT, founds=founds),
        credentials=credentials,
        ca=ca,
        time_limit=time_limit,
        connect_limit=connect_limit,
    )


class PostgresLibrary(TableLibrary):
    """Library in one schema that several servers share. The first call connects."""

    def __init__(self, database: Database, *, mode: Mode, place: str, clock: Clock = read_clock) -> None:
        self._database = database
        self._mode: Mode = mode
        self._place = place
        self._clock = clock
        self._version = ""  # of the server, known after the first call
        self._own: dict[str, int] = {}  # numbers of the stores without a project
        self._stores: dict[tuple[int, str], PostgresStore] = {}  # by number and title
        self._indexes = IndexMaintenance(database)
        self._authors = build_author_query(database)

    async def _list_projects(self, question: questions.ListProjects) -> list[Project]:
        return await self._read(lambda cursor: catalog.list_projects(cursor, question.status, is_last=True))

    async def _get_project(self, question: questions.GetProject) -> Project:
        project, _ = await self._find_project(question.name)
        return project

    async def open(self, name: str) -> tuple[Project, PostgresStore]:
        project, number = await self._find_project(name)
        if project.status == "archived":
            raise ProjectArchived(name)
        return project, self._open_store(number, name)

    async def get_store(self, project: Project) -> PostgresStore:
        found, number = await self._read(lambda cursor: catalog.find_project_by_id(cursor, project))
        return self._open_store(number, found.name)

    async def _add_project(self, change: questions.AddProject) -> Project:
        name, description = validate_project_name(change.name), change.description
        check_texts(description, change.project_id)
        moment = change.at or self._clock()
        own_id = change.project_id or str(uuid4())
        project = Project(own_id, name, description, "active", moment, moment)
        await self._write(lambda cursor: project_lifecycle.create_project(cursor, project))
        return project

    async def _set_project_status(self, change: questions.SetProjectStatus) -> Project:
        _check_name(change.name)
        at = self._clock()
        return await self._write(lambda cursor: project_lifecycle.set_status(cursor, change, at))

    async def _delete_project(self, change: questions.DeleteProject) -> None:
        _check_name(change.name)
        at = self._clock()
        gone = await self._write(lambda cursor: project_lifecycle.delete_project(cursor, change.name, at))
        await self._remove_stores([gone])

    async def _set_project_off(self, change: questions.SetProjectOff) -> Project:
        project = await self.get_project(change.name)
        if project.is_off == change.off:
            return project
        moment = change.at or self._clock()
        return await self._write(
            lambda cursor: project_lifecycle.set_off(cursor, change.name, off=change.off, at=moment)
        )

    async def _list_off_periods(self, _: questions.ListOffPeriods) -> list[OffPeriod]:
        return await self._read(catalog.list_off_periods)

    async def open_user_store(self) -> PostgresStore:
        return await self._open_own_store("user")

    async def open_history_store(self) -> PostgresStore:
        return await self._open_own_store("history")

    async def _find_workspace_project(self, question: questions.FindWorkspaceProject) -> Project | None:
        check_texts(question.path)
        return await self._read(lambda cursor: catalog.find_workspace_project(cursor, question.path))

    async def _link_workspace(self, change: questions.LinkWorkspace) -> Project:
        check_texts(change.path)
        return await self._write(lambda cursor: project_lifecycle.link_workspace(cursor, change.path, change.project))

    async def _move_workspace(self, change: questions.MoveWorkspace) -> None:
        check_texts(change.path)
        await self._write(lambda cursor: project_lifecycle.move_workspace(cursor, change.path, change.project))

    async def _list_workspaces(self, question: questions.ListWorkspaces) -> list[str]:
        return await self._read(lambda cursor: catalog.list_workspaces(cursor, question.project.id))

    async def _get_note(self, question: questions.GetNote) -> str | None:
        check_texts(question.key)
        return await self._read(lambda cursor: catalog.get_note(cursor, question.key))

    async def _write_note(self, change: questions.WriteNote) -> None:
        check_texts(change.key, change.value)
        await self._write(lambda cursor: catalog.write_note(cursor, change.key, change.value))

    async def _list_notes(self, question: questions.ListNotes) -> Mapping[str, str]:
        check_texts(question.prefix)
        return await self._read(lambda cursor: catalog.list_notes(cursor, question.prefix, is_last=True))

    async def _add_searches(self, change: questions.AddSearches) -> None:
        check_texts(*(text for each in change.searches for text in (each.tool, each.query, each.session)))
        if change.searches:
            await self._write(lambda cursor: catalog.add_searches(cursor, change.searches))

    async def _list_searches(self, question: questions.ListSearches) -> list[SearchRecord]:
        check_texts(question.session)
        return await self._read(lambda cursor: catalog.list_searches(cursor, question.session, question.limit))

    async def _forget_searches(self, _: questions.ForgetSearches) -> int:
        return await self._write(catalog.forget_searches)

    async def _add_usage(self, change: questions.AddUsage) -> None:
        check_texts(*(row.tool for row in change.rows))
        if change.rows:
            await self._write(lambda cursor: catalog.add_usage(cursor, change.rows))

    async def _list_usage(self, _: questions.ListUsage) -> list[ToolUsage]:
        return await self._read(catalog.list_usage)

    async def _list_tokens(self, _: questions.ListTokens) -> list[Token]:
        found = await self._read(lambda cursor: catalog.list_tokens(cursor, is_last=True))
        return [token for token, _ in found]

    async def _register_token(self, change: questions.RegisterToken) -> None:
        check_texts(change.token.id, change.token.label, change.secret_hash)
        await self._write(lambda cursor: catalog.register_token(cursor, change.token, change.secret_hash))

    async def _revoke_token(self, change: questions.RevokeToken) -> bool:
        check_texts(change.token_id)
        return await self._write(lambda cursor: catalog.revoke_token(cursor, change.token_id))

    async def _has_token(self, question: questions.HasToken) -> bool:
        check_texts(question.secret_hash)
        return await self._read(lambda cursor: catalog.has_token(cursor, question.secret_hash))

    async def _read_catalog_data(self, _: questions.ReadCatalogData) -> CatalogData:
        return await self._read(project_lifecycle.read_catalog_data)

    async def _find_table_faults(self, _: questions.FindTableFaults) -> list[TableFault]:
        return await self._database.find_table_faults()

    async def _replace_catalog_data(self, change: questions.ReplaceCatalogData) -> None:
        project_lifecycle.check_catalog_data(change.catalog_data)
        gone = await self._write(lambda cursor: project_lifecycle.replace_catalog_data(cursor, change.catalog_data))
        await self._remove_stores(gone)

    @property
    def condition(self) -> Condition:
        return Condition("postgres", self._mode, version=self._version, place=self._place)

    async def on_change(self, hear: Callable[[], None]) -> bool:
        def heard(store: int | None) -> None:
            if store is None:
                self._indexes.note_library_change()
            hear()

        self._database.listen(heard)
        return True

    async def wait_until_settled(self) -> None:
        """Wait until all indexes are built, for benchmarks and tests."""
        await self._indexes.wait_until_settled()

    async def close(self) -> None:
        self._stores.clear()
        await self._indexes.close()
        await self._database.close()

    async def _read(self, question: Work[T]) -> T:
        return await self._database.read(self._wrap_work(question))

    async def _write(self, work: Work[T]) -> T:
        return await self._database.write(self._wrap_work(work))

    def _wrap_work(self, work: Work[T]) -> Work[T]:
        def noting(cursor: Cursor) -> T:
            major, minor = divmod(cursor.server_version, 10_000)
            self._version = f"{major}.{minor}"
            return work(cursor)

        return noting

    async def _find_project(self, name: str) -> catalog.StoredProject:
        _check_name(name)
        return await self._read(lambda cursor: catalog.find_project(cursor, name))

    async def _open_own_store(self, name: LiteralString) -> PostgresStore:
        if name not in self._own:
            self._own[name] = await self._read(lambda cursor: catalog.read_store_number(cursor, name))
        return self._open_store(self._own[name], name)

    def _open_store(self, number: int, title: str) -> PostgresStore:
        key = number, title
        if key not in self._stores:
            self._stores[key] = PostgresStore(
                self._database, number, title, self._clock, indexes=self._indexes, authors=self._authors
            )
        return self._stores[key]

    async def _remove_stores(self, gone: Sequence[int]) -> None:
        """Wait until all rows are removed: a command that deletes a project may end right afterwards."""
        self._stores = {key: store for key, store in self._stores.items() if key[0] not in gone}
        for store in gone:
            self._indexes.note_deleted(store)
        await self._indexes.wait_until_removed()

    answers: ClassVar[CatalogAnswers] = {
        questions.ListProjects: _list_projects,
        questions.GetProject: _get_project,
        questions.ListOffPeriods: _list_off_periods,
        questions.FindWorkspaceProject: _find_workspace_project,
        questions.ListWorkspaces: _list_workspaces,
        questions.GetNote: _get_note,
        questions.ListNotes: _list_notes,
        questions.ListSearches: _list_searches,
        questions.ListUsage: _list_usage,
        questions.ListTokens: _list_tokens,
        questions.HasToken: _has_token,
        questions.ReadCatalogData: _read_catalog_data,
        questions.FindTableFaults: _find_table_faults,
    }
    changes: ClassVar[CatalogChanges] = {
        questions.AddProject: _add_project,
        questions.SetProjectStatus: _set_project_status,
        questions.DeleteProject: _delete_project,
        questions.SetProjectOff: _set_project_off,
        questions.LinkWorkspace: _link_workspace,
        questions.MoveWorkspace: _move_workspace,
        questions.WriteNote: _write_note,
        questions.AddSearches: _add_searches,
        questions.ForgetSearches: _forget_searches,
        questions.AddUsage: _add_usage,
        questions.RegisterToken: _register_token,
        questions.RevokeToken: _revoke_token,
        questions.ReplaceCatalogData: _replace_catalog_data,
    }


def _check_name(name: str) -> None:
    """Raise NotFound for a name that cannot be stored, because no project can have it."""
    if not is_storable(name):
        raise build_project_error(name)
