"""What a change to a memory makes of its values."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from everkept.core.records import Record
from everkept.errors import InvalidInput
from everkept.families.memories.identity import text_key
from everkept.families.memories.model import (
    AUTOMATIC,
    METADATA_LIMIT,
    TAG_LIMIT,
    EntityChange,
    TagChange,
)
from everkept.graph.entities import check_name
from everkept.values import Value

Values = dict[str, Any]


class Amendment(Value):
    """What is to be changed of a memory; None leaves it as it is."""

    content: str | None = None
    importance: float | None = None
    tags: TagChange | list[str] | None = None
    metadata: Mapping[str, Any] | None = None
    entities: EntityChange | None = None
    pinned: bool | None = None


def amended(record: Record, amendment: Amendment) -> dict[str, Values]:
    """The values that change, by the name of the argument that changes them."""
    facets = dict(record.facets)
    asked: dict[str, Values] = {}
    if amendment.content is not None:
        text = amendment.content
        asked["content"] = {"text": text, "name_key": text_key(text)}
    if amendment.importance is not None:
        asked["importance"] = {"importance": amendment.importance}
    if amendment.tags is not None:
        asked["tags"] = {"tags": retagged(record.tags, amendment.tags)}
    if amendment.metadata:
        facets["metadata"] = _merged(facets.get("metadata", {}), amendment.metadata)
        asked["metadata"] = {"facets": facets}
    if amendment.pinned not in (None, "pinned" in facets):
        facets = {name: value for name, value in facets.items() if name != "pinned"}
        facets |= {"pinned": True} if amendment.pinned else {}
        asked["pinned"] = {"facets": facets}
    return {
        name: changed
        for name, values in asked.items()
        if (changed := {key: v for key, v in values.items() if getattr(record, key) != v})
    }


def taken_up(record: Record, values: Values) -> Values:
    """What somebody changes is theirs from then on: it is automatic no longer."""
    facets: Mapping[str, Any] = values.get("facets", record.facets)
    if not values or AUTOMATIC not in facets:
        return values
    return {**values, "facets": not_automatic(facets)}


def not_automatic(facets: Mapping[str, Any]) -> Values:
    return {name: value for name, value in facets.items() if name != AUTOMATIC}


def _merged(there: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Together they keep to the limit; what is past it already can still be made shorter."""
    merged = {**there, **patch}
    size, before = (len(json.dumps(part, ensure_ascii=False)) for part in (merged, there))
    if size > METADATA_LIMIT and size > before:
        raise InvalidInput(
            f"With what the memory has already, `metadata` would have {size:,} characters as JSON; "
            f"at most {METADATA_LIMIT:,} are allowed.",
            hint="Give keys that are no longer needed a short value.",
            argument="metadata",
            limit=METADATA_LIMIT,
        )
    return merged


def retagged(tags: Sequence[str], change: TagChange | list[str]) -> tuple[str, ...]:
    """A plain list replaces the tags."""
    if isinstance(change, list):
        return clean_tags(change)
    gone = {tag.strip() for tag in change.remove or ()}
    return clean_tags([*(tag for tag in tags if tag not in gone), *(change.add or ())])


def clean_tags(tags: Sequence[str]) -> tuple[str, ...]:
    for i, tag in enumerate(tags):
        check_name(tag, f"tags[{i}]")
    clean = tuple(dict.fromkeys(tag.strip() for tag in tags))
    if len(clean) > TAG_LIMIT:
        raise InvalidInput(
            f"The memory would have {len(clean)} tags; at most {TAG_LIMIT} are allowed.",
            argument="tags",
            limit=TAG_LIMIT,
        )
    return clean
