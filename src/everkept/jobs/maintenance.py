"""Background work on stored data: embeddings, repairs after a crash, and maintenance commands."""

import asyncio
import logging
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from everkept.accounts.project_rule import ProjectRule
from everkept.core.commits import ChangeWriter, Planned
from everkept.core.ports import Embedder, Library, RecordStore, RecordVector
from everkept.core.projects import USER_PROJECT, Project
from everkept.core.records import Record, RecordFilter
from everkept.core.runtime import return_freed_memory
from everkept.core.sessions import Session, ToolCall, act_as
from everkept.core.times import Clock
from everkept.errors import EverkeptError, ModelReplaced, ModelUnavailable, NotFound, ProjectArchived, ProjectOff
from everkept.families.bank.model import SECTION_KIND
from everkept.families.history.model import CODE, TURN
from everkept.families.memories.lifecycle import build_forget_steps, finish_promotions, finish_supersessions
from everkept.families.memories.model import AUTOMATIC, MEMORY
from everkept.jobs.claims import ClaimedEmbedder, TurnLease
from everkept.jobs.usage_log import BatchedAccesses
from everkept.values import Value, field, replace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EMBEDDED_KINDS = (MEMORY, SECTION_KIND, TURN, CODE)

BATCH_TEXTS = 16  # larger batches need more memory and delay queries
EAGER_BATCHES = 8  # a longer queue is processed at half speed, so that the machine stays responsive
TURN_SECONDS = 5.0  # between two checks whether another process still has the lease
REPORT_TEXTS = 1_000  # texts between two log lines

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
        self._task: asyncio.Task[None] | None = None
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
            store = self._waiting.pop(0)
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
            await self._end_turn()
            if not self._waiting:
                await asyncio.to_thread(return_freed_memory)  # wake() works during this

    async def _embed_store(self, embedder: Embedder, store: RecordStore) -> None:
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
            if count < BATCH_TEXTS:
                self._behind.discard(store)
            else:
                self._behind.add(store)
            if not count:
                self._long.discard(store)
                return
            done += count
            batches += 1
            if batches == EAGER_BATCHES:
                self._long.add(store)
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


MAX_COMPARED_MEMORIES = 200  # newest memories that are compared with all others
MIN_SIMILARITY = 0.9  # cosine similarity of near duplicates
MAX_PAIRS = 10
FORGET_TOOL = "forget_memory"  # tool name in the change log, also if several memories are forgotten
AUTOMATIC_REASON = "automatic"

# Indexes the files of a memory bank and returns their store, or None without a bank.
IndexBank = Callable[[ToolCall], Awaitable[RecordStore | None]]


class MemoryPair(Value):
    score: float
    first: Record
    second: Record


class IndexResult(Value, frozen=False):
    """The number of embedded texts, of texts that the time was too short for, and the errors of stores that failed."""

    done: int = 0
    pending: int = 0
    problems: list[EverkeptError] = field(default_factory=list[EverkeptError])


class Maintenance:
    """Background maintenance of the stores in use, for the lifetime of the application."""

    def __init__(self, library: Library, indexer: Indexer, accesses: BatchedAccesses, clock: Clock) -> None:
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
            with act_as(None):
                task = asyncio.create_task(self._fix_store(*self._untended.pop()), name="repair")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def start_rest(self) -> None:
        """Embed all projects in the background once, if the model has changed. Only a process that stays does so."""
        if not self._has_begun_rest:
            self._has_begun_rest = True
            with act_as(None):
                task = asyncio.create_task(self._embed_rest(), name="embed the rest")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

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


class MemoryAccess:
    """Memories a command can access: one project's and the user's."""

    def __init__(
        self, library: Library, choice: ProjectRule, maintenance: Maintenance, bank: IndexBank | None = None
    ) -> None:
        self._library = library
        self._choice = choice
        self._maintenance = maintenance
        self._bank = bank

    async def list_newest(
        self, session: Session, where: RecordFilter, limit: int, *, everywhere: bool = False
    ) -> list[tuple[str, Record]]:
        """Return the newest memories of all sessions, each with the name of its project."""
        wanted = replace(where, kinds=(MEMORY,))
        found: list[tuple[str, Record]] = []
        for name, store in (await self._map_stores(session, everywhere=everywhere)).items():
            newest = await store.scan(wanted, order="newest", limit=limit)
            found += [(name, record) for record in newest]
        found.sort(key=lambda each: each[1].created_at, reverse=True)
        once = {record.id: (name, record) for name, record in reversed(found)}
        return list(once.values())[::-1][:limit]

    async def find_project(self, session: Session) -> Project | None:
        """Return the active project of a command, or None if it is not created yet."""
        return await self._choice.find_active(ToolCall(session, "command"))

    async def ensure_project(self, session: Session) -> Project:
        """Return the active project of a command. Create it if it is missing."""
        return await self._choice.ensure_project(ToolCall(session, "command"))

    async def find_memory(self, session: Session, memory_id: str) -> Record | None:
        for store in (await self._map_stores(session)).values():
            for record in await store.get([memory_id, f"{MEMORY}:{memory_id}"]):
                return record
        return None

    async def list_automatic(
        self, session: Session, where: RecordFilter, *, everywhere: bool = False
    ) -> dict[str, list[Record]]:
        """Return the automatic memories that are not pinned, by project name."""
        wanted = replace(where, kinds=(MEMORY,), automatic=True)
        places = await self._map_stores(session, everywhere=everywhere)
        found = {
            name: [record for record in await store.scan(wanted) if _can_forget(record)]
            for name, store in places.items()
        }
        return {name: records for name, records in found.items() if records}

    async def forget_automatic(
        self, session: Session, found: Mapping[str, Sequence[Record]], *, everywhere: bool = False
    ) -> dict[str, int]:
        """Forget memories that are still automatic and not pinned, in one change per project. Return the counts."""
        writer = ChangeWriter(self._maintenance.clock, FORGET_TOOL, session.client)

        async def plan(ids: Sequence[str], store: RecordStore, _at: int) -> Planned[int]:
            left = [record for record in await store.get(ids) if _can_forget(record)]
            steps = [step for record in left for step in build_forget_steps(record, AUTOMATIC_REASON)]
            return steps, len(left)

        counts: dict[str, int] = {}
        for name, store in (await self._map_stores(session, everywhere=everywhere)).items():
            if ids := [record.id for record in found.get(name, ())]:
                counts[name] = await writer.commit(store, partial(plan, ids))
        return {name: count for name, count in counts.items() if count}

    async def find_similar(self, session: Session) -> list[MemoryPair]:
        """Return pairs of near duplicates among the newest memories and all others."""
        embedder = self._maintenance.indexer.embedder
        if embedder is None:
            return []
        pairs: dict[frozenset[str], MemoryPair] = {}
        for store in (await self._map_stores(session)).values():
            for pair in await _find_pairs(store, embedder.name):
                pairs.setdefault(frozenset((pair.first.id, pair.second.id)), pair)
        best = sorted(pairs.values(), key=lambda pair: -pair.score)
        return best[:MAX_PAIRS]

    async def index(
        self,
        session: Session,
        report: Callable[[int, int], None],
        only: str | None = None,
        seconds: float | None = None,
    ) -> IndexResult:
        """Compute all missing embeddings now, in all projects or `only` in one, until the time is up.

        Projects that are turned off are included, because embeddings show no one their content. A store that fails does
        not stop the others. A model that another one has replaced is used again.
        """
        indexed = IndexResult()
        ends_at = None if seconds is None else time.monotonic() + seconds
        await self._maintenance.indexer.reclaim_model()
        stores = await self._list_stores_to_index(only, indexed.problems)
        total = sum([await self._count_pending(store) for store in stores])

        async def drain(store: RecordStore) -> None:
            before = indexed.done

            def further(done: int, _total: int) -> None:
                report(before + done, max(total, before + done))

            indexed.done += await self._maintenance.indexer.drain(store, further, ends_at)

        for store in stores:
            with _collect_problems(indexed.problems):
                await drain(store)
        with _collect_problems(indexed.problems), suppress(ProjectOff):  # nothing of an off project is indexed
            if self._bank is not None and (bank := await self._bank(ToolCall(session, "index"))):
                stores.append(bank)
                await drain(bank)
        if ends_at is not None:
            indexed.pending = sum([await self._count_pending(store) for store in stores])
        return indexed

    async def catch_up(self, session: Session, within: float) -> None:
        """Wait for pending embeddings, for a command that runs without a server."""
        for store in (await self._map_stores(session)).values():
            self._maintenance.indexer.register_store(store)
        await self._maintenance.indexer.wait_until_settled(within)

    async def _map_stores(self, session: Session, *, everywhere: bool = False) -> dict[str, RecordStore]:
        """Return the stores by name, the project's first, or those of all projects that are not off or archived."""
        if everywhere:
            active = await self._library.list_projects("active")
            names = [project.name for project in active if not project.is_off]
            own = {name: (await self._library.open(name))[1] for name in names}
        else:
            store = await self._choice.open_to_read(ToolCall(session, "command"), None)
            project = await self.find_project(session)
            own = {project.name if project else "": store}
        return {**own, USER_PROJECT: await self._library.open_user_store()}

    async def _list_stores_to_index(self, only: str | None, problems: list[EverkeptError]) -> list[RecordStore]:
        stores = [await self._library.open_user_store(), await self._library.open_history_store()]
        if only is not None:
            return [(await self._library.open(only))[1], *stores]
        for project in await self._library.list_projects("active"):
            with _collect_problems(problems):
                stores.append((await self._library.open(project.name))[1])
        return stores

    async def _count_pending(self, store: RecordStore) -> int:
        with suppress(EverkeptError):  # the error is reported when the store is indexed
            return (await self._maintenance.indexer.count_vectors(store))[1]
        return 0


@contextmanager
def _collect_problems(problems: list[EverkeptError]) -> Generator[None, None, None]:
    """Collect errors, except ModelUnavailable: without a model no store can be indexed."""
    try:
        yield
    except ModelUnavailable:
        raise
    except EverkeptError as error:
        problems.append(error)


def _can_forget(record: Record) -> bool:
    return bool(record.facets.get(AUTOMATIC)) and not record.facets.get("pinned")


async def _find_pairs(store: RecordStore, model: str) -> list[MemoryPair]:
    where = RecordFilter(kinds=(MEMORY,))
    newest = [
        r
        for r in await store.scan(where, order="newest", limit=MAX_COMPARED_MEMORIES)
        if not r.facets.get("superseded_by") and not r.facets.get("consolidated")
    ]
    vectors = await store.get_vectors(model, [record.id for record in newest])
    found: list[tuple[float, Record, str]] = []
    for record in newest:
        if record.id in vectors:
            near = await store.find_near(model, vectors[record.id], where, 2)
            found += [
                (match.score, record, match.id)
                for match in near
                if match.id != record.id and match.score >= MIN_SIMILARITY
            ]
    others = {r.id: r for r in await store.get([other for _, _, other in found])}
    return [
        MemoryPair(score, record, others[other])
        for score, record, other in found
        if other in others and not others[other].facets.get("superseded_by")
    ]
