"""How often memories are given out: counted in memory, stored in batches."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from everkept.core.accounts import acting_as
from everkept.core.commits import touched
from everkept.core.ports import Access, RecordStore
from everkept.core.times import Clock
from everkept.errors import EverkeptError

INTERVAL = 2.0  # seconds between the first count and its being stored

log = logging.getLogger(__name__)


class BatchedAccesses:
    """What a crash loses of it are the counts of two seconds, and no memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[RecordStore, Counter[str]] = {}
        self._task: asyncio.Task[None] | None = None

    def note(self, store: RecordStore, ids: Sequence[str]) -> None:
        if not ids:
            return
        touched(ids)
        self._counts.setdefault(store, Counter()).update(ids)
        if self._task is None or self._task.done():
            with acting_as(None):
                self._task = asyncio.create_task(self._store_later(), name="accesses")

    async def of(self, store: RecordStore, ids: Sequence[str]) -> Mapping[str, Access]:
        known = dict(await store.accesses(ids))
        waiting = self._counts.get(store, Counter())
        for record_id in ids:
            if count := waiting[record_id]:
                stored = known.get(record_id, Access(0, 0))
                known[record_id] = Access(stored.count + count, self._clock())
        return known

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._flush()

    async def _store_later(self) -> None:
        await asyncio.sleep(INTERVAL)
        await self._flush()

    async def _flush(self) -> None:
        while self._counts:
            store, counts = self._counts.popitem()
            try:
                await store.note_accesses(counts, self._clock())
            except EverkeptError as error:
                log.info("accesses are not counted: %s", error)  # a reader must not suffer for it
