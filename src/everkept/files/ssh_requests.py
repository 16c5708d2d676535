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
from everkept.errors import Conflict, EverkeptError, NotFound, ReadOnly, Refused, StorageFull, Unavailable
from everkept.files.lease_lock import parse_claim
from everkept.files.local_disk import build_temporary_name, is_temporary
from everkept.files.ssh_connection import MISSING_ERRORS, TAKEN_ERRORS, SftpSession, SshConnection
from everkept.values import Value

_SECOND_MICROSECONDS = 1_000_000
_MAX_LINKS = 16  # one after the other; those in a circle have no end


class RemoteEntry(Value):
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


def build_info(path: str, attributes: SFTPAttrs, target: str | None = None) -> FileInfo:
    """Version 3 of the protocol, which OpenSSH speaks, knows times to the second."""
    return FileInfo(
        path=path,
        size=0 if is_folder(attributes) else attributes.size or 0,
        modified_at=int(attributes.mtime or 0) * _SECOND_MICROSECONDS,
        is_folder=is_folder(attributes),
        target=target,
    )


def join_path(folder: str, *names: str) -> str:
    """The last of them that is absolute begins it."""
    return posixpath.join(folder, *names)


async def locate(session: SftpSession, root: str, parts: Sequence[str]) -> RemoteEntry:
    """The place that the parts name, links followed; Refused where that is outside of `root`.

    The server resolves links, so whoever may write there could change one after it was looked at.
    """
    path = join_path(root, *parts)
    folder, place, attributes = await asyncio.gather(
        _resolve_path(session, root, parts), _resolve_path(session, path, parts), session.read_attributes(path)
    )
    inside = f"{folder.rstrip('/')}/"
    if place != folder and not place.startswith(inside):
        raise build_outside_error(parts)
    reached = place.removeprefix(inside) if place != folder else ""
    return RemoteEntry(place, attributes, None if reached == "/".join(parts) else reached)


async def locate_entry(session: SftpSession, root: str, parts: Sequence[str]) -> RemoteEntry:
    """As `locate`, but a link that is the last part is itself meant, and not where it leads."""
    above = await locate(session, root, parts[:-1])
    path = join_path(above.path, parts[-1])
    return RemoteEntry(path, await session.read_attributes(path, follow=False))


def build_outside_error(parts: Sequence[str]) -> Refused:
    name = "/".join(parts)
    return Refused(
        f'"{name}" leads out of this folder through a symbolic link.',
        hint="Only what is inside the folder can be read and written.",
        name=name,
    )


async def _resolve_path(session: SftpSession, path: str, parts: Sequence[str]) -> str:
    """What is not there yet is resolved as far as there is something."""
    missing: list[str] = []
    links = 0
    while links <= _MAX_LINKS:
        with suppress(*MISSING_ERRORS):
            return join_path(await session.resolve_path(path), *reversed(missing))
        found = await session.read_attributes(path, follow=False)
        above, slash, name = path.rpartition("/")
        above = above or slash or "."
        if found is None and name not in (".", ".."):
            missing.append(name)
            path = above
        elif found is not None and is_link(found):
            path = join_path(above, await _resolve_target(session, path, parts))
            links += 1
        else:  # out of what the server shows
            break
    raise build_outside_error(parts)


async def _resolve_target(session: SftpSession, link: str, parts: Sequence[str]) -> str:
    """Of a link to what is not there."""
    try:
        return await session.read_link(link)
    except MISSING_ERRORS:
        raise build_outside_error(parts) from None


_CONCURRENT_FILES = 32
_PERMISSION_MASK = 0o7777  # of a file's mode


class FileWriter:
    """One file's new content. It may be begun again after the connection was lost.

    Each try has a temporary file of its own: the server may still be writing into the last one.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left_behind: list[str] = []

    async def put(self, session: SftpSession, spot: RemoteEntry) -> None:
        """All of it or nothing; SFTPOpUnsupported where the server cannot replace a file."""
        for path in self._left_behind:
            await session.discard(path)
        draft = join_path(spot.folder, build_temporary_name(spot.name))
        self._left_behind.append(draft)

        async def create() -> None:
            await session.create(draft, self._data, is_lasting=True)

        await run_with_folder(session, spot.folder, create)
        try:
            await _keep_rights(session, spot, draft)
            await session.replace(draft, spot.path)
        except asyncssh.SFTPError:
            await session.discard(draft)
            raise
        self._left_behind.clear()


class FileAppender:
    """Bytes for the end of a file; what an earlier try brought there is not added twice."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._size_before: int | None = None

    async def add(self, session: SftpSession, spot: RemoteEntry) -> None:
        size = (spot.attributes.size or 0) if spot.attributes else 0
        rest = self._data
        if self._size_before is None:
            self._size_before = size
        elif size > self._size_before:
            rest = self._compute_rest(await session.read(spot.path, self._size_before))

        async def append() -> None:
            await session.append(spot.path, rest)

        if rest or spot.attributes is None:
            await run_with_folder(session, spot.folder, append)

    def _compute_rest(self, added: bytes) -> bytes:
        if self._data in added:
            return b""
        # Others may have added theirs; then a part of ours stays, as after a crash.
        return self._data[len(added) :] if self._data.startswith(added) else self._data


class EntryRemover:
    """One entry of a folder; what the last try put out of sight is removed by the next."""

    def __init__(self) -> None:
        self._hidden: list[RemoteEntry] = []

    async def remove(self, session: SftpSession, spot: RemoteEntry) -> None:
        """A folder is gone in one step, since what is in it goes one by one."""
        if spot.is_folder:
            hidden = RemoteEntry(join_path(spot.folder, build_temporary_name("removed")), spot.attributes)
            self._hidden.append(hidden)
            with suppress(*MISSING_ERRORS):
                await session.rename(spot.path, hidden.path)
        elif spot.attributes is not None:
            await remove_all(session, spot)
        for hidden in self._hidden:
            await remove_all(session, hidden)


async def run_with_folder(session: SftpSession, folder: str, work: Callable[[], Awaitable[None]]) -> None:
    """Makes the folder only when the work finds it missing: mostly it is there."""
    try:
        await work()
    except MISSING_ERRORS:
        await make_folders(session, folder)
        await work()


async def make_folders(session: SftpSession, path: str) -> None:
    """With those above it; FileExistsError where something else has the name."""
    try:
        await session.make_folder(path)
    except MISSING_ERRORS:
        above = path.rpartition("/")[0]
        if not above:
            raise
        await make_folders(session, above)
        await make_folders(session, path)
    except (*TAKEN_ERRORS, asyncssh.SFTPPermissionDenied):
        # Some servers say that nothing may be made in a folder before that it is there.
        found = await session.read_attributes(path)
        if found is None:
            raise
        if not is_folder(found):
            raise FileExistsError(path) from None


async def sweep(session: SftpSession, folder: str, before: int) -> None:
    """Removes what writers left behind that died before a time, in seconds."""
    for name, attributes in await session.list_entries(folder):
        if is_temporary(name) and (attributes.mtime or 0) < before:
            with suppress(asyncssh.SFTPError):
                await remove_all(session, RemoteEntry(join_path(folder, name), attributes))


async def remove_all(session: SftpSession, spot: RemoteEntry) -> None:
    """A file, a link, or a folder with all that is in it; nothing there is fine."""
    with suppress(*MISSING_ERRORS):
        if not spot.is_folder:
            await session.remove_file(spot.path)
            return
        found = [
            RemoteEntry(join_path(spot.path, name), attributes)
            for name, attributes in await session.list_entries(spot.path)
        ]
        for inner in found:
            if inner.is_folder:
                await remove_all(session, inner)
        files = [inner for inner in found if not inner.is_folder]
        for start in range(0, len(files), _CONCURRENT_FILES):
            batch = files[start : start + _CONCURRENT_FILES]
            await session.run_together([remove_all(session, file) for file in batch])
        await session.remove_folder(spot.path)


async def _keep_rights(session: SftpSession, spot: RemoteEntry, draft: str) -> None:
    """Of the file that is replaced; its owner only where we are allowed to."""
    old = spot.attributes
    new = await session.read_attributes(draft) if old else None
    if old is None or new is None:
        return
    if (new.uid, new.gid) != (old.uid, old.gid) and old.uid is not None and old.gid is not None:
        with suppress(asyncssh.SFTPError):
            await session.set_owner(draft, old.uid, old.gid)
    if old.permissions is not None and new.permissions != old.permissions:
        await session.set_permissions(draft, old.permissions & _PERMISSION_MASK)


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
        claim = _ClaimFile(join_path(self._root, name), content)
        try:
            return await self._run(name, claim.make)
        except Unavailable:
            self._left_behind[name] = content
            raise

    async def read(self, name: str) -> tuple[bytes, int] | None:
        async def work(session: SftpSession, again: bool) -> tuple[bytes, int] | None:
            return await session.peek(join_path(self._root, name))

        return await self._run(name, work)

    async def rewrite(self, name: str, mark: bytes, content: bytes) -> bool:
        async def work(session: SftpSession, again: bool) -> bool:
            try:
                return await session.rewrite(join_path(self._root, name), mark, content)
            except MISSING_ERRORS:
                return False

        return await self._run(name, work)

    async def remove(self, name: str, mark: bytes) -> bool:
        path = join_path(self._root, name)

        async def work(session: SftpSession, again: bool) -> bool:
            found = await session.peek(path)
            if found is None or mark not in found[0]:
                return again and found is None
            try:
                await session.remove_file(path)
            except MISSING_ERRORS:
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
        claim = parse_claim(name, *found) if found and mark in found[0] else None
        if claim and claim.until is not None and self._now() < claim.until:
            await self.remove(name, mark)
        self._left_behind.pop(name, None)

    async def _run(self, name: str, work: Callable[[SftpSession, bool], Awaitable[Result]]) -> Result:
        try:
            return await self._connection.run(work)
        except asyncssh.SFTPError as error:
            host = self._connection.place.host
            # Nobody but us knows of the lock file: it is the folder that may not be changed.
            raise translate_error(error, host, "", root=self._root, writing=True) from error


class _ClaimFile:
    """A file that is made by one at a time. It may be begun again after the connection was lost.

    It appears with its content, as a second name of a draft: the connection could be lost between
    making a file and writing into it, and an empty one tells nobody that it is ours.
    """

    def __init__(self, path: str, content: bytes) -> None:
        self._path, self._content = path, content
        self._folder, _, name = path.rpartition("/")
        self._draft = join_path(self._folder, build_temporary_name(name))

    async def make(self, session: SftpSession, again: bool) -> bool:
        if again:
            await session.discard(self._draft)
            if await self._is_ours(session):
                return True
        try:
            await run_with_folder(session, self._folder, partial(self._create_draft, session))
            try:
                await self._publish(session)
            finally:
                await session.discard(self._draft)
        except FileExistsError:
            return again and await self._is_ours(session)
        return True

    async def _create_draft(self, session: SftpSession) -> None:
        await session.create(self._draft, self._content, is_lasting=False)

    async def _publish(self, session: SftpSession) -> None:
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
_ERROR_REASONS: tuple[tuple[tuple[type[asyncssh.SFTPError], ...], tuple[str, ...], str], ...] = (
    ((asyncssh.SFTPNoSpaceOnFilesystem, asyncssh.SFTPQuotaExceeded), ("no space", "quota"), "full"),
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


def translate_error(
    error: asyncssh.SFTPError | FileExistsError, host: str, path: str, *, root: str, writing: bool
) -> EverkeptError:
    """The error to raise for an answer of the server; a lost connection is none.

    Without a path the root is what was asked for.
    """
    shown = path or root
    if isinstance(error, FileExistsError):
        return Conflict(f'"{shown}" cannot be written: a part of it is a file, not a folder.')
    if isinstance(error, MISSING_ERRORS):
        return NotFound("file", shown)
    if isinstance(error, asyncssh.SFTPOpUnsupported):
        return Refused(
            f'The SFTP server on {host} has no way to do this with "{shown}": {error.reason}.',
            hint="To replace a file in one step it has to offer posix-rename@openssh.com, as OpenSSH does.",
            host=host,
        )
    return _build_error(error, host, shown, writing)


def _build_error(error: asyncssh.SFTPError, host: str, shown: str, writing: bool) -> EverkeptError:
    verb = "written" if writing else "read"
    sentence = f'"{shown}" could not be {verb} on {host}: {error.reason}.'
    match find_reason(error):
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


def find_reason(error: asyncssh.SFTPError) -> str | None:
    said = error.reason.lower()
    for kinds, words, reason in _ERROR_REASONS:
        if isinstance(error, kinds) or any(word in said for word in words):
            return reason
    return None
