"""Looking into the values of a file that somebody else wrote, and that may have any shape."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

Key = str | int


class Unfitting(ValueError):
    """The file can be read, but what we have to say has no place in it."""


def shown_path(path: Sequence[Key]) -> str:
    return ".".join(str(key) for key in path)


def as_object(value: Any, path: Sequence[Key] = ()) -> Mapping[str, Any]:
    """Unfitting where it is none; `path` says where it stands."""
    if not isinstance(value, Mapping):
        raise Unfitting(f"{shown_path(path) or 'the whole file'} is no object")
    return cast(Mapping[str, Any], value)


def as_list(value: Any, path: Sequence[Key]) -> list[Any]:
    if not isinstance(value, list):
        raise Unfitting(f"{shown_path(path)} is no list")
    return cast(list[Any], value)


def with_filled(values: Any, name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """The values with another one of that name, or without one where it would be empty."""
    rest = {key: item for key, item in as_object(values).items() if key != name}
    return {**rest, name: value} if value else rest


def is_same(one: Any, other: Any) -> bool:
    """Equal also where a value is no number, which is never equal to itself."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        left, right = cast(Mapping[str, Any], one), cast(Mapping[str, Any], other)
        return left.keys() == right.keys() and all(is_same(left[k], right[k]) for k in left)
    if isinstance(one, list) and isinstance(other, list):
        left, right = cast(list[Any], one), cast(list[Any], other)
        return len(left) == len(right) and all(map(is_same, left, right))
    return repr(cast(object, one)) == repr(cast(object, other))
