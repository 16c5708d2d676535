"""Lookup: which entities a name means."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from everkept.core.ports import RecordStore
from everkept.core.records import Record, Where
from everkept.core.secrets import masked
from everkept.core.subgraphs import Selection, Subgraph
from everkept.core.text import normalised
from everkept.errors import AmbiguousName, NotFound
from everkept.graph.entities import ENTITY, OBSERVATION

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
