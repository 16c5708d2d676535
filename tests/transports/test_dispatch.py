"""The dispatch table in process, in both eras of the protocol."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
import pytest

from everkept.app.app import App
from everkept.core.mcp import GATEWAY_CLIENT
from everkept.core.sessions import Session
from everkept.core.times import format_iso
from everkept.families.memories.memory_documents import PREFERENCES_URI
from everkept.settings import Settings
from everkept.tools.tool import ToolResult, Toolset
from everkept.transports.connection import ClientConnection
from everkept.transports.dispatch import Dispatcher, ProtocolError, Request, RequestResult, build_progress_report
from gateway_front import actor, mapped, write
from records import DAY_ONE
from server_processes import HANG, META
from standby import standing_by

ERAS = pytest.mark.parametrize("meta", [None, META], ids=["handshake", "stateless"])
CURRENT = "memory://knowledge-graph"


@dataclass
class Client:
    """One client; `told` are the notifications that reached it."""

    dispatcher: Dispatcher
    meta: dict[str, Any] | None = None
    connection: ClientConnection = field(default_factory=lambda: ClientConnection(Session()))
    told: asyncio.Queue[tuple[str, dict[str, Any]]] = field(default_factory=asyncio.Queue)

    async def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        async def tell(name: str, body: dict[str, Any]) -> None:
            await self.told.put((name, body))

        if self.meta is not None:
            params = {"_meta": self.meta | params.pop("_meta", {})} | params
        answer = await self.dispatcher.handle(self.connection, 1, method, params, notify=tell, announce=tell)
        return answer.as_json()

    async def tool(self, name: str, /, **arguments: Any) -> Any:
        return (await self("tools/call", name=name, arguments=arguments))["structuredContent"]

    async def error(self, method: str, **params: Any) -> ProtocolError:
        with pytest.raises(ProtocolError) as caught:
            await self(method, **params)
        return caught.value


@pytest.mark.parametrize("asked", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_known_version_is_agreed_to(dispatcher: Dispatcher, asked: str) -> None:
    answer = await Client(dispatcher)("initialize", protocolVersion=asked)
    assert answer["protocolVersion"] == asked


@pytest.mark.parametrize("asked", ["1999-01-01", "2026-07-28", "later"])
async def test_another_version_is_answered_with_ours(dispatcher: Dispatcher, asked: str) -> None:
    answer = await Client(dispatcher)("initialize", protocolVersion=asked)
    assert answer["protocolVersion"] == "2025-11-25"


async def test_a_handshake_without_a_version_is_refused(dispatcher: Dispatcher) -> None:
    assert (await Client(dispatcher).error("initialize")).code == -32602


async def test_the_handshake_leaves_the_clients_name(dispatcher: Dispatcher) -> None:
    client = Client(dispatcher)
    info = {"name": "editor", "version": "1.2"}
    await client("initialize", protocolVersion="2025-11-25", clientInfo=info)
    assert client.connection.session.client == "editor 1.2"


async def test_stateless_requests_say_version_and_capabilities(dispatcher: Dispatcher) -> None:
    version = "io.modelcontextprotocol/protocolVersion"
    other = await Client(dispatcher, META | {version: "2030-01-01"}).error("tools/list")
    assert other.code == -32022
    assert other.data == {"supported": ["2026-07-28"], "requested": "2030-01-01"}
    lacking = await Client(dispatcher, {version: "2026-07-28"}).error("tools/list")
    assert lacking.code == -32602


@pytest.mark.parametrize(
    ("meta", "method"),
    [(META, name) for name in ("initialize", "ping", "resources/subscribe", "logging/setLevel")]
    + [(None, name) for name in ("server/discover", "subscriptions/listen", "no/such")],
)
async def test_methods_of_the_other_era_do_not_exist(
    dispatcher: Dispatcher, meta: dict[str, Any] | None, method: str
) -> None:
    assert (await Client(dispatcher, meta).error(method)).code == -32601


@pytest.mark.parametrize(
    "method", ["server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list"]
)
async def test_stateless_results_say_what_may_be_cached(dispatcher: Dispatcher, method: str) -> None:
    result = await Client(dispatcher, META)(method)
    assert result["resultType"] == "complete"
    assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "everkept"


async def test_handshake_results_carry_nothing_of_the_other_era(dispatcher: Dispatcher) -> None:
    assert set(await Client(dispatcher)("tools/list")) == {"tools"}


@ERAS
async def test_a_tool_answers_with_text_and_structure(dispatcher: Dispatcher, meta: dict[str, Any] | None) -> None:
    result = await Client(dispatcher, meta)("tools/call", name="list_projects")
    assert result["isError"] is False
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]


@ERAS
async def test_a_failed_call_is_a_result_with_the_envelope(dispatcher: Dispatcher, meta: dict[str, Any] | None) -> None:
    arguments = {"name": "nowhere"}
    result = await Client(dispatcher, meta)("tools/call", name="switch_project", arguments=arguments)
    assert result["isError"] is True
    envelope = result["structuredContent"]
    assert (envelope["error"], envelope["degraded"]) == ("not_found", False)
    assert {"message", "retry_possible"} <= set(envelope)


@ERAS
@pytest.mark.parametrize(
    "params", [{"name": "serch_nodes"}, {}, {"name": 7}, {"name": "list_projects", "arguments": [1]}]
)
async def test_an_unknown_tool_or_a_malformed_call_is_an_error(
    dispatcher: Dispatcher, meta: dict[str, Any] | None, params: dict[str, Any]
) -> None:
    unknown = -32602 if meta else -32601  # the newer revision fixes the code
    code = unknown if params.get("name") == "serch_nodes" else -32602
    assert (await Client(dispatcher, meta).error("tools/call", **params)).code == code


@ERAS
async def test_a_bank_that_cannot_be_read_says_where_it_was_expected(
    tmp_path: Path, meta: dict[str, Any] | None
) -> None:
    (tmp_path / "shop").mkdir()
    app = App(Settings(tmp_path / "data", embedding_model="none", toolsets="bank", path=tmp_path / "shop"))
    client, uri = Client(Dispatcher(app), meta), "memory-bank://active-context.md"
    bank = tmp_path / "shop" / "memory-bank"
    error = await client.error("resources/read", uri=uri)
    assert (error.code, error.data["expectedPath"]) == (-32000, str(bank))
    assert "initialize_memory_bank" in error.data["suggestion"]
    bank.mkdir()
    (bank / "notes.md").write_text("x", encoding="utf-8")
    error = await client.error("resources/read", uri=uri)
    assert (error.code, error.data["uri"]) == (-32602 if meta else -32002, uri)
    assert error.data["expectedPath"] == f"{bank}/active-context.md"
    assert "write_memory_bank_file" in error.data["suggestion"]
    (bank / "plan.png").write_bytes(b"\x89PNG\0")
    [content] = (await client("resources/read", uri="memory-bank://plan.png"))["contents"]
    assert content == {"uri": "memory-bank://plan.png", "mimeType": "image/png", "blob": "iVBORwA="}
    await app.close()


async def test_clients_hear_when_resources_appear_or_disappear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everkept.app.resources.LIST_SECONDS", 0.02)
    (tmp_path / "memory-bank").mkdir()
    app = App(Settings(tmp_path / "data", embedding_model="none", toolsets="bank", path=tmp_path))
    dispatcher = Dispatcher(app)
    client = Client(dispatcher)
    assert dispatcher.capabilities["resources"]["listChanged"] is True
    await client("resources/list")
    file = tmp_path / "memory-bank" / "notes.md"
    changed = ("notifications/resources/list_changed", {})
    async with asyncio.timeout(HANG):
        file.write_text("x", encoding="utf-8")
        assert await client.told.get() == changed
        listed = (await client("resources/list"))["resources"]
        assert "memory-bank://notes.md" in [resource["uri"] for resource in listed]
        file.unlink()
        assert await client.told.get() == changed
        newer = Client(dispatcher, META)
        listening = asyncio.create_task(newer("subscriptions/listen", notifications={"resourcesListChanged": True}))
        granted = (await newer.told.get())[1]["notifications"]
        assert granted == {"resourcesListChanged": True}
        file.write_text("x", encoding="utf-8")
        assert (await newer.told.get())[0] == changed[0]
        dispatcher.close()
        await listening
    client.connection.close()
    await app.close()


@ERAS
async def test_a_prompt_is_listed_and_becomes_a_message(dispatcher: Dispatcher, meta: dict[str, Any] | None) -> None:
    client = Client(dispatcher, meta)
    listed = {prompt["name"]: prompt for prompt in (await client("prompts/list"))["prompts"]}
    assert [argument["name"] for argument in listed["recall"]["arguments"]] == ["topic"]
    got = await client("prompts/get", name="recall", arguments={"topic": "the login form"})
    (message,) = got["messages"]
    assert message["role"] == "user"
    assert "the login form" in message["content"]["text"]
    assert "arguments" not in listed["catch_me_up"]
    assert (await client("prompts/get", name="catch_me_up"))["messages"]


@ERAS
@pytest.mark.parametrize(
    "params", [{"name": "forget"}, {}, {"name": 7}, {"name": "recall"}, {"name": "recall", "arguments": ["x"]}]
)
async def test_an_unknown_prompt_or_a_wrong_argument_is_an_error(
    dispatcher: Dispatcher, meta: dict[str, Any] | None, params: dict[str, Any]
) -> None:
    assert (await Client(dispatcher, meta).error("prompts/get", **params)).code == -32602


async def test_an_unknown_tool_is_answered_with_the_nearest(dispatcher: Dispatcher) -> None:
    error = await Client(dispatcher).error("tools/call", name="serch_nodes")
    assert "search_nodes" in error.message


@ERAS
@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "resources/list", "resources/templates/list"])
async def test_a_cursor_that_was_never_given_out_is_refused(
    dispatcher: Dispatcher, meta: dict[str, Any] | None, method: str
) -> None:
    assert (await Client(dispatcher, meta).error(method, cursor="x")).code == -32602


@pytest.mark.parametrize(("meta", "code"), [(None, -32002), (META, -32602)])
@pytest.mark.parametrize("uri", ["memory://projects/none/knowledge-graph", "file:///etc/passwd"])
async def test_a_missing_resource_has_the_code_of_its_era(
    dispatcher: Dispatcher, meta: dict[str, Any] | None, code: int, uri: str
) -> None:
    error = await Client(dispatcher, meta).error("resources/read", uri=uri)
    assert (error.code, error.data) == (code, {"uri": uri})


async def test_a_resource_that_needs_a_project_says_so(dispatcher: Dispatcher) -> None:
    error = await Client(dispatcher, META).error("resources/read", uri=CURRENT)
    assert error.code == -32602
    assert error.data["error"] == "no_active_project"


async def test_the_project_is_kept_for_the_connection(dispatcher: Dispatcher) -> None:
    one, two = Client(dispatcher), Client(dispatcher)
    await one.tool("create_project", name="p")
    assert (await one.tool("get_current_project"))["name"] == "p"
    assert "name" not in await two.tool("get_current_project")


async def test_without_a_session_a_choice_is_answered_with_a_note(dispatcher: Dispatcher) -> None:
    client = Client(dispatcher, META)
    await client.tool("create_project", name="p")
    assert 'project="p"' in (await client.tool("switch_project", name="p"))["note"]
    assert "name" not in await client.tool("get_current_project")
    found = await client.tool("search_nodes", query="x", project="p")
    assert found["entities"] == []


async def test_progress_is_reported_under_the_clients_token(dispatcher: Dispatcher) -> None:
    async def work(request: Request) -> dict[str, Any]:
        if (report := build_progress_report(request)) is not None:
            await report(1, 2, "half")
        return {}

    dispatcher.methods["test/work"] = work
    client = Client(dispatcher, META)
    await client("test/work", _meta={"progressToken": "t"})
    body = {"progressToken": "t", "progress": 1, "total": 2, "message": "half"}
    assert client.told.get_nowait() == ("notifications/progress", body)
    await client("test/work")
    assert client.told.empty()


async def test_a_subscriber_is_told_of_a_change_once_it_happens(dispatcher: Dispatcher) -> None:
    client, writer = Client(dispatcher), Client(dispatcher)
    await client.tool("create_project", name="p")
    await client("resources/subscribe", uri=CURRENT)
    await client("resources/subscribe", uri=CURRENT)
    entities = [{"name": "Ada", "entity_type": "person"}]
    await writer.tool("create_entities", entities=entities, project="p")
    async with asyncio.timeout(HANG):
        assert await client.told.get() == ("notifications/resources/updated", {"uri": CURRENT})
    await client("resources/unsubscribe", uri=CURRENT)
    assert client.connection.subscriptions == {}
    client.connection.close()


async def test_a_subscription_to_nothing_is_an_error(dispatcher: Dispatcher) -> None:
    error = await Client(dispatcher).error("resources/subscribe", uri="memory://nothing")
    assert error.code == -32002


async def test_a_stream_acknowledges_first_tags_everything_and_ends_with_an_answer(dispatcher: Dispatcher) -> None:
    client = Client(dispatcher, META)
    await client.tool("create_project", name="p")
    uri = "memory://projects/p/knowledge-graph"
    wanted = {"resourceSubscriptions": [uri, uri, "memory://nothing", 5], "toolsListChanged": True}
    tag = {"io.modelcontextprotocol/subscriptionId": 1}
    listening = asyncio.create_task(client("subscriptions/listen", notifications=wanted))
    async with asyncio.timeout(HANG):
        name, body = await client.told.get()
        assert name == "notifications/subscriptions/acknowledged"
        assert body == {"notifications": {"resourceSubscriptions": [uri]}, "_meta": tag}
        entities = [{"name": "Ada", "entity_type": "person"}]
        await client.tool("create_entities", entities=entities, project="p")
        name, body = await client.told.get()
        assert (name, body) == ("notifications/resources/updated", {"uri": uri, "_meta": tag})
        dispatcher.close()
        assert (await listening)["_meta"].items() >= tag.items()


async def test_a_subscriber_that_does_not_read_holds_up_nobody(dispatcher: Dispatcher) -> None:
    stuck, client = Client(dispatcher), Client(dispatcher)
    stuck.told = asyncio.Queue(maxsize=1)
    stuck.told.put_nowait(("full", {}))
    await client.tool("create_project", name="p")
    await stuck.tool("switch_project", name="p")
    await stuck("resources/subscribe", uri=CURRENT)
    await client("resources/subscribe", uri=CURRENT)
    async with asyncio.timeout(HANG):
        for number in range(3):
            entities = [{"name": f"Ada {number}", "entity_type": "person"}]
            await client.tool("create_entities", entities=entities)
            await client.told.get()
    stuck.connection.close()
    client.connection.close()


@pytest.fixture
async def fronted(tmp_path: Path) -> AsyncIterator[Dispatcher]:
    """One with a gateway."""
    tools = [mapped("notes__echo", "echo", {"text": "text"}), mapped("notes__wait", "wait", {})]
    path = write(tmp_path / "tools.json", {"upstream": actor(), "tools": tools})
    app = App(Settings(tmp_path / "data", toolsets="graph,gateway", gateway_config=path))
    yield Dispatcher(app)
    await app.close()


def greeting_as(name: str) -> dict[str, Any]:
    return {"protocolVersion": "2025-11-25", "clientInfo": {"name": name, "version": "1"}}


async def names_for(client: Client) -> set[str]:
    return {tool["name"] for tool in (await client("tools/list"))["tools"]}


@ERAS
async def test_a_gateway_in_front_of_us_is_offered_our_own_tools_alone(
    fronted: Dispatcher, meta: dict[str, Any] | None
) -> None:
    info = {"io.modelcontextprotocol/clientInfo": {"name": GATEWAY_CLIENT, "version": "1"}}
    gateway = Client(fronted, None if meta is None else meta | info)
    other = Client(fronted, meta)
    if meta is None:
        await gateway("initialize", **greeting_as(GATEWAY_CLIENT))
        await other("initialize", **greeting_as("inspector"))
    assert await names_for(other) - await names_for(gateway) == {"notes__echo", "notes__wait"}
    error = await gateway.error("tools/call", name="notes__echo", arguments={"text": "x"})
    assert error.code == (-32602 if meta else -32601)
    answered = await other("tools/call", name="notes__echo", arguments={"text": "x"})
    assert answered["structuredContent"] == {"text": "x"}
    for client in (gateway, other):
        client.connection.close()


async def test_a_call_that_hangs_elsewhere_holds_up_none_of_ours(fronted: Dispatcher) -> None:
    client = Client(fronted)
    waiting = asyncio.create_task(client("tools/call", name="notes__wait", arguments={}))
    async with asyncio.timeout(HANG):
        await client.tool("create_project", name="p")
        answered = await client("tools/call", name="notes__echo", arguments={"text": "x"})
    assert answered["structuredContent"] == {"text": "x"}
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@ERAS
async def test_a_resource_of_what_was_last_seen_is_marked(tmp_path: Path, meta: dict[str, Any] | None) -> None:
    async with standing_by(tmp_path / "standby") as standing:
        app = App(Settings(tmp_path), library=standing.library)
        client = Client(Dispatcher(app), meta)
        [content] = (await client("resources/read", uri=PREFERENCES_URI))["contents"]
        assert "_meta" not in content
        await standing.goes()
        [content] = (await client("resources/read", uri=PREFERENCES_URI))["contents"]
        assert content["_meta"] == {"degraded": True}
        await app.close()


async def test_a_session_begins_when_its_client_does(tmp_path: Path) -> None:
    now = DAY_ONE
    app = App(Settings(tmp_path, embedding_model="none"), clock=lambda: now)
    dispatcher = Dispatcher(app)
    for minutes in (0, 10):
        now = DAY_ONE + minutes * 60_000_000
        client = Client(dispatcher)
        await client("initialize", protocolVersion="2025-11-25")
        began = format_iso(now)
        now += 60_000_000
        for _ in range(2):  # before its first memory, and afterwards
            status = await client.tool("get_memory_status")
            assert status["current_session"]["started_at"] == began
            told = await client("resources/read", uri="memory://session/summary")
            assert f"Started: {began[:16].replace('T', ' ')}" in told["contents"][0]["text"]
            await client.tool("store_memory", content="x", type="semantic", scope="session")
    await app.close()


@pytest.mark.parametrize("fields", [{}, {"resultType": "complete", "_meta": {"a": 1}}])
@pytest.mark.parametrize(
    "result",
    [
        None,
        ToolResult({"words": 'ä "\ud800"', "many": 2**70}),
        ToolResult({"words": "Hello"}, "A sentence."),
        ToolResult({"words": "Hello"}),
    ],
)
def test_an_answer_is_the_same_as_json_and_as_text(result: ToolResult | None, fields: dict[str, Any]) -> None:
    answer = RequestResult(fields, result)
    assert json.loads(answer.as_bytes()) == answer.as_json()
    message = json.loads(answer.respond("x"))
    assert message == {"jsonrpc": "2.0", "id": "x", "result": answer.as_json()}


@pytest.mark.parametrize("wrong", [float("nan"), object()])
@pytest.mark.parametrize("sentence", [None, "A sentence."])
def test_an_answer_that_cannot_be_written_is_an_error(wrong: object, sentence: str | None) -> None:
    message = json.loads(RequestResult({}, ToolResult({"wrong": [wrong]}, sentence)).respond(1))
    assert (message["id"], message["error"]["code"]) == (1, -32603)


@ERAS
async def test_the_facts_of_a_call_are_encoded_once_for_text_and_structure(
    dispatcher: Dispatcher, meta: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[Any] = []
    dumps = orjson.dumps

    def count(value: Any) -> bytes:
        encoded.append(value)
        return dumps(value)

    monkeypatch.setattr(orjson, "dumps", count)
    params = {"name": "list_projects", "arguments": {}}
    if meta is not None:
        params["_meta"] = meta

    async def unheard(_method: str, _params: dict[str, Any]) -> None: ...

    answer = await dispatcher.handle(
        ClientConnection(Session()), 1, "tools/call", params, notify=unheard, announce=unheard
    )
    message = json.loads(answer.respond(1))
    assert [type(value) for value in encoded] == [dict, str]  # the second time as a quoted text
    assert json.loads(message["result"]["content"][0]["text"]) == encoded[0]
    assert message["result"]["structuredContent"] == encoded[0]


async def test_the_tool_of_a_call_is_looked_up_once(dispatcher: Dispatcher) -> None:
    client = Client(dispatcher)
    await client.tool("list_projects")
    looked = 0

    def count(frame: FrameType, event: str, _arg: object) -> None:
        nonlocal looked
        looked += event == "call" and frame.f_code is Toolset.get.__code__

    sys.setprofile(count)
    try:
        await client.tool("list_projects")
    finally:
        sys.setprofile(None)
    assert looked == 1
