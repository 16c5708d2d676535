import json
from pathlib import PurePath
from typing import Any

import pytest

from everkept.families.gateway.drift import Drift, find_drift
from everkept.families.gateway.file_reader import parse_file
from everkept.families.gateway.model import JSON, SINGLE_UPSTREAM, ToolConfig
from gateways import TEXT, gateway_config, listing, tool_config


def serious(tool: ToolConfig, there: JSON) -> list[Drift]:
    found = find_drift(gateway_config(tool), SINGLE_UPSTREAM, [there])
    return [each for each in found if each.level != "note"]


def test_what_has_no_entry_is_looked_for_under_its_own_name() -> None:
    tool = tool_config(mapping={}, properties={"query": TEXT, "limit": TEXT}, rest=())
    assert serious(tool, listing("search", {"query": TEXT, "limit": TEXT})) == []
    (gone,) = serious(tool, listing("search", {"query": TEXT}))
    assert (gone.level, "no `limit`" in gone.message) == ("error", True)
    (changed,) = serious(tool, listing("search", {"query": TEXT, "limit": {"type": "number"}}))
    assert (changed.level, "`limit` at the server takes a number" in changed.message) == ("error", True)


def test_what_the_server_needs_may_come_without_an_entry() -> None:
    there = listing("search", {"query": TEXT}, required=["query"])
    named = tool_config(mapping={}, properties={"query": TEXT}, required=["query"], rest=())
    assert serious(named, there) == []
    unnamed = tool_config(mapping={}, properties={}, rest=())
    (found,) = serious(unnamed, there)
    assert (found.level, "may omit `query`" in found.message) == ("warning", True)
    closed = tool_config(
        mapping={}, rest=(), input_schema={"type": "object", "properties": {"x": TEXT}, "additionalProperties": False}
    )
    assert "error" in {each.level for each in serious(closed, there)}


def test_with_a_place_for_the_rest_new_parameters_are_no_news() -> None:
    tool = tool_config(mapping={}, properties={}, rest=())
    assert find_drift(gateway_config(tool), SINGLE_UPSTREAM, [listing("search", {"mode": TEXT})]) == []


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ({"filters": {"type": "object"}}, None),
        ({"filters": {"type": "object", "properties": {"colour": TEXT}}}, None),
        ({"filters": {"type": "string"}}, "takes text"),
        ({"other": TEXT}, "no `filters`"),
        ({"filters": {"type": "object", "properties": {"x": TEXT}}}, "no `colour`"),
        ({"filters": {"type": "object", "required": ["x"]}}, "needs `filters.x`"),
    ],
)
def test_the_place_of_the_rest_must_be_there_and_an_object(there: JSON, told: str | None) -> None:
    tool = tool_config(mapping={}, properties={"colour": TEXT}, rest=("filters",))
    words = [each.message for each in serious(tool, listing("search", there))]
    assert any(told in word for word in words) if told else words == []


def test_the_object_of_the_rest_is_always_sent() -> None:
    there = listing("search", {"filters": {"type": "object"}}, required=["filters"])
    assert serious(tool_config(mapping={}, properties={}, rest=("filters",)), there) == []


FILE: JSON = {
    "upstreams": {
        "notes": {"command": "x", "passThrough": {"only": ["gone", "old"], "rename": {"old": "new"}}},
        "web": {"command": "y"},
    },
    "tools": [
        {
            "name": "find",
            "description": "Finds.",
            "annotations": {"destructiveHint": False},
            "inputSchema": {
                "type": "object",
                "properties": {"query": TEXT, "limit": TEXT, "mode": TEXT},
                "additionalProperties": True,
            },
            "upstream": {
                "server": "web",
                "tool": "search",
                "paramMapping": {"query": "q", "limit": "limit", "*": "filters"},
                "constants": {"fixed": 1},
                "defaults": {"limit": "ten"},
            },
        }
    ],
}


def lines_told(value: JSON, upstream: str, *tools: JSON) -> list[str]:
    text = json.dumps(value, indent=1)
    config = parse_file(text, PurePath("/etc")).config
    assert config is not None
    found = [each for each in find_drift(config, upstream, tools) if each.level != "note"]
    return [text.splitlines()[each.line - 1].strip().rstrip(",") for each in found]


def test_what_has_drifted_is_told_with_the_line_that_it_stands_in() -> None:
    number = {"type": "number"}
    there: dict[str, Any] = listing("search", {"limit": number}, annotations={"destructiveHint": True})
    assert lines_told(FILE, "web", there) == [
        '"annotations": {',
        '"query": "q"',
        '"limit": "ten"',
        '"limit": {',
        '"fixed": 1',
        '"*": "filters"',
    ]
    assert lines_told(FILE, "web", listing("other")) == ['"tool": "search"']


def test_what_is_not_passed_through_any_more_is_told_with_its_line() -> None:
    assert lines_told(FILE, "notes", listing("search")) == ['"gone"', '"old": "new"']
