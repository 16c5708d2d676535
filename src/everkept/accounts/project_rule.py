"""The rule that decides which project a call uses."""

import logging
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from everkept.core.folder_project import FolderProject, find_folder_project, format_lost
from everkept.core.ports import Library, RecordStore
from everkept.core.projects import DEFAULT_PROJECT, MAX_PROJECT_NAME_CHARACTERS, Project, WorkspaceInfo
from everkept.core.sessions import ToolCall, get_acting_account, note_used_project
from everkept.core.text import clip_text
from everkept.errors import Conflict, NoActiveProject, NotFound, ProjectOff

T = TypeVar("T")
log = logging.getLogger(__name__)
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
        self._lost: set[str] = set()  # chosen projects that no longer exist, each reported once

    async def open_to_read(self, call: ToolCall, name: str | None) -> RecordStore:
        return await self._find_store(call, name) or get_empty_store()

    async def open_to_write(self, call: ToolCall, name: str | None) -> RecordStore:
        store = await self._find_store(call, name)
        return store or await self._open_store((await self._create_project(call)).name)

    async def find_active(self, call: ToolCall) -> Project | None:
        if call.session.project:
            return await self._library.get_project(call.session.project)
        if self._configured is not None:
            return await self._find_configured(self._library.get_project)
        found = await self.find_folder_project(call)
        return None if found is None else found.project

    async def find_folder_project(self, call: ToolCall) -> FolderProject | None:
        """Return the project of the folder, or None if the folder does not count.

        An account sees another name, because the names of the owner's folders are private. The workspace is looked up
        at each call, because a folder may become a repository.
        """
        folder = self._workspace
        if folder is None:
            return None
        if isinstance(folder, Path):
            folder = call.folder or folder
        if get_acting_account() is None:
            found = await find_folder_project(self._library, folder)
            self._warn_of_lost(found)
            return found
        found = await find_folder_project(self._library, folder, has_choice=False)
        return found if found.project is not None else found._replace(name=DEFAULT_PROJECT)

    def _warn_of_lost(self, found: FolderProject) -> None:
        if found.lost is not None and found.lost not in self._lost:
            self._lost.add(found.lost)
            log.warning("%s", format_lost(found))

    async def ensure_project(self, call: ToolCall) -> Project:
        """Return the project of a call that names none. Create it if it is missing."""
        return await self.find_active(call) or await self._create_project(call)

    async def find_off_name(self, call: ToolCall) -> str | None:
        """Return the name of the active project if it is turned off."""
        try:
            project = await self.find_active(call)
        except NotFound:
            return None
        return project.name if project is not None and project.is_off else None

    async def find_pending_name(self, call: ToolCall) -> str | None:
        if call.session.project:
            return None
        if self._configured is not None:
            return self._clean_name(self._configured)
        found = await self.find_folder_project(call)
        return None if found is None else self._clean_name(found.name)

    async def _find_store(self, call: ToolCall, name: str | None) -> RecordStore | None:
        """Return the store, or None for a project that is chosen but not created yet."""
        if name is not None:
            return await self._open_store(name)
        if call.session.project:
            note_used_project(call.session.project)
            return await self._open_store(call.session.project)
        if self._configured is not None:
            note_used_project(self._clean_name(self._configured))
            return await self._find_configured(self._open_store)
        found = await self.find_folder_project(call)
        if found is None:
            stateless = "This connection is stateless. Pass `project` with each call."
            raise NoActiveProject(hint=None if call.session.stateful else stateless)
        note_used_project(self._clean_name(found.name))
        return None if found.project is None else await self._open_store(found.project.name)

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

    async def _create_project(self, call: ToolCall) -> Project:
        if self._configured is not None:
            return await self._create_or_get(self._clean_name(self._configured))
        found = await self.find_folder_project(call)
        home = None if found is None else found.home
        if home is None:
            return await self._create_or_get(DEFAULT_PROJECT)
        project = await self._create_numbered(home if found is None else home._replace(name=found.name))
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
