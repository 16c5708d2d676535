"""The words that a prompt is about, however long it is."""

from hypothesis import given
from hypothesis import strategies as st

from everkept.hooks.prompting.wording import (
    HEAD,
    MOST_WORDS,
    TAIL,
    Word,
    part_read,
    telling_words,
)


def words(text: str) -> list[str]:
    return [word.text for word in telling_words(text)]


def test_stop_words_and_what_people_say_of_anything_tell_nothing() -> None:
    assert words("Please fix the failing test, and don't change anything else!") == []
    assert words("Bitte ändere den Preis nicht") == ["andere", "preis"]
    assert words("rotate the Redis keys in v2 on port 6379") == [
        "rotate",
        "redis",
        "keys",
        "v2",
        "port",
        "6379",
    ]


def test_stop_words_of_other_languages_tell_nothing_either() -> None:
    assert words("Wie haben wir das letztes Mal für den Export gemacht?") == ["export"]
    assert words("¿Cómo hicimos el export la última vez?") == ["export"]
    assert words("Comment avait-on fait l'export, qu'est-ce qu'on a décidé ?") == ["export"]


def test_common_words_tell_where_they_are_all_that_is_asked_for() -> None:
    assert [word.text for word in telling_words("run the tests", commonplace=True)] == [
        "run",
        "tests",
    ]


def test_each_word_counts_once_whatever_its_ending() -> None:
    assert words("limits limited limiting a limit") == ["limits"]


def test_a_name_is_one_word_and_its_parts() -> None:
    assert telling_words("LoginLimiter") == (Word("loginlimiter", ("login", "limiter")),)
    word = telling_words("refreshToken")[0]
    assert word.is_in({"refreshtoken"})
    assert word.is_in({"refresh", "token"})
    assert not word.is_in({"refresh"})


def test_keys_and_hashes_are_no_words() -> None:
    assert words("a" * 41 + " deadbeef") == ["deadbeef"]


def test_of_a_long_prompt_the_beginning_and_the_end_are_read() -> None:
    prompt = "begin " + "x" * 100_000 + " end"
    part = part_read(prompt)
    assert len(part) <= HEAD + TAIL + 1
    assert part.startswith("begin ")
    assert part.endswith(" end")


def test_of_many_words_those_at_the_end_count_too() -> None:
    many = " ".join(f"alpha{n}x" for n in range(500))
    found = words(f"{many} omega")
    assert len(found) == MOST_WORDS
    assert found[0] == "alpha0x"
    assert found[-1] == "omega"


@given(st.text(max_size=500))
def test_any_text_has_words_without_control_or_surrogates(text: str) -> None:
    for word in telling_words(text):
        word.text.encode("utf-8")
        assert not any(character.isspace() for character in word.text)
