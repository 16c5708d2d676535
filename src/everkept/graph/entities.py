"""Entities with their observations and relations, and the entities that a name refers to."""

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping, Sequence, Set
from typing import Any
from uuid import uuid4

from everkept.core.answers import Hops, Node, Selection, Subgraph, list_next_ids
from everkept.core.ports import RecordStore
from everkept.core.records import Insert, Record, RecordFilter, RecordLink, Step, Update
from everkept.core.secrets import mask_text
from everkept.core.text import compute_digest, compute_name_key, has_control_characters
from everkept.errors import AmbiguousName, InvalidInput, NotFound
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


async def walk_around(store: RecordStore, starts: Sequence[Record], hops: Hops, room: int) -> AsyncIterator[Hop]:
    """Yield the hops of a walk, each entity once.

    The walk visits at most `room` entities, including the starts.
    """
    known = {record.id for record in starts}
    if not known or not hops.count:
        return
    ids = list(dict.fromkeys(record.id for record in starts))
    passed, edge = list[RecordLink](), set(known)
    for links in await store.walk(ids, hops):
        passed += links
        leading = [link for link in passed if link.source in edge or link.target in edge]
        related = list_next_ids(leading, known)
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


Resolved = dict[str, Record | None]

# Fewer characters are rather a name: a word such as "cafe", or a year.
_ID_PREFIX = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F-]{0,27})?")
MAX_NAMESAKES = 50  # entities whose ids begin with the same characters


async def find_candidates(store: RecordStore, names: Sequence[str]) -> dict[str, list[Record]]:
    """Map each name to the entities it may refer to: by id, name, `name (type)`, or the first 8 characters of an id.

    Names are stored with their secrets masked, so a name with a secret matches its masked form.
    """
    found = await find_entities(store, names)
    masks = mask_names(name for name, meant in found.items() if not meant)
    if masks:
        kept = await find_entities(store, list(dict.fromkeys(masks.values())))
        found |= {name: kept[mask] for name, mask in masks.items()}
    for name in [name for name, meant in found.items() if not meant]:
        found[name] = await find_entities_by_prefix(store, name)
    return found


async def find_entities_by_prefix(store: RecordStore, prefix: str, *, deleted: bool = False) -> list[Record]:
    """Return the entities whose ids begin so: none for a text that is not the beginning of an id."""
    if not _ID_PREFIX.fullmatch(prefix):
        return []
    found = await store.find_by_prefix(prefix.lower(), (ENTITY,), MAX_NAMESAKES)
    return [record for record in found if deleted or record.deleted_at is None]


def mask_names(names: Iterable[str]) -> dict[str, str]:
    """Map each name that contains a secret to its masked form."""
    masks = {name: mask_text(name)[0] for name in names}
    return {name: mask for name, mask in masks.items() if mask != name}


async def find_entities(
    store: RecordStore, names: Sequence[str], *, deleted: bool | None = False
) -> dict[str, list[Record]]:
    """Map each stored name to the entities it may refer to. Pass None for `deleted` to include deleted entities."""
    keys = {compute_name_key(name) for name in names}
    keys |= {parts[0] for name in names if (parts := parse_name_and_type(name))}
    where = RecordFilter(kinds=(ENTITY,), name_keys=tuple(keys), deleted=deleted)
    by_id = await get_entities(store, names)
    return match_names([*await store.scan(where), *by_id], names)


def match_names(records: Iterable[Record], names: Sequence[str]) -> dict[str, list[Record]]:
    """Map each name to the records it refers to."""
    by_id: dict[str, Record] = {}
    by_key: dict[str, dict[str, Record]] = {}
    for record in records:
        by_id[record.id] = record
        by_key.setdefault(record.name_key or "", {})[record.id] = record

    def meant(name: str) -> list[Record]:
        if name in by_id:
            return [by_id[name]]
        if plain := by_key.get(compute_name_key(name)):
            return list(plain.values())
        base, entity_type = parse_name_and_type(name) or ("", "")
        named = by_key.get(base, {}).values()
        return [record for record in named if compute_name_key(record.type or "") == entity_type]

    return {name: meant(name) for name in names}


def parse_name_and_type(text: str) -> tuple[str, str] | None:
    """Split `name (type)` into its normalized parts. Return None for any other form."""
    name, bracket, rest = text.rstrip().rpartition("(")
    if not bracket or not rest.endswith(")") or not name.strip():
        return None
    return compute_name_key(name), compute_name_key(rest[:-1])


async def get_entities(store: RecordStore, names: Sequence[str]) -> list[Record]:
    ids = [name for name in names if len(name) == 36 and name.count("-") == 4]  # UUIDs look like this
    return [r for r in await store.get(ids) if r.kind == ENTITY] if ids else []


def build_ambiguity_error(name: str, meant: Iterable[Record], ids: Mapping[str, str] | None = None) -> AmbiguousName:
    """Build the error that lists the entities. `ids` maps record ids to the ids that the caller knows."""
    listed = [
        {
            "id": (ids or {}).get(record.id, record.id),
            "name": record.name or "",
            "entity_type": record.type or "",
            "use": f"{record.name} ({record.type})",
        }
        for record in meant
    ]
    return AmbiguousName(ENTITY, name, listed)


def require_unique(
    found: Mapping[str, Sequence[Record]],
    error: Callable[[str, Sequence[Record]], AmbiguousName] = build_ambiguity_error,
) -> Resolved:
    """Map each name to its one entity, or to None. Raise `error` if a name matches several."""
    for name, meant in found.items():
        if len(meant) > 1:
            raise error(name, meant)
    return {name: meant[0] if meant else None for name, meant in found.items()}


def require_entity(found: Resolved, name: str, hint: str, message: str | None = None) -> Record:
    record = found[name]
    if record is None:
        raise NotFound(ENTITY, name, hint=hint, message=message)
    return record


def list_stored_forms(text: str) -> list[str]:
    """Return the text itself and the text with its secrets masked."""
    return list(dict.fromkeys((text, mask_text(text)[0])))


async def read_entities(store: RecordStore, ids: Sequence[str] | None) -> Subgraph:
    """Read these entities, or all, with their observations and relations."""
    return await store.read_subgraph(Selection(ENTITY, OBSERVATION, ids))


class EntityIdentity(ABC):
    """Rule that decides whether two entities are the same, and which one a name refers to."""

    @abstractmethod
    def compute_variant(self, name: str, entity_type: str) -> str:
        """Return the part of the key that, besides the normalized name, distinguishes entities."""

    @abstractmethod
    def to_stored_name(self, name: str) -> str:
        """Return the form of the name that is stored."""

    @abstractmethod
    def is_same(self, record: Record, name: str, entity_type: str) -> bool: ...

    @abstractmethod
    async def resolve(self, store: RecordStore, names: Sequence[str]) -> Resolved:
        """Map each name to its one entity, or to None. A name with a secret matches its masked form."""

    def build_entity(self, name: str, entity_type: str, at: int, facets: Mapping[str, Any] | None = None) -> Record:
        name, entity_type = self.to_stored_name(name), entity_type.strip()
        return build_entity(name, entity_type, self.compute_variant(name, entity_type), at, facets)


class NameAndTypeIdentity(EntityIdentity):
    """Identity by normalized name and type: the same name with another type is another entity."""

    def to_stored_name(self, name: str) -> str:
        return name.strip()

    def compute_variant(self, name: str, entity_type: str) -> str:
        return compute_name_key(entity_type)

    def is_same(self, record: Record, name: str, entity_type: str) -> bool:
        same_type = compute_name_key(record.type or "") == compute_name_key(entity_type)
        return record.name_key == compute_name_key(name) and same_type

    async def resolve(self, store: RecordStore, names: Sequence[str]) -> Resolved:
        return require_unique(await find_candidates(store, names))


class ExactNameIdentity(EntityIdentity):
    """Identity by the exact name, whatever the type."""

    def to_stored_name(self, name: str) -> str:
        return name

    def compute_variant(self, name: str, entity_type: str) -> str:
        # No person writes a type that begins with "=", so both rules can share a project.
        return "=" + name

    def is_same(self, record: Record, name: str, entity_type: str) -> bool:
        return record.name == name

    async def resolve(self, store: RecordStore, names: Sequence[str]) -> Resolved:
        masks = mask_names(names)
        keys = tuple({compute_name_key(name) for name in (*names, *masks.values())})
        by_name: dict[str, Record] = {}
        for record in await store.scan(RecordFilter(kinds=(ENTITY,), name_keys=keys)):
            by_name.setdefault(record.name or "", record)
        return {name: by_name.get(name) or by_name.get(masks.get(name, name)) for name in names}


class ExactNameAndTypeIdentity(ExactNameIdentity):
    """Identity by exact name and type, for imports from a store with exact names."""

    def compute_variant(self, name: str, entity_type: str) -> str:
        return f"{compute_name_key(entity_type)}={name}"

    def is_same(self, record: Record, name: str, entity_type: str) -> bool:
        return record.name == name and compute_name_key(record.type or "") == compute_name_key(entity_type)

    async def resolve(self, store: RecordStore, names: Sequence[str]) -> Resolved:
        """Map each name to its entity. Imports also refer to entities by id."""
        by_id = {record.id: record for record in await get_entities(store, names)}
        by_name = await super().resolve(store, names)
        return {name: by_id.get(name) or by_name[name] for name in names}


BY_NAME_AND_TYPE = NameAndTypeIdentity()


async def ensure_entities(
    store: RecordStore, wanted: Sequence[tuple[str, str]], at: int, identity: EntityIdentity = BY_NAME_AND_TYPE
) -> tuple[list[Step], list[Record]]:
    """Return the steps that create the missing entities, and the entity of each name and type."""
    keys = tuple({compute_name_key(name) for name, _ in wanted})
    namesakes: dict[str, list[Record]] = {key: [] for key in keys}
    for record in await store.scan(RecordFilter(kinds=(ENTITY,), name_keys=keys)):
        namesakes[record.name_key or ""].append(record)
    steps: list[Step] = []
    meant: list[Record] = []
    for written, entity_type in wanted:
        name, known = identity.to_stored_name(written), namesakes[compute_name_key(written)]
        described = (record for record in known if not is_stub(record))
        record = next((r for r in described if identity.is_same(r, name, entity_type)), None)
        if record is None:
            stub = find_stub(known, name)
            if stub is not None:
                known.remove(stub)
            step, record = build_entity_step(identity.build_entity(name, entity_type, at), stub)
            steps.append(step)
            known.append(record)
        meant.append(record)
    return steps, meant
