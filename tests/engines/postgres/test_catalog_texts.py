import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.engines.postgres.catalog import check_texts, is_storable
from everkept.errors import InvalidInput


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_whatever_people_write_can_be_stored(text: str) -> None:
    assert is_storable(text)
    check_texts(text, None, "")


@pytest.mark.parametrize("text", ["\0", "a\0", "\ud800", "x\udfffy"], ids=ascii)
def test_what_cannot_be_stored_is_shown_as_it_can_be_seen(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_texts("fine", None, text)
    assert caught.value.facts["value"] == ascii(text)[1:-1]
    assert caught.value.message.isprintable()
