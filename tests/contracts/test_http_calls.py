import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from everkept.core.mcp import UpstreamEndpoint
from everkept.errors import UpstreamError, UpstreamUnavailable
from everkept.upstreams.http import connect_http
from everkept.upstreams.http_wire import FaultKind, PostCall, explain_exception
from everkept.upstreams.upstream import OwnedUpstream
from http_upstreams import (
    HANG,
    HELLO,
    Act,
    Era,
    RawServer,
    Received,
    Writer,
    by_era,
    in_handshake_era,
    in_stateless_era,
    send,
    send_events,
    send_result,
)
from upstreams import owned

EVENTS, PLAIN, PAGE = "text/event-stream", "application/json", "text/html"
FIRST_EVENT = b"id: e1\nretry: 100\ndata:\n\n"


def status(code: int, body: bytes = b"", content_type: str = "", **headers: str) -> Act:
    return lambda _, writer: send(writer, code, body, content_type, **headers)


def refusal(code: int) -> Act:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Who?"}}
    return status(code, json.dumps(error).encode(), PLAIN)


def abort(_: Received, writer: Writer) -> None:
    writer.transport.abort()


def half_a_head(_: Received, writer: Writer) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-")
    writer.close()


def half_a_message(_: Received, writer: Writer) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {PLAIN}\r\nContent-Length: 900\r\n\r\n"
    writer.write(head.encode() + b'{"jsonrpc"')
    writer.close()


def half_a_stream(_: Received, writer: Writer) -> None:
    send_events(writer, {"method": "notifications/message", "params": {"level": "info"}})
    writer.close()


def half_an_event(_: Received, writer: Writer) -> None:
    send_events(writer)
    writer.write(FIRST_EVENT + b"data: {")
    writer.close()


cannot_resume = status(405)
one_event = status(200, FIRST_EVENT, EVENTS)


@dataclass(frozen=True)
class Break:
    """How a call is answered that was done, and how whoever asks for the rest."""

    answer: Act
    resumed: Act = cannot_resume


BREAKS = {
    "nothing": Break(abort),
    "half a head": Break(half_a_head),
    "half a message": Break(half_a_message),
    "half a stream": Break(half_a_stream),
    "an empty stream": Break(status(200, b": nothing\n\n", EVENTS)),
    "500": Break(status(500)),
    "502 page": Break(status(502, b"<html>", PAGE)),
    "503": Break(status(503)),
    "504": Break(status(504)),
    "202": Break(status(202)),
    "204": Break(status(204)),
    "a page": Break(status(200, b"<html>", PAGE)),
    "see other": Break(status(303, Location="/done")),
    "not resumed": Break(one_event),
    "half an event": Break(half_an_event),
    "resumed with 401": Break(one_event, status(401)),
    "resumed with 404": Break(one_event, status(404)),
    "resumed with 404 in words": Break(one_event, refusal(404)),
    "resumed with 400 in words": Break(one_event, refusal(400)),
    "resumed with 501": Break(one_event, status(501)),
    "resumed with 503": Break(one_event, status(503)),
    "resumed with 202": Break(one_event, status(202)),
    "resumed with a page": Break(one_event, status(200, b"<html>", PAGE)),
    "resumed with a message": Break(one_event, status(200, b"{}", PLAIN)),
    "resumed elsewhere": Break(one_event, status(307, Location="http://127.0.0.1:1/mcp")),
    "resumed in vain": Break(one_event, abort),
}
FATES = ("stays", "forgets", "goes")


class Breaking:
    """A server that does what it is told, and answers the first call as `cut` says. After that it
    stays as it is, has forgotten its sessions, or takes no connection any more."""

    def __init__(self, era: Era, cut: Break, fate: str) -> None:
        self.effects = 0
        self.sessions: list[str] = []
        self.raw = RawServer(self._answer)
        self._cut, self._fate = cut, fate
        self._is_over = False
        self._other = era(self._act)
        self._listener: asyncio.Server | None = None

    @asynccontextmanager
    async def reached(self) -> AsyncGenerator[OwnedUpstream, None]:
        self._listener = await asyncio.start_server(self.raw.serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}/mcp"
        try:
            async with asyncio.timeout(HANG), owned(UpstreamEndpoint(url), connect_http, environment={}) as upstream:
                yield upstream
        finally:
            self._listener.close()

    async def _answer(self, received: Received, writer: Writer) -> None:
        session = received.headers.get("mcp-session-id")
        if "last-event-id" in received.headers:
            self._cut.resumed(received, writer)
        elif received.rpc == "initialize":
            self.sessions.append(f"s{len(self.sessions)}")
            send_result(writer, received, HELLO, Mcp_Session_Id=self.sessions[-1])
        elif self._is_over and self._fate == "forgets" and session == "s0":
            send(writer, 404)
        else:
            await self._other(received, writer)

    async def _act(self, received: Received, writer: Writer) -> None:
        if received.rpc != "tools/call":
            send_result(writer, received, {})
            return
        self.effects += 1
        if self._is_over:
            send_result(writer, received, {"content": [self.effects]})
            return
        self._is_over = True
        if self._fate == "goes":
            assert self._listener is not None
            self._listener.close()
            await self.raw.hang_up_where_idle()
        self._cut.answer(received, writer)


@by_era
@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("cut", BREAKS.values(), ids=BREAKS.keys())
async def test_a_call_that_may_have_been_done_is_never_sent_again(era: Era, cut: Break, fate: str) -> None:
    server = Breaking(era, cut, fate)
    async with server.reached() as upstream:
        with pytest.raises(UpstreamUnavailable) as caught:
            await upstream.call("add", {})
        assert caught.value.hint == ("The outcome of the call is unknown, so it was not repeated.")
        assert not caught.value.retry_possible
        assert server.effects == 1
        if fate != "goes":
            assert await upstream.call("add", {}) == {"content": [2]}


REFUSALS = {"404": status(404), "404 in words": refusal(404), "400 in words": refusal(400)}


@pytest.mark.parametrize("refuse", REFUSALS.values(), ids=REFUSALS.keys())
async def test_a_call_that_was_refused_unread_is_sent_once_more(refuse: Act) -> None:
    server = Breaking(in_handshake_era, Break(refuse), "forgets")
    async with server.reached() as upstream:
        assert await upstream.call("add", {}) == {"content": [2]}
    assert server.sessions == ["s0", "s1"]


async def test_a_refusal_that_names_the_call_is_told_and_the_session_made_anew() -> None:
    def refuse(received: Received, writer: Writer) -> None:
        error = {"code": -32001, "message": "No such note."}
        body = {"jsonrpc": "2.0", "id": received.body["id"], "error": error}
        send(writer, 404, json.dumps(body).encode(), PLAIN)

    server = Breaking(in_handshake_era, Break(refuse), "stays")
    async with server.reached() as upstream:
        with pytest.raises(UpstreamError, match=r"No such note\."):
            await upstream.call("add", {})
        assert server.effects == 1
        assert await upstream.call("add", {}) == {"content": [2]}
    assert server.sessions == ["s0", "s1"]


async def test_an_error_about_headers_is_the_servers_where_it_read_the_call() -> None:
    error: dict[str, Any] = {"code": -32020, "message": "Header mismatch."}

    def answer(received: Received, writer: Writer) -> None:
        send_events(writer, {"id": received.body["id"], "error": error})

    server = Breaking(in_stateless_era, Break(answer), "stays")
    async with server.reached() as upstream:
        with pytest.raises(UpstreamError, match="mismatch"):
            await upstream.call("add", {})
    assert server.effects == 1


async def test_a_call_counts_as_sent_from_its_body_on() -> None:
    post = PostCall(1, "tools/call", {}, {})
    unreached = explain_exception(httpx2.ConnectError(""), "here")
    assert post.correct_fault(unreached).kind is FaultKind.UNREACHED
    assert [chunk async for chunk in post] == [post.body]
    assert post.correct_fault(unreached).kind is FaultKind.BROKEN
