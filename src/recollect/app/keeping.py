"""What belongs to memories beside their tools: care in the background, and what commands ask."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from weakref import WeakSet

from recollect.app.accesses import BatchedAccesses
from recollect.app.indexing import Indexer
from recollect.app.projects import ProjectRule
from recollect.core.ports import Library, RecordStore
from recollect.core.projects import Project
from recollect.core.records import Delete, Record, Step, Where
from recollect.core.sessions import Call, Session
from recollect.core.times import Clock
from recollect.core.writing import Planned, Writer
from recollect.errors import RecollectError
from recollect.families.memories.model import MEMORY
from recollect.families.memories.promotion import finish_promotions
from recollect.families.memories.superseding import finish_supersessions

RECENT = 200  # memories whose likes are looked for
SAME_MEANING = 0.9  # cosine from which two texts say nearly the same
MOST_PAIRS = 10
FORGET = "forget_memory"  # what the log calls it, also where many are meant

# Indexes the files of a memory bank, and gives the records; None where there is no bank.
TakeIn = Callable[[Call], Awaitable[RecordStore | None]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two memories that say nearly the same."""

    score: float
    first: Record
    second: Record


class Keeper:
    """Looks after the stores that memories live in, for as long as the application lives."""

    def __init__(
        self, library: Library, indexer: Indexer, accesses: BatchedAccesses, clock: Clock
    ) -> None:
        self._library = library
        self.clock = clock
        self._met: WeakSet[RecordStore] = WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()
        self.indexer = indexer
        self.accesses = accesses

    def meet(self, store: RecordStore) -> None:
        """At the first use of a store, finishes what a crash may have left in it."""
        if store not in self._met:
            self._met.add(store)
            task = asyncio.create_task(self._mend(store), name="mend")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def settled(self) -> None:
        """Waits until the care for all stores met so far is done."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.indexer.settled()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.indexer.close()
        await self.accesses.close()

    async def _mend(self, store: RecordStore) -> None:
        try:
            user = await self._library.user()
            await finish_promotions(store, user, self.clock)
            await finish_supersessions(store, user, self.clock)
            self.indexer.meet(store)
            self.indexer.meet(user)
        except RecollectError as error:
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

    async def newest(self, session: Session, where: Where, limit: int) -> list[Record]:
        """The newest of both places, those of all sessions included."""
        wanted = replace(where, kinds=(MEMORY,))
        found: list[Record] = []
        for store in await self._stores(session):
            found += await store.scan(wanted, order="newest", limit=limit)
        found.sort(key=lambda record: record.created_at, reverse=True)
        return list({record.id: record for record in reversed(found)}.values())[::-1][:limit]

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

    async def automatic(self, session: Session, where: Where) -> list[Record]:
        """What hooks have stored by themselves, but what somebody has pinned since."""
        wanted = replace(where, kinds=(MEMORY,), automatic=True)
        stores = await self._stores(session)
        found = [record for store in stores for record in await store.scan(wanted)]
        return [record for record in found if not record.facets.get("pinned")]

    async def forget(self, session: Session, ids: Sequence[str]) -> int:
        """Forgets them in one change of each place; says how many were there still."""
        writer = Writer(self._keeper.clock, FORGET, session.client)

        async def plan(store: RecordStore, at: int) -> Planned[int]:
            steps: list[Step] = [Delete(record.ref) for record in await store.get(ids)]
            return steps, len(steps)

        return sum([await writer.commit(store, plan) for store in await self._stores(session)])

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

    async def index(self, session: Session, report: Callable[[int, int], None]) -> int:
        """Gives all that waits its vector now; says how many.

        A bank's files come last: one that cannot be reached keeps no memory waiting.
        """
        stores = [*await self._stores(session), await self._library.history()]
        done = sum([await self._keeper.indexer.drain(store, report) for store in stores])
        bank = None if self._bank is None else await self._bank(Call(session, "index"))
        return done if bank is None else done + await self._keeper.indexer.drain(bank, report)

    async def catch_up(self, session: Session, within: float) -> None:
        """Lets what waits get its vector first, for a command that nobody serves."""
        for store in await self._stores(session):
            self._keeper.indexer.meet(store)
        await self._keeper.indexer.settled(within)

    async def _stores(self, session: Session) -> Sequence[RecordStore]:
        project = await self._choice.to_read(Call(session, "command"), None)
        return project, await self._library.user()


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
