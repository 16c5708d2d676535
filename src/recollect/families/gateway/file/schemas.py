"""Whether a JSON Schema in a gateway's file is one, as far as can be told without a validator."""

import math
from typing import Any, cast

from recollect.core.json_text import DEEPEST
from recollect.families.gateway.file.places import Place, is_list, is_object, shown_value
from recollect.families.gateway.model import JSON

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")

_ONE_SCHEMA = (
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_SCHEMAS_BY_NAME = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
_LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")
_DEEPEST = DEEPEST - 10  # a schema lies a few brackets deep in its file
# Such a keyword may say more about the parameters than `properties` does.
_OPEN = ("$ref", "allOf", "anyOf", "oneOf", "patternProperties", "if", "dependentSchemas")


def check_root(place: Place) -> bool:
    """Whether it is a schema whose root is of type object, as a tool's must be."""
    before = len(place.notes.problems)
    if is_object(place):
        if place.value.get("type") != "object":
            _refuse_root(place)
        _check(place)
    return len(place.notes.problems) == before


def parameters_of(place: Place) -> tuple[set[str] | None, list[str]]:
    """The parameters of a schema that was checked, and those that a call must have.

    None for the first where the schema may have more of them.
    """
    properties, required = place.value.get("properties", {}), place.value.get("required", [])
    is_open = any(keyword in place.value for keyword in _OPEN)
    return None if is_open else set(properties), list(required)


def can_be_written(schema: Any) -> bool:
    """Whether nothing would be refused in a schema that is to become part of a file."""
    if not _is_plain(schema):
        return False
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            for keyword, value in cast(JSON, part).items():
                inner = _schemas_under(keyword, value)
                if inner is None:
                    return False
                waiting += inner
        elif not isinstance(part, bool):
            return False
    return True


def _is_plain(value: Any) -> bool:
    """Whether a document can hold it."""
    waiting: list[tuple[Any, int]] = [(value, 1)]
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, dict | list):
            if depth > _DEEPEST:
                return False
            inside = list(cast(JSON, each).values()) if isinstance(each, dict) else _listed(each)
            waiting += [(inner, depth + 1) for inner in inside]
        elif isinstance(each, float) and not math.isfinite(each):
            return False
    return True


def _schemas_under(keyword: str, value: Any) -> list[Any] | None:
    """None where the keyword cannot have such a value."""
    if keyword == "type":
        return [] if all(name in TYPES for name in _listed(value)) else None
    if keyword == "required":
        is_right = isinstance(value, list) and all(isinstance(name, str) for name in _listed(value))
        return [] if is_right else None
    if keyword == "enum":
        return [] if isinstance(value, list) else None
    if keyword in _SCHEMAS_BY_NAME:
        return list(cast(JSON, value).values()) if isinstance(value, dict) else None
    if keyword in _LISTS_OF_SCHEMAS or (keyword == "items" and isinstance(value, list)):
        return _listed(value) if isinstance(value, list) else None
    return [value] if keyword in _ONE_SCHEMA else []


def _listed(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else [value]


def _refuse_root(place: Place) -> None:
    given = place.get("type")
    what = f"is {shown_value(given.value)}" if given else "is missing"
    (given or place).refuse(
        f"The `type` of {place.name} {what}.", 'It must be `"type": "object"`, as for every tool.'
    )


def _check(place: Place) -> None:
    if isinstance(place.value, dict):
        for keyword, member in place.members():
            _check_keyword(keyword, member)
    elif not isinstance(place.value, bool):
        place.must_be("a schema: an object in { }, true or false")


def _check_keyword(keyword: str, place: Place) -> None:
    if keyword == "type":
        _check_type(place)
    elif keyword == "required":
        _check_required(place)
    elif keyword == "enum":
        is_list(place)
    elif keyword in _SCHEMAS_BY_NAME:
        for _, member in place.members() if is_object(place) else ():
            _check(member)
    elif keyword in _LISTS_OF_SCHEMAS or (keyword == "items" and isinstance(place.value, list)):
        for item in place.items() if is_list(place) else ():
            _check(item)
    elif keyword in _ONE_SCHEMA:
        _check(place)


def _check_type(place: Place) -> None:
    for name in place.items() if isinstance(place.value, list) else [place]:
        if not isinstance(name.value, str) or name.value not in TYPES:
            name.must_be(f"one of {', '.join(TYPES)}")


def _check_required(place: Place) -> None:
    for item in place.items() if is_list(place) else ():
        if not isinstance(item.value, str):
            item.must_be("the name of a parameter, in quotes")
