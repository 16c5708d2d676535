import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.retrieval.profile import SearchHit
from everkept.retrieval.scores import MIN_SHARED_WORDS, fold_duplicates
from memory_shelf import memory


@pytest.mark.parametrize(
    ("one", "other", "folded"),
    [
        ("We deploy on Tuesdays after lunch", "we deploy, on tuesdays, after lunch.", True),
        ("The shop API is served by nginx in front of uvicorn", "The API is served by nginx in front of uvicorn", True),
        ("The API listens on port 8080", "The API listens on port 9090", False),
        ("Squash commits before a merge to main", "Do not squash commits before a merge to main", False),
        ("Use tabs", "Use spaces", False),
        ("We deploy on Tuesdays after lunch", "We deploy after the tests pass on the staging cluster", False),
        ("\U0001f600", "\U0001f680", False),
    ],
)
def test_only_the_same_statement_is_a_duplicate(one: str, other: str, folded: bool) -> None:
    hits = [SearchHit(memory(one), 0.9), SearchHit(memory(other), 0.8)]
    kept = fold_duplicates(hits)
    assert [(hit.record.text, hit.duplicates) for hit in kept] == [(one, 1)] if folded else [(one, 0), (other, 0)]


def test_events_and_statements_of_different_people_stay_apart() -> None:
    text = "The release went out without a problem"
    events = [SearchHit(memory(text, id=i, type="episodic"), 0.9) for i in ("a", "b")]
    people = [SearchHit(memory(text, id=name, author=name), 0.9) for name in ("Ada", "Ben")]
    assert [fold_duplicates(hits) for hits in (events, people)] == [events, people]


@given(st.lists(st.sets(st.sampled_from("abcdefghijk"), min_size=1), max_size=12))
def test_each_statement_is_compared_with_all_that_it_can_equal(texts: list[set[str]]) -> None:
    expected: list[set[str]] = []
    for words in texts:
        if not any(len(words & other) >= MIN_SHARED_WORDS * len(words | other) for other in expected):
            expected.append(words)
    found = fold_duplicates([SearchHit(memory(" ".join(words)), 0.5) for words in texts])
    assert [set(hit.record.text.split()) for hit in found] == expected
