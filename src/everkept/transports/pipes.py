"""A client's two pipes: on the event loop if it can wait for them, otherwise by threads."""

import asyncio
import logging
import os
import queue
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

READ_BYTES = 1 << 16
PIPE_BYTES = 1 << 20  # what Linux allows any user
LAST = b"\n"  # the last line counts without its line break too

log = logging.getLogger(__name__)


class Writer(Protocol):
    """Writes messages whole and in their order, without making the caller wait."""

    @property
    def pending(self) -> int:
        """How many messages the client has yet to read."""
        ...

    def put(self, data: bytes) -> None: ...

    async def close(self, seconds: float) -> None:
        """Wait so long for what is pending."""
        ...


def start_reading(read: int, deliver: Callable[[bytes], None], end: Callable[[], None]) -> None:
    """Call `deliver` with all that comes and a last line break, then `end`."""
    loop = asyncio.get_running_loop()
    if not _is_waitable(read):
        # A daemon thread with os.read: a thread inside sys.stdin would hold its lock at exit.
        threading.Thread(target=_read_all, args=(read, loop, deliver, end), daemon=True).start()
        return

    def receive() -> None:
        try:
            data = _read(read)
        except BlockingIOError:  # another program has read it
            return
        if data:
            deliver(data)
        else:
            loop.remove_reader(read)
            deliver(LAST)
            end()

    loop.add_reader(read, receive)


def open_writer(written: int, on_gone: Callable[[], None]) -> Writer:
    """Return a writer that calls `on_gone` when the client has closed its end."""
    # Programs that write to our standard error must not find it in another mode.
    if not _is_waitable(written) or os.path.sameopenfile(written, 2):
        return _ThreadWriter(written, on_gone)
    return _LoopWriter(written, on_gone)


def _is_waitable(descriptor: int) -> bool:
    """Return whether every system's event loop can wait for it: files and terminals are not."""
    if sys.platform == "win32":
        return False
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _widen(written: int) -> None:
    """Let a pipe hold a large answer whole, if the system can: the client reads it in one go."""
    if sys.platform == "linux":
        import fcntl

        with suppress(OSError):  # a socket, or more than this user may have
            fcntl.fcntl(written, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


class _LoopWriter:
    """Writes immediately what the client has room for, and the rest when it has read that."""

    def __init__(self, written: int, on_gone: Callable[[], None]) -> None:
        self._written = written
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._pending: deque[memoryview] = deque()
        self._is_gone = False
        self._drained = asyncio.Event()
        self._drained.set()
        os.set_blocking(written, False)
        _widen(written)

    @property
    def pending(self) -> int:
        return len(self._pending)

    def put(self, data: bytes) -> None:
        if self._is_gone:
            return
        if self._pending:
            self._pending.append(memoryview(data))
        elif rest := self._write(memoryview(data)):
            self._pending.append(rest)
            self._drained.clear()
            self._loop.add_writer(self._written, self._go_on)

    async def close(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._drained.wait(), seconds)
        except TimeoutError:
            log.debug("the client has not read %d messages", len(self._pending))
        self._forget()
        os.set_blocking(self._written, True)

    def _go_on(self) -> None:
        rest = self._write(self._pending[0])
        if rest:
            self._pending[0] = rest
        elif self._pending:
            self._pending.popleft()
        if not self._pending:
            self._forget()

    def _write(self, view: memoryview) -> memoryview | None:
        """Return what the client had no room for."""
        try:
            return view[os.write(self._written, view) :]
        except BlockingIOError:
            return view
        except OSError:
            self._is_gone = True
            self._forget()
            self._on_gone()
            return None

    def _forget(self) -> None:
        self._loop.remove_writer(self._written)
        self._pending.clear()
        self._drained.set()


class _ThreadWriter:
    """Writes by a thread: a client that does not read must not keep us from shutting down."""

    def __init__(self, written: int, on_gone: Callable[[], None]) -> None:
        self._written = written
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._pending: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, daemon=True)
        self._thread.start()

    @property
    def pending(self) -> int:
        return self._pending.qsize()

    def put(self, data: bytes) -> None:
        self._pending.put(data)

    async def close(self, seconds: float) -> None:
        self._pending.put(None)
        await asyncio.to_thread(self._thread.join, seconds)

    def _write_all(self) -> None:
        try:
            while (data := self._pending.get()) is not None:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._written, view) :]
        except OSError:
            with suppress(RuntimeError):  # the server has ended before its client
                self._loop.call_soon_threadsafe(self._on_gone)


def _read_all(
    read: int,
    loop: asyncio.AbstractEventLoop,
    deliver: Callable[[bytes], None],
    end: Callable[[], None],
) -> None:
    try:
        while data := _read(read):
            loop.call_soon_threadsafe(deliver, data)
        loop.call_soon_threadsafe(deliver, LAST)
        loop.call_soon_threadsafe(end)
    except RuntimeError:
        log.debug("the server ended while its input was read")


def _read(read: int) -> bytes:
    try:
        return os.read(read, READ_BYTES)
    except BlockingIOError:
        raise
    except OSError:  # a terminal that was hung up
        return b""
