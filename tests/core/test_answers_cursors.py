import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.answers import decode_cursor, encode_cursor
from everkept.errors import InvalidInput


@given(st.text(), st.integers())
def test_a_position_comes_back_as_it_was(text: str, number: int) -> None:
    assert decode_cursor(encode_cursor(text, number), str, int) == (text, number)


@given(st.text())
def test_any_other_text_is_invalid_input(text: str) -> None:
    with pytest.raises(InvalidInput):
        decode_cursor(text, str, str, str)


@pytest.mark.parametrize("cursor", ["NQ==", "bnVsbA==", "e30=", encode_cursor("a"), encode_cursor(1, "a")])
def test_a_position_of_another_form_is_invalid_input(cursor: str) -> None:
    with pytest.raises(InvalidInput):
        decode_cursor(cursor, str, int)
