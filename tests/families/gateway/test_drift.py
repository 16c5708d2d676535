from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.families.gateway.drift import SchemaMisfit, SchemaSide, find_misfits
from everkept.families.gateway.schema_facts import SchemaRoot

TYPES = ["string", "number", "integer", "boolean", "array", "object", "null"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-4, 4) | st.floats(-4, 4) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=1), inner),
    max_leaves=5,
)
SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, unique=True),
            "minimum": st.integers(-3, 3),
            "exclusiveMaximum": st.integers(-3, 3),
            "maxLength": st.integers(0, 3),
            "minItems": st.integers(0, 2),
            "enum": st.lists(VALUES, min_size=1, max_size=3, unique_by=repr),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "items": inner,
            "properties": st.dictionaries(st.sampled_from("ab"), inner),
            "required": st.lists(st.sampled_from("ab"), unique=True),
        },
    ),
    max_leaves=4,
)


def found(ours: Any, theirs: Any) -> list[SchemaMisfit]:
    return list(find_misfits(SchemaSide(ours, SchemaRoot(ours)), SchemaSide(theirs, SchemaRoot(theirs))))


@settings(deadline=None)
@given(SCHEMAS, SCHEMAS, VALUES)
def test_what_both_take_is_never_said_to_be_of_another_kind(ours: Any, theirs: Any, value: Any) -> None:
    sides = SchemaSide(ours, SchemaRoot(ours)), SchemaSide(theirs, SchemaRoot(theirs))
    if not any(side.is_refused(value) for side in sides):
        assert not [
            m for m in found(ours, theirs) if (m.level, m.place) == ("error", "") and m.message.startswith("takes")
        ]


@settings(deadline=None)
@given(SCHEMAS)
def test_a_schema_fits_itself(schema: Any) -> None:
    assert found(schema, schema) == []


def test_a_schema_inside_itself_comes_to_an_end() -> None:
    tree = {
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "right": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    }
    other = {**tree, "required": ["left"]}
    assert found(tree, tree) == []
    assert {m.level for m in found(tree, other)} == {"warning"}


def test_a_schema_that_is_none_refuses_nothing() -> None:
    for odd in ({"type": 5}, {"$ref": "https://example.org/x"}, {"required": 3, "enum": 4}, 5):
        assert not SchemaSide(odd, SchemaRoot({})).is_refused(5)
