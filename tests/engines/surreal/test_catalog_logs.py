"""What several processes note at once of questions and calls."""

import asyncio

import pytest

from everkept.core.answers import SearchRecord
from everkept.core.mcp import ToolUsage
from everkept.engines.surreal import catalog
from everkept.engines.surreal.library import SurrealLibrary
from surreal_libraries import Shelf

PROCESSES, TIMES = 4, 10


@pytest.fixture
def libraries(shelf: Shelf) -> list[SurrealLibrary]:
    return [shelf.library() for _ in range(PROCESSES)]


async def test_processes_that_count_at_once_lose_nothing(libraries: list[SurrealLibrary]) -> None:
    async def count(library: SurrealLibrary) -> None:
        for number in range(TIMES):
            await library.add_usage(
                [ToolUsage("search", 1, number % 2, 1.0, float(number), number), ToolUsage("b", 1, 0, 0, 0, 0)]
            )

    await asyncio.gather(*(count(library) for library in libraries))
    calls = PROCESSES * TIMES
    assert await libraries[0].list_usage() == [
        ToolUsage("b", calls, 0, 0.0, 0.0, 0),
        ToolUsage("search", calls, calls // 2, float(calls), TIMES - 1.0, TIMES - 1),
    ]


async def test_processes_that_note_questions_at_once_lose_nothing(libraries: list[SurrealLibrary]) -> None:
    async def ask(number: int) -> None:
        for time in range(TIMES):
            asked = [SearchRecord(1, "search", f"{number} {time} {part}", 0, 1.0) for part in range(2)]
            await libraries[number].add_searches(asked)

    await asyncio.gather(*map(ask, range(PROCESSES)))
    found = [search.query for search in await libraries[0].list_searches()][::-1]
    assert len(found) == PROCESSES * TIMES * 2
    for number in range(PROCESSES):
        ours = [query for query in found if query.startswith(f"{number} ")]
        assert ours == [f"{number} {time} {part}" for time in range(TIMES) for part in range(2)]


async def test_what_is_forgotten_while_others_ask_is_counted_once(libraries: list[SurrealLibrary]) -> None:
    first, second, *others = libraries
    asking = asyncio.gather(
        *(
            library.add_searches([SearchRecord(1, "search", f"{time}", 0, 1.0)])
            for library in others
            for time in range(TIMES)
        )
    )
    counts = await asyncio.gather(first.forget_searches(), second.forget_searches())
    await asking
    left = len(await first.list_searches())
    assert sum(counts) + left == len(others) * TIMES


async def test_many_questions_go_in_several_transactions(
    libraries: list[SurrealLibrary], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "MAX_WRITE_ROWS", 3)
    monkeypatch.setattr(catalog, "MAX_SEARCHES", 8)
    library = libraries[0]
    for start in (0, 7, 9):
        asked = [SearchRecord(1, "search", str(number), 0, 1.0) for number in range(start, start + 7)]
        await library.add_searches(asked)
        found = [search.query for search in await library.list_searches()]
        assert found[:7] == [search.query for search in asked][::-1]
        assert len(found) == min(8, start + 7)
