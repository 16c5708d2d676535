"""Background work on stored data: embeddings and repairs after a crash."""

import asyncio
import logging
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from everkept.core.ports import Embedder, Library, RecordStore, RecordVector
from everkept.core.records import DOCUMENT, Record
from everkept.core.runtime import return_freed_memory
from everkept.core.sessions import act_as
from everkept.core.times import Clock
from everkept.errors import EverkeptError, ModelReplaced, ModelUnavailable, NotFound, ProjectArchived
from everkept.families.bank.model import SECTION_KIND
from everkept.families.history.model import CODE, TURN
from everkept.families.memories.lifecycle import finish_promotions, finish_supersessions
from everkept.families.memories.model import MEMORY
from everkept.jobs.claims import ClaimedEmbedder, TurnLease
from everkept.jobs.usage_log import BatchedAccesses

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EMBEDDED_KINDS = (MEMORY, SECTION_KIND, TURN, CODE, DOCUMENT)

BATCH_TEXTS = 16  # larger batches need more memory and delay queries
MAX_AWAITED_BATCHES = 2  # a store with more pending texts is not awaited
EAGER_BATCHES = 8  # a longer queue is processed at half speed, so that the machine stays responsive
TURN_SECONDS = 5.0  # between two checks whether another process still has the lease
REPORT_TEXTS = 1_000  # texts between two log lines
SWEEP_SECONDS = 6 * 3600.0  # between two looks at the trash

Progress = Callable[[int, int], None]

log = logging.getLogger(__name__)


class Indexer:
    """Background task that computes missing embeddings, store by store.

    Records without an embedding are the queue, so after a crash the next process continues. The first text loads the
    model, in a thread.
    """

    def __init__(self, embedder: Embedder | None, kinds: Sequence[str], lease: TurnLease | None = None) -> None:
        """Create an indexer. With a lease, only one process at a time works on a long queue."""
        self._lease = lease
        self._embedder = embedder
        self._kinds = tuple(kinds)
        self._fault: ModelUnavailable | None = None
        self._waiting: list[RecordStore] = []
        self._met: WeakSet[RecordStore] = WeakSet()
        self._behind: WeakSet[RecordStore] = WeakSet()  # stores not checked yet, or with more than one batch left
        self._long: WeakSet[RecordStore] = WeakSet()  # stores with their newest texts done and many left
        self._revisions: WeakKeyDictionary[RecordStore, int] = WeakKeyDictionary()  # of each store at its last check
        self._task: asyncio.Task[None] | None = None
        self._current: RecordStore | None = None
        self._batches = 0  # of the current store
        self._batch_ended = asyncio.Event()  # a new one for each batch
        self._awaited = 0
        self._called = asyncio.Event()  # set when new work arrives or a caller waits

    @property
    def embedder(self) -> Embedder | None:
        return self._embedder

    @property
    def fault(self) -> ModelUnavailable | None:
        if self._fault is None and self._embedder is not None:
            return self._embedder.fault
        return self._fault

    async def find_fault(self) -> ModelUnavailable | None:
        if isinstance(self._embedder, ClaimedEmbedder):
            with suppress(ModelReplaced):  # `fault` has it then
                await self._embedder.claim.check()
        return self.fault

    @property
    def kinds(self) -> tuple[str, ...]:
        return self._kinds

    async def count_vectors(self, store: RecordStore) -> tuple[int, int]:
        """Count embedded and pending texts. Both are 0 if embeddings are turned off."""
        if self._embedder is None:
            return 0, 0
        return await store.count_vectors(self._embedder.name, self._kinds)

    def is_behind(self, store: RecordStore) -> bool:
        return store in self._behind or store not in self._met

    def wake(self, store: RecordStore) -> None:
        if self._embedder is None or self.fault is not None:
            return
        if store not in self._met:
            self._met.add(store)
            self._behind.add(store)
        self._long.discard(store)  # new texts come before the rest of a long queue
        self._called.set()
        if store not in self._waiting:
            self._waiting.append(store)
        if self._task is None or self._task.done():
            with act_as(None):
                self._task = asyncio.create_task(self._run(), name="indexer")
            self._task.add_done_callback(lambda _: self._end_batch())

    def wake_all(self) -> None:
        """Check every known store again, after a database became reachable."""
        for store in list(self._met):
            self.wake(store)

    def register_store(self, store: RecordStore) -> None:
        """Check a store once: another process may have left pending texts in it."""
        if store not in self._met:
            self.wake(store)

    async def wait_until_settled(self, within: float | None = None) -> bool:
        """Wait until no text is pending. Return False if the time was too short."""
        if self._task is None:
            return True
        self._awaited += 1
        self._called.set()
        try:
            done, _ = await asyncio.wait([self._task], timeout=within)
        finally:
            self._awaited -= 1
        return bool(done)

    async def wait_for(self, stores: Sequence[RecordStore], within: float) -> list[RecordStore]:
        """Wait until the few pending texts of these stores are embedded. Return the stores that need more time.

        Texts that other processes stored since the last check count too. A hook and a short command leave theirs.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await asyncio.gather(*(self._look_again(store) for store in stores))
                while self._list_unsettled(stores):
                    await self._batch_ended.wait()
        return self._list_unsettled(stores)

    async def _look_again(self, store: RecordStore) -> None:
        with suppress(EverkeptError):  # the search itself reports it
            if store in self._revisions and self._revisions[store] != (await store.get_stamp())[0]:
                self.wake(store)

    def _list_unsettled(self, stores: Sequence[RecordStore]) -> list[RecordStore]:
        """Return the stores that are processed now or next, without those that have many texts left."""
        if self._task is None or self._task.done():
            return []
        # What was just stored in the current store belongs to its next batch, so it does not count twice.
        working = [store for store in self._waiting if store not in self._long and store is not self._current]
        if self._current is not None and self._batches < MAX_AWAITED_BATCHES:
            working.append(self._current)
        return [store for store in stores if store in working]

    def _end_batch(self) -> None:
        self._batch_ended.set()
        self._batch_ended = asyncio.Event()

    async def find_unfinished(self) -> bool:
        """Return whether projects that are not open may still have embeddings of an earlier model."""
        embedder = self._embedder
        return isinstance(embedder, ClaimedEmbedder) and await embedder.claim.find_unfinished()

    async def embed_rest(self, stores: AsyncIterable[RecordStore]) -> None:
        """Embed all texts of these stores, when nothing else is to be embedded and at half speed."""
        embedder = self._embedder
        if not isinstance(embedder, ClaimedEmbedder):
            return
        async for store in stores:
            count = BATCH_TEXTS
            while count:
                if self._task is not None:
                    await asyncio.wait([self._task])
                if not await self._is_our_turn():
                    continue
                started = time.monotonic()
                count = await self._embed_some(embedder, store)
                await asyncio.sleep(time.monotonic() - started)
            await self._end_turn()
        await embedder.claim.finish()

    async def reclaim_model(self) -> None:
        """Use this process's model even if another one has replaced it. Raise ModelUnavailable if it does not work."""
        if isinstance(self._embedder, ClaimedEmbedder):
            await self._embedder.reclaim()

    async def drain(self, store: RecordStore, report: Progress, ends_at: float | None = None) -> int:
        """Embed pending texts at full speed. Return their number, including those done in the background.

        `ends_at` is a time of the monotonic clock, after which the rest stays pending.
        """
        if self._embedder is None:
            return 0
        done = 0
        _, total = await store.count_vectors(self._embedder.name, self._kinds)
        while ends_at is None or time.monotonic() < ends_at:
            if not (count := await self._embed_some(self._embedder, store)):
                return max(total, done)
            done += count
            report(done, max(total, done))
        return done

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
            store = self._current = self._waiting.pop(0)
            try:
                await self._embed_store(embedder, store)
            except ModelUnavailable as fault:
                if not isinstance(fault, ModelReplaced):  # that may pass
                    self._fault = fault
                log.warning("embeddings are off: %s", fault)
                return
            except EverkeptError as error:
                # For example an archived project or a full disk. The texts stay pending.
                log.info("embeddings postponed: %s", error)
            finally:
                self._current = None
                self._end_batch()
            await self._end_turn()
            if not self._waiting:
                await asyncio.to_thread(return_freed_memory)  # wake() works during this

    async def _embed_store(self, embedder: Embedder, store: RecordStore) -> None:
        done = self._batches = 0
        started = time.monotonic()
        self._revisions[store] = (await store.get_stamp())[0]
        while True:
            is_long = store in self._long and not self._awaited
            if is_long:
                await asyncio.sleep(time.monotonic() - started)
                if not await self._is_our_turn():
                    self._waiting.append(store)
                    return
                started = time.monotonic()
            count = await self._embed_some(embedder, store)
            if count < BATCH_TEXTS:
                self._behind.discard(store)
            else:
                self._behind.add(store)
            if not count:
                self._long.discard(store)
                return
            done += count
            self._batches += 1
            if self._batches == EAGER_BATCHES:
                self._long.add(store)
            self._end_batch()
            if done % REPORT_TEXTS < count and done >= REPORT_TEXTS:
                _, left = await store.count_vectors(embedder.name, self._kinds)
                log.info("embedded %d texts, %d pending", done, left)
            if is_long and self._waiting:
                self._waiting.append(store)  # behind stores that may have new texts
                return

    async def _is_our_turn(self) -> bool:
        """Return whether this process may work on a long queue. If not, wait a while first."""
        self._called.clear()
        if self._lease is None or await self._lease.take():
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(0 if self._waiting else TURN_SECONDS):
                await self._called.wait()
        return False

    async def _end_turn(self) -> None:
        if self._lease is not None:
            with suppress(EverkeptError):  # the lease expires anyway
                await self._lease.end()

    async def _embed_some(self, embedder: Embedder, store: RecordStore) -> int:
        records = await store.find_unembedded(embedder.name, self._kinds, BATCH_TEXTS)
        if not records:
            return 0
        vectors = await self._embed_records(embedder, records)
        items = [RecordVector(r.id, r.version, v) for r, v in zip(records, vectors, strict=True)]
        if isinstance(embedder, ClaimedEmbedder):
            await embedder.claim.take()
        # The store ignores the embedding of a record that has changed, which stays pending.
        await store.put_vectors(embedder.name, items)
        return len(records)

    async def _embed_records(self, embedder: Embedder, records: Sequence[Record]) -> "Sequence[NDArray[np.float32]]":
        """Embed the records. A text that the model cannot process gets the embedding of an empty text.

        It must not block the others, and keyword search still finds it.
        """
        try:
            return list(await embedder.embed([record.text for record in records]))
        except EverkeptError:
            raise
        except Exception:
            if len(records) > 1:
                return [(await self._embed_records(embedder, [record]))[0] for record in records]
            log.exception("cannot embed %s", records[0].id)
            return list(await embedder.embed([""]))


class Maintenance:
    """Background maintenance of the stores in use, for the lifetime of the application."""

    def __init__(
        self, library: Library, indexer: Indexer, accesses: BatchedAccesses, clock: Clock, trash_days: int = 0
    ) -> None:
        """Pass the days after which projects in the trash are deleted permanently, or 0 to keep them."""
        self._trash_days = trash_days
        self._swept_at: float | None = None
        self._library = library
        self.clock = clock
        self._met: dict[RecordStore | None, WeakSet[RecordStore]] = {}  # keyed by the user store
        self._untended: list[tuple[RecordStore, RecordStore | None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_begun_rest = False
        self.indexer = indexer
        self.accesses = accesses

    def register_store(self, store: RecordStore, home: RecordStore | None = None) -> None:
        """Note once that a store may need repairs after a crash. `home` is an account's user store, if any."""
        met = self._met.setdefault(home, WeakSet())
        if store not in met:
            met.add(store)
            self._untended.append((store, home))

    def start_repairs(self) -> None:
        """Start repairs in the background. Call it after an answer, so that the first call does not wait."""
        while self._untended:
            self._start(self._fix_store(*self._untended.pop()), "repair")

    def start_rest(self) -> None:
        """Embed all projects in the background once, if the model has changed, and empty the trash several times a day.

        Only a process that stays does so.
        """
        if not self._has_begun_rest:
            self._has_begun_rest = True
            self._start(self._embed_rest(), "embed the rest")
        now = time.monotonic()
        if self._trash_days and (self._swept_at is None or now - self._swept_at > SWEEP_SECONDS):
            self._swept_at = now
            self._start(self.empty_trash(), "empty the trash")

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        with act_as(None):
            task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def empty_trash(self) -> None:
        """Permanently delete the projects whose time in the trash is over."""
        from everkept.accounts.project_changes import empty_trash

        try:
            for each in await empty_trash(self._library, self._trash_days, self.clock()):
                log.info("project %s deleted from the trash", each.name)
        except EverkeptError as error:
            log.info("trash not emptied: %s", error)

    async def wait_until_done(self) -> None:
        """Wait until all registered stores are repaired and indexed."""
        self.start_repairs()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.indexer.wait_until_settled()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.indexer.close()
        await self.accesses.close()

    async def _fix_store(self, store: RecordStore, home: RecordStore | None) -> None:
        try:
            user = home or await self._library.open_user_store()
            await finish_promotions(store, user, self.clock)
            await finish_supersessions(store, user, self.clock)
            self.indexer.register_store(store)
            self.indexer.register_store(user)
        except EverkeptError as error:
            log.info("repairs postponed: %s", error)

    async def _embed_rest(self) -> None:
        try:
            if await self.indexer.find_unfinished():
                await self.indexer.embed_rest(self._iterate_stores())
        except EverkeptError as error:
            log.info("embeddings of other projects postponed: %s", error)

    async def _iterate_stores(self) -> AsyncIterator[RecordStore]:
        yield await self._library.open_user_store()
        yield await self._library.open_history_store()
        for project in await self._library.list_projects("active"):
            with suppress(NotFound, ProjectArchived):  # since the list was read
                yield (await self._library.open(project.name))[1]
