"""A connection to an SSH server: SFTP requests, each with a time limit, and their errors."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, TypeVar, cast

import asyncssh
from asyncssh import SFTPAttrs, SFTPClientFile, SFTPName
from asyncssh.constants import FXF_APPEND, FXF_CREAT, FXF_EXCL, FXF_READ, FXF_WRITE

from everkept.core.uncancelled import finished
from everkept.errors import (
    Conflict,
    EverkeptError,
    NotFound,
    ReadOnly,
    Refused,
    StorageFull,
    Unavailable,
)
from everkept.files.ssh_login import log_in
from everkept.files.ssh_server import SshOptions, SshPlace

LOST = (
    asyncssh.DisconnectError,
    asyncssh.ChannelOpenError,
    asyncssh.SFTPConnectionLost,
    asyncssh.SFTPNoConnection,
    ConnectionError,
    TimeoutError,
)
MISSING = (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath)
# Version 3 of the protocol has no better word for a name that is taken.
TAKEN = (asyncssh.SFTPFailure, asyncssh.SFTPFileAlreadyExists)

_LARGEST_BLOCK = 1 << 18  # bytes in one request; OpenSSH hangs up on more
_SMALL = 4096  # bytes
_AT_ONCE = 8  # requests under way for one file: hides the way there and back

T = TypeVar("T")


class SftpSession:
    """One SFTP session. Paths are the server's own; what fails raises what asyncssh raises."""

    def __init__(
        self, connection: asyncssh.SSHClientConnection, client: asyncssh.SFTPClient, seconds: float
    ) -> None:
        self._connection = connection
        self._client = client
        self._seconds = seconds

    @classmethod
    async def opened(cls, place: SshPlace, options: SshOptions) -> "SftpSession":
        connection = await log_in(place, options)
        try:
            async with asyncio.timeout(options.connect_seconds):
                client = await connection.start_sftp_client(path_errors="surrogateescape")
        except BaseException:
            connection.abort()
            raise
        return cls(connection, client, options.answer_seconds)

    @property
    def is_open(self) -> bool:
        return not self._connection.is_closed()

    async def close(self) -> None:
        self._connection.close()
        try:
            await self._limited(self._connection.wait_closed())
        except LOST:
            self._connection.abort()

    def abort(self) -> None:
        """For a connection that is lost: there is nobody to say goodbye to."""
        self._connection.abort()

    async def real_path(self, path: str) -> str:
        return await self._limited(self._client.realpath(path))

    async def link_target(self, path: str) -> str:
        return await self._limited(self._client.readlink(path))

    async def attributes(self, path: str, *, follow: bool = True) -> SFTPAttrs | None:
        request = self._client.stat if follow else self._client.lstat
        try:
            return await self._limited(request(path))
        except MISSING:
            return None

    async def entries(self, folder: str) -> list[tuple[str, SFTPAttrs]]:
        """Links are not followed."""
        found: list[tuple[str, SFTPAttrs]] = []
        async with aclosing(self._names(folder)) as names:
            while entry := await self._limited(anext(names, None)):
                name = str(entry.filename)
                if name not in (".", ".."):
                    found.append((name, entry.attrs))
        return found

    async def read(self, path: str, start: int = 0) -> bytes:
        async with self._file(path, FXF_READ) as file:
            block = min(self._client.limits.max_read_len, _LARGEST_BLOCK)
            # Most files are small: the first block comes with the size.
            attributes, first = await self.together([file.stat(), file.read(block, start)])
            parts, size = [first], attributes.size or 0
            for offset in range(start + len(first), size, block * _AT_ONCE):
                window = range(offset, min(size, offset + block * _AT_ONCE), block)
                parts += await self.together(
                    [_block_of(file, at, min(block, size - at)) for at in window]
                )
            return b"".join(parts)

    async def peek(self, path: str) -> tuple[bytes, int] | None:
        """The beginning of a small file, and when it was modified, in seconds."""
        try:
            async with self._file(path, FXF_READ) as file:
                attributes, content = await self.together([file.stat(), file.read(_SMALL, 0)])
                return content, attributes.mtime or 0
        except MISSING:
            return None

    async def create(self, path: str, data: bytes, *, is_lasting: bool) -> None:
        """A new file, on the platter before it returns where that is asked for.

        FileExistsError where there is one; after any answer that is an error there is none.
        """
        is_made = False
        try:
            async with self._file(path, FXF_WRITE | FXF_CREAT | FXF_EXCL) as file:
                is_made = True
                await self._fill(file, data)
                if is_lasting:
                    # Other servers have their own idea of when a file is safe.
                    with suppress(asyncssh.SFTPOpUnsupported):
                        await self._limited(file.fsync())
        except asyncssh.SFTPError as error:
            if is_made:
                await self.discard(path)
            elif isinstance(error, TAKEN) and await self.attributes(path, follow=False):
                raise FileExistsError(path) from None
            raise

    async def link(self, path: str, to: str) -> None:
        """A second name for a file; FileExistsError where it is taken."""
        try:
            await self._limited(self._client.link(path, to))
        except TAKEN:
            if await self.attributes(to, follow=False):
                raise FileExistsError(to) from None
            raise

    async def rewrite(self, path: str, mark: bytes, data: bytes) -> bool:
        """Writes over its beginning if `mark` is in it; looks and writes through one handle."""
        async with self._file(path, FXF_READ | FXF_WRITE) as file:
            found = await self._limited(_block_of(file, 0, len(data)))
            if mark not in found:
                return False
            await self._limited(file.write(data, 0))
            return True

    async def append(self, path: str, data: bytes) -> None:
        """All of it, or none when the server says that it cannot."""
        async with self._file(path, FXF_WRITE | FXF_CREAT | FXF_APPEND) as file:
            before = (await self._limited(file.stat())).size
            block = min(self._client.limits.max_write_len, _LARGEST_BLOCK)
            try:
                for offset in range(0, len(data), block):
                    await self._limited(file.write(data[offset : offset + block]))
            except asyncssh.SFTPError:
                with suppress(asyncssh.Error, *LOST):
                    await self._limited(file.truncate(before))
                raise

    async def replace(self, path: str, to: str) -> None:
        """In one step, whatever `to` was; SFTPOpUnsupported where a server cannot."""
        await self._limited(self._client.posix_rename(path, to))

    async def rename(self, path: str, to: str) -> None:
        """One of TAKEN where `to` exists."""
        await self._limited(self._client.rename(path, to))

    async def set_owner(self, path: str, user: int, group: int) -> None:
        await self._limited(self._client.chown(path, user, group))

    async def set_permissions(self, path: str, permissions: int) -> None:
        await self._limited(self._client.chmod(path, permissions))

    async def make_folder(self, path: str) -> None:
        await self._limited(self._client.mkdir(path))

    async def remove_file(self, path: str) -> None:
        await self._limited(self._client.remove(path))

    async def discard(self, path: str) -> None:
        """For what is of no use any more, so that it does not matter when it cannot be removed."""
        try:
            await self.remove_file(path)
        except LOST:
            raise
        except asyncssh.SFTPError:
            pass

    async def remove_folder(self, path: str) -> None:
        """An empty one."""
        await self._limited(self._client.rmdir(path))

    async def free_bytes(self, path: str) -> int | None:
        """None where the server does not tell."""
        try:
            disk = await self._limited(self._client.statvfs(path))
        except asyncssh.SFTPError:
            return None
        return (disk.bavail or 0) * (disk.frsize or 0)

    async def together(self, requests: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        """The answers to requests that are made at once, within the time of one."""
        try:
            async with asyncio.timeout(self._seconds), asyncio.TaskGroup() as group:
                tasks = [group.create_task(request) for request in requests]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    def _names(self, folder: str) -> AsyncGenerator[SFTPName, None]:
        return cast("AsyncGenerator[SFTPName, None]", self._client.scandir(folder))

    async def _fill(self, file: SFTPClientFile, data: bytes) -> None:
        block = min(self._client.limits.max_write_len, _LARGEST_BLOCK)
        for offset in range(0, len(data), block * _AT_ONCE):
            window = range(offset, min(len(data), offset + block * _AT_ONCE), block)
            await self.together([file.write(data[at : at + block], at) for at in window])

    @asynccontextmanager
    async def _file(self, path: str, flags: int) -> AsyncGenerator[SFTPClientFile, None]:
        # Blocks are ours to cut: asyncssh would leave its requests behind when one fails.
        opening = self._client.open(path, flags, encoding=None, block_size=None)
        file = await self._limited(opening)
        try:
            yield file
        except BaseException:
            with suppress(asyncssh.Error, *LOST):
                await finished(self._limited(file.close()))
            raise
        await self._limited(file.close())

    async def _limited(self, request: Awaitable[T]) -> T:
        async with asyncio.timeout(self._seconds):
            return await request


async def _block_of(file: SFTPClientFile, offset: int, size: int) -> bytes:
    """A server may give less than was asked for, and nothing at the end."""
    data = b""
    while len(data) < size:
        part = cast("bytes", await file.read(size - len(data), offset + len(data)))
        if not part:
            break
        data += part
    return data


class SshConnection:
    """All folders of one user on one server work through it."""

    def __init__(self, place: SshPlace, options: SshOptions) -> None:
        self.place = place
        self._options = options
        self._session: SftpSession | None = None
        self._opening = asyncio.Lock()

    async def run(self, work: Callable[[SftpSession, bool], Awaitable[T]]) -> T:
        """What `work` gives; it is done again, once, when the connection is lost meanwhile.

        Its second argument says that it was begun before: what the server did of it, and whether
        it still does some of it, nobody knows.
        """
        session = await self._opened()
        try:
            return await work(session, False)
        except LOST:
            self._drop(session)
        try:
            session = await self._opened()
        except Unavailable as error:
            raise self._lost(error.message) from None
        try:
            return await work(session, True)
        except LOST as error:
            self._drop(session)
            reason = "it did not answer in time" if isinstance(error, TimeoutError) else str(error)
            raise self._lost(f"a second try ended in the same way: {reason}.") from None

    def _lost(self, then: str) -> Unavailable:
        return Unavailable(
            f"The connection to {self.place} was lost; {then}",
            hint="If this was a change, look whether it was made, and repeat it if not.",
            host=self.place.host,
        )

    async def close(self) -> None:
        session, self._session = self._session, None
        if session:
            await session.close()

    async def _opened(self) -> SftpSession:
        async with self._opening:
            if self._session is None or not self._session.is_open:
                self._session = await self._new()
            return self._session

    async def _new(self) -> SftpSession:
        try:
            return await SftpSession.opened(self.place, self._options)
        except (asyncssh.Error, *LOST) as error:
            raise Unavailable(
                f"{self.place} can be reached, and opens no SFTP session: {error or 'no answer'}.",
                hint="Files are kept over SFTP; the server has to offer it.",
                host=self.place.host,
            ) from None

    def _drop(self, session: SftpSession) -> None:
        """Another task may have opened the next one already."""
        session.abort()
        if self._session is session:
            self._session = None


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
