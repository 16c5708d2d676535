"""The words that a prompt is about, however long it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.language import telling_words as module
from everkept.language.spellings import stem
from everkept.language.telling_words import (
    MAX_WORDS,
    TellingWord,
    find_telling_words,
    has_telling_words,
    is_foreign,
    list_dull_stems,
)


def words(text: str) -> list[str]:
    return [word.text for word in find_telling_words(text)]


def test_stop_words_and_what_people_say_of_anything_tell_nothing() -> None:
    assert words("Please fix the failing test, and don't change anything else!") == []
    assert words("Bitte ändere den Preis nicht") == ["andere", "preis"]
    assert words("rotate the Redis keys in v2 on port 6379") == ["rotate", "redis", "keys", "v2", "port", "6379"]


def test_stop_words_of_other_languages_tell_nothing_either() -> None:
    assert words("Wie haben wir das letztes Mal für den Export gemacht?") == ["export"]
    assert words("¿Cómo hicimos el export la última vez?") == ["export"]
    assert words("Comment avait-on fait l'export, qu'est-ce qu'on a décidé ?") == ["export"]


def test_common_words_tell_where_they_are_all_that_is_asked_for() -> None:
    assert [word.text for word in find_telling_words("run the tests", commonplace=True)] == ["run", "tests"]


def test_each_word_counts_once_whatever_its_ending() -> None:
    assert words("limits limited limiting a limit") == ["limits"]


def test_a_name_is_one_word_and_its_parts() -> None:
    assert find_telling_words("LoginLimiter") == (TellingWord("loginlimiter", ("login", "limiter")),)
    word = find_telling_words("refreshToken")[0]
    assert word.is_in({"refreshtoken"})
    assert word.is_in({"refresh", "token"})
    assert not word.is_in({"refresh"})


def test_keys_and_hashes_are_no_words() -> None:
    assert words("a" * 41 + " deadbeef") == ["deadbeef"]


def test_of_many_words_those_at_the_end_count_too() -> None:
    many = " ".join(f"alpha{n}x" for n in range(500))
    found = words(f"{many} omega")
    assert len(found) == MAX_WORDS
    assert found[0] == "alpha0x"
    assert found[-1] == "omega"


@given(st.text(max_size=500))
def test_any_text_has_words_without_control_or_surrogates(text: str) -> None:
    for word in find_telling_words(text):
        word.text.encode("utf-8")
        assert not any(character.isspace() for character in word.text)


def test_a_path_is_one_telling_word() -> None:
    assert has_telling_words("Let me see web/src/Cart.tsx.", 2)
    assert not has_telling_words("Let me see web/src/Cart.tsx.", 3)
    assert has_telling_words("Perfect, that works. Thanks!", 1)
    assert not has_telling_words("Perfect, that works. Thanks!", 2)
    assert has_telling_words("文字化けの原因を調べて", 4)


def test_no_more_words_are_read_than_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noted(word: str) -> str:
        read.append(word)
        return stem(word)

    list_dull_stems()  # they are stemmed once
    monkeypatch.setattr(module, "stem", noted)
    assert has_telling_words("The garden has many flowers, trees and birds.", 2)
    assert read == ["garden", "many", "flowers"]


@pytest.mark.parametrize(
    "text",
    [
        "Wie lange werden die Rechnungen aufbewahrt?",
        "Welche Datenbank haben wir gewählt und warum?",
        "pourquoi avons-nous choisi cette base de données",
        "¿cuándo decidimos usar esta base de datos?",
        "本番環境へのリリースはいつ？",
        "когда мы выпускаем версию",
        "¿Dónde?",
        "cuánto tiempo se guardan las facturas",
        "Dove sono i log del server?",
        "Onde estão os logs do servidor?",
        "waarom hebben we voor Redis gekozen",
        "Gdzie są logi serwera?",
        "Vilken port använder API:et?",
        "API hangi portu kullanıyor?",
        "Kapan kami merilis versi baru?",
    ],
)
def test_questions_in_other_languages_are_told_from_english_ones(text: str) -> None:
    assert is_foreign(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12345 !?",
        "Redis",
        "What did Müller say about the café?",
        "who am I and was the war in Europe about?",
        "docker compose up -d",
        "Datei",
        "How do I write übersetzen in German?",
        "con artist",
        "Los Angeles and Las Palmas",
        "Zoë Müller",
        "where is the São Paulo café",
        "van rental di container",
    ],
)
def test_english_names_and_commands_are_not_foreign(text: str) -> None:
    assert not is_foreign(text)
