"""Check of a value against a JSON Schema, limited to mistakes that are certain and quick to find.

The server behind a tool decides about everything else: patterns and formats, `not` and `if`, and whether too many
alternatives match. It also decides about the content of lists and objects that must be equal or unique, and about
schemas that are too complex.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from everkept.families.gateway.model import JSON
from everkept.families.gateway.schema_facts import (
    MAX_DEPTH,
    SchemaRoot,
    SchemaTooComplex,
    as_list,
    as_object,
    as_texts,
    get_kind,
    is_number,
    parse_types,
)

FALSE_SCHEMA = "false"  # stands for the keyword if the schema is `false`

ALTERNATIVE_KEYWORDS = ("anyOf", "oneOf")


class SchemaMistake(NamedTuple):
    """A value that does not match, and the keyword that refuses it."""

    path: tuple[str | int, ...]
    keyword: str
    value: Any
    # Value of the keyword. For objects it is the missing or unknown name, for alternatives the mistake in each of them.
    wanted: Any
    schema: Any


def find_mistake(value: Any, schema: Any, root: SchemaRoot) -> SchemaMistake | None:
    """Return the first certain mistake, or None. Raise SchemaTooComplex if the check takes too long."""
    return next(_find_mistakes(value, schema, _ValuePlace(root)), None)


class _ValuePlace(NamedTuple):
    root: SchemaRoot
    path: tuple[str | int, ...] = ()
    depth: int = 0

    def descend(self, *key: str | int) -> "_ValuePlace":
        self.root.steps.take()
        if self.depth >= MAX_DEPTH:
            raise SchemaTooComplex
        return _ValuePlace(self.root, (*self.path, *key), self.depth + 1)

    def build_mistake(self, keyword: str, value: Any, schema: Any, wanted: Any = None) -> SchemaMistake:
        return SchemaMistake(self.path, keyword, value, wanted, schema)


def _find_mistakes(value: Any, schema: Any, place: _ValuePlace) -> Iterator[SchemaMistake]:
    if schema is False:
        yield place.build_mistake(FALSE_SCHEMA, value, schema)
    if not isinstance(schema, dict):
        return
    part = cast(JSON, schema)
    place.root.steps.take(len(part))
    if "type" in part and get_kind(value) not in parse_types(part["type"]):
        yield place.build_mistake("type", value, part, part["type"])
    yield from _find_unlisted(value, part, place)
    yield from _find_beyond_limits(value, part, place)
    if isinstance(value, dict):
        yield from _find_in_object(cast(JSON, value), part, place)
    elif isinstance(value, list):
        yield from _find_in_list(cast(list[Any], value), part, place)
    if "$ref" in part:
        yield from _find_mistakes(value, place.root.resolve_reference(part["$ref"]), place.descend())
    for each in as_list(part.get("allOf")):
        yield from _find_mistakes(value, each, place.descend())
    for word in ALTERNATIVE_KEYWORDS:
        yield from _find_in_alternatives(value, word, part, place)


def _find_unlisted(value: Any, part: JSON, place: _ValuePlace) -> Iterator[SchemaMistake]:
    for word in ("enum", "const"):
        if word not in part:
            continue
        allowed = [part[word]] if word == "const" else part[word]
        if isinstance(allowed, list):
            place.root.steps.take(len(cast(list[Any], allowed)))
            if not any(_can_equal(value, each) for each in cast(list[Any], allowed)):
                yield place.build_mistake(word, value, part, part[word])


def _can_equal(value: Any, other: Any) -> bool:
    """Return whether the values may be equal. Lists and objects are compared only by type."""
    kind, other_kind = get_kind(value), get_kind(other)
    return kind == other_kind and (kind in ("object", "array") or value == other)


def _find_beyond_limits(value: Any, part: JSON, place: _ValuePlace) -> Iterator[SchemaMistake]:
    for word, (measured, breaks) in _LIMIT_CHECKS.items():
        limit = part.get(word)
        if is_number(limit) and (size := measured(value)) is not None and breaks(size, limit):
            yield place.build_mistake(word, value, part, limit)
    for word, of_older_drafts in _EXCLUSIVE_KEYWORDS.items():
        if part.get(of_older_drafts) is True and is_number(value) and value == part.get(word):
            yield place.build_mistake(of_older_drafts, value, part, part[word])


def _find_in_object(value: JSON, part: JSON, place: _ValuePlace) -> Iterator[SchemaMistake]:
    needed, known = as_texts(part.get("required")), as_object(part.get("properties"))
    place.root.steps.take(len(needed) + len(value))
    for name in needed:
        if name not in value:
            yield place.build_mistake("required", value, part, name)
    more = True if part.get("patternProperties") else part.get("additionalProperties", True)
    for name, inner in value.items():
        if name in known:
            yield from _find_mistakes(inner, known[name], place.descend(name))
        elif more is False:
            yield place.build_mistake("additionalProperties", value, part, name)
        elif more is not True:
            yield from _find_mistakes(inner, more, place.descend(name))


def _find_in_list(value: list[Any], part: JSON, place: _ValuePlace) -> Iterator[SchemaMistake]:
    if part.get("uniqueItems") is True:
        place.root.steps.take(len(value))
        told = [(get_kind(each), each) for each in value if not isinstance(each, dict | list)]
        if len(set(told)) < len(told):
            yield place.build_mistake("uniqueItems", value, part)
    items = part.get("items", True)
    first = as_list(items) or as_list(part.get("prefixItems"))
    rest = True if isinstance(items, list) else items
    for index, each in enumerate(value):
        schema = first[index] if index < len(first) else rest
        yield from _find_mistakes(each, schema, place.descend(index))


def _find_in_alternatives(value: Any, word: str, part: JSON, place: _ValuePlace) -> Iterator[SchemaMistake]:
    """Yield the mistake in the only alternative for this type of value, otherwise one for all alternatives."""
    found: list[SchemaMistake] = []
    for each in as_list(part.get(word)):
        mistake = next(_find_mistakes(value, each, place.descend()), None)
        if mistake is None:
            return
        found.append(mistake)
    meant = [each for each in found if each.path != place.path or each.keyword not in _KIND_KEYWORDS]
    if found:
        yield meant[0] if len(meant) == 1 else place.build_mistake(word, value, part, found)


_KIND_KEYWORDS = ("type", "enum", "const", FALSE_SCHEMA)


def _as_number(value: Any) -> Any:
    return value if is_number(value) else None


def _make_length_measure(kind: type) -> Callable[[Any], int | None]:
    return lambda value: len(value) if isinstance(value, kind) else None


def _is_no_multiple(value: Any, of: Any) -> bool:
    """Return whether a whole number is not a multiple. Fractions are too inexact to decide."""
    return isinstance(value, int) and isinstance(of, int) and of > 0 and value % of != 0


# The measure of a value, and the check that its limit is broken.
_LIMIT_CHECKS: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any, Any], bool]]] = {
    "minimum": (_as_number, lambda size, limit: size < limit),
    "maximum": (_as_number, lambda size, limit: size > limit),
    "exclusiveMinimum": (_as_number, lambda size, limit: size <= limit),
    "exclusiveMaximum": (_as_number, lambda size, limit: size >= limit),
    "multipleOf": (_as_number, _is_no_multiple),
    "minLength": (_make_length_measure(str), lambda size, limit: size < limit),
    "maxLength": (_make_length_measure(str), lambda size, limit: size > limit),
    "minItems": (_make_length_measure(list), lambda size, limit: size < limit),
    "maxItems": (_make_length_measure(list), lambda size, limit: size > limit),
    "minProperties": (_make_length_measure(dict), lambda size, limit: size < limit),
    "maxProperties": (_make_length_measure(dict), lambda size, limit: size > limit),
}
# In draft 4, `true` excludes the limit itself.
_EXCLUSIVE_KEYWORDS = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}
