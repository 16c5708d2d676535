"""Work on large texts, done aside so that others have their turn meanwhile."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from everkept.core.uncancelled import is_on_event_loop

LARGE = 1_000_000  # characters or bytes; what is smaller is done before a thread would begin

T = TypeVar("T")


async def aside(size: int, work: Callable[[], T]) -> T:
    """The result of work that only computes, on a text of so many characters."""
    return await asyncio.to_thread(work) if size > LARGE and is_on_event_loop() else work()
