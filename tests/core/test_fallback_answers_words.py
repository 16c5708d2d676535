import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.fallback_answers import CONTEXT_CHARACTERS, clip_context, compute_score, is_match, split_fields
from everkept.core.records import Weights
from everkept.language.words import parse_query

FIELDS = split_fields("Shop API", "The parser was moved to getUserName", "orders before it")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("parsers", True),
        ("user name", True),
        ("orders", True),
        ("shop", True),
        ("pars*", True),
        ('"was moved"', True),
        ('"moved was"', False),
        ("shop AND parser", True),
        ("shop NOT parser", False),
        ("elephant OR shop", True),
        ("elephant", False),
    ],
)
def test_words_are_found_in_name_text_and_context(query: str, found: bool) -> None:
    parsed = parse_query(query)
    wanted = parsed.expression or parsed.build_all_query()
    assert wanted is not None
    assert is_match(FIELDS, wanted) is found


def test_a_hit_counts_by_the_part_it_is_in_and_by_its_length() -> None:
    weights = Weights(name=4, text=1, context=0.25)
    in_name, in_text, in_context = (
        compute_score(split_fields(*parts), wanted, weights)
        for wanted in [parse_query("shop").build_any_query()]
        if wanted is not None
        for parts in (("shop", "", ""), ("", "shop", ""), ("", "", "shop"))
    )
    assert in_name > in_text > in_context > 0
    wanted = parse_query("shop").build_any_query()
    assert wanted is not None
    assert in_text > compute_score(split_fields("", "the shop around the corner", ""), wanted, weights)


@given(text=st.text(max_size=CONTEXT_CHARACTERS), before=st.booleans())
def test_a_short_text_beside_is_heard_as_a_whole(text: str, *, before: bool) -> None:
    assert clip_context(text, before=before) == text


def test_of_a_long_text_beside_the_nearest_whole_words_are_heard() -> None:
    words = [f"word{number}" for number in range(CONTEXT_CHARACTERS)]
    text = " ".join(words)
    end, beginning = clip_context(text, before=True), clip_context(text, before=False)
    assert text.endswith(" " + end)
    assert text.startswith(beginning + " ")
    for part in (end, beginning):
        assert CONTEXT_CHARACTERS - 10 < len(part) <= CONTEXT_CHARACTERS
        assert set(part.split()) <= set(words)


def test_a_long_text_without_blanks_is_cut_anywhere() -> None:
    text = "日" * (2 * CONTEXT_CHARACTERS)
    assert clip_context(text, before=True) == clip_context(text, before=False) == "日" * CONTEXT_CHARACTERS
