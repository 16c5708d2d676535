"""A library that is created at the first call to it: its modules take long to load."""

from collections.abc import Callable

from everkept.core.conditions import Condition
from everkept.core.library import Library, PassingLibrary


class DeferredLibrary(PassingLibrary):
    """The library that `make` returns; until then its condition is `condition`."""

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

    async def _reached(self) -> Library:
        if self._made is None:
            self._made = self._make()
        return self._made
