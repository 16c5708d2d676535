import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.text import (
    clip_text,
    compute_digest,
    compute_name_key,
    find_forbidden,
    format_size,
    has_control_characters,
)


@pytest.mark.parametrize("name", ["a\x00", "\n", "a\tb", "\x1b[31m", "\x7f", "\x85", "a\u2028b"])
def test_a_name_with_a_control_character_is_recognised(name: str) -> None:
    assert has_control_characters(name)


@pytest.mark.parametrize("name", ["", "a b", "Größe", "日本語", "🎉", "a\u00a0b", "e\u0301"])
def test_ordinary_characters_of_any_script_are_no_control_characters(name: str) -> None:
    assert not has_control_characters(name)


@pytest.mark.parametrize("found", ["\x00", "\x08", "\x0b", "\x1b", "\x7f"], ids=repr)
def test_text_may_not_hold(found: str) -> None:
    assert find_forbidden(f"before{found}after") == found


@given(st.characters(categories=["Cs"]))
def test_text_may_not_hold_half_a_character(found: str) -> None:
    assert find_forbidden(f"before{found}after") == found


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"])))
def test_all_other_text_may_be_kept(text: str) -> None:
    assert find_forbidden(text + "\t\r\n") is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ada", "ADA"),
        ("Ada  Lovelace", "ada lovelace"),
        (" Ada\n", "Ada"),
        ("Cafe\u0301", "CAFÉ"),
        ("a\u00a0b", "a b"),
        ("ПРИВЕТ", "привет"),
    ],
)
def test_two_spellings_of_one_name_are_equal(one: str, other: str) -> None:
    assert compute_name_key(one) == compute_name_key(other)


@pytest.mark.parametrize(("one", "other"), [("Ada", "Adam"), ("a b", "ab"), ("e", "é"), ("", "x")])
def test_two_names_stay_two(one: str, other: str) -> None:
    assert compute_name_key(one) != compute_name_key(other)


@given(st.text(string.printable + "äÖßñ日本é"))
def test_a_normalised_name_is_normalised(name: str) -> None:
    assert compute_name_key(compute_name_key(name)) == compute_name_key(name)


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_a_digest_tells_texts_apart(one: str, other: str) -> None:
    assert (compute_digest(one) == compute_digest(other)) == (one == other)
    assert len(compute_digest(one)) == 24


@given(st.text(), st.integers(1, 100))
def test_a_clipped_text_is_one_line_within_its_limit(text: str, limit: int) -> None:
    line = clip_text(text, limit)
    assert len(line) <= limit
    assert line == " ".join(line.split())


def test_only_a_long_text_is_clipped() -> None:
    assert clip_text("as it\n is") == "as it is"
    assert clip_text("as it\n is", 6) == "as it…"


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_000, "1.0 KB"),
        (152_345, "152 KB"),
        (999_949, "1.0 MB"),
        (5_500_000, "5.5 MB"),
        (10**15, "1,000 TB"),
    ],
)
def test_sizes_are_told_as_people_say_them(count: int, shown: str) -> None:
    assert format_size(count) == shown
