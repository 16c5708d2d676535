"""Private files and folders, writes that are whole or absent, and errors of the file system.

Hooks and the start of a server load this module: it imports nothing that takes long.
"""

import errno
import os
import stat
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from everkept.errors import ReadOnly, StorageFull, Unavailable

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
DRAFT_SUFFIX = ".tmp"  # ends the name of a file that `replace` has not finished

_BINARY = getattr(os, "O_BINARY", 0)  # Windows would write other ends of lines


@contextmanager
def translate_os_errors(path: Path) -> Generator[None, None, None]:
    """Raise our error, with what to do, if the file system refuses the file."""
    try:
        yield
    except PermissionError as error:
        raise ReadOnly(
            f"{path} cannot be written ({error.strerror}).",
            hint="Check the permissions of the data folder, or choose one with --data-dir.",
            path=str(path),
        ) from error
    except OSError as error:
        if error.errno == errno.EROFS:
            raise ReadOnly(f"{path} is on a read-only file system.", path=str(path)) from error
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(
                f"There is no room for {path}; nothing was changed.",
                hint="Free some disk space and call again.",
                path=str(path),
            ) from error
        raise Unavailable(
            f"{path} cannot be used ({error.strerror}).",
            hint="Choose another data folder with --data-dir.",
            path=str(path),
        ) from error


def make_folder(folder: Path) -> None:
    """Create a private folder, and every missing folder above it."""
    # One at a time: `parents=True` gives the mode only to the last.
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            each.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def open_private(path: Path | str, flags: int) -> int:
    """Open a file, which is private if this creates it; can be the `opener` of `open`."""
    return os.open(path, flags | _BINARY, PRIVATE_FILE)


@contextmanager
def write_new_file(path: Path, *, is_synced: bool = True) -> Generator[IO[bytes], None, None]:
    """Create a private file to write to, which an error deletes.

    Raise FileExistsError if the file exists. After the block the disk has it, if `is_synced`.
    """
    descriptor = open_private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            if is_synced:
                file.flush()
                sync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def create(path: Path, content: bytes = b"", *, mode: int = PRIVATE_FILE, is_synced: bool = True) -> None:
    """Create a file, which others can read only when it is whole; raise FileExistsError."""
    with write_new_file(path, is_synced=is_synced) as file:
        file.write(content)
    if mode != PRIVATE_FILE:
        path.chmod(mode)


def replace(
    path: Path,
    content: bytes,
    *,
    mode: int = PRIVATE_FILE,
    owner: tuple[int, int] | None = None,
    is_synced: bool = True,
) -> None:
    """Write a file in one step: a reader sees the file before, or this one.

    `owner` is the user and group that it should belong to, as far as we may decide that.
    """
    draft = path.with_name(f"{path.name}.{os.urandom(4).hex()}{DRAFT_SUFFIX}")
    try:
        create(draft, content, mode=mode, is_synced=is_synced)
        if owner is not None and sys.platform != "win32":
            with suppress(PermissionError):
                os.chown(draft, *owner)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def read_limited(path: Path, limit: int) -> bytes:
    """Return what a regular file holds; raise OSError for a device, a pipe, or more than `limit` bytes.

    A device and a pipe can be endless. Nothing is read of a file that is too large.
    """
    with open_regular(path, limit) as file:
        content = file.read(limit + 1)  # the file may grow
    if len(content) > limit:
        raise _refuse_size(path, limit)
    return content


def open_regular(path: Path, limit: int) -> IO[bytes]:
    """Open a regular file of at most `limit` bytes for reading; raise OSError for any other."""
    # Without waiting: opening a pipe waits for a writer, and so can a device.
    file = os.open(path, os.O_RDONLY | _BINARY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    try:
        _check_regular(path, os.fstat(file), limit)
        return os.fdopen(file, "rb")
    except BaseException:
        os.close(file)
        raise


def _check_regular(path: Path, found: os.stat_result, limit: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if found.st_size > limit:
        raise _refuse_size(path, limit)


def _refuse_size(path: Path, limit: int) -> OSError:
    return OSError(errno.EFBIG, f"it is larger than {limit:,} bytes", str(path))


def append(path: Path, text: str) -> None:
    """Add whole lines to a private file; create the file and its folder if they are missing.

    This is one write to the end, so lines that others add at the same time stay whole too.
    """
    make_folder(path.parent)
    file = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, text.encode("utf-8", "replace"))
    finally:
        os.close(file)


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Add lines after a new line: a process may have died in the middle of the last one."""
    append(path, "".join(f"\n{line}" for line in (*lines, "")))


def sync(file: int) -> None:
    """Wait until the disk itself has a file, and not only the memory of the drive."""
    if sys.platform == "darwin":
        import fcntl

        with suppress(OSError):  # not every file system offers it
            fcntl.fcntl(file, fcntl.F_FULLFSYNC)
            return
    os.fsync(file)


def sync_folder(folder: int | Path | None) -> None:
    """Make a new name survive a power cut; Windows does that by itself."""
    if sys.platform == "win32" or folder is None:
        return
    file = os.open(folder, os.O_RDONLY) if isinstance(folder, Path) else folder
    try:
        with suppress(OSError):  # some network folders cannot
            os.fsync(file)
    finally:
        if file != folder:
            os.close(file)
