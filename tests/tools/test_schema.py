import json
from contextlib import suppress
from typing import Annotated, Any, Literal, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.errors import InvalidInput
from everkept.tools.schema import (
    Field,
    Parameter,
    build_object_parser,
    build_object_schema,
    build_parameter,
    build_value_schema,
    parse_value,
    to_json,
)
from everkept.values import Value, field


class Part(Value):
    from_: Annotated[str, Field("Where it starts.", name="from", max_length=10, blank=False)]
    kind: Annotated[Literal["big", "small"], Field("How large.", aliases=("size",))] = "big"
    notes: Annotated[list[str], Field(max_items=2)] = field(default_factory=list)
    weight: float | None = None


PARTS = (
    build_parameter("parts", list[Part]),
    build_parameter("limit", Annotated[int, Field("At most.", ge=1, le=5)], 3),
    build_parameter("loud", bool, default=False),
)


def parse_object(parameters: tuple[Parameter, ...], given_values: dict[str, Any]) -> Any:
    return build_object_parser(parameters)(given_values, "")


def parsed(**given_values: Any) -> Any:
    return parse_object(PARTS, given_values)


def test_a_schema_says_what_is_needed_and_what_is_assumed() -> None:
    assert build_object_schema(PARTS) == {
        "type": "object",
        "properties": {
            "parts": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "from": {"type": "string", "description": "Where it starts."},
                        "kind": {
                            "type": "string",
                            "enum": ["big", "small"],
                            "description": "How large.",
                            "default": "big",
                        },
                        "notes": {"type": "array", "items": {"type": "string"}, "default": []},
                        "weight": {"type": "number"},
                    },
                    "required": ["from"],
                },
            },
            "limit": {"type": "integer", "description": "At most.", "minimum": 1, "maximum": 5, "default": 3},
            "loud": {"type": "boolean", "default": False},
        },
        "required": ["parts"],
        "additionalProperties": False,
    }


def test_values_come_out_typed_and_with_their_defaults() -> None:
    values = parsed(parts=[{"from": "a", "size": "small"}], limit=2.0)
    assert values == {"parts": [Part("a", "small")], "limit": 2, "loud": False}
    assert isinstance(values["limit"], int)


@pytest.mark.parametrize(
    ("arguments", "argument", "words"),
    [
        ({}, "parts", ["required"]),
        ({"parts": "x"}, "parts", ["list", '"x"']),
        ({"parts": [3]}, "parts[0]", ["object", "3"]),
        ({"parts": [{"from": 3}]}, "parts[0].from", ["text", "3"]),
        ({"parts": [{}]}, "parts[0].from", ["required"]),
        ({"parts": [{"from": ""}]}, "parts[0].from", ["empty"]),
        ({"parts": [{"from": "  "}]}, "parts[0].from", ["empty"]),
        ({"parts": [{"from": "x" * 11}]}, "parts[0].from", ["11", "10"]),
        ({"parts": [{"from": "a\0b"}]}, "parts[0].from", ["U+0000"]),
        ({"parts": [{"from": "a\ud800"}]}, "parts[0].from", ["U+D800"]),
        ({"parts": [{"from": "a", "kind": "huge"}]}, "parts[0].kind", ["huge", "big, small"]),
        ({"parts": [{"from": "a", "notes": ["x"] * 3}]}, "parts[0].notes", ["3", "2"]),
        ({"parts": [], "limit": 0}, "limit", ["0", "at least 1"]),
        ({"parts": [], "limit": 6}, "limit", ["6", "at most 5"]),
        ({"parts": [], "limit": 1.5}, "limit", ["whole number", "1.5"]),
        ({"parts": [], "limit": float("inf")}, "limit", ["finite number"]),
        ({"parts": [], "limit": True}, "limit", ["whole number", "true"]),
        ({"parts": [], "limit": None}, "limit", ["whole number", "null"]),
        ({"parts": [], "loud": 1}, "loud", ["true or false", "1"]),
    ],
)
def test_a_wrong_value_is_named_with_its_place(arguments: dict[str, Any], argument: str, words: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_object(PARTS, arguments)
    assert caught.value.facts["argument"] == argument
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        ({"parts": [], "limt": 3}, "`limit`"),
        ({"parts": [{"form": "a"}]}, "`from`"),
        ({"parts": [], "zzz": 3}, "parts, limit, loud"),
    ],
)
def test_an_unknown_argument_is_refused_with_the_nearest_known_name(arguments: dict[str, Any], suggestion: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_object(PARTS, arguments)
    assert suggestion in str(caught.value)


def test_an_argument_given_under_two_names_is_refused() -> None:
    with pytest.raises(InvalidInput):
        parsed(parts=[{"from": "a", "kind": "big", "size": "small"}])


def test_an_error_shows_the_beginning_of_a_value_and_never_all_of_it() -> None:
    for arguments in ({"parts": "x" * 10**6}, {"parts": [], "limit": ["y" * 10**6]}):
        with pytest.raises(InvalidInput) as caught:
            parse_object(PARTS, arguments)
        assert len(json.dumps(caught.value.to_envelope())) < 1_000


def test_optional_values_may_be_null() -> None:
    assert parsed(parts=[{"from": "a", "weight": None}])["parts"][0].weight is None


def test_results_leave_out_what_is_none_and_use_the_names_of_the_wire() -> None:
    assert to_json([Part("a")]) == [{"from": "a", "kind": "big", "notes": []}]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["parts", "limit", "loud", "x"]), json_values))
def test_any_json_is_either_taken_or_refused_as_invalid_input(arguments: dict[str, Any]) -> None:
    with suppress(InvalidInput):
        values = parse_object(PARTS, arguments)
        assert all(isinstance(part, Part) for part in values["parts"])


@given(st.builds(Part, from_=st.text("abc", min_size=1, max_size=10)))
def test_what_is_written_is_read_again(part: Part) -> None:
    assert parse_value(Part, to_json(part)) == part


def test_a_result_type_has_a_schema_of_its_own() -> None:
    assert build_value_schema(list[Part])["items"]["properties"]["from"]["type"] == "string"


Word = Annotated[str, Field(max_length=5)]


class Change(Value):
    add: list[Word] | None = None


CHANGES = (
    build_parameter("colours", Annotated[list[Literal["red", "blue"]], Field("Which.", one_or_more=True)] | None, None),
    build_parameter("tags", Annotated[Change | list[Word], Field("New ones.")] | None, None),
    build_parameter("since", Annotated[int, Field("Not before.", moment=True)] | None, None),
    build_parameter("share", Annotated[float, Field(ge=0, le=0.5)], 0.1),
    build_parameter("extra", Annotated[dict[str, Any], Field(max_length=50)] | None, None),
)


def changed(**given_values: Any) -> Any:
    return parse_object(CHANGES, given_values)


def test_a_list_may_be_given_as_its_only_item() -> None:
    assert changed(colours="red")["colours"] == ["red"]
    assert changed(colours=["red", "blue"])["colours"] == ["red", "blue"]
    word = {"type": "string", "enum": ["red", "blue"]}
    assert build_object_schema(CHANGES)["properties"]["colours"] == {
        "oneOf": [word, {"type": "array", "items": word}],
        "description": "Which.",
    }


def test_a_union_takes_each_of_its_forms_and_advertises_the_first() -> None:
    assert changed(tags={"add": ["a"]})["tags"] == Change(["a"])
    assert changed(tags=["a"])["tags"] == ["a"]
    assert changed(tags=None)["tags"] is None
    assert build_object_schema(CHANGES)["properties"]["tags"] == {
        "type": "object",
        "properties": {"add": {"type": "array", "items": {"type": "string"}}},
        "description": "New ones.",
    }


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1970-01-02", 86_400_000_000),
        ("1970-01-01T00:00:01Z", 1_000_000),
        (" 1970-01-01T01:00:00+01:00 ", 0),
        ("1970-01-01 00:00:00.5", 500_000),
    ],
)
def test_a_moment_is_text_outside_and_microseconds_inside(text: str, moment: int) -> None:
    assert changed(since=text)["since"] == moment
    schema = build_object_schema(CHANGES)["properties"]["since"]
    assert schema == {"type": "string", "format": "date-time", "description": "Not before."}


@pytest.mark.parametrize(
    ("arguments", "argument", "words"),
    [
        ({"colours": "green"}, "colours", ["green", "red, blue"]),
        ({"colours": [1]}, "colours[0]", ["1"]),
        ({"tags": "a"}, "tags", ["object", '"a"']),
        ({"tags": ["a", "toolong"]}, "tags[1]", ["7", "5"]),
        ({"tags": {"add": "a"}}, "tags.add", ["list"]),
        ({"since": "yesterday"}, "since", ["yesterday", "2026-02-20"]),
        ({"since": 3}, "since", ["time", "3"]),
        ({"since": ""}, "since", ["not a date"]),
        ({"share": 0.6}, "share", ["0.6", "at most 0.5"]),
        ({"share": 10**400}, "share", ["at most 0.5"]),
        ({"extra": [1]}, "extra", ["object"]),
        ({"extra": {"a": "x" * 60}}, "extra", ["50"]),
        ({"extra": {"a": ["\0"]}}, "extra.a[0]", ["U+0000"]),
        ({"extra": {"a\0": 1}}, "extra", ["U+0000"]),
        ({"extra": {"a": float("nan")}}, "extra.a", ["finite"]),
    ],
)
def test_a_wrong_form_is_named_with_its_place(arguments: dict[str, Any], argument: str, words: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_object(CHANGES, arguments)
    assert caught.value.facts["argument"] == argument
    assert all(word in str(caught.value) for word in words)


def test_objects_are_taken_as_they_are_unless_they_are_bottomless() -> None:
    assert changed(extra={"a": [1, {"b": None}]})["extra"] == {"a": [1, {"b": None}]}
    deep: Any = 1
    for _ in range(30):
        deep = [deep]
    with pytest.raises(InvalidInput, match="nested"):
        changed(extra={"a": deep})


@pytest.mark.parametrize("number", [2**53 + 1, -(2**60), 10**400])
def test_a_whole_number_past_what_json_can_carry_is_refused(number: int) -> None:
    with pytest.raises(InvalidInput):
        parse_object((build_parameter("n", int),), {"n": number})


@given(st.dictionaries(st.sampled_from(["colours", "tags", "since", "share", "extra"]), json_values, max_size=5))
def test_any_json_is_taken_or_refused_in_every_form(arguments: dict[str, Any]) -> None:
    with suppress(InvalidInput):
        parse_object(CHANGES, arguments)


class Whole(Value):
    parts: tuple[Part, ...]
    names: tuple[str, ...]
    facets: dict[str, Any]
    anything: Any
    best: Part | None = None
    only: "Whole | None" = None


class Labelled(Part):
    label: str = "red"


class Empty(Value):
    pass


class Single(Value):
    words: list[str] | None = None


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Empty(), {}),
        (Single(), {}),
        (Single(["x"]), {"words": ["x"]}),
        ([Empty(), None, 1, "x", (True, 1.5)], [{}, None, 1, "x", [True, 1.5]]),
        (
            Whole((Part("a"), Labelled("b")), ("x",), {"k": Single()}, Single([]), only=None),
            {
                "parts": [
                    {"from": "a", "kind": "big", "notes": []},
                    {"from": "b", "kind": "big", "notes": [], "label": "red"},
                ],
                "names": ["x"],
                "facets": {"k": {}},
                "anything": {"words": []},
            },
        ),
        (
            Whole((), (), {}, None, Part("c", weight=0.0), Whole((), (), {}, (1,))),
            {
                "parts": [],
                "names": [],
                "facets": {},
                "best": {"from": "c", "kind": "big", "notes": [], "weight": 0.0},
                "only": {"parts": [], "names": [], "facets": {}, "anything": [1]},
            },
        ),
    ],
)
def test_results_become_plain_values_however_they_are_nested(value: Any, plain: Any) -> None:
    assert to_json(value) == plain


def test_types_are_looked_at_for_the_first_value_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []

    def look(annotation: Any) -> Any:
        looked.append(annotation)
        return get_origin(annotation)

    monkeypatch.setattr("everkept.tools.schema.get_origin", look)
    parse = build_object_parser((build_parameter("wholes", list[Whole]),))
    part = {"from": "a", "notes": ["x"], "weight": 1}
    whole = {"parts": [part, part], "names": ["n"], "facets": {}, "anything": 1, "best": part}
    for number in range(3):
        looked.clear()
        values = parse({"wholes": [whole, {**whole, "only": whole}]}, "")
        assert to_json(values["wholes"])[0]["parts"][1]["from"] == "a"
        assert (len(looked) == 0) is (number > 0)
