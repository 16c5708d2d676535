import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.answers import cursor_of, position_of
from everkept.errors import InvalidInput


@given(st.text(), st.integers())
def test_a_position_comes_back_as_it_was(text: str, number: int) -> None:
    assert position_of(cursor_of(text, number), str, int) == (text, number)


@given(st.text())
def test_any_other_text_is_invalid_input(text: str) -> None:
    with pytest.raises(InvalidInput):
        position_of(text, str, str, str)


@pytest.mark.parametrize("cursor", ["NQ==", "bnVsbA==", "e30=", cursor_of("a"), cursor_of(1, "a")])
def test_a_position_of_another_form_is_invalid_input(cursor: str) -> None:
    with pytest.raises(InvalidInput):
        position_of(cursor, str, int)
