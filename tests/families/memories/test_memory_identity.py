from hypothesis import given
from hypothesis import strategies as st

from everkept.families.memories.memory_identity import (
    add_prefix,
    build_variant,
    compute_text_key,
    create_memory_id,
    get_event_time,
)


@given(st.integers(0, 2**47), st.integers(0, 2**47))
def test_ids_sort_by_time_and_never_repeat(one: int, other: int) -> None:
    first, second = create_memory_id(one * 1000), create_memory_id(other * 1000)
    assert first != second
    assert len(first) == len("memory:") + 26
    if one != other:
        assert (first < second) == (one < other)


@given(st.text(min_size=1))
def test_an_id_is_taken_with_and_without_its_prefix(text: str) -> None:
    assert add_prefix(text).startswith("memory:")
    assert add_prefix(add_prefix(text)) == add_prefix(text)


def test_blanks_around_a_text_and_its_line_ends_do_not_count() -> None:
    assert compute_text_key("  use tabs\n") == compute_text_key("use tabs")
    assert compute_text_key("one\r\ntwo\rthree") == compute_text_key("one\ntwo\nthree")


def test_case_and_inner_blanks_tell_texts_apart() -> None:
    texts = ["set PATH=/Opt/Bin", "set path=/opt/bin", "if x:\n  y", "if x:\n    y", "a b", "a  b"]
    assert len({compute_text_key(text) for text in texts}) == len(texts)


def test_an_event_has_its_moment_and_a_fact_has_none() -> None:
    assert get_event_time("episodic", 5) == 5
    assert get_event_time("episodic", None) is None
    assert get_event_time("semantic", 5) is None


def test_each_moment_of_an_event_is_a_place_of_its_own() -> None:
    places = {
        build_variant("project", None),
        build_variant("project", None, 5),
        build_variant("project", None, 6),
        build_variant("session", "a", 5),
        build_variant("session", "5 a"),
    }
    assert len(places) == 5


def test_each_session_has_a_place_of_its_own() -> None:
    places = {build_variant("session", "a"), build_variant("session", "b"), build_variant("project", "a")}
    assert len(places) == 3
    assert build_variant("project", "a") == build_variant("project", None)
