"""Upstreams for tests: the server of `upstream_actors`, however it is reached."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from everkept.core.mcp import JSON, Upstream, UpstreamEndpoint, UpstreamProgram, UpstreamSettings
from everkept.errors import UpstreamError, UpstreamUnavailable
from everkept.upstreams.link import Connect
from everkept.upstreams.upstream import OwnedUpstream
from gateways import Asked, MemoryUpstream
from upstream_tools import Actor, Call, RpcError

PATIENCE = 60  # seconds; nothing takes that long unless it hangs
AT_ONCE = (0.0,)  # pauses between attempts
PROGRAM = str(Path(__file__).with_name("upstream_actors.py"))


def actor(*options: object, **env: str) -> UpstreamProgram:
    """The test server on pipes."""
    return UpstreamProgram(sys.executable, (PROGRAM, *map(str, options)), env)


@asynccontextmanager
async def owned(
    way: UpstreamProgram | UpstreamEndpoint,
    connect: Connect,
    *,
    pauses: tuple[float, ...] = AT_ONCE,
    probe: float = PATIENCE,
    environment: dict[str, str] | None = None,
    **patience: Any,
) -> AsyncGenerator[OwnedUpstream, None]:
    """An upstream that is closed when the block ends."""
    reach = UpstreamSettings("notes", way, **({"connect_timeout": PATIENCE} | patience))
    ours = dict(os.environ) if environment is None else environment
    upstream = OwnedUpstream(reach, ours, connect, pauses=pauses, probe=probe)
    try:
        yield upstream
    finally:
        await upstream.close()


@asynccontextmanager
async def started(*options: object, **choices: Any) -> AsyncGenerator[OwnedUpstream, None]:
    """The test server behind pipes."""
    from everkept.upstreams.stdio import connect_stdio

    async with owned(actor(*options), connect_stdio, **choices) as upstream:
        yield upstream


class Clock:
    """The clock of the running loop, which a test may put forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead = 0.0
        loop = asyncio.get_running_loop()
        real = loop.time
        monkeypatch.setattr(loop, "time", lambda: real() + self._ahead)

    async def goes_on(self, seconds: float) -> None:
        """Whatever is due by then happens."""
        self._ahead += seconds
        for _ in range(20):
            await asyncio.sleep(0)


async def until(is_so: Callable[[], bool]) -> None:
    """Waits for what happens in other processes, which send us no event."""
    async with asyncio.timeout(PATIENCE):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def there(path: Path) -> None:
    """Waits for a file that another process writes."""
    await until(path.exists)


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def gone(*pids: int) -> None:
    """Waits for the end of processes that need not be ours."""
    await until(lambda: not any(lives(pid) for pid in pids))


async def pid_of(upstream: Upstream, tool: str = "pid") -> int:
    answer = await upstream.call(tool, {})
    return answer["structuredContent"]["pid"]


def hold(*options: str) -> None:
    """A process that keeps the test server and a child of it; says who they are, and waits."""

    async def run() -> None:
        async with started(*options) as upstream:
            pids = [await pid_of(upstream), await pid_of(upstream, "spawn")]
            sys.stdout.write(json.dumps(pids) + "\n")
            sys.stdout.flush()
            await asyncio.to_thread(sys.stdin.readline)

    asyncio.run(run())


def begin(*options: str) -> None:
    """A process that starts the test server, and waits."""

    async def run() -> None:
        async with started(*options) as upstream:
            upstream.start()
            await asyncio.to_thread(sys.stdin.readline)

    asyncio.run(run())


@dataclass(frozen=True)
class Scene:
    """A running server of `upstream_actors`, and the upstream that reaches it."""

    upstream: Upstream
    revive: Callable[[], None] = lambda: None  # what a server needs that we have not started


Staged = Callable[[Path], AbstractAsyncContextManager[Scene]]
PAGE_SIZE = 5


@asynccontextmanager
async def memory_scene(folder: Path) -> AsyncIterator[Scene]:
    """The same tools, without a wire."""
    loop, server = asyncio.get_running_loop(), Actor()

    async def answer(asked: Asked) -> JSON:
        if asked.tool == "crash":  # it would be our own end
            raise UpstreamUnavailable("notes", "ended.")

        def report(done: float, total: float | None, message: str | None) -> None:
            if asked.report is not None:
                told = asked.report(done, total, message)
                asyncio.run_coroutine_threadsafe(told, loop).result(PATIENCE)  # pyright: ignore

        def announce() -> None:
            loop.call_soon_threadsafe(upstream.change_tools, server.listed()["tools"])

        call = Call(asked.tool, asked.arguments, report, announce)
        try:
            return await asyncio.to_thread(server.call, call)
        except RpcError as error:
            body = error.body
            raise UpstreamError(body["message"], upstream="notes", upstream_code=body["code"]) from error
        except asyncio.CancelledError:
            call.cancelled.set()
            raise

    upstream = MemoryUpstream("notes", server.listed()["tools"], answer)
    yield Scene(upstream)
    await upstream.close()


def stdio_scene(era: str) -> Staged:
    @asynccontextmanager
    async def staged(folder: Path) -> AsyncIterator[Scene]:
        async with started("--era", era, "--page-size", PAGE_SIZE) as upstream:
            yield Scene(upstream)

    return staged


def http_scene(era: str) -> Staged:
    """The server in a thread of ours, which takes a tenth of the time of a process."""

    @asynccontextmanager
    async def staged(folder: Path) -> AsyncIterator[Scene]:
        from everkept.upstreams.http import connect_http
        from http_upstream_actors import http_app
        from http_upstreams import served

        with served(http_app(Actor(page_size=PAGE_SIZE), era)) as url:
            async with owned(UpstreamEndpoint(url), connect_http) as upstream:
                yield Scene(upstream)

    return staged


def http_process_scene(era: str) -> Staged:
    """The server in a process of its own, which may crash."""

    @asynccontextmanager
    async def staged(folder: Path) -> AsyncIterator[Scene]:
        from everkept.upstreams.http import connect_http

        servers: list[subprocess.Popen[bytes]] = []

        def revive() -> None:
            port = (folder / "port").read_text(encoding="ascii")
            servers.append(_http_server(folder / "again", era, "--port", port))

        try:
            servers.append(_http_server(folder / "port", era))
            await there(folder / "port")
            port = int((folder / "port").read_text(encoding="ascii"))
            way = UpstreamEndpoint(f"http://127.0.0.1:{port}/mcp")
            async with owned(way, connect_http) as upstream:
                yield Scene(upstream, revive)
        finally:
            for server in servers:
                server.kill()
                server.wait()

    return staged


def _http_server(port_file: Path, era: str, *options: str) -> subprocess.Popen[bytes]:
    flags = ("--era", era, "--page-size", str(PAGE_SIZE), "--http", str(port_file), *options)
    return subprocess.Popen([sys.executable, PROGRAM, *flags])


SCENES: dict[str, Staged] = {
    "memory": memory_scene,
    "stdio-handshake": stdio_scene("handshake"),
    "stdio-stateless": stdio_scene("stateless"),
    "http-handshake": http_scene("handshake"),
    "http-stateless": http_scene("stateless"),
}
CRASHING_SCENES = SCENES | {
    "http-handshake": http_process_scene("handshake"),
    "http-stateless": http_process_scene("stateless"),
}
