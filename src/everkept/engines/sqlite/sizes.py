"""What a database takes of its disk, what is free there, and the error when that is too little."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from everkept.core import disk
from everkept.errors import StorageFull

_NO_ROOM = 1_000_000  # bytes; with fewer on its disk, a file that cannot be used has no room
_AMPLE = 100_000_000  # bytes; with more, something else than the disk is in the way
_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def size_of(path: Path) -> int:
    """The bytes of a file and of its write-ahead log."""
    return sum(each.stat().st_size for each in (path, log_of(path)) if each.exists())


def log_of(path: Path) -> Path:
    """The write-ahead log of a file; it is there while anybody may write."""
    return path.with_name(path.name + "-wal")


def is_full(folder: Path) -> bool:
    """Whether its disk has too little room for anything; False where that cannot be said."""
    free = _free_at(folder)
    return free is not None and free < _NO_ROOM


def no_room(path: Path, title: str) -> StorageFull:
    """For a write to a database that its disk, a quota or a limit would not have."""
    size, free = _size_at(path), _free_at(path)
    sizes = f"It takes {shown(size)}" + ("" if free is None else f", and {shown(free)} are free")
    facts = {} if free is None else {"free": free}
    return StorageFull(
        f"{title} cannot grow: there is no room on its disk. {sizes}. Nothing of this call was "
        "stored.",
        hint=(
            "The disk is not full, so a quota or a limit on the size of files is: raise it, or "
            "choose another data folder with --data-dir."
            if free is not None and free > _AMPLE
            else "Free some disk space and call again."
        ),
        path=str(path),
        current_size=size,
        **facts,
    )


@contextmanager
def usable(path: Path) -> Generator[None, None, None]:
    """As that of the core, and says how large things are where there is no room."""
    try:
        with disk.usable(path):
            yield
    except StorageFull as error:
        raise (error if "current_size" in error.facts else no_room(path, str(path))) from error


def shown(size: int) -> str:
    """As a person says it: `512 bytes`, `3.4 MB`."""
    amount, power = float(size), 0
    while amount >= 999.95 and power < len(_UNITS) - 1:
        amount, power = amount / 1_000, power + 1
    return f"{amount:,.1f} {_UNITS[power]}" if power else f"{size} bytes"


def _size_at(path: Path) -> int:
    """Of a database, or of all in a folder; 0 for what cannot be looked at."""
    try:
        if not path.is_dir():
            return size_of(path)
        return sum(size_of(each) for each in path.rglob("*.db"))
    except OSError:
        return 0


def _free_at(path: Path) -> int | None:
    """None where it cannot be said."""
    try:
        from shutil import disk_usage  # a hook that starts does not pay for it

        there = next(each for each in (path, *path.parents) if each.exists())
        return disk_usage(there).free
    except (OSError, ImportError):  # the folder or the program's files may be out of reach
        return None
