"""The walk around some entities along their relations, hop by hop."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import chain

from everkept.core.fallback_answers import hop_by_hop
from everkept.core.ports import RecordStore
from everkept.core.records import Link, Record
from everkept.core.walking import Hops, beyond
from everkept.graph.entities import ENTITY
from everkept.values import Value


class Hop(Value):
    """The entities that one hop reaches, the relations at the former ones, and the overflow."""

    entities: list[Record]
    relations: list[Link]
    left_out: int = 0  # entities for which there was no room


async def walk_around(
    store: RecordStore,
    starts: Sequence[Record],
    hops: Hops,
    *,
    fits: Callable[[Link], bool] | None = None,
    room: int | None = None,
) -> AsyncIterator[Hop]:
    """Yield the hops, each entity once; go only along relations that fit.

    The walk meets at most `room` entities, the first ones included.
    """
    known = {record.id for record in starts}
    if not known or not hops.count:
        return
    ids = list(dict.fromkeys(record.id for record in starts))
    if fits is None:
        walked = await store.walk(ids, hops)
    else:  # a store walks along all relations
        walked = await hop_by_hop(store.ask, ids, hops, fits=fits)
    others: dict[str, Record] = {}
    if room is None:  # one question for all hops
        others = await _entities(store, beyond(chain.from_iterable(walked), known))
    passed, edge = list[Link](), set(known)
    for links in walked:
        passed += links
        leading = [link for link in passed if link.source in edge or link.target in edge]
        related = beyond(leading, known)
        left_out = 0
        if room is not None:
            left = room - len(known)
            left_out = max(0, len(related) - left)
            others = await _entities(store, related[:left])
        reached = [others[i] for i in related if i in others]
        yield Hop(reached, leading, left_out)
        edge = {record.id for record in reached}
        if not edge:
            return
        known |= edge


async def _entities(store: RecordStore, ids: Iterable[str]) -> dict[str, Record]:
    return {r.id: r for r in await store.get(list(ids)) if r.kind == ENTITY}
