"""Fading: what hooks stored and nobody used is forgotten after a while."""

from everkept.core.commits import Planned, Writer
from everkept.core.ports import Access, RecordStore
from everkept.core.records import Delete, Record, Step, Update, Where
from everkept.core.times import Clock
from everkept.families.memories.model import AUTOMATIC, DEFAULT_IMPORTANCE, MEMORIES, MEMORY
from everkept.values import Value

DAY = 86_400 * 1_000_000  # microseconds
LASTING = 0.2  # of its half-life that each use adds
FADED = 0.01  # strength below which nothing is left of a memory
RESTING = 14 * DAY  # what was stored or used since then stays, however weak
KEPT_BY_USES = 2  # from so many on it stays for good
BATCH = 500  # memories of one change

FADING = "fading"  # what the log calls it
REASON = "faded"


def strength(record: Record, access: Access | None, now: int) -> float:
    """Its importance, halved with each half-life of its type since it was last used or changed.

    A use is that it was recalled; that a hook showed it is none. What is pinned never fades, nor
    does a type that has no half-life.
    """
    importance = DEFAULT_IMPORTANCE if record.importance is None else record.importance
    half_life = MEMORIES.half_lives.get(record.type or "")
    if half_life is None or record.facets.get("pinned"):
        return importance
    uses = access.count if access else 0
    last = max(record.created_at, record.updated_at, access.last_at if access else 0)
    days = max(0, now - last) / DAY
    return importance * 0.5 ** (days / (half_life * (1 + LASTING * uses)))


async def fade(store: RecordStore, clock: Clock, client: str = "") -> int:
    """Forgets the automatic memories that have faded, and no others; says how many.

    Each change forgets one batch of them, and can be undone like any other.
    """
    writer = Writer(clock, FADING, client)
    forgotten = 0
    page = _Page()
    while page is not None:
        page, count = await writer.commit(store, page.plan)
        forgotten += count
    return forgotten


class _Page(Value):
    """The candidates behind one that was looked at before, as they are when it is asked."""

    after: str | None = None

    async def plan(self, store: RecordStore, at: int) -> Planned[tuple["_Page | None", int]]:
        where = Where(kinds=(MEMORY,), automatic=True, created_before=at - RESTING)
        found = await store.scan(where, after=self.after, limit=BATCH)
        accesses = await store.accesses([record.id for record in found])
        faded = [record for record in found if _has_faded(record, accesses.get(record.id), at)]
        following = _Page(found[-1].id) if len(found) == BATCH else None
        steps = [step for record in faded for step in forgetting(record, REASON)]
        return steps, (following, len(faded))


def _has_faded(record: Record, access: Access | None, now: int) -> bool:
    """One use starts the time anew; what was used again is worth keeping."""
    uses = access.count if access else 0
    last = max(record.created_at, access.last_at if access else 0)
    return (
        bool(record.facets.get(AUTOMATIC))
        and not record.facets.get("pinned")
        and uses < KEPT_BY_USES
        and now - last > RESTING
        and strength(record, access, now) < FADED
    )


def forgetting(record: Record, reason: str) -> list[Step]:
    """Steps that hold for this version alone: what is pinned or changed meanwhile stays."""
    facets = {**record.facets, "forgotten_reason": reason}
    return [Update(record.id, {"facets": facets}, record.version), Delete(record.ref)]
