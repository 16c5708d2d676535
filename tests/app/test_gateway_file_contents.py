import json
from pathlib import Path
from typing import Any

import pytest

from everkept.app.gateway_file import GatewayServer, find_plain_secrets, read_overview
from everkept.core.mcp import ToolUsage, UpstreamEndpoint, UpstreamProgram, UpstreamSettings
from everkept.engines.memory.library import MemoryLibrary
from records import DAY_ONE

KEY = "sk-abcdefghijklmnopqrstuvwxyz123456"


def written(path: Path, **file: Any) -> Path:
    path.write_text(json.dumps(file), "utf-8")
    return path


def tool(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": "Looks for words.",
        "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}},
        "upstream": {"tool": "search", "paramMapping": {"query": "query"}},
    }


async def test_without_a_file_and_without_calls_there_is_nothing_to_tell() -> None:
    assert await read_overview(None, MemoryLibrary()) is None


async def test_calls_are_told_when_the_file_is_gone() -> None:
    library = MemoryLibrary()
    await library.add_usage([ToolUsage("search", 1, 0, 2.0, 2.0, DAY_ONE)])
    seen = await read_overview(None, library)
    assert seen is not None
    assert (seen.config, seen.fault, list(seen.upstreams)) == (None, None, [])
    assert [usage.tool for usage in seen.tools] == ["search"]


async def test_servers_are_told_without_what_looks_like_a_secret(tmp_path: Path) -> None:
    upstreams = {
        "notes": {"command": "npx", "args": ["-y", "notes", "--api-key", KEY], "passThrough": True},
        "web": {"url": f"https://example.com:8443/s3cret/mcp?t={KEY}#x", "passThrough": True},
    }
    seen = await read_overview(written(tmp_path / "tools.json", upstreams=upstreams), MemoryLibrary())
    assert seen is not None
    assert seen.fault is None
    notes, web = seen.upstreams
    assert web == GatewayServer("web", "http", "https://example.com:8443")
    assert (notes.name, notes.way) == ("notes", "stdio")
    assert notes.reached.startswith("npx -y notes --api-key ")
    assert KEY not in notes.reached


async def test_tools_that_were_never_called_come_behind_the_others(tmp_path: Path) -> None:
    tools = [tool(name) for name in ("c", "b", "a")]
    path = written(tmp_path / "tools.json", upstream={"command": "server"}, tools=tools)
    library = MemoryLibrary()
    await library.add_usage([ToolUsage("b", 2, 1, 3.0, 2.0, DAY_ONE), ToolUsage("gone", 1, 0, 1, 1, 0)])
    seen = await read_overview(path, library)
    assert seen is not None
    assert [(usage.tool, usage.calls) for usage in seen.tools] == [("b", 2), ("a", 0), ("c", 0)]
    assert [usage.tool for usage in seen.earlier] == ["gone"]


@pytest.mark.parametrize("text", ['{\n  "upstream": 3\n}', "", "{", "\n\nnonsense"])
async def test_a_file_that_cannot_be_used_is_told_with_its_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tools.json"
    path.write_text(text, "utf-8")
    library = MemoryLibrary()
    await library.add_usage([ToolUsage("search", 1, 0, 2.0, 2.0, DAY_ONE)])
    seen = await read_overview(path, library)
    assert seen is not None
    assert seen.fault is not None
    assert f"{path}, line " in seen.fault
    assert [usage.tool for usage in seen.tools] == ["search"]


async def test_a_name_that_is_taken_is_a_fault(tmp_path: Path) -> None:
    upstream = {"command": "server"}
    path = written(tmp_path / "tools.json", upstream=upstream, tools=[tool("recall")])
    seen = await read_overview(path, MemoryLibrary(), {"recall"})
    assert seen is not None
    assert f"{path}, line 1" in str(seen.fault)
    assert "recall" in str(seen.fault)


async def test_a_file_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    seen = await read_overview(tmp_path / "tools.json", MemoryLibrary())
    assert seen is not None
    assert str(tmp_path / "tools.json") in str(seen.fault)


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (UpstreamProgram("npx", ("-y", "x"), {"API_KEY": KEY, "PLACE": "/x"}), ["API_KEY"]),
        (UpstreamProgram("npx", ("--token", "abcdefgh1234")), ["args"]),
        (UpstreamProgram("npx", env={"API_KEY": "${MY_KEY}"}), []),
        (UpstreamEndpoint("https://x.y/mcp", {"Authorization": f"Bearer {KEY}"}), ["Authorization"]),
        (UpstreamEndpoint("https://x.y/mcp", {"Authorization": "Bearer ${MY_KEY}"}), []),
        (UpstreamEndpoint(f"https://x.y/mcp?api_key={KEY}"), ["url"]),
    ],
    ids=str,
)
def test_secrets_that_stand_in_the_file_are_named(way: UpstreamProgram | UpstreamEndpoint, expected: list[str]) -> None:
    assert find_plain_secrets(UpstreamSettings("notes", way)) == expected
