import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.families.history.ingest.prepared_turns import (
    MAX_NAME_CHARACTERS,
    MAX_OPENING_CHARACTERS,
    TextCleaner,
    build_default_title,
    clean_text,
    shorten,
)

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
MASK = "[masked: github token]"


@pytest.mark.parametrize("before", range(340, 400))
def test_a_secret_at_the_limit_is_masked_before_the_text_is_cut(before: int) -> None:
    found = TextCleaner(masks=True)("e" * before + f" {TOKEN} more" * 3, 400)
    assert "ghp_" not in found
    assert len(found) <= 400
    assert "[masked" not in found.replace(MASK, "")


def test_a_secret_far_behind_the_limit_cannot_come_forward_in_pieces() -> None:
    text = f"{TOKEN} " * 400
    for length in range(10_380, 10_440):
        found = TextCleaner(masks=True)(text[:length] + "x" * 10_000, 400)
        assert "ghp_" not in found


def test_many_secrets_that_shrink_leave_no_half_one() -> None:
    key = "-----BEGIN PRIVATE KEY-----\n" + "Aa0+" * 600 + "\n-----END PRIVATE KEY-----\n"
    for spare in range(0, 60, 7):
        text = key * 4 + "w " * ((10_500 - 4 * len(key)) // 2 - spare) + TOKEN + " end" * 5_000
        assert "ghp_a1B2" not in TextCleaner(masks=True)(text, 500)


@given(st.text(alphabet="ab [:]masked", max_size=120), st.integers(1, 100))
def test_what_is_shortened_is_short_and_a_beginning(text: str, limit: int) -> None:
    found = shorten(text, limit)
    assert len(found) <= max(limit, 1)
    assert text.startswith(found.removesuffix("…"))


def test_a_mask_stays_whole_or_goes() -> None:
    text = f"use {MASK} now"
    assert shorten(text, 20) == "use …"
    assert shorten(text, 28) == f"use {MASK} …"
    assert shorten(text, 100) == text


def test_a_name_is_masked_and_cut_too() -> None:
    cleaner = TextCleaner(masks=True)
    assert cleaner.clean_name(f"/x/token={TOKEN}.txt") == f"/x/token={MASK}.txt"
    assert cleaner.kinds == ["github token"]
    assert cleaner.clean_name(None) is None
    assert len(cleaner.clean_name("n" * 50_000) or "") == MAX_NAME_CHARACTERS
    assert TextCleaner(masks=False).clean_name(f"feature/{TOKEN}") == f"feature/{TOKEN}"


def test_what_is_cut_is_counted() -> None:
    cleaner = TextCleaner(masks=True)
    assert cleaner("short", 10) == "short"
    assert cleaner("much too long", 10) == "much too …"
    assert cleaner("w" * 500_000, 100_000) == "w" * 99_999 + "…"
    assert cleaner.cut == 2


def test_a_conversation_is_called_by_some_words_on_one_line() -> None:
    assert build_default_title("  how\n\n do I ") == "how do I"
    assert len(build_default_title("word " * 100)) == MAX_OPENING_CHARACTERS
    assert build_default_title("x" * 60 + f" {MASK}") == "x" * 60 + " …"


def test_colours_and_halves_of_characters_go() -> None:
    assert clean_text("a\x00b\ud800c\x1b[31mred\x1b[0m\r\nend") == "ab\ufffdcred\nend"
