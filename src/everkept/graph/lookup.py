"""Find the entities that a name refers to, and create missing ones."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from everkept.core.answers import Selection, Subgraph
from everkept.core.ports import RecordStore
from everkept.core.records import Record, RecordFilter, Step
from everkept.core.secrets import mask_text
from everkept.core.text import compute_name_key
from everkept.errors import AmbiguousName, NotFound
from everkept.graph.entities import ENTITY, OBSERVATION, build_entity, build_entity_step, find_stub, is_stub

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
