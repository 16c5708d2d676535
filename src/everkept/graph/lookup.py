"""Lookup: which entities a name means, what makes two of them one, and how to add missing ones."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from everkept.core.answers import Selection, Subgraph
from everkept.core.ports import RecordStore
from everkept.core.records import Record, Step, Where
from everkept.core.secrets import masked
from everkept.core.text import normalised
from everkept.errors import AmbiguousName, NotFound
from everkept.graph.entities import (
    ENTITY,
    OBSERVATION,
    is_stub,
    make_entity,
    new_entity,
    stub_named,
)

Resolved = dict[str, Record | None]


async def candidates(store: RecordStore, names: Sequence[str]) -> dict[str, list[Record]]:
    """For each name the entities that it may mean: by id, by name, else by `name (type)`.

    A name with a secret in it, which is kept out of what is stored, means the one without.
    """
    found = await entities_named(store, names)
    masks = masked_names(name for name, meant in found.items() if not meant)
    if masks:
        kept = await entities_named(store, list(dict.fromkeys(masks.values())))
        found |= {name: kept[mask] for name, mask in masks.items()}
    return found


def masked_names(names: Iterable[str]) -> dict[str, str]:
    """Those that have a secret in them, with the name that is stored instead."""
    masks = {name: masked(name)[0] for name in names}
    return {name: mask for name, mask in masks.items() if mask != name}


async def entities_named(
    store: RecordStore, names: Sequence[str], *, deleted: bool | None = False
) -> dict[str, list[Record]]:
    """Likewise, for names as they are stored; with `deleted` as None, deleted ones too."""
    keys = {normalised(name) for name in names}
    keys |= {parts[0] for name in names if (parts := name_and_type(name))}
    where = Where(kinds=(ENTITY,), name_keys=tuple(keys), deleted=deleted)
    by_id = await entities_by_id(store, names)
    return meant_among([*await store.scan(where), *by_id], names)


def meant_among(records: Iterable[Record], names: Sequence[str]) -> dict[str, list[Record]]:
    """For each name those of the records that it means."""
    by_id: dict[str, Record] = {}
    by_key: dict[str, dict[str, Record]] = {}
    for record in records:
        by_id[record.id] = record
        by_key.setdefault(record.name_key or "", {})[record.id] = record

    def meant(name: str) -> list[Record]:
        if name in by_id:
            return [by_id[name]]
        if plain := by_key.get(normalised(name)):
            return list(plain.values())
        base, entity_type = name_and_type(name) or ("", "")
        named = by_key.get(base, {}).values()
        return [record for record in named if normalised(record.type or "") == entity_type]

    return {name: meant(name) for name in names}


def name_and_type(text: str) -> tuple[str, str] | None:
    """The two parts of `name (type)`, normalised; None for a text of another form."""
    name, bracket, rest = text.rstrip().rpartition("(")
    if not bracket or not rest.endswith(")") or not name.strip():
        return None
    return normalised(name), normalised(rest[:-1])


async def entities_by_id(store: RecordStore, names: Sequence[str]) -> list[Record]:
    ids = [name for name in names if len(name) == 36 and name.count("-") == 4]  # as UUIDs look
    return [r for r in await store.get(ids) if r.kind == ENTITY] if ids else []


def ambiguous(
    name: str, meant: Iterable[Record], ids: Mapping[str, str] | None = None
) -> AmbiguousName:
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


def one_each(
    found: Mapping[str, Sequence[Record]],
    error: Callable[[str, Sequence[Record]], AmbiguousName] = ambiguous,
) -> Resolved:
    """Return the one entity that each name means, or None; raise for a name that means two."""
    for name, meant in found.items():
        if len(meant) > 1:
            raise error(name, meant)
    return {name: meant[0] if meant else None for name, meant in found.items()}


def required(found: Resolved, name: str, hint: str, message: str | None = None) -> Record:
    record = found[name]
    if record is None:
        raise NotFound(ENTITY, name, hint=hint, message=message)
    return record


def stored_forms(text: str) -> list[str]:
    """The text as it was given, and as it is stored without its secrets."""
    return list(dict.fromkeys((text, masked(text)[0])))


async def read_entities(store: RecordStore, ids: Sequence[str] | None) -> Subgraph:
    """Read these entities, or all, with their observations and the relations that touch them."""
    return await store.subgraph(Selection(ENTITY, OBSERVATION, ids))


class Identity(ABC):
    """What tells one entity from another, and which one a name means."""

    @abstractmethod
    def variant(self, name: str, entity_type: str) -> str:
        """Return the part beside the normalised name that keeps two entities apart."""

    @abstractmethod
    def spelled(self, name: str) -> str:
        """Return a name as it is stored."""

    @abstractmethod
    def is_same(self, record: Record, name: str, entity_type: str) -> bool: ...

    @abstractmethod
    async def resolve(self, store: RecordStore, names: Sequence[str]) -> Resolved:
        """Return the one entity that each name means, or None.

        A name with a secret in it means the one that is stored without.
        """

    def new(
        self, name: str, entity_type: str, at: int, facets: Mapping[str, Any] | None = None
    ) -> Record:
        name, entity_type = self.spelled(name), entity_type.strip()
        return new_entity(name, entity_type, self.variant(name, entity_type), at, facets)


class ByNameAndType(Identity):
    """(normalised name, type): the same name with another type is another entity."""

    def spelled(self, name: str) -> str:
        return name.strip()

    def variant(self, name: str, entity_type: str) -> str:
        return normalised(entity_type)

    def is_same(self, record: Record, name: str, entity_type: str) -> bool:
        same_type = normalised(record.type or "") == normalised(entity_type)
        return record.name_key == normalised(name) and same_type

    async def resolve(self, store: RecordStore, names: Sequence[str]) -> Resolved:
        """Raise AmbiguousName for a name that fits two entities."""
        return one_each(await candidates(store, names))


class ByExactName(Identity):
    """The name as it is written; the type does not count."""

    def spelled(self, name: str) -> str:
        return name

    def variant(self, name: str, entity_type: str) -> str:
        # "=" begins no type that a person would write, so the two rules can share a project
        # without standing in each other's way.
        return "=" + name

    def is_same(self, record: Record, name: str, entity_type: str) -> bool:
        return record.name == name

    async def resolve(self, store: RecordStore, names: Sequence[str]) -> Resolved:
        masks = masked_names(names)
        keys = tuple({normalised(name) for name in (*names, *masks.values())})
        by_name: dict[str, Record] = {}
        for record in await store.scan(Where(kinds=(ENTITY,), name_keys=keys)):
            by_name.setdefault(record.name or "", record)
        return {name: by_name.get(name) or by_name.get(masks.get(name, name)) for name in names}


class ByExactNameAndType(ByExactName):
    """The name as it is written, and the type: for what comes from a place with exact names."""

    def variant(self, name: str, entity_type: str) -> str:
        return f"{normalised(entity_type)}={name}"

    def is_same(self, record: Record, name: str, entity_type: str) -> bool:
        return record.name == name and normalised(record.type or "") == normalised(entity_type)

    async def resolve(self, store: RecordStore, names: Sequence[str]) -> Resolved:
        """By id too: whoever takes things in knows which entity a name stood for."""
        by_id = {record.id: record for record in await entities_by_id(store, names)}
        by_name = await super().resolve(store, names)
        return {name: by_id.get(name) or by_name[name] for name in names}


BY_NAME_AND_TYPE = ByNameAndType()


async def ensure_entities(
    store: RecordStore,
    wanted: Sequence[tuple[str, str]],
    at: int,
    identity: Identity = BY_NAME_AND_TYPE,
) -> tuple[list[Step], list[Record]]:
    """Return the steps that make the missing entities, and the entity of each name and type."""
    keys = tuple({normalised(name) for name, _ in wanted})
    namesakes: dict[str, list[Record]] = {key: [] for key in keys}
    for record in await store.scan(Where(kinds=(ENTITY,), name_keys=keys)):
        namesakes[record.name_key or ""].append(record)
    steps: list[Step] = []
    meant: list[Record] = []
    for written, entity_type in wanted:
        name, known = identity.spelled(written), namesakes[normalised(written)]
        described = (record for record in known if not is_stub(record))
        record = next((r for r in described if identity.is_same(r, name, entity_type)), None)
        if record is None:
            stub = stub_named(known, name)
            if stub is not None:
                known.remove(stub)
            step, record = make_entity(identity.new(name, entity_type, at), stub)
            steps.append(step)
            known.append(record)
        meant.append(record)
    return steps, meant
