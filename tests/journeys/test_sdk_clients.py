"""The official SDK's client against real servers: both transports, both eras."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp import StdioServerParameters, types
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from server_processes import HANG, HttpServer, command, environment, http_server, stdio_server

CURRENT = "memory://knowledge-graph"
ENTITIES = [
    {"name": "Ada", "entity_type": "person", "observations": ["wrote the first program"]},
    {"name": "Engine", "entity_type": "machine"},
]


@dataclass
class Place:
    """A data folder, and how to connect to a server on it."""

    data_dir: Path
    mode: str
    server: HttpServer | None = None

    @property
    def is_stateless(self) -> bool:
        return self.mode != "legacy"

    @asynccontextmanager
    async def connect(self, **options: Any) -> AsyncIterator[Client]:
        if self.server is not None:
            target: Any = self.server.url
        else:
            program, *arguments = command("serve", "--data-dir", self.data_dir)
            target = stdio_client(StdioServerParameters(command=program, args=arguments, env=environment()))
        async with asyncio.timeout(HANG), Client(target, mode=self.mode, **options) as client:
            yield client


@pytest.fixture(params=["stdio", "http"])
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


@contextmanager
def opened(transport: str, mode: str, data_dir: Path) -> Iterator[Place]:
    if transport == "stdio":
        yield Place(data_dir, mode)
        return
    with http_server(data_dir, "--no-token") as server:
        yield Place(data_dir, mode, server)


@pytest.fixture
def place(kind: tuple[str, str], tmp_path: Path) -> Iterator[Place]:
    with opened(*kind, tmp_path) as found:
        yield found


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, types.CallToolResult)
    assert not result.is_error, result
    return result.structured_content


@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_a_client_that_asks_learns_the_newest_version_it_may_use(
    transport: str, tmp_path: Path, mode: str, version: str
) -> None:
    with opened(transport, mode, tmp_path) as place:
        async with place.connect() as client:
            _assert_introduced(client, version)


def _assert_introduced(client: Client, version: str) -> None:
    assert client.protocol_version == version
    assert client.server_info is not None
    assert client.server_info.name == "everkept"
    assert client.instructions
    assert client.server_capabilities.resources is not None
    assert client.server_capabilities.resources.subscribe


async def test_a_client_keeps_and_finds_a_memory(place: Place) -> None:
    async with place.connect() as client:
        expected = "2025-11-25" if place.mode == "legacy" else "2026-07-28"
        assert client.protocol_version == expected
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"create_project", "create_entities", "search_nodes"} <= set(tools)

        await call(client, "create_project", name="p")
        made = await call(client, "create_entities", entities=ENTITIES, project="p")
        found = await call(client, "search_nodes", query="first program", project="p")
        assert [entity["name"] for entity in found["entities"]] == ["Ada"]
        for name, value in (("create_entities", made), ("search_nodes", found)):
            schema = tools[name].output_schema
            assert schema is not None
            jsonschema.validate(value, schema)


async def test_a_failed_call_and_an_unknown_tool_are_told_apart(place: Place) -> None:
    async with place.connect() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        failed = await client.call_tool("switch_project", {"name": "nowhere"})
        assert isinstance(failed, types.CallToolResult)
        assert failed.is_error
        assert failed.structured_content["error"] == "not_found"
        schema = tools["switch_project"].output_schema
        assert schema is not None
        jsonschema.validate(failed.structured_content, schema)
        with pytest.raises(MCPError) as caught:
            await client.call_tool("no_such_tool", {})
        assert caught.value.error.code == (-32602 if place.is_stateless else -32601)


async def test_a_graph_is_listed_and_read_as_a_resource(place: Place) -> None:
    async with place.connect() as client:
        await call(client, "create_project", name="p")
        await call(client, "create_entities", entities=ENTITIES, project="p")
        listed = [str(item.uri) for item in (await client.list_resources()).resources]
        assert listed[-2:] == [CURRENT, "memory://projects/p/knowledge-graph"]
        templates = (await client.list_resource_templates()).resource_templates
        assert [item.uri_template for item in templates] == ["memory://projects/{name}/knowledge-graph"]
        read = await client.read_resource(listed[-1])
        assert isinstance(read, types.ReadResourceResult)
        [content] = read.contents
        assert isinstance(content, types.TextResourceContents)
        assert {item["name"] for item in json.loads(content.text)["entities"]} == {"Ada", "Engine"}
        with pytest.raises(MCPError) as caught:
            await client.read_resource("memory://projects/none/knowledge-graph")
        assert caught.value.error.code == (-32602 if place.is_stateless else -32002)


async def test_a_chosen_project_is_kept_or_the_answer_says_that_it_is_not(place: Place) -> None:
    async with place.connect() as client:
        for name in ("one", "two"):
            await call(client, "create_project", name=name)
        switched = await call(client, "switch_project", name="one")
        current = await call(client, "get_current_project")
        if place.is_stateless:
            assert 'project="one"' in switched["note"]
            assert "name" not in current
        else:
            assert "note" not in switched
            assert current["name"] == "one"


async def test_two_clients_do_not_share_a_project(place: Place) -> None:
    async with place.connect() as one, place.connect() as two:
        await call(one, "create_project", name="theirs")
        await call(two, "create_project", name="ours")
        first = await call(one, "get_current_project")
        second = await call(two, "get_current_project")
    if place.is_stateless:
        assert "name" not in {**first, **second}
    else:
        assert (first["name"], second["name"]) == ("theirs", "ours")


async def test_a_change_by_another_process_is_announced(place: Place) -> None:
    """The other process writes until word comes: a first write may fall before the stream opens."""
    uri = "memory://projects/p/knowledge-graph"
    told: asyncio.Queue[str] = asyncio.Queue()

    def write_here(number: int) -> None:
        entities = [{"name": f"Ada {number}", "entity_type": "person"}]
        with stdio_server(place.data_dir, "--project", "p") as other:
            made = other.ask(1, "tools/call", name="create_entities", arguments={"entities": entities})
        assert made["result"]["isError"] is False

    async def write(number: int) -> None:
        await asyncio.to_thread(write_here, number)

    async def write_until_told() -> str:
        number = 0
        while told.empty():
            await write(number)
            number += 1
            try:
                async with asyncio.timeout(1):
                    return await told.get()
            except TimeoutError:
                continue
        return told.get_nowait()

    async def on_message(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            await told.put(str(message.params.uri))

    async with place.connect(message_handler=on_message) as client:
        await call(client, "create_project", name="p")
        if not place.is_stateless:
            with pytest.warns(MCPDeprecationWarning):
                await client.subscribe_resource(uri)
            assert await write_until_told() == uri
            with pytest.warns(MCPDeprecationWarning):
                await client.unsubscribe_resource(uri)
            return
        async with client.listen(resource_subscriptions=[uri]) as stream:
            assert stream.honored.resource_subscriptions == [uri]
            await write(0)
            async for event in stream:
                assert isinstance(event, ResourceUpdated)
                assert str(event.uri) == uri
                break
