import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.errors import InvalidInput
from everkept.upstreams.messages import Unreadable, read, written

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    LEAVES | st.text(st.characters(exclude_categories=())),  # half characters too
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(VALUES)
def test_what_is_written_is_read_as_it_was(value: Any) -> None:
    message = written({"id": 1, "params": value})
    assert repr(read(message)) == repr({"jsonrpc": "2.0", "id": 1, "params": value})
    assert b"\n" not in message


@pytest.mark.parametrize("wrong", [float("nan"), float("-inf"), "deep"])
def test_what_json_cannot_say_is_not_written(wrong: Any) -> None:
    if wrong == "deep":
        wrong = []
        for _ in range(100_000):
            wrong = [wrong]
    with pytest.raises(InvalidInput):
        written({"params": wrong})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"NaN", "NaN is no number of JSON"),
        (b"[-Infinity]", "-Infinity is no number"),
        (b'{"a": 1e999}', "1e999 is too large"),
        (b"1" * 999 + b".0e9", "too large"),
        (b"1" * 5000, "more than 4,300 digits"),
        (b"[" * 100_000, "too deep"),
        (b"\xff", "UTF-8"),
        (b"{", "Expecting property name"),
        ("", "Expecting value"),
    ],
)
def test_what_cannot_be_passed_on_is_refused_in_few_words(text: bytes | str, why: str) -> None:
    with pytest.raises(Unreadable, match=why) as caught:
        read(text)
    assert len(str(caught.value)) < 120


def test_half_a_character_is_read() -> None:
    assert read(json.dumps("\ud800")) == "\ud800"
