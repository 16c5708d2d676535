import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.records import RecordFilter
from everkept.embedders.onnx import OnnxEmbedder
from everkept.retrieval.candidates import (
    MAX_QUESTION_CHARACTERS,
    MeaningQuestion,
    find_named_authors,
    is_telling,
    parse_question,
    remove_names,
)
from everkept.retrieval.profile import SearchPlace
from everkept.values import replace
from memory_shelf import MEMORIES, Shelf, memory

KEYWORD = replace(MEMORIES, strategy="keyword")
VECTOR = replace(MEMORIES, strategy="vector")


async def asked(shelf: Shelf, text: str) -> MeaningQuestion:
    return await parse_question([SearchPlace(store, RecordFilter(kinds=("memory",))) for store in shelf.stores], text)


async def test_authors_and_dates_leave_the_question(shelf: Shelf) -> None:
    await shelf.put(memory("one", author="Ann Lee"), memory("two", author="Bob"))
    question = await asked(shelf, "Which books did Ann recommend last week?")
    assert question == MeaningQuestion("Which books did recommend ?", frozenset({"Ann Lee"}))


async def test_a_name_that_is_no_author_stays_in_the_question(shelf: Shelf) -> None:
    await shelf.put(*(memory(f"Melanie: sentence {n}", author="Bob") for n in range(60)))
    query = "Which Docker image does Melanie use?"
    assert await asked(shelf, query) == MeaningQuestion(query)


async def test_a_question_of_names_alone_is_asked_as_it_is(shelf: Shelf) -> None:
    await shelf.put(memory("one", author="Ann"))
    assert (await asked(shelf, "What about Ann?")).text == "What about Ann?"


async def test_a_pasted_text_is_cut(shelf: Shelf) -> None:
    assert len((await asked(shelf, "word " * 50_000)).text) <= MAX_QUESTION_CHARACTERS


GERMAN = "Rechnungen müssen zehn Jahre aufbewahrt werden."
JAPANESE = "本番環境へのリリースは火曜日の午前中に行う。"
OTHERS = ("lunch is at noon", "Das Lager ist in Leipzig.", "日本の住所は郵便番号から入力する。")


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("Wie lange werden Rechnungen aufbewahrt?", GERMAN),
        ("Rechnung", GERMAN),
        ("rechnungen mussen", GERMAN),
        ("リリース", JAPANESE),
        ("本番環境へのリリースはいつ？", JAPANESE),
    ],
)
async def test_other_languages_are_found_by_words(shelf: Shelf, query: str, wanted: str) -> None:
    by_words = Shelf(shelf.stores, None)
    await by_words.put(memory(GERMAN), memory(JAPANESE), *map(memory, OTHERS))
    assert (await by_words.texts(query, KEYWORD))[0] == wanted
    assert (await by_words.texts(query))[0] == wanted


async def test_the_model_knows_other_languages_by_their_spelling_at_most(shelf: Shelf) -> None:
    """The shipped model was trained on English: German texts are near when they share parts of
    words, Japanese ones when they share characters; a translation is not found."""
    model = OnnxEmbedder()
    semantic = Shelf(shelf.stores, model)
    await semantic.put(memory(GERMAN), memory(JAPANESE), *map(memory, OTHERS))
    assert (await semantic.texts("Aufbewahrung von Rechnungen", VECTOR))[0] == GERMAN
    assert (await semantic.texts("火曜日のリリース", VECTOR))[0] == JAPANESE
    assert (await semantic.texts("Aufbewahrung von Rechnungen"))[0] == GERMAN
    assert (await semantic.texts("火曜日のリリース"))[0] == JAPANESE
    await model.close()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("what did ann say", {"Ann Lee"}),
        ("What about Lee's plan?", {"Ann Lee"}),
        ("ANN", {"Ann Lee"}),
        ("what will change", set[str]()),
        ("what did Will change", {"Will"}),
        ("anna and leeway", set[str]()),
        ("Ann or Will?", {"Ann Lee", "Will"}),
        ("José?", {"José"}),
        ("", set[str]()),
    ],
)
def test_an_author_is_asked_about_by_any_part_of_the_name(text: str, named: set[str]) -> None:
    assert find_named_authors(text, ["Ann Lee", "Will", "José"]) == named


def test_who_has_no_name_but_a_role_is_not_asked_about() -> None:
    assert find_named_authors("Does the user see the Assistant?", ["user", "assistant"]) == set()


def test_names_leave_a_text_with_their_endings() -> None:
    text = "What is Ann's favourite book, Ann Lee?"
    assert remove_names(text, ["Ann Lee"]) == "What is favourite book, ?"


def test_a_question_needs_two_words_that_tell_something() -> None:
    assert is_telling("favourite book")
    assert not is_telling("what is the book")


@given(st.text(), st.lists(st.text(), max_size=4))
def test_no_text_is_an_error(text: str, names: list[str]) -> None:
    find_named_authors(text, names)
    assert len(remove_names(text, names)) <= len(text)
