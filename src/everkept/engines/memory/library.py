"""The reference engine's library: all projects while the process lives."""

from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import ClassVar
from uuid import uuid4

from everkept import __version__
from everkept.core import library as catalog
from everkept.core.answers import KEPT_SEARCHES, PASSING, Holdings, Search
from everkept.core.library import CatalogAnswers, CatalogChanges, Condition, TableLibrary
from everkept.core.mcp import Usage, summed
from everkept.core.ports import Token
from everkept.core.projects import Project, Silence, Switching, checked_project_name
from everkept.core.times import Clock, now
from everkept.engines.memory.store import MemoryStore
from everkept.errors import Conflict, NotFound, ProjectArchived
from everkept.values import Value, replace

IN_MEMORY = Condition("memory", "embedded-memory", version=__version__)


class _Shelf(Value, frozen=False):
    project: Project
    store: MemoryStore


class MemoryLibrary(TableLibrary):
    """All projects while the process lives."""

    def __init__(self, clock: Clock = now, condition: Condition = IN_MEMORY) -> None:
        """`condition` is another one where it stands for an engine that holds nothing yet."""
        self._clock = clock
        self._condition = condition
        self._shelves: dict[str, _Shelf] = {}
        self._workspaces: dict[str, str] = {}
        self._switching: dict[str, Switching] = {}  # by the id of a project
        self._notes: dict[str, str] = {}
        self._tokens: dict[str, tuple[Token, str]] = {}
        self._user = MemoryStore(clock)
        self._history = MemoryStore(clock)
        self._searches: deque[Search] = deque(maxlen=KEPT_SEARCHES)
        self._usage: list[Usage] = []

    async def _list_projects(self, question: catalog.ListProjects) -> list[Project]:
        found = (self._shelves[name].project for name in sorted(self._shelves))
        return [project for project in found if question.status in (None, project.status)]

    async def _get_project(self, question: catalog.GetProject) -> Project:
        return self._shelf(question.name).project

    async def open(self, name: str) -> tuple[Project, MemoryStore]:
        shelf = self._shelf(name)
        if shelf.project.status == "archived":
            raise ProjectArchived(name)
        return shelf.project, shelf.store

    async def _add_project(self, change: catalog.AddProject) -> Project:
        name = checked_project_name(change.name)
        if name in self._shelves:
            raise Conflict(f'There is a project "{name}" already.', kind="project", name=name)
        if any(shelf.project.id == change.project_id for shelf in self._shelves.values()):
            message = f"There is a project {change.project_id} already."
            raise Conflict(message, kind="project", name=name)
        moment = change.at or self._clock()
        own_id = change.project_id or str(uuid4())
        project = Project(own_id, name, change.description, "active", moment, moment)
        self._shelves[name] = _Shelf(project, MemoryStore(self._clock))
        return project

    async def _set_project_status(self, change: catalog.SetProjectStatus) -> Project:
        shelf = self._shelf(change.name)
        if shelf.project.status == change.status:
            state = "already archived" if change.status == "archived" else "not archived"
            raise Conflict(f'Project "{change.name}" is {state}.', project=change.name)
        shelf.project = replace(shelf.project, status=change.status, updated_at=self._clock())
        return shelf.project

    async def _delete_project(self, change: catalog.DeleteProject) -> None:
        project = self._shelf(change.name).project
        if switching := self._switching.get(project.id):
            folders = self._folders(project.id)
            self._switching[project.id] = switching.leaving(folders, self._clock())
        del self._shelves[change.name]
        self._workspaces = {p: i for p, i in self._workspaces.items() if i != project.id}

    async def _set_project_off(self, change: catalog.SetProjectOff) -> Project:
        shelf, at = self._shelf(change.name), change.at or self._clock()
        if shelf.project.is_off != change.off:
            known = self._switching_of(shelf.project.id)
            switched = self._switching[shelf.project.id] = known.switched(off=change.off, at=at)
            shelf.project = replace(shelf.project, off_since=switched.off_since)
        return shelf.project

    async def _list_silences(self, _: catalog.ListSilences) -> list[Silence]:
        live = {shelf.project.id for shelf in self._shelves.values()}
        return [
            silence
            for project_id, switching in sorted(self._switching.items())
            for silence in (
                switching.silences(self._folders(project_id))
                if project_id in live
                else switching.last_silences()
            )
        ]

    async def user(self) -> MemoryStore:
        return self._user

    async def history(self) -> MemoryStore:
        return self._history

    async def _find_workspace_project(
        self, question: catalog.FindWorkspaceProject
    ) -> Project | None:
        wanted = self._workspaces.get(question.path)
        return next((s.project for s in self._shelves.values() if s.project.id == wanted), None)

    async def _link_workspace(self, change: catalog.LinkWorkspace) -> Project:
        if all(shelf.project.id != change.project.id for shelf in self._shelves.values()):
            raise NotFound("project", change.project.name, hint="It was deleted meanwhile.")
        self._workspaces.setdefault(change.path, change.project.id)
        return await self.project_of_workspace(change.path) or change.project

    async def _list_workspaces(self, question: catalog.ListWorkspaces) -> list[str]:
        return self._folders(question.project.id)

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

    async def _list_searches(self, question: catalog.ListSearches) -> list[Search]:
        meant = (s for s in reversed(self._searches) if question.session in (None, s.session))
        return list(islice(meant, question.limit))

    async def _forget_searches(self, _: catalog.ForgetSearches) -> int:
        count = len(self._searches)
        self._searches.clear()
        return count

    async def _add_usage(self, change: catalog.AddUsage) -> None:
        self._usage = summed((*self._usage, *change.rows))

    async def _list_usage(self, _: catalog.ListUsage) -> list[Usage]:
        return list(self._usage)

    async def _list_tokens(self, _: catalog.ListTokens) -> list[Token]:
        return sorted((t for t, _ in self._tokens.values()), key=lambda t: (t.created_at, t.id))

    async def _register_token(self, change: catalog.RegisterToken) -> None:
        if change.token.id in self._tokens or await self.knows_token(change.secret_hash):
            raise Conflict(f"There is a token {change.token.id} already.", id=change.token.id)
        self._tokens[change.token.id] = (change.token, change.secret_hash)

    async def _revoke_token(self, change: catalog.RevokeToken) -> bool:
        return self._tokens.pop(change.token_id, None) is not None

    async def _has_token(self, question: catalog.HasToken) -> bool:
        return any(known == question.secret_hash for _, known in self._tokens.values())

    async def store_of(self, project: Project) -> MemoryStore:
        return self._shelf(project.name).store

    async def _read_holdings(self, _: catalog.ReadHoldings) -> Holdings:
        return Holdings(
            projects=await self.projects(),
            workspaces=dict(self._workspaces),
            switching=dict(self._switching),
            notes=_lasting(self._notes),
            tokens=[self._tokens[token.id] for token in await self.tokens()],
        )

    async def _replace_holdings(self, change: catalog.ReplaceHoldings) -> None:
        holdings = change.holdings
        stores = {shelf.project.id: shelf.store for shelf in self._shelves.values()}
        self._switching = dict(holdings.switching)
        self._shelves = {
            project.name: _Shelf(
                replace(project, off_since=self._switching_of(project.id).off_since),
                stores.get(project.id) or MemoryStore(self._clock),
            )
            for project in holdings.projects
        }
        self._workspaces = dict(holdings.workspaces)
        self._notes = {**_lasting(holdings.notes), **await self.notes(PASSING)}
        self._tokens = {token.id: (token, secret) for token, secret in holdings.tokens}

    async def on_change(self, hear: Callable[[], None]) -> bool:
        return False

    @property
    def condition(self) -> Condition:
        return self._condition

    async def close(self) -> None:
        """There is nothing to close."""

    def _switching_of(self, project_id: str) -> Switching:
        return self._switching.get(project_id, Switching())

    def _folders(self, project_id: str) -> list[str]:
        return sorted(path for path, owner in self._workspaces.items() if owner == project_id)

    def _shelf(self, name: str) -> _Shelf:
        shelf = self._shelves.get(name)
        if shelf is None:
            raise NotFound("project", name, hint="list_projects shows what exists.")
        return shelf

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


def _lasting(notes: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in notes.items() if not key.startswith(PASSING)}
