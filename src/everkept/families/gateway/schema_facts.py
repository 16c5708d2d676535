"""Facts from JSON Schemas of other servers. Anything that a schema leaves uncertain counts as open."""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from everkept.families.gateway.model import JSON
from everkept.values import Value, field

MAX_STEPS = 300_000  # about a second; a schema of a few lines can take years
MAX_DEPTH = 50  # nested schemas, including references


class SchemaTooComplex(Exception):
    """Raised if a schema takes too much work; the rest of it stays unknown."""


class StepBudget:
    """The remaining work, optionally shared by all schemas of a server."""

    def __init__(self, left: int = MAX_STEPS) -> None:
        self.left = left

    def take(self, count: int = 1) -> None:
        self.left -= count
        if self.left < 0:
            raise SchemaTooComplex


class SchemaRoot:
    """A whole schema, which references inside it are relative to."""

    def __init__(self, schema: JSON, steps: StepBudget | None = None) -> None:
        self.schema = schema
        self.steps = steps or StepBudget()

    def resolve_reference(self, reference: Any) -> Any:
        """Return the target of a reference inside the schema, or None for any other reference."""
        if not isinstance(reference, str) or not re.match(r"#(/|$)", reference):
            return None
        self.steps.take(len(reference) // _CHARACTERS_PER_STEP)
        found: Any = self.schema
        for step in reference[2:].split("/") if len(reference) > 1 else ():
            self.steps.take()
            key = _unescape(step)
            if isinstance(found, dict):
                found = cast(JSON, found).get(key)
            elif isinstance(found, list) and key.isdecimal() and len(key) < _MAX_INDEX_DIGITS:
                items = cast(list[Any], found)
                found = items[int(key)] if int(key) < len(items) else None
            else:
                return None
        return found


_CHARACTERS_PER_STEP = 16
_MAX_INDEX_DIGITS = 10


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, otherwise an empty list."""
    return cast(list[Any], value) if isinstance(value, list) else []


def as_object(value: Any) -> JSON:
    """Return the value if it is an object, otherwise an empty one."""
    return cast(JSON, value) if isinstance(value, dict) else {}


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_texts(value: Any) -> list[str]:
    return [item for item in as_list(value) if isinstance(item, str)]


def _unescape(step: str) -> str:
    # Imported here because few schemas refer to themselves.
    from urllib.parse import unquote

    return unquote(step).replace("~1", "/").replace("~0", "~")


# The types of JSON values. `number` means integer and fraction, so that an integer is a number.
ALL_KINDS = frozenset({"string", "integer", "fraction", "boolean", "object", "array", "null"})
_NULL_KINDS = frozenset({"null"})
_ALTERNATIVE_KEYWORDS = ("anyOf", "oneOf")
_CONDITIONAL_KEYWORDS = ("then", "else")
_CLOSING_KEYWORDS = ("additionalProperties", "unevaluatedProperties")

P = ParamSpec("P")
T = TypeVar("T")


def _bound_recursion(look: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function so that a RecursionError becomes SchemaTooComplex."""

    @wraps(look)
    def looked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return look(*args, **kwargs)
        except RecursionError:
            raise SchemaTooComplex from None

    return looked


class SchemaParts(Value, frozen=False):
    """All schemas that a value must match: a schema, its references, and the parts of its `allOf`."""

    parts: list[JSON] = field(default_factory=list[JSON])
    is_clear: bool = True  # false if it refers to a schema that we do not have
    is_never: bool = False  # no value matches


def collect_parts(schema: Any, root: SchemaRoot) -> SchemaParts:
    found = SchemaParts()
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
        waiting += as_list(part.get("allOf"))
        if "$dynamicRef" in part or "$recursiveRef" in part:
            found.is_clear = False
        if "$ref" in part:
            target = root.resolve_reference(part["$ref"])
            if target is None:
                found.is_clear = False
            else:
                waiting.append(target)
    return found


@_bound_recursion
def find_property_schemas(schema: Any, key: str, root: SchemaRoot) -> list[Any] | None:
    """Return the schemas of a property; [] if the property cannot exist, None if nothing is said about it."""
    fitting = find_kinds(schema, root)
    if "object" not in fitting:
        return [] if fitting or schema is False else None  # a contradiction says nothing
    declared = list(_find_declarations(schema, key, root, set()))
    if declared:
        return declared
    if _is_open(schema, root, set()) or key in list_names(schema, root):
        return None
    return [] if _is_complete(schema, root, set()) else None


@_bound_recursion
def resolve_path(schema: Any, path: Sequence[str], root: SchemaRoot) -> Any:
    """Return the schema at the end of a path; True if it is open, False if the place cannot exist."""
    for key in path:
        found = find_property_schemas(schema, key, root)
        if found is None:
            return True
        if not found:
            return False
        schema = found[0] if len(found) == 1 else {"anyOf": found}
    return schema


@_bound_recursion
def list_names(schema: Any, root: SchemaRoot) -> list[str]:
    """Return every property that the schema mentions, in order."""
    return list(dict.fromkeys(_find_names(schema, root, set())))


@_bound_recursion
def can_take_others(schema: Any, root: SchemaRoot) -> bool:
    """Return whether an object may have other properties: the schema says so, or mentions none."""
    return _is_open(schema, root, set()) or not _is_complete(schema, root, set())


@_bound_recursion
def list_required(schema: Any, root: SchemaRoot) -> list[str]:
    """Return the properties that an object needs in every alternative."""
    return list(dict.fromkeys(_find_required(schema, root, {})))


@_bound_recursion
def find_kinds(schema: Any, root: SchemaRoot) -> frozenset[str]:
    """Return the types of values that may match."""
    return _find_kinds(schema, root, {})


@_bound_recursion
def find_values(schema: Any, root: SchemaRoot) -> list[Any] | None:
    """Return the only values that may match if the schema lists them, otherwise None."""
    return _find_values(schema, root, set())


@_bound_recursion
def find_items(schema: Any, root: SchemaRoot) -> Any:
    """Return the schema of list items, or True if it is open."""
    return _find_items(schema, root, set())


@_bound_recursion
def list_parts(schema: Any, root: SchemaRoot) -> list[JSON]:
    """Return the parts of a schema, and of its only alternative besides null."""
    parts = collect_parts(schema, root).parts
    for part in list(parts):
        real = _list_non_null(part, root)
        if len(real) == 1:
            parts += collect_parts(real[0], root).parts
    return parts


def get_kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == value // 1 else "fraction"
    if isinstance(value, str):
        return "string"
    if isinstance(value, dict):
        return "object"
    return "array" if isinstance(value, list) else "null"


def parse_types(said: Any) -> frozenset[str]:
    """Parse the value of the keyword `type`. An unknown type may be anything."""
    words = [said] if isinstance(said, str) else as_texts(said)
    return frozenset(kind for word in words for kind in _get_type_kinds(word)) or ALL_KINDS


def format_kinds(found: frozenset[str]) -> str:
    """Format types as text for people."""
    said = {"string": "text", "boolean": "true or false", "object": "an object", "array": "a list", "null": "null"}
    numbers = {
        (True, True): ["a number"],
        (True, False): ["a whole number"],
        (False, True): ["a number that is not whole"],
    }
    words = numbers.get(("integer" in found, "fraction" in found), [])
    words += [word for kind, word in said.items() if kind in found]
    return " or ".join(words) or "nothing"


def _find_declarations(schema: Any, key: str, root: SchemaRoot, seen: set[int]) -> Iterator[Any]:
    """Yield everything that is said about a property, here or in any alternative or condition."""
    for part in collect_parts(schema, root).parts:
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield from _find_declared(part, key)
        for each in (*_list_branches(part), *_list_conditional(part)):
            yield from _find_declarations(each, key, root, seen)


def _find_declared(part: JSON, key: str) -> Iterator[Any]:
    properties = as_object(part.get("properties"))
    if key in properties:
        yield properties[key]
        return
    more = as_object(part.get("additionalProperties"))
    if more and not part.get("patternProperties"):
        yield more


def _is_open(schema: Any, root: SchemaRoot, seen: set[int]) -> bool:
    """Return whether the schema allows properties that it does not name."""
    found = collect_parts(schema, root)
    if not found.is_clear:
        return True
    for part in found.parts:
        if id(part) in seen:
            continue
        seen.add(id(part))
        # Matching a pattern may take forever, so patterns are never tried.
        if as_object(part.get("patternProperties")):
            return True
        if any(word in part and part[word] is not False for word in _CLOSING_KEYWORDS):
            return True
        if any(_is_open(each, root, seen) for each in (*_list_branches(part), *_list_conditional(part))):
            return True
    return False


def _is_complete(schema: Any, root: SchemaRoot, seen: set[int]) -> bool:
    """Return whether the schema seems to name all properties, even if it does not say so."""
    if "object" not in find_kinds(schema, root):
        return True  # a value that is not an object has no properties
    found = [part for part in collect_parts(schema, root).parts if id(part) not in seen]
    seen.update(id(part) for part in found)
    if any(part.get(word) is False for part in found for word in _CLOSING_KEYWORDS):
        return True
    if any(as_object(part.get("properties")) for part in found):
        return True
    branches = [branch for part in found for branch in _list_branches(part)]
    return bool(branches) and all(_is_complete(branch, root, seen) for branch in branches)


def _find_names(schema: Any, root: SchemaRoot, seen: set[int]) -> Iterator[str]:
    for part in collect_parts(schema, root).parts:
        if id(part) in seen:
            continue
        seen.add(id(part))
        root.steps.take(len(as_object(part.get("properties"))) + len(as_list(part.get("required"))))
        yield from as_object(part.get("properties"))
        yield from as_texts(part.get("required"))
        for each in (*_list_branches(part), *_list_conditional(part)):
            yield from _find_names(each, root, seen)


def _find_required(schema: Any, root: SchemaRoot, known: dict[int, list[str]]) -> list[str]:
    found: list[str] = []
    for part in collect_parts(schema, root).parts:
        if id(part) not in known:
            known[id(part)] = []  # ends the recursion of a schema inside itself
            own = as_texts(part.get("required"))
            for word in _ALTERNATIVE_KEYWORDS:
                each = [_find_required(branch, root, known) for branch in as_list(part.get(word))]
                if each:
                    shared = set(each[0]).intersection(*each)
                    own += [name for name in each[0] if name in shared]
            known[id(part)] = own
        root.steps.take(len(known[id(part)]))
        found += known[id(part)]
    return found


def _find_values(schema: Any, root: SchemaRoot, seen: set[int]) -> list[Any] | None:
    for part in collect_parts(schema, root).parts:
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part.get("enum"), list):
            return as_list(part["enum"])
        if "const" in part:
            return [part["const"]]
        found = [_find_values(each, root, seen) for each in _list_non_null(part, root)]
        if found and None not in found:
            return [value for each in found for value in each or ()]
    return None


def _find_items(schema: Any, root: SchemaRoot, seen: set[int]) -> Any:
    parts = [part for part in collect_parts(schema, root).parts if id(part) not in seen]
    seen.update(id(part) for part in parts)
    for part in parts:
        if as_object(part.get("items")):
            return part["items"]
    branches = [each for part in parts for each in _list_branches(part) if "array" in find_kinds(each, root)]
    found = [_find_items(each, root, seen) for each in branches]
    return {"anyOf": found} if len(found) > 1 else found[0] if found else True


def _find_kinds(schema: Any, root: SchemaRoot, known: dict[int, frozenset[str]]) -> frozenset[str]:
    found = collect_parts(schema, root)
    fitting = frozenset[str]() if found.is_never else ALL_KINDS
    for part in found.parts:
        if id(part) not in known:
            known[id(part)] = ALL_KINDS  # ends the recursion of a schema inside itself
            root.steps.take(len(as_list(part.get("type"))) + len(as_list(part.get("enum"))))
            own = _get_stated_kinds(part)
            for word in _ALTERNATIVE_KEYWORDS:
                branches = [_find_kinds(branch, root, known) for branch in as_list(part.get(word))]
                own &= frozenset[str]().union(*branches) if branches else ALL_KINDS
            known[id(part)] = own
        fitting &= known[id(part)]
    return fitting


def _get_stated_kinds(part: JSON) -> frozenset[str]:
    fitting = parse_types(part["type"]) if "type" in part else ALL_KINDS
    if isinstance(part.get("enum"), list):
        fitting &= frozenset(get_kind(value) for value in as_list(part["enum"]))
    if "const" in part:
        fitting &= {get_kind(part["const"])}
    return fitting


def _get_type_kinds(word: str) -> frozenset[str]:
    if word == "number":
        return frozenset({"integer", "fraction"})
    return frozenset({word}) if word in ALL_KINDS else ALL_KINDS


def _list_branches(part: JSON) -> list[Any]:
    return [branch for word in _ALTERNATIVE_KEYWORDS for branch in as_list(part.get(word))]


def _list_non_null(part: JSON, root: SchemaRoot) -> list[Any]:
    """Return the alternatives besides null."""
    return [each for each in _list_branches(part) if find_kinds(each, root) != _NULL_KINDS]


def _list_conditional(part: JSON) -> list[Any]:
    """Return the schemas that apply only under a condition."""
    held = [part[word] for word in _CONDITIONAL_KEYWORDS if word in part]
    return [*held, *as_object(part.get("dependentSchemas")).values()]
