from contextlib import ExitStack
from pathlib import Path

from everkept.core.mcp import ToolUsage
from everkept.engines.sqlite.library import SqliteLibrary
from processes import Actor, acting

PROCESSES, TIMES = 4, 25


async def test_several_processes_that_count_at_once_lose_nothing(library: SqliteLibrary, folder: Path) -> None:
    with ExitStack() as stack:
        others: list[Actor] = [
            stack.enter_context(acting("usage_actors:count_when_told", folder, "search", TIMES))
            for _ in range(PROCESSES)
        ]
        assert [other.hear() for other in others] == ["ready"] * PROCESSES
        for other in others:
            other.tell()
        await library.add_usage([ToolUsage("search", 1, 0, 1.0, 0.5, 0)])
        for other in others:
            other.finish()
    calls = PROCESSES * TIMES
    errors = PROCESSES * (TIMES // 2)
    assert await library.list_usage() == [ToolUsage("search", calls + 1, errors, calls + 1.0, TIMES - 1.0, TIMES - 1)]


async def test_counts_outlive_the_program(library: SqliteLibrary, folder: Path) -> None:
    await library.add_usage([ToolUsage("search", 1, 0, 1.5, 1.5, 7)])
    await library.close()
    again = SqliteLibrary(folder)
    assert await again.list_usage() == [ToolUsage("search", 1, 0, 1.5, 1.5, 7)]
    await again.close()
