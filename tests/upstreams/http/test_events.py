import asyncio
import gzip
import json

import pytest

from everkept.errors import UpstreamError
from http_upstreaming import (
    HANG,
    Act,
    Era,
    Received,
    Writer,
    ask,
    by_era,
    by_tool,
    in_handshake_era,
    linked,
    raw_server,
    send,
)

EVENTS, PLAIN = "text/event-stream", "application/json"
UNSAYABLE = {
    "nan": ("NaN", "NaN is no number"),
    "infinity": ("[-Infinity]", "-Infinity is no number"),
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
