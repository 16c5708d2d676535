"""Lookup: which entities a name means."""

from collections.abc import Iterable, Sequence

from everkept.core.ports import RecordStore
from everkept.core.records import Record, Where
from everkept.core.secrets import masked
from everkept.core.text import normalised
from everkept.graph.entities import ENTITY


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
