from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.core.ports import Library, RecordStore
from everkept.core.records import Batch, Insert, Record
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import InvalidInput
from everkept.retrieval.search import Place, Profile, search

ENTITIES = Profile(kinds=("entity", "observation"), merge_children=True)
FACTS = {
    "Shop API": ["written in C++ and node.js", "lives in src/main.py", "what's up? Alice asked"],
    "Orders": ["foo-bar is its queue", "party at noon 🎉", "東京都の設定を変更した"],
    "Alice": ["knows the parser", "works at Orders on Tuesdays"],
    "Grösse": ["the size of a thing"],
    "getUserName": ["a function"],
    "Plan C": ["nothing to do with languages"],
}


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RecordStore]:
    library: Library = MemoryLibrary() if request.param == "memory" else SqliteLibrary(tmp_path)
    await library.create("one", "")
    _, store = await library.open("one")
    steps: list[Insert] = []
    for at, (name, texts) in enumerate(FACTS.items(), start=1):
        steps.append(
            Insert(Record(name, "entity", at, at, name=name, type="thing", name_key=name.lower()))
        )
        steps += [
            Insert(Record(f"{name}/{i}", "observation", at, at, text=text, parent=name))
            for i, text in enumerate(texts)
        ]
    await store.commit(Batch(tuple(steps), 1, "test"))
    yield store
    await library.close()


async def names(store: RecordStore, query: str, limit: int = 10) -> list[str]:
    found = await search([Place(store)], query, ENTITIES, limit=limit)
    return [hit.record.name or "" for hit in found.hits]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("C++", "Shop API"),
        ("node.js", "Shop API"),
        ("foo-bar", "Orders"),
        ("foobar", "Orders"),
        ("what's up? Alice", "Shop API"),
        ("src/main.py", "Shop API"),
        ("main.py", "Shop API"),
        ("🎉", "Orders"),
        ("設定", "Orders"),
        ("Größe", "Grösse"),
        ("user name", "getUserName"),
        ("parsers", "Alice"),
        ("arser", "Alice"),
        ("Shop lives", "Shop API"),
        ("Alice AND parser", "Alice"),
        ('"works at"', "Alice"),
        ("pars*", "Alice"),
        ("Alice NOT up", "Alice"),
        ("what is the size of a thing?", "Grösse"),
        ("size elephants", "Grösse"),
    ],
)
async def test_what_people_type_finds_what_they_mean(
    store: RecordStore, query: str, first: str
) -> None:
    assert (await names(store, query))[:1] == [first]


async def test_a_language_is_not_found_by_its_letter(store: RecordStore) -> None:
    assert "Plan C" not in await names(store, "C++")


@pytest.mark.parametrize(
    "query",
    ['foo" AND (', '"', "AND", "NOT", "", " ", "()", "*", "?!", "a:b", "\t\n", "-"],
)
async def test_no_text_is_an_error(store: RecordStore, query: str) -> None:
    await search([Place(store)], query, ENTITIES, limit=10)


async def test_a_name_stands_above_an_observation(store: RecordStore) -> None:
    assert await names(store, "Orders") == ["Orders", "Alice"]


async def test_all_words_go_before_any_and_any_before_parts_of_words(store: RecordStore) -> None:
    async def tier(query: str) -> str | None:
        return (await search([Place(store)], query, ENTITIES, limit=10)).tier

    assert await tier("works Tuesdays") == "all"
    assert await tier("works elephants") == "any"
    assert await tier("uesday") == "substring"
    assert await tier("works OR elephants") == "expression"
    assert await tier("elephants") is None


async def test_pages_follow_each_other_without_gap_or_repeat(store: RecordStore) -> None:
    whole = await names(store, "the OR in OR a OR at OR to", limit=100)
    assert len(whole) > 3
    seen: list[str] = []
    cursor = None
    while True:
        page = await search(
            [Place(store)], "the OR in OR a OR at OR to", ENTITIES, limit=2, cursor=cursor
        )
        seen += [hit.record.name or "" for hit in page.hits]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == whole


@pytest.mark.parametrize("cursor", ["", "x", "bm90IGpzb24=", "WyJhbGwiLCAtMV0=", "NQ==", "é"])
async def test_a_cursor_that_was_never_given_out_is_refused(
    store: RecordStore, cursor: str
) -> None:
    with pytest.raises(InvalidInput):
        await search([Place(store)], "x", ENTITIES, limit=2, cursor=cursor)
