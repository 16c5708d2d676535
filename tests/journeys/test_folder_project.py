"""One project for one folder: commands, server, hooks and library agree, through real processes."""

import json
import subprocess
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from everkept import Memory
from home_machines import HomeMachine, find_active
from hook_processes import Hooks
from server_processes import HANG, INITIALIZE, StdioServer, command, environment

EDITOR = {**INITIALIZE, "capabilities": {"roots": {"listChanged": True}}}
HERE = "This folder now uses project shop (the assistant's server and hooks too)."


@pytest.fixture
def machine(tmp_path: Path) -> HomeMachine:
    return HomeMachine(tmp_path / "home", EVERKEPT_EMBEDDING_MODEL="none")  # which no project depends on


def answer_roots(server: StdioServer, *folders: Path) -> None:
    """Answer the question for the folders, as an editor does."""
    question = server.receive()
    assert question["method"] == "roots/list"
    roots = [{"uri": folder.as_uri(), "name": folder.name} for folder in folders]
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": roots}})


def store(server: StdioServer, content: str, **more: Any) -> None:
    server.call("store_memory", content=content, type="semantic", scope="project", **more)


def list_texts(machine: HomeMachine, folder: Path) -> list[str]:
    return sorted(memory["content"] for memory in machine.read(folder, "list")["memories"])


def ask_console(machine: HomeMachine, folder: Path, tool: str, **arguments: Any) -> Any:
    """Call a tool of a console that is started in the folder, as its page does."""
    console = subprocess.Popen(
        command("console", "--no-open", "--port", 0),
        cwd=folder,
        encoding="utf-8",
        env=environment() | machine.variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    try:
        assert console.stdout is not None
        address = urlsplit(console.stdout.readline().strip())
        connection = HTTPConnection(address.netloc, timeout=HANG)
        headers = {"Accept": "*/*", "Content-Type": "application/json", "Origin": f"http://{address.netloc}"}

        def post(path: str, body: dict[str, Any]) -> Any:
            connection.request("POST", f"/console/api/{path}", json.dumps(body), headers)
            return json.load(connection.getresponse())

        headers["Authorization"] = (
            f"Bearer {post('session', {'code': address.fragment.removeprefix('code=')})['token']}"
        )
        answer = post("call", {"name": tool, "arguments": arguments})["result"]
        connection.close()
    finally:
        console.terminate()
        console.communicate(timeout=HANG)
    return answer


def test_a_chosen_project_is_that_of_commands_server_hooks_and_library(machine: HomeMachine) -> None:
    machine.run(machine.blog, "remember", "The blog has two authors.")
    assert HERE in machine.run(machine.blog, "create-project", "shop").stdout
    machine.run(machine.blog / "src", "remember", "Logins are limited to five tries.", "--importance", "0.9")
    assert machine.find_used(machine.blog)[0] == "shop"
    assert "chose it for this folder" in machine.find_used(machine.blog)[1]
    assert machine.find_served(machine.blog / "src") == "shop"
    context = Hooks(machine.data, machine.blog).call("SessionStart").context
    assert "five tries" in context
    assert "two authors" not in context
    with Memory.open(folder=machine.blog, data_dir=str(machine.data)) as memory:
        found = memory.recall("tries of logins, authors of the blog")
    assert [each.text for each in found] == ["Logins are limited to five tries."]
    machine.run(machine.blog, "switch-project", "auto")
    assert (machine.find_used(machine.blog)[0], machine.find_served(machine.blog)) == ("blog", "blog")
    assert list_texts(machine, machine.blog) == ["The blog has two authors."]


def test_the_console_uses_the_project_of_its_folder(machine: HomeMachine) -> None:
    assert ask_console(machine, machine.blog, "read_console_state")["folder_project"] is None  # not created yet
    ask_console(machine, machine.blog, "store_memory", content="The blog has two authors.")
    machine.run(machine.blog, "create-project", "shop")
    assert ask_console(machine, machine.blog / "src", "read_console_state")["folder_project"] == "shop"
    machine.run(machine.blog, "switch-project", "auto")
    assert list_texts(machine, machine.blog) == ["The blog has two authors."]


def test_a_choice_counts_in_its_folder_only_and_a_tool_call_for_its_session_only(machine: HomeMachine) -> None:
    machine.run(machine.blog, "create-project", "shop")
    assert machine.find_used(machine.api)[0] == "api"
    with machine.serve(machine.api, "--project", "auto") as server:
        server.call("switch_project", name="shop")
        assert find_active(server) == "shop"
    assert "api" in machine.find_served(machine.api)


def test_a_folder_that_is_not_a_project_uses_the_default_one_and_says_so(machine: HomeMachine) -> None:
    machine.run(machine.plain, "remember", "Tea is in the kitchen.")
    project, reason = machine.find_used(machine.plain)
    assert (project, machine.find_served(machine.plain)) == ("default", "default")
    assert "pyproject.toml" in reason
    told = machine.run(machine.plain, "list")
    assert "Project: default, because this folder is not a project." in told.stderr
    assert machine.read(machine.plain, "list")["project"] == "default"
    assert "Project:" not in machine.run(machine.blog, "list").stderr
    (machine.plain / "package.json").touch()
    assert machine.find_used(machine.plain)[0] == "plain"


def test_a_project_that_vanished_is_replaced_with_a_warning_until_the_doctor_clears_it(machine: HomeMachine) -> None:
    machine.run(machine.blog, "remember", "The blog has two authors.")
    machine.run(machine.blog, "create-project", "shop")
    machine.run(machine.home, "delete-project", "shop", "--yes")
    told = machine.run(machine.blog, "list")
    assert "two authors" in told.stdout
    assert told.stderr.count('Project "shop", chosen for this folder, no longer exists.') == 1
    assert "WARNING" not in told.stderr
    shown = json.loads(Hooks(machine.data, machine.blog).call("SessionStart").out)
    assert 'Project "shop", chosen for this folder, no longer exists.' in shown["systemMessage"]
    assert machine.find_served(machine.blog) == "blog"
    assert 'The project "shop", chosen for the folder' in machine.run(machine.blog, "doctor", "--fix").stdout
    assert "no longer exists" not in machine.run(machine.blog, "list").stderr
    assert machine.find_used(machine.blog) == ("blog", "It belongs to this repository.")


def test_a_folder_whose_project_is_deleted_there_uses_its_own_again_and_says_so(machine: HomeMachine) -> None:
    machine.run(machine.blog, "create-project", "shop")
    told = machine.run(machine.blog, "delete-project", "shop", "--yes")
    assert "This folder uses its own project again" in told.stdout
    assert machine.find_used(machine.blog) == ("blog", "It belongs to this repository.")
    assert "This folder now uses project shop" in machine.run(machine.blog, "undo").stdout
    assert machine.find_served(machine.blog) == "shop"


def test_off_turns_off_what_is_used_here(machine: HomeMachine) -> None:
    machine.run(machine.blog, "remember", "The blog has two authors.")
    machine.run(machine.blog, "create-project", "shop")
    machine.run(machine.blog, "remember", "Logins are limited to five tries.", "--importance", "0.9")
    assert machine.read(machine.blog, "off")["project"] == "shop"
    assert Hooks(machine.data, machine.blog).call("SessionStart").is_silent
    machine.run(machine.blog, "on")
    assert "five tries" in Hooks(machine.data, machine.blog).call("SessionStart").context


def test_nothing_found_here_names_the_project_that_has_it(machine: HomeMachine) -> None:
    machine.run(machine.blog, "remember", "Logins are limited to five tries.")
    assert "five tries" in machine.run(machine.api, "list", "--all-projects").stdout
    told = machine.run(machine.api, "recall", "logins are limited to five tries")
    assert 'project "blog" has a close one' in told.stderr


def test_a_server_without_a_project_has_none_for_the_graph_until_one_is_chosen(machine: HomeMachine) -> None:
    with machine.serve(machine.blog) as server:
        assert find_active(server) == "No project is currently active. Use switch_project to select one."


def test_an_editor_that_starts_servers_in_the_home_folder_names_its_folders(machine: HomeMachine) -> None:
    with machine.serve(machine.home, "--project", "auto", **EDITOR) as server:
        answer_roots(server, machine.blog)
        store(server, "The blog has two authors.")
        assert find_active(server) == "blog"
        server.send({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        answer_roots(server, machine.api)
        store(server, "The API has no authors.")
        assert find_active(server) == "api"
        server.call("switch_project", name="blog")
        assert find_active(server) == "blog"
    assert list_texts(machine, machine.blog) == ["The blog has two authors."]
    assert list_texts(machine, machine.api) == ["The API has no authors."]


def test_of_several_folders_the_one_that_a_call_names_counts_otherwise_the_first(machine: HomeMachine) -> None:
    with machine.serve(machine.home, "--project", "auto", **EDITOR) as server:
        answer_roots(server, machine.blog, machine.api)
        store(server, "The blog has two authors.")
        file = str(machine.api / "src" / "app.py")
        store(server, "The API has no authors.", source={"file": file})
    assert list_texts(machine, machine.blog) == ["The blog has two authors."]
    assert list_texts(machine, machine.api) == ["The API has no authors."]


def test_a_call_waits_for_the_folders(machine: HomeMachine) -> None:
    with machine.serve(machine.home, "--project", "auto", **EDITOR) as server:
        answer_roots(server, machine.blog)
        store(server, "The blog has two authors.")
        server.send({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        question = server.receive()
        server.request(7, "tools/call", name="get_current_project", arguments={})
        for number in range(8, 28):  # all are answered, and the call is not
            server.request(number, "ping")
            assert server.receive()["id"] == number
        roots = [{"uri": machine.api.as_uri()}]
        server.send({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": roots}})
        answer = server.receive()
    assert answer["id"] == 7
    assert "api" in answer["result"]["structuredContent"]["message"]


@pytest.mark.parametrize("answer", [{"error": {"code": -32601, "message": "no"}}, {"result": {"roots": []}}])
def test_an_editor_without_folders_uses_the_working_folder(machine: HomeMachine, answer: dict[str, Any]) -> None:
    with machine.serve(machine.blog, "--project", "auto", **EDITOR) as server:
        question = server.receive()
        server.send({"jsonrpc": "2.0", "id": question["id"], **answer})
        assert "blog" in find_active(server)


def test_an_editor_without_an_open_folder_leaves_its_variable(machine: HomeMachine) -> None:
    with machine.serve(machine.blog, "--project", "auto", "--path", "${workspaceFolder}") as server:
        assert "blog" in find_active(server)


def test_a_server_with_a_named_project_does_not_ask(machine: HomeMachine) -> None:
    with machine.serve(machine.home, "--project", "shop", **EDITOR) as server:
        server.request(1, "tools/call", name="get_current_project", arguments={})
        assert "shop" in str(server.receive()["result"])


def test_saved_first_answers_do_not_swallow_the_question(machine: HomeMachine) -> None:
    for _ in range(2):  # the second start answers from what the first one saved
        with machine.serve(machine.home, "--project", "auto", **EDITOR) as server:
            answer_roots(server, machine.blog)
            server.ask(5, "tools/list")
            assert "blog" in find_active(server)
            server.close_input()


def test_undo_in_a_folder_without_a_project_leaves_other_projects_alone(machine: HomeMachine) -> None:
    machine.run(machine.blog, "remember", "The blog has two authors.")
    undone = machine.run_any(machine.api, "undo")
    assert (undone.returncode, "nothing to undo here" in undone.stderr) == (2, True)
    assert list_texts(machine, machine.blog) == ["The blog has two authors."]
