"""Sessions: answers, streams and their resumption, cancellation, batches, questions, the end."""

import asyncio
from typing import Any

import pytest

from conformance_fixtures import add_fixtures
from everkept.core.sessions import Account
from everkept.transports.connection import ClientConnection, NotificationQueue
from everkept.transports.dispatch import Dispatcher, Request
from everkept.transports.http import McpEndpoint
from everkept.transports.http_exchange import ACCOUNT_KEY, CREDENTIAL_KEY
from everkept.transports.http_sessions import KEEP_EVENTS_SECONDS, EventLog, HttpSessions
from http_client import Exchange, SessionClient, request, stateless
from server_processes import HANG, INITIALIZE, MODERN

ANNA = Account("anna")
PROGRESS = "notifications/progress"
VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


class Slow:
    """A method that reports progress as often as it is told to, and then answers."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.steps: asyncio.Queue[bool] = asyncio.Queue()
        self.began = asyncio.Event()
        self.is_cancelled = False
        dispatcher.methods["test/slow"] = self._run

    def report(self) -> None:
        self.steps.put_nowait(True)

    def finish(self) -> None:
        self.steps.put_nowait(False)

    async def _run(self, request: Request) -> dict[str, Any]:
        self.began.set()
        try:
            done = 0
            while await self.steps.get():
                done += 1
                await request.notify(PROGRESS, {"progress": done})
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise
        return {"done": done}


@pytest.fixture
def slow(dispatcher: Dispatcher) -> Slow:
    return Slow(dispatcher)


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_answer_is_a_document_with_the_session(endpoint: McpEndpoint, version: str) -> None:
    client = await SessionClient.begin(endpoint, version)
    exchange = client.ask("ping")
    status, headers = await exchange.start()
    assert (status, headers["content-type"]) == (200, "application/json")
    assert headers["mcp-session-id"] == client.headers["Mcp-Session-Id"]


async def test_an_error_is_an_answer_like_any_other(endpoint: McpEndpoint) -> None:
    client = await SessionClient.begin(endpoint)
    status, answered = await client.ask("no/such/method").document()
    assert (status, answered["id"], answered["error"]["code"]) == (200, 1, -32601)


@pytest.mark.parametrize("version", VERSIONS)
async def test_progress_makes_it_a_stream_whose_events_are_numbered(
    endpoint: McpEndpoint, slow: Slow, version: str
) -> None:
    client = await SessionClient.begin(endpoint, version)
    for number in (1, 2):
        exchange = client.ask("test/slow")
        slow.report()
        slow.finish()
        assert (await exchange.start())[1]["content-type"] == "text/event-stream"
        if version == "2025-11-25":
            assert await exchange.event() == (f"{number}-0", None)
        told = await exchange.event()
        assert (told.id, told.message["method"]) == (f"{number}-1", PROGRESS)
        last = await exchange.event()
        assert (last.id, last.message["result"]) == (f"{number}-2", {"done": 1})
        await exchange.task


async def test_a_request_goes_on_without_its_client_and_its_stream_is_resumed(
    endpoint: McpEndpoint, slow: Slow
) -> None:
    client = await SessionClient.begin(endpoint)
    broken = client.ask("test/slow")
    slow.report()
    await broken.start()
    assert await broken.event() == ("1-0", None)
    assert (await broken.event()).id == "1-1"
    broken.disconnect()

    resumed = client.listen("1-0")
    await resumed.start()
    assert await resumed.event() == ("1-0", None)
    assert (await resumed.event()).message["params"] == {"progress": 1}
    slow.report()
    assert (await resumed.event()).message["params"] == {"progress": 2}
    slow.finish()
    assert (await resumed.event()).message["result"] == {"done": 2}
    await asyncio.gather(resumed.task, broken.task)
    assert await broken.part() == (b"", False)  # what is read elsewhere is not sent twice
    assert not slow.is_cancelled


async def test_a_stream_that_has_ended_is_sent_again_from_any_event(endpoint: McpEndpoint, slow: Slow) -> None:
    client = await SessionClient.begin(endpoint)
    exchange = client.ask("test/slow")
    slow.report()
    slow.finish()
    await exchange.task
    for after, expected in (("1-0", 2), ("1-1", 1), ("1-2", 0), ("1-99", 0)):
        again = client.listen(after)
        await again.task
        await again.start()
        await again.event()
        told = [await again.event() for _ in range(expected)]
        assert [event.id for event in told] == ["1-1", "1-2"][2 - expected :]


@pytest.mark.parametrize("wrong", ["7-0", "x", "1", "1-x", "-1-0", "", "0-0 ", f"{'9' * 5000}-0", f"0-{'9' * 5000}"])
async def test_an_event_that_is_not_known_cannot_be_resumed_from(endpoint: McpEndpoint, wrong: str) -> None:
    client = await SessionClient.begin(endpoint)
    assert (await client.listen(wrong).document())[0] == 400


async def test_a_silent_request_is_kept_alive(pinging_endpoint: McpEndpoint, slow: Slow) -> None:
    client = await SessionClient.begin(pinging_endpoint)
    exchange = client.ask("test/slow")
    await exchange.start()
    body, _ = await exchange.part()
    assert body.startswith(b"id: 1-0")
    assert body.endswith(b": ping\r\n\r\n")
    assert await exchange.part() == (b": ping\r\n\r\n", True)
    slow.finish()
    assert (await exchange.event()).message["result"] == {"done": 0}


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_cancelled_request_is_ended_with_an_error(endpoint: McpEndpoint, slow: Slow, is_stream: bool) -> None:
    client = await SessionClient.begin(endpoint)
    other = await SessionClient.begin(endpoint)
    exchange = client.ask("test/slow", request_id="a")
    if is_stream:
        slow.report()
        await exchange.start()
        await exchange.event()
        await exchange.event()
    await slow.began.wait()
    assert (await other.note("notifications/cancelled", requestId="a").document())[0] == 202
    assert (await client.note("notifications/cancelled", requestId="b").document())[0] == 202
    assert not exchange.task.done()
    assert (await client.note("notifications/cancelled", requestId="a").document())[0] == 202
    answered = (await exchange.event()).message if is_stream else (await exchange.document())[1]
    assert (answered["id"], answered["error"]["code"]) == ("a", -32800)
    assert slow.is_cancelled


async def follow(dispatcher: Dispatcher, client: SessionClient) -> NotificationQueue:
    """What the client is told of from now on."""
    connections: list[ClientConnection] = []

    async def begin(request: Request) -> dict[str, Any]:
        connections.append(request.connection)
        request.connection.start_notifying(request.announce)
        return {}

    dispatcher.methods["test/follow"] = begin
    await client.ask("test/follow").document()
    return connections[0].notices


async def test_notices_wait_for_the_stream_for_longer_than_events_are_kept(dispatcher: Dispatcher) -> None:
    now = 0.0
    log = EventLog(clock=lambda: now)
    endpoint = McpEndpoint(dispatcher, "/mcp", sessions=HttpSessions(log=log))
    client = await SessionClient.begin(endpoint, "2025-06-18")
    notices = await follow(dispatcher, client)
    await notices.add_resource("a")
    await client.ask("ping").document()
    now = KEEP_EVENTS_SECONDS + 1
    log.expire()
    standing = client.listen()
    async with asyncio.timeout(HANG):
        await standing.start()
        assert (await standing.event()).message["params"] == {"uri": "a"}
    endpoint.close()


async def test_notices_wait_for_the_stream_and_none_is_lost(endpoint: McpEndpoint, dispatcher: Dispatcher) -> None:
    client = await SessionClient.begin(endpoint)
    notices = await follow(dispatcher, client)
    for uri in ("a", "b", "a", "b"):
        await notices.add_resource(uri)

    standing = client.listen()
    await standing.start()
    assert await standing.event() == ("0-0", None)
    told = [await standing.event() for _ in range(2)]
    assert [event.message["params"]["uri"] for event in told] == ["a", "b"]
    assert (await client.listen().document())[0] == 409

    standing.disconnect()
    await standing.task
    await notices.add_resource("c")
    again = client.listen(told[0].id)
    await again.start()
    missed = [await again.event() for _ in range(3)]
    assert [event.message and event.message["params"]["uri"] for event in missed] == [None, "b", "c"]

    instead = client.listen(missed[-1].id)
    await again.task
    assert await again.part() == (b"", False)
    await instead.start()
    await instead.event()
    await notices.add_resource("d")
    assert (await instead.event()).id == "0-4"


async def test_a_standing_stream_is_kept_alive(pinging_endpoint: McpEndpoint) -> None:
    client = await SessionClient.begin(pinging_endpoint, "2025-06-18")
    standing = client.listen()
    await standing.start()
    assert await standing.part() == (b"", True)
    assert await standing.part() == (b": ping\r\n\r\n", True)
    standing.disconnect()
    await standing.task


async def test_a_stream_is_only_for_clients_that_accept_one(endpoint: McpEndpoint) -> None:
    client = await SessionClient.begin(endpoint)
    client.headers["Accept"] = "application/json"
    assert (await client.listen().document())[0] == 406


async def test_a_session_ends_with_everything_that_belongs_to_it(
    endpoint: McpEndpoint, dispatcher: Dispatcher, slow: Slow
) -> None:
    connections: list[ClientConnection] = []
    subscribe = dispatcher.methods["resources/subscribe"]

    async def watched(request: Request) -> Any:
        connections.append(request.connection)
        return await subscribe(request)

    dispatcher.methods["resources/subscribe"] = watched
    await dispatcher.app.library.create("p", "")
    client = await SessionClient.begin(endpoint)
    uri = {"uri": "memory://projects/p/knowledge-graph"}
    assert (await client.ask("resources/subscribe", uri).document())[1]["result"] == {}
    [connection] = connections
    assert set(connection.subscriptions) == {uri["uri"]}
    standing, running = client.listen(), client.ask("test/slow")
    await slow.began.wait()
    await standing.start()
    await standing.event()

    assert await client.delete().document() == (200, None)
    assert await connection.notices.wait_next() is None
    assert connection.subscriptions == {}
    assert await standing.part() == (b"", False)
    assert (await running.document())[1]["error"]["code"] == -32800
    for method in (client.ask("ping"), client.listen(), client.delete()):
        assert (await method.document())[0] == 404


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_without_a_session_there_is_nothing_to_do(endpoint: McpEndpoint, method: str) -> None:
    assert (await Exchange(endpoint, None, {}, method).document())[0] == 400
    assert (await Exchange(endpoint, request("ping"), {}).document())[0] == 400
    unknown = {"Mcp-Session-Id": "0" * 32}
    assert (await Exchange(endpoint, None, unknown, method).document())[0] == 404
    assert (await Exchange(endpoint, request("initialize", INITIALIZE), unknown).document())[0] == 404


async def test_a_handshake_that_fails_opens_no_session(endpoint: McpEndpoint) -> None:
    exchange = Exchange(endpoint, request("initialize"), {})
    status, headers = await exchange.start()
    assert status == 200
    assert "mcp-session-id" not in headers
    assert len(endpoint.sessions) == 0


async def test_a_session_is_found_only_with_its_credential(endpoint: McpEndpoint) -> None:
    client = await SessionClient.begin(endpoint, **{CREDENTIAL_KEY: "one"})
    assert (await client.ask("ping").document())[0] == 200
    thief = Exchange(endpoint, request("ping"), client.headers, **{CREDENTIAL_KEY: "two"})
    assert (await thief.document())[0] == 404
    assert (await Exchange(endpoint, None, client.headers, "DELETE").document())[0] == 404
    assert (await client.ask("ping").document())[0] == 200


@pytest.mark.parametrize("version", VERSIONS)
async def test_batches_belong_to_one_revision(endpoint: McpEndpoint, version: str) -> None:
    client = await SessionClient.begin(endpoint, version)
    batch = [
        request("ping", request_id=1),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request("no/such/method", request_id="b"),
        7,
        request("initialize", INITIALIZE, request_id=4),
    ]
    status, answered = await client.post(batch).document()
    if version != "2025-03-26":
        assert (status, answered["error"]["code"]) == (400, -32600)
        return
    assert status == 200
    assert [(each["id"], each.get("error", {}).get("code")) for each in answered] == [
        (1, None),
        ("b", -32601),
        (None, -32600),
        (4, -32600),
    ]


async def test_a_batch_without_a_request_has_no_answer(endpoint: McpEndpoint) -> None:
    client = await SessionClient.begin(endpoint, "2025-03-26")
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert await client.post([note, note]).document() == (202, None)
    assert (await client.post([]).document())[0] == 400
    assert (await Exchange(endpoint, [note], {}).document())[0] == 400


async def test_the_answers_of_a_batch_are_events_once_there_is_a_stream(endpoint: McpEndpoint, slow: Slow) -> None:
    client = await SessionClient.begin(endpoint, "2025-03-26")
    exchange = client.post([request("ping", request_id=1), request("test/slow", request_id=2)])
    slow.report()
    await exchange.start()
    assert (await exchange.event()).message["method"] == PROGRESS
    slow.finish()
    assert [(await exchange.event()).message["id"] for _ in range(2)] == [1, 2]


async def test_a_question_to_the_client_is_answered_by_another_request(
    endpoint: McpEndpoint, dispatcher: Dispatcher
) -> None:
    add_fixtures(dispatcher)
    client = await SessionClient.begin(endpoint)
    call = {"name": "test_sampling", "arguments": {"prompt": "Hello?"}}
    exchange = client.ask("tools/call", call)
    await exchange.start()
    await exchange.event()
    asked = (await exchange.event()).message
    assert asked["method"] == "sampling/createMessage"
    result = {"role": "assistant", "content": {"type": "text", "text": "Yes"}}
    for number in (99, "x", asked["id"], asked["id"]):
        told = {"jsonrpc": "2.0", "id": number, "result": result}
        assert (await client.post(told).document())[0] == 202
    answered = (await exchange.event()).message["result"]
    assert answered["content"] == [{"type": "text", "text": "LLM response: Yes"}]


async def test_a_question_that_the_client_refuses_ends_the_call(endpoint: McpEndpoint, dispatcher: Dispatcher) -> None:
    add_fixtures(dispatcher)
    client = await SessionClient.begin(endpoint)
    exchange = client.ask("tools/call", {"name": "test_sampling", "arguments": {"prompt": "?"}})
    await exchange.start()
    await exchange.event()
    number = (await exchange.event()).message["id"]
    error = {"code": -1, "message": "User rejected sampling request"}
    assert (await client.post({"jsonrpc": "2.0", "id": number, "error": error}).document())[0] == 202
    assert (await exchange.event()).message["error"]["code"] == -32603


@pytest.mark.parametrize("era", ["sessions", "stateless"])
async def test_an_account_gets_an_error_instead_of_an_answer_that_is_too_large(
    dispatcher: Dispatcher, era: str
) -> None:
    endpoint = McpEndpoint(dispatcher, "/mcp", max_answer_bytes=1_000)

    async def ask(method: str, *, account: Account | None, **params: Any) -> Any:
        scope = {ACCOUNT_KEY: account}
        if era == "stateless":
            named = {"Mcp-Name": params["name"]} if "name" in params else {}
            headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **named}
            exchange = Exchange(endpoint, stateless(method, **params), headers, **scope)
        else:
            exchange = (await SessionClient.begin(endpoint, **scope)).ask(method, params)
        return (await exchange.document())[1]

    assert len((await ask("tools/list", account=None))["result"]["tools"]) > 10
    listed = await ask("tools/list", account=ANNA)
    assert listed["error"]["data"]["error"] == "quota_exceeded"
    assert "1,000" in listed["error"]["message"]
    assert (await ask("resources/list", account=ANNA))["result"]["resources"] is not None

    async def answer_much(_request: Request) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": "x" * 2_000}], "isError": False}

    dispatcher.methods["tools/call"] = answer_much
    called = (await ask("tools/call", account=ANNA, name="list_projects"))["result"]
    assert called["isError"]
    assert called["structuredContent"]["quota"] == "quota_answer_bytes"
    endpoint.close()
