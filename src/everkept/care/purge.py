"""Choosing what a purge removes."""

from collections.abc import Sequence

from everkept.core.ports import RecordStore
from everkept.core.records import Link, Record, Where
from everkept.core.text import normalised
from everkept.graph.lookup import ambiguous, entities_named

MOST = 1_000_000  # a purge takes all that fits

Thing = Record | Link


async def select(
    store: RecordStore, names: Sequence[str], *, deleted: bool, containing: str | None
) -> list[Thing]:
    """Live and deleted things by name or id, all deleted ones, and those that hold a text."""
    found: list[Thing] = [thing for name in names for thing in await _named(store, name)]
    if deleted:
        found += await store.scan(Where(deleted=True))
        found += await store.scan_links(deleted=True)
    if containing:
        found += await _containing(store, containing)
    return list({thing.ref: thing for thing in found}.values())


def called(thing: Thing) -> str:
    return thing.verb if isinstance(thing, Link) else thing.name or thing.text


async def _named(store: RecordStore, name: str) -> Sequence[Thing]:
    """What an id or a name means, nothing where it is unknown.

    An entity's deleted namesakes of its type go with it.
    """
    by_id: list[Thing] = [
        *await store.get([name], include_deleted=True),
        *await store.get_links([name], include_deleted=True),
    ]
    if by_id:
        return by_id
    found = (await entities_named(store, [name], deleted=None))[name]
    distinct = {(record.variant, normalised(record.type or "")): record for record in found}
    if len(distinct) > 1:
        raise ambiguous(name, distinct.values())
    return found


async def _containing(store: RecordStore, text: str) -> list[Thing]:
    wanted = text.lower()
    live = await store.containing(text, Where(), MOST)
    return [
        *await store.get([match.id for match in live]),
        *(
            record
            for record in await store.scan(Where(deleted=True))
            if any(
                wanted in (part or "").lower() for part in (record.name, record.type, record.text)
            )
        ),
        *await store.scan_links(deleted=None, containing=text),
    ]
