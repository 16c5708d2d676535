"""Which folders of past conversations belong to projects: those alone are shared with them."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath, PurePosixPath, PureWindowsPath

from everkept.app.workspaces import key_of_workspace
from everkept.core.paths import is_windows, is_within
from everkept.core.ports import Library
from everkept.core.projects import Project


async def folders_of_projects(
    library: Library, projects: Sequence[Project], folders: Iterable[str]
) -> dict[str, Project]:
    """Those of the folders that lie in one of these projects, with it.

    One that may belong to another project as well, such as a repository inside of another, is left
    out unless that is among them too.
    """
    known = {project.id: project for project in projects}
    owners = _Owners(library)
    inside = [place for each in projects for place in await library.workspaces_of(each)]
    if not inside:
        return {}
    found: dict[str, Project] = {}
    for folder, places in (await asyncio.to_thread(_places, folders)).items():
        if not any(is_within(place, inside) for place in places):
            continue
        around = [owner for place in places if (owner := await owners.of(place)) is not None]
        if around and all(owner.id in known for owner in around):
            found[folder] = known[around[0].id]
    return found


class _Owners:
    """Whose each folder is: that of the innermost workspace around it."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._known: dict[str, Project | None] = {}

    async def of(self, folder: str) -> Project | None:
        path: PurePath = (PureWindowsPath if is_windows(folder) else PurePosixPath)(folder)
        for place in (path, *path.parents):
            key = str(place)
            if key not in self._known:
                self._known[key] = await self._library.project_of_workspace(key)
            if (owner := self._known[key]) is not None:
                return owner
        return None


def _places(folders: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Each folder as conversations name it, and as its project does, where that can be told."""
    named = {folder: key_of_workspace(folder) for folder in folders if folder}
    return {
        folder: (folder,) if key is None or key == folder else (folder, key)
        for folder, key in named.items()
    }
