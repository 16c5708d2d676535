import itertools
from typing import Any

import pytest

from everkept.families.gateway.model import JSON
from everkept.families.gateway.schema_facts import (
    SchemaRoot,
    SchemaTooComplex,
    StepBudget,
    find_items,
    find_kinds,
    find_property_schemas,
    find_values,
    format_kinds,
    list_names,
    list_required,
    resolve_path,
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
    found = find_kinds(schema, SchemaRoot(schema))
    assert format_kinds(found).startswith(expected) or (expected == "everything" and len(found) == 7)


def test_listed_values_are_found_behind_references_and_beside_null() -> None:
    root: JSON = {"$defs": {"mode": {"enum": ["a"]}}}
    assert find_values({"anyOf": [{"$ref": "#/$defs/mode"}, {"type": "null"}]}, SchemaRoot(root)) == ["a"]
    assert find_values({"const": 5}, SchemaRoot(root)) == [5]
    assert find_values({"anyOf": [{"enum": ["a"]}, TEXT]}, SchemaRoot(root)) is None


def test_values_of_alternatives_are_listed_where_each_lists_its_own() -> None:
    literals: JSON = {"anyOf": [{"const": "a"}, {"enum": ["b", 3]}, {"type": "null"}]}
    assert find_values(literals, SchemaRoot(literals)) == ["a", "b", 3]


def test_what_a_list_holds_is_found_in_every_alternative() -> None:
    numbers: JSON = {"type": "array", "items": {"type": "number"}}
    router: JSON = {"oneOf": [TEXT, {"type": "array", "items": TEXT}, numbers]}
    assert find_kinds(find_items(router, SchemaRoot(router)), SchemaRoot(router)) == {"string", "integer", "fraction"}
    assert find_items(numbers, SchemaRoot(numbers)) == {"type": "number"}
    loose: JSON = {"anyOf": [{"type": "array"}, numbers]}
    assert len(find_kinds(find_items(loose, SchemaRoot(loose)), SchemaRoot(loose))) == 7
    assert find_items(TEXT, SchemaRoot(TEXT)) is True


def test_names_that_a_pattern_may_allow_are_open_and_no_pattern_is_tried() -> None:
    schema: JSON = {"properties": {"q": TEXT}, "patternProperties": {"^(a+)+$": TEXT}}
    assert find_property_schemas(schema, "a" * 100 + "!", SchemaRoot(schema)) is None
    assert find_property_schemas(schema, "q", SchemaRoot(schema)) == [TEXT]


def test_names_and_needs_are_gathered_from_every_part() -> None:
    schema: JSON = {
        "properties": {"a": TEXT},
        "required": ["b"],
        "allOf": [{"properties": {"c": TEXT}, "required": ["c"]}],
        "oneOf": [{"required": ["d", "e"]}, {"required": ["e"]}],
        "dependentSchemas": {"a": {"properties": {"f": TEXT}}},
    }
    assert list_names(schema, SchemaRoot(schema)) == ["a", "b", "d", "e", "f", "c"]
    assert list_required(schema, SchemaRoot(schema)) == ["b", "e", "c"]


def test_a_place_is_a_schema_or_open_or_nowhere() -> None:
    schema: JSON = {"properties": {"a": {"properties": {"b": TEXT}}, "c": {}}}
    assert resolve_path(schema, ["a", "b"], SchemaRoot(schema)) == TEXT
    assert resolve_path(schema, ["a", "x"], SchemaRoot(schema)) is False
    assert resolve_path(schema, ["c", "x", "y"], SchemaRoot(schema)) is True
    assert find_property_schemas(schema, "x", SchemaRoot(schema)) == []


def test_references_that_go_round_come_to_an_end() -> None:
    every = [f"n{i}" for i in range(12)]
    tangle: dict[str, Any] = {name: {"anyOf": [{"$ref": f"#/$defs/{other}"} for other in every]} for name in every}
    root: JSON = {"$ref": "#/$defs/n0", "$defs": tangle}
    assert len(find_kinds(root, SchemaRoot(root))) == 7
    assert list_names(root, SchemaRoot(root)) == list_required(root, SchemaRoot(root)) == []
    assert find_property_schemas(root, "x", SchemaRoot(root)) in (None, [])


@pytest.mark.parametrize("reference", ["#/a/1/b", "#/a/9", "#/a/x", "#anchor", "other.json", "", 5, None])
def test_a_reference_leads_somewhere_or_nothing_is_known(reference: Any) -> None:
    root: JSON = {"a": [{}, {"b": {"properties": {"q": TEXT}}}]}
    expected = [] if reference == "#/a/1/b" else None
    assert find_property_schemas({"$ref": reference}, "x", SchemaRoot(root)) == expected


def test_any_shape_can_be_looked_at() -> None:
    odd: list[Any] = [None, 5, "x", [], [5], {"x": 5}, True, False]
    words = ("type", "properties", "required", "anyOf", "allOf", "enum", "$ref", "then", "items")
    for word, value in itertools.product(words, odd):
        schema = {word: value}
        assert find_kinds(schema, SchemaRoot(schema)) is not None
        assert list_names(schema, SchemaRoot(schema)) is not None
        assert find_property_schemas(schema, "a", SchemaRoot(schema)) in (None, [])


LONG: JSON = {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(5_000)}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a0", "$defs": LONG},
        {"properties": {f"p{i}": {} for i in range(20_000)}, "required": ["x"] * 20_000},
        {"anyOf": [{"required": ["x"] * 200} for _ in range(200)]},
        {"allOf": [True] * 20_000},
        {"$ref": "#" + "/x" * 100_000},
        {"type": ["string"] * 20_000, "enum": list(range(20_000))},
    ],
    ids=["references", "names", "alternatives", "parts", "path", "values"],
)
def test_no_look_takes_more_steps_than_it_may(schema: JSON) -> None:
    looks = (
        find_kinds,
        list_names,
        list_required,
        find_values,
        find_items,
        lambda *both: find_property_schemas(both[0], "x", both[1]),
    )
    refused = 0
    for look in looks:
        try:
            look(schema, SchemaRoot(schema, StepBudget(5_000)))
        except SchemaTooComplex:
            refused += 1
    assert refused
