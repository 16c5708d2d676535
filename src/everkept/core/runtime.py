"""The running Python: coroutines with and without a loop, freed memory.

Hooks load this module, so it imports nothing slow, and above all no event loop.
"""

import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


def run_without_loop(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never has to wait."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise RuntimeError(f"{work!r} has to wait, which is impossible without an event loop")


def is_on_event_loop() -> bool:
    """Return whether this thread runs an event loop. A coroutine can run without one."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def wait_finished(work: "asyncio.Future[T] | Coroutine[Any, Any, T]") -> T:
    """Return the result. Raise a cancellation only after the work has ended.

    A thread cannot be stopped, and a canceled caller releases its locks. A write in progress would then overlap with
    that of another caller.
    """
    import asyncio

    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # read, so that it is not reported as lost
        raise cancelled
    return task.result()


# Names for mallopt of the GNU C library.
_TRIM_THRESHOLD, _ARENA_MAX = -1, -8

MAX_ARENAS = 2  # heaps of all threads; the default is eight for each processor
KEPT_FREE_BYTES = 64 * 1024  # at the end of a heap that the process keeps


def keep_heaps_small() -> None:
    """Limit the memory that the C library of Linux keeps for short-lived threads.

    Otherwise each thread that embeds leaves a heap behind, about 80 MB in all.
    """
    if adjust := _find_c_function("mallopt"):
        adjust(_ARENA_MAX, MAX_ARENAS)
        adjust(_TRIM_THRESHOLD, KEPT_FREE_BYTES)


def return_freed_memory() -> None:
    """Return the freed memory that the C library keeps to Linux, tens of megabytes."""
    if trim := _find_c_function("malloc_trim"):
        trim(0)


def _find_c_function(name: str) -> Any:
    """Return a function of the GNU C library, or None on systems without it, such as musl."""
    if sys.platform != "linux":
        return None
    import ctypes

    return getattr(ctypes.CDLL(None), name, None)
