"""The disk of this machine: its system calls, and the internal files of a store."""

import asyncio
import errno
import os
import re
import secrets
import stat
import sys
import time
import unicodedata
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from everkept.core.disk import sync_folder
from everkept.core.files import MAX_READ_BYTES, parse_path
from everkept.core.runtime import is_on_event_loop, wait_finished
from everkept.core.text import format_count
from everkept.errors import Conflict, EverkeptError, NotFound, ReadOnly, Refused, StorageFull, Unavailable, escape_name
from everkept.values import Value, replace

T = TypeVar("T")

# A flag that the system lacks has no effect.
BINARY = getattr(os, "O_BINARY", 0)
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # opening a pipe would block
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_SUPPORTS_HANDLES = os.open in os.supports_dir_fd
_IN_USE_ERROR = 32  # Windows: another program has the file open
_MAX_TRIES, _PAUSE_SECONDS = 50, 0.002


class DiskEntry(Value):
    """An entry of an open folder: `name` in `folder`, or a whole path on systems without folder handles.

    If links were followed, `target` has the parts of the path that they lead to.
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

    def with_name(self, name: str) -> "DiskEntry":
        if self.folder is not None:
            return DiskEntry(name, self.folder, None)
        return DiskEntry(os.path.join(os.path.dirname(self.name), name), None, None)  # noqa: PTH118, PTH120


class _LinkFound(Exception):
    """Raised if a part of a path is a symbolic link."""


@contextmanager
def open_entry(
    root: str, parts: tuple[str, ...], *, make: bool = False, follow: bool = True
) -> Generator[DiskEntry, None, None]:
    """Yield the entry at a path, with its folder kept open so that no other program can replace it.

    `make` creates missing folders. Without `follow`, a link at the end of the path is the entry itself. Raise Refused
    if the path or a link leads outside, and OSError if a folder is missing.
    """
    try:
        found = _walk_path(root, parts, make, follow)
    except _LinkFound:
        parts = resolve_inside(root, parts if follow else parts[:-1]) + (() if follow else parts[-1:])
        try:
            found = replace(_walk_path(root, parts, make, follow), target=parts)
        except _LinkFound:
            raise Refused(
                f'"{escape_name("/".join(parts))}" is a symbolic link that was just changed, or leads in a circle.',
                hint="Fix or remove the link.",
            ) from None
    try:
        if found.is_link:
            resolve_inside(root, parts)
        yield found
    finally:
        if found.folder is not None:
            os.close(found.folder)


def resolve_inside(root: str, parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the parts of the path that the links lead to. Raise Refused if it is outside the folder."""
    real = Path(os.path.realpath(root))
    target = Path(os.path.realpath(real.joinpath(*parts)))
    if not target.is_relative_to(real):
        raise Refused(
            f'"{escape_name("/".join(parts))}" uses a symbolic link to a place outside this folder.',
            hint="Use a file inside the folder.",
            name="/".join(parts),
        )
    return target.relative_to(real).parts


if _SUPPORTS_HANDLES:

    def _walk_path(root: str, parts: tuple[str, ...], make: bool, follow: bool) -> DiskEntry:
        folder = _open_root(root, make)
        try:
            for part in parts[:-1]:
                folder, above = _descend(folder, part, make), folder
                os.close(above)
            last = DiskEntry(parts[-1] if parts else ".", folder, None)
            return _refuse_link(_check_spelling(last, make), follow)
        except BaseException:
            os.close(folder)
            raise

    def _open_root(root: str, make: bool) -> int:
        try:
            return os.open(root, _FOLDER_FLAGS)
        except FileNotFoundError:
            if not make:
                raise
        make_folders(root)
        return os.open(root, _FOLDER_FLAGS)

    def _descend(folder: int, part: str, make: bool) -> int:
        found = _check_spelling(DiskEntry(part, folder, None), make)
        if found.is_link:
            raise _LinkFound
        if found.found is None and make:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
            sync_folder(folder)
        return os.open(part, _FOLDER_FLAGS | NO_FOLLOW, dir_fd=folder)

else:

    def _walk_path(root: str, parts: tuple[str, ...], make: bool, follow: bool) -> DiskEntry:
        real = os.path.realpath(root)
        for depth in range(1, len(parts)):
            above = _check_spelling(DiskEntry(os.path.join(real, *parts[:depth]), None, None), make)  # noqa: PTH118
            if above.is_link:
                raise _LinkFound
            if not above.is_folder and above.found is not None:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if make:
            make_folders(os.path.join(real, *parts[:-1]))  # noqa: PTH118
        last = DiskEntry(os.path.join(real, *parts), None, None)  # noqa: PTH118
        return _refuse_link(_check_spelling(last, make), follow)


def _refuse_link(found: DiskEntry, follow: bool) -> DiskEntry:
    if found.is_link and follow:
        raise _LinkFound
    return found


def make_folders(path: str) -> None:
    """Create a folder and its parents. They survive a power cut like the files in them."""
    try:
        os.mkdir(path)  # noqa: PTH102
    except FileNotFoundError as error:
        above = Path(path).parent
        # Some systems report this for folders that no one may create, for example in /proc.
        if above.is_dir() or above == Path(path):
            raise Refused(
                f'Cannot create folder "{path}": the system does not allow it there.', hint="Choose another folder."
            ) from error
        make_folders(str(above))
        make_folders(path)
    except FileExistsError:
        if not Path(path).is_dir():
            raise
    else:
        _sync_above(path)


def _sync_above(path: str) -> None:
    if _SUPPORTS_HANDLES:
        with suppress(OSError):  # a folder that we may not open
            above = os.open(Path(path).parent, _FOLDER_FLAGS)
            sync_folder(above)
            os.close(above)


def read_status(where: DiskEntry) -> os.stat_result | None:
    try:
        return os.stat(where.name, dir_fd=where.folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _check_spelling(where: DiskEntry, make: bool) -> DiskEntry:
    """Return the entry if it exists under exactly this name.

    If a folder ignores case or accents, one file has several names. Data kept by name, such as an ETag or an index,
    would then miss a change. So another spelling counts as missing, and cannot be created beside the first.
    """
    found = read_status(where)
    name = os.path.basename(where.name)  # noqa: PTH119
    if found is None or name == "." or not _has_other_spelling(where, name, found):
        return DiskEntry(where.name, where.folder, found)
    true = _find_true_name(where, name, found)
    if true == name:
        return DiskEntry(where.name, where.folder, found)
    if make:
        raise Conflict(
            f'Cannot create "{name}": "{true}" exists, and this folder does not distinguish the two names.',
            hint=OTHER_NAME_HINT,
        )
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _has_other_spelling(where: DiskEntry, name: str, found: os.stat_result) -> bool:
    """Return whether another spelling leads to the same file."""
    others = {name.swapcase()}
    if not name.isascii():
        others |= {unicodedata.normalize(form, name) for form in ("NFC", "NFD")}
    for other in others - {name}:
        same = read_status(where.with_name(other))
        if same is not None and os.path.samestat(same, found):
            return True
    # A short name made by Windows may have no letters to change the case of.
    return sys.platform == "win32" and "~" in name


def _find_true_name(where: DiskEntry, name: str, found: os.stat_result) -> str:
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
    listed = {entry.name: entry.inode() for entry in scan_folder(where.folder or ".")}
    if name in listed:
        return name
    return next((other for other, inode in listed.items() if inode == found.st_ino), name)


def scan_folder(folder: int | str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)


def retry_in_use(step: Callable[[], T]) -> T:
    """Run a step. On Windows, retry it while another program has the file open."""
    if sys.platform == "win32":
        for _ in range(_MAX_TRIES):
            with suppress(PermissionError):
                return step()
            time.sleep(_PAUSE_SECONDS)
    return step()


def rename_new(source: DiskEntry, target: DiskEntry) -> None:
    """Rename in one step. Raise FileExistsError if the target exists, even if it was created just now."""
    if source.folder is not None and target.folder is not None and (rename := _load_exclusive_rename()):
        problem = rename(source.folder, source.name, target.folder, target.name)
        if problem == 0:
            return
        if problem not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(problem, os.strerror(problem))
    if read_status(target) is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    rename_over(source, target)


def rename_over(source: DiskEntry, target: DiskEntry) -> None:
    retry_in_use(lambda: os.rename(source.name, target.name, src_dir_fd=source.folder, dst_dir_fd=target.folder))


def _load_exclusive_rename() -> Callable[[int, str, int, str], int] | None:
    """Return the system's function, which returns an error number, or None if there is none."""
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


def translate_error(error: OSError, path: str, *, root: str, writing: bool) -> EverkeptError:
    """Return our error for a failed system call on a path; "" means the root."""
    shown = escape_name(path or root)
    reason = error.strerror or type(error).__name__
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageFull(f'Cannot write "{shown}": {reason}.', hint="Free disk space, then try again.")
    if isinstance(error, FileExistsError) or error.errno == errno.ENOTEMPTY:
        return build_exists_error(shown)
    if writing and isinstance(error, NotADirectoryError | IsADirectoryError):
        return Conflict(f'Cannot write "{shown}": {reason}.', hint=OTHER_NAME_HINT)
    if isinstance(error, NotADirectoryError | IsADirectoryError | FileNotFoundError):
        return build_missing_error("file", shown)
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return Refused(f'Cannot use "{shown}": {reason}.', hint=OTHER_NAME_HINT)
    if getattr(error, "winerror", None) == _IN_USE_ERROR:
        return Unavailable(f'"{shown}" is in use by another program.', hint="Close it in that program.")
    sentence = f'Cannot {"write" if writing else "read"} "{shown}": {reason}.'
    if error.errno == errno.EROFS or isinstance(error, PermissionError):
        hint = "Mount its file system for writing." if error.errno == errno.EROFS else "Check its permissions."
        return (ReadOnly if writing else Refused)(sentence, hint=hint)
    return Unavailable(sentence)


OTHER_NAME_HINT = "Choose another name."


def build_missing_error(kind: str, name: str) -> NotFound:
    return NotFound(kind, name, hint="Check the path.")


def build_exists_error(name: str) -> Conflict:
    return Conflict(f'"{name}" already exists.', hint=OTHER_NAME_HINT)


def build_folder_error(name: str) -> Conflict:
    return Conflict(f'"{escape_name(name)}" is a folder, not a file.', hint=OTHER_NAME_HINT)


def build_irregular_error(name: str) -> Refused:
    return Refused(f'"{escape_name(name)}" is not a regular file.', hint=OTHER_NAME_HINT)


def build_lock_file_error(name: str) -> Refused:
    return Refused(
        f'The lock file "{escape_name(name)}" is not a regular file.',
        hint="Delete it. It may have come with the repository.",
        name=name,
    )


def check_size(name: str, size: int) -> None:
    """Raise Refused for a file that is too large to read into memory."""
    if size > MAX_READ_BYTES:
        raise Refused(
            f'"{escape_name(name)}" has {format_count(size, "byte")}; it must have at most {MAX_READ_BYTES:,}.',
            hint="Split the file, or move it to another folder.",
            size=size,
            limit=MAX_READ_BYTES,
        )


def build_protected_error(name: str) -> ReadOnly:
    return ReadOnly(f'"{escape_name(name)}" is write-protected.', hint="Change its permissions to write to it.")


async def run_in_thread(function: Callable[..., T], *arguments: Any, on_cancel: Callable[[], None] | None = None) -> T:
    """Return a blocking function's result; the function has returned when this does.

    If the coroutine is already driven in a thread, it calls the function there. A canceled caller runs `on_cancel`,
    then waits for the function to return.
    """
    if not is_on_event_loop():
        return function(*arguments)
    work = asyncio.get_running_loop().run_in_executor(None, function, *arguments)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if on_cancel is not None:
            on_cancel()
        await wait_finished(work)
        raise


# 14 bytes longer than the name itself; `core/files.py` reserves 15.
_TEMPORARY_NAME = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
_LOCK_FILE_NAME = re.compile(r"\.everkept-[a-z0-9-]+(\.[0-9a-f]+)?\.lock")
LOCK_NAME = re.compile(r"[a-z0-9-]{1,40}")
ABANDONED_SECONDS = 3600.0  # an older temporary file has no writer


def build_temporary_name(name: str) -> str:
    """Return the name of a temporary file in the same folder, so that one rename puts it in place."""
    return f".{name}.{secrets.token_hex(4)}.tmp"


def build_lock_name(name: str, after: str | None = None) -> str:
    """Return the name of a lock file, or of the claim that follows the one with the token `after`."""
    return f".everkept-{name}.lock" if after is None else f".everkept-{name}.{after}.lock"


def is_temporary(name: str) -> bool:
    return _TEMPORARY_NAME.fullmatch(name) is not None


def is_working_file(name: str) -> bool:
    return name[:1] == "." and (is_temporary(name) or _LOCK_FILE_NAME.fullmatch(name.lower()) is not None)


def split_reachable(path: str) -> tuple[str, ...]:
    """Split a path. Raise Refused for internal files."""
    parts = parse_path(path)
    if own := next((part for part in parts if is_working_file(part)), None):
        raise Refused(f'"{own}" is an internal file of Everkept.', hint=OTHER_NAME_HINT, name=path)
    return parts


def split_entry_path(path: str) -> tuple[str, ...]:
    """Split a path as `split_reachable` does. Raise Refused for the folder itself."""
    parts = split_reachable(path)
    if not parts:
        raise Refused("The path is empty.", hint="Specify a file or folder inside the folder.")
    return parts


@lru_cache(1)
def get_machine_id() -> str:
    """Return an id that is equal only if process ids refer to the same processes.

    Containers have separate process ids and may share a host name. Process ids also start again with each boot. Both
    therefore count as another machine.
    """
    import socket

    return f"{socket.gethostname()}/{_read_process_namespace()}"


def _read_process_namespace() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot[:8]}-{Path('/proc/self/ns/pid').stat().st_ino:x}"
    except OSError:  # not Linux
        import uuid

        return f"{uuid.getnode():x}"


if sys.platform == "win32":

    def is_running(pid: int) -> bool:
        # On Windows, os.kill would end the process.
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
        except (PermissionError, OverflowError):  # another user's process, or a number that cannot be asked for
            return True
        return True


_MAX_LOCK_BYTES = 4096  # of a lock file, read at most
_NO_LINK_ERRORS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)  # for example from FAT


class LocalLockFiles:
    """LockFiles on this machine's disk."""

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
        return await run_in_thread(self._run_translated, step, path, *arguments)

    def _run_translated(self, step: Callable[..., T], path: str, *arguments: Any) -> T:
        try:
            return step(path, *arguments)
        except OSError as error:
            # Only we know of the lock file: the folder is what cannot be changed.
            raise translate_error(error, "", root=self._root, writing=True) from error


def _create(path: str, content: bytes) -> bool:
    """Create the file together with its content, so that a process that dies leaves no empty file."""
    if os.path.lexists(path):
        return False
    folder, name = os.path.split(path)
    fresh = os.path.join(folder, build_temporary_name(name))  # noqa: PTH118
    try:
        _create_file(fresh, content)
    except FileNotFoundError:
        make_folders(folder)
        _create_file(fresh, content)
    try:
        return _put_in_place(fresh, path, content)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(fresh)  # noqa: PTH108


def _create_file(path: str, content: bytes) -> None:
    file = retry_in_use(lambda: os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, 0o666))
    try:
        os.write(file, content)
    except OSError:
        os.unlink(path)  # noqa: PTH108
        raise
    finally:
        os.close(file)


def _put_in_place(fresh: str, path: str, content: bytes) -> bool:
    try:
        if sys.platform == "win32":  # on Windows, a rename never replaces a file
            retry_in_use(lambda: os.rename(fresh, path))  # noqa: PTH104
        else:
            os.link(fresh, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINK_ERRORS:
            raise
        try:
            _create_file(path, content)
        except FileExistsError:
            return False
    return True


def _read(path: str) -> tuple[bytes, int] | None:
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise build_lock_file_error(os.path.basename(path))  # noqa: PTH119
        file = os.open(path, os.O_RDONLY | NO_FOLLOW | NO_WAIT | BINARY)
    except FileNotFoundError:
        return None
    except PermissionError:
        if sys.platform == "win32":  # it is just being removed
            return None
        raise
    try:
        return os.read(file, _MAX_LOCK_BYTES), os.fstat(file).st_mtime_ns
    finally:
        os.close(file)


def _rewrite(path: str, mark: bytes, content: bytes) -> bool:
    try:
        file = retry_in_use(lambda: os.open(path, os.O_RDWR | NO_FOLLOW | NO_WAIT | BINARY))
    except FileNotFoundError:
        return False
    try:
        if mark not in os.read(file, _MAX_LOCK_BYTES):
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
        retry_in_use(lambda: os.unlink(path))  # noqa: PTH108
    except FileNotFoundError:
        return False
    return True
