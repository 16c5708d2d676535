"""Giving memory back to the machine after work that needed much of it for a moment."""

import sys


def return_freed_memory() -> None:
    """The C library of Linux keeps what was freed, tens of megabytes; others give it back."""
    if sys.platform == "linux":
        import ctypes

        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # musl has none
            trim(0)
