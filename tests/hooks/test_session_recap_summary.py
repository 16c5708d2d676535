import pytest

from everkept.hooks.session_recap import collect_decisions, extract_decisions, is_meaningful


@pytest.mark.parametrize(
    "prompt", ["", "hi", "Hello there!", "ok, go on", "thanks", "/compact", "yes please", "weiter"]
)
def test_a_greeting_or_a_nod_says_nothing(prompt: str) -> None:
    assert not is_meaningful(prompt)


@pytest.mark.parametrize("prompt", ["Fix the login", "ok, now rename the table", "修复登录问题", "/review the parser"])
def test_a_wish_says_something(prompt: str) -> None:
    assert is_meaningful(prompt)


def test_of_a_text_only_the_sentences_that_decide_are_told() -> None:
    text = "Both would do. We decided to use Redis. Shall we go with shards? Let's use eight."
    assert extract_decisions(text) == ["We decided to use Redis.", "Let's use eight."]
    assert extract_decisions("Nothing is settled yet.") == []


def test_what_is_known_for_a_decision_is_told_even_where_no_sentence_says_it() -> None:
    assert collect_decisions(["Redis.", "Redis.", "x" * 400], 5) == ["Redis.", "x" * 299 + "…"]
    assert collect_decisions(["One.", "Two."], 1) == ["One."]
