import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.mcp import CALL_SECONDS, CONNECT_SECONDS, UpstreamEndpoint, UpstreamProgram, UpstreamSettings
from everkept.families.gateway.file_reader import ParsedFile, parse_file
from everkept.families.gateway.model import GatewayConfig, PassThrough
from gateway_files import HERE, refused

FOLDER = Path("/etc/gateway").absolute()
SIMPLE = Path(__file__).with_name("simple.json").read_text(encoding="utf-8")

JSON = dict[str, Any]
SCHEMA: JSON = {"type": "object", "properties": {"query": {"type": "string"}, "limit": {}}}
BOTH = {"query": "query", "limit": "limit"}
ONE: JSON = {"paramMapping": {"query": "query"}}
SECRET = "ghp_" + "a1B2c3D4e5" * 4


def tool(**changes: Any) -> JSON:
    target = {"tool": "search", "paramMapping": BOTH} | changes.pop("upstream", {})
    whole = {"name": "find", "description": "Finds.", "inputSchema": SCHEMA, "upstream": target}
    return {key: value for key, value in (whole | changes).items() if value is not None}


def file(*tools: JSON, **changes: Any) -> JSON:
    whole = {"upstream": {"command": "notes"}, "tools": list(tools or [tool()])} | changes
    return {key: value for key, value in whole.items() if value is not None}


def reading(value: Any) -> ParsedFile:
    return parse_file(value if isinstance(value, str) else json.dumps(value, indent=1), FOLDER)


def config(value: Any) -> GatewayConfig:
    found = reading(value)
    assert found.problems == []
    assert found.config is not None
    return found.config


def problems(value: Any) -> list[str]:
    return [str(problem) for problem in reading(value).problems]


def warnings(value: Any) -> list[str]:
    found = reading(value)
    assert found.config is not None, found.problems
    return [str(warning) for warning in found.warnings]


def test_the_simplest_kind_of_file_says_everything_without_a_word_of_warning() -> None:
    found = reading(SIMPLE)
    assert (found.problems, found.warnings) == ([], [])
    assert found.config is not None
    server = found.config.upstreams["upstream"]
    launch = UpstreamProgram("npx", ("-y", "@obra/episodic-memory"), cwd=str(FOLDER))
    assert server.reach == UpstreamSettings("upstream", launch)
    assert server.pass_through is None
    search, opened = found.config.tools
    assert (search.name, search.tool) == ("memory__search", "episodic-memory__search")
    assert (search.upstream, search.description) == ("upstream", "Search past conversation history")
    assert search.mapping == {"query": ("query",), "limit": ("limit",)}
    assert search.input_schema["properties"]["limit"]["default"] == 10
    assert (search.constants, search.defaults, search.title) == ({}, {}, None)
    assert (opened.name, opened.mapping) == ("memory__read", {"path": ("path",)})
    lines = SIMPLE.splitlines()
    assert [lines[t.line].strip() for t in (search, opened)] == ['"name": "memory__search",', '"name": "memory__read",']


def test_several_servers_have_their_own_ways_and_limits() -> None:
    found = config(
        {
            "$schema": "./gateway.schema.json",
            "upstreams": {
                "notes": {
                    "command": "node",
                    "args": ["notes.js", ""],
                    "env": {"TOKEN": "${MY_TOKEN}", "PLAIN": "a$b"},
                    "cwd": "notes",
                    "connectTimeout": 5,
                    "callTimeout": 0.5,
                    "start": "at-start",
                },
                "web": {
                    "url": "https://example.org:8443/mcp?team=1",
                    "headers": {"Authorization": "Bearer ${WEB_TOKEN}"},
                    "start": "first-use",
                    "passThrough": {"prefix": "web_", "only": ["a", "b"], "rename": {"b": "other"}},
                },
            },
            "instructions": "Search before you ask.",
            "tools": [tool(upstream={"server": "web"}, title="Find", annotations={"title": "F"})],
        }
    )
    assert found.instructions == "Search before you ask."
    env = {"TOKEN": "${MY_TOKEN}", "PLAIN": "a$b"}
    launch = UpstreamProgram("node", ("notes.js", ""), env, str(FOLDER / "notes"))
    assert found.upstreams["notes"].reach == UpstreamSettings("notes", launch, 5.0, 0.5, starts_at_once=True)
    web = found.upstreams["web"]
    headers = {"Authorization": "Bearer ${WEB_TOKEN}"}
    endpoint = UpstreamEndpoint("https://example.org:8443/mcp?team=1", headers)
    assert web.reach == UpstreamSettings("web", endpoint, CONNECT_SECONDS, CALL_SECONDS)
    assert web.pass_through == PassThrough("web_", ("a", "b"), (), {"b": "other"})
    assert (found.tools[0].upstream, found.tools[0].title) == ("web", "Find")
    assert found.tools[0].annotations == {"title": "F"}


def test_paths_go_down_at_dots_and_keep_those_behind_a_backslash() -> None:
    mapping = {"query": "search.text", "limit": r"page\.size"}
    constants = {"search.filters": {}, r"a\\.b": None}
    made = config(
        file(tool(upstream={"paramMapping": mapping, "constants": constants, "defaults": {"limit": 10}}))
    ).tools[0]
    assert made.mapping == {"query": ("search", "text"), "limit": ("page.size",)}
    assert made.constants == {("search", "filters"): {}, ("a\\", "b"): None}
    assert made.defaults == {"limit": 10}


@pytest.mark.parametrize(
    ("given", "passed"),
    [(True, PassThrough()), (False, None), ({}, PassThrough()), ({"only": []}, PassThrough("", ()))],
)
def test_tools_are_passed_through_as_the_server_says(given: Any, passed: PassThrough) -> None:
    found = config(file(upstream={"command": "notes", "passThrough": given}))
    assert found.upstreams["upstream"].pass_through == passed


def test_a_working_folder_is_one_beside_the_file_a_whole_path_or_one_at_home() -> None:
    def folder(cwd: str) -> str | None:
        way = config(file(upstream={"command": "x", "cwd": cwd})).upstreams["upstream"].reach.way
        assert isinstance(way, UpstreamProgram)
        return way.cwd

    assert folder("a/b") == str(FOLDER / "a" / "b")
    assert folder(str(FOLDER / "c")) == str(FOLDER / "c")
    assert folder("~/d") == str(Path.home() / "d")


def test_problems_come_in_the_order_of_their_lines_all_at_once() -> None:
    text = '{\n"tools": [{"name": "a b"}],\n"upstreem": {},\n"upstream": {\n"url": "ftp://x"}\n}'
    found = reading(text)
    assert found.config is None
    lines = [problem.line for problem in found.problems]
    assert lines == sorted(lines)
    assert {2, 3, 5} == set(lines)
    assert all(problem.message and problem.fix for problem in found.problems)


SERVER = '"upstream": {"command": "x"},\n'


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (f"[] {HERE}", "an object"),
        (f"\n{{ {HERE}\n}}", "names no server"),
        (f'{{\n{SERVER}"upstreams": {{"a": {{"command": "y"}}}} {HERE}\n}}', "line 2"),
        (f'{{\n"upstreams": {{}},\n"upstream": {{"command": "x"}} {HERE}\n}}', "line 2"),
        (f'{{\n"upstreams": {{}} {HERE}\n}}', "at least one"),
        (f'{{\n"upstreams": [] {HERE}\n}}', "an object"),
        (f'{{\n"upstreams": {{\n"a b": {{"command": "x"}} {HERE}\n}}}}', '"a b"'),
        (f'{{\n{SERVER}"mcpServers": {{}} {HERE}\n}}', "under `upstreams`"),
        (f'{{\n{SERVER}"Tools": [] {HERE}\n}}', "`tools`"),
        (f'{{\n{SERVER}"tools": {{}} {HERE}\n}}', "a list"),
        (f'{{\n{SERVER}"tools": [\n"find" {HERE}\n]}}', "`tools[0]`"),
        (f'{{\n{SERVER}"instructions": [] {HERE}\n}}', "a text"),
        (f'{{\n{SERVER}"instructions": "\\ud83d" {HERE}\n}}', "unpaired surrogate"),
        (f'{{\n{SERVER}"$schema": 1 {HERE}\n}}', "a text"),
        (f'{{\n{SERVER}"tools": [],, {HERE}\n}}', "column 13"),
        (f'{{\n{SERVER}# a comment {HERE}\n"tools": []}}', "Begin a comment with `//`"),
        (f'{{\n{SERVER}"tools": [] /* a comment {HERE}\n}}', "`*/`"),
    ],
)
def test_what_is_wrong_with_the_whole_is_told_with_its_line(text: str, word: str) -> None:
    assert word in refused(text)


def test_a_key_that_stands_twice_is_refused_with_both_lines() -> None:
    text = SIMPLE.replace('"tools": [', '"instructions": "a",\n"instructions": "b",\n"tools": [')
    (problem,) = reading(text).problems
    line = text.splitlines().index('"instructions": "b",') + 1
    assert problem.line == line
    assert f"line {line - 1}" in problem.message


def test_a_name_that_two_tools_have_is_refused_with_both_lines() -> None:
    text = SIMPLE.replace("memory__read", "memory__search")
    (problem,) = reading(text).problems
    lines = [n for n, line in enumerate(text.splitlines(), 1) if '"name": "memory__search"' in line]
    assert problem.line == lines[1]
    assert f"line {lines[0]}" in problem.message


@pytest.mark.parametrize(
    "through",
    [
        {"rename": {"x": "find"}},
        {"prefix": "fi", "only": ["nd"]},
        {"rename": {"x": "same", "y": "same"}},
        {"only": ["x", "same"], "rename": {"x": "same"}},
    ],
)
def test_a_name_that_is_passed_through_may_not_be_taken(through: JSON) -> None:
    (problem,) = problems(file(upstream={"command": "notes", "passThrough": through}))
    assert "Two tools are called" in problem


def test_a_described_tool_is_not_passed_through_and_so_clashes_with_nothing() -> None:
    through = {"only": ["search"], "rename": {}}
    described = tool(name="search")
    assert config(file(described, upstream={"command": "notes", "passThrough": through}))


def test_a_new_name_for_a_described_tool_is_warned_of() -> None:
    through = {"rename": {"search": "seek"}}
    (warning,) = warnings(file(upstream={"command": "notes", "passThrough": through}))
    assert "is unused" in warning


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (file(tool(upstream={"paramMapping": BOTH | {"qery": "z"}})), '"qery"'),
        (file(tool(inputSchema=SCHEMA | {"required": ["limit"]}, upstream=ONE)), '`inputSchema` requires "limit"'),
        (file(tool(upstream=ONE)), '"limit" is never sent'),
        (file(tool(inputSchema=SCHEMA | {"additionalProperties": True})), '`"*": "*"`'),
        (file(tool(inputSchema=SCHEMA | {"additionalProperties": {}})), "without a name"),
        (file(upstream={"command": "${HOME}/notes"}), "`${HOME}`"),
        (file(upstream={"command": "x", "args": ["--key", "${KEY}"]}), "`upstream.args[1]`"),
        (file(upstream={"command": "x", "args": ["$HOME/notes"]}), "`$HOME`"),
        (file(upstream={"command": "x", "env": {"A": "$HOME/notes"}}), "`${NAME}`"),
        (file(tool(annotations={"readOnlyhint": True})), "readOnlyHint"),
    ],
)
def test_what_may_be_meant_otherwise_is_only_warned_of(value: Any, word: str) -> None:
    (warning,) = warnings(value)
    assert word in warning


@pytest.mark.parametrize("more", [{}, {"tools": []}])
def test_a_file_that_offers_no_tool_is_refused(more: JSON) -> None:
    (problem,) = reading({"upstream": {"command": "notes"}, **more}).problems
    assert ("offers no tool" in problem.message, '`tools`, or set `"passThrough": true`' in problem.fix) == (True, True)
    assert config({"upstream": {"command": "notes", "passThrough": True}, **more})
    (other,) = reading({"upstream": {"command": 5}, **more}).problems
    assert "`upstream.command`" in other.message


def test_a_required_parameter_that_goes_nowhere_beside_an_unknown_one_fails_every_call() -> None:
    schema = SCHEMA | {"required": ["query"]}
    found = reading(file(tool(inputSchema=schema, upstream={"paramMapping": {"qery": "q"}})))
    assert found.config is not None
    (fatal,) = [warning for warning in found.warnings if warning.fails_calls]
    assert '"qery"' in fatal.message
    assert fatal.fix == "Did you mean `query`?"


@pytest.mark.parametrize(("path", "rest"), [("*", ()), ("filters", ("filters",)), ("a.b\\.c", ("a", "b.c"))])
def test_what_has_no_entry_goes_where_the_star_says(path: str, rest: tuple[str, ...]) -> None:
    schema = SCHEMA | {"additionalProperties": True}
    changes = {"paramMapping": {"query": "text", "*": path}}
    value = file(tool(inputSchema=schema, upstream=changes))
    (found,) = config(value).tools
    assert (found.mapping, found.rest) == ({"query": ("text",)}, rest)
    assert warnings(value) == []


def test_without_a_star_what_has_no_entry_goes_nowhere() -> None:
    (found,) = config(file()).tools
    assert found.rest is None


@pytest.mark.parametrize(
    ("upstream", "word"),
    [
        ({"paramMapping": {"query": "filters", "*": "filters"}}, "conflicts with"),
        ({"paramMapping": {"*": "filters.more", "query": "filters"}}, "conflicts with"),
        ({"paramMapping": BOTH | {"*": "f"}, "constants": {"f": {}}}, "conflicts with"),
        ({"paramMapping": {"query": "limit", "*": "*"}}, '"limit" has no entry'),
        ({"paramMapping": {"query": "q", "*": "*"}, "constants": {"limit.x": 1}}, "no entry"),
        ({"paramMapping": BOTH | {"*": "a..b"}}, "empty part"),
        ({"paramMapping": BOTH | {"*": 1}}, "a text"),
        ({"paramMapping": BOTH | {"*": "*"}, "defaults": {"*": 1}}, "does not have"),
    ],
)
def test_what_has_no_entry_takes_no_others_place(upstream: JSON, word: str) -> None:
    (problem,) = problems(file(tool(upstream=upstream)))
    assert word in problem


def test_what_has_no_entry_may_go_beside_what_has_one() -> None:
    upstream = {"paramMapping": {"query": "f.q", "*": "f"}, "constants": {"f.mode": "both"}}
    assert config(file(tool(upstream=upstream))).tools[0].rest == ("f",)


@pytest.mark.parametrize(
    "server",
    [
        {"command": "x", "env": {"GITHUB_TOKEN": SECRET}},
        {"command": "x", "env": {"DB_PASSWORD": "swordfish9"}},
        {"url": "https://example.org/mcp", "headers": {"Authorization": f"Bearer {SECRET}"}},
        {"command": "x", "args": ["--token", SECRET]},
        {"command": "x", "args": ["--password=swordfish9"]},
        {"url": f"https://example.org/mcp?key={SECRET}"},
    ],
)
def test_a_secret_in_the_file_is_warned_of_and_never_shown(server: JSON) -> None:
    (warning,) = warnings(file(upstream=server))
    assert "looks like a secret" in warning
    assert "${" in warning
    assert SECRET not in warning
    assert "swordfish9" not in warning


@pytest.mark.parametrize(
    "server",
    [
        {"command": "x", "env": {"TOKEN": [SECRET]}},
        {"command": "x", "env": {"TOKEN": SECRET + "\nX: y"}},
        {"command": "x", "args": f"--token={SECRET}"},
        {"command": "x", "token": SECRET},
        {"url": f"https://me:{SECRET}@example.org/mcp"},
        {"url": "https://example.org/mcp", "headers": {"A": SECRET + "é"}},
    ],
)
def test_no_problem_shows_a_secret(server: JSON) -> None:
    found = problems(file(upstream=server))
    assert found
    assert SECRET not in "".join(found)


def test_a_schema_that_may_have_other_parameters_is_not_warned_of() -> None:
    schema = {"type": "object", "allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {}}}
    assert warnings(file(tool(inputSchema=schema))) == []


@given(st.text())
def test_any_text_has_a_config_or_problems_within_its_lines(text: str) -> None:
    found = reading(text)
    assert (found.config is None) == bool(found.problems)
    assert all(1 <= problem.line <= text.count("\n") + 1 for problem in found.problems)
