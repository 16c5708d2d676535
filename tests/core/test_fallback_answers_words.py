import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.fallback_answers import HEARD, fields_of, heard, matches, score
from everkept.core.records import Weights
from everkept.language.words import parse_query

FIELDS = fields_of("Shop API", "The parser was moved to getUserName", "orders before it")


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
    wanted = parsed.expression or parsed.all_terms()
    assert wanted is not None
    assert matches(FIELDS, wanted) is found


def test_a_hit_counts_by_the_part_it_is_in_and_by_its_length() -> None:
    weights = Weights(name=4, text=1, context=0.25)
    in_name, in_text, in_context = (
        score(fields_of(*parts), wanted, weights)
        for wanted in [parse_query("shop").any_term()]
        if wanted is not None
        for parts in (("shop", "", ""), ("", "shop", ""), ("", "", "shop"))
    )
    assert in_name > in_text > in_context > 0
    wanted = parse_query("shop").any_term()
    assert wanted is not None
    assert in_text > score(fields_of("", "the shop around the corner", ""), wanted, weights)


@given(text=st.text(max_size=HEARD), before=st.booleans())
def test_a_short_text_beside_is_heard_as_a_whole(text: str, *, before: bool) -> None:
    assert heard(text, before=before) == text


def test_of_a_long_text_beside_the_nearest_whole_words_are_heard() -> None:
    words = [f"word{number}" for number in range(HEARD)]
    text = " ".join(words)
    end, beginning = heard(text, before=True), heard(text, before=False)
    assert text.endswith(" " + end)
    assert text.startswith(beginning + " ")
    for part in (end, beginning):
        assert HEARD - 10 < len(part) <= HEARD
        assert set(part.split()) <= set(words)


def test_a_long_text_without_blanks_is_cut_anywhere() -> None:
    text = "日" * (2 * HEARD)
    assert heard(text, before=True) == heard(text, before=False) == "日" * HEARD
