"""Locks between processes of a machine. The system releases them if their holder dies.

Hooks load this module, so it imports nothing slow.
"""

import os
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from everkept.core.disk import create, make_folder, open_private, translate_os_errors
from everkept.errors import StoreBusy

if TYPE_CHECKING:
    import asyncio

# Whether a process can start with a lock that its parent holds.
IS_INHERITED = sys.platform != "win32"
WAIT_SECONDS = 10.0

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


class FileLock:
    """Lock that one object of one process holds, or a child process that inherits its descriptor.

    The file is never deleted. Each method raises OSError if the file system has no locks.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @classmethod
    def from_parent(cls, path: Path) -> "FileLock":
        """Return the lock that the parent passed as standard input, otherwise a free one.

        Nothing else reads standard input there, and no argument has to name the descriptor.
        """
        lock = cls(path)
        if IS_INHERITED and _is_standard_input(path):
            lock._descriptor = os.dup(0)
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.close(nothing)
        return lock

    @property
    def descriptor(self) -> int:
        """Return the descriptor for the standard input of a child, which then holds the lock too."""
        if self._descriptor is None:
            raise RuntimeError(f"{self._path} is not held")
        return self._descriptor

    def take(self) -> bool:
        """Take the lock without waiting. Return False if another object or process holds it."""
        if self._descriptor is None:
            self._descriptor = open_private(self._path, os.O_RDWR | os.O_CREAT)
        is_ours = False
        try:
            is_ours = _lock(self._descriptor)
        finally:
            if not is_ours:
                self.leave()
        return is_ours

    def wait(self, seconds: float) -> bool:
        """Wait for the lock. Return False if it is not free in time."""
        until = time.monotonic() + seconds
        while not self.take():
            if time.monotonic() > until:
                return False
            time.sleep(_choose_delay())
        return True

    def release(self) -> None:
        """Release the lock, even if a child inherited it."""
        if self._descriptor is not None:
            with suppress(OSError):
                _unlock(self._descriptor)
            self.leave()

    def leave(self) -> None:
        """Release only our hold. A child that inherited the lock keeps it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class WaitingLock:
    """Lock that threads, tasks and processes wait for. `title` names the work for an error."""

    def __init__(self, path: Path, title: str, patience: float = WAIT_SECONDS) -> None:
        self._path = path
        self._title = title
        self._patience = patience
        self._turn: asyncio.Lock | None = None  # for the tasks of this process

    @contextmanager
    def hold(self) -> Generator[None, None, None]:
        """Wait in the calling thread. Raise StoreBusy if the lock is not free in time."""
        lock = self._build_lock()
        with translate_os_errors(self._path):
            is_ours = lock.wait(self._patience)
        if not is_ours:
            raise self._build_busy_error()
        try:
            yield
        finally:
            lock.release()

    @asynccontextmanager
    async def hold_async(self) -> AsyncGenerator[None, None]:
        """Wait in a task. Raise StoreBusy if the lock is not free in time."""
        import asyncio  # slow to import, and a hook never waits

        lock = self._build_lock()
        turn = self._turn = self._turn or asyncio.Lock()
        try:
            async with asyncio.timeout(self._patience):
                await turn.acquire()
        except TimeoutError:
            raise self._build_busy_error() from None
        try:
            until = time.monotonic() + self._patience
            while not self._take(lock):
                if time.monotonic() > until:
                    raise self._build_busy_error()
                await asyncio.sleep(_choose_delay())
            yield
        finally:
            lock.release()
            turn.release()

    def _build_lock(self) -> FileLock:
        with translate_os_errors(self._path):
            make_folder(self._path.parent)
        return FileLock(self._path)

    def _take(self, lock: FileLock) -> bool:
        with translate_os_errors(self._path):
            return lock.take()

    def _build_busy_error(self) -> StoreBusy:
        return StoreBusy(
            f"{self._title} is locked by another process.",
            hint="Try again. An import or a suspended Everkept process may be holding it.",
            path=str(self._path),
        )


class ExpiringLock:
    """Right to do short work. It expires if its owner dies."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._path = path
        self._seconds = seconds

    def take(self) -> bool:
        """Take the right. Return True to only one of several concurrent callers."""
        with suppress(OSError):
            if self._has_expired():
                self._path.unlink()
        try:
            create(self._path, is_synced=False)
        except (FileExistsError, PermissionError):  # Windows: another process is removing it
            return False
        return True

    def is_taken(self) -> bool:
        """Return whether an owner has it now."""
        try:
            return not self._has_expired()
        except OSError:
            return False

    def end(self) -> None:
        with suppress(OSError):
            self._path.unlink()

    def _has_expired(self) -> bool:
        return time.time() - self._path.stat().st_mtime > self._seconds


def _choose_delay() -> float:
    """Return 0.5 to 2 ms. A longer wait would never succeed next to a process without pauses."""
    return 0.0005 + os.urandom(1)[0] / 170_000


def _is_standard_input(path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(0), path.stat())
    except (OSError, ValueError):
        return False
