import pytest

from everkept.families.history.search.summaries import (
    CODE_PIECES,
    DISCUSSIONS,
    PROBLEMS,
    Noun,
    Told,
    summary,
    topics_of,
)
from everkept.values import replace
from making import DAY_ONE

DAY = 86_400 * 1_000_000
NOW = DAY_ONE + 100 * DAY


def told(score: float = 0.5, days: float = 1, project: str = "/a") -> Told:
    return Told(score, NOW - int(days * DAY), project)


@pytest.mark.parametrize(
    ("results", "topics", "noun", "expected"),
    [
        ([told()], [], DISCUSSIONS, 'I found 1 relevant discussion about "login".'),
        ([told(), told()], [], DISCUSSIONS, 'I found 2 relevant discussions about "login".'),
        (
            [told(), told()],
            ["tokens", "cookies", "headers", "forms"],
            DISCUSSIONS,
            'I found 2 relevant discussions about "login" covering tokens, cookies, headers.',
        ),
        (
            [told(), told(project="/b"), told(project="")],
            [],
            CODE_PIECES,
            'I found 3 pieces of code about "login" across 2 projects.',
        ),
        (
            [told(days=2), told(days=63)],
            [],
            DISCUSSIONS,
            'I found 2 relevant discussions about "login" spanning 2 months.',
        ),
        (
            [told(days=2), told(days=32)],
            [],
            DISCUSSIONS,
            'I found 2 relevant discussions about "login".',
        ),
        (
            [told(days=2), told(days=33)],
            [],
            DISCUSSIONS,
            'I found 2 relevant discussions about "login" spanning 1 month.',
        ),
        (
            [told(0.95, days=3)],
            [],
            PROBLEMS,
            'I found 1 similar problem about "login". The most relevant one was 3 days ago.',
        ),
        (
            [told(0.91, days=1), told(0.99, days=2)],
            [],
            DISCUSSIONS,
            'I found 2 relevant discussions about "login". The most relevant one was 2 days ago.',
        ),
        ([told(0.9)], [], DISCUSSIONS, 'I found 1 relevant discussion about "login".'),
    ],
)
def test_a_summary_says_what_was_found(
    results: list[Told], topics: list[str], noun: Noun, expected: str
) -> None:
    assert summary("login", results, topics, NOW, noun) == expected


def test_a_search_that_found_nothing_says_so_and_names_the_question() -> None:
    sentence = summary("x" * 200, [], [], NOW)
    assert sentence.startswith("I couldn't find any discussions about \"xxx")
    assert "…" in sentence


def test_nothing_is_said_to_be_new_where_not_all_could_be_searched() -> None:
    assert "new topic" in summary("login", [], [], NOW)
    assert summary("login", [], [], NOW, is_all=False) == (
        'I couldn\'t find any discussions about "login".'
    )


def test_a_summary_says_where_no_result_has_a_word_of_the_question() -> None:
    near = [replace(told(), has_words=False)] * 2
    assert summary("login", near, ["tokens"], NOW) == (
        'I found no word of "login", but 2 discussions near in meaning covering tokens.'
    )
    assert "about" in summary("login", [*near, told()], [], NOW)


def test_topics_are_not_words_of_code() -> None:
    texts = ["A cart.\n```python\ndef total():\n```\nA cart.", "```\ndef total(): ...", "A cart."]
    assert topics_of(texts, "login") == ["cart"]


def test_topics_are_what_is_said_besides_the_question() -> None:
    texts = ["The refresh token of the login expired.", "Our login renews the refresh token."]
    assert topics_of(texts, "login") == ["refresh token"]
