"""The memory tool, compared with the one of Anthropic's SDK that writes to a folder."""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.tools import BetaLocalFilesystemMemoryTool, ToolError

from everkept import AsyncMemory, Memory
from everkept.integrations.anthropic import AsyncEverkeptMemoryTool, EverkeptMemoryTool
from stand_in_models import QUOTE, serve_replies

X, Y = "/memories/x.md", "/memories/notes/y.xml"
COMMANDS: list[dict[str, Any]] = [
    {"command": "view", "path": "/memories"},
    {"command": "create", "path": X, "file_text": "one\ntwo\nthree\nfour\ntwo\n"},
    {"command": "create", "path": X, "file_text": "again"},
    {"command": "create", "path": Y, "file_text": "x" * 1536},
    {"command": "create", "path": "/memories/a/b/c/d.txt", "file_text": ""},
    {"command": "view", "path": "/memories"},
    {"command": "view", "path": "/memories/a"},
    {"command": "view", "path": X},
    {"command": "view", "path": X, "view_range": [2, 3]},
    {"command": "view", "path": X, "view_range": [4, -1]},
    {"command": "view", "path": X, "view_range": [7, 9]},
    {"command": "view", "path": "/memories/no"},
    {"command": "view", "path": "/etc/passwd"},
    {"command": "view", "path": "/memories/../../etc"},
    {"command": "str_replace", "path": X, "old_str": "three", "new_str": "3\n3"},
    {"command": "str_replace", "path": X, "old_str": "one", "new_str": "1"},
    {"command": "str_replace", "path": X, "old_str": "two", "new_str": "2"},
    {"command": "str_replace", "path": X, "old_str": "no", "new_str": "2"},
    {"command": "str_replace", "path": "/memories/no", "old_str": "no", "new_str": "2"},
    {"command": "str_replace", "path": "/memories/a", "old_str": "no", "new_str": "2"},
    {"command": "insert", "path": X, "insert_line": 0, "insert_text": "top\n"},
    {"command": "insert", "path": X, "insert_line": 7, "insert_text": "end"},
    {"command": "insert", "path": X, "insert_line": 99, "insert_text": "no"},
    {"command": "insert", "path": X, "insert_line": -1, "insert_text": "no"},
    {"command": "insert", "path": "/memories/a/b/c/d.txt", "insert_line": 0, "insert_text": "first"},
    {"command": "insert", "path": "/memories/no", "insert_line": 0, "insert_text": "no"},
    {"command": "view", "path": X},
    {"command": "rename", "old_path": Y, "new_path": "/memories/z/y.xml"},
    {"command": "rename", "old_path": "/memories/no", "new_path": "/memories/z/no"},
    {"command": "rename", "old_path": X, "new_path": "/memories/z/y.xml"},
    {"command": "rename", "old_path": "/memories", "new_path": "/memories/z/w"},
    {"command": "delete", "path": "/memories/z"},
    {"command": "delete", "path": "/memories/no"},
    {"command": "delete", "path": "/memories"},
    {"command": "view", "path": "/memories"},
]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory.open(project="agents", folder=tmp_path, data_dir=tmp_path / "data", embedding_model="none") as opened:
        yield opened


def run(tool: Any, command: dict[str, Any]) -> tuple[bool, str]:
    try:
        return False, _drop_folder_sizes(tool.call(command))
    except ToolError as error:
        return True, str(error)


async def run_async(tool: Any, command: dict[str, Any]) -> tuple[bool, str]:
    try:
        return False, _drop_folder_sizes(await tool.call(command))
    except ToolError as error:
        return True, str(error)


def _drop_folder_sizes(text: str) -> str:
    """The SDK reports what the disk says of a folder, which differs between disks."""
    return re.sub(r"^\S+\t(?=/memories\S*/$|/memories(/a)?$)", "", text, flags=re.MULTILINE)


def test_each_command_answers_like_the_tool_of_the_sdk(memory: Memory, tmp_path: Path) -> None:
    theirs, ours = BetaLocalFilesystemMemoryTool(str(tmp_path / "theirs")), EverkeptMemoryTool(memory)
    assert ours.to_dict() == theirs.to_dict()
    for command in COMMANDS:
        assert run(ours, command) == run(theirs, command), command
    written = [
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (tmp_path / "memory-bank" / "memories", tmp_path / "theirs" / "memories")
    ]
    assert written[0] == written[1] != {}
    assert ours.clear_all_memory() == theirs.clear_all_memory()


async def test_the_asynchronous_tool_answers_the_same(tmp_path: Path) -> None:
    theirs = BetaLocalFilesystemMemoryTool(str(tmp_path / "theirs"))
    async with AsyncMemory.open(project="agents", folder=tmp_path, data_dir=tmp_path / "data") as memory:
        ours = AsyncEverkeptMemoryTool(memory)
        for command in COMMANDS:
            assert await run_async(ours, command) == run(theirs, command), command
        assert await ours.clear_all_memory() == "All memory cleared"


def test_an_error_reaches_the_model_as_one(memory: Memory) -> None:
    replies = ("memory", {"command": "view", "path": "/memories/no"}), QUOTE
    with serve_replies(*replies) as model, Anthropic(api_key="none", base_url=model.url) as client:
        client.beta.messages.tool_runner(
            model="stand-in",
            max_tokens=9,
            messages=[{"role": "user", "content": "hello"}],
            tools=[EverkeptMemoryTool(memory)],
        ).until_done()
    [result] = model.requests[1]["messages"][-1]["content"]
    assert result["is_error"] is True
    assert "The path /memories/no does not exist" in str(result["content"])


async def test_an_asynchronous_client_runs_the_tool(tmp_path: Path) -> None:
    replies = ("memory", {"command": "create", "path": X, "file_text": "Fridays"}), "Noted."
    async with AsyncMemory.open(project="agents", folder=tmp_path, data_dir=tmp_path / "data") as memory:
        with serve_replies(*replies) as model:
            async with AsyncAnthropic(api_key="none", base_url=model.url) as client:
                await client.beta.messages.tool_runner(
                    model="stand-in",
                    max_tokens=9,
                    messages=[{"role": "user", "content": "hello"}],
                    tools=[AsyncEverkeptMemoryTool(memory)],
                ).until_done()
    assert model.requests[0]["tools"] == [{"type": "memory_20250818", "name": "memory"}]
    assert (tmp_path / "memory-bank" / "memories" / "x.md").read_text(encoding="utf-8") == "Fridays"


def test_the_example_reads_its_notes_in_a_later_run(run_example: Any, tmp_path: Path) -> None:
    create = {"command": "create", "path": X, "file_text": "Deploys happen on Fridays\n"}
    printed, _ = run_example("anthropic_memory_tool.py", "Remember it", replies=[("memory", create), "Noted."])
    assert printed == "Noted.\n"
    notes = tmp_path / "memory-bank" / "memories" / "x.md"
    assert notes.read_text(encoding="utf-8") == "Deploys happen on Fridays\n"
    view = {"command": "view", "path": X}
    printed, _ = run_example("anthropic_memory_tool.py", "When do we deploy?", replies=[("memory", view), QUOTE])
    assert "Deploys happen on Fridays" in printed


def test_the_example_of_the_page_runs(run_page: Any) -> None:
    view = {"command": "view", "path": "/memories"}
    printed, _ = run_page("Anthropic's memory tool", replies=[("memory", view), QUOTE])
    assert "up to 2 levels deep in /memories" in printed
