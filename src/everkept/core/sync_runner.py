"""Running a coroutine that never waits, without an event loop: importing one takes long."""

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def driven(work: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns; it may await only what is done at once."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise RuntimeError(f"{work!r} waits for something, and nobody here could wake it")
