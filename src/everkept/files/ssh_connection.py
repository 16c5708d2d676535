"""A connection to an SSH server: login with known host keys, and SFTP requests with timeouts."""

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
from everkept.core.text import clip_text
from everkept.errors import InvalidInput, Refused, Unavailable, escape_name
from everkept.files.local_disk import check_size
from everkept.files.ssh_server import DEFAULT_PORT, SshOptions, SshTarget
from everkept.values import Value

_SYSTEM_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")
MAX_REASON_CHARACTERS = 200  # of a text that the server sent
_MAX_MISSED_KEEPALIVES = 3  # without an answer, before a connection counts as lost

# Its messages are for authors of SSH clients; our errors have our own.
logging.getLogger("asyncssh").setLevel(logging.CRITICAL)


async def log_in(place: SshTarget, options: SshOptions) -> asyncssh.SSHClientConnection:
    """Connect to a server whose key is known.

    Raise Refused if the host key or the login is not accepted. Raise InvalidInput for an unusable key file, and
    Unavailable if the server cannot be reached.
    """
    login = await asyncio.to_thread(_prepare_login, place, options)
    try:
        async with asyncio.timeout(options.connect_seconds):
            return await asyncssh.connect(**login.arguments)
    except TimeoutError:
        raise Unavailable(f"{place} did not answer within {options.connect_seconds:g} s.", host=place.host) from None
    except asyncssh.HostKeyNotVerifiable:
        raise login.host_keys.build_refusal(place) from None
    except asyncssh.KeyExchangeFailed as error:
        # The server is asked for keys of the known types, but may have others now.
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
    """The keys in a user's files, and the fingerprint of an unknown key that a server showed."""

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
                f"The key{shown} of host {named} does not match the known key. "
                "The key was changed, or another machine answers.",
                hint="Ask the administrator of the host. Only if the new key is right, remove the old one with "
                f'`ssh-keygen -R "{entry}" -f "{self._file}"` and accept the new one with `{accept}`.',
                **facts,
            )
        return Refused(
            f"Host {named} is unknown, so its key{shown} is not trusted.",
            hint=f"Compare the fingerprint with the host's own, and accept the key with `{accept}`.",
            **facts,
        )

    def _format_entry(self) -> str:
        """Return the name of the server in `known_hosts`, whatever the user's configuration calls it."""
        reached = self._reached
        if reached.host_key_alias:
            return reached.host_key_alias
        return reached.host if reached.port == DEFAULT_PORT else f"[{reached.host}]:{reached.port}"

    def _describe_acceptance(self, place: SshTarget) -> str:
        reached = self._reached
        if reached.host_key_alias or reached.tunnel or reached.proxy_command:
            # ssh-keyscan supports neither an alias for the key nor a connection through other hosts.
            port = "" if place.port is None else f" -p {place.port}"
            return f'ssh -o UserKnownHostsFile="{self._file}"{port} {place.user}@{place.host}'
        port = "" if reached.port == DEFAULT_PORT else f" -p {reached.port}"
        return f'ssh-keyscan{port} {reached.host} >> "{self._file}"'


class _Client(asyncssh.SSHClient):
    """Client that trusts no unknown key."""

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
        # Servers disconnect after a few keys, so the agent's keys would use up the attempts.
        if not key_is_encrypted:
            arguments["agent_path"] = None
    try:
        settings = asyncssh.SSHClientConnectionOptions(**arguments)
    except (ValueError, OSError) as error:
        raise InvalidInput(
            f"The SSH configuration for {place} is invalid: {error}.",
            hint="Correct the SSH configuration file.",
            host=place.host,
        ) from None
    host_keys = _read_host_keys(options, settings)
    arguments |= {"known_hosts": host_keys, "client_factory": lambda: _Client(host_keys)}
    return _Login(arguments, host_keys, key_is_encrypted)


def _is_encrypted(key: Path) -> bool:
    try:
        asyncssh.read_private_key(str(key))
    except FileNotFoundError:
        raise InvalidInput(f"SSH key {key} not found.", hint="Check the path.", key=str(key)) from None
    except OSError as error:
        raise InvalidInput(
            f"Cannot read SSH key {key}: {error.strerror}.", hint="Check its permissions.", key=str(key)
        ) from None
    except ValueError as error:
        if str(error).startswith("Passphrase"):
            return True
        raise InvalidInput(
            f"{key} is not a valid private SSH key.",
            hint="Use the private key file, not the public one that ends in .pub.",
            key=str(key),
        ) from None
    return False


def _read_host_keys(options: SshOptions, settings: asyncssh.SSHClientConnectionOptions) -> _HostKeys:
    """Read the user's files. A configuration that trusts every host is ignored."""
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
            f"Cannot read the known hosts in {shown}.",
            hint="To find the invalid line, run `ssh-keygen -l -f FILE`.",
            known_hosts=shown,
        ) from None


def _build_refused_error(place: SshTarget, options: SshOptions, key_is_encrypted: bool) -> Refused:
    if options.key is None:
        return Refused(
            f"{place} accepted no SSH key from the agent or from ~/.ssh.",
            hint="Pass another key with --ssh-key, or add your public key to ~/.ssh/authorized_keys on that host.",
            host=place.host,
        )
    if key_is_encrypted:
        return Refused(
            f"SSH key {options.key} has a passphrase and is not in the agent.",
            hint=f'Add it to the agent with `ssh-add "{options.key}"`.',
            host=place.host,
            key=str(options.key),
        )
    return Refused(
        f"{place} did not accept the SSH key {options.key}.",
        hint=f"Add its public key to ~/.ssh/authorized_keys of {place.user} on that host.",
        host=place.host,
        key=str(options.key),
    )


def _build_unreachable_error(place: SshTarget, reason: str) -> Unavailable:
    return Unavailable(f"{place} cannot be reached: {format_reason(reason)}.", host=place.host)


def format_reason(reason: str) -> str:
    """Return the reason of an error on one short line. The server can send any text."""
    return escape_name(clip_text(reason, MAX_REASON_CHARACTERS))


LOST_ERRORS = (
    asyncssh.DisconnectError,
    asyncssh.ChannelOpenError,
    asyncssh.SFTPConnectionLost,
    asyncssh.SFTPNoConnection,
    ConnectionError,
    TimeoutError,
)
MISSING_ERRORS = (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath)
# Version 3 of the protocol has no better code for a name that is taken.
TAKEN_ERRORS = (asyncssh.SFTPFailure, asyncssh.SFTPFileAlreadyExists)

_MAX_BLOCK_BYTES = 1 << 18  # in one request; OpenSSH disconnects on more
_SMALL_FILE_BYTES = 4096
_MAX_ENTRIES = 50_000  # of one folder
_LISTING_ANSWERS = 4  # times the time of an answer, for a whole listing
_CONCURRENT_BLOCKS = 8  # concurrent requests for one file, to hide the latency

T = TypeVar("T")


class SftpSession:
    """One SFTP session. Paths are the server's, and errors are those of asyncssh."""

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
        """Drop a lost connection without closing it properly."""
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
        """Return the entries of a folder, without following links."""
        found: list[tuple[str, SFTPAttrs]] = []
        scan = cast("AsyncGenerator[SFTPName, None]", self._client.scandir(folder))
        async with asyncio.timeout(self._seconds * _LISTING_ANSWERS), aclosing(scan) as names:
            while entry := await self._run_limited(anext(names, None)):
                name = str(entry.filename)
                if name not in (".", ".."):
                    found.append((name, entry.attrs))
                if len(found) > _MAX_ENTRIES:
                    raise Refused(
                        f'"{folder}" has more than {_MAX_ENTRIES:,} entries.', hint="Move some to another folder."
                    )
        return found

    async def read(self, path: str, start: int = 0) -> bytes:
        async with self._open_file(path, FXF_READ) as file:
            block = min(self._client.limits.max_read_len, _MAX_BLOCK_BYTES)
            # Most files are small, so the first block is requested together with the size.
            attributes, first = await self.run_together([file.stat(), file.read(block, start)])
            parts, size = [first], attributes.size or 0
            check_size(path, size)  # again: it may have grown, or the server may lie
            for offset in range(start + len(first), size, block * _CONCURRENT_BLOCKS):
                window = range(offset, min(size, offset + block * _CONCURRENT_BLOCKS), block)
                parts += await self.run_together([_read_block(file, at, min(block, size - at)) for at in window])
                if not parts[-1]:
                    break
            return b"".join(parts)

    async def peek(self, path: str) -> tuple[bytes, int] | None:
        """Return the beginning of a small file and its modification time in seconds."""
        try:
            async with self._open_file(path, FXF_READ) as file:
                attributes, content = await self.run_together([file.stat(), file.read(_SMALL_FILE_BYTES, 0)])
                return content, attributes.mtime or 0
        except MISSING_ERRORS:
            return None

    async def create(self, path: str, data: bytes, *, is_lasting: bool) -> None:
        """Create a file; with `is_lasting`, flush it to disk if the server supports that.

        Raise FileExistsError if the file exists. After any other error of the server, the file does not exist.
        """
        is_made = False
        try:
            async with self._open_file(path, FXF_WRITE | FXF_CREAT | FXF_EXCL) as file:
                is_made = True
                await self._fill(file, data)
                if is_lasting:
                    # Other servers decide themselves when a file is safe.
                    with suppress(asyncssh.SFTPOpUnsupported):
                        await self._run_limited(file.fsync())
        except asyncssh.SFTPError as error:
            if is_made:
                await self.discard(path)
            elif isinstance(error, TAKEN_ERRORS) and await self.read_attributes(path, follow=False):
                raise FileExistsError(path) from None
            raise

    async def link(self, path: str, to: str) -> None:
        """Give a file a second name. Raise FileExistsError if that exists."""
        try:
            await self._run_limited(self._client.link(path, to))
        except TAKEN_ERRORS:
            if await self.read_attributes(to, follow=False):
                raise FileExistsError(to) from None
            raise

    async def rewrite(self, path: str, mark: bytes, data: bytes) -> bool:
        """Overwrite the beginning of a file if `mark` is in it, checking and writing through one handle."""
        async with self._open_file(path, FXF_READ | FXF_WRITE) as file:
            found = await self._run_limited(_read_block(file, 0, len(data)))
            if mark not in found:
                return False
            await self._run_limited(file.write(data, 0))
            return True

    async def append(self, path: str, data: bytes) -> None:
        """Append all of the data, or nothing if the server reports an error."""
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
        """Rename in one step, replacing `to`. Raise SFTPOpUnsupported if the server cannot."""
        await self._run_limited(self._client.posix_rename(path, to))

    async def rename(self, path: str, to: str) -> None:
        """Rename. Raise one of TAKEN_ERRORS if `to` exists."""
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
        """Remove a useless file, and ignore errors of the server."""
        try:
            await self.remove_file(path)
        except LOST_ERRORS:
            raise
        except asyncssh.SFTPError:
            pass

    async def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        await self._run_limited(self._client.rmdir(path))

    async def read_free_bytes(self, path: str) -> int | None:
        """Return None if the server does not report it."""
        try:
            disk = await self._run_limited(self._client.statvfs(path))
        except asyncssh.SFTPError:
            return None
        return (disk.bavail or 0) * (disk.frsize or 0)

    async def run_together(self, requests: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run requests concurrently, within the timeout of one, and return their results."""
        try:
            async with asyncio.timeout(self._seconds), asyncio.TaskGroup() as group:
                tasks = [group.create_task(request) for request in requests]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _fill(self, file: SFTPClientFile, data: bytes) -> None:
        block = min(self._client.limits.max_write_len, _MAX_BLOCK_BYTES)
        for offset in range(0, len(data), block * _CONCURRENT_BLOCKS):
            window = range(offset, min(len(data), offset + block * _CONCURRENT_BLOCKS), block)
            await self.run_together([file.write(data[at : at + block], at) for at in window])

    @asynccontextmanager
    async def _open_file(self, path: str, flags: int) -> AsyncGenerator[SFTPClientFile, None]:
        # We split the blocks, because asyncssh would leave requests running when one fails.
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
    """Read a block. A server may return less than requested, and nothing at the end."""
    data = b""
    while len(data) < size:
        part = cast("bytes", await file.read(size - len(data), offset + len(data)))
        if not part:
            break
        data += part
    return data


class SshConnection:
    """The connection that all folders of one user on one server share."""

    def __init__(self, place: SshTarget, options: SshOptions) -> None:
        self.place = place
        self._options = options
        self._session: SftpSession | None = None
        self._opening = asyncio.Lock()

    async def run(self, work: Callable[[SftpSession, bool], Awaitable[T]]) -> T:
        """Return the result of `work`. If the connection is lost, run it once more.

        Its second argument is then True: it is unknown what the server did, or still does, of the first attempt.
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
            raise self._build_lost_error(f"the second attempt failed too: {format_reason(reason)}.") from None

    def _build_lost_error(self, then: str) -> Unavailable:
        return Unavailable(
            f"The connection to {self.place} was lost; {then}",
            hint="If this was a change, check whether it took effect before you repeat it.",
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
                f"{self.place} is reachable, but opens no SFTP session: {format_reason(str(error)) or 'no answer'}.",
                hint="Enable SFTP on the server.",
                host=self.place.host,
            ) from None

    def _drop(self, session: SftpSession) -> None:
        """Abort a session. Another task may already have opened the next one."""
        session.abort()
        if self._session is session:
            self._session = None
