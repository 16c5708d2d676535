"""A lock on an open file that the operating system takes back from the dead."""

import sys
from contextlib import suppress

if sys.platform == "win32":
    import msvcrt

    def locked(descriptor: int) -> bool:
        """Never waits; False where another process holds it, or another opening of ours."""
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def unlock(descriptor: int) -> None:
        with suppress(OSError):
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def locked(descriptor: int) -> bool:
        """Never waits; False where another process holds it, or another opening of ours."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def unlock(descriptor: int) -> None:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
