"""Past conversations as they may be given out: without those of projects that are switched off."""

import asyncio
from functools import lru_cache

from everkept.core.ports import Library, RecordStore
from everkept.core.projects import Silence
from everkept.families.history.importing.quiet import Quiet, Workspace
from everkept.families.history.model import HistoryOptions
from everkept.families.history.search.discreet import folders_of, without
from everkept.values import Value


class Reachable(Value):
    """What is there of the past to whoever asks now."""

    store: RecordStore
    hidden: frozenset[str] = frozenset()  # folders

    async def stamp(self) -> object:
        """Another value once an answer may be another."""
        return await self.store.stamp(), self.hidden


async def reachable(library: Library, options: HistoryOptions) -> Reachable:
    store = await library.history()
    quiet = _quiet(tuple(await library.silences()), options.workspace)
    if not quiet.off:
        return Reachable(store)
    folders = await folders_of(store)
    hidden = await asyncio.to_thread(quiet.hidden, folders)
    return Reachable(without(store, folders, hidden), hidden)


async def project_off(library: Library, options: HistoryOptions, folder: str) -> str | None:
    """The name of the project that a folder belongs to and that is off."""
    quiet = _quiet(tuple(await library.silences()), options.workspace)
    around = await asyncio.to_thread(quiet.switched_off, folder)
    project = None if around is None else await library.project_of_workspace(around)
    return None if project is None else project.name


@lru_cache(8)
def _quiet(silences: tuple[Silence, ...], workspace: Workspace) -> Quiet:
    """Kept from call to call: it looks at each folder on the disk once."""
    return Quiet(silences, workspace)
