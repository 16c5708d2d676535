import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

Run = Callable[..., Any]
JSON = dict[str, Any]

SEARCH: JSON = {
    "name": "memory__search",
    "description": "Search past conversation history.",
    "inputSchema": {
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "number"}},
        "required": ["query"],
    },
    "upstream": {"tool": "search", "paramMapping": {"query": "text", "limit": "limit"}},
}


def named(name: str, **upstream: Any) -> JSON:
    return {**SEARCH, "name": name, "upstream": {**SEARCH["upstream"], **upstream}}


def test_what_is_as_the_file_says_is_said_too(everkept: Run, write: Run, actor: Run, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    servers = {"notes": actor("--starts", starts), "web": actor("--starts", starts)}
    add = named("memory__more", server="web")
    path = write({"upstreams": servers, "tools": [named("memory__search", server="notes"), add]})
    outcome = everkept("gateway", "check")
    assert outcome.status == 0, outcome
    assert f"{path}: 2 tools in front of 2 servers." in outcome.out
    assert "notes: 1 tool, all found." in outcome.out
    assert "web: 1 tool, all found." in outcome.out
    started = [int(line) for line in starts.read_text(encoding="utf-8").split()]
    assert len(started) == 2
    assert not any(psutil.pid_exists(pid) for pid in started)


def test_drift_is_told_with_its_line(everkept: Run, write: Run, actor: Run, tools_file: Path) -> None:
    path = write({"upstream": actor(), "tools": [SEARCH]})
    listed = json.loads(tools_file.read_text(encoding="utf-8"))
    listed[0]["inputSchema"]["properties"] = {"q": {"type": "string"}}
    listed[0]["inputSchema"]["required"] = ["q"]
    tools_file.write_text(json.dumps(listed), encoding="utf-8")
    outcome = everkept("gateway", "check")
    assert outcome.status == 1
    assert "upstream: 1 tool, 1 failing." in outcome.out
    told = next(line for line in outcome.out.splitlines() if "error" in line)
    assert "memory__search" in told
    found = everkept("gateway", "check", "--json")
    assert found.status == 1
    assert found.json["ok"] is False
    drift = found.json["upstreams"][0]["drift"]
    error = next(each for each in drift if each["level"] == "error")
    assert f"line {error['line']}, " in told
    assert '"query": "text"' in path.read_text(encoding="utf-8").splitlines()[error["line"] - 1]


def test_new_tools_of_a_server_are_no_error(everkept: Run, write: Run, actor: Run) -> None:
    write({"upstream": actor(), "tools": [SEARCH]})
    found = everkept("gateway", "check", "--json")
    assert found.status == 0
    assert {each["level"] for each in found.json["upstreams"][0]["drift"]} == {"note"}


def test_every_problem_of_the_file_is_told_with_its_line(everkept: Run, write: Run) -> None:
    text = '{\n "upstream": {"comand": "npx"},\n "tools": [\n  {"name": "a b"}\n ]\n}'
    path = write(text)
    outcome = everkept("gateway", "check")
    assert (outcome.status, outcome.out) == (2, "")
    assert f"{path}:2: " in outcome.err
    assert "`command`" in outcome.err
    assert f"{path}:4: " in outcome.err
    as_json = everkept("gateway", "check", "--json")
    assert as_json.status == 2
    assert [each["line"] for each in as_json.json["problems"]][:1] == [2]


def test_warnings_of_the_file_are_told_and_stop_nothing(everkept: Run, write: Run, actor: Run) -> None:
    tool = named("memory__search", paramMapping={"query": "text", "lmit": "limit"})
    write({"upstream": actor(), "tools": [tool]})
    outcome = everkept("gateway", "check")
    assert outcome.status == 0
    assert "lmit" in outcome.out
    assert [each["line"] > 1 for each in everkept("gateway", "check", "--json").json["warnings"]]


def test_a_passed_through_name_of_ours_takes_only_its_own_tool_away(everkept: Run, write: Run, actor: Run) -> None:
    server = {**actor(), "passThrough": {"rename": {"add": "store_memory"}}}
    write({"upstream": server, "tools": [SEARCH]})
    outcome = everkept("gateway", "check", "--json")
    assert (outcome.status, outcome.json["served"]) == (1, True)


def test_a_parameter_that_no_call_can_have_is_an_error(everkept: Run, write: Run, actor: Run) -> None:
    tool = named("memory__search", paramMapping={"qery": "text", "limit": "limit"})
    write({"upstream": actor(), "tools": [tool]})
    outcome = everkept("gateway", "check")
    assert outcome.status == 1
    told = next(line for line in outcome.out.splitlines() if '"qery"' in line)
    assert "error: " in told
    assert "Did you mean `query`?" in told
    levels = [each["level"] for each in everkept("gateway", "check", "--json").json["warnings"]]
    assert levels == ["error"]


def test_a_strict_check_ends_with_one_where_there_is_a_warning(everkept: Run, write: Run, actor: Run) -> None:
    write({"upstream": actor(), "tools": [SEARCH]})
    assert everkept("gateway", "check", "--strict").status == 0
    write({"upstream": actor(), "tools": [named("memory__search", paramMapping={"query": "text"})]})
    loose, strict = everkept("gateway", "check"), everkept("gateway", "check", "--strict")
    assert (loose.status, strict.status) == (0, 1)
    assert '"limit" is never sent' in strict.out
    assert everkept("gateway", "check", "--strict", "--json").json["ok"] is False


def test_two_tools_with_one_command_are_told(everkept: Run, write: Run, actor: Run) -> None:
    write({"upstream": actor(), "tools": [SEARCH, named("memory_search")]})
    outcome = everkept("gateway", "check")
    assert outcome.status == 0
    assert "`everkept memory-search` is the command of memory__search already" in outcome.out


def test_whoever_waits_long_is_told_for_what(
    everkept: Run, write: Run, actor: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write({"upstream": actor(), "tools": [SEARCH]})
    assert everkept("gateway", "check").err == ""
    monkeypatch.setattr("everkept.cli.gateway_call.SLOW_SECONDS", 0)
    assert everkept("gateway", "check").err == "Waiting for the servers …\n"


@pytest.mark.parametrize("arguments", [["--ends", "3"], ["--says", "No token.", "--ends", "1"]])
def test_a_server_that_cannot_be_reached_hides_no_other(
    everkept: Run, write: Run, actor: Run, arguments: list[str]
) -> None:
    servers = {"notes": actor(), "web": actor(*arguments)}
    write({"upstreams": servers, "tools": [named("memory__search", server="notes")]})
    outcome = everkept("gateway", "check")
    assert outcome.status == 1
    assert "notes: 1 tool, all found." in outcome.out
    assert any(line.startswith("web ") for line in outcome.out.splitlines())
    upstreams = everkept("gateway", "check", "--json").json["upstreams"]
    assert [(each["name"], each["reached"]) for each in upstreams] == [("notes", True), ("web", False)]
    assert upstreams[1]["error"]["error"] == "upstream_unavailable"


def test_a_program_that_is_not_there_is_named(everkept: Run, write: Run) -> None:
    write({"upstream": {"command": "no-such-program-at-all"}, "tools": [SEARCH]})
    outcome = everkept("gateway", "check")
    assert (outcome.status, outcome.err) == (1, "")
    assert "no-such-program-at-all" in outcome.out


def test_names_of_our_own_tools_are_clashes_where_both_are_served(
    everkept: Run, write: Run, actor: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = {**actor(), "passThrough": {"rename": {"add": "store_memory"}}}
    write({"upstream": server, "tools": [named("search_nodes")]})
    told = everkept("gateway", "check")
    assert told.status == 2
    assert "The file is not served with these toolsets" in told.out
    outcome = everkept("gateway", "check", "--json")
    assert (outcome.status, outcome.json["served"]) == (2, False)
    clashes = outcome.json["clashes"]
    assert {each["tool"]: each["level"] for each in clashes} == {"search_nodes": "error", "store_memory": "error"}
    monkeypatch.setenv("EVERKEPT_TOOLSETS", "gateway")
    alone = everkept("gateway", "check")
    assert alone.status == 0
    assert "search_nodes: note: " in alone.out


def test_two_servers_that_pass_one_name_through_are_told(everkept: Run, write: Run, actor: Run) -> None:
    server = {**actor(), "passThrough": True}
    write({"upstreams": {"notes": server, "web": {**server, "passThrough": {"only": ["add"]}}}})
    outcome = everkept("gateway", "check")
    assert outcome.status == 1
    assert "notes: 2 passed through." in outcome.out
    assert "add: error: notes and web both have a tool `add`." in outcome.out


HOSTILE = "a\x1b[2J\x9b1m\nupstream: 1 tool, all found."


def test_nothing_that_a_server_says_steers_the_terminal_or_looks_like_our_line(
    everkept: Run, write: Run, actor: Run, tools_file: Path
) -> None:
    schema = {"type": "object", "properties": {HOSTILE: {}}, "required": [HOSTILE]}
    listed = [{"name": "search", "inputSchema": schema}, {"name": HOSTILE, "inputSchema": {}}]
    tools_file.write_text(json.dumps(listed), encoding="utf-8")
    server = {**actor(), "passThrough": True}
    tool = named("memory__search", server="notes")
    write({"upstreams": {"notes": server, "web": server}, "tools": [tool]})
    outcome = everkept("gateway", "check")
    assert outcome.status == 1
    assert not {"\x1b", "\x9b"} & set(outcome.out)
    assert "upstream: 1 tool, all found." not in outcome.out.splitlines()
    assert f"both have a tool `{HOSTILE[0]}\ufffd[2J" in outcome.out
    described = everkept("gateway", "check", "--json")
    assert not {"\x1b", "\x9b"} & set(described.out)
    assert described.json["clashes"][0]["tool"] == HOSTILE


def test_without_a_file_it_says_how_to_begin(everkept: Run, tmp_path: Path) -> None:
    outcome = everkept("gateway", "check")
    assert outcome.status == 2
    assert "everkept gateway init" in outcome.err
    missing = everkept("gateway", "check", "--gateway-config", str(tmp_path / "none.json"))
    assert missing.status == 2
    assert "none.json" in missing.err


def test_the_check_stores_nothing(everkept: Run, write: Run, actor: Run, tmp_path: Path) -> None:
    write({"upstream": actor(), "tools": [SEARCH]})
    assert everkept("gateway", "check").status == 0
    assert not (tmp_path / "data").exists()
