from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.families.gateway.model import JSON
from everkept.families.gateway.schema_check import find_mistake
from everkept.families.gateway.schema_facts import SchemaRoot, SchemaTooComplex, StepBudget
from examples import examples

TYPES = ["string", "number", "integer", "boolean", "array", "object", "null"]
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.text("ab")
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner), max_leaves=6
)
LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, unique=True),
    "enum": st.lists(SCALARS, min_size=1, max_size=3, unique_by=repr),
    "const": SCALARS,
    "minimum": st.integers(-3, 3),
    "maximum": st.floats(-3, 3),
    "exclusiveMinimum": st.integers(-3, 3),
    "exclusiveMaximum": st.integers(-3, 3),
    "multipleOf": st.integers(1, 3),
    "minLength": st.integers(0, 3),
    "maxLength": st.integers(0, 3),
    "minItems": st.integers(0, 3),
    "maxItems": st.integers(0, 3),
    "minProperties": st.integers(0, 3),
    "maxProperties": st.integers(0, 3),
    "uniqueItems": st.booleans(),
    "required": st.lists(st.sampled_from("abc"), unique=True),
    "$ref": st.sampled_from(["#/$defs/x", "#/$defs/y"]),
}
OTHERS: dict[str, st.SearchStrategy[Any]] = {
    "pattern": st.sampled_from(["^a", "b$", "^(a+)+$"]),
    "format": st.sampled_from(["date", "regex", "email"]),
}


def schemas(leaves: dict[str, st.SearchStrategy[Any]], *more: str) -> st.SearchStrategy[Any]:
    def whole(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        single = ("items", "additionalProperties", *more)
        return st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(single, inner)
            | {
                "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
                "anyOf": st.lists(inner, min_size=1, max_size=3),
                "allOf": st.lists(inner, min_size=1, max_size=3),
                "prefixItems": st.lists(inner, min_size=1, max_size=2),
            }
            | leaves,
        )

    plain = st.fixed_dictionaries({}, optional=leaves)
    return st.recursive(st.booleans() | plain, whole, max_leaves=6)


def rooted(schema: Any, x: Any, y: Any) -> JSON:
    return {"allOf": [schema], "$defs": {"x": x, "y": {"anyOf": [y, {"type": "null"}]}}}


def fits(schema: JSON, value: Any) -> bool | None:
    """By another validator; None where that finds no end."""
    try:
        return jsonschema.Draft202012Validator(schema).is_valid(value)
    except RecursionError:
        return None


@settings(max_examples=examples(300), deadline=None)
@given(schemas(LEAVES), schemas(LEAVES), schemas(LEAVES), VALUES)
def test_a_mistake_is_found_where_another_validator_finds_one(schema: Any, x: Any, y: Any, value: Any) -> None:
    root = rooted(schema, x, y)
    try:
        found = find_mistake(value, root, SchemaRoot(root))
    except SchemaTooComplex:
        return  # it refers to itself
    if found is None:
        assert fits(root, value) is not False or _is_about_whole_values(root)
    else:
        assert not fits(root, value)


def _is_about_whole_values(schema: JSON) -> bool:
    """Lists and objects are not compared, nor are decimals divided."""
    text = repr(schema)
    return "uniqueItems" in text or "multipleOf" in text


@settings(max_examples=examples(300), deadline=None)
@given(
    schemas(LEAVES | OTHERS, "not", "if", "then", "else", "contains", "propertyNames"), schemas(LEAVES | OTHERS), VALUES
)
def test_what_is_left_to_others_is_never_called_a_mistake(schema: Any, x: Any, value: Any) -> None:
    root = rooted(schema, x, {})
    try:
        found = find_mistake(value, root, SchemaRoot(root))
    except SchemaTooComplex:
        return
    assert found is None or not fits(root, value)


@pytest.mark.parametrize(
    ("schema", "value", "path", "keyword"),
    [
        ({"required": ["a"], "properties": {"b": False}}, {"b": 1}, (), "required"),
        ({"properties": {"b": {"items": {"type": "string"}}}}, {"b": ["", 1]}, ("b", 1), "type"),
        ({"anyOf": [{"type": "null"}, {"type": "string", "minLength": 2}]}, "x", (), "minLength"),
        ({"oneOf": [{"type": "null"}, {"required": ["a"]}]}, {}, (), "required"),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, 5, (), "anyOf"),
        ({"anyOf": [{"minimum": 7}, {"minimum": 8}]}, 5, (), "anyOf"),
        ({"items": [{"type": "string"}]}, [1, 1], (0,), "type"),
        ({"minimum": 0, "exclusiveMinimum": True}, 0, (), "exclusiveMinimum"),
        ({"uniqueItems": True}, [1, "1", True, 1.0], (), "uniqueItems"),
        ({"additionalProperties": False}, {"x": 1}, (), "additionalProperties"),
    ],
)
def test_the_first_mistake_is_named_by_place_and_keyword(
    schema: JSON, value: Any, path: tuple[str | int, ...], keyword: str
) -> None:
    found = find_mistake(value, schema, SchemaRoot(schema))
    assert found is not None
    assert (found.path, found.keyword) == (path, keyword)


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "^(a+)+$"},
        {"patternProperties": {"^(a+)+$": False}, "additionalProperties": False},
        {"propertyNames": {"pattern": "^(a+)+$"}},
        {"format": "regex"},
        {"oneOf": [{}, {}]},
        {"not": {}},
        {"$ref": "https://example.org/schema.json"},
        {"$ref": "file:///etc/hostname"},
        {"$ref": "#/gone"},
        {"minimum": "5", "required": 3, "enum": {}, "properties": [], "items": 5, "type": "words"},
    ],
)
def test_what_is_not_ours_to_say_is_left_to_the_server(schema: JSON) -> None:
    for value in ("a" * 100 + "!", {"a" * 100 + "!": 1}, [1], 5):
        assert find_mistake(value, schema, SchemaRoot(schema)) is None


ENDLESS: JSON = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}
DOUBLED: JSON = {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i - 1}"}] * 2} for i in range(1, 40)}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (ENDLESS, 5),
        ({"$ref": "#/$defs/a39", "$defs": DOUBLED}, 5),
        ({"items": {"type": "integer"}}, list(range(5_000))),
        ({"items": {"enum": list("abcdefgh") * 100 + [1]}}, [1] * 5_000),
        ({"uniqueItems": True}, list(range(5_000))),
        ({"required": ["a"] * 5_000}, {"a": 1}),
        ({"additionalProperties": {"type": "integer"}}, {str(i): i for i in range(5_000)}),
    ],
    ids=["alternatives", "parts", "items", "values", "unique", "required", "keys"],
)
def test_no_check_takes_more_steps_than_it_may(schema: JSON, value: Any) -> None:
    with pytest.raises(SchemaTooComplex):
        find_mistake(value, schema, SchemaRoot(schema, StepBudget(2_000)))


def test_a_value_that_is_nested_without_end_is_left_to_the_server() -> None:
    deep: JSON = {}
    for _ in range(10_000):
        deep = {"x": deep}
    schema: JSON = {"properties": {"x": {"$ref": "#"}}}
    with pytest.raises(SchemaTooComplex):
        find_mistake(deep, schema, SchemaRoot(schema))
