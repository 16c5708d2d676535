"""Entities, which several families name: who is meant by a name, and what is stored of one."""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import uuid4

from everkept.core.ports import RecordStore
from everkept.core.records import Insert, Record, Step, Update, Where
from everkept.core.secrets import masked
from everkept.core.subgraphs import Node
from everkept.core.text import has_control_characters, normalised
from everkept.errors import InvalidInput

ENTITY = "entity"
OBSERVATION = "observation"
UNKNOWN_TYPE = "unknown"  # of an entity that only a relation has named so far
NAME_LIMIT = 500  # characters


def is_stub(record: Record | Node) -> bool:
    """Whether a relation named the entity before anybody described it."""
    return bool(record.facets.get("stub"))


def new_entity(name: str, entity_type: str, variant: str, at: int) -> Record:
    return Record(
        id=str(uuid4()),
        kind=ENTITY,
        name=name,
        type=entity_type,
        name_key=normalised(name),
        variant=variant,
        created_at=at,
        updated_at=at,
    )


def describe_stub(stub: Record, new: Record) -> Update:
    """The step that makes of a stub the entity that somebody describes now."""
    values: dict[str, Any] = {
        "name": new.name,
        "type": new.type,
        "variant": new.variant,
        "facets": {},
    }
    return Update(stub.id, values, stub.version)


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


def check_name(name: str, argument: str) -> None:
    if has_control_characters(name):
        raise InvalidInput(
            f"`{argument}` holds a control character: {name!a}.",
            argument=argument,
            value=ascii(name),
        )


async def candidates(store: RecordStore, names: Sequence[str]) -> dict[str, list[Record]]:
    """For each name the entities that it may mean: by id, by name, else by `name (type)`.

    A name with a secret in it, which is kept out of what is stored, means the one without.
    """
    found = await _candidates(store, names)
    masks = masked_names(name for name, meant in found.items() if not meant)
    if masks:
        kept = await _candidates(store, list(dict.fromkeys(masks.values())))
        found |= {name: kept[mask] for name, mask in masks.items()}
    return found


def masked_names(names: Iterable[str]) -> dict[str, str]:
    """Those that have a secret in them, with the name that is stored instead."""
    masks = {name: masked(name)[0] for name in names}
    return {name: mask for name, mask in masks.items() if mask != name}


async def _candidates(store: RecordStore, names: Sequence[str]) -> dict[str, list[Record]]:
    split = {name: parts for name in names if (parts := name_and_type(name))}
    keys = {normalised(name) for name in names} | {base for base, _ in split.values()}
    by_id = {record.id: record for record in await entities_by_id(store, names)}
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


async def entities_by_id(store: RecordStore, names: Sequence[str]) -> list[Record]:
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
