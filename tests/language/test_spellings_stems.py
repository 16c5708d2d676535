import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.language.spellings import MAX_STEMMED_BYTES, stem
from examples import examples

PORTER = apsw.Connection(":memory:").fts5_tokenizer("porter", ["unicode61"])

ENDINGS = """
    ational tional enci anci izer logi bli alli entli eli ousli ization ation ator alism iveness
    fulness ousness aliti iviti biliti icate ative alize iciti ical ful ness al ance ence er ic
    able ible ant ement ment ent ion sion tion ou ism ate iti ous ive ize s es ies sses ss ed eed
    ing y e ll at bl iz ly
"""
LETTERS = "abcdefghijklmnopqrstuvwxyz" + "aeiouylstxz"
ENGLISH_LIKE = st.builds(
    lambda start, endings: start + "".join(endings),
    st.text(LETTERS, max_size=6),
    st.lists(st.sampled_from(ENDINGS.split()), max_size=3),
).filter(bool)


def sqlite_stems(word: str) -> list[str]:
    found = PORTER(word.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False)
    return [str(stems[0]) for stems in found]


@settings(max_examples=examples(1_000), deadline=None)
@given(ENGLISH_LIKE)
def test_a_stem_is_the_one_sqlite_makes(word: str) -> None:
    assert [stem(word)] == sqlite_stems(word)


@settings(max_examples=examples(500), deadline=None)
@given(st.text(LETTERS + "0189" + "бжщ" + "日語" + "ßæø", min_size=1, max_size=70))
def test_a_stem_in_any_script_is_the_one_sqlite_makes(word: str) -> None:
    assert [stem(word)] == sqlite_stems(word)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("parsers", "parser"),
        ("hopping", "hop"),
        ("hoping", "hope"),
        ("ponies", "poni"),
        ("ties", "ti"),
        ("agreed", "agre"),
        ("bled", "bled"),
        ("sky", "sky"),
        ("deploy", "deploi"),
        ("authentication", "authent"),
        ("controller", "control"),
    ],
)
def test_inflections_are_taken_off(word: str, expected: str) -> None:
    assert stem(word) == expected


@pytest.mark.parametrize("word", ["", "s", "as", "ed"])
def test_a_word_of_less_than_three_bytes_stays(word: str) -> None:
    assert stem(word) == word


@pytest.mark.parametrize("letter", ["x", "щ"])
def test_a_word_too_long_for_sqlite_stays(letter: str) -> None:
    size = len(letter.encode())
    fits = letter * ((MAX_STEMMED_BYTES - 1) // size) + "s"
    assert stem(fits) == fits[:-1]
    assert stem(fits + letter) == fits + letter
    assert stem(letter * MAX_STEMMED_BYTES + "s") == letter * MAX_STEMMED_BYTES + "s"


def test_a_character_cut_in_half_is_marked() -> None:
    # Its last two bytes are equal, which the stemmer takes for a doubled consonant.
    assert stem("aကed") == "a\ufffd"
