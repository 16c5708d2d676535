"""Blocking work in a thread, which has ended when whoever asked for it goes on."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from recollect.core.finishing import finished

T = TypeVar("T")


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """A blocking function's result; it has returned when this does, however it ends."""
    work = asyncio.get_running_loop().run_in_executor(None, function, *arguments)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await finished(work)
        raise
