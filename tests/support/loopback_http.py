"""Our HTTP listener on the loopback address in this process, with limits that a test chooses."""

import asyncio
import socket
import ssl
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from everkept.transports.guard import listen
from everkept.transports.http_exchange import ASGIApp, Message, Receive, Send, send_answer
from everkept.transports.http_listener import ConnectionCounts, HttpListener
from everkept.transports.http_protocol import ConnectionLimits, HttpProtocol
from everkept.transports.trusted_proxies import NO_PROXIES, TrustedProxies
from everkept.values import replace

HANG = 60.0
SHORT = 0.05  # seconds of a deadline that a test waits for
IS_DUAL = sys.platform == "darwin"  # which has one loopback address of IPv4
PATIENT = ConnectionLimits(100, 100, HANG, HANG, HANG, HANG)


class LoopbackServer:
    def __init__(self, port: int, counts: ConnectionCounts) -> None:
        self.port = port
        self.counts = counts

    @asynccontextmanager
    async def connect(self, *, as_other: bool = False, **options: Any) -> AsyncGenerator["RawClient", None]:
        """Connect, also from another address."""
        host = "127.0.0.1"
        if as_other and IS_DUAL:
            host = "::1"
        elif as_other:
            options["local_addr"] = ("127.0.0.2", 0)
        reader, writer = await asyncio.open_connection(host, self.port, **options)
        try:
            yield RawClient(reader, writer)
        finally:
            writer.transport.abort()


class RawClient:
    """Bytes on a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def ask(self, data: bytes) -> bytes:
        """The status line of the answer to these bytes, empty if the connection ends instead."""
        self.send(data)
        return await self.read_status()

    async def read_status(self) -> bytes:
        """Skip the rest of an answer, whose length is known."""
        try:
            line = await self.reader.readline()
            length = 0
            while (header := await self.reader.readline()).strip():
                name, _, value = header.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            await self.reader.readexactly(length)
        except (ConnectionError, asyncio.IncompleteReadError):
            return b""
        return line.strip()

    async def wait_closed(self) -> bytes:
        """What came until the server ended the connection."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""


async def echo(_scope: Message, receive: Receive, send: Send) -> None:
    """Answer a request with its body."""
    body, has_more = b"", True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        has_more = message["more_body"]
    await send_answer(send, 200, body)


def _listen() -> socket.socket:
    if IS_DUAL:
        return socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return listen("127.0.0.1", 0)


@asynccontextmanager
async def loopback_http(
    app: ASGIApp = echo, *, proxies: TrustedProxies = NO_PROXIES, tls: ssl.SSLContext | None = None, **limits: Any
) -> AsyncGenerator[LoopbackServer, None]:
    chosen = replace(PATIENT, **limits)
    config = uvicorn.Config(app, lifespan="off", ws="none", log_config=None, access_log=False, http=HttpProtocol)
    config.load()
    state, counts = ServerState(), ConnectionCounts(chosen)
    with _listen() as listening:
        listener = HttpListener(
            listening,
            lambda watch: HttpProtocol(config, state, {}, chosen, watch),
            chosen,
            tls=tls,
            is_proxy=proxies.is_trusted,
            counts=counts,
        )
        try:
            async with asyncio.timeout(HANG):
                yield LoopbackServer(listening.getsockname()[1], counts)
        finally:
            listener.close()
            await listener.wait_closed()
            for connection in list(state.connections):
                connection.transport.abort()
            await asyncio.gather(*state.tasks, return_exceptions=True)
