"""Folders for copies, of which anybody can tell whether their process lives still."""

import shutil
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from everkept.core.disk import create
from everkept.core.locks import FileLock
from everkept.engines.sqlite.sizes import usable

MARK = "in-use.lock"  # locked by the process that works there: the lock goes with it
FRESH = 2.0  # seconds in which somebody may have made the mark, and not locked it yet
STALE = 86_400.0  # seconds after which nobody works there, where no lock can tell


@contextmanager
def scratch(
    place: Path, prefix: str, is_kept: Callable[[Path], bool] = lambda _: False
) -> Generator[Path, None, None]:
    """A new folder whose name begins so. It goes with the block, unless it is to be kept.

    So do those that dead processes have left there.
    """
    for left in abandoned(place, prefix):
        _remove(left, is_kept)
    with usable(place):
        folder = place / f"{prefix}{uuid4().hex}"
        folder.mkdir(mode=0o700)
    try:
        lock = _mark(folder)
        try:
            yield folder
        finally:
            lock.release()
    finally:
        _remove(folder, is_kept)


def abandoned(place: Path, prefix: str) -> list[Path]:
    """The folders whose process has died."""
    return [folder for folder in sorted(place.glob(f"{prefix}*")) if _is_abandoned(folder)]


def _mark(folder: Path) -> FileLock:
    mark = folder / MARK
    with usable(mark):
        create(mark, is_synced=False)
    lock = FileLock(mark)
    with suppress(OSError):  # a file system without locks: only the age of the folder tells
        lock.take()
    return lock


def _is_abandoned(folder: Path) -> bool:
    mark = folder / MARK
    try:
        if not mark.exists():
            return _age(folder) > STALE
        if _age(mark) < FRESH:
            return False
        lock = FileLock(mark)
        is_free = lock.take()
        lock.release()
    except OSError:
        return folder.exists() and _age(folder) > STALE
    return is_free


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def _remove(folder: Path, is_kept: Callable[[Path], bool]) -> None:
    if not is_kept(folder):
        shutil.rmtree(folder, ignore_errors=True)
