"""The reference engine's library: all projects while the process lives."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from uuid import uuid4

from everkept import __version__
from everkept.core.conditions import Condition
from everkept.core.copies import PASSING, Holdings
from everkept.core.ports import Token
from everkept.core.projects import Project, Silence, Status, checked_project_name
from everkept.core.searching import KEPT_SEARCHES, Search
from everkept.core.switching import Switching
from everkept.core.times import Clock, now
from everkept.core.usage import Usage, summed
from everkept.engines.memory.store import MemoryStore
from everkept.errors import Conflict, NotFound, ProjectArchived
from everkept.values import Value, replace

IN_MEMORY = Condition("memory", "embedded-memory", version=__version__)


class _Shelf(Value, frozen=False):
    project: Project
    store: MemoryStore


class MemoryLibrary:
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

    async def projects(self, status: Status | None = None) -> list[Project]:
        found = (self._shelves[name].project for name in sorted(self._shelves))
        return [project for project in found if status in (None, project.status)]

    async def project(self, name: str) -> Project:
        return self._shelf(name).project

    async def open(self, name: str) -> tuple[Project, MemoryStore]:
        shelf = self._shelf(name)
        if shelf.project.status == "archived":
            raise ProjectArchived(name)
        return shelf.project, shelf.store

    async def create(
        self, name: str, description: str, *, project_id: str = "", at: int | None = None
    ) -> Project:
        checked_project_name(name)
        if name in self._shelves:
            raise Conflict(f'There is a project "{name}" already.', kind="project", name=name)
        if any(shelf.project.id == project_id for shelf in self._shelves.values()):
            raise Conflict(f"There is a project {project_id} already.", kind="project", name=name)
        moment = at or self._clock()
        own_id = project_id or str(uuid4())
        project = Project(own_id, name, description, "active", moment, moment)
        self._shelves[name] = _Shelf(project, MemoryStore(self._clock))
        return project

    async def archive(self, name: str) -> Project:
        return self._set_status(name, "archived")

    async def restore(self, name: str) -> Project:
        return self._set_status(name, "active")

    async def delete(self, name: str) -> None:
        project = self._shelf(name).project
        if switching := self._switching.get(project.id):
            folders = self._folders(project.id)
            self._switching[project.id] = switching.leaving(folders, self._clock())
        del self._shelves[name]
        self._workspaces = {p: i for p, i in self._workspaces.items() if i != project.id}

    async def switch(self, name: str, *, off: bool, at: int | None = None) -> Project:
        shelf, at = self._shelf(name), at or self._clock()
        if shelf.project.is_off != off:
            known = self._switching_of(shelf.project.id)
            switched = self._switching[shelf.project.id] = known.switched(off=off, at=at)
            shelf.project = replace(shelf.project, off_since=switched.off_since)
        return shelf.project

    async def silences(self) -> list[Silence]:
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

    async def project_of_workspace(self, path: str) -> Project | None:
        wanted = self._workspaces.get(path)
        return next((s.project for s in self._shelves.values() if s.project.id == wanted), None)

    async def assign_workspace(self, path: str, project: Project) -> Project:
        if all(shelf.project.id != project.id for shelf in self._shelves.values()):
            raise NotFound("project", project.name, hint="It was deleted meanwhile.")
        self._workspaces.setdefault(path, project.id)
        return await self.project_of_workspace(path) or project

    async def workspaces_of(self, project: Project) -> list[str]:
        return self._folders(project.id)

    async def note(self, key: str) -> str | None:
        return self._notes.get(key)

    async def set_note(self, key: str, value: str | None) -> None:
        if value is None:
            self._notes.pop(key, None)
        else:
            self._notes[key] = value

    async def notes(self, prefix: str) -> Mapping[str, str]:
        return {key: value for key, value in self._notes.items() if key.startswith(prefix)}

    async def add_searches(self, searches: Sequence[Search]) -> None:
        self._searches.extend(searches)

    async def searches(self, *, session: str | None = None, limit: int = 100) -> list[Search]:
        meant = (s for s in reversed(self._searches) if session in (None, s.session))
        return list(islice(meant, limit))

    async def forget_searches(self) -> int:
        count = len(self._searches)
        self._searches.clear()
        return count

    async def add_usage(self, rows: Sequence[Usage]) -> None:
        self._usage = summed((*self._usage, *rows))

    async def usage(self) -> list[Usage]:
        return list(self._usage)

    async def tokens(self) -> list[Token]:
        return sorted((t for t, _ in self._tokens.values()), key=lambda t: (t.created_at, t.id))

    async def add_token(self, token: Token, secret_hash: str) -> None:
        if token.id in self._tokens or await self.knows_token(secret_hash):
            raise Conflict(f"There is a token {token.id} already.", id=token.id)
        self._tokens[token.id] = (token, secret_hash)

    async def remove_token(self, token_id: str) -> bool:
        return self._tokens.pop(token_id, None) is not None

    async def knows_token(self, secret_hash: str) -> bool:
        return any(known == secret_hash for _, known in self._tokens.values())

    async def store_of(self, project: Project) -> MemoryStore:
        return self._shelf(project.name).store

    async def holdings(self) -> Holdings:
        return Holdings(
            projects=await self.projects(),
            workspaces=dict(self._workspaces),
            switching=dict(self._switching),
            notes=_lasting(self._notes),
            tokens=[self._tokens[token.id] for token in await self.tokens()],
        )

    async def take_over(self, holdings: Holdings) -> None:
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

    def _set_status(self, name: str, status: Status) -> Project:
        shelf = self._shelf(name)
        if shelf.project.status == status:
            state = "already archived" if status == "archived" else "not archived"
            raise Conflict(f'Project "{name}" is {state}.', project=name)
        shelf.project = replace(shelf.project, status=status, updated_at=self._clock())
        return shelf.project


def _lasting(notes: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in notes.items() if not key.startswith(PASSING)}
