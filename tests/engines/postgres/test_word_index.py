from itertools import islice, pairwise, product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everkept.core.fallback_answers import is_match, split_fields
from everkept.core.records import RecordFilter, Weights
from everkept.core.store import MatchWords
from everkept.engines.postgres.search import match
from everkept.engines.postgres.word_index import build_tsvector
from everkept.language.spellings import split_tokens, stem
from everkept.language.words import WordPhrase, build_index_text
from examples import examples
from postgres_tables import Tables, said


def finds(tables: Tables, *words: str, prefix: bool = False) -> list[str]:
    found = match(tables.cursor, tables.store, MatchWords(WordPhrase(words, prefix), RecordFilter(), Weights(), 10))
    return [each.id for each in found]


def size_of(tables: Tables) -> int:
    return tables.value("SELECT max(pg_column_size(words)) FROM records")


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=40), st.text(max_size=60), st.text(max_size=40))
def test_any_text_can_be_indexed_and_has_all_its_words(tables: Tables, name: str, text: str, context: str) -> None:
    made = build_tsvector(tables.store, said(text, name=name), [context])
    wanted = {stem(word) for part in (name, text, context) for word in split_tokens(build_index_text(part))}
    indexed = tables.value("SELECT tsvector_to_array(%s::tsvector)", made)
    assert {*indexed} == {*wanted, f"@{tables.store}"}


def test_each_column_has_a_weight_of_its_own(tables: Tables) -> None:
    made = build_tsvector(7, said("red", name="blue", type="grey"), ["green"])
    assert made == "'@7':4 'blue':1A 'grei':3B 'red':4B 'green':6C"


def test_a_phrase_does_not_go_on_in_another_column(tables: Tables) -> None:
    tables.add(said("kettle drum", id="a", name="tea"), context=["roll"])
    assert finds(tables, "kettle", "drum") == ["a"]
    assert finds(tables, "tea", "kettle") == []
    assert finds(tables, "drum", "roll") == []


def test_in_a_text_of_very_many_words_each_is_found_and_each_phrase(tables: Tables) -> None:
    words = [f"w{number % 17_000}x" for number in range(20_000)]
    tables.add(said(" ".join(words), id="long"), said("w16999x", id="short"))
    for first, second in [*pairwise(words)][16_370:16_390]:
        assert finds(tables, first, second) == ["long"]
    assert finds(tables, *words[16_360:16_400]) == ["long"]
    assert {*finds(tables, "w16999x")} == {"short", "long"}
    assert finds(tables, "w16999x", "w0x") == ["long"]
    assert finds(tables, "w16999x", "w16998x") == []
    assert {*finds(tables, "w1699", prefix=True)} == {"short", "long"}


def test_a_word_that_stands_in_a_text_very_often_keeps_its_phrases(tables: Tables) -> None:
    text = " ".join(["the cat"] * 700 + ["the kettle"] + ["the dog"] * 700)
    tables.add(said(text, id="a"))
    assert finds(tables, "the", "kettle", "the", "dog") == ["a"]
    assert finds(tables, "the", "dog") == ["a"]
    assert finds(tables, "kettle", "dog") == []


def test_words_that_share_a_place_on_different_pages_are_no_phrase(tables: Tables) -> None:
    filling = " ".join(f"w{number}x" for number in range(16_379))
    # Behind a page comes one that begins with the last 63 words of it.
    text = f"red {filling} {' '.join(['grey'] * 66)} blue"
    tables.add(said(text, id="a"))
    assert finds(tables, "red", "w0x") == ["a"]
    for word in ("red", "w0x", "w1x", "w60x", "w62x", "w65x"):
        assert finds(tables, word, "blue") == []
    assert finds(tables, "grey", "blue") == ["a"]


def test_a_text_of_more_words_than_an_entry_holds_is_found_by_them(tables: Tables) -> None:
    words = ["".join(letters) for letters in islice(product("bcdfghklmn", repeat=6), 60_000)]
    tables.add(said(" ".join(words), id="a"))
    assert size_of(tables) < 2_000_000
    for word in (words[0], words[40_000], words[-1]):
        assert finds(tables, word) == ["a"]


@pytest.mark.parametrize("letter", ["x", "é", "ж"])
def test_a_very_long_word_is_found_and_told_from_another(tables: Tables, letter: str) -> None:
    word = "q" + letter * 5_000
    tables.add(said(word, id="a"), said(f"{word}{letter}", id="b"))
    typed = split_tokens(build_index_text(word))
    assert finds(tables, *typed) == ["a"]
    assert {*finds(tables, typed[0][:400], prefix=True)} == {"a", "b"}


def test_a_record_of_no_words_is_found_by_none(tables: Tables) -> None:
    tables.add(said("...", id="a", name=None))
    assert not is_match(split_fields("", "...", ""), WordPhrase(("a",)))
    assert finds(tables, "a", prefix=True) == []
