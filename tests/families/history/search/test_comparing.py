from hypothesis import given
from hypothesis import strategies as st

from everkept.families.history.search.comparing import LEAST, shares

WORDS = st.lists(st.sampled_from(["login", "flaky", "test", "blue", "page"]), max_size=6)


def test_the_search_that_has_the_asked_words_counts_in_full() -> None:
    counted = shares("flaky login", {"a": ["the flaky login"], "b": ["a blue page"], "c": []})
    assert counted == {"a": 1.0, "b": LEAST, "c": LEAST}


def test_where_nobody_has_a_word_all_count_the_same() -> None:
    assert shares("flaky login", {"a": ["a blue page"], "b": []}) == {"a": 1.0, "b": 1.0}


@given(st.dictionaries(st.text(max_size=2), st.lists(WORDS.map(" ".join), max_size=3)), WORDS)
def test_shares_lie_between_the_least_and_all_and_somebody_has_all(
    texts: dict[str, list[str]], asked: list[str]
) -> None:
    counted = shares(" ".join(asked), texts)
    assert counted.keys() == texts.keys()
    assert all(LEAST <= share <= 1 for share in counted.values())
    assert not counted or max(counted.values()) == 1
