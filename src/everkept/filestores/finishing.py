"""Blocking work in a thread, which has ended when its caller continues."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from everkept.core.uncancelled import finished, is_on_event_loop

T = TypeVar("T")


async def in_thread(
    function: Callable[..., T], *arguments: Any, on_cancel: Callable[[], None] | None = None
) -> T:
    """Return a blocking function's result; the function has returned when this does.

    A coroutine that is driven in a thread already calls the function there. A canceled caller runs
    `on_cancel`, then waits for the function to return.
    """
    if not is_on_event_loop():
        return function(*arguments)
    work = asyncio.get_running_loop().run_in_executor(None, function, *arguments)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if on_cancel is not None:
            on_cancel()
        await finished(work)
        raise
