"""How many connections there may be, and who gets them."""

import asyncio
import errno
import logging
import os
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from certificates import certificate
from everkept.transports.http_exchange import Message, Receive, Send
from everkept.transports.http_listener import derive_connections, derive_per_address
from everkept.transports.trusted_proxies import TrustedProxies
from loopback_http import SHORT, LoopbackServer, RawClient, loopback_http

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def never(_scope: Message, receive: Receive, _send: Send) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def connect_all(
    stack: AsyncExitStack, server: LoopbackServer, count: int, *, as_other: bool = False
) -> list[RawClient]:
    return [await stack.enter_async_context(server.connect(as_other=as_other)) for _ in range(count)]


async def test_silent_connections_make_place_for_a_new_one() -> None:
    async with loopback_http(connections=4) as server, AsyncExitStack() as stack:
        silent = await connect_all(stack, server, 40)
        for _ in range(3):
            async with server.connect() as client:
                assert await client.ask(GET) == b"HTTP/1.1 200 OK"
        assert await silent[0].wait_closed() == b""
        assert server.counts.open <= 4
        assert server.counts.refused["evicted"] >= 36


async def test_a_new_connection_is_refused_while_all_are_busy() -> None:
    async with loopback_http(never, connections=2) as server, AsyncExitStack() as stack:
        busy = await connect_all(stack, server, 2)
        for client in busy:
            client.send(GET)
        answer = b""
        while not answer.startswith(b"HTTP/1.1 503"):  # until both requests have arrived
            async with server.connect() as client:
                client.send(GET)
                answer = await client.wait_closed() if server.counts.refused["total"] else b""
        assert server.counts.open <= 2


async def test_one_address_cannot_take_the_connections_of_another() -> None:
    async with loopback_http(connections=10, per_address=3) as server, AsyncExitStack() as stack:
        other = await connect_all(stack, server, 2, as_other=True)
        for client in other:
            assert await client.ask(GET) == b"HTTP/1.1 200 OK"
        flood = await connect_all(stack, server, 30)
        assert await flood[0].wait_closed() == b""
        for client in other:
            assert await client.ask(GET) == b"HTTP/1.1 200 OK"
        assert server.counts.open <= 5


async def test_a_trusted_proxy_has_no_limit_of_its_own() -> None:
    proxies = TrustedProxies.from_text("127.0.0.1")
    async with loopback_http(connections=10, per_address=2, proxies=proxies) as server, AsyncExitStack() as stack:
        for client in await connect_all(stack, server, 8):
            assert await client.ask(GET) == b"HTTP/1.1 200 OK"
        assert server.counts.open == 8


async def test_a_flood_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with loopback_http(connections=2) as server, AsyncExitStack() as stack:
            await connect_all(stack, server, 40)
            async with server.connect() as client:
                assert await client.ask(GET) == b"HTTP/1.1 200 OK"
    assert len([record for record in caplog.records if record.name.startswith("everkept")]) == 1


async def test_without_descriptors_the_listener_pauses_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    accept, tries = loop.sock_accept, 0

    async def sock_accept(listening: object) -> object:
        nonlocal tries
        tries += 1
        if tries <= 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return await accept(listening)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "sock_accept", sock_accept)
    monkeypatch.setattr("everkept.transports.http_listener.PAUSE_SECONDS", SHORT)
    with caplog.at_level(logging.WARNING):
        async with loopback_http() as server, server.connect() as client:
            assert await client.ask(GET) == b"HTTP/1.1 200 OK"
            assert server.counts.refused == {"descriptors": 3}
    assert len(caplog.records) == 1


async def test_a_handshake_of_tls_has_a_deadline_and_counts(tmp_path: Path) -> None:
    path = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    trusted = ssl.create_default_context(cafile=path)
    async with loopback_http(tls=context, header_seconds=SHORT) as server, server.connect() as silent:
        assert await silent.wait_closed() == b""
        assert server.counts.refused == {"tls": 1}
    async with loopback_http(tls=context, connections=2) as server, AsyncExitStack() as stack:
        silent_ones = await connect_all(stack, server, 10)
        assert await silent_ones[0].wait_closed() == b""
        async with server.connect(ssl=trusted, server_hostname="127.0.0.1") as client:
            assert await client.ask(GET) == b"HTTP/1.1 200 OK"


def test_the_limit_follows_from_the_descriptors() -> None:
    assert 16 <= derive_connections() <= 4096
    assert derive_per_address(512) == 128
    assert derive_per_address(32) == 16
    assert derive_per_address(8) == 8
