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
from everkept.errors import Conflict, EverkeptError, ReadOnly, Refused, StorageFull, Unavailable
from everkept.files.lease_lock import parse_claim
from everkept.files.local_disk import (
    OTHER_NAME_HINT,
    build_lock_file_error,
    build_missing_error,
    build_temporary_name,
    is_temporary,
)
from everkept.files.ssh_connection import MISSING_ERRORS, TAKEN_ERRORS, SftpSession, SshConnection, format_reason
from everkept.values import Value

_SECOND_MICROSECONDS = 1_000_000
_MAX_LINKS = 16  # in a row; a circle of links has no end
_MAX_DEPTH = 64  # of folders to remove; a server could invent more without end


class RemoteEntry(Value):
    """A path on a server with its attributes, if it exists. `target` is the path inside that links lead to."""

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
    """Build the info of a file. Version 3 of the protocol, which OpenSSH speaks, has times in seconds."""
    return FileInfo(
        path=path,
        size=0 if is_folder(attributes) else attributes.size or 0,
        modified_at=int(attributes.mtime or 0) * _SECOND_MICROSECONDS,
        is_folder=is_folder(attributes),
        target=target,
    )


def join_path(folder: str, *names: str) -> str:
    """Join names to a path. The last absolute one begins it."""
    return posixpath.join(folder, *names)


async def locate(session: SftpSession, root: str, parts: Sequence[str]) -> RemoteEntry:
    """Return the entry at a path, with links followed. Raise Refused if it is outside of `root`.

    The server resolves links, so another program on it could change one after this check.
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
    """Like `locate`, but do not follow a link that is the last part."""
    above = await locate(session, root, parts[:-1])
    path = join_path(above.path, parts[-1])
    return RemoteEntry(path, await session.read_attributes(path, follow=False))


def build_outside_error(parts: Sequence[str]) -> Refused:
    name = "/".join(parts)
    return Refused(
        f'"{name}" uses a symbolic link to a place outside this folder.',
        hint="Use a file inside the folder.",
        name=name,
    )


async def _resolve_path(session: SftpSession, path: str, parts: Sequence[str]) -> str:
    """Resolve the existing part of a path, and append the missing names."""
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
        else:  # outside of what the server shows
            break
    raise build_outside_error(parts)


async def _resolve_target(session: SftpSession, link: str, parts: Sequence[str]) -> str:
    """Return the target of a link to a missing file."""
    try:
        return await session.read_link(link)
    except MISSING_ERRORS:
        raise build_outside_error(parts) from None


_CONCURRENT_FILES = 32
_PERMISSION_MASK = 0o7777  # in a file's mode


class FileWriter:
    """New content of one file. Each attempt has its own draft, because the server may still write to the last one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left_behind: list[str] = []

    async def put(self, session: SftpSession, spot: RemoteEntry) -> None:
        """Write all of it or nothing. Raise SFTPOpUnsupported if the server cannot replace a file."""
        for path in self._left_behind:
            await session.discard(path)
        draft = join_path(spot.folder, build_temporary_name(spot.name))
        self._left_behind.append(draft)
        create = partial(session.create, draft, self._data, is_lasting=True)
        await run_with_folder(session, spot.folder, create)
        try:
            await _keep_rights(session, spot, draft)
            await session.replace(draft, spot.path)
        except asyncssh.SFTPError:
            await session.discard(draft)
            raise
        self._left_behind.clear()


class FileAppender:
    """Bytes for the end of a file. Bytes from an earlier attempt are not added twice."""

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
        if rest or spot.attributes is None:
            await run_with_folder(session, spot.folder, partial(session.append, spot.path, rest))

    def _compute_rest(self, added: bytes) -> bytes:
        if self._data in added:
            return b""
        # Other programs may have appended too; then a part of ours stays, as after a crash.
        return self._data[len(added) :] if self._data.startswith(added) else self._data


class EntryRemover:
    """Removal of one entry. Each attempt also removes what an earlier one has hidden."""

    def __init__(self) -> None:
        self._hidden: list[RemoteEntry] = []

    async def remove(self, session: SftpSession, spot: RemoteEntry) -> None:
        """Remove an entry. A folder is hidden in one step, because its content is removed one by one."""
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
    """Run the work, and create the folder only if it is missing."""
    try:
        await work()
    except MISSING_ERRORS:
        await make_folders(session, folder)
        await work()


async def make_folders(session: SftpSession, path: str) -> None:
    """Create a folder and its parents. Raise FileExistsError if a file has the name."""
    try:
        await session.make_folder(path)
    except MISSING_ERRORS:
        above = path.rpartition("/")[0]
        if not above:
            raise
        await make_folders(session, above)
        await make_folders(session, path)
    except (*TAKEN_ERRORS, asyncssh.SFTPPermissionDenied):
        # Some servers report a missing permission before they report that the folder exists.
        found = await session.read_attributes(path)
        if found is None:
            raise
        if not is_folder(found):
            raise FileExistsError(path) from None


async def sweep(session: SftpSession, folder: str, before: int) -> None:
    """Remove temporary files of writers that died before a time, in seconds."""
    for name, attributes in await session.list_entries(folder):
        if is_temporary(name) and (attributes.mtime or 0) < before:
            with suppress(asyncssh.SFTPError):
                await remove_all(session, RemoteEntry(join_path(folder, name), attributes))


async def remove_all(session: SftpSession, spot: RemoteEntry, depth: int = 0) -> None:
    """Remove a file, a link, or a folder with its content. A missing entry is fine."""
    if depth > _MAX_DEPTH:
        raise Refused(f"Folders are nested more than {_MAX_DEPTH} deep.", hint="Remove them on the server.")
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
                await remove_all(session, inner, depth + 1)
        files = [inner for inner in found if not inner.is_folder]
        for start in range(0, len(files), _CONCURRENT_FILES):
            batch = files[start : start + _CONCURRENT_FILES]
            await session.run_together([remove_all(session, file) for file in batch])
        await session.remove_folder(spot.path)


async def _keep_rights(session: SftpSession, spot: RemoteEntry, draft: str) -> None:
    """Copy permissions and, if allowed, the owner from the file that is replaced."""
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
    """LockFiles over SSH. `now` shows whether the lease of an abandoned claim still lasts."""

    def __init__(self, connection: SshConnection, root: str, now: Clock) -> None:
        self._connection, self._root, self._now = connection, root, now
        # Marks of claims that a lost connection left and that no task of ours holds.
        self._left_behind: dict[str, bytes] = {}

    async def create(self, name: str, content: bytes) -> bool:
        if name in self._left_behind:
            await self._tidy(name)
        claim = _ClaimFile(join_path(self._root, name), content)
        try:
            return await self._run(claim.make)
        except Unavailable:
            self._left_behind[name] = content
            raise

    async def read(self, name: str) -> tuple[bytes, int] | None:
        async def work(session: SftpSession, again: bool) -> tuple[bytes, int] | None:
            path = join_path(self._root, name)
            found = await session.read_attributes(path, follow=False)
            if found is not None and found.type != FILEXFER_TYPE_REGULAR:
                raise build_lock_file_error(name)  # to open a pipe would block the server
            return None if found is None else await session.peek(path)

        return await self._run(work)

    async def rewrite(self, name: str, mark: bytes, content: bytes) -> bool:
        async def work(session: SftpSession, again: bool) -> bool:
            try:
                return await session.rewrite(join_path(self._root, name), mark, content)
            except MISSING_ERRORS:
                return False

        return await self._run(work)

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
            return await self._run(work)
        except Unavailable:
            self._left_behind[name] = mark
            raise

    async def _tidy(self, name: str) -> None:
        """Remove a claim as its holder would have, which is allowed only until its lease ends."""
        mark = self._left_behind[name]
        found = await self.read(name)
        claim = parse_claim(name, *found) if found and mark in found[0] else None
        if claim and claim.until is not None and self._now() < claim.until:
            await self.remove(name, mark)
        self._left_behind.pop(name, None)

    async def _run(self, work: Callable[[SftpSession, bool], Awaitable[Result]]) -> Result:
        try:
            return await self._connection.run(work)
        except asyncssh.SFTPError as error:
            host = self._connection.place.host
            # Only we know of the lock file: the folder is what cannot be changed.
            raise translate_error(error, host, "", root=self._root, writing=True) from error


class _ClaimFile:
    """A file that only one process can create. It can be repeated after a lost connection.

    The file appears together with its content, as a second name of a draft. If the connection is lost between creating
    and writing a file, an empty one does not show that it is ours.
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
            create = partial(session.create, self._draft, self._content, is_lasting=False)
            await run_with_folder(session, self._folder, create)
            try:
                await self._publish(session)
            finally:
                await session.discard(self._draft)
        except FileExistsError:
            return again and await self._is_ours(session)
        return True

    async def _publish(self, session: SftpSession) -> None:
        try:
            await session.link(self._draft, self._path)
        except (asyncssh.SFTPOpUnsupported, asyncssh.SFTPPermissionDenied, asyncssh.SFTPFailure):
            # Not every server and not every disk supports hard links.
            await session.create(self._path, self._content, is_lasting=False)

    async def _is_ours(self, session: SftpSession) -> bool:
        found = await session.peek(self._path)
        return found is not None and found[0] == self._content


# Version 3 of the protocol, which OpenSSH speaks, has one code for most failures. Some servers add the reason as text,
# but not OpenSSH.
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
    """Return our error for an error of the server; "" as path means the root."""
    shown = path or root
    if isinstance(error, FileExistsError):
        return Conflict(f'Cannot write "{shown}": a part of its path is a file.', hint=OTHER_NAME_HINT)
    if isinstance(error, MISSING_ERRORS):
        return build_missing_error("file", shown)
    if isinstance(error, asyncssh.SFTPOpUnsupported):
        return Refused(
            f'The SFTP server on {host} does not support this operation on "{shown}": {format_reason(error.reason)}.',
            hint="Use a server that supports posix-rename@openssh.com, such as OpenSSH.",
            host=host,
        )
    return _build_error(error, host, shown, writing)


def _build_error(error: asyncssh.SFTPError, host: str, shown: str, writing: bool) -> EverkeptError:
    sentence = f'Cannot {"write" if writing else "read"} "{shown}" on {host}: {format_reason(error.reason)}.'
    match find_reason(error):
        case "full":
            return StorageFull(sentence, hint="Free disk space there, then try again.", host=host)
        case "denied":
            kind = ReadOnly if writing else Refused
            return kind(sentence, hint="Check its permissions there.", host=host)
        case "refused":
            return Refused(sentence, hint=OTHER_NAME_HINT, host=host)
        case "taken":
            return Conflict(sentence, hint=OTHER_NAME_HINT, host=host)
        case _:
            return Unavailable(sentence, host=host)


def find_reason(error: asyncssh.SFTPError) -> str | None:
    said = error.reason.lower()
    for kinds, words, reason in _ERROR_REASONS:
        if isinstance(error, kinds) or any(word in said for word in words):
            return reason
    return None
