import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everkept.families.gateway.draft import draft_file
from everkept.families.gateway.drift import find_drift
from everkept.families.gateway.file_reader import parse_file
from everkept.families.gateway.model import JSON, MAX_NAME_CHARACTERS, SINGLE_UPSTREAM, GatewayConfig
from examples import examples
from gateways import listing

SERVER: JSON = {"command": "npx", "args": ["-y", "server"]}

NAMES = st.sampled_from(["query", "limit", "a.b", "back\\slash", "two words", "é", "type"])
TYPES = ["string", "number", "integer", "boolean", "array", "object", "null"]
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["a", "b", "7"])


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[JSON]:
    return st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": st.booleans() | inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "y$"]), inner, max_size=1),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "if": inner,
            "then": inner,
            "$ref": st.sampled_from(["#", "#/$defs/x", "#/$defs/gone", "https://example.org/x"]),
        },
    )


def wholes(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[JSON]:
    more = st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, unique=True),
            "items": inner,
            "minItems": st.integers(0, 3),
        },
    )
    return st.tuples(objects(inner), more).map(lambda both: both[0] | both[1])


LEAVES = st.booleans() | st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, unique=True),
        "enum": st.lists(SCALARS, min_size=1, max_size=3, unique_by=repr),
        "const": SCALARS,
        "minimum": st.integers(-3, 3),
        "exclusiveMaximum": st.floats(-3, 3),
        "maxLength": st.integers(0, 3),
        "default": SCALARS,
        "description": st.text(max_size=5),
        "$ref": st.sampled_from(["#", "#/$defs/x", "#/properties/query"]),
    },
)
SCHEMAS = st.recursive(LEAVES, wholes, max_leaves=6)
ROOTS = st.tuples(objects(SCHEMAS), st.dictionaries(st.just("$defs"), st.just({}))).flatmap(
    lambda both: SCHEMAS.map(lambda x: both[0] | {"type": "object", "$defs": {"x": x}})
)
LISTINGS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["search", "read", "a__b", "two words", "x" * 130, "é"])},
        optional={
            "inputSchema": ROOTS | st.sampled_from([None, {}, {"type": "object", "required": 5}]),
            "description": st.text(max_size=10) | st.none(),
            "title": st.text(max_size=10) | st.integers(),
            "annotations": st.dictionaries(
                st.sampled_from(["readOnlyHint", "title", "other"]), st.booleans() | st.text()
            ),
        },
    ),
    min_size=1,  # a server without tools is refused
    max_size=4,
)


def config_of(text: str) -> GatewayConfig:
    reading = parse_file(text, Path.cwd())
    assert reading.problems == []
    assert reading.config is not None
    return reading.config


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(LISTINGS, st.sampled_from(["", "notes_", "p" * 100]))
def test_a_draft_can_be_read_and_has_not_drifted(tools: list[JSON], prefix: str) -> None:
    config = config_of(draft_file(SERVER, tools, prefix=prefix))
    assert [each for each in find_drift(config, SINGLE_UPSTREAM, tools) if each.level != "note"] == []
    assert {tool.tool for tool in config.tools} == {tool["name"] for tool in tools}


def test_a_draft_says_what_the_server_says() -> None:
    tools = [
        listing("read", {"path": {"type": "string"}}, required=["path"]),
        listing("search", {"query": {"type": "string"}, "a.b": {}}, title="Search", annotations={"readOnlyHint": True}),
    ]
    text = draft_file(SERVER, tools, prefix="notes_")
    assert text.endswith("}\n")
    assert "\n  " in text
    assert json.loads(text) == {
        "upstream": SERVER,
        "tools": [
            {
                "name": "notes_read",
                "description": "Does read.",
                "inputSchema": tools[0]["inputSchema"],
                "upstream": {"tool": "read", "paramMapping": {"path": "path"}},
            },
            {
                "name": "notes_search",
                "title": "Search",
                "description": "Does search.",
                "inputSchema": tools[1]["inputSchema"],
                "annotations": {"readOnlyHint": True},
                "upstream": {"tool": "search", "paramMapping": {"query": "query", "a.b": "a\\.b"}},
            },
        ],
    }


def test_names_that_a_prefix_spoils_are_mended_and_stay_apart() -> None:
    tools = [listing("x" * MAX_NAME_CHARACTERS), listing("x" * MAX_NAME_CHARACTERS + "y"), listing("two words")]
    config = config_of(draft_file(SERVER, tools, prefix="notes_"))
    names = [tool.name for tool in config.tools]
    assert names[0] == ("notes_" + "x" * MAX_NAME_CHARACTERS)[:MAX_NAME_CHARACTERS]
    assert names[1].endswith("x_2")
    assert names[2] == "notes_two_words"
    assert [tool.tool for tool in config.tools] == [tool["name"] for tool in tools]


def test_a_schema_that_is_none_becomes_a_list_of_its_parameters() -> None:
    bad = {"name": "search", "inputSchema": {"properties": {"query": {"type": "words"}}}}
    (tool,) = config_of(draft_file(SERVER, [bad])).tools
    assert tool.input_schema == {"type": "object", "properties": {"query": {}}, "required": []}
    assert tool.mapping == {"query": ("query",)}


@pytest.mark.parametrize("odd", [None, 5, {}, {"name": None}, {"name": ""}])
def test_what_has_no_name_is_left_out(odd: Any) -> None:
    config = config_of(draft_file(SERVER, [odd, listing("read"), listing("read")]))
    assert [tool.name for tool in config.tools] == ["read"]


def test_half_a_character_can_be_written_to_a_file() -> None:
    tool = listing("read", {"path": {"description": "\ud800"}}, description="\ud800 and é\x1b")
    entry = json.loads(draft_file(SERVER, [tool]).encode("utf-8"))["tools"][0]
    assert entry["inputSchema"] == tool["inputSchema"]
    assert entry["description"] == " and é"


def nested(depth: int) -> JSON:
    schema: JSON = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"q": schema}}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        nested(200),
        {"properties": {"q": {"default": 1e999}}},
        {"properties": {"q": {"anyOf": 5}}},
        {"properties": {"q": 7}},
        {"properties": {"q": {}}, "required": "q"},
    ],
    ids=["depth", "infinity", "alternatives", "no schema", "required"],
)
def test_a_draft_can_be_read_whatever_the_schema_is(schema: JSON) -> None:
    (tool,) = config_of(draft_file(SERVER, [{"name": "search", "inputSchema": schema}])).tools
    assert tool.mapping == {"q": ("q",)}


def test_a_draft_of_what_is_too_intricate_leaves_the_parameters_to_the_reader() -> None:
    many = {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(5_000)}
    schema = {"type": "object", "$ref": "#/$defs/a0", "$defs": many}
    (tool,) = config_of(draft_file(SERVER, [{"name": "search", "inputSchema": schema}])).tools
    assert tool.mapping == {}


@pytest.mark.parametrize(
    ("schema", "mapping"),
    [
        ({"type": "object"}, {"*": "*"}),
        ({"type": "object", "additionalProperties": True}, {"*": "*"}),
        ({"type": "object", "additionalProperties": False}, {}),
        ({"type": "object", "properties": {"a": {}}}, {"a": "a"}),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "string"}}, {"a": "a", "*": "*"}),
        ({"type": "object", "properties": {"*": {}}}, {"*": "*"}),
    ],
)
def test_parameters_without_a_name_are_sent_too(schema: JSON, mapping: JSON) -> None:
    (tool,) = json.loads(draft_file({"command": "x"}, [{"name": "t", "inputSchema": schema}]))["tools"]
    assert tool["upstream"]["paramMapping"] == mapping
