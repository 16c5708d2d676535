"""Observations: texts below an entity. Two with the same text on one entity are one."""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any
from uuid import uuid4

from everkept.core.ports import RecordStore
from everkept.core.records import Record, Where
from everkept.core.text import digest
from everkept.graph.entities import OBSERVATION


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
