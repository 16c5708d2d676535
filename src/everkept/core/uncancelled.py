"""Work that is carried to its end even when whoever asked for it is cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def is_on_event_loop() -> bool:
    """Return whether this thread runs an event loop; a coroutine can be driven without one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def finished(work: "asyncio.Future[T] | Coroutine[Any, Any, T]") -> T:
    """The result; a cancellation is raised only after the work has ended.

    A thread cannot be stopped, and whoever is cancelled lets go of its locks: a write that was
    still under way would then fall into another's turn.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # heard, so that nobody reports it as lost
        raise cancelled
    return task.result()
