"""Library on SurrealDB: one database holds the catalog, and each store has a separate database."""

import asyncio
from collections.abc import Callable, Mapping
from typing import ClassVar

from everkept.core import library as questions
from everkept.core.answers import CatalogData, SearchRecord, TableFault
from everkept.core.library import CatalogAnswers, CatalogChanges, Condition, Mode, TableLibrary
from everkept.core.mcp import ToolUsage
from everkept.core.ports import Token
from everkept.core.projects import TRASH_PREFIX, OffPeriod, Project, build_project_error, validate_project_name
from everkept.core.text import find_forbidden
from everkept.core.times import Clock, read_clock
from everkept.engines.surreal import catalog, project_lifecycle
from everkept.engines.surreal.catalog import TURN_STATEMENT, CatalogDatabase
from everkept.engines.surreal.connection import Connection, TransactionThrown
from everkept.engines.surreal.rows import build_row_id
from everkept.engines.surreal.store import SurrealStore
from everkept.engines.surreal.table_faults import find_table_faults
from everkept.errors import Conflict, NotFound, ProjectArchived


class SurrealLibrary(TableLibrary):
    """Library in one namespace. The first call connects."""

    def __init__(
        self, connection: Connection, *, database: str = "default", mode: Mode, place: str, clock: Clock = read_clock
    ) -> None:
        self._connection = connection
        self._catalog_db = CatalogDatabase(connection, database)
        self._mode: Mode = mode
        self._place = place
        self._clock = clock
        self._stores: dict[str, SurrealStore] = {}  # by database
        self._opening = asyncio.Lock()

    async def _list_projects(self, question: questions.ListProjects) -> list[Project]:
        found = await catalog.list_projects(self._catalog_db)
        return [project for project in found if question.status in (None, project.status)]

    async def _get_project(self, question: questions.GetProject) -> Project:
        name = question.name
        found = None if find_forbidden(name) else await catalog.find_project(self._catalog_db, name)
        if found is None:
            raise build_project_error(name)
        return found

    async def open(self, name: str) -> tuple[Project, SurrealStore]:
        project = await self.get_project(name)
        if project.status == "archived":
            raise ProjectArchived(name)
        store, is_new = await self._open_project_store(project)
        # The project may have been deleted while its database was prepared.
        return await self.open(name) if is_new else (project, store)

    async def get_store(self, project: Project) -> SurrealStore:
        found = await self.get_project(project.name)
        if found.id != project.id:
            raise build_project_error(project.name)
        store, is_new = await self._open_project_store(found)
        return await self.get_store(project) if is_new else store

    async def _add_project(self, change: questions.AddProject) -> Project:
        validate_project_name(change.name)
        moment = change.at or self._clock()
        return await project_lifecycle.create_project(
            self._catalog_db, change.name, change.description, change.project_id, moment
        )

    async def _set_project_status(self, change: questions.SetProjectStatus) -> Project:
        project = await self.get_project(change.name)
        return await project_lifecycle.set_status(self._catalog_db, project, change, self._clock())

    async def _delete_project(self, change: questions.DeleteProject) -> None:
        project = await self.get_project(change.name)
        self._stores.pop(project_lifecycle.build_database_name(self._catalog_db, project.id), None)
        await project_lifecycle.delete_project(self._catalog_db, project, self._clock())

    async def _set_project_off(self, change: questions.SetProjectOff) -> Project:
        project = await self.get_project(change.name)
        if project.is_off == change.off:
            return project
        return await project_lifecycle.set_off(self._catalog_db, project, off=change.off, at=change.at or self._clock())

    async def _list_off_periods(self, _: questions.ListOffPeriods) -> list[OffPeriod]:
        return await catalog.list_off_periods(self._catalog_db)

    async def open_user_store(self) -> SurrealStore:
        return await self._open_store(f"{self._catalog_db.database}_user", counts_files=True)

    async def open_history_store(self) -> SurrealStore:
        return await self._open_store(f"{self._catalog_db.database}_history")

    async def _find_workspace_project(self, question: questions.FindWorkspaceProject) -> Project | None:
        return await catalog.find_workspace_project(self._catalog_db, question.path)

    async def _link_workspace(self, change: questions.LinkWorkspace) -> Project:
        text = f"""
            BEGIN; {TURN_STATEMENT};
            IF (SELECT VALUE id FROM ONLY $project) IS NONE {{ THROW 'gone' }};
            LET $before = (SELECT VALUE project FROM ONLY $id);
            IF $before IS NOT NONE AND string::starts_with((SELECT VALUE name FROM ONLY $before) ?? '', $trash) {{
                UPDATE switching SET folders += $path WHERE record::id(id) = record::id($before);
                UPDATE $id SET project = $project
            }};
            IF $before IS NONE {{
                CREATE $id SET path = $path, project = $project
            }};
            COMMIT;"""
        path, project = change.path, change.project
        ids = {"id": build_row_id("workspace", path), "project": build_row_id("project", project.id)}
        try:
            await self._catalog_db.alter(text, {**ids, "path": path, "trash": TRASH_PREFIX})
        except TransactionThrown as thrown:
            raise NotFound("project", project.name, hint="It was deleted. Select another project.") from thrown
        return await self.find_workspace_project(path) or project

    async def _move_workspace(self, change: questions.MoveWorkspace) -> None:
        path, project = change.path, change.project
        check = "IF (SELECT VALUE id FROM ONLY $project) IS NONE { THROW 'gone' };"
        link = "DELETE $id;" if project is None else f"{check} UPSERT $id SET path = $path, project = $project;"
        text = f"""
            BEGIN; {TURN_STATEMENT};
            LET $before = (SELECT VALUE project FROM ONLY $id);
            IF $before IS NOT NONE {{
                UPDATE switching SET folders += $path WHERE record::id(id) = record::id($before)
            }};
            {link}
            COMMIT;"""
        ids = {"id": build_row_id("workspace", path)}
        if project is not None:
            ids["project"] = build_row_id("project", project.id)
        try:
            await self._catalog_db.alter(text, {**ids, "path": path})
        except TransactionThrown as thrown:
            name = "" if project is None else project.name
            raise NotFound("project", name, hint="It was deleted. Select another project.") from thrown

    async def _list_workspaces(self, question: questions.ListWorkspaces) -> list[str]:
        return await catalog.list_workspaces(self._catalog_db, question.project.id)

    async def _get_note(self, question: questions.GetNote) -> str | None:
        [value] = await self._catalog_db.ask(
            "SELECT VALUE value FROM ONLY $id", {"id": build_row_id("note", question.key)}
        )
        return value

    async def _write_note(self, change: questions.WriteNote) -> None:
        values = {"id": build_row_id("note", change.key), "key": change.key, "text": change.value}
        if change.value is None:
            await self._catalog_db.alter("DELETE $id", values)
        else:
            await self._catalog_db.alter("UPSERT $id SET key = $key, value = $text", values)

    async def _list_notes(self, question: questions.ListNotes) -> Mapping[str, str]:
        [rows] = await self._catalog_db.ask(
            "SELECT key, value FROM note WHERE string::starts_with(key, $prefix)", {"prefix": question.prefix}
        )
        return {row["key"]: row["value"] for row in rows}

    async def _add_searches(self, change: questions.AddSearches) -> None:
        await catalog.add_searches(self._catalog_db, change.searches)

    async def _list_searches(self, question: questions.ListSearches) -> list[SearchRecord]:
        return await catalog.list_searches(self._catalog_db, question.session, question.limit)

    async def _forget_searches(self, _: questions.ForgetSearches) -> int:
        return await catalog.forget_searches(self._catalog_db)

    async def _add_usage(self, change: questions.AddUsage) -> None:
        await catalog.add_usage(self._catalog_db, change.rows)

    async def _list_usage(self, _: questions.ListUsage) -> list[ToolUsage]:
        return await catalog.list_usage(self._catalog_db)

    async def _list_tokens(self, _: questions.ListTokens) -> list[Token]:
        [rows] = await self._catalog_db.ask("SELECT record::id(id) AS id, label, created_at FROM token")
        return sorted((Token(**row) for row in rows), key=lambda token: (token.created_at, token.id))

    async def _register_token(self, change: questions.RegisterToken) -> None:
        text = """{
            IF (SELECT VALUE id FROM ONLY $id) IS NOT NONE { THROW 'taken' };
            IF (SELECT VALUE id FROM token WHERE secret_hash = $row.secret_hash)[0] IS NOT NONE {
                THROW 'taken'
            };
            CREATE $id CONTENT $row
        }"""
        token = change.token
        row = {"label": token.label, "secret_hash": change.secret_hash, "created_at": token.created_at}
        try:
            await self._catalog_db.alter(text, {"id": build_row_id("token", token.id), "row": row})
        except TransactionThrown as thrown:
            message = f"Token {token.id} already exists."
            raise Conflict(message, hint="Create a token with another id.", id=token.id) from thrown

    async def _revoke_token(self, change: questions.RevokeToken) -> bool:
        [removed] = await self._catalog_db.alter(
            "DELETE $id RETURN BEFORE", {"id": build_row_id("token", change.token_id)}
        )
        return bool(removed)

    async def _has_token(self, question: questions.HasToken) -> bool:
        [found] = await self._catalog_db.ask(
            "SELECT VALUE id FROM token WHERE secret_hash = $hash", {"hash": question.secret_hash}
        )
        return bool(found)

    async def _read_catalog_data(self, _: questions.ReadCatalogData) -> CatalogData:
        return await project_lifecycle.read_catalog_data(self._catalog_db)

    async def _find_table_faults(self, _: questions.FindTableFaults) -> list[TableFault]:
        projects = await self.list_projects()  # the first use creates the tables
        faults = await find_table_faults(self._connection, self._catalog_db.database, catalog.LAYOUT)
        stores = [await self.open_user_store(), await self.open_history_store()]
        stores += [await self.get_store(project) for project in projects]
        for store in stores:
            faults += await store.tables.find_table_faults()
        return faults

    async def _replace_catalog_data(self, change: questions.ReplaceCatalogData) -> None:
        await project_lifecycle.replace_catalog_data(self._catalog_db, change.catalog_data, self._clock())
        self._stores.clear()

    async def on_change(self, hear: Callable[[], None]) -> bool:
        return False

    @property
    def condition(self) -> Condition:
        return Condition("surreal", self._mode, version=self._catalog_db.version, place=self._place)

    async def close(self) -> None:
        self._stores.clear()
        self._catalog_db.reset()
        await self._connection.close()

    async def _open_project_store(self, project: Project) -> tuple[SurrealStore, bool]:
        """Return the store, and whether this process opened it for the first time."""
        database = project_lifecycle.build_database_name(self._catalog_db, project.id)
        is_new = database not in self._stores
        store = await self._open_store(database, project.name)
        if is_new and project.status == "archived":
            await project_lifecycle.sync_status(self._catalog_db, project)
        return store, is_new

    async def _open_store(self, database: str, name: str = "", *, counts_files: bool = False) -> SurrealStore:
        """Open the store. Without a name, it does not belong to a project."""
        async with self._opening:
            if database not in self._stores:
                store = SurrealStore(
                    self._connection, database, self._clock, name, of_project=bool(name), counts_files=counts_files
                )
                await store.get_revision()  # creates a missing database
                self._stores[database] = store
            return self._stores[database]

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
