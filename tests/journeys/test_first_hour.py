"""The first hour on the command line of a new machine, through real processes."""

import json
from pathlib import Path
from typing import Any

import pytest

from home_machines import HomeMachine
from hook_processes import Hooks
from hook_workers import wait_for_workers

RULE = "From now on, never use tabs in the configuration files."
GRAPH = [
    {"type": "entity", "name": "Shop API", "entityType": "service", "observations": ["Owned by Ada"]},
    {"type": "entity", "name": "Orders DB", "entityType": "database", "observations": []},
    {"type": "relation", "from": "Shop API", "to": "Orders DB", "relationType": "reads from"},
]


@pytest.fixture
def machine(tmp_path: Path) -> HomeMachine:
    return HomeMachine(tmp_path / "home")


def write_lines(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def read_memories(machine: HomeMachine, *options: str) -> list[dict[str, Any]]:
    return machine.read(machine.blog, "list", *options)["memories"]


def test_a_memory_is_found_edited_and_undone_as_typed(machine: HomeMachine) -> None:
    (machine.home / ".gitconfig").write_text("[user]\n\tname = Mira Novak\n", encoding="utf-8")
    machine.run(machine.blog, "remember", "Deploys happen on **Fridays**.")
    [stored] = read_memories(machine)
    assert stored["author"] == "Mira Novak"
    shown = machine.run(machine.blog, "list").stdout
    assert "Deploys happen on Fridays." in shown
    short = shown.split()[-1]
    assert len(short) == 8
    for typed in (short, short[:6]):
        machine.run(machine.blog, "edit", typed, f"Deploys happen on Mondays, says {typed}.")
    assert "says" in machine.run(machine.blog, "find", "deploys", "Mondays").stdout
    assert "Search memories" in machine.run(machine.blog, "help", "recall").stdout
    machine.run(machine.blog, "pin", short)
    assert "Unpinned: Deploys happen on Mondays" in machine.run(machine.blog, "undo").stdout
    machine.run(machine.blog, "undo")
    machine.run(machine.blog, "undo")
    assert [each["content"] for each in read_memories(machine)] == ["Deploys happen on **Fridays**."]


def test_the_graph_of_another_server_is_imported_counted_and_explored(machine: HomeMachine) -> None:
    done = machine.run(machine.blog, "import", "server-memory", str(write_lines(machine.home / "memory.jsonl", GRAPH)))
    assert "Added 2 entities, 1 observation and 1 relation" in done.stdout
    assert "Orders DB" in machine.run(machine.plain, "search-knowledge-graph", "Shop API").stdout
    machine.run(machine.plain, "delete-entities", "Shop API")
    undone = machine.run(machine.plain, "undo").stdout
    assert 'Restored entity Shop API, observation "Owned by Ada" and relation Shop API reads' in undone
    refused = machine.run_any(machine.blog, "import", "server-memory", str(write_lines(machine.home / "x", [{"a": 1}])))
    assert (refused.returncode, "is not a file of the official memory server" in refused.stderr) == (2, True)


def test_a_rule_that_was_said_is_offered_and_kept_only_on_request(machine: HomeMachine) -> None:
    session = "11111111-2222-4333-8444-555555555555"
    said = {"sessionId": session, "cwd": str(machine.blog), "type": "user", "timestamp": "2026-03-01T10:00:00.000Z"}
    line = {**said, "uuid": f"{session}-0", "message": {"role": "user", "content": f"{RULE} Thanks."}}
    write_lines(machine.home / ".claude" / "projects" / "blog" / f"{session}.jsonl", [line])
    machine.run(machine.blog, "import", "history")
    [item] = machine.read(machine.blog, "review")["items"]
    assert (item["kind"], item["text"], read_memories(machine)) == ("rule", RULE, [])
    machine.run(machine.blog, "review", "--keep", item["id"])
    assert [each["content"] for each in read_memories(machine)] == [RULE]
    assert machine.read(machine.blog, "review")["items"] == []


def test_a_command_that_failed_and_then_worked_is_one_memory(machine: HomeMachine) -> None:
    machine.run(machine.blog, "remember", "The blog has two authors.")
    hooks = Hooks(machine.data, machine.blog)
    used = {"tool_name": "Bash", "tool_input": {"command": "make test"}}
    hooks.call("PostToolUseFailure", hooks.told(**used, error="Exit code 2\nno rule to make target"))
    changed = {"file_path": str(machine.blog / "Makefile"), "old_string": "a", "new_string": "b"}
    hooks.call("PostToolUse", hooks.told(tool_name="Edit", tool_input=changed, tool_response={}))
    hooks.call("PostToolUse", hooks.told(**used, tool_response={"stdout": "ok", "stderr": ""}))
    hooks.call("SessionEnd", hooks.told(reason="other"))
    wait_for_workers(machine.data)
    about = [each["content"] for each in read_memories(machine, "--automatic") if "make test" in each["content"]]
    assert about == [
        "`make test` failed and then succeeded, after edits of Makefile. It had failed with:\nno rule to make target"
    ]
    assert hooks.faults == []
