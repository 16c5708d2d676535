"""What a library keeps of how often tools were called."""

import asyncio

import pytest

from everkept.core.mcp import ToolUsage
from everkept.core.ports import Library
from records import DAY_ONE, batch, entity


def calls(tool: str, count: int = 1, *, errors: int = 0, each: float = 2.0, at: int = 0) -> ToolUsage:
    return ToolUsage(tool, count, errors, count * each, each, DAY_ONE + at)


async def test_a_new_library_counts_no_call(library: Library) -> None:
    assert await library.list_usage() == []
    await library.add_usage([])
    assert await library.list_usage() == []


async def test_counts_come_back_as_they_were_kept(library: Library) -> None:
    kept = [ToolUsage("größe.日本", 7, 7, 12.75, 0.125, DAY_ONE), ToolUsage("a-b_c", 3, 0, 0.0, 0.0, 1)]
    await library.add_usage(kept)
    assert await library.list_usage() == kept


@pytest.mark.smoke
async def test_counts_are_added_to_those_that_are_there(library: Library) -> None:
    await library.add_usage([calls("search", 2, errors=1, each=30.0, at=5), calls("read", each=1)])
    await library.add_usage([calls("search", each=4.5, at=3)])
    await library.add_usage([calls("read", each=8.0, at=9)])
    assert await library.list_usage() == [
        ToolUsage("search", 3, 1, 64.5, 30.0, DAY_ONE + 5),
        ToolUsage("read", 2, 0, 9.0, 8.0, DAY_ONE + 9),
    ]


async def test_one_tool_may_be_twice_in_what_is_added(library: Library) -> None:
    await library.add_usage([calls("search"), calls("read"), calls("search", 2)])
    assert [(usage.tool, usage.calls) for usage in await library.list_usage()] == [("search", 3), ("read", 1)]


async def test_the_most_called_come_first_and_then_the_names(library: Library) -> None:
    await library.add_usage([calls("b"), calls("ä"), calls("Z"), calls("c", 9), calls("a")])
    assert [usage.tool for usage in await library.list_usage()] == ["c", "Z", "a", "b", "ä"]


async def test_names_that_differ_by_case_are_other_tools(library: Library) -> None:
    await library.add_usage([calls("search"), calls("Search")])
    assert [usage.calls for usage in await library.list_usage()] == [1, 1]


async def test_adding_at_the_same_time_loses_nothing(library: Library) -> None:
    await asyncio.gather(*(library.add_usage([calls("search", at=n)]) for n in range(30)))
    assert await library.list_usage() == [ToolUsage("search", 30, 0, 60.0, 2.0, DAY_ONE + 29)]


async def test_counts_belong_to_no_project(library: Library) -> None:
    await library.create("shop", "")
    _, store = await library.open("shop")
    await store.commit(batch(entity("Ada")))
    revision = await store.get_revision()
    await library.add_usage([calls("search")])
    assert await store.get_revision() == revision
    await library.delete("shop")
    assert await library.list_usage() == [calls("search")]
