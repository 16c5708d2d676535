"""Whether a JSON Schema in a gateway's file is one, as far as can be told without a validator."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

from everkept.core.json_text import DEEPEST
from everkept.families.gateway.file_values import Place, is_object, shown_value
from everkept.families.gateway.model import JSON
from everkept.families.gateway.schema_facts import Root, TooIntricate

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
        _check(place, place.value)
    return len(place.notes.problems) == before


def parameters_of(place: Place) -> tuple[set[str] | None, list[str]]:
    """The parameters of a schema that was checked, and those that a call must have.

    None for the first where the schema may have more of them.
    """
    properties, required = place.value.get("properties", {}), place.value.get("required", [])
    is_open = any(keyword in place.value for keyword in _OPEN)
    is_open = is_open or place.value.get("additionalProperties", False) is not False
    return None if is_open else set(properties), list(required)


def can_be_written(schema: Any) -> bool:
    """Whether nothing would be refused in a schema that is to become part of a file."""
    if not _is_plain(schema):
        return False
    waiting: list[tuple[Any, Any]] = [(schema, schema)]
    while waiting:
        part, base = waiting.pop()
        if isinstance(part, dict):
            base = cast(JSON, part) if "$id" in part else base
            for keyword, value in cast(JSON, part).items():
                if _expected(keyword, value) or _is_broken(keyword, value, base):
                    return False
                waiting += [(inner, base) for inner in _schemas_under(keyword, value)]
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


def _expected(keyword: str, value: Any) -> str | None:
    """What the value of a keyword must be, where it is something else."""
    if keyword == "type":
        is_right = value != [] and all(name in TYPES for name in _listed(value))
        return None if is_right else f"one of {', '.join(TYPES)}, or a list of them"
    if keyword == "required":
        is_right = isinstance(value, list) and all(isinstance(name, str) for name in _listed(value))
        return None if is_right else "a list: each item the name of a parameter, in quotes"
    for keywords, is_right, kind in _KINDS:
        if keyword in keywords:
            return None if is_right(value) else kind
    return None


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_of(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


_KINDS: Sequence[tuple[Collection[str], Callable[[Any], bool], str]] = (
    (("enum", *_LISTS_OF_SCHEMAS), _is_of(list), "a list in [ ]"),
    (_SCHEMAS_BY_NAME, _is_of(dict), "an object in { }"),
    (("minimum", "maximum"), _is_number, "a number"),
    (("multipleOf",), lambda value: _is_number(value) and value > 0, "a number above 0"),
    # True and false are what draft 4 has there.
    (("exclusiveMinimum", "exclusiveMaximum"), _is_of(int, float, bool), "a number"),
    (
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        _is_count,
        "a whole number from 0 on",
    ),
    (("$ref", "$id", "description", "format", "pattern", "title"), _is_of(str), "a text in quotes"),
    (("uniqueItems",), _is_of(bool), "true or false"),
)


def _schemas_under(keyword: str, value: Any) -> list[Any]:
    """Of a keyword whose value is as it must be."""
    if keyword in _SCHEMAS_BY_NAME:
        return list(cast(JSON, value).values())
    if keyword in _LISTS_OF_SCHEMAS or (keyword == "items" and isinstance(value, list)):
        return _listed(value)
    return [value] if keyword in _ONE_SCHEMA else []


def _is_broken(keyword: str, value: Any, base: Any) -> bool:
    """Whether it is a reference into the schema that leads to none."""
    if keyword != "$ref" or not _is_inside(value):
        return False
    try:
        return not isinstance(Root(base).target(value), dict | bool)
    except TooIntricate:
        return True


def _is_inside(reference: str) -> bool:
    return reference == "#" or reference.startswith("#/")


def _listed(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else [value]


def _refuse_root(place: Place) -> None:
    given = place.get("type")
    what = f"is {shown_value(given.value)}" if given else "is missing"
    (given or place).refuse(
        f"The `type` of {place.name} {what}.", 'It must be `"type": "object"`, as for every tool.'
    )


def _check(place: Place, base: JSON) -> None:
    """References are relative to the base: the whole, or the part with an `$id` around them."""
    if isinstance(place.value, dict):
        base = cast(JSON, place.value) if place.get("$id") else base
        for keyword, member in place.members():
            _check_keyword(keyword, member, base)
    elif not isinstance(place.value, bool):
        place.must_be("a schema: an object in { }, true or false")


def _check_keyword(keyword: str, place: Place, base: JSON) -> None:
    if kind := _expected(keyword, place.value):
        place.must_be(kind)
    elif keyword == "$ref":
        _check_reference(place, base)
    elif keyword in _SCHEMAS_BY_NAME:
        for _, member in place.members():
            _check(member, base)
    elif keyword in _LISTS_OF_SCHEMAS or (keyword == "items" and isinstance(place.value, list)):
        for item in place.items():
            _check(item, base)
    elif keyword in _ONE_SCHEMA:
        _check(place, base)


def _check_reference(place: Place, base: JSON) -> None:
    if _is_broken("$ref", place.value, base):
        place.refuse(
            f"{place.name} is {shown_value(place.value)}, and there is no schema in that place.",
            "Write it like `#/$defs/name`, and put the schema there.",
        )
    elif not _is_inside(place.value):
        place.warn(
            f"{place.name} is {shown_value(place.value)}, which is not looked up: nothing that is "
            "given there is checked, and a client may refuse the tool.",
            "Write what it says into `$defs`, and refer to that: `#/$defs/name`.",
        )
