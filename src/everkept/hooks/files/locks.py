"""One process at a time: a lock on a file, which the operating system takes back from the dead."""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from everkept.core.locking import locked, unlock

# Whether a process can be born with the lock that its parent took.
IS_INHERITED = sys.platform != "win32"


class Lock:
    """Held by this process, or by the one that was handed its descriptor; the file stays."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @classmethod
    def handed_over(cls, path: Path) -> "Lock":
        """The lock that the parent took and gave as standard input; else one that is free.

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
        """For the standard input of a child, which then has the lock too."""
        if self._descriptor is None:
            raise RuntimeError(f"{self._path} is not held")
        return self._descriptor

    def take(self) -> bool:
        """Never waits; False where another process holds it."""
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        if locked(self._descriptor):
            return True
        self.leave()
        return False

    def release(self) -> None:
        """Lets the next one take it, whoever was handed it too."""
        if self._descriptor is not None:
            unlock(self._descriptor)
            self.leave()

    def leave(self) -> None:
        """Ends our hold alone: a child that was handed the lock keeps it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Turn:
    """Whose turn it is to do what takes a moment, for as long as that may take.

    Not held by anybody: it ends with the time, should who took it have died.
    """

    def __init__(self, path: Path, seconds: float) -> None:
        self._path = path
        self._seconds = seconds

    def take(self) -> bool:
        """Of those who come at once, one gets it."""
        with suppress(OSError):
            if time.time() - self._path.stat().st_mtime > self._seconds:
                self._path.unlink()
        try:
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except (FileExistsError, PermissionError):  # Windows: it is just being removed
            return False
        return True

    def end(self) -> None:
        with suppress(OSError):
            self._path.unlink()


def _is_standard_input(path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(0), path.stat())
    except (OSError, ValueError):
        return False
