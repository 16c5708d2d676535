from typing import Any

import pytest

from everkept.families.gateway.drift import Drift, find_clashes, find_drift
from everkept.families.gateway.model import JSON, SINGLE_UPSTREAM, GatewayConfig, PassThrough, ToolConfig
from everkept.values import replace
from gateways import gateway_config, listing, tool_config

TEXT: JSON = {"type": "string"}
NUMBER: JSON = {"type": "number"}
WHOLE: JSON = {"type": "integer"}


def drifted(tool: ToolConfig, *tools: JSON) -> list[Drift]:
    return find_drift(gateway_config(tool), SINGLE_UPSTREAM, tools)


def serious(found: list[Drift]) -> list[tuple[str, str]]:
    return [(each.level, each.message) for each in found if each.level != "note"]


def only(found: list[Drift]) -> Drift:
    (one,) = [each for each in found if each.level != "note"]
    return one


def passing(through: PassThrough, *tools: ToolConfig) -> GatewayConfig:
    return gateway_config(*tools, upstreams={SINGLE_UPSTREAM: through})


def test_nothing_has_drifted_where_everything_fits() -> None:
    tool = tool_config(mapping={"query": "query", "limit": "max"}, required=["query"])
    there = listing("search", {"query": TEXT, "max": TEXT}, required=["query"])
    assert drifted(tool, there) == []


def test_a_tool_that_is_gone_is_an_error_with_the_nearest_name() -> None:
    found = only(drifted(tool_config(tool="serach", line=7), listing("search")))
    assert (found.level, found.tool, found.line) == ("error", "memory__search", 7)
    assert "`serach`" in found.message
    assert found.fix == "Did you mean `search`?"
    assert str(found).startswith("line 7: memory__search: ")


def test_a_tool_that_is_gone_without_a_like_one_names_what_there_is() -> None:
    assert only(drifted(tool_config(), listing("xyz"))).fix == "Known: `xyz`."
    assert only(drifted(tool_config())).fix == "There are none."


def test_a_bare_name_behind_a_prefix_is_a_note() -> None:
    tool = tool_config(tool="episodic-memory__search", mapping={})
    (found,) = drifted(tool, listing("search"))
    assert (found.level, "`search`" in found.message) == ("note", True)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"text": TEXT}},
        {"additionalProperties": False},
        {"properties": {"q": TEXT}, "allOf": [{"properties": {"r": TEXT}}]},
        {"oneOf": [{"properties": {"q": TEXT}}, {"properties": {"r": TEXT}}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"q": TEXT}}}},
        {"properties": {"q": TEXT}, "anyOf": [{"required": ["q"]}, {"required": ["r"]}]},
    ],
)
def test_a_parameter_that_is_gone_is_an_error(schema: JSON) -> None:
    there = {"name": "search", "inputSchema": {"type": "object", **schema}}
    found = only(drifted(tool_config(), there))
    assert found.level == "error"
    assert "no `query`" in found.message


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": {}},
        {"properties": {"q": TEXT}, "additionalProperties": True},
        {"properties": {"q": TEXT}, "additionalProperties": {"type": "string"}},
        {"properties": {"q": TEXT}, "patternProperties": {"^(q+)+$": TEXT}},
        {"properties": {"q": TEXT}, "patternProperties": {"(?<x>": TEXT}},
        {"properties": {"q": TEXT}, "allOf": [{"properties": {"query": TEXT}}]},
        {"anyOf": [{"properties": {"q": TEXT}}, {"properties": {"query": TEXT}}]},
        {"anyOf": [{"properties": {"q": TEXT}}, {}]},
        {"properties": {"q": TEXT}, "then": {"properties": {"query": TEXT}}},
        {"properties": {"q": TEXT}, "allOf": [{"$ref": "https://example.org/x"}]},
        {"properties": {"q": TEXT}, "$dynamicRef": "#more"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"query": TEXT}}}},
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"properties": {"query": TEXT}}}},
        {"$ref": "#", "properties": {"query": TEXT}},
        {"properties": {"q": TEXT}, "required": ["query"]},
        {"properties": {"query": {"type": "unheard of"}}},
    ],
)
def test_what_may_be_there_is_never_called_gone(schema: JSON) -> None:
    there = {"name": "search", "inputSchema": {"type": "object", **schema}}
    assert serious(drifted(tool_config(required=["query"]), there)) == []


def test_a_nested_place_is_followed() -> None:
    tool = tool_config(mapping={"query": "search.text"}, required=["query"])
    inside = {"type": "object", "properties": {"words": TEXT}}
    found = only(drifted(tool, listing("search", {"search": inside})))
    assert "`search` at the server has no `text`" in found.message
    router = {"anyOf": [TEXT, inside]}
    assert only(drifted(tool, listing("search", {"search": router}))).level == "error"
    fits = {"type": "object", "properties": {"text": TEXT}}
    assert drifted(tool, listing("search", {"search": fits})) == []


def test_a_place_inside_what_is_no_object_any_more_is_an_error() -> None:
    tool = tool_config(mapping={"query": "search.text"})
    found = only(drifted(tool, listing("search", {"search": TEXT})))
    assert "`search` at the server takes text" in found.message


def test_a_parameter_that_became_an_object_is_an_error() -> None:
    theirs = {"type": "object", "properties": {"text": TEXT}}
    found = only(drifted(tool_config(), listing("search", {"query": theirs})))
    assert (found.level, "takes an object, but ours is text" in found.message) == ("error", True)


@pytest.mark.parametrize(
    ("ours", "theirs", "level", "words"),
    [
        (TEXT, NUMBER, "error", "takes a number, but ours is text"),
        (TEXT, {"type": "array"}, "error", "takes a list"),
        (NUMBER, WHOLE, "warning", "ours may be a number that is not whole"),
        ({"type": ["string", "null"]}, TEXT, "warning", "ours may be null"),
        ({"enum": ["a", "b", "c"]}, {"enum": ["a", "b"]}, "error", 'does not take "c"'),
        (TEXT, {"enum": ["a", "b"]}, "warning", 'takes only "a", "b"'),
        ({"const": "a"}, {"type": "string", "minLength": 2}, "error", 'does not take "a"'),
        (WHOLE | {"maximum": 100}, WHOLE | {"maximum": 50}, "warning", "at most 50, but ours at"),
        (WHOLE | {"minimum": 0}, WHOLE | {"exclusiveMinimum": 0}, "warning", "more than 0"),
        (TEXT | {"maxLength": 9}, TEXT | {"maxLength": 5}, "warning", "at most 5 characters"),
        (TEXT | {"minLength": 1}, TEXT | {"minLength": 2}, "warning", "at least 2 characters"),
        ({"type": "array", "items": TEXT}, {"type": "array", "items": NUMBER}, "error", "(in `query[]`)"),
        (
            {"type": "object", "properties": {"a": TEXT}},
            {"type": "object", "properties": {"b": TEXT}},
            "error",
            "has no `a`",
        ),
        (
            {"type": "object", "properties": {"a": TEXT}},
            {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
            "warning",
            "needs `a`",
        ),
    ],
)
def test_a_type_that_no_longer_fits_is_told(ours: JSON, theirs: JSON, level: str, words: str) -> None:
    found = only(drifted(tool_config(properties={"query": ours}), listing("search", {"query": theirs})))
    assert found.level == level
    assert words in found.message
    assert "`query`" in found.fix


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (WHOLE, NUMBER),
        (TEXT, {"type": ["string", "null"]}),
        (TEXT, {"oneOf": [TEXT, {"type": "array"}]}),
        (TEXT, {"anyOf": [{"enum": ["a"]}, TEXT]}),
        (TEXT, {"$ref": "https://example.org/x"}),
        ({}, WHOLE),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}),
        ({"enum": ["a"]}, TEXT),
        (WHOLE | {"maximum": 50}, WHOLE | {"maximum": 100}),
        (WHOLE | {"exclusiveMinimum": 0}, WHOLE | {"minimum": 0}),
        (TEXT, TEXT | {"pattern": r"\p{L}"}),
        (TEXT, TEXT | {"minLength": 1}),
        ({"type": "array", "items": WHOLE}, {"type": "array", "items": NUMBER}),
    ],
)
def test_a_type_that_still_fits_is_no_drift(ours: JSON, theirs: JSON) -> None:
    tool = tool_config(properties={"query": ours})
    assert drifted(tool, listing("search", {"query": theirs})) == []


def test_a_limit_that_the_file_does_not_speak_of_is_a_note() -> None:
    (found,) = drifted(tool_config(properties={"query": WHOLE}), listing("search", {"query": WHOLE | {"maximum": 50}}))
    assert (found.level, "at most 50" in found.message) == ("note", True)


def test_a_needed_parameter_that_is_never_sent_is_an_error() -> None:
    there = listing("search", {"query": TEXT, "mode": TEXT}, required=["mode"])
    found = only(drifted(tool_config(), there))
    assert (found.level, "needs `mode`, which is never sent" in found.message) == ("error", True)
    assert serious(drifted(tool_config(constants={("mode",): "both"}), there)) == []


def test_a_needed_parameter_that_a_call_may_leave_out_is_a_warning() -> None:
    there = listing("search", {"query": TEXT}, required=["query"])
    found = only(drifted(tool_config(), there))
    assert (found.level, "a call may omit `query`" in found.message) == ("warning", True)
    assert drifted(tool_config(required=["query"]), there) == []
    assert drifted(tool_config(defaults={"query": "*"}), there) == []


def test_a_needed_parameter_with_a_default_there_is_no_drift() -> None:
    there = listing("search", {"query": TEXT | {"default": "*"}}, required=["query"])
    assert drifted(tool_config(), there) == []


def test_what_every_alternative_needs_is_needed() -> None:
    properties = {"query": TEXT, "mode": TEXT}
    both = [{"required": ["mode"]}, {"required": ["mode", "query"]}]
    assert only(drifted(tool_config(), listing("search", properties, anyOf=both))).level == "error"
    router = [{"required": ["mode"]}, {"required": ["query"]}]
    assert serious(drifted(tool_config(), listing("search", properties, anyOf=router))) == []


def nested(**needed: Any) -> JSON:
    inside = {"type": "object", "properties": {"text": TEXT, "mode": TEXT}, **needed}
    return listing("search", {"search": inside, "other": TEXT})


def test_a_needed_place_in_an_object_that_is_made_is_seen() -> None:
    there = nested(required=["mode"])
    always = tool_config(mapping={"query": "search.text"}, required=["query"])
    assert only(drifted(always, there)).level == "error"
    sometimes = tool_config(mapping={"query": "search.text"})
    assert only(drifted(sometimes, there)).level == "warning"


def test_an_object_that_is_only_made_with_its_needed_place_is_fine() -> None:
    tool = tool_config(mapping={"query": "search.text"})
    assert serious(drifted(tool, nested(required=["text"]))) == []
    beside = tool_config(mapping={"query": "search.text", "mode": "search.mode"})
    assert only(drifted(beside, nested(required=["text"]))).level == "warning"


def test_constants_and_defaults_that_do_not_fit_are_errors() -> None:
    there = listing("search", {"query": TEXT, "mode": {"enum": ["text", "both"]}})
    constant = only(drifted(tool_config(constants={("mode",): "all"}), there))
    assert 'does not take the constant, "all"' in constant.message
    default = only(drifted(tool_config(defaults={"query": 5}), there))
    assert "the default of `query`, 5" in default.message
    assert {constant.level, default.level} == {"error"}


def test_a_constant_without_a_place_is_an_error() -> None:
    found = only(drifted(tool_config(constants={("filter",): {}}), listing("search", {"query": TEXT})))
    assert (found.level, "no `filter` for a constant" in found.message) == ("error", True)


def test_a_tool_that_writes_by_now_is_a_warning_where_the_file_says_it_reads() -> None:
    tool = tool_config(mapping={}, annotations={"readOnlyHint": True})
    assert drifted(tool, listing("search", annotations={"readOnlyHint": True})) == []
    for hint in ({"readOnlyHint": False}, {"destructiveHint": True}):
        found = only(drifted(tool, listing("search", annotations=hint)))
        assert (found.level, "writes" in found.message) == ("warning", True)


def test_a_tool_that_destroys_by_now_is_a_warning_where_the_file_says_it_does_not() -> None:
    tool = tool_config(mapping={}, annotations={"destructiveHint": False})
    reads = {"destructiveHint": True, "readOnlyHint": True}
    for harmless in ({}, {"destructiveHint": False}, reads):
        assert drifted(tool, listing("search", annotations=harmless)) == []
    found = only(drifted(tool, listing("search", annotations={"destructiveHint": True})))
    assert (found.level, "destroy" in found.message) == ("warning", True)


@pytest.mark.parametrize("schema", [None, [], {"properties": 5}, {"required": {}}])
def test_a_schema_of_theirs_that_is_none_says_nothing(schema: Any) -> None:
    assert serious(drifted(tool_config(), {"name": "search", "inputSchema": schema})) == []


def test_new_tools_and_new_parameters_are_notes() -> None:
    there = listing("search", {"query": TEXT, "mode": TEXT, "after": TEXT})
    found = drifted(tool_config(), there, listing("read"), listing("delete"))
    assert [(each.level, each.tool) for each in found] == [("note", "memory__search"), ("note", None)]
    assert "`mode`, `after`" in found[0].message
    assert "`read`, `delete`" in found[1].message


def test_many_new_tools_are_told_in_one_line() -> None:
    (found,) = find_drift(gateway_config(), SINGLE_UPSTREAM, [listing(f"tool_{i}") for i in range(40)])
    assert "and 30 more" in found.message


def test_only_tools_of_the_upstream_are_looked_at() -> None:
    config = gateway_config(tool_config(upstream="web"), upstreams={SINGLE_UPSTREAM: None, "web": None})
    assert find_drift(config, SINGLE_UPSTREAM, []) == []
    assert only(find_drift(config, "web", [])).level == "error"


def test_tools_that_are_passed_through_are_not_new() -> None:
    assert find_drift(passing(PassThrough()), SINGLE_UPSTREAM, [listing("search")]) == []


def test_a_chosen_or_renamed_tool_that_is_gone_is_an_error() -> None:
    through = PassThrough(only=("serach",), rename={"serach": "find"}, hide=("away",))
    found = find_drift(passing(through), SINGLE_UPSTREAM, [listing("search")])
    assert [each.level for each in found] == ["error", "note"]
    assert found[0].fix == "Did you mean `search`?"


def test_a_passed_name_that_another_tool_has_is_an_error() -> None:
    config = passing(PassThrough(), tool_config("read", mapping={}))
    found = only(find_drift(config, SINGLE_UPSTREAM, [listing("search"), listing("read")]))
    assert (found.level, "a tool `read` already exists" in found.message) == ("error", True)
    twice = passing(PassThrough(rename={"a": "b"}))
    assert only(find_drift(twice, SINGLE_UPSTREAM, [listing("a"), listing("b")])).level == "error"


def test_a_listing_that_cannot_be_offered_is_a_warning() -> None:
    found = only(find_drift(passing(PassThrough()), SINGLE_UPSTREAM, [listing("two words")]))
    assert (found.level, "`two words` is not offered" in found.message) == ("warning", True)


def test_two_upstreams_that_pass_the_same_name_clash() -> None:
    config = gateway_config(upstreams={"notes": PassThrough(), "web": PassThrough(), "x": None})
    listings = {name: [listing("search")] for name in ("notes", "web", "x")}
    (found,) = find_clashes(config, listings)
    assert (found.level, found.tool) == ("error", "search")
    assert "notes and web" in found.message
    apart = gateway_config(upstreams={"notes": PassThrough(), "web": PassThrough("web_")})
    assert find_clashes(apart, {name: [listing("search")] for name in ("notes", "web")}) == []


def test_what_is_too_intricate_is_said_to_be_and_stops_at_once() -> None:
    words = {f"p{i}": {"$ref": "#"} for i in range(300)}
    tangle: JSON = {"type": "object", "properties": words}
    tools = [tool_config(f"t{i}", f"t{i}", mapping={name: name for name in words}) for i in (1, 2)]
    ours = [replace(tool, input_schema=tangle) for tool in tools]
    there = [{"name": tool.tool, "inputSchema": tangle} for tool in tools]
    found = find_drift(gateway_config(*ours), SINGLE_UPSTREAM, there)
    assert {(each.level, each.tool) for each in found} == {("warning", "t1"), ("warning", "t2")}
    assert "too complex" in found[0].message
