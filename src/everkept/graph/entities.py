"""Entities and their observations: the records of both, and when two of them are one."""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any
from uuid import uuid4

from everkept.core.answers import Node
from everkept.core.ports import RecordStore
from everkept.core.records import Insert, Record, Step, Update, Where
from everkept.core.text import digest, has_control_characters, normalised
from everkept.errors import InvalidInput
from everkept.values import replace

ENTITY = "entity"
OBSERVATION = "observation"
UNKNOWN_TYPE = "unknown"  # of an entity that only a relation has named so far
NAME_LIMIT = 500  # characters
STUB: Mapping[str, Any] = {"stub": True}  # the facets of a stub


def is_stub(record: Record | Node) -> bool:
    """Whether a relation named the entity before anybody described it."""
    return bool(record.facets.get("stub"))


def new_entity(
    name: str, entity_type: str, variant: str, at: int, facets: Mapping[str, Any] | None = None
) -> Record:
    return Record(
        id=str(uuid4()),
        kind=ENTITY,
        name=name,
        type=entity_type,
        name_key=normalised(name),
        variant=variant,
        facets=facets or {},
        created_at=at,
        updated_at=at,
    )


def stub_named(namesakes: Sequence[Record], name: str) -> Record | None:
    """Return the stub with this very spelling, or else the first stub."""
    stubs = [record for record in namesakes if is_stub(record)]
    return next((stub for stub in stubs if stub.name == name), stubs[0] if stubs else None)


def make_entity(new: Record, stub: Record | None) -> tuple[Step, Record]:
    """Return the step that inserts the entity or describes the stub, and the entity itself."""
    if stub is None:
        return Insert(new), new
    values = {"name": new.name, "type": new.type, "variant": new.variant, "facets": new.facets}
    return Update(stub.id, values, stub.version), replace(new, id=stub.id)


def check_name(name: str, argument: str) -> None:
    if has_control_characters(name):
        raise InvalidInput(
            f"`{argument}` holds a control character: {name!a}.",
            argument=argument,
            value=ascii(name),
        )


def observation_key(text: str) -> str:
    """Return the key by which texts on one entity are the same."""
    return digest(text)


def new_observation(
    owner: str,
    text: str,
    at: int,
    *,
    facets: Mapping[str, Any] | None = None,
    occurred_at: int | None = None,
) -> Record:
    return Record(
        id=str(uuid4()),
        kind=OBSERVATION,
        text=text,
        name_key=observation_key(text),
        parent=owner,
        occurred_at=occurred_at,
        facets=facets or {},
        created_at=at,
        updated_at=at,
    )


async def observations_of(
    store: RecordStore, owners: Iterable[str], texts: Iterable[str] | None = None
) -> list[Record]:
    """Return the observations of these entities: all of them, or those with one of the texts."""
    parents = tuple(owners)
    keys = None if texts is None else tuple({observation_key(text) for text in texts})
    if not parents or keys == ():
        return []
    return await store.scan(Where(kinds=(OBSERVATION,), parents=parents, name_keys=keys))


async def missing_observations(
    store: RecordStore,
    texts: Mapping[str, Sequence[str]],
    at: int,
    inserted: Set[str] = frozenset(),
) -> dict[str, list[Record]]:
    """Return new observations for the texts that their entity does not have yet, each text once.

    The entities in `inserted` come with the same commit, so the store has nothing of them.
    """
    owners = [entity for entity, many in texts.items() if many and entity not in inserted]
    there = await observations_of(store, owners, (t for owner in owners for t in texts[owner]))
    known = {(record.parent, record.name_key) for record in there}
    return {
        entity: [
            new_observation(entity, text, at)
            for text in dict.fromkeys(many)
            if (entity, observation_key(text)) not in known
        ]
        for entity, many in texts.items()
    }
