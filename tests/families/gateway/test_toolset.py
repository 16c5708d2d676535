import asyncio
import logging
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from everkept.errors import InvalidInput, UpstreamError, UpstreamUnavailable
from everkept.families.gateway.model import JSON, SINGLE_UPSTREAM, GatewayConfig, PassThrough
from everkept.families.gateway.toolset import GatewayTools
from everkept.tools.tool import Effect, Tool, ToolResult
from gateways import Asked, MemoryUpstream, a_call, echo, gateway_config, listing, said, tool_config

SEARCH = listing("search", {"query": {"type": "string"}})


def mapped_tool(upstream: MemoryUpstream, **more: Any) -> Tool:
    (tool,) = GatewayTools(gateway_config(tool_config(**more)), {upstream.name: upstream}).list_mapped_tools()
    return tool


async def passed_tools(upstream: MemoryUpstream, config: GatewayConfig) -> list[Tool]:
    return await GatewayTools(config, {upstream.name: upstream}).list_passed_tools(upstream.name)


async def called(tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
    return await tool.run(a_call(tool.name), arguments)


def passing(through: PassThrough | None = None) -> GatewayConfig:
    return gateway_config(upstreams={SINGLE_UPSTREAM: through or PassThrough()})


async def test_a_call_goes_to_the_tool_behind_with_its_parameters() -> None:
    upstream = MemoryUpstream(SINGLE_UPSTREAM, [SEARCH])
    tool = mapped_tool(upstream, mapping={"query": "searchQuery"})
    result = await called(tool, {"query": "tea", "unmapped": 1})
    assert upstream.asked == [Asked("search", {"searchQuery": "tea"})]
    assert result.facts == {"searchQuery": "tea"}


async def test_the_answer_passes_unchanged() -> None:
    answer = said("found", isError=True, _meta={"x": 1}, unknown=[None])
    upstream = MemoryUpstream(SINGLE_UPSTREAM, [SEARCH], lambda _: answer)
    result = await called(mapped_tool(upstream), {"query": "tea"})
    assert result.wire == answer
    assert result.is_error
    assert result.text == "found"


async def test_wrong_arguments_never_reach_the_server() -> None:
    upstream = MemoryUpstream(SINGLE_UPSTREAM, [SEARCH])
    with pytest.raises(InvalidInput):
        await called(mapped_tool(upstream, tool="notes__search"), {"query": 5})
    assert (upstream.asked, upstream.listings, upstream.is_started) == ([], 0, False)


def test_a_mapped_tool_is_listed_as_the_file_has_it() -> None:
    upstream = MemoryUpstream(SINGLE_UPSTREAM, [])
    tool = mapped_tool(
        upstream,
        title="Search",
        annotations={"readOnlyHint": True},
        output_schema={"type": "object"},
        mapping={"startLine": "from"},
    )
    assert tool.listing == {
        "name": "memory__search",
        "title": "Search",
        "description": "Finds what was said.",
        "inputSchema": {"type": "object", "properties": {"startLine": {"type": "string"}}},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    }
    assert (tool.effect, tool.is_read_only) == (Effect.OUTSIDE, True)
    assert not upstream.is_started


def test_what_the_file_does_not_say_is_not_listed() -> None:
    tool = mapped_tool(MemoryUpstream(SINGLE_UPSTREAM, []))
    assert tool.listing is not None
    assert set(tool.listing) == {"name", "description", "inputSchema"}
    assert not tool.is_read_only


async def test_a_prefixed_name_finds_the_bare_tool_by_asking_once() -> None:
    upstream = MemoryUpstream(SINGLE_UPSTREAM, [SEARCH])
    tool = mapped_tool(upstream, tool="episodic-memory__search")
    upstream.start()
    for _ in range(3):
        await called(tool, {"query": "tea"})
    assert [asked.tool for asked in upstream.asked] == ["search"] * 3
    assert upstream.listings == 1


async def test_a_name_without_a_prefix_goes_as_it_is() -> None:
    upstream = MemoryUpstream(SINGLE_UPSTREAM, [])
    await called(mapped_tool(upstream), {"query": "tea"})
    assert (upstream.asked[0].tool, upstream.listings) == ("search", 0)


async def test_a_prefixed_name_that_fits_nothing_names_what_there_is() -> None:
    upstream = MemoryUpstream(SINGLE_UPSTREAM, [listing(f"tool_{i}") for i in range(12)])
    with pytest.raises(UpstreamError) as caught:
        await called(mapped_tool(upstream, tool="notes__search"), {"query": "tea"})
    assert '"notes__search"; it has: tool_0, tool_1' in str(caught.value)
    assert "and 2 more" in str(caught.value)
    assert "everkept gateway check" in str(caught.value)
    assert upstream.asked == []


async def test_progress_is_asked_for_where_somebody_listens() -> None:
    heard: list[float] = []

    async def report(done: float, _total: float | None, _message: str | None) -> None:
        heard.append(done)

    async def answer(asked: Asked) -> JSON:
        if asked.report is not None:
            await asked.report(0.5, 1.0, "half")
        return said("done")

    upstream = MemoryUpstream(SINGLE_UPSTREAM, [SEARCH], answer)
    tool = mapped_tool(upstream)
    await tool.run(a_call(report=report), {"query": "tea"})
    await tool.run(a_call(), {"query": "tea"})
    assert heard == [0.5]
    assert upstream.asked[1].report is None


async def test_an_unreachable_server_fails_the_call() -> None:
    upstream = MemoryUpstream(SINGLE_UPSTREAM, [SEARCH])
    tool = mapped_tool(upstream)
    await upstream.close()
    with pytest.raises(UpstreamUnavailable):
        await called(tool, {"query": "tea"})


async def test_many_calls_at_once_keep_their_own_answers() -> None:
    async def answer(asked: Asked) -> JSON:
        await asyncio.sleep(0)
        return echo(asked)

    tool = mapped_tool(MemoryUpstream(SINGLE_UPSTREAM, [SEARCH], answer), constants={("filters",): {}})
    results = await asyncio.gather(*(called(tool, {"query": str(i)}) for i in range(100)))
    assert [result.facts["query"] for result in results] == [str(i) for i in range(100)]


async def test_tools_are_passed_through_whole() -> None:
    theirs = listing("search", title="Search", annotations={"readOnlyHint": True}, _meta={"x": 1})
    upstream = MemoryUpstream(SINGLE_UPSTREAM, [theirs])
    (tool,) = await passed_tools(upstream, passing(PassThrough(prefix="notes_")))
    assert tool.listing == theirs | {"name": "notes_search"}
    assert (tool.name, tool.effect) == ("notes_search", Effect.OUTSIDE)
    result = await called(tool, {"anything": [1], "not in the schema": None})
    assert upstream.asked == [Asked("search", {"anything": [1], "not in the schema": None})]
    assert result.wire == echo(upstream.asked[0])


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_a_server_is_believed_that_a_tool_only_reads_where_the_file_says_so(is_trusted: bool) -> None:
    reads = listing("read", annotations={"readOnlyHint": True})
    writes = listing("write", annotations={"readOnlyHint": False})
    upstream = MemoryUpstream(SINGLE_UPSTREAM, [reads, writes, listing("silent")])
    tools = await passed_tools(upstream, passing(PassThrough(trusts_read_only_hint=is_trusted)))
    assert [tool.name for tool in tools if tool.is_read_only] == (["read"] if is_trusted else [])
    assert tools[0].listing == reads


async def test_a_passed_name_with_a_prefix_is_the_servers_own() -> None:
    upstream = MemoryUpstream(SINGLE_UPSTREAM, [listing("a__search"), listing("search")])
    tools = await passed_tools(upstream, passing())
    await called(tools[0], {})
    assert (upstream.asked[0].tool, upstream.listings) == ("a__search", 1)


async def test_a_tool_with_an_entry_is_not_offered_twice() -> None:
    upstream = MemoryUpstream(SINGLE_UPSTREAM, [SEARCH, listing("read")])
    config = gateway_config(tool_config(tool="notes__search"), upstreams={SINGLE_UPSTREAM: PassThrough()})
    assert [tool.name for tool in await passed_tools(upstream, config)] == ["read"]


async def test_an_entry_for_another_server_hides_nothing_here() -> None:
    upstream = MemoryUpstream("notes", [SEARCH])
    config = gateway_config(tool_config(upstream="web"), upstreams={"notes": PassThrough(), "web": None})
    family = GatewayTools(config, {"notes": upstream, "web": MemoryUpstream("web", [])})
    assert [tool.name for tool in await family.list_passed_tools("notes")] == ["search"]


async def test_tools_that_cannot_be_offered_are_left_out_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    odd: list[Any] = [{"name": "two words", "inputSchema": {"type": "object"}}, {"name": "bare"}]
    upstream = MemoryUpstream(SINGLE_UPSTREAM, [*odd, {"nameless": True}, SEARCH])
    with caplog.at_level(logging.WARNING):
        tools = await passed_tools(upstream, passing())
    assert [tool.name for tool in tools] == ["search"]
    assert [record.message.split(" is not offered")[0] for record in caplog.records] == [
        "gateway: two words of upstream",
        "gateway: bare of upstream",
    ]


async def test_a_new_name_makes_a_tool_fit_to_be_offered() -> None:
    upstream = MemoryUpstream(SINGLE_UPSTREAM, [SEARCH | {"name": "two words"}])
    (tool,) = await passed_tools(upstream, passing(PassThrough(rename={"two words": "search"})))
    await called(tool, {})
    assert (tool.name, upstream.asked[0].tool) == ("search", "two words")


async def test_what_is_passed_through_is_asked_for_now() -> None:
    upstream = MemoryUpstream(SINGLE_UPSTREAM, [SEARCH])
    family = GatewayTools(passing(), {SINGLE_UPSTREAM: upstream})
    await family.list_passed_tools(SINGLE_UPSTREAM)
    upstream.change_tools([listing("read")])
    assert [tool.name for tool in await family.list_passed_tools(SINGLE_UPSTREAM)] == ["read"]


def test_a_start_loads_nothing_heavy() -> None:
    code = (
        "import sys, everkept.families.gateway.toolset;"
        "print([m for m in ('mcp', 'jsonschema', 'referencing', 'subprocess') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"
