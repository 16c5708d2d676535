from hypothesis import given
from hypothesis import strategies as st

from recollect.families.memories.identity import full_id, new_memory_id, place_of, text_key


@given(st.integers(0, 2**47), st.integers(0, 2**47))
def test_ids_sort_by_time_and_never_repeat(one: int, other: int) -> None:
    first, second = new_memory_id(one * 1000), new_memory_id(other * 1000)
    assert first != second
    assert len(first) == len("memory:") + 26
    if one != other:
        assert (first < second) == (one < other)


@given(st.text(min_size=1))
def test_an_id_is_taken_with_and_without_its_prefix(text: str) -> None:
    assert full_id(text).startswith("memory:")
    assert full_id(full_id(text)) == full_id(text)


def test_case_and_blanks_do_not_tell_texts_apart() -> None:
    assert text_key("Use  Tabs\n") == text_key("use tabs")
    assert text_key("use tabs") != text_key("use spaces")


def test_each_session_has_a_place_of_its_own() -> None:
    places = {place_of("session", "a"), place_of("session", "b"), place_of("project", "a")}
    assert len(places) == 3
    assert place_of("project", "a") == place_of("project", None)
