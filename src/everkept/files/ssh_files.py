"""Files in a folder of another machine, over SFTP."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import TypeVar, cast

import asyncssh

from everkept.core.files import FileInfo, FileWork, FolderSurvey, is_name
from everkept.core.runtime import finished
from everkept.errors import (
    Conflict,
    EverkeptError,
    InvalidInput,
    NotFound,
    ReadOnly,
    Refused,
    StorageFull,
)
from everkept.files.disk import ABANDONED, is_working_file, reachable_parts
from everkept.files.lease_lock import Locks, Terms
from everkept.files.ssh_connection import TAKEN, SftpSession, SshConnection
from everkept.files.ssh_requests import (
    Append,
    Removal,
    Spot,
    SshLockFiles,
    Write,
    info_of,
    is_file_or_folder,
    is_link,
    located,
    located_entry,
    make_folders,
    reason_of,
    sweep,
    translated,
    with_folder,
)

Result = TypeVar("Result")
Work = Callable[[SftpSession, bool], Awaitable[Result]]
Parts = tuple[str, ...]

_ANY_MAY_WRITE = 0o222


class SshFiles:
    """Implements FileStore over one shared connection; done or undone when a call returns.

    What differs from a folder of this machine: times are known to the second; a file is on the
    platter where the server offers fsync@openssh.com, its name in the folder when the server's
    system puts it there; and a server whose disk does not tell `A` from `a` is not found out.
    """

    def __init__(self, connection: SshConnection, path: str, terms: Terms) -> None:
        self._connection = connection
        self._address = f"ssh://{connection.place}{path.replace('%', '%25')}"
        self._root = _on_server(path)
        lock_files = SshLockFiles(connection, self._root, terms.now)
        self._locks = Locks(lock_files, self._address, terms)
        self._swept: set[str] = set()

    @property
    def address(self) -> str:
        return self._address

    @property
    def is_remote(self) -> bool:
        return True

    async def read(self, path: str, *, start: int = 0) -> bytes:
        parts = _named(path)

        async def work(session: SftpSession, again: bool) -> bytes:
            spot = await located(session, self._root, parts)
            if spot.attributes is None or spot.is_folder:
                raise NotFound("file", path)
            _check_ordinary(spot)
            return await session.read(spot.path, start)

        return await self._asked(path, work)

    async def write(self, path: str, data: bytes) -> None:
        parts = _named(path)
        writing = Write(data)

        async def work(session: SftpSession, again: bool) -> None:
            spot = await located(session, self._root, parts)
            _check_writable(spot)
            await self._sweep(session, spot)
            await self._with_room(session, spot, len(data), writing.put(session, spot))

        await self._changed(path, work)

    async def write_all(self, contents: Mapping[str, bytes]) -> None:
        for path, data in contents.items():
            await self.write(path, data)

    async def append(self, path: str, data: bytes) -> None:
        parts = _named(path)
        appending = Append(data)

        async def work(session: SftpSession, again: bool) -> None:
            spot = await located(session, self._root, parts)
            _check_writable(spot)
            await self._with_room(session, spot, len(data), appending.add(session, spot))

        await self._changed(path, work)

    async def info(self, path: str = "") -> FileInfo | None:
        parts = reachable_parts(path)

        async def work(session: SftpSession, again: bool) -> FileInfo | None:
            return await self._info(session, parts)

        return await self._asked(path, work)

    async def list(self, folder: str = "") -> list[FileInfo]:
        parts = reachable_parts(folder)

        async def work(session: SftpSession, again: bool) -> list[FileInfo]:
            spot = await located(session, self._root, parts)
            if not spot.is_folder:
                raise NotFound("folder", folder or self._address)
            entries = await session.entries(spot.path)
            return list(await self._listed(session, spot, parts, entries))

        return await self._asked(folder, work)

    async def survey(self, folder: str = "", *, with_newest: bool = False) -> FolderSurvey:
        parts = reachable_parts(folder)

        async def work(session: SftpSession, again: bool) -> FolderSurvey:
            spot = await located(session, self._root, parts)
            if not spot.is_folder:
                raise NotFound("folder", folder or self._address)
            entries = await session.entries(spot.path)
            infos = await self._listed(session, spot, parts, entries)
            times = [info.modified_at for info in infos if info.name[0] != "."]
            names = {name for name, _ in entries if not is_working_file(name)}
            return FolderSurvey(
                [info.name for info in infos if not info.is_folder],
                [info.name for info in infos if info.is_folder],
                {info.name: info.target for info in infos if info.target is not None},
                sorted(names - {info.name for info in infos}),
                max(times, default=None) if with_newest else None,
            )

        return await self._asked(folder, work)

    async def remove(self, path: str) -> None:
        parts = _named(path)
        removal = Removal()

        async def work(session: SftpSession, again: bool) -> None:
            await removal.remove(session, await self._entry(session, parts))

        with suppress(NotFound):
            await self._changed(path, work)

    async def rename(self, path: str, to: str) -> None:
        parts, new_parts = _named(path), _named(to)
        if new_parts[: len(parts)] == parts and new_parts != parts:
            raise InvalidInput(f'"{path}" cannot be moved into itself.', argument="to")
        renaming = _Renaming(path, to)

        async def work(session: SftpSession, again: bool) -> None:
            source = await self._entry(session, parts)
            if source.attributes is None and not again:
                raise NotFound("file", path)
            await renaming.move(session, source, await self._entry(session, new_parts))

        await self._changed(path, work)

    async def make_folder(self, path: str = "") -> None:
        parts = reachable_parts(path)

        async def work(session: SftpSession, again: bool) -> None:
            spot = await located(session, self._root, parts)
            if spot.attributes is not None and not spot.is_folder:
                raise Conflict(f'"{path}" is a file, not a folder.')
            await make_folders(session, spot.path)

        await self._changed(path, work)

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        return self._locks.lock(name)

    async def run_all(self, works: Sequence[FileWork[Result]]) -> Sequence[Result]:
        done = await asyncio.gather(*(work() for work in works), return_exceptions=True)
        for each in done:  # none is left under way when another has failed
            if isinstance(each, BaseException):
                raise each
        return cast(Sequence[Result], done)

    async def run_locked(
        self, name: str, work: FileWork[Result], undo: FileWork[None] | None = None
    ) -> Result:
        async with self._locks.lock(name):
            try:
                return await finished(work())
            except asyncio.CancelledError:
                if undo is not None:
                    await finished(undo())
                raise

    async def _asked(self, path: str, work: Work[Result]) -> Result:
        return await self._run(path, work, writing=False)

    async def _changed(self, path: str, work: Work[Result]) -> Result:
        """To its end even for a caller that is cancelled, and lets go of its locks then."""

        async def assured(session: SftpSession, again: bool) -> Result:
            if again:  # opening a connection may have taken longer than a lease
                await self._locks.assure()
            return await work(session, again)

        await self._locks.assure()
        return await finished(self._run(path, assured, writing=True))

    async def _run(self, path: str, work: Work[Result], *, writing: bool) -> Result:
        try:
            return await self._connection.run(work)
        except (asyncssh.SFTPError, FileExistsError) as error:
            host = self._connection.place.host
            raise translated(error, host, path, root=self._root, writing=writing) from error

    async def _entry(self, session: SftpSession, parts: Parts) -> Spot:
        """A link is itself what is meant, though it may not lead out either."""
        spot = await located_entry(session, self._root, parts)
        if spot.attributes is not None and is_link(spot.attributes):
            await located(session, self._root, parts)
        return spot

    async def _info(self, session: SftpSession, parts: Parts) -> FileInfo | None:
        spot = await located(session, self._root, parts)
        if spot.attributes is None or not is_file_or_folder(spot.attributes):
            return None
        return info_of("/".join(parts), spot.attributes, spot.target)

    async def _listed(
        self,
        session: SftpSession,
        folder: Spot,
        parts: Parts,
        entries: Sequence[tuple[str, asyncssh.SFTPAttrs]],
    ) -> Sequence[FileInfo]:
        found: list[FileInfo] = []
        for name, attributes in entries:
            if is_working_file(name) or not is_name(name):
                continue
            if is_link(attributes):
                info = await self._linked(session, folder, (*parts, name))
            elif is_file_or_folder(attributes):
                info = info_of("/".join((*parts, name)), attributes)
            else:
                info = None
            if info:
                found.append(info)
        return sorted(found, key=lambda info: info.path)

    async def _linked(self, session: SftpSession, here: Spot, parts: Parts) -> FileInfo | None:
        """What cannot be reached is no entry, nor is a folder inside itself."""
        with suppress(EverkeptError, asyncssh.SFTPFailure, asyncssh.SFTPPermissionDenied):
            target = await located(session, self._root, parts)
            if target.attributes and not f"{here.path}/".startswith(f"{target.path}/"):
                return await self._info(session, parts)
        return None

    async def _sweep(self, session: SftpSession, spot: Spot) -> None:
        if spot.folder not in self._swept:
            self._swept.add(spot.folder)
            with suppress(asyncssh.SFTPError):  # the folder is made with its first file
                await sweep(session, spot.folder, before=int(time.time() - ABANDONED))

    async def _with_room(
        self, session: SftpSession, spot: Spot, size: int, work: Awaitable[None]
    ) -> None:
        try:
            await work
        except asyncssh.SFTPFailure as error:
            # OpenSSH does not say why.
            free = await session.free_bytes(spot.folder) if reason_of(error) is None else None
            if free is None or free > size:
                raise
            host = self._connection.place.host
            raise StorageFull(
                f'"{spot.name}" could not be written: {host} has {free} bytes of room.',
                hint="Make room there, then try again.",
                host=host,
            ) from None


class _Renaming:
    """One rename. It may be begun again after the connection was lost."""

    def __init__(self, path: str, to: str) -> None:
        self._path, self._to = path, to
        self._is_under_way = False

    async def move(self, session: SftpSession, source: Spot, target: Spot) -> None:
        if self._is_under_way and source.attributes is None and target.attributes is not None:
            return  # by the first try
        if source.attributes is None:
            raise NotFound("file", self._path)
        if target.attributes is not None:
            raise self._taken()
        self._is_under_way = True

        async def rename() -> None:
            await session.rename(source.path, target.path)

        try:
            await with_folder(session, target.folder, rename)
        except TAKEN:
            if await session.attributes(target.path, follow=False):
                raise self._taken() from None
            raise

    def _taken(self) -> Conflict:
        return Conflict(f'"{self._to}" exists already.')


def _on_server(path: str) -> str:
    """What begins with `/~` is in the user's own folder, where a session begins."""
    if path == "/~" or path.startswith("/~/"):
        return path[3:] or "."
    return path


def _named(path: str) -> Parts:
    parts = reachable_parts(path)
    if not parts:
        raise Refused("A name is needed: the folder itself is neither a file nor to be removed.")
    return parts


def _check_ordinary(spot: Spot) -> None:
    if spot.attributes is not None and not is_file_or_folder(spot.attributes):
        raise Refused(f'"{spot.name}" is no ordinary file.')


def _check_writable(spot: Spot) -> None:
    if spot.is_folder:
        raise Conflict(f'"{spot.name}" is a folder, not a file.')
    _check_ordinary(spot)
    permissions = spot.attributes.permissions if spot.attributes else None
    # Replacing it needs no right to the file itself, but whoever took that right away meant it.
    if permissions is not None and not permissions & _ANY_MAY_WRITE:
        raise ReadOnly(f'"{spot.name}" may not be changed: it is write-protected.')
