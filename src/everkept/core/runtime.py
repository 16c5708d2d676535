"""The Python that runs this: coroutines without a loop or to their end, extras, freed memory.

Hooks load this module: it imports nothing that takes long, and an event loop least of all.
"""

import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

T = TypeVar("T")


def run_without_loop(work: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns; it may await only what is done at once."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise RuntimeError(f"{work!r} waits for something, and nobody here could wake it")


def is_on_event_loop() -> bool:
    """Return whether this thread runs an event loop; a coroutine can be driven without one."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def wait_finished(work: "asyncio.Future[T] | Coroutine[Any, Any, T]") -> T:
    """The result; a cancellation is raised only after the work has ended.

    A thread cannot be stopped, and whoever is cancelled lets go of its locks: a write that was
    still under way would then fall into another's turn.
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
            task.exception()  # heard, so that nobody reports it as lost
        raise cancelled
    return task.result()


DISTRIBUTION = "everkept"
ENVIRONMENT, LAUNCHER = ".venv", "run"  # of a checkout


def format_install_hint(extra: str) -> str:
    """Return the sentence that tells the reader how to install an extra.

    It names the checkout, folder or wheel that this program was installed from.
    """
    from pathlib import Path

    source = _find_source()
    if source is None:
        return f"Install the extra [{extra}] from the wheel or folder you installed Everkept from."
    environment = source / ENVIRONMENT
    if Path(sys.prefix) == environment:
        return f"Delete {environment}, then start {source / LAUNCHER}: it installs everything."
    return f"Run: pip install '{source}[{extra}]'"


def _find_source() -> "Path | None":
    """Return the folder or file that pip installed this program from, if it is still there."""
    import json
    from importlib import metadata
    from pathlib import Path
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        text = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        url = str(cast(dict[str, Any], json.loads(text or "{}")).get("url", ""))
    except (metadata.PackageNotFoundError, ValueError):
        return None
    parts = urlsplit(url)
    path = Path(url2pathname(parts.path))
    return path if parts.scheme == "file" and path.exists() else None


# What mallopt of the GNU C library calls them.
_TRIM_THRESHOLD, _ARENA_MAX = -1, -8

MAX_ARENAS = 2  # heaps for all threads together; the default is eight for each processor
KEPT_FREE_BYTES = 64 * 1024  # bytes at the end of a heap that stay with the process


def keep_heaps_small() -> None:
    """Limit what the C library of Linux keeps for threads that come and go.

    Without it each thread that embeds leaves a heap behind, some 80 MB in all.
    """
    if adjust := _find_c_function("mallopt"):
        adjust(_ARENA_MAX, MAX_ARENAS)
        adjust(_TRIM_THRESHOLD, KEPT_FREE_BYTES)


def return_freed_memory() -> None:
    """Return to Linux what its C library keeps of freed memory, tens of megabytes."""
    if trim := _find_c_function("malloc_trim"):
        trim(0)


def _find_c_function(name: str) -> Any:
    """Return a function of the GNU C library, or None: musl and other systems have none."""
    if sys.platform != "linux":
        return None
    import ctypes

    return getattr(ctypes.CDLL(None), name, None)
