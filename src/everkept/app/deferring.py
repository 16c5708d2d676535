"""A library that is made when it is first asked for something: what it needs takes long to load."""

from collections.abc import Callable
from typing import Any, cast

from everkept.core.conditions import Condition
from everkept.core.ports import Library


def deferred(make: Callable[[], Library], condition: Condition) -> Library:
    """The one that `make` gives; `condition` is what it says of itself until then."""
    return cast(Library, _Deferred(make, condition))


class _Deferred:
    def __init__(self, make: Callable[[], Library], condition: Condition) -> None:
        self._make = make
        self._condition = condition
        self._made: Library | None = None

    @property
    def condition(self) -> Condition:
        return self._condition if self._made is None else self._made.condition

    async def close(self) -> None:
        if self._made is not None:
            await self._made.close()

    def __getattr__(self, name: str) -> Any:
        async def ask(*arguments: Any, **more: Any) -> Any:
            if self._made is None:
                self._made = self._make()
            return await getattr(self._made, name)(*arguments, **more)

        return ask
