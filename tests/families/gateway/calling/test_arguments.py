import socket
import sys
from typing import Any

import pytest

from recollect.errors import InvalidInput
from recollect.families.gateway.calling.arguments import Arguments
from recollect.families.gateway.model import JSON

SCHEMA: JSON = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 2},
        "limit": {"type": "number", "minimum": 1, "maximum": 50},
        "mode": {"type": "string", "enum": ["text", "both"]},
        "after": {"anyOf": [{"type": "string", "pattern": r"^\d{4}$"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "filters": {
            "type": "object",
            "properties": {"author": {"$ref": "#/$defs/author"}},
            "required": ["author"],
        },
    },
    "required": ["query"],
    "$defs": {"author": {"type": "string"}},
}


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    reached: list[Any] = []

    def reach(*where: Any, **_more: Any) -> None:
        reached.append(where)
        raise OSError("no network here")

    monkeypatch.setattr(socket, "getaddrinfo", reach)
    monkeypatch.setattr(socket.socket, "connect", reach)
    return reached


def checked(given: Any, schema: JSON = SCHEMA) -> None:
    Arguments("memory__search", schema).check(given)


def refused(given: Any, schema: JSON = SCHEMA) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        checked(given, schema)
    return caught.value


def test_arguments_that_fit_are_taken() -> None:
    checked({"query": "tea"})
    checked({"query": "tea", "limit": 10, "mode": "both", "after": None, "tags": ["a"]})
    checked({"query": "tea", "filters": {"author": "Ada", "more": 1}})


def test_a_parameter_that_the_schema_does_not_have_is_no_mistake() -> None:
    checked({"query": "tea", "other": 1})


@pytest.mark.parametrize(
    ("given", "argument", "words"),
    [
        ({}, "query", "`query` is required"),
        ({"query": 5}, "query", "must be text, not 5"),
        ({"query": None}, "query", "must be text, not null"),
        ({"query": "t"}, "query", "has 1 character; it must have at least 2"),
        ({"query": "tea", "limit": "10"}, "limit", 'must be a number, not "10"'),
        ({"query": "tea", "limit": True}, "limit", "must be a number, not true"),
        ({"query": "tea", "limit": 0}, "limit", "is 0; it must be at least 1"),
        ({"query": "tea", "limit": 51}, "limit", "is 51; it must be at most 50"),
        ({"query": "tea", "mode": "all"}, "mode", 'is "all"; it must be one of "text", "both"'),
        ({"query": "tea", "after": 5}, "after", "must be text or null, not 5"),
        ({"query": "tea", "after": "May"}, "after", 'is "May"; it must be text that matches'),
        ({"query": "tea", "tags": ["a", 1]}, "tags[1]", "must be text, not 1"),
        ({"query": "tea", "tags": ["a", "b", "c"]}, "tags", "has 3 items; it must have at most 2"),
        ({"query": "tea", "filters": {}}, "filters.author", "`filters.author` is required"),
        ({"query": "tea", "filters": {"author": 1}}, "filters.author", "must be text, not 1"),
    ],
)
def test_a_wrong_argument_is_named_with_what_is_expected(
    given: JSON, argument: str, words: str
) -> None:
    error = refused(given)
    assert error.facts["argument"] == argument
    assert words in str(error)


def test_a_long_value_is_shown_in_short() -> None:
    assert len(str(refused({"query": "tea", "limit": "x" * 5000}))) < 200


def test_a_closed_schema_refuses_an_unknown_parameter_and_guesses() -> None:
    closed = {**SCHEMA, "additionalProperties": False}
    error = refused({"query": "tea", "limti": 5}, closed)
    assert error.facts["argument"] == "limti"
    assert error.hint == "Did you mean `limit`?"
    assert "Known: query, limit" in str(refused({"query": "tea", "xyz": 5}, closed))


def test_other_rules_of_a_schema_are_kept_too() -> None:
    unique = {"type": "object", "properties": {"ids": {"uniqueItems": True}}}
    assert refused({"ids": [1, 1]}, unique).facts["argument"] == "ids"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"query": {"type": "text"}}},
        {"type": "object", "properties": {"query": {"$ref": "#/$defs/gone"}}},
        {"type": "object", "properties": {"query": {"$ref": "#/properties/query"}}},
        {"type": "object", "patternProperties": {"(": {}}},
        {"type": "object", "properties": {"query": {"$ref": 5}}},
        {"type": "object", "properties": {"query": {"$id": "http://[", "$ref": "x"}}},
        {"type": "object", "$schema": "http://["},
    ],
)
def test_a_schema_that_is_none_is_told_with_the_tool(schema: JSON) -> None:
    error = refused({"query": "tea"}, schema)
    assert error.facts["tool"] == "memory__search"
    assert '"memory__search" cannot be used' in str(error)


def test_a_pattern_for_javascript_refuses_nothing() -> None:
    checked({"query": "tea"}, {"type": "object", "properties": {"query": {"pattern": r"\p{L}+"}}})


@pytest.mark.parametrize(
    "older",
    [
        {"items": [{"type": "string"}]},
        {"items": [{"type": "string"}], "exclusiveMinimum": 0},
        {"exclusiveMinimum": True, "minimum": 0},
    ],
)
def test_schemas_of_older_drafts_are_understood(older: JSON) -> None:
    checked({"query": 1}, {"type": "object", "properties": {"query": older}})


def test_a_draft_that_is_named_is_followed() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pair": {"items": [{"type": "string"}]}},
    }
    assert refused({"pair": [1]}, schema).facts["argument"] == "pair[0]"
    checked({"pair": [1]}, {"$schema": "https://example.org/our-own", "type": "object"})


@pytest.mark.parametrize("reference", ["https://example.org/schema.json", "http://127.0.0.1:9/x#y"])
def test_nothing_that_a_schema_refers_to_is_fetched(reference: str, no_network: list[Any]) -> None:
    schema = {"type": "object", "properties": {"query": {"$ref": reference}}}
    assert reference in str(refused({"query": "tea"}, schema))
    assert no_network == []


def test_a_reference_to_a_file_is_not_followed() -> None:
    schema = {"type": "object", "properties": {"query": {"$ref": "file:///etc/hostname"}}}
    assert "is not part of it" in str(refused({"query": "tea"}, schema))


def test_arguments_that_are_nested_without_end_are_refused() -> None:
    schema: JSON = {"type": "object", "properties": {"x": {"$ref": "#"}}}
    deep: JSON = {}
    for _ in range(sys.getrecursionlimit()):
        deep = {"x": deep}
    assert "nested too deeply" in str(refused(deep, schema))
