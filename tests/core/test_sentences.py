import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.core.sentences import beginning, sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It works. Really! Is it so?", ["It works.", "Really!", "Is it so?"]),
        ("Python 3.11 runs app.py now. Good.", ["Python 3.11 runs app.py now.", "Good."]),
        ("Use a queue, e.g. Redis. Fine.", ["Use a queue, e.g. Redis.", "Fine."]),
        ("Call `a.b(). C` first. Then go.", ["Call `a.b(). C` first.", "Then go."]),
        ("これは文です。次の文です！終わり", ["これは文です。", "次の文です！", "終わり"]),
        ("- one\n* two\n3. three", ["one", "two", "three"]),
        ("He said “stop.” Then left.", ["He said “stop.”", "Then left."]),
        ("```py\nx = 1. Y\n\nz\n```\nDone.", ["```py\nx = 1. Y\n\nz\n```", "Done."]),
        ("def f():\n    return 1. X\nafter", ["def f():\n    return 1. X", "after"]),
        ("  \n\n", []),
        ("...", []),
    ],
)
def test_a_text_falls_into_its_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_a_long_text_of_abbreviations_is_one_sentence() -> None:
    assert len(sentences("a. B " * 20_000)) == 1


@pytest.mark.parametrize(
    ("text", "begun"),
    [("one two", "one two"), ("one two three", "one two"), (" " * 20, ""), ("x" * 20, "x" * 9)],
)
def test_a_text_is_cut_at_a_word(text: str, begun: str) -> None:
    assert beginning(text, 9) == begun


@settings(deadline=None)
@given(st.text())
def test_sentences_are_made_of_the_text_alone(text: str) -> None:
    written = "".join(text.split())
    for sentence in sentences(text):
        assert "".join(sentence.split()) in written
