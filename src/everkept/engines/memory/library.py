"""Library of the reference engine."""

from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import ClassVar
from uuid import uuid4

from everkept import __version__
from everkept.core import library as catalog
from everkept.core.answers import LEASE_PREFIX, MAX_SEARCHES, CatalogData, SearchRecord, TableFault
from everkept.core.library import CatalogAnswers, CatalogChanges, Condition, TableLibrary
from everkept.core.mcp import ToolUsage, sum_usage
from everkept.core.ports import Token
from everkept.core.projects import OffHistory, OffPeriod, Project, is_trash_name, validate_project_name
from everkept.core.times import Clock, read_clock
from everkept.engines.memory.store import MemoryStore
from everkept.errors import Conflict, NotFound, ProjectArchived, ProjectExists, ProjectStatusConflict
from everkept.values import Value, replace

MEMORY_CONDITION = Condition("memory", "embedded-memory", version=__version__)


class _ProjectEntry(Value, frozen=False):
    project: Project
    store: MemoryStore


class MemoryLibrary(TableLibrary):
    """All projects, for the lifetime of the process."""

    def __init__(self, clock: Clock = read_clock, condition: Condition = MEMORY_CONDITION) -> None:
        """Pass `condition` if the library stands for another engine that is still empty."""
        self._clock = clock
        self._condition = condition
        self._entries: dict[str, _ProjectEntry] = {}
        self._workspaces: dict[str, str] = {}
        self._switching: dict[str, OffHistory] = {}  # by project id
        self._notes: dict[str, str] = {}
        self._tokens: dict[str, tuple[Token, str]] = {}
        self._user = MemoryStore(clock)
        self._history = MemoryStore(clock)
        self._searches: deque[SearchRecord] = deque(maxlen=MAX_SEARCHES)
        self._usage: list[ToolUsage] = []

    async def _list_projects(self, question: catalog.ListProjects) -> list[Project]:
        found = (self._entries[name].project for name in sorted(self._entries))
        return [project for project in found if question.status in (None, project.status)]

    async def _get_project(self, question: catalog.GetProject) -> Project:
        return self._require_entry(question.name).project

    async def open(self, name: str) -> tuple[Project, MemoryStore]:
        entry = self._require_entry(name)
        if entry.project.status == "archived":
            raise ProjectArchived(name)
        return entry.project, entry.store

    async def _add_project(self, change: catalog.AddProject) -> Project:
        name = validate_project_name(change.name)
        if name in self._entries:
            raise ProjectExists(name)
        if any(entry.project.id == change.project_id for entry in self._entries.values()):
            message = f"A project with the id {change.project_id} already exists."
            raise Conflict(message, hint="Use a new id.", kind="project", name=name)
        moment = change.at or self._clock()
        project = Project(change.project_id or str(uuid4()), name, change.description, "active", moment, moment)
        self._entries[name] = _ProjectEntry(project, MemoryStore(self._clock))
        return project

    async def _set_project_status(self, change: catalog.SetProjectStatus) -> Project:
        entry, name = self._require_entry(change.name), change.new_name or change.name
        if entry.project.status == change.status and name == change.name:
            raise ProjectStatusConflict(change.name, change.status)
        if name != change.name and name in self._entries:
            raise ProjectExists(name)
        entry.project = replace(entry.project, name=name, status=change.status, updated_at=self._clock())
        del self._entries[change.name]
        self._entries[name] = entry
        return entry.project

    async def _delete_project(self, change: catalog.DeleteProject) -> None:
        project = self._require_entry(change.name).project
        if switching := self._switching.get(project.id):
            self._switching[project.id] = switching.with_deletion(self._list_folders(project.id), self._clock())
        del self._entries[change.name]
        self._workspaces = {p: i for p, i in self._workspaces.items() if i != project.id}

    async def _set_project_off(self, change: catalog.SetProjectOff) -> Project:
        entry, at = self._require_entry(change.name), change.at or self._clock()
        if entry.project.is_off != change.off:
            known = self._get_off_history(entry.project.id)
            switched = self._switching[entry.project.id] = known.with_switch(off=change.off, at=at)
            entry.project = replace(entry.project, off_since=switched.off_since)
        return entry.project

    async def _list_off_periods(self, _: catalog.ListOffPeriods) -> list[OffPeriod]:
        live = {entry.project.id for entry in self._entries.values()}
        return [
            silence
            for project_id, switching in sorted(self._switching.items())
            for silence in (
                switching.list_periods([*self._list_folders(project_id), *switching.folders])
                if project_id in live
                else switching.list_last_periods()
            )
        ]

    async def open_user_store(self) -> MemoryStore:
        return self._user

    async def open_history_store(self) -> MemoryStore:
        return self._history

    async def _find_workspace_project(self, question: catalog.FindWorkspaceProject) -> Project | None:
        wanted = self._workspaces.get(question.path)
        found = next((s.project for s in self._entries.values() if s.project.id == wanted), None)
        return None if found is None or is_trash_name(found.name) else found

    async def _link_workspace(self, change: catalog.LinkWorkspace) -> Project:
        if all(entry.project.id != change.project.id for entry in self._entries.values()):
            raise NotFound("project", change.project.name, hint="It was deleted. Select another project.")
        if await self.find_workspace_project(change.path) is None:
            before = self._workspaces.get(change.path, "")
            if switching := self._switching.get(before):
                self._switching[before] = switching.with_folder(change.path)
            self._workspaces[change.path] = change.project.id
        return await self.find_workspace_project(change.path) or change.project

    async def _move_workspace(self, change: catalog.MoveWorkspace) -> None:
        if change.project is not None and all(
            entry.project.id != change.project.id for entry in self._entries.values()
        ):
            raise NotFound("project", change.project.name, hint="It was deleted. Select another project.")
        before = self._workspaces.pop(change.path, "")
        if switching := self._switching.get(before):
            self._switching[before] = switching.with_folder(change.path)
        if change.project is not None:
            self._workspaces[change.path] = change.project.id

    async def _list_workspaces(self, question: catalog.ListWorkspaces) -> list[str]:
        return self._list_folders(question.project.id)

    async def _get_note(self, question: catalog.GetNote) -> str | None:
        return self._notes.get(question.key)

    async def _write_note(self, change: catalog.WriteNote) -> None:
        if change.value is None:
            self._notes.pop(change.key, None)
        else:
            self._notes[change.key] = change.value

    async def _list_notes(self, question: catalog.ListNotes) -> Mapping[str, str]:
        return {key: value for key, value in self._notes.items() if key.startswith(question.prefix)}

    async def _add_searches(self, change: catalog.AddSearches) -> None:
        self._searches.extend(change.searches)

    async def _list_searches(self, question: catalog.ListSearches) -> list[SearchRecord]:
        meant = (s for s in reversed(self._searches) if question.session in (None, s.session))
        return list(islice(meant, question.limit))

    async def _forget_searches(self, _: catalog.ForgetSearches) -> int:
        count = len(self._searches)
        self._searches.clear()
        return count

    async def _add_usage(self, change: catalog.AddUsage) -> None:
        self._usage = sum_usage((*self._usage, *change.rows))

    async def _list_usage(self, _: catalog.ListUsage) -> list[ToolUsage]:
        return list(self._usage)

    async def _list_tokens(self, _: catalog.ListTokens) -> list[Token]:
        return sorted((t for t, _ in self._tokens.values()), key=lambda t: (t.created_at, t.id))

    async def _register_token(self, change: catalog.RegisterToken) -> None:
        if change.token.id in self._tokens or await self.has_token(change.secret_hash):
            message = f"Token {change.token.id} already exists."
            raise Conflict(message, hint="Create a token with another id.", id=change.token.id)
        self._tokens[change.token.id] = (change.token, change.secret_hash)

    async def _revoke_token(self, change: catalog.RevokeToken) -> bool:
        return self._tokens.pop(change.token_id, None) is not None

    async def _has_token(self, question: catalog.HasToken) -> bool:
        return any(known == question.secret_hash for _, known in self._tokens.values())

    async def get_store(self, project: Project) -> MemoryStore:
        return self._require_entry(project.name).store

    async def _read_catalog_data(self, _: catalog.ReadCatalogData) -> CatalogData:
        return CatalogData(
            projects=await self.list_projects(),
            workspaces=dict(self._workspaces),
            switching=dict(self._switching),
            notes=_select_lasting(self._notes),
            tokens=[self._tokens[token.id] for token in await self.list_tokens()],
        )

    async def _find_table_faults(self, _: catalog.FindTableFaults) -> list[TableFault]:
        return []

    async def _replace_catalog_data(self, change: catalog.ReplaceCatalogData) -> None:
        catalog_data = change.catalog_data
        stores = {entry.project.id: entry.store for entry in self._entries.values()}
        self._switching = dict(catalog_data.switching)
        self._entries = {
            project.name: _ProjectEntry(
                replace(project, off_since=self._get_off_history(project.id).off_since),
                stores.get(project.id) or MemoryStore(self._clock),
            )
            for project in catalog_data.projects
        }
        self._workspaces = dict(catalog_data.workspaces)
        self._notes = {**_select_lasting(catalog_data.notes), **await self.list_notes(LEASE_PREFIX)}
        self._tokens = {token.id: (token, secret) for token, secret in catalog_data.tokens}

    async def on_change(self, hear: Callable[[], None]) -> bool:
        return False

    @property
    def condition(self) -> Condition:
        return self._condition

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _get_off_history(self, project_id: str) -> OffHistory:
        return self._switching.get(project_id, OffHistory())

    def _list_folders(self, project_id: str) -> list[str]:
        return sorted(path for path, owner in self._workspaces.items() if owner == project_id)

    def _require_entry(self, name: str) -> _ProjectEntry:
        entry = self._entries.get(name)
        if entry is None:
            raise NotFound("project", name, hint="List projects with list_projects.")
        return entry

    answers: ClassVar[CatalogAnswers] = {
        catalog.ListProjects: _list_projects,
        catalog.GetProject: _get_project,
        catalog.ListOffPeriods: _list_off_periods,
        catalog.FindWorkspaceProject: _find_workspace_project,
        catalog.ListWorkspaces: _list_workspaces,
        catalog.GetNote: _get_note,
        catalog.ListNotes: _list_notes,
        catalog.ListSearches: _list_searches,
        catalog.ListUsage: _list_usage,
        catalog.ListTokens: _list_tokens,
        catalog.HasToken: _has_token,
        catalog.ReadCatalogData: _read_catalog_data,
        catalog.FindTableFaults: _find_table_faults,
    }
    changes: ClassVar[CatalogChanges] = {
        catalog.AddProject: _add_project,
        catalog.SetProjectStatus: _set_project_status,
        catalog.DeleteProject: _delete_project,
        catalog.SetProjectOff: _set_project_off,
        catalog.LinkWorkspace: _link_workspace,
        catalog.MoveWorkspace: _move_workspace,
        catalog.WriteNote: _write_note,
        catalog.AddSearches: _add_searches,
        catalog.ForgetSearches: _forget_searches,
        catalog.AddUsage: _add_usage,
        catalog.RegisterToken: _register_token,
        catalog.RevokeToken: _revoke_token,
        catalog.ReplaceCatalogData: _replace_catalog_data,
    }


def _select_lasting(notes: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in notes.items() if not key.startswith(LEASE_PREFIX)}
