from typing import Any

import pytest

from everkept.errors import InvalidInput
from everkept.families.gateway.model import JSON
from everkept.families.gateway.toolset import check_arguments

SCHEMA: JSON = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 2},
        "limit": {"type": "number", "minimum": 1, "maximum": 50},
        "mode": {"type": "string", "enum": ["text", "both"]},
        "after": {"anyOf": [{"type": "string", "minLength": 4}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "filters": {"type": "object", "properties": {"author": {"$ref": "#/$defs/author"}}, "required": ["author"]},
    },
    "required": ["query"],
    "$defs": {"author": {"type": "string"}},
}


def checked(given: Any, schema: JSON = SCHEMA) -> None:
    check_arguments(given, schema)


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
        ({"query": "tea", "after": "May"}, "after", "has 3 characters; it must have at least 4"),
        ({"query": "tea", "tags": ["a", 1]}, "tags[1]", "must be text, not 1"),
        ({"query": "tea", "tags": ["a", "b", "c"]}, "tags", "has 3 items; it must have at most 2"),
        ({"query": "tea", "filters": {}}, "filters.author", "`filters.author` is required"),
        ({"query": "tea", "filters": {"author": 1}}, "filters.author", "must be text, not 1"),
    ],
)
def test_a_wrong_argument_is_named_with_what_is_expected(given: JSON, argument: str, words: str) -> None:
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


def test_many_parameters_and_values_are_named_in_short() -> None:
    names = {f"parameter_{i}": {} for i in range(500)}
    closed = {"type": "object", "properties": names, "additionalProperties": False}
    assert len(str(refused({"xyz": 1}, closed))) < 700
    choice = {"type": "object", "properties": {"x": {"enum": list(range(500))}}}
    assert "7, 8, 9 and 490 more" in str(refused({"x": "y"}, choice))


def test_other_rules_of_a_schema_are_kept_too() -> None:
    unique = {"type": "object", "properties": {"ids": {"uniqueItems": True}, "no": False}}
    assert "has a duplicate item" in str(refused({"ids": [1, 1]}, unique))
    assert "`no` is not allowed" in str(refused({"no": 1}, unique))
    few = {"type": "object", "properties": {"x": {"minProperties": 2}}}
    assert "`x` has 1 key; it must have at least 2" in str(refused({"x": {"a": 1}}, few))


def test_what_is_wrong_with_each_alternative_is_told() -> None:
    router: JSON = {"type": "object", "oneOf": [{"required": ["id"]}, {"required": ["name"]}]}
    told = str(refused({}, router))
    assert told == (
        "The call must match one of its alternatives: Argument `id` is required; or Argument `name` is required."
    )
    nested: JSON = {"type": "object", "anyOf": [router, router]}
    assert str(refused({}, nested)) == "The call must match one of its alternatives."


def test_what_cannot_be_shown_is_left_to_the_server() -> None:
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]
    checked({"query": deep})


def test_what_takes_too_long_to_say_is_left_to_the_server() -> None:
    router = {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i - 1}"}] * 2} for i in range(1, 40)}
    schema: JSON = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/a39"}, "y": {"type": "string"}},
        "$defs": router | {"a0": {"type": "string"}},
    }
    checked({"x": 5, "y": 5}, schema)
    assert refused({"y": 5}, schema).facts["argument"] == "y"
