"""Questions about several things that are asked at the same moment, as one question."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")


class Round(Generic[K, T]):
    """Who asks before the event loop goes on shares one answer with the others."""

    def __init__(self, answer: Callable[[Sequence[K]], Awaitable[Mapping[K, T]]]) -> None:
        self._answer = answer
        self._next: _Group[K, T] | None = None  # those who can still be joined

    async def ask(self, key: K) -> T:
        """The last who stops waiting ends it."""
        group = self._next
        if group is None or group.task.get_loop() is not asyncio.get_running_loop():
            group = self._next = _Group(self._begin)
        group.keys[key] = None
        group.waiting += 1
        try:
            return (await asyncio.shield(group.task))[key]
        except asyncio.CancelledError:
            group.waiting -= 1
            if not group.waiting:
                group.task.cancel()
                self._leave(group)
            raise

    async def _begin(self, keys: Mapping[K, None]) -> Mapping[K, T]:
        self._next = None
        return await self._answer(list(keys))

    def _leave(self, group: "_Group[K, T]") -> None:
        """Nobody joins it any more."""
        if self._next is group:
            self._next = None


class _Group(Generic[K, T]):
    """The things that are asked for together, and how many wait."""

    def __init__(
        self, begin: Callable[[Mapping[K, None]], Coroutine[Any, Any, Mapping[K, T]]]
    ) -> None:
        self.keys: dict[K, None] = {}
        self.waiting = 0
        self.task = asyncio.get_running_loop().create_task(begin(self.keys))
