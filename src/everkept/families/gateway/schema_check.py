"""Whether a value breaks a JSON Schema, as far as that is sure and soon said.

The server behind a tool has the last word, so what takes long or is told by a few schemas alone is
left to it: patterns and formats, `not` and `if`, whether one alternative of several fits too many,
what is in lists and objects that must be equal or unique. So is the rest of what is too intricate.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from everkept.families.gateway.model import JSON
from everkept.families.gateway.schema_facts import (
    DEEPEST,
    Root,
    TooIntricate,
    by_name,
    kind_of,
    kinds_of_types,
    listed,
    texts,
)

NOTHING_FITS = "false"  # in place of a keyword: the schema is `false`

ALTERNATIVES = ("anyOf", "oneOf")


class Mistake(NamedTuple):
    """A value that does not fit, and the keyword of the schema that says so."""

    path: tuple[str | int, ...]
    keyword: str
    value: Any
    # By the keyword; of objects the name that is missing or unknown, of alternatives the mistake
    # in each of them.
    wanted: Any
    schema: Any


def first_mistake(value: Any, schema: Any, root: Root) -> Mistake | None:
    """None where nothing is surely wrong. TooIntricate where that takes too long to say."""
    return next(_mistakes(value, schema, _Place(root)), None)


class _Place(NamedTuple):
    root: Root
    path: tuple[str | int, ...] = ()
    depth: int = 0

    def deeper(self, *key: str | int) -> "_Place":
        self.root.steps.take()
        if self.depth >= DEEPEST:
            raise TooIntricate
        return _Place(self.root, (*self.path, *key), self.depth + 1)

    def mistake(self, keyword: str, value: Any, schema: Any, wanted: Any = None) -> Mistake:
        return Mistake(self.path, keyword, value, wanted, schema)


def _mistakes(value: Any, schema: Any, place: _Place) -> Iterator[Mistake]:
    if schema is False:
        yield place.mistake(NOTHING_FITS, value, schema)
    if not isinstance(schema, dict):
        return
    part = cast(JSON, schema)
    place.root.steps.take(len(part))
    if "type" in part and kind_of(value) not in kinds_of_types(part["type"]):
        yield place.mistake("type", value, part, part["type"])
    yield from _unlisted(value, part, place)
    yield from _beyond(value, part, place)
    if isinstance(value, dict):
        yield from _in_object(cast(JSON, value), part, place)
    elif isinstance(value, list):
        yield from _in_list(cast(list[Any], value), part, place)
    if "$ref" in part:
        yield from _mistakes(value, place.root.target(part["$ref"]), place.deeper())
    for each in listed(part.get("allOf")):
        yield from _mistakes(value, each, place.deeper())
    for word in ALTERNATIVES:
        yield from _in_alternatives(value, word, part, place)


def _unlisted(value: Any, part: JSON, place: _Place) -> Iterator[Mistake]:
    for word in ("enum", "const"):
        if word not in part:
            continue
        allowed = [part[word]] if word == "const" else part[word]
        if isinstance(allowed, list):
            place.root.steps.take(len(cast(list[Any], allowed)))
            if not any(_may_equal(value, each) for each in cast(list[Any], allowed)):
                yield place.mistake(word, value, part, part[word])


def _may_equal(value: Any, other: Any) -> bool:
    """Of lists and objects only that they are such."""
    kind, other_kind = kind_of(value), kind_of(other)
    return kind == other_kind and (kind in ("object", "array") or value == other)


def _beyond(value: Any, part: JSON, place: _Place) -> Iterator[Mistake]:
    for word, (measured, breaks) in _LIMITS.items():
        limit = part.get(word)
        if _is_number(limit) and (size := measured(value)) is not None and breaks(size, limit):
            yield place.mistake(word, value, part, limit)
    for word, of_older_drafts in _EXCLUDING.items():
        if part.get(of_older_drafts) is True and _is_number(value) and value == part.get(word):
            yield place.mistake(of_older_drafts, value, part, part[word])


def _in_object(value: JSON, part: JSON, place: _Place) -> Iterator[Mistake]:
    needed, known = texts(part.get("required")), by_name(part.get("properties"))
    place.root.steps.take(len(needed) + len(value))
    for name in needed:
        if name not in value:
            yield place.mistake("required", value, part, name)
    more = True if part.get("patternProperties") else part.get("additionalProperties", True)
    for name, inner in value.items():
        if name in known:
            yield from _mistakes(inner, known[name], place.deeper(name))
        elif more is False:
            yield place.mistake("additionalProperties", value, part, name)
        elif more is not True:
            yield from _mistakes(inner, more, place.deeper(name))


def _in_list(value: list[Any], part: JSON, place: _Place) -> Iterator[Mistake]:
    if part.get("uniqueItems") is True:
        place.root.steps.take(len(value))
        told = [(kind_of(each), each) for each in value if not isinstance(each, dict | list)]
        if len(set(told)) < len(told):
            yield place.mistake("uniqueItems", value, part)
    items = part.get("items", True)
    first = listed(items) or listed(part.get("prefixItems"))
    rest = True if isinstance(items, list) else items
    for index, each in enumerate(value):
        schema = first[index] if index < len(first) else rest
        yield from _mistakes(each, schema, place.deeper(index))


def _in_alternatives(value: Any, word: str, part: JSON, place: _Place) -> Iterator[Mistake]:
    """Where only one alternative is for such a kind of value, what is wrong with that."""
    found: list[Mistake] = []
    for each in listed(part.get(word)):
        mistake = next(_mistakes(value, each, place.deeper()), None)
        if mistake is None:
            return
        found.append(mistake)
    meant = [each for each in found if each.path != place.path or each.keyword not in _OTHER_KIND]
    if found:
        yield meant[0] if len(meant) == 1 else place.mistake(word, value, part, found)


_OTHER_KIND = ("type", "enum", "const", NOTHING_FITS)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> Any:
    return value if _is_number(value) else None


def _length(kind: type) -> Callable[[Any], int | None]:
    return lambda value: len(value) if isinstance(value, kind) else None


def _is_no_multiple(value: Any, of: Any) -> bool:
    """Decimals are not exact enough to tell."""
    return isinstance(value, int) and isinstance(of, int) and of > 0 and value % of != 0


# What is measured, and when that breaks the limit.
_LIMITS: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any, Any], bool]]] = {
    "minimum": (_number, lambda size, limit: size < limit),
    "maximum": (_number, lambda size, limit: size > limit),
    "exclusiveMinimum": (_number, lambda size, limit: size <= limit),
    "exclusiveMaximum": (_number, lambda size, limit: size >= limit),
    "multipleOf": (_number, _is_no_multiple),
    "minLength": (_length(str), lambda size, limit: size < limit),
    "maxLength": (_length(str), lambda size, limit: size > limit),
    "minItems": (_length(list), lambda size, limit: size < limit),
    "maxItems": (_length(list), lambda size, limit: size > limit),
    "minProperties": (_length(dict), lambda size, limit: size < limit),
    "maxProperties": (_length(dict), lambda size, limit: size > limit),
}
# With the end itself excluded by `true`, as in draft 4.
_EXCLUDING = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}
