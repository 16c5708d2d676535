import itertools
from typing import Any

import pytest

from recollect.families.gateway.model import JSON
from recollect.families.gateway.schemas.facts import (
    at,
    below,
    in_words,
    kinds,
    names,
    required,
    values,
)

TEXT: JSON = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, "everything"),
        ({"type": "number"}, "a number"),
        ({"type": "integer"}, "a whole number"),
        ({"type": ["string", "null"]}, "text or null"),
        ({"enum": [1, "a", None, True, [], {}]}, "a whole number or text or true or false or an"),
        ({"const": 1.5}, "a number that is not whole"),
        ({"allOf": [{"type": ["string", "integer"]}, {"type": "integer"}]}, "a whole number"),
        ({"anyOf": [{"type": "array"}, {"type": "object"}]}, "an object or a list"),
        ({"type": "string", "allOf": [False]}, "nothing"),
    ],
)
def test_kinds_are_what_may_fit(schema: JSON, expected: str) -> None:
    found = kinds(schema, schema)
    assert in_words(found).startswith(expected) or (expected == "everything" and len(found) == 7)


def test_listed_values_are_found_behind_references_and_beside_null() -> None:
    root: JSON = {"$defs": {"mode": {"enum": ["a"]}}}
    assert values({"anyOf": [{"$ref": "#/$defs/mode"}, {"type": "null"}]}, root) == ["a"]
    assert values({"const": 5}, root) == [5]
    assert values({"anyOf": [{"enum": ["a"]}, TEXT]}, root) is None


def test_names_and_needs_are_gathered_from_every_part() -> None:
    schema: JSON = {
        "properties": {"a": TEXT},
        "required": ["b"],
        "allOf": [{"properties": {"c": TEXT}, "required": ["c"]}],
        "oneOf": [{"required": ["d", "e"]}, {"required": ["e"]}],
        "dependentSchemas": {"a": {"properties": {"f": TEXT}}},
    }
    assert names(schema, schema) == ["a", "b", "d", "e", "f", "c"]
    assert required(schema, schema) == ["b", "e", "c"]


def test_a_place_is_a_schema_or_open_or_nowhere() -> None:
    schema: JSON = {"properties": {"a": {"properties": {"b": TEXT}}, "c": {}}}
    assert at(schema, ["a", "b"], schema) == TEXT
    assert at(schema, ["a", "x"], schema) is False
    assert at(schema, ["c", "x", "y"], schema) is True
    assert below(schema, "x", schema) == []


def test_references_that_go_round_come_to_an_end() -> None:
    every = [f"n{i}" for i in range(12)]
    tangle: dict[str, Any] = {
        name: {"anyOf": [{"$ref": f"#/$defs/{other}"} for other in every]} for name in every
    }
    root: JSON = {"$ref": "#/$defs/n0", "$defs": tangle}
    assert len(kinds(root, root)) == 7
    assert names(root, root) == required(root, root) == []
    assert below(root, "x", root) in (None, [])


@pytest.mark.parametrize(
    "reference", ["#/a/1/b", "#/a/9", "#/a/x", "#anchor", "other.json", "", 5, None]
)
def test_a_reference_leads_somewhere_or_nothing_is_known(reference: Any) -> None:
    root: JSON = {"a": [{}, {"b": {"properties": {"q": TEXT}}}]}
    expected = [] if reference == "#/a/1/b" else None
    assert below({"$ref": reference}, "x", root) == expected


def test_any_shape_can_be_looked_at() -> None:
    odd: list[Any] = [None, 5, "x", [], [5], {"x": 5}, True, False]
    words = ("type", "properties", "required", "anyOf", "allOf", "enum", "$ref", "then", "items")
    for word, value in itertools.product(words, odd):
        schema = {word: value}
        assert kinds(schema, schema) is not None
        assert names(schema, schema) is not None
        assert below(schema, "a", schema) in (None, [])
