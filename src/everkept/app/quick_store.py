"""Storing one memory from a process that lives for a moment, and loads no more than it takes."""

from collections.abc import Sequence
from pathlib import Path

from everkept.accounts.project_rule import ProjectRule
from everkept.app.engines import make_library
from everkept.core.ports import Embedder, Library, RecordStore
from everkept.core.sessions import Call, Session
from everkept.core.times import Clock, now
from everkept.errors import ModelUnavailable
from everkept.families.memories.memories import Memories
from everkept.families.memories.model import Options, StoredMemory
from everkept.families.memories.new_memory import NewMemory
from everkept.families.memories.sessions import Uses
from everkept.families.memories.stores import Stores
from everkept.settings import AUTO, Settings

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
