"""Who is meant: what makes two entities one, and which entity a name points at."""

from collections.abc import Sequence
from typing import Protocol

from everkept.core.ports import RecordStore
from everkept.core.records import Insert, Record, Step, Where
from everkept.core.text import normalised
from everkept.errors import AmbiguousName, NotFound
from everkept.graph.entities import ENTITY, describe_stub, is_stub, new_entity
from everkept.graph.lookup import candidate, candidates, entities_by_id, masked_names

Resolved = dict[str, Record | None]


class Identity(Protocol):
    """What tells one entity from another, and which one a name means."""

    def variant(self, name: str, entity_type: str) -> str:
        """The part beside the normalised name that keeps two entities apart."""
        ...

    def spelled(self, name: str) -> str:
        """A name as it is kept."""
        ...

    def is_same(self, record: Record, name: str, entity_type: str) -> bool: ...

    async def resolve(self, store: RecordStore, names: Sequence[str]) -> Resolved:
        """The one entity each name means, None where there is none.

        A name with a secret in it means the one that is stored without.
        """
        ...


class ByNameAndType:
    """(normalised name, type): the same name with another type is another entity."""

    def spelled(self, name: str) -> str:
        return name.strip()

    def variant(self, name: str, entity_type: str) -> str:
        return normalised(entity_type)

    def is_same(self, record: Record, name: str, entity_type: str) -> bool:
        same_type = normalised(record.type or "") == normalised(entity_type)
        return record.name_key == normalised(name) and same_type

    async def resolve(self, store: RecordStore, names: Sequence[str]) -> Resolved:
        """A name that fits two entities is an error that lists them."""
        found = await candidates(store, names)
        for name, meant in found.items():
            if len(meant) > 1:
                raise AmbiguousName(ENTITY, name, [candidate(record) for record in meant])
        return {name: meant[0] if meant else None for name, meant in found.items()}


class ByExactName:
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


def required(found: Resolved, name: str) -> Record:
    record = found[name]
    if record is None:
        raise NotFound(ENTITY, name, hint="search_nodes finds entities; create_entities makes one.")
    return record


async def ensure_entities(
    store: RecordStore, wanted: Sequence[tuple[str, str]], at: int
) -> tuple[list[Step], dict[tuple[str, str], str]]:
    """The ids of entities by name and type, and the steps that make those which are missing.

    The same name with another type is another entity; case and blanks do not count.
    """
    keys = tuple({normalised(name) for name, _ in wanted})
    known: dict[tuple[str, str], str] = {}
    stubs: dict[str, Record] = {}
    for record in await store.scan(Where(kinds=(ENTITY,), name_keys=keys)):
        if is_stub(record):
            stubs[record.name_key or ""] = record
        else:
            known.setdefault((record.name_key or "", normalised(record.type or "")), record.id)
    steps: list[Step] = []
    for name, entity_type in wanted:
        key = (normalised(name), normalised(entity_type))
        if key in known:
            continue
        new = new_entity(name.strip(), entity_type.strip(), normalised(entity_type), at)
        stub = stubs.pop(key[0], None)
        steps.append(Insert(new) if stub is None else describe_stub(stub, new))
        known[key] = new.id if stub is None else stub.id
    return steps, {(n, t): known[normalised(n), normalised(t)] for n, t in wanted}
