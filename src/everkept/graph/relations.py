"""Relations: links between entities, each once, and the walk along them."""

from collections.abc import AsyncIterator, Callable, Container, Iterable, Sequence, Set
from itertools import chain
from uuid import uuid4

from everkept.core.answers import Hops, beyond
from everkept.core.fallback_answers import hop_by_hop
from everkept.core.ports import RecordStore
from everkept.core.records import Link, Record
from everkept.graph.entities import ENTITY
from everkept.values import Value

Triple = tuple[str, str, str]  # the id of the source, the verb, the id of the target


def new_relation(source: str, verb: str, target: str, at: int) -> Link:
    return Link(str(uuid4()), source, verb, target, at)


def by_triple(
    links: Iterable[Link], verb_key: Callable[[str], str] = str
) -> dict[Triple, list[Link]]:
    """Group links that are the same relation; `verb_key` returns what makes two verbs the same."""
    found: dict[Triple, list[Link]] = {}
    for link in links:
        found.setdefault((link.source, verb_key(link.verb), link.target), []).append(link)
    return found


async def relations_from(
    store: RecordStore, sources: Sequence[str], verb_key: Callable[[str], str] = str
) -> dict[Triple, list[Link]]:
    links = await store.links(sources, direction="out") if sources else []
    return by_triple(links, verb_key)


async def relations_among(store: RecordStore, entities: Set[str]) -> list[Link]:
    """Return the relations that begin and end at one of the entities."""
    links = await store.links(list(entities), sources=(ENTITY,)) if entities else []
    return [link for link in links if link.source in entities and link.target in entities]


def missing_relations(wanted: Iterable[Triple], present: Container[Triple], at: int) -> list[Link]:
    """Return a new relation, once, for each that is not present."""
    absent = [triple for triple in dict.fromkeys(wanted) if triple not in present]
    return [new_relation(*triple, at) for triple in absent]


def names_of(entities: Iterable[Record | None]) -> dict[str, str]:
    """Return the names of the ends by id."""
    return {record.id: record.name or "" for record in entities if record is not None}


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
