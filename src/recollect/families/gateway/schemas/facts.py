"""Looking into JSON Schemas that others wrote: what is not said for sure stays open."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from recollect.families.gateway.model import JSON

# The kinds of JSON values. `number` is both of its kinds, so that an integer is a number.
KINDS = frozenset({"string", "integer", "fraction", "boolean", "object", "array", "null"})
_NULL = frozenset({"null"})
_ALTERNATIVES = ("anyOf", "oneOf")
_CONDITIONAL = ("then", "else")
_CLOSING = ("additionalProperties", "unevaluatedProperties")


@dataclass(slots=True)
class Whole:
    """What holds of a value at once: a schema, what it refers to, and the parts of its `allOf`."""

    parts: list[JSON] = field(default_factory=list[JSON])
    is_clear: bool = True  # else it refers to what we do not have
    is_never: bool = False  # nothing fits


def whole(schema: Any, root: JSON) -> Whole:
    found = Whole()
    waiting, seen = [schema], set[int]()
    while waiting:
        part = waiting.pop(0)
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
            target = _target(part["$ref"], root)
            if target is None:
                found.is_clear = False
            else:
                waiting.append(target)
    return found


def below(schema: Any, key: str, root: JSON) -> list[Any] | None:
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


def at(schema: Any, path: Sequence[str], root: JSON) -> Any:
    """The schema at the end of a path; True where it is open, False where there is no place."""
    for key in path:
        found = below(schema, key, root)
        if found is None:
            return True
        if not found:
            return False
        schema = found[0] if len(found) == 1 else {"anyOf": found}
    return schema


def names(schema: Any, root: JSON) -> list[str]:
    """Every property that is spoken of, in order."""
    return list(dict.fromkeys(_names(schema, root, set())))


def required(schema: Any, root: JSON) -> list[str]:
    """The properties that an object must have, whichever alternative it takes."""
    return list(dict.fromkeys(_required(schema, root, {})))


def kinds(schema: Any, root: JSON) -> frozenset[str]:
    """The kinds of values that may fit."""
    return _kinds(schema, root, {})


def values(schema: Any, root: JSON) -> list[Any] | None:
    """The only values that may fit, where they are listed."""
    for part in plain(schema, root):
        if isinstance(part.get("enum"), list):
            return cast(list[Any], part["enum"])
        if "const" in part:
            return [part["const"]]
    return None


def plain(schema: Any, root: JSON) -> list[JSON]:
    """The parts of a schema, and of the only alternative in it that is more than null."""
    parts = whole(schema, root).parts
    for part in list(parts):
        real = [each for each in _branches(part) if kinds(each, root) != _NULL]
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


def listed(value: Any) -> list[Any]:
    """The value where it is a list, as it should be."""
    return cast(list[Any], value) if isinstance(value, list) else []


def by_name(value: Any) -> JSON:
    """The value where it is an object, as it should be."""
    return cast(JSON, value) if isinstance(value, dict) else {}


def _declarations(schema: Any, key: str, root: JSON, seen: set[int]) -> Iterator[Any]:
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
    for pattern, schema in by_name(part.get("patternProperties")).items():
        try:
            fits = re.search(pattern, key) is not None
        except re.error:
            fits = True
        if fits:
            yield schema
    more = part.get("additionalProperties")
    if isinstance(more, dict) and more:
        yield cast(JSON, more)


def _is_open(schema: Any, root: JSON, seen: set[int]) -> bool:
    """Whether it says that there may be properties which it does not name."""
    found = whole(schema, root)
    if not found.is_clear:
        return True
    for part in found.parts:
        if id(part) in seen:
            continue
        seen.add(id(part))
        if any(word in part and part[word] is not False for word in _CLOSING):
            return True
        if any(_is_open(each, root, seen) for each in (*_branches(part), *_conditional(part))):
            return True
    return False


def _names_all(schema: Any, root: JSON, seen: set[int]) -> bool:
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


def _names(schema: Any, root: JSON, seen: set[int]) -> Iterator[str]:
    for part in whole(schema, root).parts:
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield from by_name(part.get("properties"))
        yield from _texts(part.get("required"))
        for each in (*_branches(part), *_conditional(part)):
            yield from _names(each, root, seen)


def _required(schema: Any, root: JSON, known: dict[int, list[str]]) -> list[str]:
    found: list[str] = []
    for part in whole(schema, root).parts:
        if id(part) not in known:
            known[id(part)] = []  # for a schema inside itself
            own = _texts(part.get("required"))
            for word in _ALTERNATIVES:
                each = [_required(branch, root, known) for branch in listed(part.get(word))]
                if each:
                    own += [name for name in each[0] if all(name in other for other in each)]
            known[id(part)] = own
        found += known[id(part)]
    return found


def _kinds(schema: Any, root: JSON, known: dict[int, frozenset[str]]) -> frozenset[str]:
    found = whole(schema, root)
    fitting = frozenset[str]() if found.is_never else KINDS
    for part in found.parts:
        if id(part) not in known:
            known[id(part)] = KINDS  # for a schema inside itself
            own = _said_kinds(part)
            for word in _ALTERNATIVES:
                branches = [_kinds(branch, root, known) for branch in listed(part.get(word))]
                own &= frozenset[str]().union(*branches) if branches else KINDS
            known[id(part)] = own
        fitting &= known[id(part)]
    return fitting


def _said_kinds(part: JSON) -> frozenset[str]:
    fitting = KINDS
    said = part.get("type")
    if said is not None:
        words = [said] if isinstance(said, str) else _texts(said)
        fitting = frozenset(kind for word in words for kind in _kinds_of_type(word))
    if isinstance(part.get("enum"), list):
        fitting &= frozenset(kind_of(value) for value in listed(part["enum"]))
    if "const" in part:
        fitting &= {kind_of(part["const"])}
    return fitting


def _kinds_of_type(word: str) -> frozenset[str]:
    if word == "number":
        return frozenset({"integer", "fraction"})
    return frozenset({word}) if word in KINDS else KINDS  # a type that we do not know


def _branches(part: JSON) -> list[Any]:
    return [branch for word in _ALTERNATIVES for branch in listed(part.get(word))]


def _conditional(part: JSON) -> list[Any]:
    """What holds in some cases alone."""
    held = [part[word] for word in _CONDITIONAL if word in part]
    return [*held, *by_name(part.get("dependentSchemas")).values()]


def _target(reference: Any, root: JSON) -> Any:
    """What a reference inside the schema leads to; None where it leads elsewhere."""
    if not isinstance(reference, str) or not re.match(r"#(/|$)", reference):
        return None
    target: Any = root
    for step in reference[2:].split("/") if len(reference) > 1 else ():
        key = _unescaped(step)
        if isinstance(target, dict):
            target = cast(JSON, target).get(key)
        elif isinstance(target, list) and key.isdecimal() and int(key) < len(cast(Any, target)):
            target = cast(list[Any], target)[int(key)]
        else:
            return None
    return target


def _unescaped(step: str) -> str:
    # Imported here: few schemas refer to themselves.
    from urllib.parse import unquote

    return unquote(step).replace("~1", "/").replace("~0", "~")


def _texts(value: Any) -> list[str]:
    return [item for item in listed(value) if isinstance(item, str)]
