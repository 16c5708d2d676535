"""Turns that wait for their vectors: while there are many, whoever searches should know."""

from everkept.core.ports import Embedder, RecordStore
from everkept.families.history.model import TURN
from everkept.retrieval.profile import Notice

MANY = 0.1  # share of all turns


async def waiting(store: RecordStore, embedder: Embedder | None) -> Notice | None:
    """Says how many are found by words alone so far, where that is worth a word."""
    # One that waits is found a hundred times faster than all are counted.
    if embedder is None or not await store.unembedded(embedder.name, (TURN,), 1):
        return None
    ready, left = await store.vector_counts(embedder.name, (TURN,))
    total = ready + left
    if left <= MANY * total:
        return None
    message = f"{left:,} of {total:,} turns are found by words alone so far."
    return Notice("partial_results", message)
