"""What the gateway is for: the server behind it changes, and one file is edited."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import types
from mcp.client.client import Client
from mcp.client.subscriptions import ToolsListChanged

from gateway_front import JSON, Front, actor, call, call_until, mapped, names, offered, write
from server_processes import HANG

SEARCH = ("memory__search", {"query": "harbour", "unmapped": "not sent"})


@dataclass(frozen=True)
class Scenario:
    """What is edited in the file, and what a call comes to behind it afterwards."""

    edit: Callable[[JSON, Path], None]
    tool: str
    arguments: JSON
    asked: JSON


def _another_provider(config: JSON, folder: Path) -> None:
    (folder / "other.json").write_text(offered("new-memory__search"), "utf-8")
    config["upstream"] = actor("--name", "other", "--tools", folder / "other.json")
    config["tools"] = [mapped("memory__search", "new-memory__search", {"query": "searchQuery"})]


def _one_more_tool(config: JSON, folder: Path) -> None:
    (folder / "theirs.json").write_text(offered("search", "read", "delete"), "utf-8")
    config["tools"].append(mapped("memory__delete", "episodic-memory__delete", {"path": "path"}))


def _another_structure(config: JSON, folder: Path) -> None:
    config["tools"][0] = mapped(
        "memory__search", "episodic-memory__search", {"query": "query.text"}, constants={"query.filters": {}}
    )


SCENARIOS = {
    "another provider": Scenario(
        _another_provider, *SEARCH, {"tool": "new-memory__search", "arguments": {"searchQuery": "harbour"}}
    ),
    "one more tool": Scenario(
        _one_more_tool, "memory__delete", {"path": "/a.jsonl"}, {"tool": "delete", "arguments": {"path": "/a.jsonl"}}
    ),
    "another structure of parameters": Scenario(
        _another_structure, *SEARCH, {"tool": "search", "arguments": {"query": {"text": "harbour", "filters": {}}}}
    ),
}


@pytest.fixture(params=SCENARIOS.values(), ids=list(SCENARIOS))
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return request.param


@pytest.fixture
def config(front: Front) -> JSON:
    """A file with two tools, in front of a server that does not prefix the names of its own."""
    theirs = front.folder / "theirs.json"
    theirs.write_text(offered("search", "read"), "utf-8")
    config = {
        "upstream": actor("--tools", theirs),
        "tools": [
            mapped("memory__search", "episodic-memory__search", {"query": "query"}),
            mapped("memory__read", "episodic-memory__read", {"path": "path"}),
        ],
    }
    write(front.file, config)
    return config


async def test_an_edit_of_the_file_is_all_that_a_change_behind_it_takes(
    front: Front, config: JSON, scenario: Scenario
) -> None:
    with front.running():
        async with front.connect() as client:
            before = {tool.name: tool for tool in (await client.list_tools()).tools}
            asked = {"tool": "search", "arguments": {"query": "harbour"}}
            assert await call(client, SEARCH[0], **SEARCH[1]) == asked
            scenario.edit(config, front.folder)
            write(front.file, config)
            await _known(client, scenario.tool)
            await call_until(client, scenario.asked, scenario.tool, **scenario.arguments)
            after = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert after["memory__search"] == before["memory__search"]
    with front.running():
        async with front.connect() as client:
            assert await call(client, scenario.tool, **scenario.arguments) == scenario.asked


async def _known(client: Client, tool: str) -> None:
    async with asyncio.timeout(HANG):
        while tool not in await names(client):
            continue


async def test_clients_are_told_of_another_tool(front: Front, config: JSON) -> None:
    told = asyncio.Event()

    async def on_message(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.set()

    with front.running():
        async with front.connect(message_handler=on_message) as client:
            assert "memory__delete" not in await names(client)
            if not front.is_stateless:
                assert client.server_capabilities.tools is not None
                assert client.server_capabilities.tools.list_changed
                await _edit_until(front, config, told)
            else:
                async with client.listen(tools_list_changed=True) as stream:
                    assert stream.honored.tools_list_changed
                    _one_more_tool(config, front.folder)
                    write(front.file, config)
                    event = await anext(aiter(stream))
                    assert isinstance(event, ToolsListChanged)
            assert "memory__delete" in await names(client)


async def _edit_until(front: Front, config: JSON, told: asyncio.Event) -> None:
    """A first word may be said before the stream of the client is open."""
    _one_more_tool(config, front.folder)
    for number in range(30):
        config["tools"][0]["description"] = f"Edited {number} times"
        write(front.file, config)
        try:
            async with asyncio.timeout(3):
                await told.wait()
        except TimeoutError:
            continue
        return
    raise AssertionError("no word of the change")
