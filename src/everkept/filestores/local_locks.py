"""The steps of a lock on this machine's disk."""

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from everkept.filestores import disk
from everkept.filestores.disk import BINARY, NO_FOLLOW, NO_WAIT
from everkept.filestores.finishing import in_thread
from everkept.filestores.names import temporary

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
