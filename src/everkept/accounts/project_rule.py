"""The rule that decides which project a call uses."""

from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from everkept.core.ports import Library, RecordStore
from everkept.core.projects import DEFAULT_PROJECT, MAX_PROJECT_NAME_CHARACTERS, Project, WorkspaceInfo, find_workspace
from everkept.core.sessions import ToolCall, get_acting_account
from everkept.core.text import clip_text
from everkept.errors import Conflict, NoActiveProject, NotFound, ProjectOff

T = TypeVar("T")
_WORD_SIGNS = str.maketrans("", "", "-_./")


class ProjectRule:
    """Choice of the project: the call's own, then the session's, then the configured one, then the workspace's.

    The configured project and the workspace's project are created at the first write. Until then they read as empty. A
    project that is turned off is neither read nor written. A secret in the name or description of a new project is
    masked.
    """

    def __init__(
        self,
        library: Library,
        *,
        configured: str | None = None,
        workspace: Path | WorkspaceInfo | None = None,
        on_open: Callable[[RecordStore], None] | None = None,
        mask: bool = True,
    ) -> None:
        self._library = library
        self._mask = mask
        self._configured = configured
        self._workspace = workspace
        self._on_open = on_open

    async def open_to_read(self, call: ToolCall, name: str | None) -> RecordStore:
        return await self._find_store(call, name) or get_empty_store()

    async def open_to_write(self, call: ToolCall, name: str | None) -> RecordStore:
        store = await self._find_store(call, name)
        return store or await self._open_store((await self._create_project()).name)

    async def find_active(self, call: ToolCall) -> Project | None:
        if call.session.project:
            return await self._library.get_project(call.session.project)
        if self._configured is not None:
            return await self._find_configured(self._library.get_project)
        if self._workspace is None:
            return None
        home = self._find_workspace()
        if home is not None:
            return await self._library.find_workspace_project(home.key)
        try:
            return await self._library.get_project(DEFAULT_PROJECT)
        except NotFound:
            return None

    async def ensure_project(self, call: ToolCall) -> Project:
        """Return the project of a call that names none. Create it if it is missing."""
        return await self.find_active(call) or await self._create_project()

    async def find_off_name(self, call: ToolCall) -> str | None:
        """Return the name of the active project if it is turned off."""
        try:
            project = await self.find_active(call)
        except NotFound:
            return None
        return project.name if project is not None and project.is_off else None

    def find_pending_name(self, call: ToolCall) -> str | None:
        if call.session.project or self._configured or self._workspace is None:
            return self._clean_name(self._configured) if self._configured else None
        home = self._find_workspace()
        return self._clean_name(home.name) if home else DEFAULT_PROJECT

    def _find_workspace(self) -> WorkspaceInfo | None:
        """Return the workspace, looked up at each call because a folder may become a repository.

        An account sees another name, because the names of the owner's folders are private.
        """
        home = find_workspace(self._workspace) if isinstance(self._workspace, Path) else self._workspace
        return home if home is None or get_acting_account() is None else home._replace(name=DEFAULT_PROJECT)

    async def _find_store(self, call: ToolCall, name: str | None) -> RecordStore | None:
        """Return the store, or None for a project that is chosen but not created yet."""
        if chosen := name or call.session.project:
            return await self._open_store(chosen)
        if self._configured is not None:
            return await self._find_configured(self._open_store)
        if self._workspace is None:
            stateless = "This connection is stateless. Pass `project` with each call."
            raise NoActiveProject(hint=None if call.session.stateful else stateless)
        project = await self.find_active(call)
        return None if project is None else await self._open_store(project.name)

    async def _find_configured(self, find: Callable[[str], Awaitable[T]]) -> T | None:
        """Find the configured project by its name, or by the name that it was created with."""
        given = self._configured or ""
        for name in (given, masked) if (masked := self._clean_name(given)) != given else (given,):
            try:
                return await find(name)
            except NotFound:
                continue
        return None

    def _clean_name(self, name: str) -> str:
        cleaned = self._clean_text(name)
        return name if cleaned == name else clip_text(cleaned, MAX_PROJECT_NAME_CHARACTERS)

    def _clean_text(self, text: str) -> str:
        """Return the text without secrets. The masking is not loaded for plain words."""
        if not self._mask or text.translate(_WORD_SIGNS).isalpha():
            return text
        from everkept.core.secrets import mask_text

        return mask_text(text)[0]

    async def _open_store(self, name: str) -> RecordStore:
        project, store = await self._library.open(name)
        if project.is_off:
            raise ProjectOff(name)
        if self._on_open is not None:
            self._on_open(store)
        return store

    async def _create_project(self) -> Project:
        if self._configured is not None:
            return await self._create_or_get(self._clean_name(self._configured))
        home = self._find_workspace()
        if home is None:
            return await self._create_or_get(DEFAULT_PROJECT)
        project = await self._create_numbered(home)
        first = await self._library.link_workspace(home.key, project)
        if first.id != project.id:
            await self._library.delete(project.name)  # another process linked the workspace first
        return first

    async def _create_or_get(self, name: str) -> Project:
        try:
            return await self._library.create(name, "")
        except Conflict:
            return await self._library.get_project(name)

    async def _create_numbered(self, home: WorkspaceInfo) -> Project:
        """Create a project named after the folder. Append a number if another project has the name."""
        number = 1
        while True:
            try:
                own_name = self._clean_name(home.name)
                name = own_name if number == 1 else f"{own_name}-{number}"
                description = f"Workspace {self._clean_text(home.key)}" if get_acting_account() is None else ""
                return await self._library.create(name, description)
            except Conflict:
                number += 1


@cache
def get_empty_store() -> RecordStore:
    """Return the shared empty store for projects that are not created yet. It is never written."""
    # Imported here: a server with an existing project does not need the memory engine.
    from everkept.engines.memory.store import MemoryStore

    return MemoryStore()
