"""What several servers note at once of questions and calls."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from everkept.core.answers import SearchRecord
from everkept.core.mcp import ToolUsage
from everkept.engines.postgres import catalog
from everkept.engines.postgres.library import PostgresLibrary
from postgres_libraries import shelf_of

SERVERS, TIMES = 4, 10


@pytest.fixture
async def libraries() -> AsyncIterator[list[PostgresLibrary]]:
    async with shelf_of() as shelf:
        yield [shelf.library() for _ in range(SERVERS)]


def asked(*queries: str) -> list[SearchRecord]:
    return [SearchRecord(1, "search", query, 0, 1.0) for query in queries]


async def test_servers_that_count_at_once_lose_nothing(libraries: list[PostgresLibrary]) -> None:
    tools = [f"tool {number}" for number in range(8)]

    async def count(number: int, library: PostgresLibrary) -> None:
        for time in range(TIMES):
            # Each in an order of its own.
            ordered = tools[time % 8 :] + tools[: time % 8]
            rows = [ToolUsage(tool, 1, time % 2, 1.0, float(time), time) for tool in ordered]
            await library.add_usage(rows if number % 2 else rows[::-1])

    await asyncio.gather(*(count(*each) for each in enumerate(libraries)))
    calls = SERVERS * TIMES
    assert await libraries[0].list_usage() == [
        ToolUsage(tool, calls, calls // 2, float(calls), TIMES - 1.0, TIMES - 1) for tool in tools
    ]


async def test_servers_that_note_questions_at_once_lose_nothing(libraries: list[PostgresLibrary]) -> None:
    async def ask(number: int) -> None:
        for time in range(TIMES):
            await libraries[number].add_searches(asked(*(f"{number} {time} {part}" for part in range(2))))

    await asyncio.gather(*map(ask, range(SERVERS)))
    found = [search.query for search in await libraries[0].list_searches()][::-1]
    assert len(found) == SERVERS * TIMES * 2
    for number in range(SERVERS):
        ours = [query for query in found if query.startswith(f"{number} ")]
        assert ours == [f"{number} {time} {part}" for time in range(TIMES) for part in range(2)]


async def test_what_is_forgotten_while_others_ask_is_counted_once(libraries: list[PostgresLibrary]) -> None:
    first, second, *others = libraries
    asking = asyncio.gather(*(library.add_searches(asked(f"{time}")) for library in others for time in range(TIMES)))
    counts = await asyncio.gather(first.forget_searches(), second.forget_searches())
    await asking
    left = len(await first.list_searches())
    assert sum(counts) + left == len(others) * TIMES


async def test_no_more_are_kept_than_are_meant_to_be_whoever_asks(
    libraries: list[PostgresLibrary], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "MAX_SEARCHES", 8)
    await asyncio.gather(
        *(
            library.add_searches(asked(f"{number} {time}"))
            for number, library in enumerate(libraries)
            for time in range(TIMES)
        )
    )
    await libraries[0].add_searches(asked("last"))
    found = [search.query for search in await libraries[1].list_searches()]
    assert (len(found), found[0]) == (8, "last")


async def test_questions_that_were_forgotten_leave_room_for_as_many(
    libraries: list[PostgresLibrary], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "MAX_SEARCHES", 3)
    library = libraries[0]
    await library.add_searches(asked("a", "b", "c"))
    await library.forget_searches()
    await library.add_searches(asked("d", "e"))
    assert [search.query for search in await library.list_searches()] == ["e", "d"]
    await library.add_searches(asked("f", "g"))
    assert [search.query for search in await library.list_searches()] == ["g", "f", "e"]


async def test_filters_may_hold_whatever_was_asked_with(libraries: list[PostgresLibrary]) -> None:
    search = SearchRecord(1, "search", "What?", 0, 1.0, "s", {"in": "a\0b \ud800", "größe": [1, None]})
    await libraries[0].add_searches([search])
    assert await libraries[1].list_searches() == [search]


async def test_the_name_of_a_tool_may_be_long(libraries: list[PostgresLibrary]) -> None:
    usage = [ToolUsage("läng" * 3_000, 2, 0, 1.0, 1.0, 1), ToolUsage("läng" * 3_000 + "x", 1, 0, 1, 1, 1)]
    await libraries[0].add_usage(usage)
    assert await libraries[1].list_usage() == usage
