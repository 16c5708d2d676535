"""Servers over HTTP for tests of those who reach them: real ones, and ones that do it wrong."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn

from everkept.core.mcp import UpstreamEndpoint, UpstreamSettings
from everkept.upstreams.http import connect_http
from everkept.upstreams.link import UpstreamLink
from http_upstream_actors import PATH, App

JSON = dict[str, Any]
HANG = 60  # seconds; nothing takes that long unless it hangs
NAME = "notes"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "raw"}}


@contextmanager
def served(app: App) -> Generator[str, None, None]:
    """The application in a thread with a loop of its own; gives its address."""
    config = uvicorn.Config(app, port=0, log_config=None, lifespan="on", timeout_graceful_shutdown=1)
    server = _Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert server.ready.wait(HANG)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}{PATH}"
    finally:
        server.should_exit = True
        thread.join(HANG)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@asynccontextmanager
async def linked(
    url: str,
    headers: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    tell: Callable[[], None] = lambda: None,
) -> AsyncGenerator[UpstreamLink, None]:
    reach = UpstreamSettings(NAME, UpstreamEndpoint(url, headers or {}), connect_timeout=HANG)
    async with connect_http(reach, environment or {}, tell) as link:
        yield link


@dataclass(frozen=True)
class Received:
    """A request as it came over the wire."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: JSON

    @property
    def rpc(self) -> str:
        return self.body.get("method", "")


Writer = asyncio.StreamWriter
Answer = Callable[[Received, Writer], Awaitable[None]]


class RawServer:
    """Answers with bytes. What it has got is in `received`."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.received: list[Received] = []
        self.closed = asyncio.Event()  # set when a client hangs up during an answer
        self._writers: set[Writer] = set()
        self._answering: set[Writer] = set()

    async def hang_up(self) -> None:
        await self._abort(set(self._writers))

    async def hang_up_where_idle(self) -> None:
        await self._abort(self._writers - self._answering)

    async def _abort(self, writers: set[Writer]) -> None:
        """Returns once the clients can see it."""
        for writer in writers:
            writer.transport.abort()
        while writers & self._writers:  # noqa: ASYNC110 - nothing tells of their end
            await asyncio.sleep(0)

    async def serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        self._writers.add(writer)
        try:
            while (received := await _received(reader)) is not None:
                self.received.append(received)
                self._answering.add(writer)
                answering = asyncio.ensure_future(self._answer(received, writer))
                hanging_up = asyncio.ensure_future(reader.read(1))
                await asyncio.wait({answering, hanging_up}, return_when=asyncio.FIRST_COMPLETED)
                if not answering.done():
                    self.closed.set()
                answering.cancel()
                hanging_up.cancel()
                await asyncio.wait({answering, hanging_up})
                if answering.cancelled() or writer.is_closing():
                    return
                answering.result()
                self._answering.discard(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            self._writers.discard(writer)
            self._answering.discard(writer)
            writer.close()


@asynccontextmanager
async def raw_server(answer: Answer, **options: Any) -> AsyncGenerator[tuple[str, RawServer], None]:
    raw = RawServer(answer)
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0, **options)
    try:
        scheme = "https" if options else "http"
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}{PATH}", raw
    finally:
        server.close()


async def _received(reader: asyncio.StreamReader) -> Received | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    pairs = (line.split(": ", 1) for line in lines if line)
    headers = {name.lower(): value for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(method, path, headers, json.loads(body) if body else {})


def send(writer: Writer, status: int, body: bytes = b"", content_type: str = "", **headers: str) -> None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}"]
    lines += [f"Content-Type: {content_type}"] if content_type else []
    lines += [f"{name}: {value}" for name, value in named.items()]
    writer.write("\r\n".join((*lines, "", "")).encode() + body)


def send_result(writer: Writer, received: Received, result: JSON, **headers: str) -> None:
    message = {"jsonrpc": "2.0", "id": received.body["id"], "result": result}
    send(writer, 200, json.dumps(message).encode(), "application/json", **headers)


def send_events(writer: Writer, *messages: JSON) -> None:
    """Begins a stream, and leaves it open."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    for message in messages:
        writer.write(f"data: {json.dumps({'jsonrpc': '2.0', **message})}\n\n".encode())


def in_handshake_era(answer: Answer, session: str = "s1") -> Answer:
    """Shakes hands as servers did, and leaves the rest to `answer`."""

    async def answered(received: Received, writer: Writer) -> None:
        if received.method in ("GET", "DELETE"):
            send(writer, 405)
        elif received.rpc == "initialize":
            send_result(writer, received, HELLO, Mcp_Session_Id=session)
        elif received.rpc == "server/discover":
            send(writer, 400)
        elif received.rpc.startswith("notifications/"):
            send(writer, 202)
        else:
            await answer(received, writer)

    return answered


def in_stateless_era(answer: Answer) -> Answer:
    async def answered(received: Received, writer: Writer) -> None:
        if received.rpc == "server/discover":
            offered: JSON = {"supportedVersions": ["2026-07-28"], "capabilities": {}}
            send_result(writer, received, offered)
        else:
            await answer(received, writer)

    return answered


ERAS = {"handshake": in_handshake_era, "stateless": in_stateless_era}
Era = Callable[[Answer], Answer]
Act = Callable[[Received, Writer], None]

by_era = pytest.mark.parametrize("era", ERAS.values(), ids=ERAS.keys())


async def ask(link: UpstreamLink, tool: str = "echo") -> JSON:
    async with asyncio.timeout(HANG):
        return await link.request("tools/call", {"name": tool, "arguments": {}})


def by_tool(**answers: Act) -> Answer:
    """What a server does for the tool of each name; `echo` works."""

    async def answer(received: Received, writer: Writer) -> None:
        name = received.body.get("params", {}).get("name")
        if name in answers:
            answers[name](received, writer)
        else:
            send_result(writer, received, {"content": []})

    return answer
