"""Entities with their observations, and the relations between them."""

from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import Any
from uuid import uuid4

from everkept.core.answers import Hops, Node, list_next_ids
from everkept.core.fallback_answers import walk_by_hops
from everkept.core.ports import RecordStore
from everkept.core.records import Insert, Record, RecordFilter, RecordLink, Step, Update
from everkept.core.text import compute_digest, compute_name_key, has_control_characters
from everkept.errors import InvalidInput
from everkept.values import Value, replace

ENTITY = "entity"
OBSERVATION = "observation"
UNKNOWN_TYPE = "unknown"  # of an entity that only a relation has named so far
MAX_NAME_CHARACTERS = 500
STUB_FACETS: Mapping[str, Any] = {"stub": True}


def is_stub(record: Record | Node) -> bool:
    """Return whether a relation named the entity before anyone described it."""
    return bool(record.facets.get("stub"))


def build_entity(name: str, entity_type: str, variant: str, at: int, facets: Mapping[str, Any] | None = None) -> Record:
    return Record(
        id=str(uuid4()),
        kind=ENTITY,
        name=name,
        type=entity_type,
        name_key=compute_name_key(name),
        variant=variant,
        facets=facets or {},
        created_at=at,
        updated_at=at,
    )


def find_stub(namesakes: Sequence[Record], name: str) -> Record | None:
    """Return the stub with exactly this name, otherwise the first stub."""
    stubs = [record for record in namesakes if is_stub(record)]
    return next((stub for stub in stubs if stub.name == name), stubs[0] if stubs else None)


def build_entity_step(new: Record, stub: Record | None) -> tuple[Step, Record]:
    """Return the step that inserts the entity or describes the stub, and the entity itself."""
    if stub is None:
        return Insert(new), new
    values = {"name": new.name, "type": new.type, "variant": new.variant, "facets": new.facets}
    return Update(stub.id, values, stub.version), replace(new, id=stub.id, created_at=stub.created_at)


def check_name(name: str, argument: str) -> None:
    if has_control_characters(name):
        raise InvalidInput(
            f"`{argument}` contains a control character: {name!a}.",
            hint="Remove that character.",
            argument=argument,
            value=ascii(name),
        )


def compute_observation_key(text: str) -> str:
    """Return the key that is the same for equal texts on one entity."""
    return compute_digest(text)


def build_observation(
    owner: str, text: str, at: int, *, facets: Mapping[str, Any] | None = None, occurred_at: int | None = None
) -> Record:
    return Record(
        id=str(uuid4()),
        kind=OBSERVATION,
        text=text,
        name_key=compute_observation_key(text),
        parent=owner,
        occurred_at=occurred_at,
        facets=facets or {},
        created_at=at,
        updated_at=at,
    )


async def list_observations(
    store: RecordStore, owners: Iterable[str], texts: Iterable[str] | None = None
) -> list[Record]:
    """Return all observations of these entities, or only those with one of the texts."""
    parents = tuple(owners)
    keys = None if texts is None else tuple({compute_observation_key(text) for text in texts})
    if not parents or keys == ():
        return []
    return await store.scan(RecordFilter(kinds=(OBSERVATION,), parents=parents, name_keys=keys))


async def build_missing_observations(
    store: RecordStore, texts: Mapping[str, Sequence[str]], at: int, inserted: Set[str] = frozenset()
) -> dict[str, list[Record]]:
    """Build an observation for each text that its entity does not have yet.

    Entities in `inserted` are part of the same commit, so the store has no observations of them.
    """
    owners = [entity for entity, many in texts.items() if many and entity not in inserted]
    there = await list_observations(store, owners, (t for owner in owners for t in texts[owner]))
    known = {(record.parent, record.name_key) for record in there}
    return {
        entity: [
            build_observation(entity, text, at)
            for text in dict.fromkeys(many)
            if (entity, compute_observation_key(text)) not in known
        ]
        for entity, many in texts.items()
    }


Triple = tuple[str, str, str]  # id of the source, verb, id of the target


def build_relation(source: str, verb: str, target: str, at: int) -> RecordLink:
    return RecordLink(str(uuid4()), source, verb, target, at)


def group_by_triple(
    links: Iterable[RecordLink], verb_key: Callable[[str], str] = str
) -> dict[Triple, list[RecordLink]]:
    """Group links that are the same relation. Two verbs with the same `verb_key` are equal."""
    found: dict[Triple, list[RecordLink]] = {}
    for link in links:
        found.setdefault((link.source, verb_key(link.verb), link.target), []).append(link)
    return found


async def list_relations_from(
    store: RecordStore, sources: Sequence[str], verb_key: Callable[[str], str] = str
) -> dict[Triple, list[RecordLink]]:
    links = await store.find_links(sources, direction="out") if sources else []
    return group_by_triple(links, verb_key)


async def list_relations_among(store: RecordStore, entities: Set[str]) -> list[RecordLink]:
    """Return the relations whose source and target are both in `entities`."""
    links = await store.find_links(list(entities), sources=(ENTITY,)) if entities else []
    return [link for link in links if link.source in entities and link.target in entities]


def build_missing_relations(wanted: Iterable[Triple], present: Container[Triple], at: int) -> list[RecordLink]:
    """Build a relation for each wanted triple that is not present."""
    absent = [triple for triple in dict.fromkeys(wanted) if triple not in present]
    return [build_relation(*triple, at) for triple in absent]


def map_names(entities: Iterable[Record | None]) -> dict[str, str]:
    """Map the id of each entity to its name."""
    return {record.id: record.name or "" for record in entities if record is not None}


class Hop(Value):
    """One step of a walk: the entities it reaches and the relations that lead to them."""

    entities: list[Record]
    relations: list[RecordLink]
    left_out: int = 0  # entities beyond the limit of the walk


async def walk_around(
    store: RecordStore,
    starts: Sequence[Record],
    hops: Hops,
    *,
    fits: Callable[[RecordLink], bool] | None = None,
    room: int | None = None,
) -> AsyncIterator[Hop]:
    """Yield the hops of a walk, each entity once, along matching relations only.

    The walk visits at most `room` entities, including the starts.
    """
    known = {record.id for record in starts}
    if not known or not hops.count:
        return
    ids = list(dict.fromkeys(record.id for record in starts))
    if fits is None:
        walked = await store.walk(ids, hops)
    else:  # a store can only walk along all relations
        walked = await walk_by_hops(store.ask, ids, hops, fits=fits)
    others: dict[str, Record] = {}
    if room is None:  # read the entities of all hops with one query
        others = await _read_entities(store, list_next_ids(chain.from_iterable(walked), known))
    passed, edge = list[RecordLink](), set(known)
    for links in walked:
        passed += links
        leading = [link for link in passed if link.source in edge or link.target in edge]
        related = list_next_ids(leading, known)
        left_out = 0
        if room is not None:
            left = room - len(known)
            left_out = max(0, len(related) - left)
            others = await _read_entities(store, related[:left])
        reached = [others[i] for i in related if i in others]
        yield Hop(reached, leading, left_out)
        edge = {record.id for record in reached}
        if not edge:
            return
        known |= edge


async def _read_entities(store: RecordStore, ids: Iterable[str]) -> dict[str, Record]:
    return {r.id: r for r in await store.get(list(ids)) if r.kind == ENTITY}
