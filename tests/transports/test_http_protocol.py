"""What every request over HTTP must be like, before and beside the two eras."""

import asyncio
import json
from typing import Any

import orjson
import pytest

from everkept.core.mcp import MAX_MESSAGE_BYTES
from everkept.transports.dispatch import Dispatcher, Request
from everkept.transports.guard import Guard, OpenRequests
from everkept.transports.http import McpEndpoint
from http_client import Exchange, SessionClient, request, stateless


async def test_another_path_is_not_found(endpoint: McpEndpoint) -> None:
    assert (await Exchange(endpoint, stateless("ping"), path="/else").document())[0] == 404


async def test_a_slash_after_the_path_changes_nothing(endpoint: McpEndpoint) -> None:
    answered = await Exchange(endpoint, stateless("tools/list"), path="/mcp/").document()
    assert answered[0] == 200


@pytest.mark.parametrize(
    ("method", "version", "allowed"),
    [("PUT", "2025-11-25", "GET, POST, DELETE"), ("GET", "2026-07-28", "POST"), ("DELETE", "2026-07-28", "POST")],
)
async def test_a_wrong_method_is_refused_with_those_that_do(
    endpoint: McpEndpoint, method: str, version: str, allowed: str
) -> None:
    status, headers = await Exchange(endpoint, None, {"MCP-Protocol-Version": version}, method).start()
    assert (status, headers["allow"]) == (405, allowed)


@pytest.mark.parametrize("version", [{}, {"MCP-Protocol-Version": "2026-07-28"}])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Accept": "application/json"}, 406),
        ({"Accept": "text/event-stream"}, 406),
        ({"Accept": "text/html, application/*"}, 406),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": ""}, 415),
    ],
)
async def test_a_client_must_take_both_kinds_of_answer_and_send_json(
    endpoint: McpEndpoint, version: dict[str, str], headers: dict[str, str], status: int
) -> None:
    asked = Exchange(endpoint, stateless("tools/list"), version | headers)
    assert (await asked.document())[0] == status


@pytest.mark.parametrize(
    "headers",
    [{"Accept": "*/*"}, {"Accept": "application/*;q=0.9, text/*"}, {"Content-Type": "Application/JSON; charset=utf-8"}],
)
async def test_the_same_can_be_said_in_other_ways(endpoint: McpEndpoint, headers: dict[str, str]) -> None:
    modern = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
    assert (await Exchange(endpoint, stateless("tools/list"), modern | headers).document())[0] == 200


@pytest.mark.parametrize("headers", [{}, {"MCP-Protocol-Version": "2026-07-28"}])
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"no json", -32700),
        (b"\xff", -32700),
        (b"[" * 100_000, -32700),
        (b"7", -32600),
        (b"{}", -32600),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}', -32600),
    ],
)
async def test_a_body_that_is_not_a_message_is_refused(
    endpoint: McpEndpoint, headers: dict[str, str], body: bytes, code: int
) -> None:
    status, answered = await Exchange(endpoint, body, headers).document()
    assert (status, answered["id"], answered["error"]["code"]) == (400, None, code)


async def test_a_body_of_unknown_length_is_read_up_to_the_limit(endpoint: McpEndpoint) -> None:
    parts = 0

    async def receive() -> dict[str, Any]:
        nonlocal parts
        parts += 1
        return {"type": "http.request", "body": b" " * (MAX_MESSAGE_BYTES // 4), "more_body": True}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"accept", b"*/*"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers}
    await endpoint(scope, receive, send)
    assert (sent[0]["status"], parts) == (413, 5)


async def test_a_bug_is_masked_and_ends_one_request(
    endpoint: McpEndpoint, dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(request: Request) -> dict[str, Any]:
        raise RuntimeError("secret detail")

    dispatcher.methods["test/broken"] = broken
    status, answered = await Exchange(endpoint, stateless("test/broken")).document()
    assert (status, answered["error"]["code"]) == (200, -32603)
    assert "secret" not in json.dumps(answered)
    assert "secret detail" in caplog.text
    assert (await Exchange(endpoint, stateless("server/discover")).document())[0] == 200


async def test_an_answer_that_cannot_be_written_is_an_error(endpoint: McpEndpoint, dispatcher: Dispatcher) -> None:
    async def wrong(request: Request) -> dict[str, Any]:
        return {"value": float("nan")}

    dispatcher.methods["test/wrong"] = wrong
    _, answered = await Exchange(endpoint, stateless("test/wrong")).document()
    assert (answered["id"], answered["error"]["code"]) == (1, -32603)


async def test_a_request_that_does_not_end_is_ended_when_the_server_stops(
    endpoint: McpEndpoint, dispatcher: Dispatcher
) -> None:
    began = asyncio.Event()

    async def slow(request: Request) -> dict[str, Any]:
        began.set()
        await asyncio.Event().wait()
        return {}

    dispatcher.methods["test/slow"] = slow
    requests = OpenRequests(Guard(endpoint, "127.0.0.1", None))
    exchange = Exchange(requests, stateless("test/slow"))
    await began.wait()
    await requests.stop(grace=0.01)
    assert (await exchange.document())[0] == 503


async def test_a_stream_that_has_begun_is_finished_when_the_server_stops(
    endpoint: McpEndpoint, dispatcher: Dispatcher
) -> None:
    async def slow(request: Request) -> dict[str, Any]:
        await request.notify("notifications/progress", {"progressToken": 1, "progress": 1})
        await asyncio.Event().wait()
        return {}

    dispatcher.methods["test/slow"] = slow
    requests = OpenRequests(Guard(endpoint, "127.0.0.1", None))
    exchange = Exchange(requests, stateless("test/slow"))
    await exchange.start()
    assert (await exchange.event()).message["method"] == "notifications/progress"
    await requests.stop(grace=0.01)
    assert await exchange.part() == (b"", False)
    await exchange.task
    assert exchange.is_silent


@pytest.mark.parametrize("has_session", [False, True])
async def test_the_facts_of_a_call_are_encoded_once_for_text_and_structure(
    endpoint: McpEndpoint, has_session: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[Any] = []
    dumps = orjson.dumps

    def count(value: Any) -> bytes:
        encoded.append(value)
        return dumps(value)

    call = {"name": "list_projects", "arguments": {}}
    if has_session:
        client = await SessionClient.begin(endpoint)
        exchange = client.post(request("tools/call", call))
    else:
        modern = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call"}
        exchange = Exchange(endpoint, stateless("tools/call", **call), modern | {"Mcp-Name": "list_projects"})
    monkeypatch.setattr(orjson, "dumps", count)
    _, answered = await exchange.document()
    assert [type(value) for value in encoded] == [dict, str]  # the second time as a quoted text
    assert answered["result"]["structuredContent"] == encoded[0]
