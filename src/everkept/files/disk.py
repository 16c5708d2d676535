"""The system calls of the local store, with a replacement where a system lacks one."""

import asyncio
import errno
import os
import stat
import sys
import time
import unicodedata
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from everkept.core.disk import sync_folder
from everkept.core.uncancelled import finished, is_on_event_loop
from everkept.errors import (
    Conflict,
    EverkeptError,
    NotFound,
    ReadOnly,
    Refused,
    StorageFull,
    Unavailable,
    visible,
)
from everkept.values import Value, replace

T = TypeVar("T")

# Flags that a system lacks mean nothing there.
BINARY = getattr(os, "O_BINARY", 0)
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a pipe would keep whoever opens it
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_BY_HANDLE = os.open in os.supports_dir_fd
_IN_USE = 32  # Windows: another program has the file open
_TRIES, _NAP = 50, 0.002  # and how often, in seconds, we ask again


class Spot(Value):
    """An entry of an open folder: `name` in `folder`, or a whole path where systems lack that.

    `target` are the parts of the path that links led to, where there were any.
    """

    name: str
    folder: int | None
    found: os.stat_result | None
    target: tuple[str, ...] | None = None

    @property
    def is_folder(self) -> bool:
        return self.found is not None and stat.S_ISDIR(self.found.st_mode)

    @property
    def is_link(self) -> bool:
        return self.found is not None and stat.S_ISLNK(self.found.st_mode)

    def beside(self, name: str) -> "Spot":
        if self.folder is not None:
            return Spot(name, self.folder, None)
        return Spot(os.path.join(os.path.dirname(self.name), name), None, None)  # noqa: PTH118, PTH120


class _LinkMet(Exception):
    """A part of a path is a symbolic link."""


@contextmanager
def spot(
    root: str, parts: tuple[str, ...], *, make: bool = False, follow: bool = True
) -> Generator[Spot, None, None]:
    """Where a path leads, with the folder kept open, so that nothing can be put in between.

    Refused where it leads out. `make` makes the folders on the way; without `follow` a link is
    itself what is meant, though it may not lead out either. OSError where the way ends.
    """
    try:
        found = _walked(root, parts, make, follow)
    except _LinkMet:
        parts = inside(root, parts if follow else parts[:-1]) + (() if follow else parts[-1:])
        try:
            found = replace(_walked(root, parts, make, follow), target=parts)
        except _LinkMet:
            raise Refused(
                f'"{visible("/".join(parts))}" is a symbolic link that was changed, or leads in a '
                "circle."
            ) from None
    try:
        if found.is_link:
            inside(root, parts)
        yield found
    finally:
        if found.folder is not None:
            os.close(found.folder)


def inside(root: str, parts: tuple[str, ...]) -> tuple[str, ...]:
    """The parts of what a path leads to through its links; Refused outside the folder."""
    real = Path(os.path.realpath(root))
    target = Path(os.path.realpath(real.joinpath(*parts)))
    if not target.is_relative_to(real):
        raise Refused(
            f'"{visible("/".join(parts))}" leads out of this folder through a symbolic link.',
            hint="Only what is inside can be reached.",
            name="/".join(parts),
        )
    return target.relative_to(real).parts


if _BY_HANDLE:

    def _walked(root: str, parts: tuple[str, ...], make: bool, follow: bool) -> Spot:
        folder = _opened_root(root, make)
        try:
            for part in parts[:-1]:
                folder, above = _descended(folder, part, make), folder
                os.close(above)
            last = Spot(parts[-1] if parts else ".", folder, None)
            return _not_to_follow(_spelled(last, make), follow)
        except BaseException:
            os.close(folder)
            raise

    def _opened_root(root: str, make: bool) -> int:
        try:
            return os.open(root, _FOLDER)
        except FileNotFoundError:
            if not make:
                raise
        make_folders(root)
        return os.open(root, _FOLDER)

    def _descended(folder: int, part: str, make: bool) -> int:
        found = _spelled(Spot(part, folder, None), make)
        if found.is_link:
            raise _LinkMet
        if found.found is None and make:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
            sync_folder(folder)
        return os.open(part, _FOLDER | NO_FOLLOW, dir_fd=folder)

else:

    def _walked(root: str, parts: tuple[str, ...], make: bool, follow: bool) -> Spot:
        real = os.path.realpath(root)
        for depth in range(1, len(parts)):
            above = _spelled(Spot(os.path.join(real, *parts[:depth]), None, None), make)  # noqa: PTH118
            if above.is_link:
                raise _LinkMet
            if not above.is_folder and above.found is not None:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if make:
            make_folders(os.path.join(real, *parts[:-1]))  # noqa: PTH118
        last = Spot(os.path.join(real, *parts), None, None)  # noqa: PTH118
        return _not_to_follow(_spelled(last, make), follow)


def _not_to_follow(found: Spot, follow: bool) -> Spot:
    if found.is_link and follow:
        raise _LinkMet
    return found


def make_folders(path: str) -> None:
    """With those above; they survive a power cut as what is put into them does."""
    try:
        os.mkdir(path)  # noqa: PTH102
    except FileNotFoundError as error:
        above = Path(path).parent
        # Some systems say so of a folder that nobody may make, as of one in /proc.
        if above.is_dir() or above == Path(path):
            raise Refused(
                f'The folder "{path}" cannot be made: the system does not allow it there.',
                hint="Choose another folder.",
            ) from error
        make_folders(str(above))
        make_folders(path)
    except FileExistsError:
        if not Path(path).is_dir():
            raise
    else:
        _sync_above(path)


def _sync_above(path: str) -> None:
    if _BY_HANDLE:
        with suppress(OSError):  # a folder that we may not look into
            above = os.open(Path(path).parent, _FOLDER)
            sync_folder(above)
            os.close(above)


def status(where: Spot) -> os.stat_result | None:
    try:
        return os.stat(where.name, dir_fd=where.folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _spelled(where: Spot, make: bool) -> Spot:
    """With what is there, which must have the very name that was asked for.

    Where case or accents do not count, one file could be reached under two names, and what is kept
    by name, as an ETag or an index is, would miss a change. So another spelling is as absent as it
    is on systems where they count, and cannot be made beside the first.
    """
    found = status(where)
    name = os.path.basename(where.name)  # noqa: PTH119
    if found is None or name == "." or not _is_loose(where, name, found):
        return Spot(where.name, where.folder, found)
    true = _true_name(where, name, found)
    if true == name:
        return Spot(where.name, where.folder, found)
    if make:
        raise Conflict(
            f'"{name}" cannot be made: "{true}" is there, and this folder does not tell them apart.'
        )
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _is_loose(where: Spot, name: str, found: os.stat_result) -> bool:
    """Whether another spelling leads to the same file."""
    others = {name.swapcase()}
    if not name.isascii():
        others |= {unicodedata.normalize(form, name) for form in ("NFC", "NFD")}
    for other in others - {name}:
        same = status(where.beside(other))
        if same is not None and os.path.samestat(same, found):
            return True
    # A short name that Windows made up has no letters in another case, perhaps.
    return sys.platform == "win32" and "~" in name


def _true_name(where: Spot, name: str, found: os.stat_result) -> str:
    if sys.platform == "win32":
        return os.path.basename(os.path.realpath(where.name))  # noqa: PTH119
    if sys.platform == "darwin":
        import fcntl

        file = os.open(where.name, os.O_RDONLY | NO_WAIT | NO_FOLLOW, dir_fd=where.folder)
        try:
            path = fcntl.fcntl(file, fcntl.F_GETPATH, bytes(1024))
        finally:
            os.close(file)
        return os.path.basename(path.rstrip(b"\0").decode())  # noqa: PTH119
    listed = {entry.name: entry.inode() for entry in scanned(where.folder or ".")}
    if name in listed:
        return name
    return next((other for other, inode in listed.items() if inode == found.st_ino), name)


def scanned(folder: int | str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)


def retried(step: Callable[[], T]) -> T:
    """Windows refuses to replace or remove a file while another program looks into it."""
    if sys.platform == "win32":
        for _ in range(_TRIES):
            with suppress(PermissionError):
                return step()
            time.sleep(_NAP)
    return step()


def rename_new(source: Spot, target: Spot) -> None:
    """In one step; FileExistsError where the target is, even one that came this moment."""
    if source.folder is not None and target.folder is not None and (rename := _exclusive_rename()):
        problem = rename(source.folder, source.name, target.folder, target.name)
        if problem == 0:
            return
        if problem not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(problem, os.strerror(problem))
    if status(target) is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    rename_over(source, target)


def rename_over(source: Spot, target: Spot) -> None:
    retried(
        lambda: os.rename(
            source.name, target.name, src_dir_fd=source.folder, dst_dir_fd=target.folder
        )
    )


def _exclusive_rename() -> Callable[[int, str, int, str], int] | None:
    """The system's own, which answers with an error number; None where it has none."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    name, flag = ("renameatx_np", 4) if sys.platform == "darwin" else ("renameat2", 1)
    function = getattr(library, name, None)
    if function is None:
        return None

    def rename(source: int, old: str, target: int, new: str) -> int:
        done = function(source, os.fsencode(old), target, os.fsencode(new), flag)
        return 0 if done == 0 else ctypes.get_errno()

    return rename


def failure(error: OSError, path: str, *, root: str, writing: bool) -> EverkeptError:
    """What a failed system call means to whoever asked for the path; without one, for the root."""
    shown = visible(path or root)
    reason = error.strerror or type(error).__name__
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageFull(
            f'"{shown}" could not be written: {reason}.', hint="Make room, then try again."
        )
    if isinstance(error, FileExistsError) or error.errno == errno.ENOTEMPTY:
        return Conflict(f'"{shown}" exists already.')
    if isinstance(error, NotADirectoryError | IsADirectoryError):
        if writing:
            return Conflict(f'"{shown}" cannot be written: {reason}.')
        return NotFound("file", shown)
    if isinstance(error, FileNotFoundError):
        return NotFound("file", shown)
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return Refused(f'"{shown}" cannot be used: {reason}.')
    if error.errno == errno.EROFS or isinstance(error, PermissionError):
        return _denied(error, shown, reason, writing)
    return Unavailable(f'"{shown}" could not be {"written" if writing else "read"}: {reason}.')


def _denied(error: OSError, shown: str, reason: str, writing: bool) -> EverkeptError:
    if getattr(error, "winerror", None) == _IN_USE:
        return Unavailable(f'"{shown}" is used by another program.', hint="Close it there.")
    kind = ReadOnly if writing else Refused
    verb = "changed" if writing else "read"
    hint = "Look at its permissions."
    if error.errno == errno.EROFS:
        hint = "Its file system is mounted for reading only: mount it for writing."
    return kind(f'"{shown}" may not be {verb}: {reason}.', hint=hint)


async def in_thread(
    function: Callable[..., T], *arguments: Any, on_cancel: Callable[[], None] | None = None
) -> T:
    """Return a blocking function's result; the function has returned when this does.

    A coroutine that is driven in a thread already calls the function there. A canceled caller runs
    `on_cancel`, then waits for the function to return.
    """
    if not is_on_event_loop():
        return function(*arguments)
    work = asyncio.get_running_loop().run_in_executor(None, function, *arguments)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if on_cancel is not None:
            on_cancel()
        await finished(work)
        raise
