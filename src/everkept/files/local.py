"""Files in a folder of this machine's disk."""

import os
import shutil
import stat
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, suppress
from contextvars import copy_context
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from everkept.core.disk import sync, sync_folder
from everkept.core.files import MAX_READ_BYTES, FileInfo, FileWork, FolderSurvey, is_name
from everkept.core.runtime import run_without_loop
from everkept.errors import Conflict, EverkeptError, InvalidInput, NotFound, escape_name
from everkept.files import local_disk
from everkept.files.lease_lock import FolderLocks, LockTerms
from everkept.files.local_disk import (
    ABANDONED_SECONDS,
    BINARY,
    NO_FOLLOW,
    NO_WAIT,
    OTHER_NAME_HINT,
    DiskEntry,
    LocalLockFiles,
    build_folder_error,
    build_irregular_error,
    build_missing_error,
    build_protected_error,
    build_temporary_name,
    is_temporary,
    is_working_file,
    open_entry,
    run_in_thread,
    split_entry_path,
    split_reachable,
)

T = TypeVar("T")
PathParts = tuple[str, ...]
FileInfos = list[FileInfo]  # inside the class, `list` is the method


class LocalFiles:
    """FileStore on this machine's disk. Every call is one call into a thread, and complete when it returns.

    A symbolic link to a place inside the folder is followed, except by `remove` and `rename`, which act on the link
    itself.
    """

    def __init__(self, folder: Path, *, terms: LockTerms = LockTerms()) -> None:  # noqa: B008 (frozen)
        self._folder = folder
        self._root = str(folder)
        self._locks = FolderLocks(LocalLockFiles(folder), self._root, terms)
        self._swept: set[PathParts] = set()

    @property
    def address(self) -> str:
        return self._root

    @property
    def is_remote(self) -> bool:
        return False

    async def read(self, path: str, *, start: int = 0) -> bytes:
        return await self._run_read(self._read, path, split_entry_path(path), start)

    async def write(self, path: str, data: bytes) -> None:
        await self.write_all({path: data})

    async def write_all(self, contents: Mapping[str, bytes]) -> None:
        files = [(path, split_entry_path(path), data) for path, data in contents.items()]
        await self._locks.ensure_held()
        await run_in_thread(self._write_files, files)

    async def append(self, path: str, data: bytes) -> None:
        await self._run_change(self._append, path, split_entry_path(path), data)

    async def read_info(self, path: str = "") -> FileInfo | None:
        try:
            return await self._run_read(self._read_info, path, split_reachable(path))
        except NotFound:
            return None

    async def list(self, folder: str = "") -> list[FileInfo]:
        try:
            return await self._run_read(self._list, folder, split_reachable(folder))
        except NotFound:
            raise build_missing_error("folder", folder or self._root) from None

    async def survey(self, folder: str = "", *, with_newest: bool = False) -> FolderSurvey:
        try:
            return await self._run_read(self._survey, folder, split_reachable(folder), with_newest)
        except NotFound:
            raise build_missing_error("folder", folder or self._root) from None

    async def remove(self, path: str) -> None:
        with suppress(NotFound):
            await self._run_change(self._remove, path, split_entry_path(path))

    async def rename(self, path: str, to: str) -> None:
        await self._run_change(self._rename, path, split_entry_path(path), split_entry_path(to))

    async def make_folder(self, path: str = "") -> None:
        await self._run_change(self._make_folder, path, split_reachable(path))

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        return self._locks.lock(name)

    async def run_all(self, works: Sequence[FileWork[T]]) -> Sequence[T]:
        async def run_in_turn() -> Sequence[T]:
            return [await work() for work in works]

        context, run = copy_context(), run_in_turn()
        return await run_in_thread(lambda: context.run(run_without_loop, run))

    async def run_locked(self, name: str, work: FileWork[T], undo: FileWork[None] | None = None) -> T:
        return await self._locks.run_in_thread(name, work, undo)

    async def _run_read(self, step: Callable[..., T], path: str, *arguments: Any) -> T:
        return await run_in_thread(self._run_translated, step, path, False, *arguments)

    async def _run_change(self, step: Callable[..., T], path: str, *arguments: Any) -> T:
        await self._locks.ensure_held()
        return await run_in_thread(self._run_translated, step, path, True, *arguments)

    def _run_translated(self, step: Callable[..., T], path: str, writing: bool, *arguments: Any) -> T:
        try:
            return step(*arguments)
        except OSError as error:
            raise local_disk.translate_error(error, path, root=self._root, writing=writing) from error

    def _read(self, parts: PathParts, start: int) -> bytes:
        with (
            open_entry(self._root, parts) as where,
            _open_file(where, os.O_RDONLY | NO_WAIT) as file,
            open(file, "rb", closefd=False) as reader,
        ):
            # Before it is read, and after: the file may grow.
            local_disk.check_size("/".join(parts), os.fstat(file).st_size)
            reader.seek(start)
            data = reader.read(MAX_READ_BYTES + 1)
            local_disk.check_size("/".join(parts), len(data))
            return data

    def _write_files(self, files: Sequence[tuple[str, PathParts, bytes]]) -> None:
        """Flush all drafts before the first is renamed into place, then sync each folder once.

        The disk flushes them together, and if disk space runs out, nothing has changed.
        """
        drafts: dict[str, _Draft] = {}
        folders: dict[PathParts, int | None] = {}
        with ExitStack() as stack:
            for path, parts, data in files:
                draft = stack.enter_context(self._open_draft(path, parts, data))
                drafts[path] = draft
                folders[(draft.where.target or parts)[:-1]] = draft.where.folder
            for path, draft in drafts.items():
                self._run_translated(draft.flush, path, True)
            for path, draft in drafts.items():
                self._run_translated(draft.put_in_place, path, True)
            for folder in folders.values():
                sync_folder(folder)

    @contextmanager
    def _open_draft(self, path: str, parts: PathParts, data: bytes) -> "Generator[_Draft, None, None]":
        try:
            with open_entry(self._root, parts, make=True) as where:
                self._sweep(parts[:-1], where)
                _check_writable(where)
                draft = _Draft(where)
                try:
                    draft.fill(data)
                    yield draft
                finally:
                    draft.discard()
        except OSError as error:
            raise local_disk.translate_error(error, path, root=self._root, writing=True) from error

    def _append(self, parts: PathParts, data: bytes) -> None:
        with open_entry(self._root, parts, make=True) as where:
            _check_writable(where)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | NO_WAIT
            with _open_file(where, flags) as file:
                before = os.fstat(file).st_size
                try:
                    _write_all(file, data)
                except OSError:
                    os.ftruncate(file, before)  # no space for all of it, so keep none of it
                    raise

    def _read_info(self, parts: PathParts) -> FileInfo | None:
        with open_entry(self._root, parts) as where:
            target = None if where.target is None else "/".join(where.target)
            return _build_info("/".join(parts), where.found, target)

    def _list(self, parts: PathParts) -> FileInfos:
        prefix = "".join(f"{part}/" for part in parts)
        found: list[FileInfo] = []
        with _open_folder(self._root, parts) as folder, os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if is_working_file(name) or not is_name(name):
                    continue
                try:
                    if entry.is_symlink():
                        info = self._read_link_info((*parts, name))
                    else:
                        info = _build_info(prefix + name, entry.stat(follow_symlinks=False))
                except FileNotFoundError:  # removed since it was listed
                    continue
                if info:
                    found.append(info)
        found.sort(key=attrgetter("path"))
        return found

    def _survey(self, parts: PathParts, with_newest: bool) -> FolderSurvey:
        files: list[str] = []
        folders: list[str] = []
        links: dict[str, str] = {}
        unreachable: list[str] = []
        newest = 0
        with _open_folder(self._root, parts) as folder, os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if is_working_file(name):
                    continue
                info = None
                if not is_name(name):
                    place = unreachable
                elif entry.is_symlink():
                    info = self._read_link_info((*parts, name))
                    place = unreachable if info is None else folders if info.is_folder else files
                    if info:
                        links[name] = info.target or ""
                elif entry.is_file(follow_symlinks=False):
                    place = files
                else:
                    place = folders if entry.is_dir(follow_symlinks=False) else unreachable
                if with_newest and place is not unreachable and name[0] != ".":
                    try:
                        own = info.modified_at if info else entry.stat(follow_symlinks=False).st_mtime_ns // 1000
                    except FileNotFoundError:  # removed since it was listed
                        continue
                    newest = max(newest, own)
                place.append(name)
        for names in (files, folders, unreachable):
            names.sort()
        return FolderSurvey(files, folders, links, unreachable, newest or None)

    def _read_link_info(self, parts: PathParts) -> FileInfo | None:
        """Return None if the target cannot be reached, or is a folder that contains the link."""
        with suppress(EverkeptError):
            target = local_disk.resolve_inside(self._root, parts)
            here = local_disk.resolve_inside(self._root, parts[:-1])
            return None if here[: len(target)] == target else self._read_info(parts)
        return None

    def _remove(self, parts: PathParts) -> None:
        with _open_existing(self._root, parts) as where:
            if not where.is_folder:
                local_disk.retry_in_use(lambda: os.unlink(where.name, dir_fd=where.folder))
            else:
                # Hidden in one step, because its content is removed one by one.
                hidden = where.with_name(build_temporary_name("removed"))
                local_disk.rename_over(where, hidden)
                shutil.rmtree(hidden.name, dir_fd=hidden.folder)
            sync_folder(where.folder)

    def _rename(self, parts: PathParts, to: PathParts) -> None:
        if to[: len(parts)] == parts and to != parts:
            shown = escape_name("/".join(parts))
            raise InvalidInput(f'"{shown}" cannot be moved into itself.', hint="Choose another target.", argument="to")
        with _open_existing(self._root, parts) as source:
            try:
                with self._open_target(parts, to) as target:
                    move = local_disk.rename_over if _is_respelled(source, target) else local_disk.rename_new
                    move(source, target)
                    sync_folder(target.folder)
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                raise Conflict(
                    f'"{escape_name("/".join(to))}", or a file in its path, already exists.', hint=OTHER_NAME_HINT
                ) from None
            sync_folder(source.folder)

    @contextmanager
    def _open_target(self, parts: PathParts, to: PathParts) -> Generator[DiskEntry, None, None]:
        """Open the target under its new name, even if the folder ignores case and the old name matches it."""
        if parts[:-1] == to[:-1] and parts[-1].casefold() == to[-1].casefold():
            with open_entry(self._root, parts, follow=False) as source:
                target = source.with_name(to[-1])
                yield DiskEntry(target.name, target.folder, local_disk.read_status(target))
        else:
            with open_entry(self._root, to, make=True, follow=False) as target:
                yield target

    def _make_folder(self, parts: PathParts) -> None:
        if not parts:
            local_disk.make_folders(self._root)
            return
        with open_entry(self._root, parts, make=True) as where:
            if where.found is None:
                os.mkdir(where.name, dir_fd=where.folder)
                sync_folder(where.folder)
            elif not where.is_folder:
                raise Conflict(f'"{escape_name("/".join(parts))}" is a file, not a folder.', hint=OTHER_NAME_HINT)

    def _sweep(self, parts: PathParts, where: DiskEntry) -> None:
        """Remove temporary files of dead writers, once for each folder."""
        if parts in self._swept:
            return
        self._swept.add(parts)
        folder = where.folder if where.folder is not None else str(Path(where.name).parent)
        for entry in local_disk.scan_folder(folder):
            if is_temporary(entry.name):
                with suppress(OSError):
                    _sweep_entry(entry, where.with_name(entry.name))


@contextmanager
def _open_existing(root: str, parts: PathParts) -> Generator[DiskEntry, None, None]:
    """Open a file, a folder or a link itself. Raise NotFound if it, or a folder in its path, does not exist."""
    try:
        with open_entry(root, parts, follow=False) as where:
            if where.found is not None:
                yield where
                return
    except NotADirectoryError:
        pass
    raise build_missing_error("file", "/".join(parts))


@contextmanager
def _open_file(where: DiskEntry, flags: int) -> Generator[int, None, None]:
    file = os.open(where.name, flags | NO_FOLLOW | BINARY, 0o666, dir_fd=where.folder)
    try:
        mode = os.fstat(file).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError
        if not stat.S_ISREG(mode):
            raise build_irregular_error(Path(where.name).name)
        yield file
    finally:
        os.close(file)


@contextmanager
def _open_folder(root: str, parts: PathParts) -> Generator[int | str, None, None]:
    with open_entry(root, parts) as where:
        if not where.is_folder:
            raise NotADirectoryError
        if where.folder is None:
            yield where.name
            return
        flags = os.O_RDONLY | os.O_DIRECTORY | NO_FOLLOW
        folder = os.open(where.name, flags, dir_fd=where.folder)
        try:
            yield folder
        finally:
            os.close(folder)


def _check_writable(where: DiskEntry) -> None:
    if where.found is None:
        return
    name = Path(where.name).name
    if where.is_folder:
        raise build_folder_error(name)
    if not stat.S_ISREG(where.found.st_mode):
        raise build_irregular_error(name)
    # Replacing a file does not need write permission on it, but respect that it was taken away.
    if not os.access(where.name, os.W_OK, dir_fd=where.folder):
        raise build_protected_error(name)


def _find_unused(where: DiskEntry) -> DiskEntry:
    while True:
        fresh = where.with_name(build_temporary_name(Path(where.name).name))
        if local_disk.read_status(fresh) is None:
            return fresh


class _Draft:
    """The new content of a file, in a temporary file beside it until it is renamed into place."""

    def __init__(self, where: DiskEntry) -> None:
        self.where = where
        self._fresh = _find_unused(where)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | BINARY
        self._file = os.open(self._fresh.name, flags, 0o666, dir_fd=self._fresh.folder)
        self._is_open, self._is_in_place = True, False

    def fill(self, data: bytes) -> None:
        if self.where.found is not None:
            _keep_rights(self._file, self._fresh, self.where.found)
        _write_all(self._file, data)

    def flush(self) -> None:
        sync(self._file)
        self._close()  # Windows does not rename an open file

    def put_in_place(self) -> None:
        fresh, where = self._fresh, self.where
        local_disk.retry_in_use(
            lambda: os.replace(fresh.name, where.name, src_dir_fd=fresh.folder, dst_dir_fd=where.folder)
        )
        self._is_in_place = True

    def discard(self) -> None:
        """Remove the temporary file, unless it is in place."""
        self._close()
        if not self._is_in_place:
            with suppress(OSError):
                os.unlink(self._fresh.name, dir_fd=self._fresh.folder)

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self._file)


def _keep_rights(file: int, fresh: DiskEntry, old: os.stat_result) -> None:
    """Copy permissions and, if allowed, the owner from the file that is replaced."""
    if fresh.folder is None:
        return
    new = os.fstat(file)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        with suppress(PermissionError):
            os.fchown(file, old.st_uid, old.st_gid)
    if stat.S_IMODE(new.st_mode) != stat.S_IMODE(old.st_mode):
        os.fchmod(file, stat.S_IMODE(old.st_mode))


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _build_info(path: str, found: os.stat_result | None, target: str | None = None) -> FileInfo | None:
    if found is None:
        return None
    is_folder = stat.S_ISDIR(found.st_mode)
    if not is_folder and not stat.S_ISREG(found.st_mode):
        return None
    size = 0 if is_folder else found.st_size
    return FileInfo(path, size, found.st_mtime_ns // 1000, is_folder, target)


def _is_respelled(source: DiskEntry, target: DiskEntry) -> bool:
    """Return whether both are the same entry and the new name differs only in case."""
    if source.found is None or target.found is None or source.name == target.name:
        return False
    is_one = source.is_folder or source.found.st_nlink == 1  # two hard links are two entries
    return is_one and os.path.samestat(source.found, target.found)


def _sweep_entry(entry: os.DirEntry[str], where: DiskEntry) -> None:
    if time.time() - entry.stat(follow_symlinks=False).st_mtime < ABANDONED_SECONDS:
        return
    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(where.name, dir_fd=where.folder)
    else:
        os.unlink(where.name, dir_fd=where.folder)
