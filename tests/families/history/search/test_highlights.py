import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.families.history.search.highlights import LONGEST, MARK, MOST, highlights


@pytest.mark.parametrize(
    ("text", "query", "expected"),
    [
        ("We fixed the login form.", "login forms", ["We fixed the **login** **form**."]),
        ("Call `refreshToken()` first.", "refresh token", ["Call `**refreshToken**()` first."]),
        ("Nothing of it.", "login", []),
        ("The end", "the", []),
        ("One login. Two logins. A form.", "login form", ["**login**", "A **form**."]),
        ("(login)", "login", ["(**login**)"]),
        ("文字化けの原因を調べて", "文字化け", ["**文字化け**の原因を調べて"]),
        ("ファイルで日本語が壊れます", "日本語が壊れる", ["ファイルで**日本語が壊れ**ます"]),
        ("key: [masked: anthropic key]", "anthropic key", ["**key**:"]),
        ("Wie war das mit dem Login", "das Login", ["Wie war das mit dem **Login**"]),
        ("apply(login, user.form)", "login apply", ["**apply**(**login**, user.form)"]),
        ("Kept in S3 for 3 days", "3", ["Kept in S3 for **3** days"]),
        ("def login():\n    check_form()", "login", ["def **login**():"]),
    ],
)
def test_phrases_that_answer_are_shown_with_their_words_marked(
    text: str, query: str, expected: list[str]
) -> None:
    found = highlights(text, query)
    assert len(found) == len(expected)
    assert all(part in phrase for part, phrase in zip(expected, found, strict=True))


def test_a_long_line_is_shown_around_the_words() -> None:
    [phrase] = highlights("word " * 60 + "the login form " + "word " * 60, "login form")
    assert phrase.startswith("… word")
    assert "the **login** **form** word" in phrase
    assert phrase.endswith("…")
    assert len(phrase.replace(MARK, "")) <= LONGEST + 5


def test_of_many_phrases_those_with_most_words_are_kept_in_the_order_of_the_text() -> None:
    text = "A token. The refresh token expired. An expired page. A header. Cookies here."
    found = highlights(text, "refresh token expired header cookies page")
    assert found == [
        "The **refresh** **token** **expired**.",
        "An **expired** **page**.",
        "A **header**.",
    ]


@settings(deadline=None)
@given(st.text(max_size=300), st.text(max_size=40))
def test_highlights_stand_in_the_text(text: str, query: str) -> None:
    found = highlights(text, query)
    assert len(found) <= MOST
    written = "".join(text.split())
    for phrase in found:
        plain = phrase.removeprefix("… ").removesuffix("…")
        assert "".join(plain.split()).replace(MARK, "") in written.replace(MARK, "")
