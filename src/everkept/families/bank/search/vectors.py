"""How many sections wait for their vectors, and a short wait for them before a search."""

from weakref import WeakKeyDictionary

from everkept.core.ports import Embedder, Indexing, RecordStore
from everkept.core.sessions import Session
from everkept.families.bank.model import SECTION

# Seconds. A command has no background that would go on, and finds nothing by meaning otherwise.
COMMAND_PATIENCE = 3.0
PATIENCE = 0.3
FEW = 32  # sections that a conversation waits for: about what one edit leaves


class SectionVectors:
    """Sees to it that what was just written is found by its meaning too, where that is quick."""

    def __init__(self, indexing: Indexing) -> None:
        self._indexing = indexing
        # The revision at which none waited: those that wait now came with a later one.
        self._complete: WeakKeyDictionary[RecordStore, int] = WeakKeyDictionary()

    async def waiting(self, store: RecordStore, session: Session) -> int:
        """How many are left after the wait; none where meaning does not count at all."""
        embedder = self._indexing.embedder
        if embedder is None or self._indexing.fault is not None:
            return 0
        revision = await store.revision()
        if self._complete.get(store) == revision:
            return 0
        if count := await _count(store, embedder):
            self._indexing.wake(store)
            if patience := _patience(session, count):
                await self._indexing.settled(patience)
                count = await _count(store, embedder)
        if not count:
            self._complete[store] = revision
        return count


async def _count(store: RecordStore, embedder: Embedder) -> int:
    _, waiting = await store.vector_counts(embedder.name, (SECTION,))
    return waiting


def _patience(session: Session, count: int) -> float:
    if not session.is_conversation:
        return COMMAND_PATIENCE
    return PATIENCE if count <= FEW else 0.0
