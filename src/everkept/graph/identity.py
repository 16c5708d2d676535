"""Identities: what makes two entities one, which entity a name means, and which one it makes."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from everkept.core.ports import RecordStore
from everkept.core.records import Record, Step, Where
from everkept.core.text import normalised
from everkept.graph.entities import ENTITY, is_stub, make_entity, new_entity, stub_named
from everkept.graph.lookup import Resolved, candidates, entities_by_id, masked_names, one_each


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
