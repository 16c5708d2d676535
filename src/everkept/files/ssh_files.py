"""Files in a folder of another machine, over SFTP."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import TypeVar, cast

import asyncssh

from everkept.core.files import FileInfo, FileWork, FolderSurvey, is_name
from everkept.core.runtime import wait_finished
from everkept.core.text import format_count
from everkept.errors import Conflict, EverkeptError, InvalidInput, NotFound, StorageFull
from everkept.files.lease_lock import FolderLocks, LockTerms
from everkept.files.local_disk import (
    ABANDONED_SECONDS,
    OTHER_NAME_HINT,
    build_exists_error,
    build_folder_error,
    build_irregular_error,
    build_missing_error,
    build_protected_error,
    check_size,
    is_working_file,
    split_entry_path,
    split_reachable,
)
from everkept.files.ssh_connection import TAKEN_ERRORS, SftpSession, SshConnection
from everkept.files.ssh_requests import (
    EntryRemover,
    FileAppender,
    FileWriter,
    RemoteEntry,
    SshLockFiles,
    build_info,
    find_reason,
    is_file_or_folder,
    is_link,
    locate,
    locate_entry,
    make_folders,
    run_with_folder,
    sweep,
    translate_error,
)

Result = TypeVar("Result")
SessionWork = Callable[[SftpSession, bool], Awaitable[Result]]
PathParts = tuple[str, ...]

_WRITE_PERMISSIONS = 0o222


class SshFiles:
    """FileStore over one shared connection. Every call is complete when it returns.

    Differences from a folder of this machine:

    - Times are known to the second.
    - A file is flushed to disk only if the server supports fsync@openssh.com. The server's system decides when the
      name of the file in its folder is flushed.
    - A server whose disk ignores case is not detected.
    """

    def __init__(self, connection: SshConnection, path: str, terms: LockTerms) -> None:
        self._connection = connection
        self._address = f"ssh://{connection.place}{path.replace('%', '%25')}"
        self._root = _to_server_path(path)
        lock_files = SshLockFiles(connection, self._root, terms.now)
        self._locks = FolderLocks(lock_files, self._address, terms)
        self._swept: set[str] = set()

    @property
    def address(self) -> str:
        return self._address

    @property
    def is_remote(self) -> bool:
        return True

    async def read(self, path: str, *, start: int = 0) -> bytes:
        parts = split_entry_path(path)

        async def work(session: SftpSession, again: bool) -> bytes:
            spot = await locate(session, self._root, parts)
            if spot.attributes is None or spot.is_folder:
                raise build_missing_error("file", path)
            _check_ordinary(spot)
            check_size(path, spot.attributes.size or 0)
            return await session.read(spot.path, start)

        return await self._run(path, work)

    async def write(self, path: str, data: bytes) -> None:
        parts = split_entry_path(path)
        writing = FileWriter(data)

        async def work(session: SftpSession, again: bool) -> None:
            spot = await locate(session, self._root, parts)
            _check_writable(spot)
            await self._sweep(session, spot)
            await self._run_with_space(session, spot, len(data), writing.put(session, spot))

        await self._run_change(path, work)

    async def write_all(self, contents: Mapping[str, bytes]) -> None:
        for path, data in contents.items():
            await self.write(path, data)

    async def append(self, path: str, data: bytes) -> None:
        parts = split_entry_path(path)
        appending = FileAppender(data)

        async def work(session: SftpSession, again: bool) -> None:
            spot = await locate(session, self._root, parts)
            _check_writable(spot)
            await self._run_with_space(session, spot, len(data), appending.add(session, spot))

        await self._run_change(path, work)

    async def read_info(self, path: str = "") -> FileInfo | None:
        parts = split_reachable(path)

        return await self._run(path, lambda session, again: self._read_info(session, parts))

    async def list(self, folder: str = "") -> list[FileInfo]:
        parts = split_reachable(folder)

        async def work(session: SftpSession, again: bool) -> list[FileInfo]:
            return list((await self._scan(session, folder, parts))[0])

        return await self._run(folder, work)

    async def survey(self, folder: str = "", *, with_newest: bool = False) -> FolderSurvey:
        parts = split_reachable(folder)

        async def work(session: SftpSession, again: bool) -> FolderSurvey:
            infos, names = await self._scan(session, folder, parts)
            times = [info.modified_at for info in infos if info.name[0] != "."]
            return FolderSurvey(
                [info.name for info in infos if not info.is_folder],
                [info.name for info in infos if info.is_folder],
                {info.name: info.target for info in infos if info.target is not None},
                sorted(names - {info.name for info in infos}),
                max(times, default=None) if with_newest else None,
            )

        return await self._run(folder, work)

    async def remove(self, path: str) -> None:
        parts = split_entry_path(path)
        removal = EntryRemover()

        async def work(session: SftpSession, again: bool) -> None:
            await removal.remove(session, await self._find_entry(session, parts))

        with suppress(NotFound):
            await self._run_change(path, work)

    async def rename(self, path: str, to: str) -> None:
        parts, new_parts = split_entry_path(path), split_entry_path(to)
        if new_parts[: len(parts)] == parts and new_parts != parts:
            raise InvalidInput(f'"{path}" cannot be moved into itself.', hint="Choose another target.", argument="to")
        renaming = _Rename(path, to)

        async def work(session: SftpSession, again: bool) -> None:
            source = await self._find_entry(session, parts)
            if source.attributes is None and not again:
                raise build_missing_error("file", path)
            await renaming.move(session, source, await self._find_entry(session, new_parts))

        await self._run_change(path, work)

    async def make_folder(self, path: str = "") -> None:
        parts = split_reachable(path)

        async def work(session: SftpSession, again: bool) -> None:
            spot = await locate(session, self._root, parts)
            if spot.attributes is not None and not spot.is_folder:
                raise Conflict(f'"{path}" is a file, not a folder.', hint=OTHER_NAME_HINT)
            await make_folders(session, spot.path)

        await self._run_change(path, work)

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        return self._locks.lock(name)

    async def run_all(self, works: Sequence[FileWork[Result]]) -> Sequence[Result]:
        done = await asyncio.gather(*(work() for work in works), return_exceptions=True)
        for each in done:  # raised after all have finished
            if isinstance(each, BaseException):
                raise each
        return cast(Sequence[Result], done)

    async def run_locked(self, name: str, work: FileWork[Result], undo: FileWork[None] | None = None) -> Result:
        async with self._locks.lock(name):
            try:
                return await wait_finished(work())
            except asyncio.CancelledError:
                if undo is not None:
                    await wait_finished(undo())
                raise

    async def _run_change(self, path: str, work: SessionWork[Result]) -> Result:
        """Run a change to its end, even if the caller is canceled and then releases its locks."""

        async def assured(session: SftpSession, again: bool) -> Result:
            if again:  # connecting may have taken longer than a lease
                await self._locks.ensure_held()
            return await work(session, again)

        await self._locks.ensure_held()
        return await wait_finished(self._run(path, assured, writing=True))

    async def _run(self, path: str, work: SessionWork[Result], *, writing: bool = False) -> Result:
        try:
            return await self._connection.run(work)
        except (asyncssh.SFTPError, FileExistsError) as error:
            host = self._connection.place.host
            raise translate_error(error, host, path, root=self._root, writing=writing) from error

    async def _find_entry(self, session: SftpSession, parts: PathParts) -> RemoteEntry:
        """Return the entry itself, even if it is a link. The link must not lead outside either."""
        spot = await locate_entry(session, self._root, parts)
        if spot.attributes is not None and is_link(spot.attributes):
            await locate(session, self._root, parts)
        return spot

    async def _read_info(self, session: SftpSession, parts: PathParts) -> FileInfo | None:
        spot = await locate(session, self._root, parts)
        if spot.attributes is None or not is_file_or_folder(spot.attributes):
            return None
        return build_info("/".join(parts), spot.attributes, spot.target)

    async def _scan(self, session: SftpSession, folder: str, parts: PathParts) -> tuple[Sequence[FileInfo], set[str]]:
        """Return the reachable entries of a folder, and the names of all entries but internal files."""
        spot = await locate(session, self._root, parts)
        if not spot.is_folder:
            raise build_missing_error("folder", folder or self._address)
        entries = {n: found for n, found in await session.list_entries(spot.path) if not is_working_file(n)}
        infos: list[FileInfo | None] = []
        for name, attributes in entries.items():
            if not is_name(name):
                continue
            if is_link(attributes):
                infos.append(await self._read_link_info(session, spot, (*parts, name)))
            elif is_file_or_folder(attributes):
                infos.append(build_info("/".join((*parts, name)), attributes))
        return sorted(filter(None, infos), key=lambda info: info.path), set(entries)

    async def _read_link_info(self, session: SftpSession, here: RemoteEntry, parts: PathParts) -> FileInfo | None:
        """Return None if the target cannot be reached, or is a folder that contains the link."""
        with suppress(EverkeptError, asyncssh.SFTPFailure, asyncssh.SFTPPermissionDenied):
            target = await locate(session, self._root, parts)
            if target.attributes and not f"{here.path}/".startswith(f"{target.path}/"):
                return await self._read_info(session, parts)
        return None

    async def _sweep(self, session: SftpSession, spot: RemoteEntry) -> None:
        if spot.folder not in self._swept:
            self._swept.add(spot.folder)
            with suppress(asyncssh.SFTPError):  # the folder may not exist before its first file
                await sweep(session, spot.folder, before=int(time.time() - ABANDONED_SECONDS))

    async def _run_with_space(self, session: SftpSession, spot: RemoteEntry, size: int, work: Awaitable[None]) -> None:
        try:
            await work
        except asyncssh.SFTPFailure as error:
            # OpenSSH does not report the reason.
            free = await session.read_free_bytes(spot.folder) if find_reason(error) is None else None
            if free is None or free > size:
                raise
            host = self._connection.place.host
            raise StorageFull(
                f'Cannot write "{spot.name}": {host} has only {format_count(free, "free byte")}.',
                hint="Free disk space there, then try again.",
                host=host,
            ) from None


class _Rename:
    """One rename. It can be repeated after a lost connection."""

    def __init__(self, path: str, to: str) -> None:
        self._path, self._to = path, to
        self._is_under_way = False

    async def move(self, session: SftpSession, source: RemoteEntry, target: RemoteEntry) -> None:
        if self._is_under_way and source.attributes is None and target.attributes is not None:
            return  # done by the first attempt
        if source.attributes is None:
            raise build_missing_error("file", self._path)
        if target.attributes is not None:
            raise build_exists_error(self._to)
        self._is_under_way = True
        try:
            await run_with_folder(session, target.folder, partial(session.rename, source.path, target.path))
        except TAKEN_ERRORS:
            if await session.read_attributes(target.path, follow=False):
                raise build_exists_error(self._to) from None
            raise


def _to_server_path(path: str) -> str:
    """Return the path for the server. `/~` is the user's home folder, where a session begins."""
    if path == "/~" or path.startswith("/~/"):
        return path[3:] or "."
    return path


def _check_ordinary(spot: RemoteEntry) -> None:
    if spot.attributes is not None and not is_file_or_folder(spot.attributes):
        raise build_irregular_error(spot.name)


def _check_writable(spot: RemoteEntry) -> None:
    if spot.is_folder:
        raise build_folder_error(spot.name)
    _check_ordinary(spot)
    permissions = spot.attributes.permissions if spot.attributes else None
    # Replacing a file does not need write permission on it, but respect that it was taken away.
    if permissions is not None and not permissions & _WRITE_PERMISSIONS:
        raise build_protected_error(spot.name)
