"""SSH servers on the loopback address for a test: asyncssh's own, OpenSSH's, and a bad line."""

import asyncio
import getpass
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import asyncssh

from everkept.core.files import FileStore
from everkept.files.lease_lock import LockTerms
from everkept.files.resolver import SshConnections, SshOptions

LOOPBACK = "127.0.0.1"
SSHD = os.environ.get("TEST_SSHD")  # the program; `tools/openssh` sets it

# A store of a folder of this machine, each time another one, as another process would have it.
StoreAt = Callable[[Path, LockTerms], Awaitable[FileStore]]
Way = Literal["there", "back"]
SftpFactory = Callable[[asyncssh.SSHServerChannel[bytes]], asyncssh.SFTPServer]


@dataclass(frozen=True)
class SshServer:
    """Where it listens, and what a client needs to be let in."""

    port: int
    user: str
    options: SshOptions
    #: The server's name for a path of this machine.
    served: Callable[[Path], str]


@dataclass(frozen=True)
class Stores:
    """Of one kind."""

    at: StoreAt
    #: What another process is told to open a store of the folder itself.
    way_to: Callable[[Path], dict[str, Any]]


@dataclass(frozen=True)
class Keys:
    """A server's key and a user's, with the files that make them known to each other."""

    host: Path
    user: Path
    authorized: Path
    config: Path
    known_hosts: Path

    @classmethod
    def made_in(cls, folder: Path) -> "Keys":
        folder.mkdir(parents=True, exist_ok=True)
        keys = cls(*(folder / name for name in ("host", "user", "authorized", "config", "known")))
        for path in (keys.host, keys.user):
            _write_key(path)
        keys.authorized.write_bytes(keys.user.with_suffix(".pub").read_bytes())
        keys.config.touch()
        return keys

    def make_known(self, port: int) -> None:
        public = self.host.with_suffix(".pub").read_text(encoding="ascii")
        self.known_hosts.write_text(f"[{LOOPBACK}]:{port} {public}", encoding="ascii")

    def options(self, **changes: Any) -> SshOptions:
        """That know nothing of the keys and settings of whoever runs the tests."""
        chosen = {"key": self.user, "known_hosts": self.known_hosts, "config": self.config}
        return SshOptions(**(chosen | changes))


def _write_key(path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    path.touch(mode=0o600)
    key.write_private_key(path)
    key.write_public_key(path.with_suffix(".pub"))


@asynccontextmanager
async def asyncssh_server(
    folder: Path | None, keys: Keys, *, port: int = 0, sftp: SftpFactory | None = None, has_sftp: bool = True
) -> AsyncIterator[SshServer]:
    """Shows `folder` as `/` and nothing else, or the whole disk."""

    def usual(channel: asyncssh.SSHServerChannel[bytes]) -> asyncssh.SFTPServer:
        return asyncssh.SFTPServer(channel, chroot=str(folder).encode() if folder else None)

    def served(path: Path) -> str:
        return f"/{path.relative_to(folder).as_posix()}" if folder else _posix(path)

    guests = _Guests()
    acceptor = await asyncssh.listen(
        LOOPBACK,
        port,
        server_factory=guests.receptionist,
        server_host_keys=[str(keys.host)],
        authorized_client_keys=str(keys.authorized),
        sftp_factory=(sftp or usual) if has_sftp else None,
    )
    try:
        listening = acceptor.get_port()
        keys.make_known(listening)
        yield SshServer(listening, "somebody", keys.options(), served)
    finally:
        acceptor.close()
        await guests.show_out()
        await acceptor.wait_closed()


class _Guests:
    """All connections of a server, so that it can stop without waiting for them."""

    def __init__(self) -> None:
        self._connections: list[asyncssh.SSHServerConnection] = []

    def receptionist(self) -> asyncssh.SSHServer:
        connections = self._connections

        class Receptionist(asyncssh.SSHServer):
            def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
                connections.append(conn)

        return Receptionist()

    async def show_out(self) -> None:
        for connection in self._connections:
            connection.abort()
            await connection.wait_closed()


@asynccontextmanager
async def openssh_server(_: Path | None, keys: Keys) -> AsyncIterator[SshServer]:
    """A real one, as an ordinary process of whoever runs the tests; it shows the whole disk."""
    with _sshd(keys) as port:
        keys.make_known(port)
        yield SshServer(port, getpass.getuser(), keys.options(), _posix)


def _posix(path: Path) -> str:
    """With a slash before the drive that Windows has."""
    return f"/{path.as_posix().removeprefix('/')}"


@contextmanager
def _sshd(keys: Keys) -> Iterator[int]:
    assert SSHD is not None
    if hasattr(os, "getuid") and os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where root's sshd locks itself in
    port = free_port()
    settings = keys.config.with_name("sshd_config")
    settings.write_text(_SSHD_CONFIG.format(port=port, keys=keys), encoding="utf-8")
    command = [SSHD, "-D", "-e", "-f", str(settings)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = ""
            while "Server listening on" not in said:
                line = process.stderr.readline()
                assert line, f"sshd did not start: {said}"
                said += line
            yield port
        finally:
            process.kill()


_SSHD_CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {keys.host}
AuthorizedKeysFile {keys.authorized}
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PidFile none
Subsystem sftp internal-sftp
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        return listener.getsockname()[1]


class BadLine:
    """Passes bytes on to a server and back, and breaks after as many as it is told."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._open: set[asyncio.Task[None]] = set()
        self._way: Way = "there"
        self._counts: list[int] = []
        self.passed: dict[Way, int] = {"there": 0, "back": 0}
        self.connections = 0
        self.port = 0
        self.is_down = False

    def break_after(self, *counts: int, way: Way = "there") -> None:
        """Once for each count, which begins after the last break; then it is good."""
        self._way = way
        self._counts = list(counts)

    @property
    def has_broken(self) -> bool:
        return not self._counts

    def mend(self) -> None:
        self._counts = []
        self.is_down = False

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.connections += 1
        try:
            if not self.is_down:
                await self._connect(reader, writer)
        except asyncio.CancelledError:
            pass  # hung up, which the streams would report as an error
        finally:
            writer.transport.abort()
            self._open.discard(task)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(LOOPBACK, self._to)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(reader, back, "there"))
                group.create_task(self._pass_on(there, writer, "back"))
        except* (ConnectionError, _Broken):
            pass
        finally:
            back.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
        while data := await reader.read(1 << 16):
            if self._counts and way == self._way:
                if len(data) >= self._counts[0]:
                    writer.write(data[: self._counts.pop(0)])
                    with suppress(ConnectionError):
                        await writer.drain()
                    raise _Broken
                self._counts[0] -= len(data)
            self.passed[way] += len(data)
            writer.write(data)
            await writer.drain()
        raise _Broken

    async def hang_up(self) -> None:
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class _Broken(Exception):
    """Ends both directions."""


@asynccontextmanager
async def bad_line(to: int) -> AsyncIterator[BadLine]:
    line = BadLine(to)
    server = await asyncio.start_server(line.carry, LOOPBACK, 0)
    line.port = server.sockets[0].getsockname()[1]
    try:
        yield line
    finally:
        server.close()
        await line.hang_up()
        if sys.version_info >= (3, 12):
            server.close_clients()
        await server.wait_closed()


# What is run on each; `tools/openssh` asks for the second.
SERVERS: dict[str, Callable[[Path | None, Keys], AbstractAsyncContextManager[SshServer]]] = {
    "asyncssh": asyncssh_server
}
if SSHD:
    SERVERS["openssh"] = openssh_server


@asynccontextmanager
async def ssh_stores(own: Path) -> AsyncIterator[Stores]:
    """Of asyncssh's server."""
    async with asyncssh_server(None, Keys.made_in(own)) as server, _stores(server) as stores:
        yield stores


@asynccontextmanager
async def openssh_stores(own: Path) -> AsyncIterator[Stores]:
    async with openssh_server(None, Keys.made_in(own)) as server, _stores(server) as stores:
        yield stores


@asynccontextmanager
async def _stores(server: SshServer) -> AsyncIterator[Stores]:
    """Each with a connection of its own."""
    opened: list[SshConnections] = []

    async def at(folder: Path, terms: LockTerms) -> FileStore:
        opened.append(SshConnections(server.options, terms=terms))
        return await opened[-1].open_folder(server.user, LOOPBACK, server.port, server.served(folder))

    def way_to(folder: Path) -> dict[str, Any]:
        options = server.options
        return {
            "login": [server.user, LOOPBACK, server.port, server.served(folder)],
            "options": {name: str(getattr(options, name)) for name in ("key", "known_hosts", "config")},
        }

    try:
        yield Stores(at, way_to)
    finally:
        for connections in opened:
            await connections.close()
