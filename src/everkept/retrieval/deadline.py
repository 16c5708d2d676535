"""A moment by which an answer is given, with whatever is there by then."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from everkept.errors import QueryTimeout
from everkept.values import Value

A = TypeVar("A")
B = TypeVar("B")


class Deadline(Value):
    """A time of the event loop's clock; None never comes."""

    at: float | None
    seconds: float = 0.0  # that it was away when it was set

    @classmethod
    def within(cls, seconds: float | None) -> "Deadline":
        if seconds is None:
            return cls(None)
        return cls(asyncio.get_running_loop().time() + seconds, seconds)

    def sooner(self, share: float) -> "Deadline":
        """One that leaves this share of the time for what comes after."""
        return self if self.at is None else Deadline(self.at - share * self.seconds)

    @property
    def has_passed(self) -> bool:
        return self.at is not None and asyncio.get_running_loop().time() >= self.at

    async def one(self, work: Coroutine[Any, Any, A]) -> A | None:
        """What the work gives, or None when it is not done in time; then it is cancelled.

        A database that has a limit of its own may say so sooner.
        """
        limit = asyncio.timeout_at(self.at)
        try:
            async with limit:
                return await _or_late(work)
        except TimeoutError:
            if limit.expired():
                return None
            raise

    async def both(
        self, first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B]
    ) -> tuple[A | None, B | None]:
        """What two works at once give, each as `one` would."""
        one, other = asyncio.create_task(_or_late(first)), asyncio.create_task(_or_late(second))
        left = None if self.at is None else max(self.at - asyncio.get_running_loop().time(), 0)
        try:
            await asyncio.wait((one, other), timeout=left, return_when=asyncio.FIRST_EXCEPTION)
            return (
                one.result() if one.done() else None,
                other.result() if other.done() else None,
            )
        finally:
            one.cancel()
            other.cancel()
            await asyncio.gather(one, other, return_exceptions=True)


async def _or_late(work: Coroutine[Any, Any, A]) -> A | None:
    try:
        return await work
    except QueryTimeout:
        return None
