import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.mcp import encode, encode_small, encode_utf8

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=())),  # unpaired surrogates too
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(PLAIN)
def test_both_encoders_write_what_reads_back_as_the_same(value: Any) -> None:
    for data in (encode_utf8(value), encode_small(value)):
        assert json.loads(data) == value


@pytest.mark.parametrize("encoder", [encode_utf8, encode_small])
def test_the_text_is_compact_and_not_escaped(encoder: Any) -> None:
    assert encoder({"a": [1, "ä"], "b": None}) == '{"a":[1,"ä"],"b":null}'.encode()


@pytest.mark.parametrize("encoder", [encode_utf8, encode_small])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_is_refused(encoder: Any, number: float) -> None:
    for value in (number, {"a": number}, [1, number], [number, 1]):
        with pytest.raises(ValueError, match="not JSON compliant"):
            encoder(value)


@pytest.mark.parametrize("encoder", [encode_utf8, encode_small])
def test_what_is_not_json_is_refused(encoder: Any) -> None:
    with pytest.raises(TypeError):
        encoder({"a": object()})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**64, "18446744073709551616"),
        (-(2**70), "-1180591620717411303424"),
        ("\ud800", '"\\ud800"'),
        ({"a": ["ä\udfff"]}, '{"a":["\\u00e4\\udfff"]}'),
        ("null and ,null", '"null and ,null"'),
    ],
)
def test_values_that_the_quick_encoder_refuses_are_written_too(value: Any, text: str) -> None:
    assert encode(value) == text


def test_very_deep_values_are_written_too() -> None:
    value: list[Any] = []
    for _ in range(300):
        value = [value]
    assert encode(value) == "[" * 301 + "]" * 301
