"""What is done when a session is over: its transcript is taken in, what it stored is summed up."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from everkept.app.app import App
from everkept.app.history import Wanted
from everkept.core.ports import RecordStore
from everkept.core.projects import Project
from everkept.core.sessions import Session
from everkept.errors import InvalidInput, Unavailable
from everkept.families.memories.expiry import fade
from everkept.families.memories.new_memory import HOOKS
from everkept.families.memories.sessions import close_session
from everkept.settings import client_environment

CLIENT = HOOKS  # whose changes these are, in the log
CONSOLIDATING = 30.0  # seconds that it may take

Progress = Callable[[int, int], None]


class Closing:
    """The end of one session, in the project that the application works in."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._session = Session(client=CLIENT)

    async def is_off(self) -> bool:
        project = await self._project()
        return project is not None and project.is_off

    async def take_in(self, transcript: Path, source: str, session: str, report: Progress) -> None:
        """What is new in it, and in those of the agents that it sent.

        Raises InvalidInput where it is no transcript of that program any more, and Unavailable.
        """
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
        stores = (await self._store(), await self._app.library.user())
        return sum([await fade(each, self._app.clock, CLIENT) for each in stores if each])

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
    from everkept.transcripts.programs import agents_of, client_folders, source_at

    folders = client_folders(client_environment(), Path.home(), sys.platform)
    if source_at(transcript, folders) != source:
        raise InvalidInput(f"{transcript} is not where {source} keeps its transcripts.")
    agents = agents_of(transcript, source, session)
    return (transcript, *(each for each in agents if source_at(each, folders) == source))
