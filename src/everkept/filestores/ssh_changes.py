"""Changes on an SFTP server that take several requests, each safe to be done again."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import asyncssh

from everkept.filestores.names import is_temporary, temporary
from everkept.filestores.ssh_paths import Spot, is_folder, joined
from everkept.filestores.ssh_session import MISSING, TAKEN, SftpSession

_FILES_AT_ONCE = 32
_RIGHTS = 0o7777  # of a file's mode


class Write:
    """One file's new content. It may be begun again after the connection was lost.

    Each try has a temporary file of its own: the server may still be writing into the last one.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left_behind: list[str] = []

    async def put(self, session: SftpSession, spot: Spot) -> None:
        """All of it or nothing; SFTPOpUnsupported where the server cannot replace a file."""
        for path in self._left_behind:
            await session.discard(path)
        draft = joined(spot.folder, temporary(spot.name))
        self._left_behind.append(draft)

        async def create() -> None:
            await session.create(draft, self._data, is_lasting=True)

        await with_folder(session, spot.folder, create)
        try:
            await _keep_rights(session, spot, draft)
            await session.replace(draft, spot.path)
        except asyncssh.SFTPError:
            await session.discard(draft)
            raise
        self._left_behind.clear()


class Append:
    """Bytes for the end of a file; what an earlier try brought there is not added twice."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._size_before: int | None = None

    async def add(self, session: SftpSession, spot: Spot) -> None:
        size = (spot.attributes.size or 0) if spot.attributes else 0
        rest = self._data
        if self._size_before is None:
            self._size_before = size
        elif size > self._size_before:
            rest = self._rest(await session.read(spot.path, self._size_before))

        async def append() -> None:
            await session.append(spot.path, rest)

        if rest or spot.attributes is None:
            await with_folder(session, spot.folder, append)

    def _rest(self, added: bytes) -> bytes:
        if self._data in added:
            return b""
        # Others may have added theirs; then a part of ours stays, as after a crash.
        return self._data[len(added) :] if self._data.startswith(added) else self._data


class Removal:
    """One entry of a folder; what the last try put out of sight is removed by the next."""

    def __init__(self) -> None:
        self._hidden: list[Spot] = []

    async def remove(self, session: SftpSession, spot: Spot) -> None:
        """A folder is gone in one step, since what is in it goes one by one."""
        if spot.is_folder:
            hidden = Spot(joined(spot.folder, temporary("removed")), spot.attributes)
            self._hidden.append(hidden)
            with suppress(*MISSING):
                await session.rename(spot.path, hidden.path)
        elif spot.attributes is not None:
            await remove_all(session, spot)
        for hidden in self._hidden:
            await remove_all(session, hidden)


async def with_folder(
    session: SftpSession, folder: str, work: Callable[[], Awaitable[None]]
) -> None:
    """Makes the folder only when the work finds it missing: mostly it is there."""
    try:
        await work()
    except MISSING:
        await make_folders(session, folder)
        await work()


async def make_folders(session: SftpSession, path: str) -> None:
    """With those above it; FileExistsError where something else has the name."""
    try:
        await session.make_folder(path)
    except MISSING:
        above = path.rpartition("/")[0]
        if not above:
            raise
        await make_folders(session, above)
        await make_folders(session, path)
    except (*TAKEN, asyncssh.SFTPPermissionDenied):
        # Some servers say that nothing may be made in a folder before that it is there.
        found = await session.attributes(path)
        if found is None:
            raise
        if not is_folder(found):
            raise FileExistsError(path) from None


async def sweep(session: SftpSession, folder: str, before: int) -> None:
    """Removes what writers left behind that died before a time, in seconds."""
    for name, attributes in await session.entries(folder):
        if is_temporary(name) and (attributes.mtime or 0) < before:
            with suppress(asyncssh.SFTPError):
                await remove_all(session, Spot(joined(folder, name), attributes))


async def remove_all(session: SftpSession, spot: Spot) -> None:
    """A file, a link, or a folder with all that is in it; nothing there is fine."""
    with suppress(*MISSING):
        if not spot.is_folder:
            await session.remove_file(spot.path)
            return
        found = [
            Spot(joined(spot.path, name), attributes)
            for name, attributes in await session.entries(spot.path)
        ]
        for inner in found:
            if inner.is_folder:
                await remove_all(session, inner)
        files = [inner for inner in found if not inner.is_folder]
        for start in range(0, len(files), _FILES_AT_ONCE):
            batch = files[start : start + _FILES_AT_ONCE]
            await session.together([remove_all(session, file) for file in batch])
        await session.remove_folder(spot.path)


async def _keep_rights(session: SftpSession, spot: Spot, draft: str) -> None:
    """Of the file that is replaced; its owner only where we are allowed to."""
    old = spot.attributes
    new = await session.attributes(draft) if old else None
    if old is None or new is None:
        return
    if (new.uid, new.gid) != (old.uid, old.gid) and old.uid is not None and old.gid is not None:
        with suppress(asyncssh.SFTPError):
            await session.set_owner(draft, old.uid, old.gid)
    if old.permissions is not None and new.permissions != old.permissions:
        await session.set_permissions(draft, old.permissions & _RIGHTS)
