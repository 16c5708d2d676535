import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.cli.gateway_call import parse_arguments
from everkept.errors import InvalidInput

JSON = dict[str, Any]

ENTITY: JSON = {"type": "object", "properties": {"name": {"type": "string"}}}
SCHEMA: JSON = {
    "type": "object",
    "properties": {
        "query": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "text": {"type": "string"},
        "limit": {"type": "number"},
        "count": {"type": "integer"},
        "deep": {"type": "boolean"},
        "mode": {"enum": ["both", "text", 3]},
        "filters": {"type": "object"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "entities": {"type": "array", "items": {"$ref": "#/$defs/entity"}},
        "maybe": {"type": ["string", "null"]},
        "gone": {"type": ["number", "null"]},
        "short": {"allOf": [{"type": "string"}, {"minLength": 2}]},
        "named": {"$ref": "#/$defs/text", "description": "by reference"},
        "endless": {"$ref": "#/$defs/endless"},
        "either": {"anyOf": [{"type": "string"}, {"type": "object"}]},
        "anything": {},
        "literal": {"anyOf": [{"const": "7"}, {"const": 8}]},
        "never": False,
    },
    "$defs": {"entity": ENTITY, "text": {"type": "string"}, "endless": {"anyOf": [{"$ref": "#/$defs/endless"}]}},
}


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["text=7"], {"text": "7"}),
        (["text=a=b"], {"text": "a=b"}),
        (["text="], {"text": ""}),
        (["limit=2.5", "count=3"], {"limit": 2.5, "count": 3}),
        (["limit=2"], {"limit": 2}),
        (["deep=true"], {"deep": True}),
        (["mode=both"], {"mode": "both"}),
        (["mode=3"], {"mode": 3}),
        (["mode=4"], {"mode": "4"}),
        (['filters={"a": [1]}'], {"filters": {"a": [1]}}),
        (["tags=tea"], {"tags": ["tea"]}),
        (["tags=tea", "tags=7"], {"tags": ["tea", "7"]}),
        (['tags=["tea", "milk"]'], {"tags": ["tea", "milk"]}),
        (["sizes=1", "sizes=2"], {"sizes": [1, 2]}),
        (['entities={"name": "Ada"}'], {"entities": [{"name": "Ada"}]}),
        (["query=tea"], {"query": "tea"}),
        (["query=12"], {"query": "12"}),
        (["query=tea", "query=milk"], {"query": ["tea", "milk"]}),
        (['query=["tea", "milk"]'], {"query": ["tea", "milk"]}),
        (["maybe=null"], {"maybe": "null"}),
        (["gone=null"], {"gone": None}),
        (["short=12"], {"short": "12"}),
        (["named=12"], {"named": "12"}),
        (["endless=12"], {"endless": 12}),
        (['either={"a": 1}'], {"either": {"a": 1}}),
        (["either=[1]"], {"either": "[1]"}),
        (["anything=12"], {"anything": 12}),
        (["literal=7"], {"literal": "7"}),
        (["literal=8"], {"literal": 8}),
        (["anything=tea"], {"anything": "tea"}),
        (['{"text": "tea", "limit": 1}', "limit=2"], {"text": "tea", "limit": 2}),
        ([], {}),
    ],
)
def test_what_is_typed_is_read_by_the_schema(words: list[str], wanted: JSON) -> None:
    assert parse_arguments(words, SCHEMA) == wanted


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["limit=ten"], "`limit` must be a number, not 'ten'"),
        (["limit=NaN"], "`limit` must be a number"),
        (["count=2.5"], "`count` must be a whole number"),
        (["deep=1"], "`deep` must be true or false"),
        (["filters=x"], "`filters` must be an object"),
        (["sizes=1", "sizes=x"], "`sizes` must be a whole number"),
        (["text=a", "text=b"], "`text` takes one value"),
        (["gone=x"], "`gone` must be a number or null"),
        (["limt=1"], "Unknown argument `limt`. Did you mean `limit`?"),
        (["never=1"], "Unknown argument `never`"),
        (["tea"], "'tea' is not key=value or a JSON object"),
        (["{broken"], "is not a JSON object"),
        (["[" * 100_000 + "=1"], "Unknown argument"),
        ([f"limit={'[' * 100_000}"], "`limit` must be a number"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(words: list[str], told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_arguments(words, SCHEMA)
    assert told in str(refused.value)


def test_words_without_a_key_are_the_one_argument_that_is_required() -> None:
    properties: JSON = {"query": {"type": "string"}, "limit": {"type": "number"}}
    one: JSON = {"properties": properties, "required": ["query"]}
    assert parse_arguments(["Ada", "L.", "limit=5"], one) == {"query": "Ada L.", "limit": 5}
    number: JSON = {"properties": properties, "required": ["limit"]}
    assert parse_arguments(["5"], number) == {"limit": 5}
    for wrong in (["5", "6"], ["5", "limit=6"]):
        with pytest.raises(InvalidInput, match="takes one value"):
            parse_arguments(wrong, number)
    with pytest.raises(InvalidInput, match="not key=value"):
        parse_arguments(["Ada"], one | {"required": ["query", "limit"]})


def test_an_open_schema_takes_other_arguments() -> None:
    numbers: JSON = {"properties": {"a": {}}, "additionalProperties": {"type": "integer"}}
    assert parse_arguments(["other=5"], numbers) == {"other": 5}
    assert parse_arguments(["other=5"], {"type": "object"}) == {"other": 5}
    patterns: JSON = {"properties": {"a": {}}, "patternProperties": {"^x": {"type": "string"}}}
    assert parse_arguments(["other=tea"], patterns) == {"other": "tea"}
    with pytest.raises(InvalidInput, match="takes no arguments"):
        parse_arguments(["other=5"], {"type": "object", "additionalProperties": False})


def test_what_is_too_intricate_takes_anything() -> None:
    many = {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(5_000)}
    hidden: JSON = {"properties": {"x": {"$ref": "#/$defs/a0"}, "y": {"type": "string"}}}
    assert parse_arguments(["x=5", "x=tea"], hidden | {"$defs": many}) == {"x": [5, "tea"]}
    whole: JSON = {"$ref": "#/$defs/a0", "$defs": many}
    assert parse_arguments(["x=5"], whole) == {"x": 5}


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(list(SCHEMA["properties"])), _VALUES))
def test_an_object_goes_as_it_is(whole: JSON) -> None:
    assert parse_arguments([json.dumps(whole)], SCHEMA) == whole


@given(st.text())
def test_a_text_goes_as_it_is(text: str) -> None:
    assert parse_arguments([f"text={text}"], SCHEMA) == {"text": text}
