"""The vectors of memories, made on the spot where the background has not come to it yet."""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from everkept.core.ports import Embedded, Embedder, Indexing, RecordStore
from everkept.core.records import Record
from everkept.errors import ModelUnavailable
from everkept.retrieval.profile import Deadline
from everkept.tools.tool import Warned

if TYPE_CHECKING:  # loaded by whoever embeds
    import numpy as np
    from numpy.typing import NDArray

Vectors = Mapping[str, "NDArray[np.float32]"]

BATCH = 16  # texts

log = logging.getLogger(__name__)


class Meaning:
    """Gives vectors until the time is up, in however many stores."""

    def __init__(self, indexing: Indexing, time_limit: float | None) -> None:
        self._embedder = indexing.embedder
        self._fault = indexing.fault
        self._deadline = Deadline.within(time_limit)
        self._missing: dict[RecordStore, int] = {}

    async def of(self, store: RecordStore, records: Sequence[Record]) -> Vectors:
        """By id, as the store keeps them; those that matter most are to come first."""
        embedder = self._embedder
        if embedder is None or not records:
            return {}
        found = dict(await store.vectors(embedder.name, [record.id for record in records]))
        waiting = [r for r in records if r.text and r.id not in found]
        for start in range(0, len(waiting), BATCH):
            if self._fault is not None or self._deadline.has_passed:
                break
            batch = waiting[start : start + BATCH]
            found |= await self._deadline.one(self._made(embedder, store, batch)) or {}
        self._missing[store] = sum(record.id not in found for record in waiting)
        return found

    @property
    def warnings(self) -> list[Warned]:
        missing = sum(self._missing.values())
        if not missing:
            return []
        count = "1 memory" if missing == 1 else f"{missing} memories"
        if self._fault is not None:
            message = f"{self._fault.message} {count} without a vector counted by words alone."
            return [Warned("embedding_failed", message)]
        return [Warned("embeddings_pending", f"{count} without a vector yet counted by words.")]

    async def _made(
        self, embedder: Embedder, store: RecordStore, records: Sequence[Record]
    ) -> Vectors:
        ids = [record.id for record in records]
        # The background works at the same queue.
        there = await store.vectors(embedder.name, ids)
        missing = [record for record in records if record.id not in there]
        if not missing:
            return there
        try:
            rows = await embedder.embed([record.text for record in missing])
        except ModelUnavailable as fault:
            self._fault = fault
            return there
        except Exception:
            log.exception("%d memories have to wait for their vectors", len(missing))
            return there
        items = [Embedded(r.id, r.version, row) for r, row in zip(missing, rows, strict=True)]
        await store.put_vectors(embedder.name, items)
        # Read back: what is stored is rounded, and the next time must see the same.
        return await store.vectors(embedder.name, ids)
