"""Projects that are deleted by an assistant and come back: servers, commands and crashes."""

import json
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from server_processes import INITIALIZE, StdioServer, run, stdio_server

ADA = [{"name": "Ada", "entity_type": "person", "observations": ["likes maths"]}]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def servers(data: Path) -> Generator[tuple[StdioServer, StdioServer]]:
    """Two assistants with a server each, the first with a project."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(stdio_server(data)) for _ in range(2))
        for server in (first, second):
            server.ask(0, "initialize", **INITIALIZE)
        first.call("create_project", name="shop", description="All of it")
        first.call("create_entities", entities=ADA)
        first.call("store_memory", content="Port 8443", project="shop")
        yield first, second


def command(data: Path, *arguments: str) -> Any:
    done = run(*arguments, "--json", "--data-dir", data)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def holds_everything(server: StdioServer, project: str = "shop") -> bool:
    [entity] = server.call("open_nodes", names=["Ada"], project=project)["entities"]
    memories = server.call("recall_memories", query="port", project=project)["memories"]
    return len(entity["observations"]) == 1 and memories[0]["content"] == "Port 8443"


def error(server: StdioServer, tool: str, **arguments: Any) -> str:
    return server.call(tool, **arguments)["error"]


def test_what_an_assistant_deletes_undo_and_restore_project_bring_back_whole(
    servers: tuple[StdioServer, StdioServer], data: Path
) -> None:
    first, second = servers
    assert holds_everything(second)
    answer = first.call("delete_project", name="shop")
    assert answer["until"][:10] in answer["message"]
    assert "everkept purge project" in answer["message"]
    # The other server had it open.
    assert error(second, "create_entities", entities=ADA, project="shop") == "not_found"
    assert [each["name"] for each in second.call("list_projects")["trash"]] == ["shop"]
    assert command(data, "undo")["undone"]["effect"] == 'Restored project "shop" from the trash'
    assert holds_everything(first)
    assert holds_everything(second)
    first.call("delete_project", name="shop")
    assert second.call("restore_project", name="shop")["description"] == "All of it"
    assert holds_everything(first)
    log = command(data, "log", "--project", "shop")["changes"]
    told = [change["tool"] for change in log if ":p" in change["change"]]
    assert told == ["restore_project", "delete_project", "undo", "delete_project", "create_project"]
    assert {change["client"] for change in log if change["tool"] == "delete_project"} == {"test 1"}


def test_an_assistant_cannot_remove_what_is_in_the_trash(servers: tuple[StdioServer, StdioServer]) -> None:
    first, second = servers
    first.call("delete_project", name="shop")
    [trashed] = second.call("list_projects")["trash"]
    tools = [tool["name"] for tool in first.ask(2, "tools/list")["result"]["tools"]]
    assert not [name for name in tools if "purge" in name]
    for name in ("shop", trashed["id"], f"@trash {trashed['id']}"):
        assert error(first, "delete_project", name=name) == "not_found"
    assert error(first, "create_project", name=f"@trash {trashed['id']}") == "invalid_input"
    first.call("create_project", name="shop")
    first.call("delete_project", name="shop")
    assert len(second.call("list_projects")["trash"]) == 2
    second.call("restore_project", name=trashed["id"])
    assert holds_everything(second)


def test_a_server_that_is_killed_while_it_deletes_loses_nothing(data: Path) -> None:
    with stdio_server(data) as server:
        server.ask(0, "initialize", **INITIALIZE)
        server.call("create_project", name="shop")
        server.call("create_entities", entities=ADA)
        server.call("store_memory", content="Port 8443", project="shop")
    for _ in range(4):
        with stdio_server(data) as server:
            server.ask(0, "initialize", **INITIALIZE)
            server.request(1, "tools/call", name="delete_project", arguments={"name": "shop"})
            server.process.kill()
        listed = command(data, "list-projects")
        assert len(listed["projects"]) + len(listed.get("trash", [])) == 1
        if listed.get("trash"):
            command(data, "restore-project", "shop")
        with stdio_server(data) as server:
            server.ask(0, "initialize", **INITIALIZE)
            assert holds_everything(server)


def test_two_servers_that_delete_and_restore_together_leave_it_whole(
    servers: tuple[StdioServer, StdioServer], data: Path
) -> None:
    for tool in ("delete_project", "restore_project", "delete_project", "restore_project"):
        for server in servers:
            server.request(1, "tools/call", name=tool, arguments={"name": "shop"})
        answers = [server.receive()["result"] for server in servers]
        assert not all(answer.get("isError") for answer in answers)
        assert all("internal" not in json.dumps(answer) for answer in answers)
    assert [each["name"] for each in servers[0].call("list_projects")["projects"]] == ["shop"]
    assert holds_everything(servers[1])


def test_the_trash_is_in_a_backup_and_not_in_an_export(
    servers: tuple[StdioServer, StdioServer], data: Path, tmp_path: Path
) -> None:
    servers[0].call("delete_project", name="shop")
    command(data, "backup", str(tmp_path / "copy.zip"))
    command(data, "export", str(tmp_path / "export"))
    assert "8443" not in "".join(f.read_text("utf-8") for f in (tmp_path / "export").rglob("*") if f.is_file())
    elsewhere = tmp_path / "elsewhere"
    command(elsewhere, "restore", str(tmp_path / "copy.zip"))
    assert [each["name"] for each in command(elsewhere, "status")["trash"]] == ["shop"]
    command(elsewhere, "undo")
    with stdio_server(elsewhere) as server:
        server.ask(0, "initialize", **INITIALIZE)
        assert holds_everything(server)
