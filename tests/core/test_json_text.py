import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.json_text import MAX_DEPTH, JsonDocument, NotJson, parse_json

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-999, 999)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)


@given(values, st.sampled_from([None, 0, 2, "\t"]))
def test_a_document_has_the_value_that_was_written(value: Any, indent: int | str | None) -> None:
    assert JsonDocument(json.dumps(value, indent=indent)).value == value


@given(st.text() | st.text(st.sampled_from('{}[]",:1 /*\\\n\ufeff')))
def test_any_text_is_a_document_or_refused_inside_its_lines(text: str) -> None:
    found = document_or_refusal(text)
    if isinstance(found, NotJson):
        assert 1 <= found.line <= text.count("\n") + 1
        assert found.column >= 1
    else:
        assert found.value == parse_json(text.removeprefix("\ufeff"))


def document_or_refusal(text: str) -> JsonDocument | NotJson:
    try:
        return JsonDocument(text)
    except NotJson as error:
        return error


@given(st.lists(st.text(max_size=5), unique=True, min_size=1, max_size=5), st.integers(0, 3))
def test_each_key_of_an_object_in_lines_has_its_own_line(keys: list[str], above: int) -> None:
    text = "// a comment\n" * above + json.dumps({key: [1, 2] for key in keys}, indent=1)
    document = JsonDocument(text)
    lines = [document.find_line((key,)) for key in keys]
    assert lines == [above + 2 + 4 * number for number in range(len(keys))]
    assert [document.find_line((keys[0], index)) for index in range(2)] == [lines[0] + 1, lines[0] + 2]


TEXT = """\
// what it is
{
  "a": 1, /* two
  lines */ "b": {
    "c":
      [
        true,
        {"d": null,}, // the end
      ]
  }
}
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), 2),
        (("a",), 3),
        (("b",), 4),
        (("b", "c"), 5),
        (("b", "c", 0), 7),
        (("b", "c", 1), 8),
        (("b", "c", 1, "d"), 8),
    ],
)
def test_the_line_of_a_place_is_that_of_its_key(path: tuple[str | int, ...], line: int) -> None:
    assert JsonDocument(TEXT).find_line(path) == line


def test_a_place_that_is_not_there_has_the_line_of_the_last_one_above_it() -> None:
    document = JsonDocument(TEXT)
    assert document.find_line(("b", "x", "y")) == document.find_line(("b",))
    assert document.find_line(("b", "c", 7)) == document.find_line(("b", "c"))
    assert document.find_line(("nothing",)) == document.find_line(())


def test_a_key_that_is_there_twice_is_told_with_both_lines_and_the_last_one_counts() -> None:
    document = JsonDocument('{"x": [{"a": 1,\n"b": 2,\n"a": 3}],\n"x": 4, "y": {"q": 1,\n"q": 1}}')
    assert [(again.path, again.line, again.first_line) for again in document.repeated] == [
        (("x",), 4, 1),
        (("y", "q"), 5, 4),
    ]
    assert document.value == {"x": 4, "y": {"q": 1}}


def test_a_mark_at_the_beginning_does_not_count() -> None:
    document = JsonDocument('\ufeff{\n"a": 1}')
    assert document.value == {"a": 1}
    assert document.find_line(("a",)) == 2


@pytest.mark.parametrize(
    ("text", "line", "column", "word"),
    [
        ("", 1, 1, "empty"),
        ("// nothing\n", 1, 1, "empty"),
        ('{"a": 1e999}', 1, 7, "too large"),
        ('{\n "a": NaN}', 2, 7, "a value cannot"),
        ('{"a": 1\n"b": 2}', 2, 1, "comma"),
        ('{"a" 1}', 1, 6, "colon"),
        ("{a: 1}", 1, 2, "quotes"),
        ('{"a": "b}', 1, 7, "quotes are not closed"),
        ('{"a": "b\nc"}', 1, 7, "backslash"),
        ('{"a": [1, 2}', 1, 12, "comma"),
        ('{"a": [1, 2\n', 1, 7, "bracket"),
        ('{"a":', 1, 6, "missing"),
        ('{"a": 1} x', 1, 10, "follows the end"),
        ('{"\\q": 1}', 1, 2, "name"),
        ("/* never closed", 1, 1, "a value cannot"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), 1, MAX_DEPTH + 1, "brackets"),
        ("[" * 100_000, 1, MAX_DEPTH + 1, "brackets"),
        ('{"a":' * 100_000, 1, MAX_DEPTH * 5 + 1, "brackets"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(text: str, line: int, column: int, word: str) -> None:
    with pytest.raises(NotJson) as refused:
        JsonDocument(text)
    assert (refused.value.line, refused.value.column) == (line, column)
    assert word in refused.value.reason
    assert str(refused.value) == f"line {line}, column {column}: {refused.value.reason}"


def test_as_many_brackets_as_are_allowed_can_be_read() -> None:
    assert JsonDocument("[" * MAX_DEPTH + "]" * MAX_DEPTH).find_line([0] * (MAX_DEPTH - 1)) == 1
