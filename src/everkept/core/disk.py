"""Private files and folders, atomic writes, and errors of the file system.

Hooks and the start of a server load this module, so it imports nothing slow.
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
AMPLE_BYTES = 100_000_000  # with more than this free, a quota refused the write, not the disk
DRAFT_SUFFIX = ".tmp"  # ends the name of a file that `replace` has not finished

_BINARY = getattr(os, "O_BINARY", 0)  # otherwise Windows changes line ends


@contextmanager
def translate_os_errors(path: Path) -> Generator[None, None, None]:
    """Translate errors of the file system into our errors with a hint."""
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
                f"Not enough disk space for {path}; nothing was changed.",
                hint="Free some disk space, then call again.",
                path=str(path),
            ) from error
        raise Unavailable(
            f"{path} cannot be used ({error.strerror}).",
            hint="Choose another data folder with --data-dir.",
            path=str(path),
        ) from error


def find_free_bytes(path: Path) -> int | None:
    """Return the free bytes of the disk, or None if they are unknown."""
    try:
        from shutil import disk_usage  # a hook that starts does not pay for it

        return disk_usage(next(each for each in (path, *path.parents) if each.exists())).free
    except (OSError, ImportError):  # the folder or the program's files may be out of reach
        return None


def build_size_facts(size: int, free: int | None) -> dict[str, int]:
    """Return the facts of an error about a full disk. `limit` is the largest possible size."""
    if free is None:
        return {"current_size": size}
    return {"current_size": size, "free": free, "limit": size if free > AMPLE_BYTES else size + free}


def make_folder(folder: Path) -> None:
    """Create a private folder and its missing parents."""
    # One at a time, because `parents=True` sets the mode only for the last one.
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            each.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            if stat.S_IMODE(each.stat().st_mode) & PRIVATE_FOLDER != PRIVATE_FOLDER:  # a strict umask
                each.chmod(PRIVATE_FOLDER)


def open_private(path: Path | str, flags: int) -> int:
    """Open a file. A new file is private. Can be the `opener` of `open`."""
    return os.open(path, flags | _BINARY, PRIVATE_FILE)


@contextmanager
def write_new_file(path: Path, *, is_synced: bool = True) -> Generator[IO[bytes], None, None]:
    """Create a private file to write to, and delete it after an error.

    Raise FileExistsError if the file exists. With `is_synced`, it is on the disk after the block.
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
    """Create a file that other processes see only when it is complete. Raise FileExistsError."""
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
    """Write a file in one step: a reader sees either the old file or the new one.

    `owner` is the user and group to set, if we have the rights to do so.
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


def open_regular(path: Path, limit: int | None = None) -> IO[bytes]:
    """Open a regular file of at most `limit` bytes for reading; raise OSError for any other."""
    # Without waiting: opening a pipe waits for a writer, and so can a device.
    file = os.open(path, os.O_RDONLY | _BINARY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    try:
        _check_regular(path, os.fstat(file), limit)
        return os.fdopen(file, "rb")
    except BaseException:
        os.close(file)
        raise


def is_own_place(path: Path) -> bool:
    """Return whether a file or folder belongs to this user, and the target of a link too. Windows has no such owner."""
    if not hasattr(os, "geteuid"):
        return True
    return all(each.st_uid == os.geteuid() for each in (path.lstat(), path.stat()))


def read_tail(path: Path, limit: int) -> bytes:
    """Return the last whole lines of a regular file, at most `limit` bytes; raise OSError for any other."""
    with open_regular(path) as file:
        start = max(0, file.seek(0, os.SEEK_END) - limit)
        file.seek(start)
        tail = file.read(limit)
    return tail.partition(b"\n")[2] if start else tail


def _check_regular(path: Path, found: os.stat_result, limit: int | None) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if limit is not None and found.st_size > limit:
        raise _refuse_size(path, limit)


def _refuse_size(path: Path, limit: int) -> OSError:
    return OSError(errno.EFBIG, f"larger than the limit of {limit / 1_000_000:,.1f} MB", str(path))


def append(path: Path, text: str) -> None:
    """Append whole lines to a private file. Create the file and its folder if they are missing.

    This is one write, so lines of other processes stay whole too.
    """
    make_folder(path.parent)
    file = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, text.encode("utf-8", "replace"))
    finally:
        os.close(file)


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Append lines after a line break, because a process may have died in the middle of the last line."""
    append(path, "".join(f"\n{line}" for line in (*lines, "")))


def sync(file: int) -> None:
    """Wait until a file is on the disk itself, and not only in the drive's memory."""
    if sys.platform == "darwin":
        import fcntl

        with suppress(OSError):  # not every file system supports it
            fcntl.fcntl(file, fcntl.F_FULLFSYNC)
            return
    os.fsync(file)


def sync_folder(folder: int | Path | None) -> None:
    """Make a new name survive a power cut. Windows does that by itself."""
    if sys.platform == "win32" or folder is None:
        return
    file = os.open(folder, os.O_RDONLY) if isinstance(folder, Path) else folder
    try:
        with suppress(OSError):  # some network folders do not support it
            os.fsync(file)
    finally:
        if file != folder:
            os.close(file)
