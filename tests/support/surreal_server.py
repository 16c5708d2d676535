"""SurrealDB servers for tests, and ways to them that break.

    async with served(core=3) as server:            # or folder=..., certificate=...
        connection = server.connection("memory")    # closed with the server
        await server.kill(); await server.restart() # with its data, where it has a folder
        server.pause(); server.resume()             # frozen, not gone
        async with proxied(server) as proxy:
            connection = proxy.connection("memory")
            proxy.cut_after(100)                    # bytes, of both directions together
            proxy.refuse(); proxy.accept()

A test that needs a server and does nothing bad to it takes `shared(core)`, and a namespace of
its own from `fresh_namespace()`: starting one takes a second.
"""

import asyncio
import atexit
import itertools
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest

import proxies
from everkept.engines.surreal.drivers import Credentials, SocketConnection

PROGRAM = str(Path(__file__).with_name("surreal_program.py"))
PATIENCE = 60  # seconds; nothing takes that long unless it hangs
USER, PASSWORD = "root", "correct horse"
# Versions, as parameters of a test.
CORES = (pytest.param(2, marks=pytest.mark.thorough), 3)

_numbers = itertools.count()


def fresh_namespace() -> str:
    return f"space_{os.getpid()}_{next(_numbers)}"


class Server:
    """A process; one of `folder` has its data again after it was killed."""

    def __init__(
        self,
        core: int,
        folder: Path | None = None,
        *,
        user: str = USER,
        password: str = PASSWORD,
        namespace: str = "",
        certificate: Path | None = None,
        orderly: bool = False,
    ) -> None:
        self.core = core
        self.folder = folder
        self.credentials = Credentials(user, password)
        self._certificate = certificate
        self._options = [
            *("--core", str(core), "--user", user, "--password", password),
            *("--store", "mem://" if folder is None else f"surrealkv://{folder}"),
            *(("--namespace", namespace) if namespace else ()),
            *(("--certificate", str(certificate)) if certificate else ()),
            *(("--orderly",) if orderly else ()),
        ]
        self._process: subprocess.Popen[str] | None = None
        self._connections: list[SocketConnection] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"{'wss' if self._certificate else 'ws'}://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    def connection(self, namespace: str, **options: Any) -> SocketConnection:
        """One more, which is closed with the server at the latest."""
        return self.at(self.url, namespace, **options)

    def at(self, url: str, namespace: str, **options: Any) -> SocketConnection:
        chosen: dict[str, Any] = {"time_limit": PATIENCE, "connect_limit": PATIENCE, "ca": self._certificate}
        connection = SocketConnection(url, namespace, self.credentials, **(chosen | options))
        self._connections.append(connection)
        return connection

    def start(self) -> None:
        """Blocks until it listens; on the port that it had, if it had one."""
        self._process = subprocess.Popen(
            [sys.executable, PROGRAM, *self._options, "--port", str(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "SURREAL_SYNC_DATA": "true"},
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def stop(self) -> None:
        """At once and without warning, frozen or not."""
        process, self._process = self._process, None
        if process is not None:
            with process:
                process.kill()

    async def kill(self) -> None:
        await asyncio.to_thread(self.stop)

    async def restart(self) -> None:
        """On the same port; one without a folder has forgotten everything."""
        await self.kill()
        await asyncio.to_thread(self.start)

    def pause(self) -> None:
        psutil.Process(self.pid).suspend()

    def resume(self) -> None:
        psutil.Process(self.pid).resume()

    async def close(self) -> None:
        await self.disconnect()
        await self.kill()

    async def disconnect(self) -> None:
        """Close every connection that was opened by it."""
        connections, self._connections = self._connections, []
        for connection in connections:
            await connection.close()

    async def empty(self, namespace: str) -> None:
        """Leave nothing of a namespace, and no connection."""
        await self.connection(namespace).run("default", f"REMOVE NAMESPACE IF EXISTS {namespace}")
        await self.disconnect()

    def _running(self) -> "subprocess.Popen[str]":
        assert self._process is not None, "it was killed"
        return self._process


@asynccontextmanager
async def served(core: int, folder: Path | None = None, **options: Any) -> AsyncGenerator[Server, None]:
    """A server of its own, gone when the block ends."""
    server = Server(core, folder, **options)
    await asyncio.to_thread(server.start)
    try:
        yield server
    finally:
        await server.close()


@cache
def shared(core: int) -> Server:
    """One for all tests of this process, in memory, that answers one text at a time.

    Its connections are the caller's to close.
    """
    server = Server(core, orderly=True)
    server.start()
    atexit.register(server.stop)
    return server


class Proxy(proxies.Proxy):
    """Between a client and a server."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.port)
        self._server = server

    @property
    def url(self) -> str:
        return self._server.url.replace(str(self._server.port), str(self.port))

    def connection(self, namespace: str, **options: Any) -> SocketConnection:
        return self._server.at(self.url, namespace, **options)


def proxied(server: Server) -> AbstractAsyncContextManager[Proxy]:
    return proxies.running(Proxy(server))
