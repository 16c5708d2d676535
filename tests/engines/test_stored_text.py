from hypothesis import given as drawn
from hypothesis import strategies as st

from everkept.engines.stored_text import escape_text, unescape_text


@drawn(st.text(st.sampled_from("\0\x01\x02a")))
def test_every_text_comes_back_and_none_holds_what_cannot_be_stored(text: str) -> None:
    assert "\0" not in escape_text(text)
    assert unescape_text(escape_text(text)) == text
