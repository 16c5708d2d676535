"""Choosing what a purge removes."""

from collections.abc import Sequence

from recollect.core.ports import RecordStore
from recollect.core.records import Record, Where
from recollect.core.text import normalised
from recollect.errors import NotFound

MOST = 1_000_000  # a purge takes all that fits


async def select(
    store: RecordStore, names: Sequence[str], *, deleted: bool, containing: str | None
) -> list[Record]:
    """Live and deleted records by name or id, all deleted ones, and those that hold a text."""
    found: dict[str, Record] = {}
    for name in names:
        named = await store.scan(Where(name_keys=(normalised(name),), deleted=None))
        named += await store.get([name], include_deleted=True)
        if not named:
            raise NotFound("entity", name, hint="Names and ids of deleted entities work too.")
        found |= {record.id: record for record in named}
    if deleted:
        found |= {r.id: r for r in await store.scan(Where(deleted=True))}
    if containing:
        matches = await store.containing(containing, Where(), MOST)
        found |= {r.id: r for r in await store.get([match.id for match in matches])}
        wanted = containing.lower()
        for record in await store.scan(Where(deleted=True)):
            if any(wanted in part.lower() for part in (record.name or "", record.text)):
                found[record.id] = record
    return list(found.values())
