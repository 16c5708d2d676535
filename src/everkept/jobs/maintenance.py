"""Background work on what is stored: vectors, care for memories, and what commands ask of it."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4
from weakref import WeakSet

from everkept.accounts.project_rule import ProjectRule
from everkept.core.answers import LEASE_PREFIX
from everkept.core.commits import ChangeWriter, Planned
from everkept.core.ports import Embedder, Library, RecordStore, RecordVector
from everkept.core.projects import USER_PROJECT, Project
from everkept.core.records import Record, RecordFilter
from everkept.core.runtime import return_freed_memory
from everkept.core.sessions import Session, ToolCall, act_as
from everkept.core.times import Clock
from everkept.errors import EverkeptError, ModelUnavailable, ProjectOff
from everkept.families.bank.model import SECTION_KIND
from everkept.families.history.model import CODE, TURN
from everkept.families.memories.lifecycle import build_forget_steps, finish_promotions, finish_supersessions
from everkept.families.memories.model import AUTOMATIC, MEMORY
from everkept.jobs.usage_log import BatchedAccesses
from everkept.values import Value, field, replace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EMBEDDED_KINDS = (MEMORY, SECTION_KIND, TURN, CODE)


# microseconds after which the work of a process that died is free
LEASE_MICROSECONDS = 30 * 1_000_000


class TurnLease:
    """A note that says whose turn it is, and until when.

    Two that come in the same moment may both believe it theirs until one looks again, so it is
    for work that is only wasted when it is done twice.
    """

    def __init__(self, library: Library, name: str, clock: Clock) -> None:
        self._library = library
        self._key = LEASE_PREFIX + name
        self._clock = clock
        self._owner = uuid4().hex
        self._until = 0

    async def take(self) -> bool:
        """Whether it is our turn; stays so for a while."""
        at = self._clock()
        if self._until - at > LEASE_MICROSECONDS // 2:
            return True
        owner, until = await self._read_holder()
        if owner not in ("", self._owner) and until > at:
            self._until = 0
            return False
        await self._library.set_note(self._key, f"{self._owner} {at + LEASE_MICROSECONDS}")
        self._until = at + LEASE_MICROSECONDS
        return (await self._read_holder())[0] == self._owner

    async def end(self) -> None:
        """Lets the next one begin at once."""
        if self._until:
            self._until = 0
            if (await self._read_holder())[0] == self._owner:
                await self._library.set_note(self._key, None)

    async def _read_holder(self) -> tuple[str, int]:
        owner, _, until = (await self._library.get_note(self._key) or "").partition(" ")
        return owner, int(until) if until.isdecimal() else 0


BATCH_TEXTS = 16  # texts; larger ones take memory, and keep a question waiting
EAGER_BATCHES = 8  # a longer queue is worked off at half speed, so that the machine stays free
TURN_SECONDS = 5.0  # seconds between two looks whether another process is still at it
REPORT_TEXTS = 1_000  # texts between two lines in the log

Progress = Callable[[int, int], None]

log = logging.getLogger(__name__)


class Indexer:
    """Embeds what waits, store by store, until nothing does.

    A record without a vector is the queue, so a crash loses nothing: whoever comes next goes on.
    The model is loaded by the first text, in a thread.
    """

    def __init__(self, embedder: Embedder | None, kinds: Sequence[str], lease: TurnLease | None = None) -> None:
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
            with act_as(None):
                self._task = asyncio.create_task(self._run(), name="indexer")

    def wake_all(self) -> None:
        """Every store that is known may have texts again that wait: a database is back."""
        for store in list(self._met):
            self.wake(store)

    def register_store(self, store: RecordStore) -> None:
        """Looks once at a store that another process may have left in the middle of its queue."""
        if store not in self._met:
            self.wake(store)

    async def wait_until_settled(self, within: float | None = None) -> bool:
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
        _, total = await store.count_vectors(self._embedder.name, self._kinds)
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
                await self._embed_store(embedder, store)
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
            if not count:
                self._long.discard(store)
                return
            done += count
            batches += 1
            if batches == EAGER_BATCHES:
                self._long.add(store)
            if done % REPORT_TEXTS < count and done >= REPORT_TEXTS:
                _, left = await store.count_vectors(embedder.name, self._kinds)
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
            async with asyncio.timeout(0 if self._waiting else TURN_SECONDS):
                await self._called.wait()
        return False

    async def _end_turn(self) -> None:
        if self._lease is not None:
            with suppress(EverkeptError):  # it ends by itself
                await self._lease.end()

    async def _embed_some(self, embedder: Embedder, store: RecordStore) -> int:
        records = await store.find_unembedded(embedder.name, self._kinds, BATCH_TEXTS)
        if not records:
            return 0
        vectors = await self._embed_records(embedder, records)
        items = [RecordVector(r.id, r.version, v) for r, v in zip(records, vectors, strict=True)]
        # What was changed meanwhile is not kept, and queues again with its new text.
        await store.put_vectors(embedder.name, items)
        return len(records)

    async def _embed_records(self, embedder: Embedder, records: Sequence[Record]) -> "Sequence[NDArray[np.float32]]":
        """A text that the model fails at must not keep all others waiting: it gets an empty
        one's vector, and is found by its words."""
        try:
            return list(await embedder.embed([record.text for record in records]))
        except EverkeptError:
            raise
        except Exception:
            if len(records) > 1:
                return [(await self._embed_records(embedder, [record]))[0] for record in records]
            log.exception("%s cannot be embedded", records[0].id)
            return list(await embedder.embed([""]))


MAX_COMPARED_MEMORIES = 200  # memories whose likes are looked for
MIN_SIMILARITY = 0.9  # cosine from which two texts say nearly the same
MAX_PAIRS = 10
FORGET_TOOL = "forget_memory"  # what the log calls it, also where many are meant
AUTOMATIC_REASON = "automatic"  # the reason, where many are

# Indexes the files of a memory bank, and gives the records; None where there is no bank.
IndexBank = Callable[[ToolCall], Awaitable[RecordStore | None]]


class MemoryPair(Value):
    """Two memories that say nearly the same."""

    score: float
    first: Record
    second: Record


class IndexResult(Value, frozen=False):
    """How many texts have got their vector, and why others have not."""

    done: int = 0
    problems: list[EverkeptError] = field(default_factory=list[EverkeptError])


class Maintenance:
    """Looks after the stores that memories live in, for as long as the application lives."""

    def __init__(self, library: Library, indexer: Indexer, accesses: BatchedAccesses, clock: Clock) -> None:
        self._library = library
        self.clock = clock
        self._met: dict[RecordStore | None, WeakSet[RecordStore]] = {}  # by what is the user's
        self._untended: list[tuple[RecordStore, RecordStore | None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.indexer = indexer
        self.accesses = accesses

    def register_store(self, store: RecordStore, home: RecordStore | None = None) -> None:
        """At the first use of a store, notes that a crash may have left something in it.

        `home` is what is the user's there, where that is an account's and not the owner's.
        """
        met = self._met.setdefault(home, WeakSet())
        if store not in met:
            met.add(store)
            self._untended.append((store, home))

    def start_repairs(self) -> None:
        """Begins to finish what a crash left in the stores met so far. Returns immediately.

        Call it once a call is answered: the first one must not wait for the care.
        """
        while self._untended:
            with act_as(None):
                task = asyncio.create_task(self._fix_store(*self._untended.pop()), name="mend")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def wait_until_done(self) -> None:
        """Waits until the care for all stores met so far is done."""
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
            log.info("left for another time: %s", error)


class MemoryAccess:
    """The memories that a command reaches: those of a project, and the user's."""

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
        """The newest of all its places, those of all sessions included, each with its place."""
        wanted = replace(where, kinds=(MEMORY,))
        found: list[tuple[str, Record]] = []
        for name, store in (await self._map_stores(session, everywhere=everywhere)).items():
            newest = await store.scan(wanted, order="newest", limit=limit)
            found += [(name, record) for record in newest]
        found.sort(key=lambda each: each[1].created_at, reverse=True)
        once = {record.id: (name, record) for name, record in reversed(found)}
        return list(once.values())[::-1][:limit]

    async def find_project(self, session: Session) -> Project | None:
        """The one that memories of a command belong to; None where it is yet to be made."""
        return await self._choice.find_active(ToolCall(session, "command"))

    async def ensure_project(self, session: Session) -> Project:
        """The same, made where it is missing."""
        return await self._choice.ensure_project(ToolCall(session, "command"))

    async def find_memory(self, session: Session, memory_id: str) -> Record | None:
        for store in await self._list_stores(session):
            for record in await store.get([memory_id, f"{MEMORY}:{memory_id}"]):
                return record
        return None

    async def list_automatic(
        self, session: Session, where: RecordFilter, *, everywhere: bool = False
    ) -> dict[str, list[Record]]:
        """What hooks have stored by themselves, but what is pinned, by the place that has it."""
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
        """Forgets them in one change of each place; says how many in each that had any.

        What somebody has pinned or made their own since it was found stays.
        """
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
        """Pairs among the newest memories and all others that say nearly the same."""
        embedder = self._maintenance.indexer.embedder
        if embedder is None:
            return []
        pairs: dict[frozenset[str], MemoryPair] = {}
        for store in await self._list_stores(session):
            for pair in await _find_pairs(store, embedder.name):
                pairs.setdefault(frozenset((pair.first.id, pair.second.id)), pair)
        best = sorted(pairs.values(), key=lambda pair: -pair.score)
        return best[:MAX_PAIRS]

    async def index(self, session: Session, report: Callable[[int, int], None], only: str | None = None) -> IndexResult:
        """Gives all that waits its vector now, in all projects or `only` in one.

        Also in those that are off: a vector tells nobody anything. What cannot be reached keeps
        nothing else waiting.
        """
        indexed = IndexResult()
        stores = await self._list_stores_to_index(only, indexed.problems)
        total = sum([await self._count_pending(store) for store in stores])

        async def drain(store: RecordStore) -> None:
            before = indexed.done

            def further(done: int, _total: int) -> None:
                report(before + done, max(total, before + done))

            indexed.done += await self._maintenance.indexer.drain(store, further)

        for store in stores:
            with _collect_problems(indexed.problems):
                await drain(store)
        with _collect_problems(indexed.problems), suppress(ProjectOff):  # then nothing is taken in
            if self._bank is not None and (bank := await self._bank(ToolCall(session, "index"))):
                await drain(bank)
        return indexed

    async def catch_up(self, session: Session, within: float) -> None:
        """Lets what waits get its vector first, for a command that nobody serves."""
        for store in await self._list_stores(session):
            self._maintenance.indexer.register_store(store)
        await self._maintenance.indexer.wait_until_settled(within)

    async def _list_stores(self, session: Session) -> Sequence[RecordStore]:
        return list((await self._map_stores(session)).values())

    async def _map_stores(self, session: Session, *, everywhere: bool = False) -> dict[str, RecordStore]:
        """By name, that of the project first; or of all projects that are not off or archived."""
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
        embedder = self._maintenance.indexer.embedder
        if embedder is None:
            return 0
        with suppress(EverkeptError):  # it is told when its turn comes
            return (await store.count_vectors(embedder.name, self._maintenance.indexer.kinds))[1]
        return 0


@contextmanager
def _collect_problems(problems: list[EverkeptError]) -> Generator[None, None, None]:
    """Without a model there is nothing else to be tried."""
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
