"""What a library keeps of the past: conversations, and the questions that were asked about them."""

from typing import Any

import pytest

from everkept.core.answers import MAX_SEARCHES, SearchRecord
from everkept.core.ports import Library
from everkept.core.records import RecordFilter
from records import DAY_ONE, batch, entity


def search(query: str, **more: Any) -> SearchRecord:
    fields: dict[str, Any] = {
        "at": DAY_ONE,
        "tool": "recall_previous_discussions",
        "query": query,
        "results": 3,
        "milliseconds": 12.5,
    }
    return SearchRecord(**(fields | more))


async def queries(library: Library, **asked: Any) -> list[str]:
    return [found.query for found in await library.list_searches(**asked)]


async def test_conversations_have_a_store_that_is_no_project_and_not_the_users(library: Library) -> None:
    await (await library.open_history_store()).commit(batch(entity("a turn")))
    await (await library.open_user_store()).commit(batch(entity("a memory")))
    assert [record.id for record in await (await library.open_history_store()).scan(RecordFilter())] == ["a turn"]
    assert [record.id for record in await (await library.open_user_store()).scan(RecordFilter())] == ["a memory"]
    assert await library.list_projects() == []


async def test_a_project_may_be_called_as_the_store_of_conversations(library: Library) -> None:
    await library.create("history", "")
    _, project = await library.open("history")
    await (await library.open_history_store()).commit(batch(entity("a turn")))
    assert await project.scan(RecordFilter()) == []


async def test_calls_for_the_store_of_conversations_give_the_same_one(library: Library) -> None:
    assert await library.open_history_store() is await library.open_history_store()


async def test_a_new_library_was_asked_nothing(library: Library) -> None:
    assert await library.list_searches() == []
    assert await library.forget_searches() == 0


@pytest.mark.smoke
async def test_a_search_comes_back_as_it_was_kept(library: Library) -> None:
    asked = [
        search("größe 日本", session="one", filters={"days": 7, "files": ["ä.py"], "deep": None}),
        search("", results=0, milliseconds=0.0),
    ]
    await library.add_searches(asked)
    assert await library.list_searches() == asked[::-1]


async def test_the_newest_searches_come_first_whatever_their_time(library: Library) -> None:
    await library.add_searches([search("first", at=DAY_ONE + 2), search("second", at=DAY_ONE + 1)])
    await library.add_searches([search("third", at=DAY_ONE)])
    await library.add_searches([])
    assert await queries(library) == ["third", "second", "first"]
    assert await queries(library, limit=2) == ["third", "second"]
    assert await queries(library, limit=0) == []


async def test_searches_can_be_asked_for_by_session(library: Library) -> None:
    await library.add_searches([search("a", session="one"), search("b", session="two"), search("c"), search("d")])
    await library.add_searches([search("e", session="one")])
    assert await queries(library, session="one") == ["e", "a"]
    assert await queries(library, session="one", limit=1) == ["e"]
    assert await queries(library, session="nobody") == []
    assert await queries(library) == ["e", "d", "c", "b", "a"]


async def test_the_oldest_searches_go_when_there_are_too_many(library: Library) -> None:
    await library.add_searches([search(str(number)) for number in range(MAX_SEARCHES)])
    await library.add_searches([search("one more"), search("two more")])
    kept = await queries(library, limit=2 * MAX_SEARCHES)
    assert len(kept) == MAX_SEARCHES
    assert kept[:3] == ["two more", "one more", str(MAX_SEARCHES - 1)]
    assert kept[-1] == "2"


async def test_more_searches_at_once_than_are_kept_leave_the_last_ones(library: Library) -> None:
    await library.add_searches([search(str(number)) for number in range(MAX_SEARCHES + 5)])
    kept = await queries(library, limit=2 * MAX_SEARCHES)
    assert (len(kept), kept[-1]) == (MAX_SEARCHES, "5")


@pytest.mark.parametrize("times", [1, 2])
async def test_forgotten_searches_are_counted_and_gone(library: Library, times: int) -> None:
    for _ in range(times):
        await library.add_searches([search("a"), search("b", session="one")])
        assert await library.forget_searches() == 2
        assert await library.list_searches() == []
        assert await library.forget_searches() == 0
    await library.add_searches([search("c")])
    assert await queries(library) == ["c"]
