"""What a connection may send, and how long it may take."""

import asyncio

import pytest

from everkept.transports.http_exchange import Message, Receive, Send
from loopback_http import SHORT, loopback_http

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
BIG = b"x" * (1024 * 1024)
ENOUGH = 1.0  # seconds of a deadline before which a client must have begun


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(POST + b"Content-Length: 2, 2\r\n\r\n{}", id="a list of lengths"),
        pytest.param(POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", id="two lengths"),
        pytest.param(POST + b"Content-Length: +2\r\n\r\n{}", id="a sign"),
        pytest.param(POST + b"content-length:\t2 ,2\r\n\r\n{}", id="a list after a tab"),
        pytest.param(POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", id="both"),
        pytest.param(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="chunks in HTTP/1.0"),
        pytest.param(GET.replace(b"\r\n", b"\n") + b"\n", id="only line feeds"),
        pytest.param(GET + b"X-A: 1\nX-B: 2\r\n\r\n", id="one line feed"),
        pytest.param(GET + b"X-A: 1\rX-B: 2\r\n\r\n", id="a carriage return"),
        pytest.param(GET + b"X-A: 1\r\n\n", id="an empty line without a carriage return"),
        pytest.param(GET + b"X-A: 1\r\n more\r\n\r\n", id="a folded header"),
        pytest.param(GET + b"X-A:\r\n\tmore\r\n\r\n", id="a header folded by a tab"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\n", id="a bare end of chunks"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 9\r\n\r\n", id="a trailer"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n", id="a bare end of a chunk size"),
    ],
)
async def test_requests_that_proxies_read_differently_are_refused(request_bytes: bytes) -> None:
    async with loopback_http() as server:
        async with server.connect() as client:
            assert (await client.ask(request_bytes)).startswith(b"HTTP/1.1 400")
        async with server.connect() as client:
            # The same after a request that was right, in one piece.
            client.send(GET + b"\r\n" + request_bytes)
            assert (await client.read_status()).startswith(b"HTTP/1.1 200")
            assert (await client.read_status()).startswith(b"HTTP/1.1 400")
            assert await client.wait_closed() == b""
        async with server.connect() as client:
            for each in request_bytes:
                client.send(bytes([each]))
                await client.writer.drain()
            assert (await client.read_status()).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(POST + b"Content-Length:  2 \r\n\r\n{}", id="a length"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\n\r\n", id="chunks"),
        pytest.param(GET + b"X-Empty:\r\n\r\n", id="an empty header"),
    ],
)
async def test_usual_requests_are_answered_in_any_pieces(request_bytes: bytes) -> None:
    async with loopback_http() as server, server.connect() as client:
        client.send(request_bytes + request_bytes)
        for each in request_bytes:
            client.send(bytes([each]))
            await client.writer.drain()
        for _ in range(3):
            assert await client.read_status() == b"HTTP/1.1 200 OK"


async def test_headers_that_never_end_are_refused() -> None:
    async with loopback_http() as server, server.connect() as client:
        client.send(GET + b"X-A: " + b"a" * 100_000)
        assert (await client.read_status()).startswith((b"HTTP/1.1 400", b""))
        await client.wait_closed()


async def test_a_connection_without_a_request_is_closed() -> None:
    async with loopback_http(header_seconds=SHORT) as server, server.connect() as client:
        assert await client.wait_closed() == b""
        assert server.counts.closed == {"no_request": 1}


@pytest.mark.parametrize("before", [b"", GET + b"\r\n"])
async def test_slow_headers_are_refused(before: bytes) -> None:
    async with loopback_http(header_seconds=ENOUGH) as server, server.connect() as client:
        if before:
            assert await client.ask(before) == b"HTTP/1.1 200 OK"
        client.send(GET[:10])
        answer = await client.wait_closed()
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"headers" in answer
        assert server.counts.closed == {"slow_headers": 1}


async def test_a_byte_now_and_then_does_not_extend_the_deadline() -> None:
    async with loopback_http(header_seconds=ENOUGH) as server, server.connect() as client:
        ended = asyncio.ensure_future(client.wait_closed())
        while not ended.done():
            client.send(b"G")
            await asyncio.wait({ended}, timeout=SHORT / 10)
        assert server.counts.closed == {"slow_headers": 1}


async def test_a_slow_body_is_refused_and_never_reaches_the_application() -> None:
    finished: list[bytes] = []

    async def app(_scope: Message, receive: Receive, _send: Send) -> None:
        while (message := await receive())["type"] != "http.disconnect":
            finished.append(message["body"])

    async with loopback_http(app, body_seconds=SHORT) as server, server.connect() as client:
        client.send(POST + b"Content-Length: 9\r\n\r\n{")
        answer = await client.wait_closed()
        assert answer.startswith(b"HTTP/1.1 408")
        assert server.counts.closed == {"slow_body": 1}
        assert b"".join(finished) in (b"", b"{")


async def test_an_idle_connection_is_closed() -> None:
    async with loopback_http(idle_seconds=SHORT) as server, server.connect() as client:
        assert await client.ask(GET + b"\r\n") == b"HTTP/1.1 200 OK"
        assert await client.wait_closed() == b""
        assert server.counts.closed == {"idle": 1}


async def test_an_answer_may_take_longer_than_every_deadline() -> None:
    async def app(_scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        while server.counts.closed["no_request"] == 0:  # noqa: ASYNC110 - a count has no event
            await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    short = dict.fromkeys(("header_seconds", "body_seconds", "idle_seconds", "send_seconds"), SHORT)
    async with loopback_http(app, **short) as server, server.connect() as busy:
        busy.send(GET + b"\r\n")
        async with server.connect() as silent:
            await silent.wait_closed()
        assert await busy.read_status() == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("ending", [b"", b"Connection: close\r\n"])
async def test_a_client_that_stops_reading_loses_its_connection(ending: bytes) -> None:
    is_ended = asyncio.Event()

    async def app(_scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(50):
                await send({"type": "http.response.body", "body": BIG, "more_body": True})
        finally:
            is_ended.set()

    async with loopback_http(app, send_seconds=SHORT) as server, server.connect(limit=1024) as client:
        client.send(GET + ending + b"\r\n")
        await is_ended.wait()
        while server.counts.open:  # noqa: ASYNC110 - a count has no event
            await asyncio.sleep(0)
        assert server.counts.closed == {"not_reading": 1}


async def test_a_whole_answer_that_nobody_reads_does_not_keep_the_connection() -> None:
    async def app(_scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": BIG * 20})

    async with (
        loopback_http(app, idle_seconds=SHORT, send_seconds=SHORT) as server,
        server.connect(limit=1024) as client,
    ):
        client.send(GET + b"Connection: close\r\n\r\n")
        while not server.counts.closed["not_reading"]:  # noqa: ASYNC110 - a count has no event
            await asyncio.sleep(0)
        while server.counts.open:  # noqa: ASYNC110 - a count has no event
            await asyncio.sleep(0)


async def test_a_client_that_reads_slowly_gets_everything() -> None:
    async def app(_scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": BIG * 5})

    async with loopback_http(app, send_seconds=1) as server, server.connect(limit=1024) as client:
        client.send(GET + b"Connection: close\r\n\r\n")
        received = 0
        while part := await client.reader.read(64 * 1024):
            received += len(part)
            await asyncio.sleep(0)
        assert received > len(BIG) * 5
        assert not server.counts.closed
