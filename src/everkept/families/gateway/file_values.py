"""Values and schemas in a gateway's file: their expected types, their lines and their faults."""

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from everkept.core.json_text import MAX_DEPTH, JsonDocument, Key
from everkept.core.text import clip_text, find_forbidden
from everkept.errors import escape_name
from everkept.families.gateway.model import JSON, FileProblem
from everkept.families.gateway.schema_facts import SchemaRoot, SchemaTooComplex, is_number
from everkept.tools.schema import find_nearest


class FileNotes(NamedTuple):
    """Faults found in a file so far."""

    document: JsonDocument
    problems: list[FileProblem]
    warnings: list[FileProblem]


class FilePlace(NamedTuple):
    notes: FileNotes
    path: tuple[Key, ...]
    value: Any

    @property
    def line(self) -> int:
        return self.notes.document.find_line(self.path)

    @property
    def name(self) -> str:
        """Name in messages, such as `tools[0].upstream.tool`."""
        shown = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.path)
        return f"`{clip_text(escape_name(shown.removeprefix('.')))}`" if shown else "The file"

    def refuse(self, problem: str, fix: str) -> None:
        self.notes.problems.append(FileProblem(self.line, problem, fix))

    def warn(self, warning: str, fix: str, *, fails_calls: bool = False) -> None:
        self.notes.warnings.append(FileProblem(self.line, warning, fix, fails_calls))

    def refuse_kind(self, kind: str, *, is_hidden: bool = False) -> None:
        """Refuse the value. Show only the type of a hidden value, which may be a secret."""
        value = _describe_kind(self.value) if is_hidden else format_value(self.value)
        self.refuse(f"{self.name} is {value}.", f"It must be {kind}.")

    def get(self, key: str) -> "FilePlace | None":
        """Return the member of this object under a key, or None."""
        values = cast(Mapping[str, Any], self.value)
        return self._build_child(key, values[key]) if key in values else None

    def require(self, key: str, kind: str) -> "FilePlace | None":
        """Return the member under a key. Note a problem if it is missing."""
        if (found := self.get(key)) is None:
            self.refuse(f"{self.name} has no `{key}`.", f"Add it: {kind}.")
        return found

    def iterate_members(self) -> "Iterator[tuple[str, FilePlace]]":
        """Yield the members of this object."""
        for key, value in cast(Mapping[str, Any], self.value).items():
            yield key, self._build_child(key, value)

    def iterate_items(self) -> "Iterator[FilePlace]":
        """Yield the items of this list."""
        for index, value in enumerate(cast(list[Any], self.value)):
            yield self._build_child(index, value)

    def _build_child(self, key: Key, value: Any) -> "FilePlace":
        return FilePlace(self.notes, (*self.path, key), value)


def is_object(place: FilePlace) -> bool:
    """Return whether the value is an object. Like `is_list` and `is_text`, refuse any other value."""
    if isinstance(place.value, dict):
        return True
    place.refuse_kind("an object in { }")
    return False


def is_list(place: FilePlace) -> bool:
    if isinstance(place.value, list):
        return True
    place.refuse_kind("a list in [ ]")
    return False


def is_text(place: FilePlace, *, can_be_empty: bool = False, is_hidden: bool = False) -> bool:
    if not isinstance(place.value, str):
        place.refuse_kind("a text in quotes", is_hidden=is_hidden)
    elif not can_be_empty and not place.value.strip():
        place.refuse(f"{place.name} is empty.", "Write a text, or remove it.")
    elif found := find_forbidden(place.value):
        place.refuse(f"{place.name} contains the character {found!a}, which is not allowed.", "Remove it.")
    else:
        return True
    return False


def parse_text(place: FilePlace | None, *, can_be_empty: bool = False) -> str | None:
    """Return the text. Note a problem and return None for any other value."""
    if place is None or not is_text(place, can_be_empty=can_be_empty):
        return None
    return cast(str, place.value)


def parse_texts(place: FilePlace | None) -> list[str]:
    """Return the texts of a list, and refuse its other items."""
    if place is None or not is_list(place):
        return []
    return [cast(str, item.value) for item in place.iterate_items() if is_text(item)]


def check_keys(place: FilePlace, known: Collection[str], elsewhere: Mapping[str, str] | None = None) -> None:
    """Refuse unknown keys of an object. `elsewhere` has the fix for some that people expect."""
    for key, member in place.iterate_members():
        if key not in known:
            close = find_nearest(key, list(known))
            fix = f"Did you mean `{close}`?" if close else f"Known: {', '.join(sorted(known))}."
            member.refuse(
                f"{place.name} has the unknown key `{clip_text(escape_name(key))}`.", (elsewhere or {}).get(key, fix)
            )


def warn_secrets(place: FilePlace, name: str, value: str, fix: str) -> None:
    """Warn if a value of that name looks like a secret."""
    # Imported here and below because compiling its patterns takes longer than reading a file.
    from everkept.core.secrets import mask_json, mask_text

    if kinds := mask_json({name: value})[1] or mask_text(value)[1]:
        place.warn(f"{place.name} looks like a secret ({', '.join(kinds)}) in plain text.", fix)


def _describe_kind(value: Any) -> str:
    if isinstance(value, str | dict | list):
        return "a text" if isinstance(value, str) else "an object or a list"
    return "null" if value is None else "true or false" if isinstance(value, bool) else "a number"


def format_value(value: Any) -> str:
    """Format a value for a message: short, and with secrets masked."""
    from everkept.core.secrets import mask_text

    text = json.dumps(value, ensure_ascii=False)
    return clip_text(escape_name(mask_text(text)[0]))


ArgumentPath = tuple[str, ...]

_ESCAPED_PATTERN = re.compile(r"[\\.]")
_PART_PATTERN = re.compile(r"((?:[^\\.]|\\[\\.])*)(\.|\Z)", re.DOTALL)


def split_path(text: str) -> ArgumentPath | None:
    r"""Split `search.text` into keys; `\.` is a dot in a key, and `\\` a backslash.

    Return None if a key is empty, or if a backslash is before any other character.
    """
    keys: list[str] = []
    at = 0
    while part := _PART_PATTERN.match(text, at):
        if not part[1]:
            return None
        keys.append(re.sub(r"\\(.)", r"\1", part[1]))
        if not part[2]:
            return tuple(keys) if part.end() == len(text) else None
        at = part.end()
    return None


def join_path(keys: Sequence[str]) -> str:
    """Return the text that `split_path` splits into these keys."""
    return ".".join(_ESCAPED_PATTERN.sub(r"\\\g<0>", key) for key in keys)


class TakenPaths:
    """Paths that are in use, with their lines."""

    def __init__(self) -> None:
        self.lines: dict[ArgumentPath, int] = {}
        self._ways: dict[ArgumentPath, ArgumentPath] = {}  # beginnings of these paths

    def add(self, path: ArgumentPath, line: int) -> None:
        self.lines[path] = line
        for length in range(1, len(path)):
            self._ways.setdefault(path[:length], path)

    def find_conflict(self, path: ArgumentPath) -> ArgumentPath | None:
        """Return a taken path that equals this one, is a beginning of it, or begins with it."""
        return self.find_filled(path) or self._ways.get(path)

    def find_filled(self, path: ArgumentPath) -> ArgumentPath | None:
        """Return a taken path that equals this one or is a beginning of it."""
        starts = (path[:length] for length in range(1, len(path) + 1))
        return next((start for start in starts if start in self.lines), None)


SCHEMA_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")

_ONE_SCHEMA_KEYWORDS = frozenset(
    {"contains", "else", "if", "items", "not", "then"}
    | {"additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties"}
)
_NAMED_SCHEMA_KEYWORDS = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
_SCHEMA_LIST_KEYWORDS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAX_SCHEMA_DEPTH = MAX_DEPTH - 10  # a schema is itself nested in its file
# Keywords that may define more parameters than `properties` does.
_OPEN_KEYWORDS = ("$ref", "allOf", "anyOf", "oneOf", "patternProperties", "if", "dependentSchemas")


def check_root(place: FilePlace) -> bool:
    """Return whether it is a valid schema with the type object, as a tool's must be."""
    before = len(place.notes.problems)
    if is_object(place):
        if place.value.get("type") != "object":
            given = place.get("type")
            what = f"is {format_value(given.value)}" if given else "is missing"
            (given or place).refuse(f"The `type` of {place.name} {what}.", 'It must be `"type": "object"`.')
        _check_schema(place, place.value)
    return len(place.notes.problems) == before


def list_parameters(place: FilePlace) -> tuple[set[str] | None, list[str]]:
    """Return the parameters of a checked schema, or None if it may have more, and the required ones."""
    properties, required = place.value.get("properties", {}), place.value.get("required", [])
    is_open = any(keyword in place.value for keyword in _OPEN_KEYWORDS)
    is_open = is_open or place.value.get("additionalProperties", False) is not False
    return None if is_open else set(properties), list(required)


def can_be_written(schema: Any) -> bool:
    """Return whether the reader would accept a schema in a file."""
    if not _is_plain(schema):
        return False
    waiting: list[tuple[Any, Any]] = [(schema, schema)]
    while waiting:
        part, base = waiting.pop()
        if isinstance(part, dict):
            base = cast(JSON, part) if "$id" in part else base
            for keyword, value in cast(JSON, part).items():
                if _find_expected(keyword, value) or _is_broken(keyword, value, base):
                    return False
                waiting += [(inner, base) for inner in _list_schemas(keyword, value)]
        elif not isinstance(part, bool):
            return False
    return True


def _is_plain(value: Any) -> bool:
    """Return whether a JSON document can hold the value."""
    waiting: list[tuple[Any, int]] = [(value, 1)]
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, dict | list):
            if depth > _MAX_SCHEMA_DEPTH:
                return False
            inside = list(cast(JSON, each).values()) if isinstance(each, dict) else _as_list(each)
            waiting += [(inner, depth + 1) for inner in inside]
        elif isinstance(each, float) and not math.isfinite(each):
            return False
    return True


def _find_expected(keyword: str, value: Any) -> str | None:
    """Return what the value of a keyword must be, or None if it is valid."""
    if keyword == "type":
        is_right = value != [] and all(name in SCHEMA_TYPES for name in _as_list(value))
        return None if is_right else f"one of {', '.join(SCHEMA_TYPES)}, or a list of them"
    if keyword == "required":
        is_right = isinstance(value, list) and all(isinstance(name, str) for name in _as_list(value))
        return None if is_right else "a list of parameter names in quotes"
    for keywords, is_right, kind in _KEYWORD_RULES:
        if keyword in keywords:
            return None if is_right(value) else kind
    return None


def _make_type_check(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


_KEYWORD_RULES: Sequence[tuple[Collection[str], Callable[[Any], bool], str]] = (
    (("enum", *_SCHEMA_LIST_KEYWORDS), _make_type_check(list), "a list in [ ]"),
    (_NAMED_SCHEMA_KEYWORDS, _make_type_check(dict), "an object in { }"),
    (("minimum", "maximum"), is_number, "a number"),
    (("multipleOf",), lambda value: is_number(value) and value > 0, "a number above 0"),
    # Draft 4 has true or false here.
    (("exclusiveMinimum", "exclusiveMaximum"), _make_type_check(int, float, bool), "a number"),
    (
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        lambda value: is_number(value) and value >= 0 and value == int(value),
        "a whole number, 0 or more",
    ),
    (("$ref", "$id", "description", "format", "pattern", "title"), _make_type_check(str), "a text in quotes"),
    (("uniqueItems",), _make_type_check(bool), "true or false"),
)


def _list_schemas(keyword: str, value: Any) -> list[Any]:
    """Return the schemas in the valid value of a keyword."""
    if keyword in _NAMED_SCHEMA_KEYWORDS:
        return list(cast(JSON, value).values())
    if keyword in _SCHEMA_LIST_KEYWORDS or (keyword == "items" and isinstance(value, list)):
        return _as_list(value)
    return [value] if keyword in _ONE_SCHEMA_KEYWORDS else []


def _is_broken(keyword: str, value: Any, base: Any) -> bool:
    """Return whether it is a reference inside the schema without a target."""
    if keyword != "$ref" or not _is_inside(value):
        return False
    try:
        return not isinstance(SchemaRoot(base).resolve_reference(value), dict | bool)
    except SchemaTooComplex:
        return True


def _is_inside(reference: str) -> bool:
    return reference == "#" or reference.startswith("#/")


def _as_list(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else [value]


def _check_schema(place: FilePlace, base: JSON) -> None:
    """Check a schema. References are relative to `base`: the root, or the nearest part with an `$id`."""
    if isinstance(place.value, dict):
        base = cast(JSON, place.value) if place.get("$id") else base
        for keyword, member in place.iterate_members():
            _check_keyword(keyword, member, base)
    elif not isinstance(place.value, bool):
        place.refuse_kind("a schema: an object in { }, true or false")


def _check_keyword(keyword: str, place: FilePlace, base: JSON) -> None:
    if kind := _find_expected(keyword, place.value):
        place.refuse_kind(kind)
    elif keyword == "$ref":
        _check_reference(place, base)
    elif keyword in _NAMED_SCHEMA_KEYWORDS:
        for _, member in place.iterate_members():
            _check_schema(member, base)
    elif keyword in _SCHEMA_LIST_KEYWORDS or (keyword == "items" and isinstance(place.value, list)):
        for item in place.iterate_items():
            _check_schema(item, base)
    elif keyword in _ONE_SCHEMA_KEYWORDS:
        _check_schema(place, base)


def _check_reference(place: FilePlace, base: JSON) -> None:
    if _is_broken("$ref", place.value, base):
        place.refuse(
            f"{place.name} is {format_value(place.value)}, but there is no schema at that place.",
            "Write it like `#/$defs/name`, and put the schema there.",
        )
    elif not _is_inside(place.value):
        place.warn(
            f"{place.name} is {format_value(place.value)}, which is not loaded: its values are not checked, "
            "and a client may refuse the tool.",
            "Copy that schema into `$defs`, and refer to it with `#/$defs/name`.",
        )
