"""What hooks let the application do: store one memory, and work at the end of a session.

A process that stores one memory lives for a moment: what only the end of a session needs is loaded
there.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from everkept.app.engines import make_library
from everkept.core.ports import Embedder, Library, RecordStore
from everkept.core.project_rule import ProjectRule
from everkept.core.projects import Project
from everkept.core.sessions import Call, Session
from everkept.core.times import Clock, now
from everkept.errors import InvalidInput, ModelUnavailable, Unavailable
from everkept.families.memories.memories import Memories
from everkept.families.memories.memory_record import HOOKS, NewMemory
from everkept.families.memories.model import Options, StoredMemory
from everkept.families.memories.stores import Stores, Uses, close_session
from everkept.settings import AUTO, Settings, client_environment

if TYPE_CHECKING:
    from everkept.app.app import App

CLIENT = "hooks"  # in whose name it is stored
PATIENCE = 0.3  # seconds for a database that has just gone: who waits is an assistant at work


class Later:
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

    async def settled(self, within: float | None = None) -> bool:
        return True


async def note(
    settings: Settings,
    folder: Path | None,
    wanted: NewMemory,
    *,
    library: Library | None = None,
    clock: Clock = now,
) -> StoredMemory:
    """Stores it in the project of the folder, which is made where it is missing.

    Raises Refused where the session has stored all that it may.
    """
    opened = library or make_library(settings, clock, patience=PATIENCE)
    try:
        named = None if settings.project in (None, AUTO) else settings.project
        # Like the home folder, no folder at all is no workspace.
        rule = ProjectRule(opened, configured=named, workspace=folder or Path.home())
        call = Call(Session(client=CLIENT), wanted.source.tool or CLIENT)
        stores = Stores(rule, opened, call, None, clock, wanted.session)
        options = Options(
            mask_secrets=settings.mask_secrets, max_per_session=settings.max_memories_per_session
        )
        return await Memories(stores, Later(), options, Uses()).store(wanted)
    finally:
        if library is None:
            await opened.close()


SESSION_CLIENT = HOOKS  # whose changes the end of a session makes, in the log
CONSOLIDATING = 30.0  # seconds that it may take

Progress = Callable[[int, int], None]


class Closing:
    """The end of one session, in the project that the application works in."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._session = Session(client=SESSION_CLIENT)

    async def is_off(self) -> bool:
        project = await self._project()
        return project is not None and project.is_off

    async def take_in(self, transcript: Path, source: str, session: str, report: Progress) -> None:
        """What is new in it, and in those of the agents that it sent.

        Raises InvalidInput where it is no transcript of that program any more, and Unavailable.
        """
        from everkept.app.history import Wanted

        files = await asyncio.to_thread(_transcripts, transcript, source, session)
        wanted = Wanted((source,), files)
        imported = await self._app.past.take_in(wanted, report)
        for failure in imported.failures:
            raise Unavailable(f"{failure.name} could not be read: {failure.reason}")

    async def sum_up(self, session: str) -> None:
        """Consolidates what the session stored, and writes what it came to."""
        store = await self._store()
        if store is None:
            return
        arguments = {"session_id": session, "strategy": "summarize"}
        async with asyncio.timeout(CONSOLIDATING):
            await self._app.call(self._session, "reflect_and_consolidate", arguments)
            await close_session(store, session, self._app.clock())

    async def fade(self) -> int:
        """Forgets what hooks stored and nobody used; says how many memories that were."""
        from everkept.families.memories.lifecycle import fade

        stores = (await self._store(), await self._app.library.user())
        return sum([await fade(each, self._app.clock, SESSION_CLIENT) for each in stores if each])

    async def _store(self) -> RecordStore | None:
        """None where nothing was stored yet, or the project is archived."""
        project = await self._project()
        if project is None or project.status != "active":
            return None
        return (await self._app.library.open(project.name))[1]

    async def _project(self) -> Project | None:
        return await self._app.shelf.project(self._session)


def _transcripts(transcript: Path, source: str, session: str) -> tuple[Path, ...]:
    """It and those of its agents, as far as they lie where they should: links can have changed."""
    from everkept.transcripts.source_programs import agents_of, client_folders, source_at

    folders = client_folders(client_environment(), Path.home(), sys.platform)
    if source_at(transcript, folders) != source:
        raise InvalidInput(f"{transcript} is not where {source} keeps its transcripts.")
    agents = agents_of(transcript, source, session)
    return (transcript, *(each for each in agents if source_at(each, folders) == source))
