import asyncio
import gzip
import json
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from certificates import certificate
from everkept.core.mcp import MAX_MESSAGE_BYTES
from everkept.errors import UpstreamError, UpstreamUnavailable
from everkept.upstreams.link import LinkEnded, NotSent
from http_upstreams import (
    HANG,
    Act,
    Era,
    RawServer,
    Received,
    Writer,
    ask,
    by_era,
    by_tool,
    in_handshake_era,
    in_stateless_era,
    linked,
    raw_server,
    send,
    send_events,
    send_result,
)

JSON = dict[str, Any]
SECRET = "s3cr3t"
HTML = b"<html>Welcome</html>"


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 405, 418, 429, 500, 502, 599])
async def test_a_status_in_place_of_a_greeting_says_what_and_where(status: int) -> None:
    async def answer(received: Received, writer: Writer) -> None:
        send(writer, status, HTML, "text/html")

    async with raw_server(answer) as (url, _):
        with pytest.raises(UpstreamUnavailable) as caught:
            async with linked(url.replace("//", f"//user:{SECRET}@") + f"?key={SECRET}"):
                pass
    assert f"{status}" in caught.value.message
    assert "127.0.0.1:" in caught.value.message
    assert caught.value.facts["status"] == status
    assert SECRET not in str(caught.value)


@by_era
@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
async def test_a_status_in_place_of_an_answer_fails_that_call_alone(era: Era, status: int) -> None:
    answer = by_tool(wrong=lambda _, writer: send(writer, status, HTML, "text/html"))
    async with raw_server(era(answer)) as (url, _), linked(url) as link:
        if status == 404 and era is in_handshake_era:
            with pytest.raises(NotSent, match="session"):
                await ask(link, "wrong")
            assert "session" in await link.wait_ended()
            return
        with pytest.raises(UpstreamUnavailable) as caught:
            await ask(link, "wrong")
        assert caught.value.facts["status"] == status
        assert await ask(link) == {"content": []}


@by_era
async def test_an_error_of_json_rpc_keeps_its_words_whatever_the_status(era: Era) -> None:
    def refuse(status: int) -> Act:
        error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "No such."}}
        body = json.dumps(error).encode()
        return lambda _, writer: send(writer, status, body, "application/json")

    answers = {f"a{status}": refuse(status) for status in (200, 400, 500)}
    async with raw_server(era(by_tool(**answers))) as (url, _), linked(url) as link:
        for tool in answers:
            with pytest.raises(UpstreamError) as caught:
                await ask(link, tool)
            assert (caught.value.message, caught.value.facts["upstream_code"]) == ("No such.", -32001)


@pytest.mark.parametrize(("status", "code"), [(404, -32600), (404, -32000), (400, -32000)])
async def test_a_session_that_the_server_has_forgotten_ends_the_link(status: int, code: int) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": "Who?"}})

    def forget(_: Received, writer: Writer) -> None:
        send(writer, status, body.encode(), "application/json")

    shaking = in_handshake_era(by_tool(wrong=forget))
    async with raw_server(shaking) as (url, raw), linked(url) as link:
        with pytest.raises(NotSent, match="session"):
            await ask(link, "wrong")
        with pytest.raises(NotSent, match="session"):
            await ask(link)
    calls = [received for received in raw.received if received.rpc == "tools/call"]
    assert [received.headers["mcp-session-id"] for received in calls] == ["s1"]


def _nothing(_: Received, writer: Writer) -> None:
    writer.close()


def _half_a_message(_: Received, writer: Writer) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n"
    writer.write(head + b'{"jsonrpc"')
    writer.close()


def _half_a_stream(_: Received, writer: Writer) -> None:
    send_events(writer, {"method": "notifications/message", "params": {"level": "info"}})
    writer.close()


def _an_ended_stream(_: Received, writer: Writer) -> None:
    send(writer, 200, b": nothing\n\n", "text/event-stream")


BREAKS = {
    "nothing": _nothing,
    "half a message": _half_a_message,
    "half a stream": _half_a_stream,
    "an ended stream": _an_ended_stream,
}


@by_era
@pytest.mark.parametrize("cut", BREAKS.values(), ids=BREAKS.keys())
async def test_an_answer_that_breaks_off_fails_that_call_alone(era: Era, cut: Act) -> None:
    async with raw_server(era(by_tool(cut=cut))) as (url, raw), linked(url) as link:
        with pytest.raises(UpstreamUnavailable, match=r"before (it|its answer) was complete"):
            await ask(link, "cut")
        assert await ask(link) == {"content": []}
    asked = [received for received in raw.received if received.rpc == "tools/call"]
    assert len(asked) == 2  # it may have had its effect: it is not sent again


@by_era
async def test_an_answer_that_breaks_off_with_the_server_ends_the_link(era: Era) -> None:
    gone = asyncio.Event()

    async def answer(received: Received, writer: Writer) -> None:
        gone.set()
        await asyncio.Event().wait()

    raw = RawServer(era(answer))
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with linked(f"http://127.0.0.1:{port}/mcp") as link:
        asking = asyncio.create_task(ask(link))
        await gone.wait()
        server.close()
        await raw.hang_up()
        with pytest.raises(LinkEnded, match="before its answer was complete"):
            await asking
        assert "cannot be reached" in await link.wait_ended()


def _sent(body: bytes, content_type: str, **headers: str) -> Act:
    return lambda _, writer: send(writer, 200, body, content_type, **headers)


NO_ANSWERS: dict[str, Act] = {
    "html": _sent(HTML, "text/html"),
    "untyped": _sent(b"{}", ""),
    "accepted": lambda _, writer: send(writer, 202),
    "no json": _sent(b"{", "application/json"),
    "a list": _sent(b"[]", "application/json"),
    "no message": _sent(b"{}", "application/json"),
    "packed wrongly": _sent(b"no gzip", "application/json", Content_Encoding="gzip"),
    "no result": _sent(b'{"jsonrpc":"2.0","id":1,"result":7}', "application/json"),
    "a bad event": _sent(b"data: {\n\n", "text/event-stream"),
    "too long": _sent(b"[" + b"1," * (MAX_MESSAGE_BYTES // 2) + b"1]", "application/json"),
    "a long event": _sent(b"data: " + b"x" * MAX_MESSAGE_BYTES + b"\n\n", "text/event-stream"),
}


@pytest.mark.parametrize("answer", NO_ANSWERS.values(), ids=NO_ANSWERS.keys())
async def test_what_is_no_answer_fails_that_call_alone(answer: Act) -> None:
    acting = in_stateless_era(by_tool(wrong=answer))
    async with raw_server(acting) as (url, _), linked(url) as link:
        with pytest.raises((UpstreamUnavailable, UpstreamError)) as caught:
            await ask(link, "wrong")
        assert len(str(caught.value)) < 300
        assert await ask(link) == {"content": []}


async def test_an_answer_counts_whatever_id_it_has() -> None:
    answers = {"null": None, "text": "1", "other": 999}

    def with_id(request_id: Any) -> Act:
        message = {"jsonrpc": "2.0", "id": request_id, "result": {"content": [request_id]}}
        return _sent(json.dumps(message).encode(), "application/json")

    acts = {name: with_id(request_id) for name, request_id in answers.items()}
    async with raw_server(in_stateless_era(by_tool(**acts))) as (url, _), linked(url) as link:
        for name, request_id in answers.items():
            assert await ask(link, name) == {"content": [request_id]}


@by_era
async def test_a_redirect_to_another_place_is_told_and_nothing_is_sent_there(era: Era) -> None:
    async with raw_server(by_tool()) as (elsewhere, other):

        def redirect(_: Received, writer: Writer) -> None:
            send(writer, 307, Location=f"{elsewhere}?key={SECRET}")

        acting, headers = era(by_tool(wrong=redirect)), {"X-Key": SECRET}
        async with raw_server(acting) as (url, _), linked(url, headers) as link:
            with pytest.raises(UpstreamUnavailable) as caught:
                await ask(link, "wrong")
            assert elsewhere in caught.value.message
            assert SECRET not in str(caught.value)
            assert await ask(link) == {"content": []}
        assert other.received == []


async def test_a_redirect_within_the_server_is_followed_with_the_headers() -> None:
    async def answer(received: Received, writer: Writer) -> None:
        if received.path == "/mcp":  # with a body that never comes
            writer.write(b"HTTP/1.1 308 To\r\nLocation: /mcp/\r\nContent-Length: 9\r\n\r\n")
            await asyncio.Event().wait()
        else:
            await in_stateless_era(by_tool())(received, writer)

    async with raw_server(answer) as (url, raw), linked(url, {"X-Key": SECRET}) as link:
        assert await ask(link) == {"content": []}
    assert [received.headers["x-key"] for received in raw.received] == [SECRET] * 4


async def test_a_note_follows_a_redirect_within_the_server() -> None:
    asked, noted = asyncio.Event(), asyncio.Event()

    async def answer(received: Received, writer: Writer) -> None:
        if received.path == "/mcp":
            send(writer, 307, Location="/mcp/")
        elif received.rpc == "tools/call":
            asked.set()
            await asyncio.Event().wait()
        else:
            if received.rpc == "notifications/cancelled":
                noted.set()
            await in_handshake_era(by_tool())(received, writer)

    async with raw_server(answer) as (url, _), linked(url) as link, asyncio.timeout(HANG):
        asking = asyncio.create_task(ask(link))
        await asked.wait()
        asking.cancel()
        await noted.wait()


@by_era
async def test_a_cancelled_call_leaves_no_connection_open(era: Era) -> None:
    asked = asyncio.Event()

    async def answer(received: Received, writer: Writer) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with raw_server(era(answer)) as (url, raw), linked(url) as link:
        asking = asyncio.create_task(ask(link))
        await asked.wait()
        asking.cancel()
        async with asyncio.timeout(HANG):
            await raw.closed.wait()


async def test_a_server_that_takes_no_notes_holds_up_no_call() -> None:
    asked, noted, given_up = asyncio.Event(), asyncio.Event(), asyncio.Event()
    shaking = in_handshake_era(by_tool())

    async def answer(received: Received, writer: Writer) -> None:
        happened = {"tools/call": asked, "notifications/cancelled": noted}.get(received.rpc)
        if happened is not None and not happened.is_set():
            happened.set()
            try:
                await asyncio.Event().wait()
            finally:
                if happened is noted:
                    given_up.set()
        await shaking(received, writer)

    async with raw_server(answer) as (url, _), linked(url) as link, asyncio.timeout(HANG):
        hanging = asyncio.create_task(ask(link))
        await asked.wait()
        hanging.cancel()
        await noted.wait()
        assert await ask(link) == {"content": []}
        assert not given_up.is_set()


async def test_a_server_that_does_not_take_leave_is_left_all_the_same() -> None:
    asked = asyncio.Event()

    async def answer(received: Received, writer: Writer) -> None:
        asked.set()
        await asyncio.Event().wait()

    shaking = in_handshake_era(answer)

    async def clinging(received: Received, writer: Writer) -> None:
        await (answer if received.method == "DELETE" else shaking)(received, writer)

    async with raw_server(clinging) as (url, raw), asyncio.timeout(HANG):
        async with linked(url) as link:
            asking = asyncio.create_task(ask(link))
            await asked.wait()
        with pytest.raises(LinkEnded):
            await asking
    assert "DELETE" in {received.method for received in raw.received}


async def test_a_server_that_never_answers_is_left_when_the_caller_has_waited_enough() -> None:
    asked = asyncio.Event()

    async def answer(_: Received, writer: Writer) -> None:
        asked.set()
        await asyncio.Event().wait()

    async def connect(url: str) -> None:
        async with linked(url):
            raise AssertionError

    async with raw_server(answer) as (url, raw), asyncio.timeout(HANG):
        connecting = asyncio.create_task(connect(url))
        await asked.wait()
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await raw.closed.wait()


async def test_what_a_server_asks_meanwhile_is_answered() -> None:
    answered: dict[Any, JSON] = {}
    both = asyncio.Event()

    async def answer(received: Received, writer: Writer) -> None:
        if "method" not in received.body:
            answered[received.body["id"]] = received.body
            send(writer, 202)
            if len(answered) == 2:
                both.set()
            return
        questions = [{"id": "p", "method": "ping"}, {"id": "r", "method": "roots/list"}]
        send_events(writer, *questions)
        await both.wait()
        result: JSON = {"jsonrpc": "2.0", "id": received.body["id"], "result": {"content": []}}
        writer.write(f"data: {json.dumps(result)}\n\n".encode())

    async with raw_server(in_handshake_era(answer)) as (url, _), linked(url) as link:
        assert await ask(link) == {"content": []}
    assert answered["p"]["result"] == {}
    assert answered["r"]["error"]["code"] == -32601


async def test_an_answer_that_the_server_wants_fetched_later_is_fetched() -> None:
    asked: list[int] = []

    async def answer(received: Received, writer: Writer) -> None:
        asked.append(received.body["id"])
        send(writer, 200, b"id: e1\nretry: 10\ndata:\n\n", "text/event-stream")

    shaking = in_handshake_era(answer)

    async def resuming(received: Received, writer: Writer) -> None:
        if received.headers.get("last-event-id") != "e1":
            await shaking(received, writer)
            return
        result: JSON = {"jsonrpc": "2.0", "id": asked[0], "result": {"content": ["late"]}}
        send(writer, 200, f"data: {json.dumps(result)}\n\n".encode(), "text/event-stream")

    async with raw_server(resuming) as (url, _), linked(url) as link:
        assert await ask(link) == {"content": ["late"]}


async def test_notices_go_on_after_the_last_one_that_was_heard() -> None:
    changed = asyncio.Event()
    shaking, asked = in_handshake_era(by_tool()), list[str | None]()

    async def talking(received: Received, writer: Writer) -> None:
        if received.method != "GET":
            await shaking(received, writer)
            return
        asked.append(received.headers.get("last-event-id"))
        if len(asked) == 1:
            send(writer, 200, "id: é1\nretry: 1\ndata:\n\n".encode(), "text/event-stream")
        else:
            send_events(writer, {"method": "notifications/tools/list_changed"})
            await asyncio.Event().wait()

    async with raw_server(talking) as (url, _), linked(url, tell=changed.set):
        async with asyncio.timeout(HANG):
            await changed.wait()
    assert asked == [None, "é1".encode().decode("latin-1")]


async def test_progress_of_a_call_is_told_on_whichever_stream_it_comes() -> None:
    token: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    heard: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def report(done: float, total: float | None, message: str | None) -> None:
        heard.set_result(done)

    async def answer(received: Received, writer: Writer) -> None:
        token.set_result(received.body["params"]["_meta"]["progressToken"])
        await heard
        send_result(writer, received, {"content": []})

    shaking = in_handshake_era(answer)

    async def talking(received: Received, writer: Writer) -> None:
        if received.method != "GET":
            await shaking(received, writer)
            return
        params = {"progressToken": await token, "progress": 7}
        send_events(writer, {"method": "notifications/progress", "params": params})
        await asyncio.Event().wait()

    async with raw_server(talking) as (url, _), linked(url) as link, asyncio.timeout(HANG):
        assert await link.request("tools/call", {"name": "a"}, report) == {"content": []}
    assert heard.result() == 7


async def test_a_redirect_that_never_ends_is_not_followed_for_ever() -> None:
    def again(received: Received, writer: Writer) -> None:
        send(writer, 307, Location=received.path)

    async with raw_server(in_stateless_era(by_tool(again=again))) as (url, _), linked(url) as link:
        with pytest.raises(UpstreamUnavailable, match="not followed"):
            await ask(link, "again")
        assert await ask(link) == {"content": []}


@by_era
async def test_a_stream_that_ends_leaves_its_connection_to_the_next_call(era: Era) -> None:
    callers = set[Any]()

    def act(received: Received, writer: Writer) -> None:
        callers.add(writer.get_extra_info("peername"))
        stream(received, writer)

    async with raw_server(era(by_tool(act=act))) as (url, _), linked(url) as link:
        for _ in range(5):
            assert await ask(link, "act") == {"content": ["end"]}
            await asyncio.sleep(0.1)  # the end of the stream comes after the answer
    assert len(callers) < 5  # on a busy machine a call may come before that end


@by_era
async def test_a_stream_that_never_ends_holds_up_neither_its_answer_nor_the_end(era: Era) -> None:
    async def answer(received: Received, writer: Writer) -> None:
        send_events(writer, {"id": received.body["id"], "result": {"content": []}})
        await asyncio.Event().wait()

    async with raw_server(era(answer)) as (url, raw), asyncio.timeout(HANG):
        async with linked(url) as link:
            for _ in range(5):
                assert await ask(link) == {"content": []}
        await raw.closed.wait()


async def test_a_proxy_of_the_environment_is_used() -> None:
    async with raw_server(in_stateless_era(by_tool())) as (proxy, raw):
        environment = {"HTTP_PROXY": proxy}
        async with linked("http://notes.invalid/mcp", environment=environment) as link:
            assert await ask(link) == {"content": []}
    assert {received.path for received in raw.received} == {"http://notes.invalid/mcp"}


@pytest.mark.parametrize(
    ("url", "why"), [("http://127.0.0.1:1/mcp", "is refused"), ("https://127.0.0.1:1/mcp", "is refused")]
)
async def test_a_server_that_is_not_there_says_why(url: str, why: str) -> None:
    with pytest.raises(UpstreamUnavailable, match=why):
        async with asyncio.timeout(HANG), linked(url):
            pass


async def test_a_certificate_is_trusted_only_where_the_environment_says_so(tmp_path: Path) -> None:
    made = certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made)
    async with raw_server(in_stateless_era(by_tool()), ssl=context) as (url, _):
        with pytest.raises(UpstreamUnavailable, match="certificate is not trusted"):
            async with linked(url):
                pass
        async with linked(url, environment={"SSL_CERT_FILE": str(made)}) as link:
            assert await ask(link) == {"content": []}
        with pytest.raises(UpstreamUnavailable, match="SSL_CERT_FILE"):
            async with linked(url, environment={"SSL_CERT_FILE": str(tmp_path / "none")}):
                pass


async def test_no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def wrong(_: Received, writer: Writer) -> None:
        send(writer, 200, b'{"secret": "' + SECRET.encode(), "application/json")

    async with raw_server(in_handshake_era(by_tool(wrong=wrong), session=SECRET)) as (url, raw):
        address = url.replace("//", f"//user:{SECRET}@") + f"?key={SECRET}"
        async with linked(address, {"X-Key": "${KEY}"}, {"KEY": SECRET}) as link:
            await link.request("tools/call", {"name": "echo", "arguments": {"a": SECRET}})
            with pytest.raises(UpstreamError):
                await ask(link, "wrong")
    assert all(received.path == f"/mcp?key={SECRET}" for received in raw.received)
    assert all(received.headers["authorization"].startswith("Basic ") for received in raw.received)
    assert SECRET not in caplog.text


EVENTS, PLAIN = "text/event-stream", "application/json"
UNSAYABLE = {
    "nan": ("NaN", "NaN is not a JSON number"),
    "infinity": ("[-Infinity]", "-Infinity is not a JSON number"),
    "large": ("1e999", "too large"),
    "long": ("9" * 5000, "more than 4,300 digits"),
    "deep": ("[" * 100_000 + "]" * 100_000, "too deep"),
}


def raw_result(text: str, content_type: str) -> Act:
    """Answers with a result in which `value` is that text."""

    def act(received: Received, writer: Writer) -> None:
        result = f'{{"content":[],"value":{text}}}'
        message = f'{{"jsonrpc":"2.0","id":{received.body["id"]},"result":{result}}}'
        body = message if content_type == PLAIN else f"data: {message}\n\n"
        send(writer, 200, body.encode(), content_type)

    return act


@by_era
@pytest.mark.parametrize("content_type", [PLAIN, EVENTS])
async def test_what_cannot_be_passed_on_fails_that_call_alone(era: Era, content_type: str) -> None:
    acts = {name: raw_result(text, content_type) for name, (text, _) in UNSAYABLE.items()}
    async with raw_server(era(by_tool(**acts))) as (url, _), linked(url) as link:
        for name, (_, why) in UNSAYABLE.items():
            with pytest.raises(UpstreamError, match=why):
                await ask(link, name)
        assert await ask(link) == {"content": []}


@by_era
@pytest.mark.parametrize("content_type", [PLAIN, EVENTS])
async def test_what_json_can_say_is_passed_on(era: Era, content_type: str) -> None:
    odd = {"half": "\ud800", "many": 10**4000, "lines": "\u2028\n\r\x00", "none": None}
    acting = era(by_tool(odd=raw_result(json.dumps(odd), content_type)))
    async with raw_server(acting) as (url, _), linked(url) as link:
        assert (await ask(link, "odd"))["value"] == odd


def stream(received: Received, writer: Writer, *events: str, packed: bool = False) -> None:
    """A stream of these events, and the answer at its end."""
    answer = {"jsonrpc": "2.0", "id": received.body["id"], "result": {"content": ["end"]}}
    body = "".join(f"{event}\n\n" for event in (*events, f"data: {json.dumps(answer)}")).encode()
    if packed:
        send(writer, 200, gzip.compress(body), EVENTS, Content_Encoding="gzip")
    else:
        send(writer, 200, body, EVENTS)


@by_era
async def test_a_stream_may_be_packed_and_hold_what_is_no_message(era: Era) -> None:
    others = (": a comment", "event: other\ndata: {", "id: 7", "data", "retry: soon")
    message = 'data: {"jsonrpc":"2.0",\ndata: "method":"notifications/message"}'

    def act(received: Received, writer: Writer) -> None:
        stream(received, writer, *others, message, packed=True)

    async with raw_server(era(by_tool(act=act))) as (url, _), linked(url) as link:
        assert await ask(link, "act") == {"content": ["end"]}


@by_era
@pytest.mark.parametrize("amount", ["9" * 400, "-" + "9" * 400, "1e308"], ids=("+", "-", "float"))
async def test_progress_that_is_out_of_all_measure_is_not_told(era: Era, amount: str) -> None:
    heard: list[float] = []

    async def report(done: float, total: float | None, message: str | None) -> None:
        heard.append(done)

    def progress(token: int, done: str) -> str:
        params = f'{{"progressToken":{token},"progress":{done},"total":3}}'
        return f'data: {{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}'

    def act(received: Received, writer: Writer) -> None:
        token = received.body["params"]["_meta"]["progressToken"]
        stream(received, writer, progress(token, amount), progress(token, "2"))

    async with raw_server(era(by_tool(act=act))) as (url, _), linked(url) as link:
        asked = {"name": "act"}
        async with asyncio.timeout(HANG):
            assert await link.request("tools/call", asked, report) == {"content": ["end"]}
    assert heard == [2]


async def test_a_wish_to_be_asked_again_in_a_million_years_harms_no_other_call() -> None:
    begun = asyncio.Event()

    def act(received: Received, writer: Writer) -> None:
        begun.set()
        send(writer, 200, f"id: e1\nretry: {10**400}\ndata:\n\n".encode(), EVENTS)

    async with raw_server(in_handshake_era(by_tool(act=act))) as (url, _), linked(url) as link:
        waiting = asyncio.create_task(ask(link, "act"))
        await begun.wait()
        for _ in range(10):
            assert await ask(link) == {"content": []}
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_what_a_server_says_by_itself_may_be_wrong() -> None:
    changed = asyncio.Event()
    notice = '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
    wild = f'{{"progressToken":1,"progress":{10**400}}}'
    said = (
        "{",
        "[]",
        '{"jsonrpc":"2.0","id":1,"result":{}}',
        f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{wild}}}',
        notice,
    )
    shaking = in_handshake_era(by_tool())

    async def talking(received: Received, writer: Writer) -> None:
        if received.method == "GET":
            body = "".join(f"data: {text}\n\n" for text in said).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + body)
            await asyncio.Event().wait()
        await shaking(received, writer)

    async with raw_server(talking) as (url, _), linked(url, tell=changed.set) as link:
        async with asyncio.timeout(HANG):
            await changed.wait()
        assert await ask(link) == {"content": []}
