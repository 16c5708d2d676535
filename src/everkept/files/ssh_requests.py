"""Operations of several SFTP requests: resolving a path, changes, and the steps of a lock."""

import asyncio
import posixpath
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import asyncssh
from asyncssh import SFTPAttrs
from asyncssh.constants import FILEXFER_TYPE_DIRECTORY, FILEXFER_TYPE_REGULAR, FILEXFER_TYPE_SYMLINK

from everkept.core.files import FileInfo
from everkept.core.times import Clock
from everkept.errors import (
    Conflict,
    EverkeptError,
    NotFound,
    ReadOnly,
    Refused,
    StorageFull,
    Unavailable,
)
from everkept.files.disk import is_temporary, temporary
from everkept.files.lease_lock import claim_of
from everkept.files.ssh_connection import MISSING, TAKEN, SftpSession, SshConnection
from everkept.values import Value

_SECOND = 1_000_000  # microseconds
_MOST_LINKS = 16  # one after the other; those in a circle have no end


class Spot(Value):
    """A place on a server, and what is there, if anything.

    `target` is its path inside the folder, where links led to it.
    """

    path: str
    attributes: SFTPAttrs | None = None
    target: str | None = None

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0] or "/"

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def is_folder(self) -> bool:
        return self.attributes is not None and is_folder(self.attributes)


def is_folder(attributes: SFTPAttrs) -> bool:
    return attributes.type == FILEXFER_TYPE_DIRECTORY


def is_link(attributes: SFTPAttrs) -> bool:
    return attributes.type == FILEXFER_TYPE_SYMLINK


def is_file_or_folder(attributes: SFTPAttrs) -> bool:
    return attributes.type in (FILEXFER_TYPE_REGULAR, FILEXFER_TYPE_DIRECTORY)


def info_of(path: str, attributes: SFTPAttrs, target: str | None = None) -> FileInfo:
    """Version 3 of the protocol, which OpenSSH speaks, knows times to the second."""
    return FileInfo(
        path=path,
        size=0 if is_folder(attributes) else attributes.size or 0,
        modified_at=int(attributes.mtime or 0) * _SECOND,
        is_folder=is_folder(attributes),
        target=target,
    )


def joined(folder: str, *names: str) -> str:
    """The last of them that is absolute begins it."""
    return posixpath.join(folder, *names)


async def located(session: SftpSession, root: str, parts: Sequence[str]) -> Spot:
    """The place that the parts name, links followed; Refused where that is outside of `root`.

    The server resolves links, so whoever may write there could change one after it was looked at.
    """
    path = joined(root, *parts)
    folder, place, attributes = await asyncio.gather(
        _resolved(session, root, parts),
        _resolved(session, path, parts),
        session.attributes(path),
    )
    inside = f"{folder.rstrip('/')}/"
    if place != folder and not place.startswith(inside):
        raise leads_out(parts)
    reached = place.removeprefix(inside) if place != folder else ""
    return Spot(place, attributes, None if reached == "/".join(parts) else reached)


async def located_entry(session: SftpSession, root: str, parts: Sequence[str]) -> Spot:
    """As `located`, but a link that is the last part is itself meant, and not where it leads."""
    above = await located(session, root, parts[:-1])
    path = joined(above.path, parts[-1])
    return Spot(path, await session.attributes(path, follow=False))


def leads_out(parts: Sequence[str]) -> Refused:
    name = "/".join(parts)
    return Refused(
        f'"{name}" leads out of this folder through a symbolic link.',
        hint="Only what is inside the folder can be read and written.",
        name=name,
    )


async def _resolved(session: SftpSession, path: str, parts: Sequence[str]) -> str:
    """What is not there yet is resolved as far as there is something."""
    missing: list[str] = []
    links = 0
    while links <= _MOST_LINKS:
        with suppress(*MISSING):
            return joined(await session.real_path(path), *reversed(missing))
        found = await session.attributes(path, follow=False)
        above, slash, name = path.rpartition("/")
        above = above or slash or "."
        if found is None and name not in (".", ".."):
            missing.append(name)
            path = above
        elif found is not None and is_link(found):
            path = joined(above, await _target(session, path, parts))
            links += 1
        else:  # out of what the server shows
            break
    raise leads_out(parts)


async def _target(session: SftpSession, link: str, parts: Sequence[str]) -> str:
    """Of a link to what is not there."""
    try:
        return await session.link_target(link)
    except MISSING:
        raise leads_out(parts) from None


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


Result = TypeVar("Result")


class SshLockFiles:
    """Implements LockFiles. `now` tells whether a lease that was left behind still lasts."""

    def __init__(self, connection: SshConnection, root: str, now: Clock) -> None:
        self._connection, self._root, self._now = connection, root, now
        #: The marks of claims of ours that nobody holds, and that a lost connection left.
        self._left_behind: dict[str, bytes] = {}

    async def create(self, name: str, content: bytes) -> bool:
        if name in self._left_behind:
            await self._tidy(name)
        claim = _Claim(joined(self._root, name), content)
        try:
            return await self._run(name, claim.make)
        except Unavailable:
            self._left_behind[name] = content
            raise

    async def read(self, name: str) -> tuple[bytes, int] | None:
        async def work(session: SftpSession, again: bool) -> tuple[bytes, int] | None:
            return await session.peek(joined(self._root, name))

        return await self._run(name, work)

    async def rewrite(self, name: str, mark: bytes, content: bytes) -> bool:
        async def work(session: SftpSession, again: bool) -> bool:
            try:
                return await session.rewrite(joined(self._root, name), mark, content)
            except MISSING:
                return False

        return await self._run(name, work)

    async def remove(self, name: str, mark: bytes) -> bool:
        path = joined(self._root, name)

        async def work(session: SftpSession, again: bool) -> bool:
            found = await session.peek(path)
            if found is None or mark not in found[0]:
                return again and found is None
            try:
                await session.remove_file(path)
            except MISSING:
                return again
            return True

        try:
            return await self._run(name, work)
        except Unavailable:
            self._left_behind[name] = mark
            raise

    async def _tidy(self, name: str) -> None:
        """Removes a claim as its holder would have, which is right until its lease is over."""
        mark = self._left_behind[name]
        found = await self.read(name)
        claim = claim_of(name, *found) if found and mark in found[0] else None
        if claim and claim.until is not None and self._now() < claim.until:
            await self.remove(name, mark)
        self._left_behind.pop(name, None)

    async def _run(
        self, name: str, work: Callable[[SftpSession, bool], Awaitable[Result]]
    ) -> Result:
        try:
            return await self._connection.run(work)
        except asyncssh.SFTPError as error:
            host = self._connection.place.host
            # Nobody but us knows of the lock file: it is the folder that may not be changed.
            raise translated(error, host, "", root=self._root, writing=True) from error


class _Claim:
    """A file that is made by one at a time. It may be begun again after the connection was lost.

    It appears with its content, as a second name of a draft: the connection could be lost between
    making a file and writing into it, and an empty one tells nobody that it is ours.
    """

    def __init__(self, path: str, content: bytes) -> None:
        self._path, self._content = path, content
        self._folder, _, name = path.rpartition("/")
        self._draft = joined(self._folder, temporary(name))

    async def make(self, session: SftpSession, again: bool) -> bool:
        if again:
            await session.discard(self._draft)
            if await self._is_ours(session):
                return True
        try:
            await with_folder(session, self._folder, partial(self._draw, session))
            try:
                await self._appear(session)
            finally:
                await session.discard(self._draft)
        except FileExistsError:
            return again and await self._is_ours(session)
        return True

    async def _draw(self, session: SftpSession) -> None:
        await session.create(self._draft, self._content, is_lasting=False)

    async def _appear(self, session: SftpSession) -> None:
        try:
            await session.link(self._draft, self._path)
        except (asyncssh.SFTPOpUnsupported, asyncssh.SFTPPermissionDenied, asyncssh.SFTPFailure):
            # Neither every server nor every disk gives a file a second name.
            await session.create(self._path, self._content, is_lasting=False)

    async def _is_ours(self, session: SftpSession) -> bool:
        found = await session.peek(self._path)
        return found is not None and found[0] == self._content


# Version 3 of the protocol, which OpenSSH speaks, has one code for most failures. Some servers
# add the reason in words; OpenSSH does not.
_REASONS: tuple[tuple[tuple[type[asyncssh.SFTPError], ...], tuple[str, ...], str], ...] = (
    (
        (asyncssh.SFTPNoSpaceOnFilesystem, asyncssh.SFTPQuotaExceeded),
        ("no space", "quota"),
        "full",
    ),
    ((asyncssh.SFTPPermissionDenied, asyncssh.SFTPWriteProtect), ("read-only",), "denied"),
    (
        (asyncssh.SFTPInvalidFilename, asyncssh.SFTPLinkLoop, asyncssh.SFTPBadMessage),
        ("name too long", "too many levels"),
        "refused",
    ),
    (
        (asyncssh.SFTPFileAlreadyExists, asyncssh.SFTPFileIsADirectory, asyncssh.SFTPDirNotEmpty),
        ("file exists", "is a directory", "not empty"),
        "taken",
    ),
)


def translated(
    error: asyncssh.SFTPError | FileExistsError, host: str, path: str, *, root: str, writing: bool
) -> EverkeptError:
    """The error to raise for an answer of the server; a lost connection is none.

    Without a path the root is what was asked for.
    """
    shown = path or root
    if isinstance(error, FileExistsError):
        return Conflict(f'"{shown}" cannot be written: a part of it is a file, not a folder.')
    if isinstance(error, MISSING):
        return NotFound("file", shown)
    if isinstance(error, asyncssh.SFTPOpUnsupported):
        return Refused(
            f'The SFTP server on {host} has no way to do this with "{shown}": {error.reason}.',
            hint="To replace a file in one step it has to offer posix-rename@openssh.com, as"
            " OpenSSH does.",
            host=host,
        )
    return _failed(error, host, shown, writing)


def _failed(error: asyncssh.SFTPError, host: str, shown: str, writing: bool) -> EverkeptError:
    verb = "written" if writing else "read"
    sentence = f'"{shown}" could not be {verb} on {host}: {error.reason}.'
    match reason_of(error):
        case "full":
            return StorageFull(sentence, hint="Make room there, then try again.", host=host)
        case "denied":
            kind = ReadOnly if writing else Refused
            return kind(sentence, hint="Look at its permissions there.", host=host)
        case "refused":
            return Refused(sentence, host=host)
        case "taken":
            return Conflict(sentence, host=host)
        case _:
            return Unavailable(sentence, host=host)


def reason_of(error: asyncssh.SFTPError) -> str | None:
    said = error.reason.lower()
    for kinds, words, reason in _REASONS:
        if isinstance(error, kinds) or any(word in said for word in words):
            return reason
    return None
