import asyncio
from pathlib import Path

import pytest

from everkept.peers.client import MAX_BODY_BYTES, MAX_HEAD_BYTES, InvalidReply, UnknownCertificate, send_request
from peer_servers import TOKEN, Answer, replying, saying, silent, standing_in


async def test_a_request_goes_to_the_server_with_the_right_certificate(tmp_path: Path) -> None:
    async with standing_in(tmp_path, replying("200 OK", b"{}", Retry_After="7")) as there:
        reply = await send_request(there.peer(), "POST", "/peers/search", b'{"query": "x"}')
    assert (reply.status, reply.body, reply.headers["retry-after"]) == (200, b"{}", "7")
    head, _, body = bytes(there.received).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /peers/search HTTP/1.0\r\n")
    assert f"Authorization: Bearer {TOKEN}".encode() in head
    assert f"Host: 127.0.0.1:{there.port}".encode() in head
    assert body == b'{"query": "x"}'


async def test_a_server_with_another_certificate_is_sent_nothing(tmp_path: Path) -> None:
    async with standing_in(tmp_path, replying("200 OK", b"{}")) as there:
        with pytest.raises(UnknownCertificate) as seen:
            await send_request(there.peer(fingerprint="0" * 64), "GET", "/peers/info")
        assert seen.value.seen == there.fingerprint
        # Whatever comes behind it has come after all that was sent before.
        await send_request(there.peer(), "GET", "/known")
    assert bytes(there.received).startswith(b"GET /known ")
    assert there.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        saying(b""),
        saying(b"HTTP/1.1 200"),
        saying(b"220 mail.example ESMTP\r\n\r\n"),
        saying(b"HTTP/2 200\r\n\r\n"),
        saying(b"HTTP/1.1 2x0 OK\r\n\r\n"),
        saying(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2 * MAX_HEAD_BYTES + b"\r\n\r\n"),
        saying(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}"),
        saying(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}"),
        saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
        saying(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MAX_BODY_BYTES + 1)),
    ],
)
async def test_what_is_no_answer_is_told_from_one(tmp_path: Path, answer: Answer) -> None:
    async with standing_in(tmp_path, answer) as there:
        with pytest.raises(InvalidReply):
            await send_request(there.peer(), "GET", "/peers/info")


async def test_an_answer_may_end_with_its_connection(tmp_path: Path) -> None:
    async with standing_in(tmp_path, saying(b"HTTP/1.0 200 OK\r\n\r\n{}")) as there:
        assert (await send_request(there.peer(), "GET", "/")).body == b"{}"


async def test_waiting_can_be_ended(tmp_path: Path) -> None:
    async with standing_in(tmp_path, silent) as there:
        asking = asyncio.create_task(send_request(there.peer(), "GET", "/peers/info"))
        async with asyncio.timeout(60):
            await there.was_asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
