"""The gateway's tools follow its file and the servers behind it."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from everkept.app import gateway as module
from everkept.app.gateway import FAULT_INSTRUCTIONS, Gateway
from everkept.core.mcp import UpstreamSettings
from everkept.core.times import read_clock
from everkept.errors import InvalidInput, UpstreamUnavailable
from everkept.tools.tool import Tool, ToolResult, Toolset
from gateways import Asked, MemoryUpstream, a_call, echo, listing, said
from server_processes import HANG

JSON = dict[str, Any]

SEARCH: JSON = {
    "name": "memory__search",
    "description": "Finds what was said.",
    "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}},
    "upstream": {"tool": "search", "paramMapping": {"query": "query"}},
}


class Counts:
    """What was counted."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, bool]] = []

    def note(self, tool: str, milliseconds: float, *, failed: bool, at: int) -> None:
        assert milliseconds >= 0
        assert at > 0
        self.noted.append((tool, failed))


class Server(MemoryUpstream):
    """One that shows whether it was closed, and may take its time to say what it has."""

    is_closed = False
    is_there: asyncio.Event | None = None

    async def list_tools(self) -> list[JSON]:
        if self.is_there is not None:
            await self.is_there.wait()
        return await super().list_tools()

    async def close(self) -> None:
        self.is_closed = True
        await super().close()


class Bench:
    """A gateway's file, and the servers that were opened for it, each with its tools."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened: list[Server] = []
        self.listings: dict[str, list[JSON]] = {}
        self.answer: Callable[[Asked], Any] = echo
        self.counts = Counts()
        self.taken: set[str] = set()
        self.gateway = Gateway(path, self._open, self.counts, read_clock, lambda: self.taken)

    def write(self, *tools: JSON, **more: Any) -> None:
        """As editors do: whole, in the place of what was there."""
        config: JSON = {"upstream": {"command": "program"}, "tools": list(tools), **more}
        if "upstreams" in more:
            del config["upstream"]
        self.put(json.dumps(config, indent=2))

    def put(self, text: str) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(text, "utf-8")
        new.replace(self.path)

    def names(self) -> list[str]:
        return [tool.name for tool in self.gateway.list_tools()]

    async def call(self, name: str, **arguments: Any) -> ToolResult:
        tool = next(tool for tool in self.gateway.list_tools() if tool.name == name)
        return await tool.run(a_call(name), arguments)

    def _open(self, reach: UpstreamSettings) -> Server:
        upstream = Server(reach.name, self.listings.get(reach.name, []), self.answer)
        self.opened.append(upstream)
        return upstream


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[Bench, None]:
    made = Bench(tmp_path / "tools.json")
    try:
        yield made
    finally:
        await made.gateway.close()


@asynccontextmanager
async def watched(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[asyncio.Queue[None], None]:
    """While the file is watched, as a server does; the queue gets each word of a change."""
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.01)
    told: asyncio.Queue[None] = asyncio.Queue()
    end = bench.gateway.on_change(lambda: told.put_nowait(None))
    bench.gateway.start(at_once=True)
    async with asyncio.timeout(HANG):
        yield told
    end()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)


async def test_a_call_goes_to_the_server_behind_and_is_counted(bench: Bench) -> None:
    bench.write(SEARCH)
    result = await bench.call("memory__search", query="ports")
    assert result.wire == said('{"query": "ports"}', structuredContent={"query": "ports"})
    assert bench.opened[0].asked == [Asked("search", {"query": "ports"})]
    assert bench.counts.noted == [("memory__search", False)]


async def test_what_fails_and_what_is_refused_there_counts_as_failed(bench: Bench) -> None:
    def answer(asked: Asked) -> JSON:
        if asked.arguments["query"] == "dead":
            raise UpstreamUnavailable("upstream", "is gone.")
        return said("no", isError=True)

    bench.answer = answer
    bench.write(SEARCH)
    with pytest.raises(UpstreamUnavailable):
        await bench.call("memory__search", query="dead")
    assert (await bench.call("memory__search", query="x")).is_error
    assert bench.counts.noted == [("memory__search", True)] * 2


async def test_no_server_is_started_before_a_tool_is_called(bench: Bench) -> None:
    bench.write(SEARCH, instructions="Ask memory__search first.")
    assert bench.gateway.instructions == "Ask memory__search first."
    await bench.gateway.refresh()
    bench.names()
    assert not bench.opened[0].is_started


async def test_a_file_that_is_missing_or_wrong_is_told_with_its_place(bench: Bench) -> None:
    with pytest.raises(InvalidInput, match="does not exist"):
        bench.gateway.check()
    bench.put('{\n  "upstream": {"command": "x"},\n  "tool": []\n}')
    wrong = Bench(bench.path).gateway
    with pytest.raises(InvalidInput) as error:
        wrong.check()
    assert error.value.facts["file"] == str(bench.path)
    assert error.value.facts["line"] == 3
    assert "line 3" in error.value.message
    assert wrong.list_tools() == []
    assert wrong.instructions == FAULT_INSTRUCTIONS


async def test_a_name_of_ours_is_a_fault_of_the_file(bench: Bench) -> None:
    bench.taken = {"memory__search"}
    bench.write(SEARCH)
    assert bench.gateway.instructions == FAULT_INSTRUCTIONS
    with pytest.raises(InvalidInput, match="memory__search") as error:
        bench.gateway.check()
    assert error.value.facts["line"] > 1


async def test_a_changed_file_takes_effect_and_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write(SEARCH)
    assert bench.names() == ["memory__search"]
    async with watched(bench, monkeypatch) as told:
        bench.write(SEARCH, SEARCH | {"name": "memory__find"})
        await told.get()
    assert bench.names() == ["memory__search", "memory__find"]
    assert len(bench.opened) == 1  # what is reached as before stays connected


async def test_a_file_that_became_wrong_leaves_what_was(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench.write(SEARCH)
    assert bench.names() == ["memory__search"]
    async with watched(bench, monkeypatch) as told:
        bench.put("{")
        await until(lambda: bench.gateway.fault is not None)
        assert str(bench.path) in caplog.text
        assert (await bench.call("memory__search", query="x")).wire is not None
        assert bench.gateway.instructions == FAULT_INSTRUCTIONS
        assert told.empty()
        bench.write(SEARCH | {"name": "memory__find"})
        await told.get()
    assert bench.names() == ["memory__find"]
    assert bench.gateway.fault is None


async def test_a_file_that_comes_later_is_taken_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bench.names() == []
    async with watched(bench, monkeypatch) as told:
        bench.write(SEARCH)
        await told.get()
    assert bench.names() == ["memory__search"]


async def test_what_was_written_back_with_the_same_length_and_time_is_seen(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write(SEARCH)
    assert bench.names() == ["memory__search"]
    before = bench.path.stat()
    async with watched(bench, monkeypatch) as told:
        bench.write(SEARCH | {"name": "memory__searcx"})
        os.utime(bench.path, ns=(before.st_atime_ns, before.st_mtime_ns))
        await told.get()
    assert bench.names() == ["memory__searcx"]


async def test_a_server_that_is_no_longer_wanted_ends_after_its_last_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()

    async def answer(asked: Asked) -> JSON:
        await go_on.wait()
        return said("done")

    bench.answer = answer
    bench.write(SEARCH)
    call = asyncio.create_task(bench.call("memory__search", query="x"))
    async with watched(bench, monkeypatch) as told:
        await until(lambda: bool(bench.opened and bench.opened[0].asked))
        bench.write(SEARCH, upstream={"command": "another"})
        await until(lambda: len(bench.opened) == 2)
        assert told.empty()  # the tools are the same
        assert not bench.opened[0].is_closed
        go_on.set()
        assert (await call).text == "done"
        await until(lambda: bench.opened[0].is_closed)
    assert len(bench.opened) == 2
    assert not bench.opened[1].is_closed


async def test_a_server_may_be_started_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write(SEARCH, upstream={"command": "program", "start": "at-start"})
    async with watched(bench, monkeypatch):
        await until(lambda: bool(bench.opened and bench.opened[0].is_started))


PASSING: JSON = {"notes": {"command": "notes", "passThrough": {"prefix": "notes_"}}}


async def test_tools_that_are_passed_through_are_asked_for_each_time(bench: Bench) -> None:
    bench.listings["notes"] = [listing("add"), listing("find")]
    bench.write(upstreams=PASSING)
    assert bench.names() == []
    await bench.gateway.refresh()
    assert bench.names() == ["notes_add", "notes_find"]
    assert (await bench.call("notes_add", text="x")).wire is not None
    assert bench.opened[0].asked == [Asked("add", {"text": "x"})]
    bench.listings["notes"].append(listing("remove"))  # without a word
    await bench.gateway.refresh()
    assert bench.names() == ["notes_add", "notes_find", "notes_remove"]
    assert bench.counts.noted == [("notes_add", False)]


async def test_other_tools_of_a_server_are_told_and_the_same_ones_are_not(bench: Bench) -> None:
    bench.listings["notes"] = [listing("add")]
    bench.write(upstreams=PASSING)
    await bench.gateway.refresh()
    told: asyncio.Queue[None] = asyncio.Queue()
    bench.gateway.on_change(lambda: told.put_nowait(None))
    bench.opened[0].change_tools([listing("add")])
    bench.opened[0].change_tools([listing("add"), listing("remove")])
    async with asyncio.timeout(HANG):
        await told.get()
    assert bench.names() == ["notes_add", "notes_remove"]
    assert told.empty()


WEB: JSON = {"web": {"url": "http://localhost:1/mcp", "passThrough": True}}


async def test_a_server_that_never_answered_is_why_its_tools_are_not_there(bench: Bench) -> None:
    bench.listings["web"] = [listing("fetch")]
    bench.write(upstreams=PASSING | WEB)
    bench.names()
    await bench.opened[0].close()
    await bench.gateway.refresh()
    assert bench.names() == ["fetch"]
    assert list(bench.gateway.failures) == ["notes"]
    assert bench.gateway.find_failure("notes_add") is bench.gateway.failures["notes"]
    assert bench.gateway.find_failure("unknown") is None


async def test_a_server_that_fails_keeps_the_tools_it_had(bench: Bench) -> None:
    bench.listings["notes"] = [listing("add")]
    bench.write(upstreams=PASSING)
    await bench.gateway.refresh()
    await bench.opened[0].close()
    await bench.gateway.refresh()
    assert bench.names() == ["notes_add"]
    assert bench.gateway.find_failure("notes_more") is None
    with pytest.raises(UpstreamUnavailable):
        await bench.call("notes_add")


async def test_a_name_that_two_servers_have_is_that_of_the_first_in_the_file(bench: Bench) -> None:
    bench.listings |= {"notes": [listing("add")], "web": [listing("add"), listing("fetch")]}
    bench.write(upstreams={"notes": {"command": "notes", "passThrough": True}} | WEB)
    bench.names()
    is_there = bench.opened[0].is_there = asyncio.Event()
    await bench.gateway.refresh(patience=0.5)
    assert bench.names() == ["add", "fetch"]
    is_there.set()
    await bench.gateway.refresh()
    await bench.call("add")
    assert (len(bench.opened[0].asked), len(bench.opened[1].asked)) == (1, 0)
    await bench.opened[0].close()
    await bench.gateway.refresh()
    with pytest.raises(UpstreamUnavailable):  # and never the other's
        await bench.call("add")


async def test_a_server_that_never_stops_telling_is_asked_seldom(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    over = asyncio.Event()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 10:
            over.set()
            await asyncio.Event().wait()
        bench.opened[0].change_tools([listing("add")])

    monkeypatch.setattr(module, "pause", pause)
    bench.listings["notes"] = [listing("add")]
    bench.write(upstreams=PASSING)
    await bench.gateway.refresh()
    async with asyncio.timeout(HANG):
        await over.wait()
    assert pauses == [0.2, 1, 2, 4, 8, 15, 30, 30, 30, 30]


async def test_a_call_that_is_cancelled_is_not_counted(bench: Bench) -> None:
    async def answer(asked: Asked) -> JSON:
        await asyncio.Event().wait()
        return said("never")

    bench.answer = answer
    bench.write(SEARCH)
    call = asyncio.create_task(bench.call("memory__search", query="x"))
    await until(lambda: bool(bench.opened and bench.opened[0].asked))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert bench.counts.noted == []


async def test_a_file_that_was_only_touched_is_not_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.listings["notes"] = [listing("add")]
    bench.write(SEARCH | {"upstream": SEARCH["upstream"] | {"server": "notes"}}, upstreams=PASSING)
    await bench.gateway.refresh()
    names = bench.names()
    async with watched(bench, monkeypatch) as told:
        bench.path.touch()
        bench.put(bench.path.read_text("utf-8"))
        bench.write(SEARCH | {"name": "memory__find"}, upstreams=PASSING)
        await told.get()
    assert told.empty()
    assert len(names) == 2
    assert bench.names() == ["memory__find"]
    assert len(bench.opened) == 1


async def test_what_is_to_be_there_from_the_start_waits_for_a_client(bench: Bench) -> None:
    bench.write(SEARCH, upstream={"command": "program", "start": "at-start"})
    bench.gateway.start(at_once=False)
    assert bench.opened == []
    bench.gateway.welcome()
    assert bench.opened[0].is_started


async def test_a_list_does_not_wait_for_a_slow_server_that_tells_when_it_is_there(bench: Bench) -> None:
    is_there = asyncio.Event()
    bench.listings["notes"] = [listing("add")]
    bench.write(upstreams=PASSING)
    bench.names()
    bench.opened[0].is_there = is_there
    told: asyncio.Queue[None] = asyncio.Queue()
    bench.gateway.on_change(lambda: told.put_nowait(None))
    await bench.gateway.refresh(patience=0.5)
    assert bench.names() == []
    is_there.set()
    async with asyncio.timeout(HANG):
        await told.get()
    assert bench.names() == ["notes_add"]


async def test_a_passed_name_that_is_taken_is_left_out_and_said(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.taken = {"add"}
    bench.listings["notes"] = [listing("add"), listing("find")]
    bench.write(upstreams={"notes": {"command": "notes", "passThrough": True}})
    await bench.gateway.refresh()
    assert bench.names() == ["find"]
    assert "prefix" in caplog.text


async def test_beside_others_those_come_first_and_only_readers_where_nothing_may_be_written(bench: Bench) -> None:
    async def run(*_: Any) -> ToolResult:
        return ToolResult({}, "")

    reads = {"annotations": {"readOnlyHint": True}}
    bench.write(SEARCH | reads, SEARCH | {"name": "memory__add"})
    own = Toolset([Tool("recall", "Finds.", {"type": "object"}, run)])
    gateway = bench.gateway
    every = [tool.name for tool in gateway.combine_tools(own, only_reads=False)]
    assert every == ["recall", "memory__search", "memory__add"]
    readers = [tool.name for tool in gateway.combine_tools(own, only_reads=True)]
    assert readers == ["recall", "memory__search"]
    assert gateway.combine_tools(own, only_reads=True) is gateway.combine_tools(own, only_reads=True)
