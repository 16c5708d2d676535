"""Stopping a server when the system asks for it."""

import asyncio
import signal
from collections.abc import Callable
from types import FrameType


def on_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Calls `stop` at SIGTERM and SIGINT, from now to the end of the process."""
    for name in ("SIGTERM", "SIGINT"):
        number = getattr(signal, name)
        try:
            loop.add_signal_handler(number, stop)
        except NotImplementedError:
            # Windows' event loop knows no signals; the interpreter's own handler does.
            def handle(_number: int, _frame: FrameType | None) -> None:
                loop.call_soon_threadsafe(stop)

            signal.signal(number, handle)
