"""The official memory server's file: one JSON object per line, entities and relations."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

from everkept.errors import InvalidInput
from everkept.families.graph.model import BATCH_LIMIT, NewEntity, RelationSpec
from everkept.graph.entities import check_name
from everkept.tools.schema import parse_value
from everkept.values import Value

_ENTITY_KEYS = ("name", "entityType", "observations")
_RELATION_KEYS = ("from", "to", "relationType")


class Unreadable(Value):
    """A line that could not be taken in, and why."""

    line: int
    reason: str


Parsed = NewEntity | RelationSpec | Unreadable


def parse_lines(lines: Iterable[str]) -> Iterator[tuple[int, Parsed]]:
    """What each line holds, with its number. Blank lines and objects of other types are passed
    over, and so are keys that forks of that server add.
    """
    for number, line in enumerate(lines, start=1):
        text = line.strip().lstrip("\ufeff")
        if text:
            for parsed in _parsed(number, text):
                yield number, parsed


def _parsed(number: int, text: str) -> list[Parsed]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return [Unreadable(number, f"not JSON: {error}")]
    if not isinstance(value, dict):
        return [Unreadable(number, "not an object")]
    entry = cast(dict[str, Any], value)
    try:
        if entry.get("type") == "entity":
            return [*_entities(entry)]
        if entry.get("type") == "relation":
            return [_relation(entry)]
    except InvalidInput as error:
        return [Unreadable(number, str(error))]
    return []


def _entities(entry: dict[str, Any]) -> list[NewEntity]:
    """One entity, in several pieces where it has more observations than a call may."""
    wanted = {key: entry[key] for key in _ENTITY_KEYS if key in entry}
    texts = wanted.get("observations", [])
    if isinstance(texts, list):
        kept = [text for text in cast(list[Any], texts) if not _is_blank(text)]
        pieces = [kept[i : i + BATCH_LIMIT] for i in range(0, len(kept), BATCH_LIMIT)] or [[]]
    else:
        pieces = [texts]
    entities = [parse_value(NewEntity, wanted | {"observations": piece}) for piece in pieces]
    check_name(entities[0].name, "name")
    check_name(entities[0].entity_type, "entityType")
    return entities


def _is_blank(text: Any) -> bool:
    return isinstance(text, str) and not text.strip()


def _relation(entry: dict[str, Any]) -> RelationSpec:
    wanted = {key: entry[key] for key in _RELATION_KEYS if key in entry}
    relation = parse_value(RelationSpec, wanted)
    for name in (relation.from_, relation.to, relation.relation_type):
        check_name(name, "relation")
    return relation
