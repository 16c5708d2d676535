"""What hooks let the application do: store one memory, and work at the end of a session.

A process that stores one memory lives for a moment: what only the end of a session needs is loaded
there.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from everkept.accounts.project_rule import ProjectRule
from everkept.app.engines import make_library
from everkept.core.ports import Embedder, Library, RecordStore
from everkept.core.projects import Project
from everkept.core.sessions import Session, ToolCall
from everkept.core.times import Clock, read_clock
from everkept.errors import InvalidInput, ModelUnavailable, Unavailable
from everkept.families.memories.memories import MemoryWriter
from everkept.families.memories.memory_record import HOOK_PREFIX, NewMemory
from everkept.families.memories.model import MemoryOptions, StoredMemory
from everkept.families.memories.stores import MemoryStores, SessionUses, close_session
from everkept.settings import AUTO, Settings, read_client_environment

if TYPE_CHECKING:
    from everkept.app.app import App

HOOK_CLIENT = "hooks"  # in whose name it is stored
WRITE_WAIT_SECONDS = 0.3  # seconds for a database that has just gone: who waits is an assistant at work


class DeferredIndexing:
    """Leaves vectors to the next process that makes any: what has none is the queue."""

    @property
    def embedder(self) -> Embedder | None:
        return None

    @property
    def fault(self) -> ModelUnavailable | None:
        return None

    @property
    def kinds(self) -> Sequence[str]:
        return ()

    def wake(self, store: RecordStore) -> None:
        """Nobody is here to be woken."""

    async def wait_until_settled(self, within: float | None = None) -> bool:
        return True


async def store_memory(
    settings: Settings,
    folder: Path | None,
    wanted: NewMemory,
    *,
    library: Library | None = None,
    clock: Clock = read_clock,
) -> StoredMemory:
    """Stores it in the project of the folder, which is made where it is missing.

    Raises Refused where the session has stored all that it may.
    """
    opened = library or make_library(settings, clock, patience=WRITE_WAIT_SECONDS)
    try:
        named = None if settings.project in (None, AUTO) else settings.project
        # Like the home folder, no folder at all is no workspace.
        rule = ProjectRule(opened, configured=named, workspace=folder or Path.home())
        call = ToolCall(Session(client=HOOK_CLIENT), wanted.source.tool or HOOK_CLIENT)
        stores = MemoryStores(rule, opened, call, None, clock, wanted.session)
        options = MemoryOptions(mask_secrets=settings.mask_secrets, max_per_session=settings.max_memories_per_session)
        return await MemoryWriter(stores, DeferredIndexing(), options, SessionUses()).store(wanted)
    finally:
        if library is None:
            await opened.close()


SESSION_CLIENT = HOOK_PREFIX  # whose changes the end of a session makes, in the log
CONSOLIDATION_SECONDS = 30.0  # seconds that it may take

Progress = Callable[[int, int], None]


class SessionEnd:
    """The end of one session, in the project that the application works in."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._session = Session(client=SESSION_CLIENT)

    async def is_off(self) -> bool:
        project = await self._find_project()
        return project is not None and project.is_off

    async def import_transcript(self, transcript: Path, source: str, session: str, report: Progress) -> None:
        """What is new in it, and in those of the agents that it sent.

        Raises InvalidInput where it is no transcript of that program any more, and Unavailable.
        """
        from everkept.app.history import ImportRequest

        files = await asyncio.to_thread(_list_transcripts, transcript, source, session)
        wanted = ImportRequest((source,), files)
        imported = await self._app.history.import_transcripts(wanted, report)
        for failure in imported.failures:
            raise Unavailable(f"{failure.name} could not be read: {failure.reason}")

    async def summarize(self, session: str) -> None:
        """Consolidates what the session stored, and writes what it came to."""
        store = await self._find_store()
        if store is None:
            return
        arguments = {"session_id": session, "strategy": "summarize"}
        async with asyncio.timeout(CONSOLIDATION_SECONDS):
            await self._app.call(self._session, "reflect_and_consolidate", arguments)
            await close_session(store, session, self._app.clock())

    async def fade_memories(self) -> int:
        """Forgets what hooks stored and nobody used; says how many memories that were."""
        from everkept.families.memories.lifecycle import fade_memories

        stores = (await self._find_store(), await self._app.library.open_user_store())
        return sum([await fade_memories(each, self._app.clock, SESSION_CLIENT) for each in stores if each])

    async def _find_store(self) -> RecordStore | None:
        """None where nothing was stored yet, or the project is archived."""
        project = await self._find_project()
        if project is None or project.status != "active":
            return None
        return (await self._app.library.open(project.name))[1]

    async def _find_project(self) -> Project | None:
        return await self._app.memory_access.find_project(self._session)


def _list_transcripts(transcript: Path, source: str, session: str) -> tuple[Path, ...]:
    """It and those of its agents, as far as they lie where they should: links can have changed."""
    from everkept.transcripts.source_programs import find_source, get_client_folders, list_agents

    folders = get_client_folders(read_client_environment(), Path.home(), sys.platform)
    if find_source(transcript, folders) != source:
        raise InvalidInput(f"{transcript} is not where {source} keeps its transcripts.")
    agents = list_agents(transcript, source, session)
    return (transcript, *(each for each in agents if find_source(each, folders) == source))
