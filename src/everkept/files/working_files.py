"""The working files of a store: their names, their owners, and the lock files on this disk."""

import errno
import os
import re
import secrets
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from everkept.core.files import checked_path
from everkept.errors import Refused
from everkept.files import disk
from everkept.files.disk import BINARY, NO_FOLLOW, NO_WAIT, in_thread

# 14 bytes more than the name itself: `core/files.py` leaves room for 15.
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
_LOCK = re.compile(r"\.everkept-[a-z0-9-]+(\.[0-9a-f]+)?\.lock")
LOCK_NAME = re.compile(r"[a-z0-9-]{1,40}")
ABANDONED = 3600.0  # seconds after which nobody is still writing a temporary file


def temporary(name: str) -> str:
    """Beside the file it becomes, so that one rename puts it in place."""
    return f".{name}.{secrets.token_hex(4)}.tmp"


def lock_file(name: str, after: str | None = None) -> str:
    """Of a lock, or of the claim that follows the one with the token `after`."""
    return f".everkept-{name}.lock" if after is None else f".everkept-{name}.{after}.lock"


def is_temporary(name: str) -> bool:
    return _TEMPORARY.fullmatch(name) is not None


def is_working_file(name: str) -> bool:
    return name[:1] == "." and (is_temporary(name) or _LOCK.fullmatch(name.lower()) is not None)


def reachable_parts(path: str) -> tuple[str, ...]:
    """The parts of a path that a caller may use; Refused for the store's own files."""
    parts = checked_path(path)
    if own := next((part for part in parts if is_working_file(part)), None):
        raise Refused(f'"{own}" is a working file of the folder itself.', name=path)
    return parts


@lru_cache(1)
def this_machine() -> str:
    """Equal only where process numbers mean the same processes.

    Containers have numbers of their own and may share a host name, and numbers begin anew with
    each start of a machine; both make another machine of it.
    """
    import socket

    return f"{socket.gethostname()}/{_numbering()}"


def _numbering() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot[:8]}-{Path('/proc/self/ns/pid').stat().st_ino:x}"
    except OSError:  # no Linux
        import uuid

        return f"{uuid.getnode():x}"


if sys.platform == "win32":

    def is_running(pid: int) -> bool:
        # os.kill would end the process here.
        import ctypes

        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        query_limited, still_active, access_denied = 0x1000, 259, 5
        handle = kernel.OpenProcess(query_limited, False, pid)
        if not handle:
            return ctypes.get_last_error() == access_denied
        try:
            code = ctypes.c_ulong()
            known = kernel.GetExitCodeProcess(handle, ctypes.byref(code))
            return not known or code.value == still_active
        finally:
            kernel.CloseHandle(handle)

else:

    def is_running(pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except (PermissionError, OverflowError):  # another user's, or no number we can ask for
            return True
        return True


T = TypeVar("T")
_MOST = 4096  # bytes of a lock file that are looked at
_WITHOUT_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)  # as FAT answers


class LocalLockFiles:
    """Implements LockFiles."""

    def __init__(self, folder: Path) -> None:
        self._root = str(folder)

    async def create(self, name: str, content: bytes) -> bool:
        return await self._run(_create, name, content)

    async def read(self, name: str) -> tuple[bytes, int] | None:
        return await self._run(_read, name)

    async def rewrite(self, name: str, mark: bytes, content: bytes) -> bool:
        return await self._run(_rewrite, name, mark, content)

    async def remove(self, name: str, mark: bytes) -> bool:
        return await self._run(_remove, name, mark)

    async def _run(self, step: Callable[..., T], name: str, *arguments: Any) -> T:
        path = os.path.join(self._root, name)  # noqa: PTH118
        return await in_thread(self._translated, step, path, *arguments)

    def _translated(self, step: Callable[..., T], path: str, *arguments: Any) -> T:
        try:
            return step(path, *arguments)
        except OSError as error:
            # Nobody but us knows of the lock file: it is the folder that may not be changed.
            raise disk.failure(error, "", root=self._root, writing=True) from error


def _create(path: str, content: bytes) -> bool:
    """With its content from the first moment: whoever dies does not leave an empty file."""
    if os.path.lexists(path):
        return False
    folder, name = os.path.split(path)
    fresh = os.path.join(folder, temporary(name))  # noqa: PTH118
    try:
        _create_file(fresh, content)
    except FileNotFoundError:
        disk.make_folders(folder)
        _create_file(fresh, content)
    try:
        return _put_in_place(fresh, path, content)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(fresh)  # noqa: PTH108


def _create_file(path: str, content: bytes) -> None:
    file = disk.retried(lambda: os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, 0o666))
    try:
        os.write(file, content)
    except OSError:
        os.unlink(path)  # noqa: PTH108
        raise
    finally:
        os.close(file)


def _put_in_place(fresh: str, path: str, content: bytes) -> bool:
    try:
        if sys.platform == "win32":  # a rename replaces nothing there
            disk.retried(lambda: os.rename(fresh, path))  # noqa: PTH104
        else:
            os.link(fresh, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _WITHOUT_LINKS:
            raise
        return _create_exclusively(path, content)
    return True


def _create_exclusively(path: str, content: bytes) -> bool:
    try:
        _create_file(path, content)
    except FileExistsError:
        return False
    return True


def _read(path: str) -> tuple[bytes, int] | None:
    try:
        file = os.open(path, os.O_RDONLY | NO_FOLLOW | NO_WAIT | BINARY)
    except FileNotFoundError:
        return None
    except PermissionError:
        if sys.platform == "win32":  # being removed at this moment
            return None
        raise
    try:
        return os.read(file, _MOST), os.fstat(file).st_mtime_ns
    finally:
        os.close(file)


def _rewrite(path: str, mark: bytes, content: bytes) -> bool:
    try:
        file = disk.retried(lambda: os.open(path, os.O_RDWR | NO_FOLLOW | NO_WAIT | BINARY))
    except FileNotFoundError:
        return False
    try:
        if mark not in os.read(file, _MOST):
            return False
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, content)
        return True
    finally:
        os.close(file)


def _remove(path: str, mark: bytes) -> bool:
    found = _read(path)
    if found is None or mark not in found[0]:
        return False
    try:
        disk.retried(lambda: os.unlink(path))  # noqa: PTH108
    except FileNotFoundError:
        return False
    return True
