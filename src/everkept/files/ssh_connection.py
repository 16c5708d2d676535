"""A connection to an SSH server: login with known host keys, and SFTP requests in limited time."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import asyncssh
from asyncssh import SFTPAttrs, SFTPClientFile, SFTPName
from asyncssh.constants import FXF_APPEND, FXF_CREAT, FXF_EXCL, FXF_READ, FXF_WRITE

from everkept.core.runtime import wait_finished
from everkept.errors import InvalidInput, Refused, Unavailable
from everkept.files.ssh_server import DEFAULT_PORT, SshOptions, SshTarget
from everkept.values import Value

_SYSTEM_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")
_MAX_MISSED_KEEPALIVES = 3  # without an answer, before a connection counts as lost

# Its sentences are for those who write SSH clients; ours are in the errors.
logging.getLogger("asyncssh").setLevel(logging.CRITICAL)


async def log_in(place: SshTarget, options: SshOptions) -> asyncssh.SSHClientConnection:
    """A connection to a server whose key is known.

    Raises Refused for a host key or a login that is not accepted, InvalidInput for a key file that
    cannot be used, and Unavailable when the server cannot be reached.
    """
    login = await asyncio.to_thread(_prepare_login, place, options)
    try:
        async with asyncio.timeout(options.connect_seconds):
            return await asyncssh.connect(**login.arguments)
    except TimeoutError:
        raise Unavailable(
            f"{place} did not answer within {options.connect_seconds:g} seconds.", host=place.host
        ) from None
    except asyncssh.HostKeyNotVerifiable:
        raise login.host_keys.build_refusal(place) from None
    except asyncssh.KeyExchangeFailed as error:
        # A host is asked for keys of the kinds that are known of it, and may have others now.
        if "host key" in error.reason and login.host_keys.is_known:
            raise login.host_keys.build_refusal(place) from None
        raise _build_unreachable_error(place, error.reason) from None
    except (asyncssh.PermissionDenied, asyncssh.IllegalUserName):
        raise _build_refused_error(place, options, login.key_is_encrypted) from None
    except asyncssh.Error as error:
        raise _build_unreachable_error(place, error.reason) from None
    except OSError as error:
        raise _build_unreachable_error(place, error.strerror or str(error)) from None


class _HostKeys(asyncssh.SSHKnownHosts):
    """The keys of a user's files, and what a server showed that they do not hold."""

    def __init__(self, files: Sequence[Path], reached: asyncssh.SSHClientConnectionOptions) -> None:
        super().__init__()
        self.is_known = False
        self.fingerprint: str | None = None
        self._file = files[0]
        self._reached = reached
        for file in files:
            if file.is_file():
                self.load(file.read_text(encoding="utf-8", errors="replace"))

    def match(self, host: str, addr: str, port: int | None) -> Any:
        found = super().match(host, addr, port)
        self.is_known = any(found)
        return found

    def build_refusal(self, place: SshTarget) -> Refused:
        entry = self._format_entry()
        accept = self._describe_acceptance(place)
        named = place.host if place.host == self._reached.host else f"{place.host} ({entry})"
        shown = f" {self.fingerprint}" if self.fingerprint else ""
        facts = {"host": place.host, "known_hosts": str(self._file)}
        if self.fingerprint:
            facts["fingerprint"] = self.fingerprint
        if self.is_known:
            return Refused(
                f"The key{shown} of the host {named} is not one that is known of it:"
                " it was changed, or another machine answers in its place.",
                hint="Ask whoever runs the host. Only where the new key is right, forget the old"
                f' one with `ssh-keygen -R "{entry}" -f "{self._file}"` and accept the new one'
                f" with `{accept}`.",
                **facts,
            )
        return Refused(
            f"The host {named} is not known, so its key{shown} is not trusted.",
            hint=f"Compare the fingerprint with the host's own, and accept the key with `{accept}`.",
            **facts,
        )

    def _format_entry(self) -> str:
        """As `known_hosts` names the server, whatever the user's configuration calls it."""
        reached = self._reached
        if reached.host_key_alias:
            return reached.host_key_alias
        return reached.host if reached.port == DEFAULT_PORT else f"[{reached.host}]:{reached.port}"

    def _describe_acceptance(self, place: SshTarget) -> str:
        reached = self._reached
        if reached.host_key_alias or reached.tunnel or reached.proxy_command:
            # ssh-keyscan knows neither another name for the key nor a way through other hosts.
            port = "" if place.port is None else f" -p {place.port}"
            return f'ssh -o UserKnownHostsFile="{self._file}"{port} {place.user}@{place.host}'
        port = "" if reached.port == DEFAULT_PORT else f" -p {reached.port}"
        return f'ssh-keyscan{port} {reached.host} >> "{self._file}"'


class _Client(asyncssh.SSHClient):
    """Is asked about keys that are not known, and trusts none of them."""

    def __init__(self, host_keys: _HostKeys) -> None:
        self._host_keys = host_keys

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self._host_keys.fingerprint = key.get_fingerprint()
        return False

    validate_host_ca_key = validate_host_public_key


class _Login(Value):
    arguments: dict[str, Any]
    host_keys: _HostKeys
    key_is_encrypted: bool


def _prepare_login(place: SshTarget, options: SshOptions) -> _Login:
    key_is_encrypted = options.key is not None and _is_encrypted(options.key)
    arguments: dict[str, Any] = {
        "host": place.host,
        "username": place.user,
        "preferred_auth": ["publickey"],
        "keepalive_interval": options.keepalive_seconds,
        "keepalive_count_max": _MAX_MISSED_KEEPALIVES,
        "agent_forwarding": False,
    }
    if place.port is not None:
        arguments["port"] = place.port
    if options.config is not None:
        arguments["config"] = [str(options.config)]
    if options.key is not None:
        arguments |= {"client_keys": [str(options.key)], "ignore_encrypted": True}
        # Servers hang up after a few keys, so those of the agent would use up the tries.
        if not key_is_encrypted:
            arguments["agent_path"] = None
    try:
        settings = asyncssh.SSHClientConnectionOptions(**arguments)
    except (ValueError, OSError) as error:
        raise InvalidInput(f"The SSH configuration for {place} cannot be used: {error}.", host=place.host) from None
    host_keys = _read_host_keys(options, settings)
    arguments |= {"known_hosts": host_keys, "client_factory": lambda: _Client(host_keys)}
    return _Login(arguments, host_keys, key_is_encrypted)


def _is_encrypted(key: Path) -> bool:
    try:
        asyncssh.read_private_key(str(key))
    except FileNotFoundError:
        raise InvalidInput(f"There is no SSH key {key}.", key=str(key)) from None
    except OSError as error:
        raise InvalidInput(f"The SSH key {key} cannot be read: {error.strerror}.", key=str(key)) from None
    except ValueError as error:
        if str(error).startswith("Passphrase"):
            return True
        raise InvalidInput(
            f"{key} holds no private SSH key that can be read.",
            hint="The file that ends in .pub is the public half; the private one is needed.",
            key=str(key),
        ) from None
    return False


def _read_host_keys(options: SshOptions, settings: asyncssh.SSHClientConnectionOptions) -> _HostKeys:
    """What the user's files say; a configuration that trusts every host is not followed."""
    configured = cast("list[str] | None", settings.known_hosts)
    if options.known_hosts is not None:
        files = [options.known_hosts]
    elif configured:
        files = [Path(name).expanduser() for name in configured]
    else:
        files = [Path.home() / ".ssh" / "known_hosts", _SYSTEM_KNOWN_HOSTS]
    try:
        return _HostKeys(files, settings)
    except (ValueError, OSError):
        shown = ", ".join(map(str, files))
        raise InvalidInput(
            f"The known hosts in {shown} cannot be read.",
            hint="`ssh-keygen -l -f FILE` shows what a file holds, and where it is broken.",
            known_hosts=shown,
        ) from None


def _build_refused_error(place: SshTarget, options: SshOptions, key_is_encrypted: bool) -> Refused:
    if options.key is None:
        return Refused(
            f"{place} accepted no SSH key of the agent or of ~/.ssh.",
            hint="Name another one with --ssh-key, or put the public half of yours into"
            " ~/.ssh/authorized_keys over there.",
            host=place.host,
        )
    if key_is_encrypted:
        return Refused(
            f"The SSH key {options.key} has a passphrase, and no agent has it open.",
            hint=f'Give it to the agent with `ssh-add "{options.key}"`.',
            host=place.host,
            key=str(options.key),
        )
    return Refused(
        f"{place} did not accept the SSH key {options.key}.",
        hint=f"Put its public half into ~/.ssh/authorized_keys of {place.user} over there.",
        host=place.host,
        key=str(options.key),
    )


def _build_unreachable_error(place: SshTarget, reason: str) -> Unavailable:
    return Unavailable(f"{place} cannot be reached: {reason}.", host=place.host)


LOST_ERRORS = (
    asyncssh.DisconnectError,
    asyncssh.ChannelOpenError,
    asyncssh.SFTPConnectionLost,
    asyncssh.SFTPNoConnection,
    ConnectionError,
    TimeoutError,
)
MISSING_ERRORS = (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath)
# Version 3 of the protocol has no better word for a name that is taken.
TAKEN_ERRORS = (asyncssh.SFTPFailure, asyncssh.SFTPFileAlreadyExists)

_MAX_BLOCK_BYTES = 1 << 18  # bytes in one request; OpenSSH hangs up on more
_SMALL_FILE_BYTES = 4096
_CONCURRENT_BLOCKS = 8  # requests under way for one file: hides the way there and back

T = TypeVar("T")


class SftpSession:
    """One SFTP session. Paths are the server's own; what fails raises what asyncssh raises."""

    def __init__(self, connection: asyncssh.SSHClientConnection, client: asyncssh.SFTPClient, seconds: float) -> None:
        self._connection = connection
        self._client = client
        self._seconds = seconds

    @classmethod
    async def open(cls, place: SshTarget, options: SshOptions) -> "SftpSession":
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
            await self._run_limited(self._connection.wait_closed())
        except LOST_ERRORS:
            self._connection.abort()

    def abort(self) -> None:
        """For a connection that is lost: there is nobody to say goodbye to."""
        self._connection.abort()

    async def resolve_path(self, path: str) -> str:
        return await self._run_limited(self._client.realpath(path))

    async def read_link(self, path: str) -> str:
        return await self._run_limited(self._client.readlink(path))

    async def read_attributes(self, path: str, *, follow: bool = True) -> SFTPAttrs | None:
        request = self._client.stat if follow else self._client.lstat
        try:
            return await self._run_limited(request(path))
        except MISSING_ERRORS:
            return None

    async def list_entries(self, folder: str) -> list[tuple[str, SFTPAttrs]]:
        """Links are not followed."""
        found: list[tuple[str, SFTPAttrs]] = []
        async with aclosing(self._iterate_names(folder)) as names:
            while entry := await self._run_limited(anext(names, None)):
                name = str(entry.filename)
                if name not in (".", ".."):
                    found.append((name, entry.attrs))
        return found

    async def read(self, path: str, start: int = 0) -> bytes:
        async with self._open_file(path, FXF_READ) as file:
            block = min(self._client.limits.max_read_len, _MAX_BLOCK_BYTES)
            # Most files are small: the first block comes with the size.
            attributes, first = await self.run_together([file.stat(), file.read(block, start)])
            parts, size = [first], attributes.size or 0
            for offset in range(start + len(first), size, block * _CONCURRENT_BLOCKS):
                window = range(offset, min(size, offset + block * _CONCURRENT_BLOCKS), block)
                parts += await self.run_together([_read_block(file, at, min(block, size - at)) for at in window])
            return b"".join(parts)

    async def peek(self, path: str) -> tuple[bytes, int] | None:
        """The beginning of a small file, and when it was modified, in seconds."""
        try:
            async with self._open_file(path, FXF_READ) as file:
                attributes, content = await self.run_together([file.stat(), file.read(_SMALL_FILE_BYTES, 0)])
                return content, attributes.mtime or 0
        except MISSING_ERRORS:
            return None

    async def create(self, path: str, data: bytes, *, is_lasting: bool) -> None:
        """A new file, on the platter before it returns where that is asked for.

        FileExistsError where there is one; after any answer that is an error there is none.
        """
        is_made = False
        try:
            async with self._open_file(path, FXF_WRITE | FXF_CREAT | FXF_EXCL) as file:
                is_made = True
                await self._fill(file, data)
                if is_lasting:
                    # Other servers have their own idea of when a file is safe.
                    with suppress(asyncssh.SFTPOpUnsupported):
                        await self._run_limited(file.fsync())
        except asyncssh.SFTPError as error:
            if is_made:
                await self.discard(path)
            elif isinstance(error, TAKEN_ERRORS) and await self.read_attributes(path, follow=False):
                raise FileExistsError(path) from None
            raise

    async def link(self, path: str, to: str) -> None:
        """A second name for a file; FileExistsError where it is taken."""
        try:
            await self._run_limited(self._client.link(path, to))
        except TAKEN_ERRORS:
            if await self.read_attributes(to, follow=False):
                raise FileExistsError(to) from None
            raise

    async def rewrite(self, path: str, mark: bytes, data: bytes) -> bool:
        """Writes over its beginning if `mark` is in it; looks and writes through one handle."""
        async with self._open_file(path, FXF_READ | FXF_WRITE) as file:
            found = await self._run_limited(_read_block(file, 0, len(data)))
            if mark not in found:
                return False
            await self._run_limited(file.write(data, 0))
            return True

    async def append(self, path: str, data: bytes) -> None:
        """All of it, or none when the server says that it cannot."""
        async with self._open_file(path, FXF_WRITE | FXF_CREAT | FXF_APPEND) as file:
            before = (await self._run_limited(file.stat())).size
            block = min(self._client.limits.max_write_len, _MAX_BLOCK_BYTES)
            try:
                for offset in range(0, len(data), block):
                    await self._run_limited(file.write(data[offset : offset + block]))
            except asyncssh.SFTPError:
                with suppress(asyncssh.Error, *LOST_ERRORS):
                    await self._run_limited(file.truncate(before))
                raise

    async def replace(self, path: str, to: str) -> None:
        """In one step, whatever `to` was; SFTPOpUnsupported where a server cannot."""
        await self._run_limited(self._client.posix_rename(path, to))

    async def rename(self, path: str, to: str) -> None:
        """One of TAKEN where `to` exists."""
        await self._run_limited(self._client.rename(path, to))

    async def set_owner(self, path: str, user: int, group: int) -> None:
        await self._run_limited(self._client.chown(path, user, group))

    async def set_permissions(self, path: str, permissions: int) -> None:
        await self._run_limited(self._client.chmod(path, permissions))

    async def make_folder(self, path: str) -> None:
        await self._run_limited(self._client.mkdir(path))

    async def remove_file(self, path: str) -> None:
        await self._run_limited(self._client.remove(path))

    async def discard(self, path: str) -> None:
        """For what is of no use any more, so that it does not matter when it cannot be removed."""
        try:
            await self.remove_file(path)
        except LOST_ERRORS:
            raise
        except asyncssh.SFTPError:
            pass

    async def remove_folder(self, path: str) -> None:
        """An empty one."""
        await self._run_limited(self._client.rmdir(path))

    async def read_free_bytes(self, path: str) -> int | None:
        """None where the server does not tell."""
        try:
            disk = await self._run_limited(self._client.statvfs(path))
        except asyncssh.SFTPError:
            return None
        return (disk.bavail or 0) * (disk.frsize or 0)

    async def run_together(self, requests: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        """The answers to requests that are made at once, within the time of one."""
        try:
            async with asyncio.timeout(self._seconds), asyncio.TaskGroup() as group:
                tasks = [group.create_task(request) for request in requests]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    def _iterate_names(self, folder: str) -> AsyncGenerator[SFTPName, None]:
        return cast("AsyncGenerator[SFTPName, None]", self._client.scandir(folder))

    async def _fill(self, file: SFTPClientFile, data: bytes) -> None:
        block = min(self._client.limits.max_write_len, _MAX_BLOCK_BYTES)
        for offset in range(0, len(data), block * _CONCURRENT_BLOCKS):
            window = range(offset, min(len(data), offset + block * _CONCURRENT_BLOCKS), block)
            await self.run_together([file.write(data[at : at + block], at) for at in window])

    @asynccontextmanager
    async def _open_file(self, path: str, flags: int) -> AsyncGenerator[SFTPClientFile, None]:
        # Blocks are ours to cut: asyncssh would leave its requests behind when one fails.
        opening = self._client.open(path, flags, encoding=None, block_size=None)
        file = await self._run_limited(opening)
        try:
            yield file
        except BaseException:
            with suppress(asyncssh.Error, *LOST_ERRORS):
                await wait_finished(self._run_limited(file.close()))
            raise
        await self._run_limited(file.close())

    async def _run_limited(self, request: Awaitable[T]) -> T:
        async with asyncio.timeout(self._seconds):
            return await request


async def _read_block(file: SFTPClientFile, offset: int, size: int) -> bytes:
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

    def __init__(self, place: SshTarget, options: SshOptions) -> None:
        self.place = place
        self._options = options
        self._session: SftpSession | None = None
        self._opening = asyncio.Lock()

    async def run(self, work: Callable[[SftpSession, bool], Awaitable[T]]) -> T:
        """What `work` gives; it is done again, once, when the connection is lost meanwhile.

        Its second argument says that it was begun before: what the server did of it, and whether
        it still does some of it, nobody knows.
        """
        session = await self._get_session()
        try:
            return await work(session, False)
        except LOST_ERRORS:
            self._drop(session)
        try:
            session = await self._get_session()
        except Unavailable as error:
            raise self._build_lost_error(error.message) from None
        try:
            return await work(session, True)
        except LOST_ERRORS as error:
            self._drop(session)
            reason = "it did not answer in time" if isinstance(error, TimeoutError) else str(error)
            raise self._build_lost_error(f"a second try ended in the same way: {reason}.") from None

    def _build_lost_error(self, then: str) -> Unavailable:
        return Unavailable(
            f"The connection to {self.place} was lost; {then}",
            hint="If this was a change, look whether it was made, and repeat it if not.",
            host=self.place.host,
        )

    async def close(self) -> None:
        session, self._session = self._session, None
        if session:
            await session.close()

    async def _get_session(self) -> SftpSession:
        async with self._opening:
            if self._session is None or not self._session.is_open:
                self._session = await self._open_session()
            return self._session

    async def _open_session(self) -> SftpSession:
        try:
            return await SftpSession.open(self.place, self._options)
        except (asyncssh.Error, *LOST_ERRORS) as error:
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
