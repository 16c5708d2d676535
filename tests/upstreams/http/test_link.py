import asyncio
import json
from contextlib import suppress

import pytest

from everkept.core.upstreams import Endpoint
from everkept.errors import UpstreamError, UpstreamUnavailable
from everkept.upstreams.http.link import connect_http
from everkept.upstreams.links import LinkEnded, NotSent
from http_upstreaming import (
    HANG,
    HELLO,
    Era,
    RawServer,
    Received,
    Writer,
    ask,
    by_era,
    by_tool,
    in_handshake_era,
    linked,
    raw_server,
    send,
    send_events,
    send_result,
)
from upstreaming import owned, until

TOGETHER = 100


def calls_to(raw: RawServer) -> list[Received]:
    return [received for received in raw.received if received.rpc == "tools/call"]


class Slow:
    """A server whose tool `slow` waits until it may go on; `cut` is never answered."""

    def __init__(self, era: Era) -> None:
        self.asked, self.may_go_on = asyncio.Event(), asyncio.Event()
        self.raw = RawServer(era(self._answer))
        self._listener: asyncio.Server | None = None

    async def listen(self) -> str:
        self._listener = await asyncio.start_server(self.raw.serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}/mcp"

    def listen_no_more(self) -> None:
        assert self._listener is not None
        self._listener.close()

    async def _answer(self, received: Received, writer: Writer) -> None:
        match received.body["params"]["name"]:
            case "slow":
                self.asked.set()
                await self.may_go_on.wait()
            case "cut":
                self.listen_no_more()
                writer.transport.abort()
                return
            case _:
                pass
        send_result(writer, received, {"content": []})


@by_era
async def test_a_connection_that_is_refused_fails_that_call_alone(era: Era) -> None:
    server = Slow(era)
    async with linked(await server.listen()) as link, asyncio.timeout(HANG):
        slow = asyncio.create_task(ask(link, "slow"))
        await server.asked.wait()
        server.listen_no_more()
        await server.raw.hang_up_where_idle()
        with pytest.raises(UpstreamUnavailable, match="is refused"):
            await ask(link)
        server.may_go_on.set()
        assert await slow == {"content": []}
        await server.raw.hang_up()
        with pytest.raises(NotSent, match="is refused"):
            await ask(link)


@by_era
async def test_an_answer_that_breaks_off_harms_no_other_even_as_the_server_goes(era: Era) -> None:
    server = Slow(era)
    async with linked(await server.listen()) as link, asyncio.timeout(HANG):
        slow = asyncio.create_task(ask(link, "slow"))
        await server.asked.wait()
        with pytest.raises(UpstreamUnavailable) as caught:
            await ask(link, "cut")
        assert "not repeated" in str(caught.value)
        server.may_go_on.set()
        assert await slow == {"content": []}


@by_era
async def test_a_server_that_dies_fails_every_call_that_it_had(era: Era) -> None:
    server = Slow(era)
    async with linked(await server.listen()) as link, asyncio.timeout(HANG):
        calls = [asyncio.create_task(ask(link, "slow")) for _ in range(TOGETHER)]
        await until(lambda: len(calls_to(server.raw)) == TOGETHER)
        server.listen_no_more()
        await server.raw.hang_up()
        for failed in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(failed, LinkEnded)
            assert not isinstance(failed, NotSent)


async def test_calls_that_find_their_session_forgotten_are_all_sent_on_a_new_one() -> None:
    forgotten: set[str] = set()
    sessions = (f"s{number}" for number in range(9))

    async def answer(received: Received, writer: Writer) -> None:
        if received.rpc == "initialize":
            send_result(writer, received, HELLO, Mcp_Session_Id=next(sessions))
        elif received.headers.get("mcp-session-id") in forgotten:
            send(writer, 404)
        else:
            await in_handshake_era(by_tool())(received, writer)

    async with raw_server(answer) as (url, raw), owned(Endpoint(url), connect_http) as upstream:
        await upstream.call("echo", {})
        forgotten.add("s0")
        calls = (upstream.call("echo", {}) for _ in range(TOGETHER))
        async with asyncio.timeout(HANG):
            assert await asyncio.gather(*calls) == [{"content": []}] * TOGETHER
    greeted = [received for received in raw.received if received.rpc == "initialize"]
    assert len(greeted) == 2


async def test_a_session_that_is_forgotten_for_one_call_fails_that_one() -> None:
    """As a server does that has several processes, and a session in one of them."""
    asked, may_go_on = asyncio.Event(), asyncio.Event()

    async def answer(received: Received, writer: Writer) -> None:
        name = received.body.get("params", {}).get("name")
        if name == "wrong":
            send(writer, 404)
            return
        if name == "slow":
            asked.set()
            await may_go_on.wait()
        send_result(writer, received, {"content": []})

    async with raw_server(in_handshake_era(answer)) as (url, _), linked(url) as link:
        slow = asyncio.create_task(ask(link, "slow"))
        await asked.wait()
        with pytest.raises(UpstreamUnavailable, match="session"):
            await ask(link, "wrong")
        may_go_on.set()
        assert await slow == {"content": []}


async def test_notices_that_break_off_end_the_link_after_its_calls() -> None:
    asked, may_go_on, again = asyncio.Event(), asyncio.Event(), asyncio.Event()
    waits = 0

    async def answer(received: Received, writer: Writer) -> None:
        asked.set()
        await may_go_on.wait()
        send_result(writer, received, {"content": []})

    shaking = in_handshake_era(answer)

    async def breaking(received: Received, writer: Writer) -> None:
        nonlocal waits
        if received.method != "GET":
            await shaking(received, writer)
            return
        waits += 1
        if waits == 1:
            await asked.wait()
            send(writer, 200, b"retry: 1\nid: e\ndata:\n\n", "text/event-stream")
            return
        if waits == 3:  # the second one has failed, and that is known there
            again.set()
        writer.transport.abort()

    async with raw_server(breaking) as (url, _), linked(url) as link, asyncio.timeout(HANG):
        slow = asyncio.create_task(ask(link))
        await again.wait()
        may_go_on.set()
        assert await slow == {"content": []}
        assert "before its answer was complete" in await link.ended()


@by_era
async def test_a_connection_that_the_server_closed_meanwhile_is_no_matter(era: Era) -> None:
    async with raw_server(era(by_tool())) as (url, raw), linked(url) as link:
        for _ in range(5):
            assert await ask(link) == {"content": []}
            await raw.hang_up_where_idle()
    assert len(calls_to(raw)) == 5


@by_era
@pytest.mark.parametrize("words", ["Failed to parse date '31.2.'", "SSE stream failed: late"])
async def test_the_words_of_the_server_are_its_own_whatever_they_are(era: Era, words: str) -> None:
    error = {"code": -32602, "message": words}

    def in_an_event(received: Received, writer: Writer) -> None:
        send_events(writer, {"id": received.body["id"], "error": error})

    def plainly(received: Received, writer: Writer) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": received.body["id"], "error": error})
        send(writer, 200, body.encode(), "application/json")

    acting = era(by_tool(event=in_an_event, plain=plainly))
    async with raw_server(acting) as (url, _), linked(url) as link:
        for tool in ("event", "plain"):
            with pytest.raises(UpstreamError) as caught:
                await ask(link, tool)
            assert caught.value.message == words
            assert caught.value.facts["upstream_code"] == -32602


async def test_a_call_that_is_given_up_while_another_waits_leaves_it_alone() -> None:
    server = Slow(in_handshake_era)
    async with linked(await server.listen()) as link, asyncio.timeout(HANG):
        slow, given_up = (asyncio.create_task(ask(link, "slow")) for _ in range(2))
        await server.asked.wait()
        given_up.cancel()
        with suppress(asyncio.CancelledError):
            await given_up
        server.may_go_on.set()
        assert await slow == {"content": []}
    server.listen_no_more()
