"""Folders for copies, of which anybody can tell whether their process lives still."""

import shutil
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import cast
from uuid import uuid4

import apsw

from everkept.engines.sqlite.connections import translated
from everkept.engines.sqlite.sizes import usable
from everkept.engines.sqlite.sql import Connection

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
        with closing(_mark(folder)):
            yield folder
    finally:
        _remove(folder, is_kept)


def abandoned(place: Path, prefix: str) -> list[Path]:
    """The folders whose process has died."""
    return [folder for folder in sorted(place.glob(f"{prefix}*")) if _is_abandoned(folder)]


def _mark(folder: Path) -> Connection:
    mark = folder / MARK
    with usable(mark), translated(mark):
        mark.touch(mode=0o600)
        connection = _opened(mark)
    with suppress(apsw.Error):  # a file system without locks: there the folder's age has to tell
        connection.execute("BEGIN EXCLUSIVE")
    return connection


def _is_abandoned(folder: Path) -> bool:
    mark = folder / MARK
    try:
        if not mark.exists():
            return _age(folder) > STALE
        if _age(mark) < FRESH:
            return False
        with closing(_opened(mark)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            return True
    except apsw.BusyError:
        return False
    except (apsw.Error, OSError):
        return folder.exists() and _age(folder) > STALE


def _opened(mark: Path) -> Connection:
    return cast(Connection, apsw.Connection(str(mark), flags=apsw.SQLITE_OPEN_READWRITE))


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def _remove(folder: Path, is_kept: Callable[[Path], bool]) -> None:
    if not is_kept(folder):
        shutil.rmtree(folder, ignore_errors=True)
