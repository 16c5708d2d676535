import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from everkept.core.mcp import UpstreamEndpoint
from everkept.errors import InvalidInput, UpstreamError, UpstreamUnavailable
from everkept.upstreams.http import connect_http
from everkept.upstreams.link import LinkEnded, NotSent, UpstreamLink
from http_upstream_actors import http_app
from http_upstreams import ERAS as RAW_ERAS
from http_upstreams import (
    HANG,
    HELLO,
    NAME,
    Answer,
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
    served,
)
from server_processes import http_server, run
from upstream_tools import ODD, Actor, described
from upstreams import owned, there, until

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

    async with raw_server(answer) as (url, raw), owned(UpstreamEndpoint(url), connect_http) as upstream:
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
        assert "before its answer was complete" in await link.wait_ended()


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


ERAS = ("handshake", "stateless", "both")
HEADED = {"type": "object", "properties": {"where": {"type": "string", "x-mcp-header": "Region"}}}


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


async def told(link: UpstreamLink, tool: str, **arguments: Any) -> Any:
    """The structured part of an answer."""
    return (await link.request("tools/call", call(tool, **arguments)))["structuredContent"]


@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_comes_as_the_server_gave_it(era: str) -> None:
    with served(http_app(Actor(), era)) as url:
        async with linked(url) as link:
            assert await link.request("tools/call", call("odd")) == json.loads(ODD)
            listed = await link.request("tools/list", {})
            assert listed["tools"][0] == described("echo")
            assert "resultType" not in listed
            await link.probe()


@pytest.mark.parametrize("era", ERAS)
async def test_an_error_of_the_server_has_its_words(era: str) -> None:
    with served(http_app(Actor(), era)) as url:
        async with linked(url) as link:
            with pytest.raises(UpstreamError) as caught:
                await link.request("tools/call", call("error", code=-32050, message="Not today."))
            assert caught.value.message == "Not today."
            assert caught.value.facts == {"upstream": NAME, "upstream_code": -32050}
            assert (await link.request("tools/call", call("fails")))["isError"] is True


@pytest.mark.parametrize("era", ERAS)
async def test_a_hundred_requests_run_side_by_side(era: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with served(http_app(Actor(), era)) as url:
        async with linked(url) as link, asyncio.timeout(HANG):
            waiting = [asyncio.create_task(told(link, "wait", until=str(gate))) for _ in range(5)]
            echoed = await asyncio.gather(*(told(link, "echo", n=n) for n in range(100)))
            assert echoed == [{"n": n} for n in range(100)]
            gate.touch()
            assert await asyncio.gather(*waiting) == [{"waited": True}] * 5


@pytest.mark.parametrize("era", ERAS)
async def test_progress_is_told_in_its_order_and_before_the_answer(era: str) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def report(done: float, total: float | None, message: str | None) -> None:
        for _ in range(20):  # a client that is slow to take it
            await asyncio.sleep(0)
        heard.append((done, total, message))

    with served(http_app(Actor(), era)) as url:
        async with linked(url) as link:
            await link.request("tools/call", call("progress", steps=20), report)
    assert heard == [(step, 20, f"step {step}") for step in range(1, 21)]


@pytest.mark.parametrize("era", ERAS)
async def test_a_cancelled_request_is_cancelled_there_too(era: str, tmp_path: Path) -> None:
    started, cancelled, gate = (tmp_path / name for name in ("started", "cancelled", "gate"))
    with served(http_app(Actor(), era)) as url:
        async with linked(url) as link:
            other = asyncio.create_task(told(link, "wait", until=str(gate)))
            waits = told(link, "wait", started=str(started), cancelled=str(cancelled))
            task = asyncio.create_task(waits)
            await there(started)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await there(cancelled)
            gate.touch()
            assert await other == {"waited": True}


@pytest.mark.parametrize("era", ERAS)
async def test_a_changed_list_of_tools_is_told(era: str) -> None:
    changed = asyncio.Event()
    with served(http_app(Actor(), era)) as url:
        async with linked(url, tell=changed.set) as link, asyncio.timeout(HANG):
            while not changed.is_set():  # the server may hear of us a moment later
                await told(link, "change", name="added")
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_is_gone_ends_the_link(era: str) -> None:
    with served(http_app(Actor(), era)) as url:
        leaving = linked(url)
        link = await leaving.__aenter__()
    try:
        async with asyncio.timeout(HANG):
            with pytest.raises(NotSent, match=r"cannot be reached at 127\.0\.0\.1:"):
                await link.request("tools/call", call("echo"))
            assert "cannot be reached" in await link.wait_ended()
    finally:
        await leaving.__aexit__(None, None, None)


async def test_a_session_hears_that_its_server_is_gone_without_asking() -> None:
    with served(http_app(Actor(), "handshake")) as url:
        leaving = linked(url)
        link = await leaving.__aenter__()
        await link.probe()
    async with asyncio.timeout(HANG):
        reason = await link.wait_ended()  # by the stream of notices, or by the next attempt to open it
    assert "cannot be reached" in reason or "ended the connection" in reason
    await leaving.__aexit__(None, None, None)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


async def test_what_json_cannot_say_is_refused_and_harms_no_other_call() -> None:
    with served(http_app(Actor())) as url:
        async with linked(url) as link:
            for wrong in (float("nan"), float("inf"), nested(100_000)):
                with pytest.raises(InvalidInput):
                    await told(link, "echo", value=wrong)
            assert await told(link, "echo", value=10**30) == {"value": 10**30}


@pytest.mark.parametrize("era", RAW_ERAS.values(), ids=RAW_ERAS.keys())
async def test_what_json_can_say_is_said_even_where_others_could_not(era: Callable[[Answer], Answer]) -> None:
    async def echo(received: Received, writer: Writer) -> None:
        send_result(writer, received, {"got": received.body["params"]["arguments"]})

    async with raw_server(era(echo)) as (url, _), linked(url) as link:
        for odd in ("\ud800", nested(400), {"\udfff": None}):
            answer = await link.request("tools/call", call("echo", value=odd))
            assert answer["got"] == {"value": odd}


async def test_half_a_character_cannot_be_sent_in_a_header() -> None:
    with served(http_app(Actor(), "stateless", HEADED)) as url:
        async with linked(url) as link:
            with pytest.raises(InvalidInput, match="header"):
                await told(link, "\ud800")
            assert await told(link, "echo", half="\u1234") == {"half": "\u1234"}


@pytest.mark.parametrize("is_listed", [True, False])
async def test_arguments_that_the_server_wants_in_headers_are_there_too(is_listed: bool) -> None:
    actor = Actor()
    actor.listed = lambda cursor=None: {"tools": [{"name": "echo", "inputSchema": HEADED}]}  # pyright: ignore[reportAttributeAccessIssue]
    with served(http_app(actor, "stateless", HEADED)) as url:
        async with linked(url) as link:
            if is_listed:
                await link.request("tools/list", {})
            for place in ("eu-west", "Zürich\n"):
                assert await told(link, "echo", where=place) == {"where": place}


async def test_a_tool_whose_headers_cannot_be_made_is_left_out() -> None:
    wrong = {"type": "object", "properties": {"a": {"type": "object", "x-mcp-header": "A"}}}
    actor = Actor()
    tools = [{"name": "bad", "inputSchema": wrong}, {"name": "good", "inputSchema": HEADED}]
    actor.listed = lambda cursor=None: {"tools": tools}  # pyright: ignore[reportAttributeAccessIssue]
    with served(http_app(actor)) as url:
        async with linked(url) as link:
            listed = await link.request("tools/list", {})
    assert [tool["name"] for tool in listed["tools"]] == ["good"]


async def test_another_everkept_is_reached_with_its_token(tmp_path: Path) -> None:
    made = run("token", "--data-dir", tmp_path, "--json")
    token = json.loads(made.stdout)["token"]
    with http_server(tmp_path) as server:
        bearer = {"Authorization": "Bearer ${NOTES_TOKEN}"}
        async with linked(server.url, bearer, {"NOTES_TOKEN": f"{token}\n"}) as link:
            listed = await link.request("tools/list", {})
            assert listed["tools"]
        with pytest.raises(UpstreamUnavailable) as caught:
            async with linked(server.url, bearer, {"NOTES_TOKEN": "wrong-but-secret"}):
                pass
        assert caught.value.facts["status"] == 401
        assert "secret" not in str(caught.value)
        with pytest.raises(UpstreamUnavailable, match="NOTES_TOKEN"):
            async with linked(server.url, bearer):
                pass


async def test_a_call_that_finds_its_session_forgotten_is_sent_on_a_new_one() -> None:
    forgotten: set[str] = set()
    sessions = (f"s{number}" for number in range(9))

    async def answer(received: Received, writer: Writer) -> None:
        if received.rpc == "initialize":
            send_result(writer, received, HELLO, Mcp_Session_Id=next(sessions))
        elif received.headers.get("mcp-session-id") in forgotten:
            send(writer, 404)
        else:
            await in_handshake_era(echo)(received, writer)

    async def echo(received: Received, writer: Writer) -> None:
        send_result(writer, received, {"content": [received.headers["mcp-session-id"]]})

    async with raw_server(answer) as (url, _), owned(UpstreamEndpoint(url), connect_http) as upstream:
        assert await upstream.call("echo", {}) == {"content": ["s0"]}
        forgotten.add("s0")
        assert await upstream.call("echo", {}) == {"content": ["s1"]}
