import pytest

from recollect.core.matching import fields_of, matches, score
from recollect.core.records import Weights
from recollect.core.words import parse_query

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
