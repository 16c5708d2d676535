"""JSON values that cannot be changed, for results. They behave like `dict` and `list` otherwise."""

import copy
from collections.abc import Mapping
from typing import Any, NoReturn, cast


def freeze(value: Any) -> Any:
    """Return a JSON value with frozen mappings and lists at every depth."""
    if isinstance(value, dict):
        return FrozenDict({name: freeze(each) for name, each in cast(dict[str, Any], value).items()})
    if isinstance(value, list):
        return FrozenList(map(freeze, cast(list[Any], value)))
    return value


def freeze_mapping(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], freeze(dict(value)))


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError("A result cannot be changed. Change a copy of it, such as copy.deepcopy(value).")


class FrozenDict(dict[str, Any]):
    """Mapping of a result. A deep copy is a plain `dict`."""

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {name: copy.deepcopy(value, memo) for name, value in self.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (copy.deepcopy(self),)


class FrozenList(list[Any]):
    """List of a result. A deep copy is a plain `list`."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [copy.deepcopy(value, memo) for value in self]

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (copy.deepcopy(self),)
