"""Tasks of hooks: store one memory, and finish a session.

A process that stores one memory is short-lived, so it does not load what only the end of a session needs.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from everkept.accounts.project_rule import ProjectRule
from everkept.app.engines import make_library
from everkept.core.commits import Planned
from everkept.core.ports import Embedder, Library, RecordStore
from everkept.core.projects import Project
from everkept.core.sessions import Session, ToolCall
from everkept.core.times import Clock, read_clock
from everkept.errors import InvalidInput, ModelUnavailable, Unavailable
from everkept.families.memories.lifecycle import build_forget_steps, can_forget
from everkept.families.memories.memories import MemoryWriter
from everkept.families.memories.memory_record import HOOK_PREFIX, NewMemory
from everkept.families.memories.model import MemoryOptions, MemorySource, StoredMemory
from everkept.families.memories.stores import MemoryStores, SessionUses, close_session
from everkept.settings import AUTO, Settings, read_client_environment

if TYPE_CHECKING:
    from everkept.app.app import App

HOOK_CLIENT = "hooks"  # client name in the change log
JOINED_REASON = "joined with a later memory of the same command"
WRITE_WAIT_SECONDS = 0.3  # for a database that has just become unreachable, because an assistant waits


class DeferredIndexing:
    """Leaves embeddings to the next process that computes them. Texts without one are the queue."""

    @property
    def embedder(self) -> Embedder | None:
        return None

    @property
    def fault(self) -> ModelUnavailable | None:
        return None

    async def find_fault(self) -> ModelUnavailable | None:
        return None

    @property
    def kinds(self) -> Sequence[str]:
        return ()

    def is_behind(self, store: RecordStore) -> bool:
        return False

    def wake(self, store: RecordStore) -> None:
        """Do nothing: this process computes no embeddings."""

    async def wait_for(self, stores: Sequence[RecordStore], within: float) -> list[RecordStore]:
        return []

    async def wait_until_settled(self, within: float | None = None) -> bool:
        return True


async def store_memory(
    settings: Settings,
    folder: Path | None,
    wanted: NewMemory,
    *,
    replaced: str | None = None,
    library: Library | None = None,
    clock: Clock = read_clock,
) -> StoredMemory:
    """Store a memory in the project of the folder, creating the project if needed.

    Forget the automatic memory `replaced`, unless a person pinned or changed it. Raises Refused if the session has
    reached its limit.
    """
    opened = library or make_library(settings, clock, patience=WRITE_WAIT_SECONDS)
    try:
        named = None if settings.project in (None, AUTO) else settings.project
        # Without a folder there is no workspace, like in the home folder.
        rule = ProjectRule(opened, configured=named, workspace=folder or Path.home(), mask=settings.mask_secrets)
        call = ToolCall(Session(client=HOOK_CLIENT), wanted.source.tool or HOOK_CLIENT)
        stores = MemoryStores(rule, opened, call, None, clock, wanted.session)
        options = MemoryOptions(mask_secrets=settings.mask_secrets, max_per_session=settings.max_memories_per_session)
        stored = await MemoryWriter(stores, DeferredIndexing(), options, SessionUses()).store(wanted)
        if replaced is not None:
            await _forget_replaced(stores, replaced)
        return stored
    finally:
        if library is None:
            await opened.close()


async def _forget_replaced(stores: MemoryStores, replaced: str) -> None:
    """Forget a memory whose content a later one has."""

    async def plan(store: RecordStore, _at: int) -> Planned[None]:
        found = await store.get([replaced])
        return [
            step for record in found if can_forget(record) for step in build_forget_steps(record, JOINED_REASON)
        ], None

    await stores.commit(await stores.open_for_write("project"), plan)


CANDIDATE_TOOL = f"{HOOK_PREFIX} candidate"  # source of the memories
MAX_KEPT_CANDIDATES = 20  # of one session
SESSION_CLIENT = HOOK_PREFIX  # client name of the end of a session, in the change log
CONSOLIDATION_SECONDS = 30.0

Progress = Callable[[int, int], None]


class SessionEnd:
    """The end of one session, in the application's project."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._session = Session(client=SESSION_CLIENT)

    async def is_off(self) -> bool:
        project = await self._find_project()
        return project is not None and project.is_off

    async def import_transcript(self, transcript: Path, source: str, session: str, report: Progress) -> None:
        """Import what is new in a transcript and in those of its subagents.

        Raises InvalidInput if it is not a transcript of that program, and Unavailable.
        """
        from everkept.app.history import ImportRequest

        files = await asyncio.to_thread(_list_transcripts, transcript, source, session)
        wanted = ImportRequest((source,), files)
        imported = await self._app.history.import_transcripts(wanted, report)
        for failure in imported.failures:
            raise Unavailable(f"{failure.name} could not be read: {failure.reason}")

    async def keep_candidates(self, session: str) -> None:
        """Store the lasting statements of the session as automatic memories."""
        app = self._app
        found = await app.candidates.find(MAX_KEPT_CANDIDATES, session=session)
        for each in found:
            source = MemorySource(tool=CANDIDATE_TOOL)
            scope = "user" if each.kind == "preference" else "project"
            wanted = NewMemory(each.text, "semantic", scope, session=session, tags=(each.kind,), source=source)
            await store_memory(app.settings, app.settings.path, wanted, library=app.library, clock=app.clock)
            await app.candidates.mark_reviewed([each.id], "stored")

    async def summarize(self, session: str) -> None:
        """Consolidate the session's memories and store the summary."""
        store = await self._find_store()
        if store is None:
            return
        arguments = {"session_id": session, "strategy": "summarize"}
        async with asyncio.timeout(CONSOLIDATION_SECONDS):
            await self._app.call(self._session, "reflect_and_consolidate", arguments)
            user = await self._app.library.open_user_store()
            await close_session(store, session, self._app.clock(), user=user)

    async def fade_memories(self) -> int:
        """Forget automatic memories that were not used, and return their number."""
        from everkept.families.memories.lifecycle import fade_memories

        stores = (await self._find_store(), await self._app.library.open_user_store())
        return sum([await fade_memories(each, self._app.clock, SESSION_CLIENT) for each in stores if each])

    async def empty_trash(self) -> None:
        """Permanently delete the projects whose time in the trash is over."""
        from everkept.accounts.project_changes import empty_trash

        await empty_trash(self._app.library, self._app.settings.trash_days, self._app.clock())

    async def _find_store(self) -> RecordStore | None:
        """Return the project's store, or None if it does not exist or is archived."""
        project = await self._find_project()
        if project is None or project.status != "active":
            return None
        return (await self._app.library.open(project.name))[1]

    async def _find_project(self) -> Project | None:
        return await self._app.memory_access.find_project(self._session)


def _list_transcripts(transcript: Path, source: str, session: str) -> tuple[Path, ...]:
    """Return the transcript and those of its subagents. Links may have moved, so check their place."""
    from everkept.transcripts.source_programs import find_source, get_client_folders, list_agents

    folders = get_client_folders(read_client_environment(), Path.home(), sys.platform)
    if find_source(transcript, folders) != source:
        raise InvalidInput(
            f"{transcript} is not in the transcript folder of {source}.",
            hint="Run `everkept import history` to find the transcripts.",
        )
    agents = list_agents(transcript, source, session)
    return (transcript, *(each for each in agents if find_source(each, folders) == source))
