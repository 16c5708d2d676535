"""Entities: the record of one, and the stub that a relation makes of a name alone."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from everkept.core.records import Insert, Record, Step, Update
from everkept.core.subgraphs import Node
from everkept.core.text import has_control_characters, normalised
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
