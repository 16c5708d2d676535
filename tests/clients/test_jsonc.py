import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from everkept.clients.config_files import UnexpectedShape
from everkept.clients.jsonc import NotJson, parse_text, remove_value, with_value

ENTRY = {"command": "/opt/everkept", "args": ["serve", "--project", "auto"]}

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-999, 999), st.floats(allow_nan=False, allow_infinity=False)
) | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=4), values, max_size=4)
comments = st.sampled_from(["// one\n", '// two, } ] "\r\n', "/* three */", "/* { four\n  , */", "//\n"])
blanks = st.sampled_from(["", " ", "\n", "\n  ", "\r\n\t", "  "])


@st.composite
def trivia(draw: st.DrawFn) -> str:
    parts = draw(st.lists(st.tuples(blanks, comments), max_size=2))
    return "".join(blank + comment for blank, comment in parts) + draw(blanks)


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """A value as somebody may have written it; nothing but comments where it is empty."""
    if not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=draw(st.booleans()))
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    if not value:
        inside = draw(trivia())
        return opening + (inside if "/" in inside else "") + closing
    items = (
        [(f"{json.dumps(key)}{draw(trivia())}:{draw(trivia())}", item) for key, item in value.items()]
        if isinstance(value, dict)
        else [("", item) for item in value]
    )
    texts = [f"{draw(trivia())}{lead}{draw(written(item))}{draw(trivia())}" for lead, item in items]
    end = "," + draw(trivia()) if draw(st.booleans()) else ""
    return opening + ",".join(texts) + end + closing


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    value = draw(objects)
    return draw(trivia()) + draw(written(value)) + draw(trivia()), value


@given(documents())
def test_comments_and_commas_at_the_end_do_not_count(document: tuple[str, dict[str, Any]]) -> None:
    text, value = document
    assert parse_text(text) == value


@given(documents(), st.sampled_from([["servers"], ["servers", "everkept"], ["a", "b", "c"]]))
def test_what_is_put_in_is_there_and_taking_it_out_gives_the_text_back(
    document: tuple[str, dict[str, Any]], path: list[str]
) -> None:
    text, value = document
    assume(path[0] not in value)
    changed = with_value(text, path, ENTRY)
    nested: Any = ENTRY
    for key in reversed(path[1:]):
        nested = {key: nested}
    assert parse_text(changed) == {**value, path[0]: nested}
    assert list(parse_text(changed)) == [*value, path[0]]
    assert remove_value(changed, path[:1]) == text


@given(documents(), objects)
def test_a_place_below_is_filled_and_emptied_just_as_well(
    document: tuple[str, dict[str, Any]], others: dict[str, Any]
) -> None:
    text, value = document
    assume("servers" not in value)
    assume("everkept" not in others)
    with_others = with_value(text, ["servers"], others)
    changed = with_value(with_others, ["servers", "everkept"], ENTRY)
    assert parse_text(changed) == {**value, "servers": {**others, "everkept": ENTRY}}
    assert remove_value(changed, ["servers", "everkept"]) == with_others


@given(documents(), st.data())
def test_taking_one_thing_out_leaves_the_others_and_their_comments(
    document: tuple[str, dict[str, Any]], data: st.DataObject
) -> None:
    text, value = document
    assume(value)
    key = data.draw(st.sampled_from(list(value)))
    changed = remove_value(text, [key])
    assert parse_text(changed) == {name: item for name, item in value.items() if name != key}
    assert with_value(changed, [key], 1) != changed


@given(documents(), st.data(), values)
def test_a_new_value_stands_where_the_old_one_stood(
    document: tuple[str, dict[str, Any]], data: st.DataObject, new: Any
) -> None:
    text, value = document
    assume(value)
    key = data.draw(st.sampled_from(list(value)))
    changed = with_value(text, [key], new)
    assert parse_text(changed) == {**value, key: new}
    assert list(parse_text(changed)) == list(value)
    assert with_value(changed, [key], new) == changed


@given(st.lists(values, max_size=4), st.data())
def test_a_list_takes_one_more_at_its_end(items: list[Any], data: st.DataObject) -> None:
    text = data.draw(written({"list": items}))
    changed = with_value(text, ["list", len(items)], ENTRY)
    assert parse_text(changed) == {"list": [*items, ENTRY]}
    assert remove_value(changed, ["list", len(items)]) == text


def test_an_entry_is_written_as_its_neighbours_are() -> None:
    text = '{\n\t"servers": {\n\t\t"one": {"command": "one"} // mine\n\t}\n}\n'
    assert with_value(text, ["servers", "two"], {"args": ["x"]}) == (
        '{\n\t"servers": {\n\t\t"one": {"command": "one"}, // mine\n\t\t"two": {\n\t\t\t"args": [\n'
        '\t\t\t\t"x"\n\t\t\t]\n\t\t}\n\t}\n}\n'
    )


def test_a_file_on_one_line_stays_on_one_line() -> None:
    text = '{"a": 1, "servers": {"one": {"args": []}}}'
    changed = with_value(text, ["servers", "two"], {"args": ["x"]})
    assert changed == '{"a": 1, "servers": {"one": {"args": []}, "two": {"args": ["x"]}}}'
    assert remove_value(changed, ["servers", "one"]) == '{"a": 1, "servers": {"two": {"args": ["x"]}}}'


def test_line_ends_of_windows_stay() -> None:
    changed = with_value('{\r\n  "a": 1\r\n}\r\n', ["b"], {"c": 1})
    assert changed == '{\r\n  "a": 1,\r\n  "b": {\r\n    "c": 1\r\n  }\r\n}\r\n'


def test_a_file_that_says_nothing_is_begun() -> None:
    assert parse_text("") == parse_text(" // nothing yet") == {}
    assert with_value("", ["a"], 1) == '{\n  "a": 1\n}\n'
    assert with_value("// mine", ["a"], 1) == '// mine\n{\n  "a": 1\n}\n'
    assert remove_value("", ["a"]) == ""


def test_taking_out_what_is_not_there_changes_nothing() -> None:
    text = '{"a": {"b": 1}, }'
    for path in (["c"], ["a", "c"], ["c", "d", "e"]):
        assert remove_value(text, path) == text


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{", "line 1, column 1"),
        ('{"a": 1 "b": 2}', "line 1, column 9"),
        ('{"a" 1}', "line 1, column 6"),
        ('{\n  "a": nothing\n}', "line 2, column 8"),
        ('{"a": NaN}', "line 1, column 7"),
        ("{a: 1}", "line 1, column 2"),
        ("{} {}", "line 1, column 4"),
        ('{"a": 1 /* open }', "line 1"),
        ('{"a": "\n"}', "line 1, column 7"),
        ("{,}", "line 1, column 2"),
        ("[" * 100_000, "deep"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(text: str, place: str) -> None:
    for act in (parse_text, lambda text: with_value(text, ["x"], 1), lambda text: remove_value(text, ["x"])):
        with pytest.raises(NotJson) as raised:
            act(text)
        assert place in str(raised.value)


@pytest.mark.parametrize(
    ("text", "path", "what"),
    [
        ("[]", ["a"], "the whole file is a list"),
        ("3", ["a"], "not contain an object"),
        ('{"servers": []}', ["servers", "a"], "servers is a list"),
        ('{"servers": null}', ["servers", "a"], "servers is empty"),
        ('{"servers": "x"}', ["servers", "a"], 'servers is "x"'),
        ('{"a": 1, "a": 2}', ["a"], '"a" occurs more than once'),
        ('{"hooks": {}}', ["hooks", 0], "hooks is an object"),
        ('{"hooks": [1]}', ["hooks", 3], "position 3"),
    ],
)
def test_a_surprising_shape_is_refused(text: str, path: list[str | int], what: str) -> None:
    with pytest.raises(UnexpectedShape) as raised:
        with_value(text, path, 1)
    assert what in str(raised.value)
