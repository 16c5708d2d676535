import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.retrieval.names import authors_named, capitalised, common, tells, without_names


def test_capitalised_words_may_be_names_and_stop_words_are_none() -> None:
    assert capitalised("What did Caroline's sister Ann-Marie say to Caroline?") == [
        "caroline",
        "ann-marie",
    ]


def test_a_word_is_common_when_it_stands_in_more_than_8_of_100_records() -> None:
    assert common({"ann": 0.5, "docker": 0.08, "redis": 0.01}) == ["ann"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("what did ann say", {"Ann Lee"}),
        ("What about Lee's plan?", {"Ann Lee"}),
        ("ANN", {"Ann Lee"}),
        ("what will change", set[str]()),
        ("what did Will change", {"Will"}),
        ("anna and leeway", set[str]()),
        ("Ann or Will?", {"Ann Lee", "Will"}),
        ("José?", {"José"}),
        ("", set[str]()),
    ],
)
def test_an_author_is_asked_about_by_any_part_of_the_name(text: str, named: set[str]) -> None:
    assert authors_named(text, ["Ann Lee", "Will", "José"]) == named


def test_who_has_no_name_but_a_role_is_not_asked_about() -> None:
    assert authors_named("Does the user see the Assistant?", ["user", "assistant"]) == set()


def test_names_leave_a_text_with_their_endings() -> None:
    text = "What is Ann's favourite book, Ann Lee?"
    assert without_names(text, ["Ann Lee"]) == "What is favourite book, ?"


def test_a_question_needs_two_words_that_tell_something() -> None:
    assert tells("favourite book")
    assert not tells("what is the book")


@given(st.text(), st.lists(st.text(), max_size=4))
def test_no_text_is_an_error(text: str, names: list[str]) -> None:
    capitalised(text)
    authors_named(text, names)
    assert len(without_names(text, names)) <= len(text)
