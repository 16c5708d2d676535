"""Where a hook looks: the folder of its own files, its project, and the project's history."""

from pathlib import Path
from typing import TYPE_CHECKING

from everkept.core.workspaces import DEFAULT_PROJECT, home_of
from everkept.errors import NotFound
from everkept.settings import AUTO, Settings

if TYPE_CHECKING:
    from everkept.core.ports import ReadingRoom, RecordStore
    from everkept.core.projects import Project


def hooks_folder(settings: Settings) -> Path:
    """Ledgers, jobs, the lock of the one that works them off, and a log of what went wrong."""
    return settings.data_dir / "hooks"


async def project_of(
    folder: Path | None, settings: Settings, room: "ReadingRoom"
) -> "Project | None":
    """The project that memories of this folder belong to, as servers have it; None before its
    first memory."""
    try:
        if settings.project not in (None, AUTO):
            return await room.project(settings.project)
        home = None if folder is None else home_of(folder)
        if home is not None:
            return await room.project_of_workspace(home.key)
        return await room.project(DEFAULT_PROJECT)
    except NotFound:
        return None


async def past_of(room: "ReadingRoom") -> "RecordStore | None":
    """None where nothing was taken in yet."""
    store = await room.history()
    if store is None:
        return None
    silences = await room.silences()
    if all(silence.until is not None for silence in silences):
        return store
    # Only now: nothing is off nearly always.
    from everkept.core.workspaces import key_of_workspace
    from everkept.families.history.off_folders import Quiet, folders_of, without

    folders = await folders_of(store)
    return without(store, folders, Quiet(silences, key_of_workspace).hidden(folders))
