"""Shapes of JSON, as a contract describes them by example.

An object has the keys of its shape, a list has items of the one in it, and a word is a type, a
sentence with gaps, or several of them between bars; one that ends in a question mark may be away.
"""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

ANY_KEY = "<file>"


def keys_of(shape: Any, path: str) -> list[str]:
    """Every place that a value of this shape can have."""
    match shape:
        case dict():
            return [path, *(key for k, v in shape.items() for key in keys_of(v, f"{path}.{k}"))]
        case [inner]:
            return [path, *keys_of(inner, f"{path}[]")]
        case _:
            return [path]


def unlike(value: Any, shape: Any, path: str, seen: set[str]) -> list[str]:
    """Where a value has not its shape; adds to `seen` where it has anything."""
    seen.add(path)
    match shape:
        case dict():
            return _unlike_object(value, shape, path, seen)
        case list():
            if not isinstance(value, list):
                return [path]
            return [p for v in value for one in shape for p in unlike(v, one, f"{path}[]", seen)]
        case str():
            return [] if any(_fits(value, word) for word in _words_of(shape)) else [path]
        case _:
            return [] if value == shape and type(value) is type(shape) else [path]


def _unlike_object(value: Any, shape: dict[str, Any], path: str, seen: set[str]) -> list[str]:
    if not isinstance(value, dict):
        return [path]
    if ANY_KEY in shape:
        inner = shape[ANY_KEY]
        return [p for v in value.values() for p in unlike(v, inner, f"{path}.{ANY_KEY}", seen)]
    return [p for key, one in shape.items() for p in _unlike_at(value, key, one, path, seen)]


def _unlike_at(value: dict[str, Any], key: str, shape: Any, path: str, seen: set[str]) -> list[str]:
    if key in value:
        return unlike(value[key], shape, f"{path}.{key}", seen)
    is_optional = isinstance(shape, str) and shape.endswith("?")
    return [] if is_optional else [f"{path}.{key}"]


def _words_of(shape: str) -> list[str]:
    return shape.removesuffix("?").split("|")


_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "int": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
    "etag": lambda value: re.fullmatch(r"[0-9a-f]{16}", value) is not None,
    "ISO": lambda value: datetime.fromisoformat(value).tzinfo is not None,
}


def _fits(value: Any, word: str) -> bool:
    if word in _TYPES:
        return _TYPES[word](value)
    return isinstance(value, str) and re.fullmatch(pattern(word), value) is not None


def pattern(sentence: str) -> str:
    """`<this>` stands for anything, `<this|that>` for one of them, `...` also for nothing."""
    parts = re.split(r"(<[^>]+>|\.\.\.)", sentence)
    return "".join(_gap(part) if number % 2 else re.escape(part) for number, part in enumerate(parts))


def _gap(part: str) -> str:
    if part == "...":
        return ".*"
    return f"({part[1:-1]})" if "|" in part else ".+"
