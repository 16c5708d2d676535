"""The one rule that says which project a call means."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from everkept.core.ports import Library, RecordStore
from everkept.core.projects import DEFAULT_PROJECT, Home, Project, home_of
from everkept.core.sessions import Call, acting
from everkept.errors import Conflict, NoActiveProject, NotFound, ProjectOff


class ProjectRule:
    """The call's own project, then the session's, then the configured one, then the workspace's.

    The configured project and the workspace's are made at the first write; until then they read
    as empty. One that is switched off is neither read nor written.
    """

    def __init__(
        self,
        library: Library,
        *,
        configured: str | None = None,
        workspace: Path | Home | None = None,
        on_open: Callable[[RecordStore], None] | None = None,
    ) -> None:
        self._library = library
        self._configured = configured
        self._workspace = workspace
        self._on_open = on_open

    async def to_read(self, call: Call, name: str | None) -> RecordStore:
        return await self._found(call, name) or empty_store()

    async def to_write(self, call: Call, name: str | None) -> RecordStore:
        store = await self._found(call, name)
        return store or await self._opened((await self._make()).name)

    async def current(self, call: Call) -> Project | None:
        name = call.session.project or self._configured
        if name is not None:
            try:
                return await self._library.project(name)
            except NotFound:
                if call.session.project:
                    raise
                return None
        if self._workspace is None:
            return None
        home = self._home()
        if home is not None:
            return await self._library.project_of_workspace(home.key)
        try:
            return await self._library.project(DEFAULT_PROJECT)
        except NotFound:
            return None

    async def standing(self, call: Call) -> Project:
        """What a call without a name means, made where it is missing."""
        return await self.current(call) or await self._make()

    async def switched_off(self, call: Call) -> str | None:
        """The name of what a call without one means, where that is switched off."""
        try:
            project = await self.current(call)
        except NotFound:
            return None
        return project.name if project is not None and project.is_off else None

    def pending(self, call: Call) -> str | None:
        if call.session.project or self._configured or self._workspace is None:
            return self._configured
        home = self._home()
        return home.name if home else DEFAULT_PROJECT

    def _home(self) -> Home | None:
        """Looked for anew: a folder may have become a repository meanwhile.

        To an account it has another name: how folders are called here is the owner's alone.
        """
        home = home_of(self._workspace) if isinstance(self._workspace, Path) else self._workspace
        return home if home is None or acting() is None else home._replace(name=DEFAULT_PROJECT)

    async def _found(self, call: Call, name: str | None) -> RecordStore | None:
        """None for a project that is chosen but not made yet."""
        if chosen := name or call.session.project:
            return await self._opened(chosen)
        if self._configured is not None:
            try:
                return await self._opened(self._configured)
            except NotFound:
                return None
        if self._workspace is None:
            stateless = "This connection keeps no state: pass `project` with each call."
            raise NoActiveProject(hint=None if call.session.stateful else stateless)
        project = await self.current(call)
        return None if project is None else await self._opened(project.name)

    async def _opened(self, name: str) -> RecordStore:
        project, store = await self._library.open(name)
        if project.is_off:
            raise ProjectOff(name)
        if self._on_open is not None:
            self._on_open(store)
        return store

    async def _make(self) -> Project:
        if self._configured is not None:
            return await self._create_or_get(self._configured)
        home = self._home()
        if home is None:
            return await self._create_or_get(DEFAULT_PROJECT)
        project = await self._create_numbered(home)
        first = await self._library.assign_workspace(home.key, project)
        if first.id != project.id:
            await self._library.delete(project.name)  # another window was quicker
        return first

    async def _create_or_get(self, name: str) -> Project:
        try:
            return await self._library.create(name, "")
        except Conflict:
            return await self._library.project(name)

    async def _create_numbered(self, home: Home) -> Project:
        """Named after the folder; a number is added where the name belongs to another one."""
        number = 1
        while True:
            try:
                name = home.name if number == 1 else f"{home.name}-{number}"
                return await self._library.create(name, _description(home))
            except Conflict:
                number += 1


def _description(home: Home) -> str:
    return f"Workspace {home.key}" if acting() is None else ""


@cache
def empty_store() -> RecordStore:
    """One for all who read what is yet to be made: it is never written, so it never changes."""
    # Imported here: a server that has its project never needs the reference engine.
    from everkept.engines.memory.store import MemoryStore

    return MemoryStore()
