import pytest

from conversations import DAY, tell
from everkept.core.ports import RecordStore
from everkept.families.history.search_summary import (
    CODE_PIECES,
    DISCUSSIONS,
    PROBLEMS,
    MatchExtent,
    ResultNoun,
    SummaryFacts,
    extract_topics,
    find_decision,
    find_topics,
    format_summary,
)
from everkept.values import replace
from records import DAY_ONE

NOW = DAY_ONE + 100 * DAY


def told(score: float = 0.5, days: float = 1, project: str = "/a") -> SummaryFacts:
    return SummaryFacts(score, NOW - int(days * DAY), project)


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
        ([told(days=2), told(days=32)], [], DISCUSSIONS, 'I found 2 relevant discussions about "login".'),
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
    results: list[SummaryFacts], topics: list[str], noun: ResultNoun, expected: str
) -> None:
    assert format_summary("login", results, topics, NOW, noun) == expected


def test_a_search_that_found_nothing_says_so_and_names_the_question() -> None:
    sentence = format_summary("x" * 200, [], [], NOW)
    assert sentence.startswith("I couldn't find any discussions about \"xxx")
    assert "…" in sentence


def test_nothing_is_said_to_be_new_where_not_all_could_be_searched() -> None:
    assert "new topic" in format_summary("login", [], [], NOW)
    assert format_summary("login", [], [], NOW, is_all=False) == ('I couldn\'t find any discussions about "login".')


def test_a_summary_says_where_no_result_has_a_word_of_the_question() -> None:
    near = [replace(told(), has_words=False)] * 2
    assert format_summary("login", near, ["tokens"], NOW) == (
        'I found no words of "login", but 2 discussions with a similar meaning covering tokens.'
    )
    assert "about" in format_summary("login", [*near, told()], [], NOW)


def test_topics_are_not_words_of_code() -> None:
    texts = ["A cart.\n```python\ndef total():\n```\nA cart.", "```\ndef total(): ...", "A cart."]
    assert extract_topics(texts, "login") == ["cart"]


def test_topics_are_what_is_said_besides_the_question() -> None:
    texts = ["The refresh token of the login expired.", "Our login renews the refresh token."]
    assert extract_topics(texts, "login") == ["refresh token"]


def test_a_summary_counts_all_matches_and_says_which_are_shown() -> None:
    extent = MatchExtent(120, NOW - 90 * DAY, NOW, 3)
    results = [told(), told()]
    assert format_summary("login", results, ["tokens"], NOW, extent=extent) == (
        'I found 120 relevant discussions about "login", showing 2,'
        " covering tokens across 3 projects spanning 3 months."
    )
    page = replace(extent, first=20, is_lower_bound=True)
    assert 'at least 120 relevant discussions about "login", showing 21 to 22' in format_summary(
        "login", results, [], NOW, extent=page
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Some thoughts. We chose alembic because it reads the models.", "where we chose alembic because it reads"),
        ("Fine, let's go with Redis.", 'where this was decided: "Fine, let\'s go with Redis."'),
    ],
)
def test_a_summary_tells_what_was_decided_in_the_words_of_the_turn(text: str, expected: str) -> None:
    result = replace(told(days=21), decision=find_decision(text))
    assert f"The most relevant one was 3 weeks ago, {expected}" in format_summary("login", [result], [], NOW)


def test_what_is_only_mentioned_elsewhere_is_no_new_topic() -> None:
    summary = format_summary("login", [], [], NOW, CODE_PIECES, is_mentioned=True)
    assert "new topic" not in summary
    assert "recall_previous_discussions" in summary


async def test_rare_topics_come_first_and_adjacent_words_are_one(store: RecordStore) -> None:
    await tell(store, "s1", *(f"The endpoint number {number} of the address book" for number in range(30)))
    await tell(store, "s2", "Each address of the endpoint has a token bucket.")
    topics = await find_topics(store, ["Each address of the endpoint has a token bucket."], "limit logins")
    assert topics[0] == "token bucket"
    assert set(topics[1:]) == {"address", "endpoint"}
