"""Conditions on the values of documents, such as `{"status": "open", "age": {"$gt": 5}}`."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from everkept.errors import InvalidInput

_ORDERS: Mapping[str, Callable[[float, float], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
MAX_DEPTH = 50  # of parts in one another
OPERATORS = ("$eq", "$ne", *_ORDERS)


def is_match(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether each named part equals the wanted one or meets its condition. A missing part equals None."""
    return all(_is_part_match(value.get(name), part) for name, part in wanted.items())


def check_filter(wanted: Mapping[str, Any]) -> None:
    """Raise InvalidInput for an operator that does not exist, a name that is not a text, or too many levels."""
    waiting: list[tuple[Any, int]] = [(wanted, 1)]
    while waiting:
        part, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise _build_error(f"`filter` has more than {MAX_DEPTH} levels.", f"Use at most {MAX_DEPTH} levels.")
        if isinstance(part, Mapping):
            named = cast(Mapping[Any, Any], part)
            _check_names([*named], is_condition=depth > 1)
            waiting += [(each, depth + 1) for each in named.values()]
        elif isinstance(part, list | tuple):
            waiting += [(each, depth + 1) for each in cast(Sequence[Any], part)]


def _check_names(names: Sequence[Any], *, is_condition: bool) -> None:
    for name in names:
        if not isinstance(name, str):
            raise _build_error(f"`filter` has the name {name!r}.", "Use texts as names.")
    operators = [name for name in names if name.startswith("$")] if is_condition else []
    if operators and (unknown := [name for name in names if name not in OPERATORS]):
        raise _build_error(f'`filter` has the unknown operator "{unknown[0]}".', f"Use {', '.join(OPERATORS)}.")


def _build_error(message: str, hint: str) -> InvalidInput:
    return InvalidInput(message, hint=hint, argument="filter")


def _list_operators(part: Any) -> list[str]:
    if not isinstance(part, Mapping):
        return []
    return [name for name in cast(Mapping[str, Any], part) if name.startswith("$")]


def _is_part_match(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        conditions = cast(Mapping[str, Any], wanted)
        if _list_operators(conditions):
            return all(_is_condition_met(value, name, given) for name, given in conditions.items())
        return isinstance(value, Mapping) and is_match(cast(Mapping[str, Any], value), conditions)
    if isinstance(wanted, list | tuple):
        parts = cast(Sequence[Any], wanted)
        if not isinstance(value, list) or len(cast(list[Any], value)) != len(parts):
            return False
        return all(map(_is_part_match, cast(list[Any], value), parts))
    return bool(value == wanted)


def _is_condition_met(value: Any, name: str, given: Any) -> bool:
    if name == "$eq":
        return bool(value == given)
    if name == "$ne":
        return bool(value != given)
    try:
        return _ORDERS[name](float(value), float(given))
    except (TypeError, ValueError, OverflowError):
        return False  # not numbers
