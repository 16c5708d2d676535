from hypothesis import given
from hypothesis import strategies as st

from everkept.families.memories.memory_identity import (
    full_id,
    moment_of,
    new_memory_id,
    place_of,
    text_key,
)


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


def test_blanks_around_a_text_and_its_line_ends_do_not_count() -> None:
    assert text_key("  use tabs\n") == text_key("use tabs")
    assert text_key("one\r\ntwo\rthree") == text_key("one\ntwo\nthree")


def test_case_and_inner_blanks_tell_texts_apart() -> None:
    texts = ["set PATH=/Opt/Bin", "set path=/opt/bin", "if x:\n  y", "if x:\n    y", "a b", "a  b"]
    assert len({text_key(text) for text in texts}) == len(texts)


def test_an_event_has_its_moment_and_a_fact_has_none() -> None:
    assert moment_of("episodic", 5) == 5
    assert moment_of("episodic", None) is None
    assert moment_of("semantic", 5) is None


def test_each_moment_of_an_event_is_a_place_of_its_own() -> None:
    places = {
        place_of("project", None),
        place_of("project", None, 5),
        place_of("project", None, 6),
        place_of("session", "a", 5),
        place_of("session", "5 a"),
    }
    assert len(places) == 5


def test_each_session_has_a_place_of_its_own() -> None:
    places = {place_of("session", "a"), place_of("session", "b"), place_of("project", "a")}
    assert len(places) == 3
    assert place_of("project", "a") == place_of("project", None)
