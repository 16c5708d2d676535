"""Facts that replace others, which may live in the other store."""

from collections.abc import Sequence
from uuid import uuid4

from everkept.core.commits import Planned, Writer
from everkept.core.ports import RecordStore
from everkept.core.records import Insert, Link, Record, Step, Update
from everkept.core.times import Clock
from everkept.families.memories.identity import PREFIX
from everkept.families.memories.model import ENTITIES_LIMIT, SUPERSEDED_BY, SUPERSEDES

FINISHING = "store_memory"  # what the log calls it
LOOKED_AT = 1_000  # of the newest changes: what a crash cut short is among them
MOST_EDITS = 2 * ENTITIES_LIMIT + 10  # of a stored fact, with its entities; an import has more


async def supersession(store: RecordStore, new: str, old: str, at: int) -> list[Step]:
    """In one store both facts change together; across stores only their own records say it."""
    found = await store.get([old])
    if not found:
        return []
    steps: list[Step] = [_marking(found[0], new)]
    links = await store.links([new], direction="out")
    if all((link.verb, link.target) != (SUPERSEDES, old) for link in links):
        steps.append(Insert(Link(str(uuid4()), new, SUPERSEDES, old, at)))
    return steps


async def mark_superseded(writer: Writer, store: RecordStore, old: str, new: str) -> bool:
    """Once the new one is there: a crash in between leaves both, and neither is lost.

    Says whether there was anything to mark; what was forgotten meanwhile needs no mark.
    """

    async def plan(store: RecordStore, _at: int) -> Planned[bool]:
        for record in await store.get([old]):
            if record.facets.get(SUPERSEDED_BY) != new:
                return [_marking(record, new)], True
        return [], False

    return await writer.commit(store, plan)


async def finish_supersessions(project: RecordStore, user: RecordStore, clock: Clock) -> int:
    """Marks what a crash left unmarked, because what replaces it lives in the other store."""
    writer = Writer(clock, FINISHING)
    finished = 0
    for here, there in ((project, user), (user, project)):
        claims = {r.facets[SUPERSEDES]: r.id for r in await _recent(here) if _is_claim(r)}
        for record in await there.get(list(claims)):
            if SUPERSEDED_BY not in record.facets:
                finished += await mark_superseded(writer, there, record.id, claims[record.id])
    return finished


async def _recent(store: RecordStore) -> Sequence[Record]:
    """The memories that the newest changes touched, as they are now."""
    changes = await store.changes(limit=LOOKED_AT, newest_first=True, most_edits=MOST_EDITS)
    edits = (edit for change in changes for edit in change.edits)
    return await store.get(list({e.id for e in edits if e.id and e.id.startswith(PREFIX)}))


def _is_claim(record: Record) -> bool:
    """A fact that was itself replaced claims nothing: the older one may hold again."""
    return SUPERSEDES in record.facets and SUPERSEDED_BY not in record.facets


def _marking(record: Record, new: str) -> Update:
    return Update(record.id, {"facets": {**record.facets, SUPERSEDED_BY: new}}, record.version)
