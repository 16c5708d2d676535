"""Entities: the record of one, and the stub that a relation makes of a name alone."""

from typing import Any
from uuid import uuid4

from everkept.core.records import Record, Update
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


def check_name(name: str, argument: str) -> None:
    if has_control_characters(name):
        raise InvalidInput(
            f"`{argument}` holds a control character: {name!a}.",
            argument=argument,
            value=ascii(name),
        )
