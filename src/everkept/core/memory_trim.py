"""Giving memory back to the machine after work that needed much of it for a moment."""

import sys
from typing import Any

# What mallopt of the GNU C library calls them.
_TRIM_THRESHOLD, _ARENA_MAX = -1, -8

ARENAS = 2  # heaps for all threads together; the default is eight for each processor
KEPT_FREE = 64 * 1024  # bytes at the end of a heap that stay with the process


def keep_heaps_small() -> None:
    """Limit what the C library of Linux keeps for threads that come and go.

    Without it each thread that embeds leaves a heap behind, some 80 MB in all.
    """
    if adjust := _from_c_library("mallopt"):
        adjust(_ARENA_MAX, ARENAS)
        adjust(_TRIM_THRESHOLD, KEPT_FREE)


def return_freed_memory() -> None:
    """Return to Linux what its C library keeps of freed memory, tens of megabytes."""
    if trim := _from_c_library("malloc_trim"):
        trim(0)


def _from_c_library(name: str) -> Any:
    """Return a function of the GNU C library, or None: musl and other systems have none."""
    if sys.platform != "linux":
        return None
    import ctypes

    return getattr(ctypes.CDLL(None), name, None)
