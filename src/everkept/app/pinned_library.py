"""A library that shows only one project, for a server that is pinned to it."""

from typing import ClassVar, TypeVar

from everkept.core import library as catalog
from everkept.core.library import (
    CatalogAnswers,
    CatalogChange,
    CatalogChanges,
    CatalogQuestion,
    ForwardingLibrary,
    Library,
)
from everkept.core.projects import Project, is_trash_name
from everkept.core.sessions import is_private_name
from everkept.core.store import RecordStore
from everkept.errors import NotFound, Refused

A = TypeVar("A")


class PinnedLibrary(ForwardingLibrary):
    """Library without all projects but one, which is known by its stored name.

    Another project answers as if it did not exist, to the owner too, and no other can be created. The history shows
    the conversations in the folders of the project. Memories of the scope `user` and private stores of accounts belong
    to no project, so they stay.
    """

    def __init__(self, library: Library, only: str) -> None:
        self._library = library
        self._only = only

    async def _reach_library(self) -> Library:
        return self._library

    @property
    def condition(self) -> catalog.Condition:
        return self._library.condition

    async def close(self) -> None:
        await self._library.close()

    async def ask(self, question: CatalogQuestion[A]) -> A:
        answer = self._answers.get(type(question))
        return await (self._library.ask(question) if answer is None else answer(self, question))

    async def apply(self, change: CatalogChange[A]) -> A:
        do = self._changes.get(type(change))
        return await (self._library.apply(change) if do is None else do(self, change))

    async def open(self, name: str) -> tuple[Project, RecordStore]:
        self._check_name(name)
        return await self._library.open(name)

    async def get_store(self, project: Project) -> RecordStore:
        self._check_name(project.name)
        return await self._library.get_store(project)

    async def open_history_store(self) -> RecordStore:
        # Imported here: most calls need no conversations.
        from everkept.app.search_sources import map_project_folders
        from everkept.families.history.off_folders import FilteredStore, read_folders

        store = await self._library.open_history_store()
        projects = [each for each in await self.list_projects() if not is_trash_name(each.name)]
        shown = await map_project_folders(self._library, projects, await read_folders(store))
        return FilteredStore(store, tuple(sorted(shown)), lambda scope: scope in shown)

    def _is_shown(self, name: str) -> bool:
        return name == self._only or is_private_name(name) or is_trash_name(name)

    def _check_name(self, name: str) -> None:
        if not self._is_shown(name):
            raise NotFound("project", name, hint=f'This server serves only project "{self._only}".')

    async def _list_projects(self, question: catalog.ListProjects) -> list[Project]:
        return [project for project in await self._library.ask(question) if self._is_shown(project.name)]

    async def _get_project(self, question: catalog.GetProject) -> Project:
        self._check_name(question.name)
        return await self._library.ask(question)

    async def _find_workspace_project(self, question: catalog.FindWorkspaceProject) -> Project | None:
        found = await self._library.ask(question)
        return found if found is not None and self._is_shown(found.name) else None

    async def _add_project(self, change: catalog.AddProject) -> Project:
        if not self._is_shown(change.name):
            raise Refused(
                f'This server serves only project "{self._only}", so no other can be created.',
                hint="Use this project, or ask the server's owner.",
                project=self._only,
            )
        return await self._library.apply(change)

    async def _change_project(
        self, change: catalog.SetProjectStatus | catalog.SetProjectOff | catalog.DeleteProject
    ) -> Project | None:
        self._check_name(change.name)
        return await self._library.apply(change)

    async def _link_workspace(self, change: catalog.LinkWorkspace) -> Project:
        self._check_name(change.project.name)
        return await self._library.apply(change)

    async def _move_workspace(self, change: catalog.MoveWorkspace) -> None:
        if change.project is not None:
            self._check_name(change.project.name)
        await self._library.apply(change)

    _answers: ClassVar[CatalogAnswers] = {
        catalog.ListProjects: _list_projects,
        catalog.GetProject: _get_project,
        catalog.FindWorkspaceProject: _find_workspace_project,
    }
    _changes: ClassVar[CatalogChanges] = {
        catalog.AddProject: _add_project,
        catalog.SetProjectStatus: _change_project,
        catalog.SetProjectOff: _change_project,
        catalog.DeleteProject: _change_project,
        catalog.LinkWorkspace: _link_workspace,
        catalog.MoveWorkspace: _move_workspace,
    }
