"""The promises of the tool gateway in their published order. `docs/differences.md` has the differences."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everkept.errors import NotFound
from everkept.families.gateway.draft import list_ready_names, read_ready_file
from everkept.families.gateway.file_reader import parse_file
from gateway_front import actor, mapped, write
from server_processes import INITIALIZE, StdioServer, stdio_server

JSON = dict[str, Any]
WORDS = {"type": "object", "properties": {"words": {"type": "string", "description": "What to say"}}}


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StdioServer, Path]]:
    """One warm gateway in front of one server, and its file."""
    folder = tmp_path_factory.mktemp("gateway")
    look = mapped("memory__look", "echo", {"words": "text"}) | {"inputSchema": WORDS}
    file = write(folder / "tools.json", {"upstream": actor(), "tools": [look, mapped("gone", "nothing", {})]})
    with stdio_server(folder / "data", "--toolsets", "gateway", "--gateway-config", file) as server:
        server.ask(0, "initialize", **INITIALIZE)
        yield server, file


def call(front: tuple[StdioServer, Path], tool: str, **arguments: Any) -> JSON:
    answer = front[0].ask(1, "tools/call", name=tool, arguments=arguments)
    return answer.get("result") or answer["error"]


def test_tools_of_another_server_are_served_under_the_names_of_the_file(front: tuple[StdioServer, Path]) -> None:
    listed = front[0].ask(1, "tools/list")["result"]["tools"]
    assert [tool["name"] for tool in listed] == ["memory__look", "gone"]


def test_the_description_and_the_schema_are_those_of_the_file(front: tuple[StdioServer, Path]) -> None:
    tool, _ = front[0].ask(1, "tools/list")["result"]["tools"]
    [kept, _] = json.loads(front[1].read_text(encoding="utf-8"))["tools"]
    assert (tool["description"], tool["inputSchema"]) == (kept["description"], kept["inputSchema"])


def test_parameters_are_mapped_by_name(front: tuple[StdioServer, Path]) -> None:
    assert "hello" in json.dumps(call(front, "memory__look", words="hello"))


def test_the_answer_is_passed_through_unchanged(front: tuple[StdioServer, Path]) -> None:
    answer = call(front, "memory__look", words="hello")
    assert answer["content"] == [{"type": "text", "text": '{"text": "hello"}'}]


def test_only_mapped_parameters_are_sent(front: tuple[StdioServer, Path]) -> None:
    assert call(front, "memory__look", words="x", other="y")["structuredContent"] == {"text": "x"}


def test_an_unknown_tool_is_an_error_that_names_it(front: tuple[StdioServer, Path]) -> None:
    assert "memory__nothing" in json.dumps(call(front, "memory__nothing"))


def test_an_error_of_the_server_behind_is_reported_as_an_error(front: tuple[StdioServer, Path]) -> None:
    assert call(front, "gone")["isError"] is True


def test_a_change_of_the_other_server_takes_only_an_edit_of_the_file(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for upstream_tool in ("nothing", "echo"):
        file = write(
            tmp_path / "tools.json", {"upstream": actor(), "tools": [mapped("look", upstream_tool, {"words": "text"})]}
        )
    with stdio_server(data, "--toolsets", "gateway", "--gateway-config", file) as server:
        server.ask(0, "initialize", **INITIALIZE)
        answer = server.ask(1, "tools/call", name="look", arguments={"words": "again"})
    assert "again" in json.dumps(answer["result"])


@pytest.mark.parametrize("missing", ["upstream", "tools"])
def test_a_file_without_a_server_or_tools_is_an_error(tmp_path: Path, missing: str) -> None:
    config = {"upstream": actor(), "tools": [mapped("look", "echo", {"words": "text"})]}
    del config[missing]
    found = parse_file(json.dumps(config), tmp_path)
    assert found.config is None
    assert any(missing in str(error) for error in found.problems)


def test_a_broken_file_names_its_line(tmp_path: Path) -> None:
    found = parse_file('{\n  "upstream": {\n}', tmp_path)
    assert found.config is None
    assert str(found.problems[0]).startswith("line")


@pytest.mark.parametrize("name", ["episodic-memory", "server-memory"])
def test_a_ready_made_file_for_a_well_known_server_is_valid(tmp_path: Path, name: str) -> None:
    assert name in list_ready_names()
    found = parse_file(read_ready_file(name, tmp_path), tmp_path)
    assert found.problems == []
    assert found.config is not None


def test_an_unknown_ready_made_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="unknown-server"):
        read_ready_file("unknown-server", tmp_path)
