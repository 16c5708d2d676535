"""Requests that stand on their own: their envelope, their headers, and how they end."""

import asyncio
import base64
from typing import Any

import pytest

from conformance_fixtures import add_fixtures
from everkept.transports.dispatch import Dispatcher, Request
from everkept.transports.http import McpEndpoint
from http_client import Exchange, request, stateless
from server_processes import META, MODERN


@pytest.fixture
def dispatcher(dispatcher: Dispatcher) -> Dispatcher:
    add_fixtures(dispatcher)
    return dispatcher


def headers_of(method: str, **more: str) -> dict[str, str]:
    named = {name.replace("_", "-"): value for name, value in more.items()}
    return {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **named}


async def test_an_answer_is_a_document_without_a_session(endpoint: McpEndpoint) -> None:
    exchange = Exchange(endpoint, stateless("server/discover"))
    status, headers = await exchange.start()
    assert (status, headers["content-type"]) == (200, "application/json")
    assert "mcp-session-id" not in headers


async def test_progress_makes_it_a_stream_that_ends_with_the_answer(endpoint: McpEndpoint) -> None:
    params = {"name": "test_tool_with_progress", "_meta": META | {"progressToken": "t"}}
    exchange = Exchange(
        endpoint, request("tools/call", params), headers_of("tools/call", Mcp_Name="test_tool_with_progress")
    )
    status, headers = await exchange.start()
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    told = [await exchange.event() for _ in range(3)]
    assert [event.message["params"]["progress"] for event in told] == [0, 50, 100]
    last = await exchange.event()
    assert last.message["result"]["resultType"] == "complete"
    assert {event.id for event in (*told, last)} == {None}  # nothing can be resumed here
    await exchange.task


async def test_a_silent_request_is_kept_alive(pinging_endpoint: McpEndpoint, dispatcher: Dispatcher) -> None:
    go_on = asyncio.Event()

    async def slow(request: Request) -> dict[str, Any]:
        await go_on.wait()
        return {}

    dispatcher.methods["test/slow"] = slow
    exchange = Exchange(pinging_endpoint, stateless("test/slow"))
    await exchange.start()
    for _ in range(2):
        assert await exchange.part() == (b": ping\r\n\r\n", True)
    go_on.set()
    assert "result" in (await exchange.event()).message
    await exchange.task


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_client_that_closes_the_stream_cancels_its_request(
    endpoint: McpEndpoint, dispatcher: Dispatcher, is_stream: bool
) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> dict[str, Any]:
        if is_stream:
            await request.notify("notifications/progress", {"progress": 1})
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return {}

    dispatcher.methods["test/slow"] = slow
    exchange = Exchange(endpoint, stateless("test/slow"))
    await began.wait()
    if is_stream:
        await exchange.start()
        await exchange.event()
    exchange.disconnect()
    await ended.wait()
    await exchange.task
    assert exchange.is_silent


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (request("tools/list"), headers_of("tools/list"), -32602),
        (request("tools/list", {"_meta": 7}), headers_of("tools/list"), -32602),
        (stateless("tools/list"), {}, -32020),
        (stateless("tools/list"), {"MCP-Protocol-Version": MODERN}, -32020),
        (stateless("tools/list"), headers_of("tools/call"), -32020),
        (stateless("tools/list"), headers_of("tools/list") | {"MCP-Protocol-Version": "x"}, -32020),
        (stateless("tools/call", name="a"), headers_of("tools/call"), -32020),
        (stateless("tools/call", name="a"), headers_of("tools/call", Mcp_Name="b"), -32020),
        (stateless("resources/read", uri="a"), headers_of("resources/read", Mcp_Name="b"), -32020),
        (stateless("tools/call", name="a"), headers_of("tools/call", Mcp_Name="a"), -32602),
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, headers_of("ping"), -32600),
        ([stateless("tools/list")], headers_of("tools/list"), -32600),
    ],
)
async def test_a_request_that_contradicts_itself_is_refused(
    endpoint: McpEndpoint, body: Any, headers: dict[str, str], code: int
) -> None:
    status, answered = await Exchange(endpoint, body, headers).document()
    assert (status, answered["error"]["code"]) == (400, code)


async def test_a_version_that_is_not_known_is_answered_with_those_that_are(endpoint: McpEndpoint) -> None:
    meta = META | {"io.modelcontextprotocol/protocolVersion": "2030-01-01"}
    headers = headers_of("tools/list") | {"MCP-Protocol-Version": "2030-01-01"}
    status, answered = await Exchange(endpoint, request("tools/list", {"_meta": meta}), headers).document()
    assert (status, answered["error"]["code"], answered["id"]) == (400, -32022, 1)
    assert answered["error"]["data"] == {"supported": [MODERN], "requested": "2030-01-01"}


async def test_a_header_that_comes_twice_is_refused(endpoint: McpEndpoint) -> None:
    exchange = Exchange(endpoint, stateless("tools/list"), more_headers=[(b"mcp-method", b"tools/list")])
    status, answered = await exchange.document()
    assert (status, answered["error"]["code"]) == (400, -32020)
    assert "more than once" in answered["error"]["message"]


async def test_a_name_may_come_encoded(endpoint: McpEndpoint) -> None:
    name = f"=?base64?{base64.b64encode(b'test_simple_text').decode()}?="
    exchange = Exchange(
        endpoint, stateless("tools/call", name="test_simple_text"), headers_of("tools/call", Mcp_Name=name)
    )
    assert (await exchange.document())[0] == 200


@pytest.mark.parametrize(
    ("arguments", "headers", "status"),
    [
        ({"region": "eu"}, {"Mcp-Param-Region": "eu"}, 200),
        ({}, {}, 200),
        (None, {}, 200),
        ({"region": "eu"}, {}, 400),
        ({"region": "eu"}, {"Mcp-Param-Region": "us"}, 400),
        ({}, {"Mcp-Param-Region": "eu"}, 400),
        ({}, {"Mcp-Param-Other": "eu"}, 200),
    ],
)
async def test_headers_and_the_arguments_that_they_repeat_must_agree(
    endpoint: McpEndpoint, arguments: Any, headers: dict[str, str], status: int
) -> None:
    exchange = Exchange(
        endpoint,
        stateless("tools/call", name="test_headers", arguments=arguments),
        headers_of("tools/call", Mcp_Name="test_headers") | headers,
    )
    got, answered = await exchange.document()
    assert got == status
    assert status == 200 or answered["error"]["code"] == -32020


@pytest.mark.parametrize(("version", "status"), [(MODERN, 202), ("2030-01-01", 400)])
async def test_a_notification_is_accepted_and_means_nothing(endpoint: McpEndpoint, version: str, status: int) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    exchange = Exchange(endpoint, note, {"MCP-Protocol-Version": version})
    assert (await exchange.document())[0] == status


async def test_a_method_of_the_other_era_is_not_found(endpoint: McpEndpoint) -> None:
    for method in ("initialize", "ping", "no/such/method"):
        status, answered = await Exchange(endpoint, stateless(method)).document()
        assert (status, answered["error"]["code"]) == (404, -32601)
