import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.retrieval.excerpts import MOST_TEXT, Excerpt, excerpt

LOG = "## Log\n\n" + "".join(f"- entry {i}\n" for i in range(200))


def test_a_long_section_is_shown_from_where_it_answers() -> None:
    shown = excerpt(LOG + "- the login form\n" + LOG, "What about the login forms?")
    assert shown.text.startswith("… - the login form\n## Log")
    assert shown.text.endswith("…")
    assert shown.skipped == 202
    assert len(shown.text) <= MOST_TEXT + 3


def test_what_stands_before_the_end_of_a_section_is_shown_where_it_fits() -> None:
    shown = excerpt(LOG + "- the login form\n", "login form")
    assert shown.text.endswith("- entry 199\n- the login form")
    assert len(shown.text) > MOST_TEXT - 20


def test_a_short_section_is_shown_as_it_is() -> None:
    assert excerpt("short\n", "x") == Excerpt("short")


def test_a_section_that_has_none_of_the_words_is_shown_from_its_beginning() -> None:
    shown = excerpt(LOG, "sign-in problem")
    assert shown.text.startswith("## Log")
    assert shown.skipped == 0


@pytest.mark.parametrize("query", ["a login", "LOGINS", "über login"])
def test_of_a_line_that_is_too_long_the_words_are_shown(query: str) -> None:
    text = "word " * 400 + "the login form " + "word " * 400
    shown = excerpt(text, query, most=160)
    assert "the login form" in shown.text[:80]
    assert shown.text.startswith("… word ")
    assert len(shown.text) <= 163
    assert shown.skipped == 0


@given(st.text(alphabet="ab \n\r.", max_size=300), st.text(alphabet="ab ", max_size=5))
def test_what_is_shown_stands_there(text: str, query: str) -> None:
    shown = excerpt(text, query, most=40)
    quoted = shown.text.removeprefix("… ").removesuffix("…")
    assert quoted in text
    assert bool(quoted) == bool(text.strip())


@pytest.mark.parametrize(
    ("line", "query"),
    [
        ("un café noir", "cafe"),
        ("call refreshAccessToken()", "access token"),
        ("C# and F# only", "c#"),
        ("東京都の天気", "東京"),
        ("he studied again", "studies"),
    ],
)
def test_every_form_of_a_word_is_seen(line: str, query: str) -> None:
    shown = excerpt(f"{LOG}{line}\n{LOG}", query)
    assert shown.text.startswith(f"… {line}")
