import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.language import spellings as stemmer
from everkept.language import telling_words, words
from everkept.language.telling_words import list_stems
from everkept.retrieval import excerpts
from everkept.retrieval.excerpts import MAX_TEXT_CHARACTERS, StemSearch, TextExcerpt, compute_coverage, select_excerpt

LOG = "## Log\n\n" + "".join(f"- entry {i}\n" for i in range(200))


def test_a_long_section_is_shown_from_where_it_answers() -> None:
    shown = select_excerpt(LOG + "- the login form\n" + LOG, "What about the login forms?")
    assert shown.text.startswith("… - the login form\n## Log")
    assert shown.text.endswith("…")
    assert shown.skipped == 202
    assert len(shown.text) <= MAX_TEXT_CHARACTERS + 3


def test_what_stands_before_the_end_of_a_section_is_shown_where_it_fits() -> None:
    shown = select_excerpt(LOG + "- the login form\n", "login form")
    assert shown.text.endswith("- entry 199\n- the login form")
    assert len(shown.text) > MAX_TEXT_CHARACTERS - 20


def test_a_short_section_is_shown_as_it_is() -> None:
    assert select_excerpt("short\n", "x") == TextExcerpt("short")


def test_a_section_that_has_none_of_the_words_is_shown_from_its_beginning() -> None:
    shown = select_excerpt(LOG, "sign-in problem")
    assert shown.text.startswith("## Log")
    assert shown.skipped == 0


@pytest.mark.parametrize("query", ["a login", "LOGINS", "über login"])
def test_of_a_line_that_is_too_long_the_words_are_shown(query: str) -> None:
    text = "word " * 400 + "the login form " + "word " * 400
    shown = select_excerpt(text, query, most=160)
    assert "the login form" in shown.text[:80]
    assert shown.text.startswith("… word ")
    assert len(shown.text) <= 163
    assert shown.skipped == 0


@given(st.text(alphabet="ab \n\r.", max_size=300), st.text(alphabet="ab ", max_size=5))
def test_what_is_shown_stands_there(text: str, query: str) -> None:
    shown = select_excerpt(text, query, most=40)
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
        ("where the keys are", "key"),
        ("send them an e-mail", "email"),
    ],
)
def test_every_form_of_a_word_is_seen(line: str, query: str) -> None:
    shown = select_excerpt(f"{LOG}{line}\n{LOG}", query)
    assert shown.text.startswith(f"… {line}")


SPELLINGS = """
    key keys dying dies ties say says ays e-mail email re-run x.c++ C++ c++-lib a-.net .NET C# f#
    refreshToken getURLs S3 v1.2.3 2024-05-01 it's don't the hopping hoping ably ely café東京 résumé
    - -- a_b ally\0al [x] iy ıi ǆab €ing
"""
WORDS = st.sampled_from(SPELLINGS.split())
TEXTS = st.lists(WORDS | st.text(alphabet="aeiysgnd-_.'#+ \n\0éC", max_size=6), max_size=12)


@given(TEXTS, TEXTS)
def test_what_is_sought_is_found_as_by_reading_everything(said: list[str], asked: list[str]) -> None:
    text, wanted = " ".join(said), list_stems(" ".join(asked))
    assert StemSearch(wanted).find_stems(text) == wanted & list_stems(text)


def test_only_words_that_begin_like_a_sought_one_are_stemmed(monkeypatch: pytest.MonkeyPatch) -> None:
    stemmed: list[str] = []

    def noted(word: str) -> str:
        stemmed.append(word)
        return stemmer.stem(word)

    sought = StemSearch(list_stems("login forms"))
    monkeypatch.setattr(excerpts, "stem", noted)
    assert sought.find_stems("The garden has many logs, and nobody logs in by a form.") == {"form"}
    assert stemmed == ["logs", "logs", "form"]


def test_of_what_may_be_several_words_only_that_with_a_sought_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noted(text: str) -> str:
        read.append(text)
        return words.build_index_text(text)

    sought = StemSearch(list_stems("login forms"))
    monkeypatch.setattr(telling_words, "build_index_text", noted)
    assert sought.find_stems("Nobody logs in (yet), but showLoginForm() has a for-m.") >= {"login"}
    assert sought.find_stems("Nobody, anywhere, speaks of that: see build_page(x).") == frozenset()
    assert read == ["logs showLoginForm() for-m."]


def test_coverage_is_the_share_of_the_asked_words_that_a_text_has() -> None:
    asked = list_stems("how did we fix the flaky login test")
    assert compute_coverage(asked, "Fixed the login.") == 0.5
    assert compute_coverage(asked, "flaky tests of logins, fixing") == 1.0
    assert compute_coverage(asked, "the how and the why") == 0.0


def test_no_words_cover_nothing() -> None:
    assert compute_coverage(list_stems("how did we"), "how did we") == 0.0
