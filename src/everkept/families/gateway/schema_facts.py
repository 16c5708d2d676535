"""Facts from JSON Schemas that others wrote; what a schema does not say for sure stays open."""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from everkept.families.gateway.model import JSON
from everkept.values import Value, field

MOST_STEPS = 300_000  # about a second; a schema of a few lines can ask for years
DEEPEST = 50  # schemas inside each other, references included


class TooIntricate(Exception):
    """It would take more work than it is worth: nothing is said about the rest."""


class Steps:
    """The work that is left. It may be shared by all schemas of a server."""

    def __init__(self, left: int = MOST_STEPS) -> None:
        self.left = left

    def take(self, count: int = 1) -> None:
        self.left -= count
        if self.left < 0:
            raise TooIntricate


class Root:
    """A whole schema: what references inside it are relative to."""

    def __init__(self, schema: JSON, steps: Steps | None = None) -> None:
        self.schema = schema
        self.steps = steps or Steps()

    def target(self, reference: Any) -> Any:
        """What a reference inside the schema leads to; None where it leads elsewhere."""
        if not isinstance(reference, str) or not re.match(r"#(/|$)", reference):
            return None
        self.steps.take(len(reference) // _LETTERS_A_STEP)
        found: Any = self.schema
        for step in reference[2:].split("/") if len(reference) > 1 else ():
            self.steps.take()
            key = _unescaped(step)
            if isinstance(found, dict):
                found = cast(JSON, found).get(key)
            elif isinstance(found, list) and key.isdecimal() and len(key) < _LONGEST_INDEX:
                items = cast(list[Any], found)
                found = items[int(key)] if int(key) < len(items) else None
            else:
                return None
        return found


_LETTERS_A_STEP = 16
_LONGEST_INDEX = 10  # digits


def listed(value: Any) -> list[Any]:
    """The value where it is a list, as it should be."""
    return cast(list[Any], value) if isinstance(value, list) else []


def by_name(value: Any) -> JSON:
    """The value where it is an object, as it should be."""
    return cast(JSON, value) if isinstance(value, dict) else {}


def texts(value: Any) -> list[str]:
    return [item for item in listed(value) if isinstance(item, str)]


def _unescaped(step: str) -> str:
    # Imported here: few schemas refer to themselves.
    from urllib.parse import unquote

    return unquote(step).replace("~1", "/").replace("~0", "~")


# The kinds of JSON values. `number` is both of its kinds, so that an integer is a number.
KINDS = frozenset({"string", "integer", "fraction", "boolean", "object", "array", "null"})
_NULL = frozenset({"null"})
_ALTERNATIVES = ("anyOf", "oneOf")
_CONDITIONAL = ("then", "else")
_CLOSING = ("additionalProperties", "unevaluatedProperties")

P = ParamSpec("P")
T = TypeVar("T")


def _bounded(look: Callable[P, T]) -> Callable[P, T]:
    """Raises TooIntricate, also for what lies inside each other deeper than a program can look."""

    @wraps(look)
    def looked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return look(*args, **kwargs)
        except RecursionError:
            raise TooIntricate from None

    return looked


class Whole(Value, frozen=False):
    """What holds of a value at once: a schema, what it refers to, and the parts of its `allOf`."""

    parts: list[JSON] = field(default_factory=list[JSON])
    is_clear: bool = True  # else it refers to what we do not have
    is_never: bool = False  # nothing fits


def whole(schema: Any, root: Root) -> Whole:
    found = Whole()
    waiting, seen = deque([schema]), set[int]()
    while waiting:
        root.steps.take()
        part = waiting.popleft()
        if part is False:
            found.is_never = True
        if not isinstance(part, dict) or id(cast(JSON, part)) in seen:
            continue
        part = cast(JSON, part)
        seen.add(id(part))
        found.parts.append(part)
        waiting += listed(part.get("allOf"))
        if "$dynamicRef" in part or "$recursiveRef" in part:
            found.is_clear = False
        if "$ref" in part:
            target = root.target(part["$ref"])
            if target is None:
                found.is_clear = False
            else:
                waiting.append(target)
    return found


@_bounded
def below(schema: Any, key: str, root: Root) -> list[Any] | None:
    """The schemas that may hold for a property; none where there is surely no such property,
    None where nothing is said about it."""
    fitting = kinds(schema, root)
    if "object" not in fitting:
        return [] if fitting or schema is False else None  # what contradicts itself says nothing
    declared = list(_declarations(schema, key, root, set()))
    if declared:
        return declared
    if _is_open(schema, root, set()) or key in names(schema, root):
        return None
    return [] if _names_all(schema, root, set()) else None


@_bounded
def at(schema: Any, path: Sequence[str], root: Root) -> Any:
    """The schema at the end of a path; True where it is open, False where there is no place."""
    for key in path:
        found = below(schema, key, root)
        if found is None:
            return True
        if not found:
            return False
        schema = found[0] if len(found) == 1 else {"anyOf": found}
    return schema


@_bounded
def names(schema: Any, root: Root) -> list[str]:
    """Every property that is spoken of, in order."""
    return list(dict.fromkeys(_names(schema, root, set())))


@_bounded
def takes_others(schema: Any, root: Root) -> bool:
    """Whether an object may have properties that are not spoken of: that is said, or none are."""
    return _is_open(schema, root, set()) or not _names_all(schema, root, set())


@_bounded
def required(schema: Any, root: Root) -> list[str]:
    """The properties that an object must have, whichever alternative it takes."""
    return list(dict.fromkeys(_required(schema, root, {})))


@_bounded
def kinds(schema: Any, root: Root) -> frozenset[str]:
    """The kinds of values that may fit."""
    return _kinds(schema, root, {})


@_bounded
def values(schema: Any, root: Root) -> list[Any] | None:
    """The only values that may fit, where they are listed."""
    return _values(schema, root, set())


@_bounded
def items(schema: Any, root: Root) -> Any:
    """The schema of what a list may hold; True where it is open."""
    return _items(schema, root, set())


@_bounded
def plain(schema: Any, root: Root) -> list[JSON]:
    """The parts of a schema, and of the only alternative in it that is more than null."""
    parts = whole(schema, root).parts
    for part in list(parts):
        real = _real(part, root)
        if len(real) == 1:
            parts += whole(real[0], root).parts
    return parts


def kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == value // 1 else "fraction"
    if isinstance(value, str):
        return "string"
    if isinstance(value, dict):
        return "object"
    return "array" if isinstance(value, list) else "null"


def kinds_of_types(said: Any) -> frozenset[str]:
    """By the value of the keyword `type`; one that we do not know may be anything."""
    words = [said] if isinstance(said, str) else texts(said)
    return frozenset(kind for word in words for kind in _kinds_of_type(word)) or KINDS


def in_words(found: frozenset[str]) -> str:
    """Kinds as a person says them."""
    said = {
        "string": "text",
        "boolean": "true or false",
        "object": "an object",
        "array": "a list",
        "null": "null",
    }
    numbers = {
        (True, True): ["a number"],
        (True, False): ["a whole number"],
        (False, True): ["a number that is not whole"],
    }
    words = numbers.get(("integer" in found, "fraction" in found), [])
    words += [word for kind, word in said.items() if kind in found]
    return " or ".join(words) or "nothing"


def _declarations(schema: Any, key: str, root: Root, seen: set[int]) -> Iterator[Any]:
    """What is said of a property, here or in any case that is told apart."""
    for part in whole(schema, root).parts:
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield from _declared(part, key)
        for each in (*_branches(part), *_conditional(part)):
            yield from _declarations(each, key, root, seen)


def _declared(part: JSON, key: str) -> Iterator[Any]:
    properties = by_name(part.get("properties"))
    if key in properties:
        yield properties[key]
        return
    more = by_name(part.get("additionalProperties"))
    if more and not part.get("patternProperties"):
        yield more


def _is_open(schema: Any, root: Root, seen: set[int]) -> bool:
    """Whether it says that there may be properties which it does not name."""
    found = whole(schema, root)
    if not found.is_clear:
        return True
    for part in found.parts:
        if id(part) in seen:
            continue
        seen.add(id(part))
        # A pattern may take any time to fit a name, so none is ever tried.
        if by_name(part.get("patternProperties")):
            return True
        if any(word in part and part[word] is not False for word in _CLOSING):
            return True
        if any(_is_open(each, root, seen) for each in (*_branches(part), *_conditional(part))):
            return True
    return False


def _names_all(schema: Any, root: Root, seen: set[int]) -> bool:
    """Whether the properties that it names are to be all, although it need not say so."""
    if "object" not in kinds(schema, root):
        return True  # no property is left to name
    found = [part for part in whole(schema, root).parts if id(part) not in seen]
    seen.update(id(part) for part in found)
    if any(part.get(word) is False for part in found for word in _CLOSING):
        return True
    if any(by_name(part.get("properties")) for part in found):
        return True
    branches = [branch for part in found for branch in _branches(part)]
    return bool(branches) and all(_names_all(branch, root, seen) for branch in branches)


def _names(schema: Any, root: Root, seen: set[int]) -> Iterator[str]:
    for part in whole(schema, root).parts:
        if id(part) in seen:
            continue
        seen.add(id(part))
        root.steps.take(len(by_name(part.get("properties"))) + len(listed(part.get("required"))))
        yield from by_name(part.get("properties"))
        yield from texts(part.get("required"))
        for each in (*_branches(part), *_conditional(part)):
            yield from _names(each, root, seen)


def _required(schema: Any, root: Root, known: dict[int, list[str]]) -> list[str]:
    found: list[str] = []
    for part in whole(schema, root).parts:
        if id(part) not in known:
            known[id(part)] = []  # for a schema inside itself
            own = texts(part.get("required"))
            for word in _ALTERNATIVES:
                each = [_required(branch, root, known) for branch in listed(part.get(word))]
                if each:
                    shared = set(each[0]).intersection(*each)
                    own += [name for name in each[0] if name in shared]
            known[id(part)] = own
        root.steps.take(len(known[id(part)]))
        found += known[id(part)]
    return found


def _values(schema: Any, root: Root, seen: set[int]) -> list[Any] | None:
    for part in whole(schema, root).parts:
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part.get("enum"), list):
            return listed(part["enum"])
        if "const" in part:
            return [part["const"]]
        found = [_values(each, root, seen) for each in _real(part, root)]
        if found and None not in found:
            return [value for each in found for value in each or ()]
    return None


def _items(schema: Any, root: Root, seen: set[int]) -> Any:
    parts = [part for part in whole(schema, root).parts if id(part) not in seen]
    seen.update(id(part) for part in parts)
    for part in parts:
        if by_name(part.get("items")):
            return part["items"]
    branches = [each for part in parts for each in _branches(part) if "array" in kinds(each, root)]
    found = [_items(each, root, seen) for each in branches]
    return {"anyOf": found} if len(found) > 1 else found[0] if found else True


def _kinds(schema: Any, root: Root, known: dict[int, frozenset[str]]) -> frozenset[str]:
    found = whole(schema, root)
    fitting = frozenset[str]() if found.is_never else KINDS
    for part in found.parts:
        if id(part) not in known:
            known[id(part)] = KINDS  # for a schema inside itself
            root.steps.take(len(listed(part.get("type"))) + len(listed(part.get("enum"))))
            own = _said_kinds(part)
            for word in _ALTERNATIVES:
                branches = [_kinds(branch, root, known) for branch in listed(part.get(word))]
                own &= frozenset[str]().union(*branches) if branches else KINDS
            known[id(part)] = own
        fitting &= known[id(part)]
    return fitting


def _said_kinds(part: JSON) -> frozenset[str]:
    fitting = kinds_of_types(part["type"]) if "type" in part else KINDS
    if isinstance(part.get("enum"), list):
        fitting &= frozenset(kind_of(value) for value in listed(part["enum"]))
    if "const" in part:
        fitting &= {kind_of(part["const"])}
    return fitting


def _kinds_of_type(word: str) -> frozenset[str]:
    if word == "number":
        return frozenset({"integer", "fraction"})
    return frozenset({word}) if word in KINDS else KINDS


def _branches(part: JSON) -> list[Any]:
    return [branch for word in _ALTERNATIVES for branch in listed(part.get(word))]


def _real(part: JSON, root: Root) -> list[Any]:
    """The alternatives that are more than null."""
    return [each for each in _branches(part) if kinds(each, root) != _NULL]


def _conditional(part: JSON) -> list[Any]:
    """What holds in some cases alone."""
    held = [part[word] for word in _CONDITIONAL if word in part]
    return [*held, *by_name(part.get("dependentSchemas")).values()]
