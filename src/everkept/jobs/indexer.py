"""The background job that gives vectors to what is stored, in one process at a time."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4
from weakref import WeakSet

from everkept.core.accounts import acting_as
from everkept.core.memory_trim import return_freed_memory
from everkept.core.ports import Embedded, Embedder, Library, RecordStore
from everkept.core.records import Record
from everkept.core.store_values import PASSING
from everkept.core.times import Clock
from everkept.errors import EverkeptError, ModelUnavailable
from everkept.families.bank.model import SECTION
from everkept.families.history.model import CODE, TURN
from everkept.families.memories.model import MEMORY

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EMBEDDED_KINDS = (MEMORY, SECTION, TURN, CODE)


DURATION = 30 * 1_000_000  # microseconds after which the work of a process that died is free


class Lease:
    """A note that says whose turn it is, and until when.

    Two that come in the same moment may both believe it theirs until one looks again, so it is
    for work that is only wasted when it is done twice.
    """

    def __init__(self, library: Library, name: str, clock: Clock) -> None:
        self._library = library
        self._key = PASSING + name
        self._clock = clock
        self._owner = uuid4().hex
        self._until = 0

    async def take(self) -> bool:
        """Whether it is our turn; stays so for a while."""
        at = self._clock()
        if self._until - at > DURATION // 2:
            return True
        owner, until = await self._holder()
        if owner not in ("", self._owner) and until > at:
            self._until = 0
            return False
        await self._library.set_note(self._key, f"{self._owner} {at + DURATION}")
        self._until = at + DURATION
        return (await self._holder())[0] == self._owner

    async def end(self) -> None:
        """Lets the next one begin at once."""
        if self._until:
            self._until = 0
            if (await self._holder())[0] == self._owner:
                await self._library.set_note(self._key, None)

    async def _holder(self) -> tuple[str, int]:
        owner, _, until = (await self._library.note(self._key) or "").partition(" ")
        return owner, int(until) if until.isdecimal() else 0


BATCH = 16  # texts; larger ones take memory, and keep a question waiting
EAGER_BATCHES = 8  # a longer queue is worked off at half speed, so that the machine stays free
TURN_INTERVAL = 5.0  # seconds between two looks whether another process is still at it
REPORTED_EVERY = 1_000  # texts between two lines in the log

Progress = Callable[[int, int], None]

log = logging.getLogger(__name__)


class Indexer:
    """Embeds what waits, store by store, until nothing does.

    A record without a vector is the queue, so a crash loses nothing: whoever comes next goes on.
    The model is loaded by the first text, in a thread.
    """

    def __init__(
        self, embedder: Embedder | None, kinds: Sequence[str], lease: Lease | None = None
    ) -> None:
        """With a lease, one process at a time works off a long queue."""
        self._lease = lease
        self._embedder = embedder
        self._kinds = tuple(kinds)
        self._fault: ModelUnavailable | None = None
        self._waiting: list[RecordStore] = []
        self._met: WeakSet[RecordStore] = WeakSet()
        self._long: WeakSet[RecordStore] = WeakSet()  # whose newest are done, and many are left
        self._task: asyncio.Task[None] | None = None
        self._awaited = 0
        self._called = asyncio.Event()  # somebody wants something soon

    @property
    def embedder(self) -> Embedder | None:
        return self._embedder

    @property
    def fault(self) -> ModelUnavailable | None:
        if self._fault is None and self._embedder is not None:
            self._fault = self._embedder.fault
        return self._fault

    @property
    def kinds(self) -> tuple[str, ...]:
        return self._kinds

    def wake(self, store: RecordStore) -> None:
        if self._embedder is None or self.fault is not None:
            return
        self._met.add(store)
        self._long.discard(store)  # something new stands before what is left
        self._called.set()
        if store not in self._waiting:
            self._waiting.append(store)
        if self._task is None or self._task.done():
            with acting_as(None):
                self._task = asyncio.create_task(self._run(), name="indexer")

    def wake_all(self) -> None:
        """Every store that is known may have texts again that wait: a database is back."""
        for store in list(self._met):
            self.wake(store)

    def meet(self, store: RecordStore) -> None:
        """Looks once at a store that another process may have left in the middle of its queue."""
        if store not in self._met:
            self.wake(store)

    async def settled(self, within: float | None = None) -> bool:
        """Waits until nothing is left to do; False where the time did not suffice."""
        if self._task is None:
            return True
        self._awaited += 1
        self._called.set()
        try:
            done, _ = await asyncio.wait([self._task], timeout=within)
        finally:
            self._awaited -= 1
        return bool(done)

    async def drain(self, store: RecordStore, report: Progress) -> int:
        """Embeds all that waits in a store at full speed, for somebody who watches.

        Says how much that was, though some of it may be done in the background.
        """
        if self._embedder is None:
            return 0
        done = 0
        _, total = await store.vector_counts(self._embedder.name, self._kinds)
        while count := await self._embed_some(self._embedder, store):
            done += count
            report(done, max(total, done))
        return max(total, done)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            await self._end_turn()
        if self._embedder is not None:
            await self._embedder.close()

    async def _run(self) -> None:
        embedder = self._embedder
        while self._waiting and embedder is not None:
            store = self._waiting.pop(0)
            try:
                await self._work_off(embedder, store)
            except ModelUnavailable as fault:
                self._fault = fault
                log.warning("no vectors: %s", fault)
                return
            except EverkeptError as error:
                # An archived project, a full disk: the records stay queued for the next time.
                log.info("vectors have to wait: %s", error)
            await self._end_turn()
            if not self._waiting:
                await asyncio.to_thread(return_freed_memory)  # who wakes us meanwhile is served

    async def _work_off(self, embedder: Embedder, store: RecordStore) -> None:
        done = batches = 0
        started = time.monotonic()
        while True:
            is_long = store in self._long and not self._awaited
            if is_long:
                await asyncio.sleep(time.monotonic() - started)
                if not await self._is_our_turn():
                    self._waiting.append(store)
                    return
                started = time.monotonic()
            count = await self._embed_some(embedder, store)
            if not count:
                self._long.discard(store)
                return
            done += count
            batches += 1
            if batches == EAGER_BATCHES:
                self._long.add(store)
            if done % REPORTED_EVERY < count and done >= REPORTED_EVERY:
                _, left = await store.vector_counts(embedder.name, self._kinds)
                log.info("embedded %d texts, %d are waiting", done, left)
            if is_long and self._waiting:
                self._waiting.append(store)  # behind those that may have something new
                return

    async def _is_our_turn(self) -> bool:
        """Whether no other process works off a long queue just now; says so after a while."""
        self._called.clear()
        if self._lease is None or await self._lease.take():
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(0 if self._waiting else TURN_INTERVAL):
                await self._called.wait()
        return False

    async def _end_turn(self) -> None:
        if self._lease is not None:
            with suppress(EverkeptError):  # it ends by itself
                await self._lease.end()

    async def _embed_some(self, embedder: Embedder, store: RecordStore) -> int:
        records = await store.unembedded(embedder.name, self._kinds, BATCH)
        if not records:
            return 0
        vectors = await self._vectors(embedder, records)
        items = [Embedded(r.id, r.version, v) for r, v in zip(records, vectors, strict=True)]
        # What was changed meanwhile is not kept, and queues again with its new text.
        await store.put_vectors(embedder.name, items)
        return len(records)

    async def _vectors(
        self, embedder: Embedder, records: Sequence[Record]
    ) -> "Sequence[NDArray[np.float32]]":
        """A text that the model fails at must not keep all others waiting: it gets an empty
        one's vector, and is found by its words."""
        try:
            return list(await embedder.embed([record.text for record in records]))
        except EverkeptError:
            raise
        except Exception:
            if len(records) > 1:
                return [(await self._vectors(embedder, [record]))[0] for record in records]
            log.exception("%s cannot be embedded", records[0].id)
            return list(await embedder.embed([""]))
