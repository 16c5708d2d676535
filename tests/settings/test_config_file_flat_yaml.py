from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.settings.config_file import ConfigEntry, ConfigLineError, parse_entries


def values(text: str) -> dict[str, object]:
    return {entry.key: entry.value for entry in parse_entries(text.splitlines())}


def test_scalars_stay_text_and_know_their_line() -> None:
    assert parse_entries(["", "# a comment", "port: 8081", "read-only:  true  # of course"], 2) == [
        ConfigEntry("port", "8081", 4),
        ConfigEntry("read_only", "true", 5),
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: plain text", "plain text"),
        ("a: 'it''s # no comment'", "it's # no comment"),
        ('a: "tab\\t, quote\\", \\u00e4"  # comment', 'tab\t, quote", ä'),
        ("a: C:\\data\\x", "C:\\data\\x"),
        ("a: 'C:\\data'", "C:\\data"),
        ("a: http://x#y", "http://x#y"),
        ("a: ~/x", "~/x"),
        ("a: ''", ""),
        ("a:", None),
        ("a: ~", None),
        ("a: null # nothing", None),
        ("a: []", []),
        ("a: [x, 'y, z', \"w\"]  # three", ["x", "y, z", "w"]),
        ("a:\n  - x\n  - 'y'\n", ["x", "y"]),
        ("a:\n- x\n# between\n- y", ["x", "y"]),
    ],
)
def test_values_are_read_as_yaml_has_them(text: str, value: object) -> None:
    assert values(text) == {"a": value}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("no colon", 1),
        ("a: 1\n  b: 2", 2),
        ("a:b", 1),
        ("- x", 1),
        ("a: x\n- y", 2),
        ("a: 'open", 1),
        ("a: 'x' y", 1),
        ("\na: [x", 2),
        ("a: {b: c}", 1),
        ("a: |", 1),
        ("a: &anchor x", 1),
        ('a: "C:\\data"', 1),
    ],
)
def test_what_is_not_understood_is_told_with_its_line(text: str, line: int) -> None:
    with pytest.raises(ConfigLineError) as caught:
        parse_entries(text.splitlines())
    assert caught.value.line == line
    assert caught.value.reason


@given(st.text())
def test_single_quotes_keep_any_line(text: str) -> None:
    line = "".join(text.splitlines())
    assert values("a: '" + line.replace("'", "''") + "'") == ({"a": line})


@given(st.lists(st.text(), max_size=5))
def test_any_text_is_read_or_refused(lines: list[str]) -> None:
    with suppress(ConfigLineError):
        assert len(parse_entries(lines)) <= len(lines)
