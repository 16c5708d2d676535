"""Moves to the trash and back that die somewhere in the middle."""

import actors
from everkept.core.library import SetProjectStatus
from everkept.core.projects import build_trash_name
from everkept.engines.sqlite.library import SqliteLibrary


class TrashLibrary(SqliteLibrary):
    async def trash(self, name: str) -> None:
        project = await self.get_project(name)
        await self.apply(SetProjectStatus(name, "archived", build_trash_name(project.id)))

    async def untrash(self, name: str) -> None:
        [project] = await self.list_projects()
        await self.apply(SetProjectStatus(project.name, "active", name))


def crash_at_lines(folder: str, operation: str, every: int) -> None:
    actors.SqliteLibrary = TrashLibrary
    actors.crash_at_lines(folder, operation, every)
