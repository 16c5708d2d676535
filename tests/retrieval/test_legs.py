import pytest

from everkept.core.records import Where
from everkept.embedders.onnx import OnnxEmbedder
from everkept.retrieval.legs import LONGEST_QUESTION, Question, understood
from everkept.retrieval.search import Place
from everkept.values import replace
from shelving import MEMORIES, Shelf, memory

KEYWORD = replace(MEMORIES, strategy="keyword")
VECTOR = replace(MEMORIES, strategy="vector")


async def asked(shelf: Shelf, text: str) -> Question:
    return await understood(
        [Place(store, Where(kinds=("memory",))) for store in shelf.stores], text
    )


async def test_authors_and_dates_leave_the_question(shelf: Shelf) -> None:
    await shelf.put(memory("one", author="Ann Lee"), memory("two", author="Bob"))
    question = await asked(shelf, "Which books did Ann recommend last week?")
    assert question == Question("Which books did recommend ?", frozenset({"Ann Lee"}))


async def test_a_name_in_many_texts_leaves_the_question(shelf: Shelf) -> None:
    await shelf.put(*(memory(f"Melanie: sentence {n}") for n in range(10)))
    await shelf.put(*(memory(f"Docker and image {n}") for n in range(3)))
    await shelf.put(*(memory(f"nothing but number {n}") for n in range(60)))
    query = "Which Docker image does Melanie use?"
    assert (await asked(shelf, query)).text == "Which Docker image does use?"


async def test_in_a_small_store_every_word_may_be_the_topic(shelf: Shelf) -> None:
    await shelf.put(*(memory(f"Docker {n}") for n in range(5)))
    query = "Which Docker image is small?"
    assert (await asked(shelf, query)).text == query


async def test_a_question_of_names_alone_is_asked_as_it_is(shelf: Shelf) -> None:
    await shelf.put(memory("one", author="Ann"))
    assert (await asked(shelf, "What about Ann?")).text == "What about Ann?"


async def test_a_pasted_text_is_cut(shelf: Shelf) -> None:
    assert len((await asked(shelf, "word " * 50_000)).text) <= LONGEST_QUESTION


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
    """all-MiniLM-L6-v2 was trained on English: German texts are near when they share parts of
    words, Japanese ones when they share characters; a translation is not found."""
    model = OnnxEmbedder()
    semantic = Shelf(shelf.stores, model)
    await semantic.put(memory(GERMAN), memory(JAPANESE), *map(memory, OTHERS))
    assert (await semantic.texts("Aufbewahrung von Rechnungen", VECTOR))[0] == GERMAN
    assert (await semantic.texts("火曜日のリリース", VECTOR))[0] == JAPANESE
    assert (await semantic.texts("Aufbewahrung von Rechnungen"))[0] == GERMAN
    assert (await semantic.texts("火曜日のリリース"))[0] == JAPANESE
    await model.close()
