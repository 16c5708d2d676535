"""What belongs to memories beside their tools: care in the background, and what commands ask."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from weakref import WeakSet

from everkept.accounts.project_rule import ProjectRule
from everkept.core.accounts import acting_as
from everkept.core.commits import Planned, Writer
from everkept.core.ports import Library, RecordStore
from everkept.core.projects import USER, Project
from everkept.core.records import Record, Where
from everkept.core.sessions import Call, Session
from everkept.core.times import Clock
from everkept.errors import EverkeptError, ModelUnavailable, ProjectOff
from everkept.families.memories.expiry import forgetting
from everkept.families.memories.model import AUTOMATIC, MEMORY
from everkept.families.memories.promotion import finish_promotions
from everkept.families.memories.supersession import finish_supersessions
from everkept.jobs.indexer import Indexer
from everkept.jobs.usage_log import BatchedAccesses
from everkept.values import Value, field, replace

RECENT = 200  # memories whose likes are looked for
SAME_MEANING = 0.9  # cosine from which two texts say nearly the same
MOST_PAIRS = 10
FORGET = "forget_memory"  # what the log calls it, also where many are meant
IN_BULK = "automatic"  # the reason, where many are

# Indexes the files of a memory bank, and gives the records; None where there is no bank.
TakeIn = Callable[[Call], Awaitable[RecordStore | None]]

log = logging.getLogger(__name__)


class Pair(Value):
    """Two memories that say nearly the same."""

    score: float
    first: Record
    second: Record


class Indexed(Value, frozen=False):
    """How many texts have got their vector, and why others have not."""

    done: int = 0
    problems: list[EverkeptError] = field(default_factory=list[EverkeptError])


class Keeper:
    """Looks after the stores that memories live in, for as long as the application lives."""

    def __init__(
        self, library: Library, indexer: Indexer, accesses: BatchedAccesses, clock: Clock
    ) -> None:
        self._library = library
        self.clock = clock
        self._met: dict[RecordStore | None, WeakSet[RecordStore]] = {}  # by what is the user's
        self._untended: list[tuple[RecordStore, RecordStore | None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.indexer = indexer
        self.accesses = accesses

    def meet(self, store: RecordStore, home: RecordStore | None = None) -> None:
        """At the first use of a store, notes that a crash may have left something in it.

        `home` is what is the user's there, where that is an account's and not the owner's.
        """
        met = self._met.setdefault(home, WeakSet())
        if store not in met:
            met.add(store)
            self._untended.append((store, home))

    def tend(self) -> None:
        """Begins to finish what a crash left in the stores met so far. Returns immediately.

        Call it once a call is answered: the first one must not wait for the care.
        """
        while self._untended:
            with acting_as(None):
                task = asyncio.create_task(self._mend(*self._untended.pop()), name="mend")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def settled(self) -> None:
        """Waits until the care for all stores met so far is done."""
        self.tend()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.indexer.settled()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.indexer.close()
        await self.accesses.close()

    async def _mend(self, store: RecordStore, home: RecordStore | None) -> None:
        try:
            user = home or await self._library.user()
            await finish_promotions(store, user, self.clock)
            await finish_supersessions(store, user, self.clock)
            self.indexer.meet(store)
            self.indexer.meet(user)
        except EverkeptError as error:
            log.info("left for another time: %s", error)


class Shelf:
    """The memories that a command reaches: those of a project, and the user's."""

    def __init__(
        self, library: Library, choice: ProjectRule, keeper: Keeper, bank: TakeIn | None = None
    ) -> None:
        self._library = library
        self._choice = choice
        self._keeper = keeper
        self._bank = bank

    async def newest(
        self, session: Session, where: Where, limit: int, *, everywhere: bool = False
    ) -> list[tuple[str, Record]]:
        """The newest of all its places, those of all sessions included, each with its place."""
        wanted = replace(where, kinds=(MEMORY,))
        found: list[tuple[str, Record]] = []
        for name, store in (await self._places(session, everywhere=everywhere)).items():
            newest = await store.scan(wanted, order="newest", limit=limit)
            found += [(name, record) for record in newest]
        found.sort(key=lambda each: each[1].created_at, reverse=True)
        once = {record.id: (name, record) for name, record in reversed(found)}
        return list(once.values())[::-1][:limit]

    async def project(self, session: Session) -> Project | None:
        """The one that memories of a command belong to; None where it is yet to be made."""
        return await self._choice.current(Call(session, "command"))

    async def standing_project(self, session: Session) -> Project:
        """The same, made where it is missing."""
        return await self._choice.standing(Call(session, "command"))

    async def get(self, session: Session, memory_id: str) -> Record | None:
        for store in await self._stores(session):
            for record in await store.get([memory_id, f"{MEMORY}:{memory_id}"]):
                return record
        return None

    async def automatic(
        self, session: Session, where: Where, *, everywhere: bool = False
    ) -> dict[str, list[Record]]:
        """What hooks have stored by themselves, but what is pinned, by the place that has it."""
        wanted = replace(where, kinds=(MEMORY,), automatic=True)
        places = await self._places(session, everywhere=everywhere)
        found = {
            name: [record for record in await store.scan(wanted) if _may_go(record)]
            for name, store in places.items()
        }
        return {name: records for name, records in found.items() if records}

    async def forget_automatic(
        self, session: Session, found: Mapping[str, Sequence[Record]], *, everywhere: bool = False
    ) -> dict[str, int]:
        """Forgets them in one change of each place; says how many in each that had any.

        What somebody has pinned or made their own since it was found stays.
        """
        writer = Writer(self._keeper.clock, FORGET, session.client)

        async def plan(ids: Sequence[str], store: RecordStore, _at: int) -> Planned[int]:
            left = [record for record in await store.get(ids) if _may_go(record)]
            steps = [step for record in left for step in forgetting(record, IN_BULK)]
            return steps, len(left)

        counts: dict[str, int] = {}
        for name, store in (await self._places(session, everywhere=everywhere)).items():
            if ids := [record.id for record in found.get(name, ())]:
                counts[name] = await writer.commit(store, partial(plan, ids))
        return {name: count for name, count in counts.items() if count}

    async def similar(self, session: Session) -> list[Pair]:
        """Pairs among the newest memories and all others that say nearly the same."""
        embedder = self._keeper.indexer.embedder
        if embedder is None:
            return []
        pairs: dict[frozenset[str], Pair] = {}
        for store in await self._stores(session):
            for pair in await _pairs(store, embedder.name):
                pairs.setdefault(frozenset((pair.first.id, pair.second.id)), pair)
        best = sorted(pairs.values(), key=lambda pair: -pair.score)
        return best[:MOST_PAIRS]

    async def index(
        self, session: Session, report: Callable[[int, int], None], only: str | None = None
    ) -> Indexed:
        """Gives all that waits its vector now, in all projects or `only` in one.

        Also in those that are off: a vector tells nobody anything. What cannot be reached keeps
        nothing else waiting.
        """
        indexed = Indexed()
        stores = await self._to_index(only, indexed.problems)
        total = sum([await self._waiting(store) for store in stores])

        async def drain(store: RecordStore) -> None:
            before = indexed.done

            def further(done: int, _total: int) -> None:
                report(before + done, max(total, before + done))

            indexed.done += await self._keeper.indexer.drain(store, further)

        for store in stores:
            with _noted(indexed.problems):
                await drain(store)
        with _noted(indexed.problems), suppress(ProjectOff):  # then nothing is taken in
            if self._bank is not None and (bank := await self._bank(Call(session, "index"))):
                await drain(bank)
        return indexed

    async def catch_up(self, session: Session, within: float) -> None:
        """Lets what waits get its vector first, for a command that nobody serves."""
        for store in await self._stores(session):
            self._keeper.indexer.meet(store)
        await self._keeper.indexer.settled(within)

    async def _stores(self, session: Session) -> Sequence[RecordStore]:
        return list((await self._places(session)).values())

    async def _places(
        self, session: Session, *, everywhere: bool = False
    ) -> dict[str, RecordStore]:
        """By name, that of the project first; or of all projects that are not off or archived."""
        if everywhere:
            active = await self._library.projects("active")
            names = [project.name for project in active if not project.is_off]
            own = {name: (await self._library.open(name))[1] for name in names}
        else:
            store = await self._choice.to_read(Call(session, "command"), None)
            project = await self.project(session)
            own = {project.name if project else "": store}
        return {**own, USER: await self._library.user()}

    async def _to_index(self, only: str | None, problems: list[EverkeptError]) -> list[RecordStore]:
        stores = [await self._library.user(), await self._library.history()]
        if only is not None:
            return [(await self._library.open(only))[1], *stores]
        for project in await self._library.projects("active"):
            with _noted(problems):
                stores.append((await self._library.open(project.name))[1])
        return stores

    async def _waiting(self, store: RecordStore) -> int:
        embedder = self._keeper.indexer.embedder
        if embedder is None:
            return 0
        with suppress(EverkeptError):  # it is told when its turn comes
            return (await store.vector_counts(embedder.name, self._keeper.indexer.kinds))[1]
        return 0


@contextmanager
def _noted(problems: list[EverkeptError]) -> Generator[None, None, None]:
    """Without a model there is nothing else to be tried."""
    try:
        yield
    except ModelUnavailable:
        raise
    except EverkeptError as error:
        problems.append(error)


def _may_go(record: Record) -> bool:
    return bool(record.facets.get(AUTOMATIC)) and not record.facets.get("pinned")


async def _pairs(store: RecordStore, model: str) -> list[Pair]:
    where = Where(kinds=(MEMORY,))
    newest = [
        r
        for r in await store.scan(where, order="newest", limit=RECENT)
        if not r.facets.get("superseded_by") and not r.facets.get("consolidated")
    ]
    vectors = await store.vectors(model, [record.id for record in newest])
    found: list[tuple[float, Record, str]] = []
    for record in newest:
        if record.id in vectors:
            near = await store.near(model, vectors[record.id], where, 2)
            found += [
                (match.score, record, match.id)
                for match in near
                if match.id != record.id and match.score >= SAME_MEANING
            ]
    others = {r.id: r for r in await store.get([other for _, _, other in found])}
    return [
        Pair(score, record, others[other])
        for score, record, other in found
        if other in others and not others[other].facets.get("superseded_by")
    ]
