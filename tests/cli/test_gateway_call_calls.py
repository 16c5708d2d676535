import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
JSON = dict[str, Any]

ANYTHING: JSON = {"type": "object", "additionalProperties": True}
TOOLS = json.dumps([{"name": "echo", "description": "Says it again.", "inputSchema": ANYTHING}])


@pytest.fixture
def gateway(write: Run, actor: Run) -> Path:
    """Every tool of the server, passed through, and one with an entry."""
    search: JSON = {
        "name": "memory__search",
        "description": "Search.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "limit": {"type": "integer"},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["query"],
        },
        "annotations": {"readOnlyHint": True},
        "upstream": {
            "tool": "echo",
            "paramMapping": {"query": "search.text", "limit": "limit", "tags": "tags"},
            "constants": {"mode": "both"},
        },
    }
    server = {**actor(tools=None), "passThrough": {"prefix": "notes_"}}
    return write({"upstream": server, "tools": [search]})


def test_a_call_goes_the_way_that_a_server_goes(everkept: Run, gateway: Path) -> None:
    outcome = everkept(*("gateway", "call", "memory__search"), *("query=tea", "limit=5", "tags=green", "tags=black"))
    assert outcome.status == 0, outcome.err
    assert outcome.json == {"mode": "both", "search": {"text": "tea"}, "limit": 5, "tags": ["green", "black"]}


def test_json_is_the_answer_as_it_came(everkept: Run, gateway: Path) -> None:
    answer = everkept("gateway", "call", "notes_odd", "--json").json
    assert answer["unknown"] == {"kept": None}
    assert answer["content"][0]["type"] == "hologram"


def test_all_arguments_may_come_on_standard_input(everkept: Run, gateway: Path) -> None:
    words = json.dumps({"query": "tea", "limit": 1})
    sent = everkept("gateway", "call", "memory__search", "-", "limit=2", stdin=words)
    assert sent.json == {"mode": "both", "search": {"text": "tea"}, "limit": 2}


def test_tools_that_are_passed_through_can_be_called(everkept: Run, gateway: Path) -> None:
    assert everkept("gateway", "call", "notes_big", "bytes=3").out == "xxx\n"
    overlooked = everkept("gateway", "call", "notes_echo")
    assert overlooked.status == 2  # it has an entry


def test_an_answer_that_is_an_error_ends_with_status_one(everkept: Run, gateway: Path) -> None:
    outcome = everkept("gateway", "call", "notes_fails", "text=No such note")
    assert (outcome.status, outcome.out) == (1, "")
    assert "No such note" in outcome.err
    as_json = everkept("gateway", "call", "notes_fails", "--json")
    assert as_json.status == 1
    assert as_json.json["isError"] is True


@pytest.mark.parametrize("tool", ["notes_error", "notes_crash"])
def test_a_server_that_fails_ends_with_status_one(everkept: Run, gateway: Path, tool: str) -> None:
    outcome = everkept("gateway", "call", tool)
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith("everkept: ")
    assert "Traceback" not in outcome.err


def test_a_server_that_never_said_what_it_has_is_the_failure(everkept: Run, write: Run, actor: Run) -> None:
    gone = {**actor("--ends", "3", tools=None), "passThrough": {"prefix": "notes_"}}
    write({"upstreams": {"notes": gone, "web": {**actor(tools=None), "passThrough": True}}})
    outcome = everkept("gateway", "call", "notes_echo")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith("everkept: notes ")
    assert outcome.err.count("notes ") == 1
    assert everkept("gateway", "call", "echo", "text=tea").status == 0
    assert everkept("gateway", "call", "no_such_tool").status == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["memory__serch", "query=x"], "Did you mean `memory__search`?"),
        (["memory__search", "qery=x"], "Did you mean `query`?"),
        (["memory__search", "query=x", "limit=many"], "`limit` must be a whole number"),
        (["memory__search"], "query"),
        (["memory__search", "{broken"], "not a JSON object"),
    ],
)
def test_a_mistake_of_the_caller_ends_with_status_two(
    everkept: Run, gateway: Path, words: list[str], told: str
) -> None:
    outcome = everkept("gateway", "call", *words)
    assert (outcome.status, outcome.out) == (2, "")
    assert told in outcome.err


def test_only_tools_that_read_are_called_where_only_reading_is_allowed(
    everkept: Run, gateway: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = json.loads(gateway.read_text(encoding="utf-8"))
    writer: JSON = {**config["tools"][0], "name": "memory__write", "annotations": {}}
    gateway.write_text(json.dumps({**config, "tools": [*config["tools"], writer]}), "utf-8")
    monkeypatch.setenv("EVERKEPT_READ_ONLY", "1")
    assert everkept("gateway", "call", "memory__search", "query=tea").status == 0
    refused = everkept("gateway", "call", "memory__write", "query=tea")
    assert refused.status == 2
    assert "read-only" in refused.err


@pytest.mark.parametrize("is_trusted", [True, False])
def test_tools_that_are_passed_through_only_read_where_the_file_trusts_their_server(
    everkept: Run, write: Run, actor: Run, tools_file: Path, monkeypatch: pytest.MonkeyPatch, is_trusted: bool
) -> None:
    listed = [{**tool, "annotations": {"readOnlyHint": True}} for tool in json.loads(TOOLS)]
    tools_file.write_text(json.dumps(listed), encoding="utf-8")
    through = {"trustReadOnlyHint": is_trusted}
    write({"upstream": {**actor(), "passThrough": through}})
    monkeypatch.setenv("EVERKEPT_READ_ONLY", "1")
    outcome = everkept("gateway", "call", "echo")
    assert outcome.status == (0 if is_trusted else 2), outcome.err
    assert is_trusted or "read-only" in outcome.err


def test_without_a_file_there_is_nothing_to_call(everkept: Run) -> None:
    outcome = everkept("gateway", "call", "memory__search")
    assert outcome.status == 2
    assert "everkept gateway init" in outcome.err


def test_a_file_with_a_mistake_is_told_once(everkept: Run, write: Run) -> None:
    path = write('{\n "upstream": {"command": 7}\n}')
    outcome = everkept("gateway", "call", "memory__search")
    assert outcome.status == 2
    assert outcome.err.count(f"{path}, line 2") == 1


def test_another_file_can_be_named(everkept: Run, gateway: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(gateway.read_text(encoding="utf-8"), encoding="utf-8")
    gateway.unlink()
    named = ["--gateway-config", str(other)]
    assert everkept("gateway", "call", *named, "memory__search", "query=x").status == 0


def test_what_a_server_says_does_not_steer_the_terminal(
    everkept: Run, gateway: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["gateway", "call", "notes_fails", "text=\x1b[31mred\n"]
    assert "\x1b" in everkept(*words).err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    shown = everkept(*words).err
    assert "\ufffd[31mred\n" in shown


def test_progress_is_shown_to_who_looks(everkept: Run, gateway: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    off_folders = everkept("gateway", "call", "notes_progress", "steps=3")
    assert off_folders.err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    watched = everkept("gateway", "call", "notes_progress", "steps=3")
    assert "step 3" in watched.err
    assert watched.json == off_folders.json == {"steps": 3}


def test_a_hint_that_names_what_a_server_has_does_not_steer_the_terminal(
    everkept: Run, write: Run, actor: Run, tools_file: Path
) -> None:
    schema = {"type": "object", "properties": {"quer\x1b[2Jy": {"type": "string"}}}
    listed = [{"name": "search", "description": "", "inputSchema": schema}]
    tools_file.write_text(json.dumps(listed), encoding="utf-8")
    write({"upstream": {**actor(), "passThrough": True}})
    outcome = everkept("gateway", "call", "search", "query=x")
    assert outcome.status == 2
    assert "quer\ufffd[2Jy" in outcome.err
    assert "\x1b" not in outcome.err
