"""Lookup: which entities a name means, what makes two of them one, and how to add missing ones."""

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


async def find_candidates(store: RecordStore, names: Sequence[str]) -> dict[str, list[Record]]:
    """For each name the entities that it may mean: by id, by name, else by `name (type)`.

    A name with a secret in it, which is kept out of what is stored, means the one without.
    """
    found = await find_entities(store, names)
    masks = mask_names(name for name, meant in found.items() if not meant)
    if masks:
        kept = await find_entities(store, list(dict.fromkeys(masks.values())))
        found |= {name: kept[mask] for name, mask in masks.items()}
    return found


def mask_names(names: Iterable[str]) -> dict[str, str]:
    """Those that have a secret in them, with the name that is stored instead."""
    masks = {name: mask_text(name)[0] for name in names}
    return {name: mask for name, mask in masks.items() if mask != name}


async def find_entities(
    store: RecordStore, names: Sequence[str], *, deleted: bool | None = False
) -> dict[str, list[Record]]:
    """Likewise, for names as they are stored; with `deleted` as None, deleted ones too."""
    keys = {compute_name_key(name) for name in names}
    keys |= {parts[0] for name in names if (parts := parse_name_and_type(name))}
    where = RecordFilter(kinds=(ENTITY,), name_keys=tuple(keys), deleted=deleted)
    by_id = await get_entities(store, names)
    return match_names([*await store.scan(where), *by_id], names)


def match_names(records: Iterable[Record], names: Sequence[str]) -> dict[str, list[Record]]:
    """For each name those of the records that it means."""
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
    """The two parts of `name (type)`, normalised; None for a text of another form."""
    name, bracket, rest = text.rstrip().rpartition("(")
    if not bracket or not rest.endswith(")") or not name.strip():
        return None
    return compute_name_key(name), compute_name_key(rest[:-1])


async def get_entities(store: RecordStore, names: Sequence[str]) -> list[Record]:
    ids = [name for name in names if len(name) == 36 and name.count("-") == 4]  # as UUIDs look
    return [r for r in await store.get(ids) if r.kind == ENTITY] if ids else []


def build_ambiguity_error(name: str, meant: Iterable[Record], ids: Mapping[str, str] | None = None) -> AmbiguousName:
    """Return the error that lists the entities; `ids` has the ids that others know them by."""
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
    """Return the one entity that each name means, or None; raise for a name that means two."""
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
    """The text as it was given, and as it is stored without its secrets."""
    return list(dict.fromkeys((text, mask_text(text)[0])))


async def read_entities(store: RecordStore, ids: Sequence[str] | None) -> Subgraph:
    """Read these entities, or all, with their observations and the relations that touch them."""
    return await store.read_subgraph(Selection(ENTITY, OBSERVATION, ids))


class EntityIdentity(ABC):
    """What tells one entity from another, and which one a name means."""

    @abstractmethod
    def compute_variant(self, name: str, entity_type: str) -> str:
        """Return the part beside the normalised name that keeps two entities apart."""

    @abstractmethod
    def to_stored_name(self, name: str) -> str:
        """Return a name as it is stored."""

    @abstractmethod
    def is_same(self, record: Record, name: str, entity_type: str) -> bool: ...

    @abstractmethod
    async def resolve(self, store: RecordStore, names: Sequence[str]) -> Resolved:
        """Return the one entity that each name means, or None.

        A name with a secret in it means the one that is stored without.
        """

    def build_entity(self, name: str, entity_type: str, at: int, facets: Mapping[str, Any] | None = None) -> Record:
        name, entity_type = self.to_stored_name(name), entity_type.strip()
        return build_entity(name, entity_type, self.compute_variant(name, entity_type), at, facets)


class NameAndTypeIdentity(EntityIdentity):
    """(normalised name, type): the same name with another type is another entity."""

    def to_stored_name(self, name: str) -> str:
        return name.strip()

    def compute_variant(self, name: str, entity_type: str) -> str:
        return compute_name_key(entity_type)

    def is_same(self, record: Record, name: str, entity_type: str) -> bool:
        same_type = compute_name_key(record.type or "") == compute_name_key(entity_type)
        return record.name_key == compute_name_key(name) and same_type

    async def resolve(self, store: RecordStore, names: Sequence[str]) -> Resolved:
        """Raise AmbiguousName for a name that fits two entities."""
        return require_unique(await find_candidates(store, names))


class ExactNameIdentity(EntityIdentity):
    """The name as it is written; the type does not count."""

    def to_stored_name(self, name: str) -> str:
        return name

    def compute_variant(self, name: str, entity_type: str) -> str:
        # "=" begins no type that a person would write, so the two rules can share a project
        # without standing in each other's way.
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
    """The name as it is written, and the type: for what comes from a place with exact names."""

    def compute_variant(self, name: str, entity_type: str) -> str:
        return f"{compute_name_key(entity_type)}={name}"

    def is_same(self, record: Record, name: str, entity_type: str) -> bool:
        return record.name == name and compute_name_key(record.type or "") == compute_name_key(entity_type)

    async def resolve(self, store: RecordStore, names: Sequence[str]) -> Resolved:
        """By id too: whoever takes things in knows which entity a name stood for."""
        by_id = {record.id: record for record in await get_entities(store, names)}
        by_name = await super().resolve(store, names)
        return {name: by_id.get(name) or by_name[name] for name in names}


BY_NAME_AND_TYPE = NameAndTypeIdentity()


async def ensure_entities(
    store: RecordStore, wanted: Sequence[tuple[str, str]], at: int, identity: EntityIdentity = BY_NAME_AND_TYPE
) -> tuple[list[Step], list[Record]]:
    """Return the steps that make the missing entities, and the entity of each name and type."""
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
