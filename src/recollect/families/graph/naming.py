"""Who is meant: what makes two entities one, and which entity a name points at."""

from collections.abc import Sequence
from typing import Protocol

from recollect.core.ports import RecordStore
from recollect.core.records import Record, Where
from recollect.core.text import has_control_characters, normalised
from recollect.errors import AmbiguousName, InvalidInput, NotFound
from recollect.families.graph.model import ENTITY

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
        """The one entity each name means, None where there is none."""
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
        keys = tuple({normalised(name) for name in names})
        found: Resolved = dict.fromkeys(names)
        for record in await store.scan(Where(kinds=(ENTITY,), name_keys=keys)):
            if record.name in found and found[record.name] is None:
                found[record.name] = record
        return found


class ByExactNameAndType(ByExactName):
    """The name as it is written, and the type: for what comes from a place with exact names."""

    def variant(self, name: str, entity_type: str) -> str:
        return f"{normalised(entity_type)}={name}"

    def is_same(self, record: Record, name: str, entity_type: str) -> bool:
        return record.name == name and normalised(record.type or "") == normalised(entity_type)

    async def resolve(self, store: RecordStore, names: Sequence[str]) -> Resolved:
        """By id too: whoever takes things in knows which entity a name stood for."""
        by_id = {record.id: record for record in await _entities_by_id(store, names)}
        by_name = await super().resolve(store, names)
        return {name: by_id.get(name) or by_name[name] for name in names}


def check_name(name: str, argument: str) -> None:
    if has_control_characters(name):
        raise InvalidInput(
            f"`{argument}` holds a control character: {name!a}.",
            argument=argument,
            value=ascii(name),
        )


async def candidates(store: RecordStore, names: Sequence[str]) -> dict[str, list[Record]]:
    """For each name the entities that it may mean: by id, by name, else by `name (type)`."""
    split = {name: parts for name in names if (parts := name_and_type(name))}
    keys = {normalised(name) for name in names} | {base for base, _ in split.values()}
    by_id = {record.id: record for record in await _entities_by_id(store, names)}
    by_key: dict[str, list[Record]] = {}
    for record in await store.scan(Where(kinds=(ENTITY,), name_keys=tuple(keys))):
        by_key.setdefault(record.name_key or "", []).append(record)

    def meant(name: str) -> list[Record]:
        if name in by_id:
            return [by_id[name]]
        if plain := by_key.get(normalised(name)):
            return plain
        base, entity_type = split.get(name, ("", ""))
        return [r for r in by_key.get(base, []) if normalised(r.type or "") == entity_type]

    return {name: meant(name) for name in names}


def name_and_type(text: str) -> tuple[str, str] | None:
    """The two parts of `name (type)`, normalised; None for a text of another form."""
    name, bracket, rest = text.rstrip().rpartition("(")
    if not bracket or not rest.endswith(")") or not name.strip():
        return None
    return normalised(name), normalised(rest[:-1])


def required(found: Resolved, name: str) -> Record:
    record = found[name]
    if record is None:
        raise NotFound(ENTITY, name, hint="search_nodes finds entities; create_entities makes one.")
    return record


async def _entities_by_id(store: RecordStore, names: Sequence[str]) -> list[Record]:
    ids = [name for name in names if len(name) == 36 and name.count("-") == 4]  # as UUIDs look
    return [r for r in await store.get(ids) if r.kind == ENTITY] if ids else []


def candidate(record: Record) -> dict[str, str]:
    """An entity as the error about an ambiguous name lists it."""
    return {
        "id": record.id,
        "name": record.name or "",
        "entity_type": record.type or "",
        "use": f"{record.name} ({record.type})",
    }
