"""An upstream as the gateway sees it, and one that is chosen by its entry."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from everkept.core.mcp import UpstreamEndpoint, UpstreamProgram, UpstreamSettings
from everkept.errors import UpstreamError, UpstreamUnavailable
from everkept.upstreams.link import LinkEnded, NotSent, UpstreamLink
from everkept.upstreams.upstream import OwnedUpstream, open_upstream
from upstreams import PATIENCE, Clock, actor

JSON = dict[str, Any]
Answer = Callable[[str, JSON], Awaitable[JSON]]


class Server:
    """Answers each request as the test says; how often it was connected is counted."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[tuple[str, JSON]] = []
        self.connections = 0
        self.reports: list[Any] = []
        self.answers_probes = True
        self.probes = 0
        self.is_left = asyncio.Event()
        self.has_given_up_probe = asyncio.Event()

    @asynccontextmanager
    async def connect(
        self, reach: UpstreamSettings, environment: Mapping[str, str], changed: Callable[[], None]
    ) -> AsyncGenerator[UpstreamLink, None]:
        self.connections += 1
        try:
            yield self
        finally:
            self.is_left.set()

    async def request(self, method: str, params: Mapping[str, Any], report: Any = None) -> JSON:
        self.asked.append((method, dict(params)))
        self.reports.append(report)
        return await self.answer(method, dict(params))

    async def probe(self) -> None:
        self.probes += 1
        if not self.answers_probes:
            try:
                await forever("probe", {})
            finally:
                self.has_given_up_probe.set()

    async def wait_ended(self) -> str:
        await forever("end", {})
        return "never"


async def forever(_method: str, _params: JSON) -> JSON:
    await asyncio.Event().wait()
    return {}


@asynccontextmanager
async def upstream_of(answer: Answer, *, probe: float = 0.05, **reach: Any) -> AsyncGenerator[tuple[Any, Server], None]:
    server = Server(answer)
    told = UpstreamSettings("notes", **({"way": UpstreamProgram("x")} | reach))
    upstream = OwnedUpstream(told, {}, server.connect, pauses=(0.0,), probe=probe)
    try:
        async with asyncio.timeout(PATIENCE):
            yield upstream, server
    finally:
        await upstream.close()


async def test_every_page_of_the_tools_is_asked_for() -> None:
    pages = {None: ("a", ""), "": ("b", "2"), "2": ("c", None)}

    async def answer(_: str, params: JSON) -> JSON:
        tool, more = pages[params.get("cursor")]
        return {"tools": [{"name": tool}], "nextCursor": more}

    async with upstream_of(answer) as (upstream, server):
        assert await upstream.list_tools() == [{"name": "a"}, {"name": "b"}, {"name": "c"}]
        assert [params for _, params in server.asked] == [{}, {"cursor": ""}, {"cursor": "2"}]


@pytest.mark.parametrize(
    "page",
    [
        {"tools": [], "nextCursor": "again"},
        {"tools": [], "nextCursor": 7},
        {"tools": None},
        {"tools": {"name": "a"}},
        {"tools": ["a"]},
        {},
    ],
)
async def test_a_list_of_tools_that_is_none_is_the_servers_fault(page: JSON) -> None:
    async def answer(*_: Any) -> JSON:
        return page

    async with upstream_of(answer) as (upstream, _):
        with pytest.raises(UpstreamError):
            await upstream.list_tools()


async def test_a_list_of_tools_without_an_end_is_cut() -> None:
    async def answer(_: str, params: JSON) -> JSON:
        return {"tools": [], "nextCursor": params.get("cursor", "") + "x"}

    async with upstream_of(answer) as (upstream, server):
        with pytest.raises(UpstreamError):
            await upstream.list_tools()
        assert len(server.asked) == 1000


async def test_what_was_never_sent_is_sent_once_more_on_a_new_connection() -> None:
    failures = [NotSent("was gone")]

    async def answer(*_: Any) -> JSON:
        if failures:
            raise failures.pop()
        return {"content": []}

    async with upstream_of(answer) as (upstream, server):
        assert await upstream.call("a", {}) == {"content": []}
        assert (len(server.asked), server.connections) == (2, 2)


async def test_what_cannot_be_sent_twice_in_a_row_fails() -> None:
    async def answer(*_: Any) -> JSON:
        raise NotSent("was gone")

    async with upstream_of(answer) as (upstream, server):
        with pytest.raises(UpstreamUnavailable):
            await upstream.call("a", {})
        assert len(server.asked) == 2


async def test_what_may_have_taken_effect_is_never_repeated() -> None:
    async def answer(*_: Any) -> JSON:
        raise LinkEnded("ended with status 1")

    async with upstream_of(answer) as (upstream, server):
        for number in (1, 2):
            with pytest.raises(UpstreamUnavailable) as error:
                await upstream.call("a", {})
            assert error.value.message == "notes did not answer: it ended with status 1."
            assert "not repeated" in (error.value.hint or "")
            assert not error.value.retry_possible
            assert (len(server.asked), server.connections) == (number, number)


async def test_a_list_that_was_cut_off_may_be_asked_for_again() -> None:
    async def answer(*_: Any) -> JSON:
        raise LinkEnded("ended with status 1")

    async with upstream_of(answer) as (upstream, _):
        with pytest.raises(UpstreamUnavailable) as error:
            await upstream.list_tools()
        assert error.value.retry_possible
        assert error.value.hint is None


async def test_a_slow_call_does_not_end_a_connection_that_still_answers() -> None:
    async with upstream_of(forever, call_timeout=0.05) as (upstream, server):
        for _ in range(3):
            with pytest.raises(UpstreamUnavailable) as error:
                await upstream.call("a", {})
        assert "within 0.05 s" in error.value.message
        assert "not repeated" in (error.value.hint or "")
        assert not error.value.retry_possible
        assert server.connections == 1


async def test_a_server_that_answers_nothing_at_all_is_connected_anew() -> None:
    async with upstream_of(forever, call_timeout=0.05) as (upstream, server):
        server.answers_probes = False
        while server.connections < 2:
            with pytest.raises(UpstreamUnavailable):
                await upstream.call("a", {})


@pytest.mark.parametrize(
    ("way", "what"), [(UpstreamProgram("x"), "it"), (UpstreamEndpoint("https://example.com/mcp"), "the connection")]
)
async def test_calls_that_end_with_a_silent_server_are_told_that_it_hung(
    way: UpstreamProgram | UpstreamEndpoint, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)

    async def answer(*_: Any) -> JSON:
        await server.is_left.wait()
        raise LinkEnded("was left")

    async with upstream_of(answer, way=way, call_timeout=2) as (upstream, server):
        server.answers_probes = False
        early = asyncio.create_task(upstream.call("a", {}))
        await clock.goes_on(1)
        late = asyncio.create_task(upstream.call("a", {}))
        await clock.goes_on(1.1)
        await asyncio.wait({early})
        await clock.goes_on(0.1)
        with pytest.raises(UpstreamUnavailable) as error:
            await late
        reason = f"it sent nothing for 2.05 s, so Everkept ended {what}."
        assert error.value.message == f"notes did not answer: {reason}"
        assert not error.value.retry_possible


async def test_a_silent_server_is_connected_anew_while_other_calls_wait() -> None:
    async with upstream_of(forever, call_timeout=0.2) as (upstream, server):
        server.answers_probes = False

        async def ask_on() -> None:
            while server.connections < 2:
                with pytest.raises(UpstreamUnavailable):
                    await upstream.call("a", {})

        # One begins while another waits, again and again.
        await asyncio.gather(*(after(number * 0.05, ask_on) for number in range(4)))


async def after(seconds: float, act: Callable[[], Awaitable[None]]) -> None:
    await asyncio.sleep(seconds)
    await act()


async def test_a_server_that_has_answered_another_call_is_not_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slow = Clock(monkeypatch), asyncio.Event()

    async def answer(_: str, params: JSON) -> JSON:
        if params["name"] == "quick":
            return {"content": []}
        slow.set()
        return await forever("slow", {})

    async with upstream_of(answer, call_timeout=5) as (upstream, server):
        call = asyncio.create_task(upstream.call("slow", {}))
        await slow.wait()
        await upstream.call("quick", {})
        await clock.goes_on(5)
        with pytest.raises(UpstreamUnavailable):
            await call
        await asyncio.sleep(0)
        assert server.probes == 0


async def test_an_answer_while_it_is_doubted_keeps_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    async def answer(_: str, params: JSON) -> JSON:
        return {"content": []} if params["name"] == "quick" else await forever("slow", {})

    async with upstream_of(answer, call_timeout=0.05, probe=5) as (upstream, server):
        server.answers_probes = False
        with pytest.raises(UpstreamUnavailable):
            await upstream.call("slow", {})
        await clock.goes_on(0)  # it is asked whether it lives
        await upstream.call("quick", {})
        await clock.goes_on(5)
        await server.has_given_up_probe.wait()
        for _ in range(3):
            await upstream.call("quick", {})
        assert (server.probes, server.connections) == (1, 1)


async def test_progress_gives_a_call_its_time_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, told = Clock(monkeypatch), list[float]()

    async def report(done: float, *_: Any) -> None:
        told.append(done)

    async def answer(*_: Any) -> JSON:
        for step in range(4):
            await clock.goes_on(1.4)
            await server.reports[-1](step, None, None)
        return {"content": []}

    async with upstream_of(answer, call_timeout=2) as (upstream, server):
        assert await upstream.call("a", {}, report) == {"content": []}
        assert told == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("steps", "words"),
    [(0, "within 2 s."), (3, "within 2 s after its last progress."), (100, "within 20 s, despite its progress.")],
)
async def test_no_progress_gives_a_call_time_for_ever(monkeypatch: pytest.MonkeyPatch, steps: int, words: str) -> None:
    clock, told = Clock(monkeypatch), list[float]()

    async def report(done: float, *_: Any) -> None:
        told.append(done)

    async def answer(*_: Any) -> JSON:
        for step in range(steps):
            await clock.goes_on(1.4)
            await server.reports[-1](step, None, None)
        await clock.goes_on(2.1)
        return await forever("a", {})

    async with upstream_of(answer, call_timeout=2) as (upstream, server):
        with pytest.raises(UpstreamUnavailable) as error:
            await upstream.call("a", {}, report)
        assert error.value.message == f"notes did not answer {words}"
        assert len(told) == min(steps, 14)  # 1.4 seconds each
        await asyncio.sleep(0)
        assert server.probes == (0 if steps else 1)


WEIGHED = """
import json, sys
from everkept.core.mcp import UpstreamEndpoint, UpstreamProgram, UpstreamSettings
from everkept.upstreams.upstream import open_upstream
open_upstream(UpstreamSettings("a", UpstreamProgram("x")), {})
open_upstream(UpstreamSettings("b", UpstreamEndpoint("http://127.0.0.1:1/mcp")), {})
heavy = {"mcp", "httpx2", "jsonschema", "pydantic", "ctypes", "everkept.upstreams.stdio"}
print(json.dumps(sorted(heavy & set(sys.modules))))
"""


async def test_a_program_is_started() -> None:
    upstream = open_upstream(UpstreamSettings("notes", actor()), dict(os.environ))
    try:
        assert (await upstream.call("name", {}))["structuredContent"] == {"name": "actor"}
        assert upstream.name == "notes"
    finally:
        await upstream.close()


@pytest.mark.parametrize("way", [UpstreamProgram("no-such-program"), UpstreamEndpoint("http://127.0.0.1:1/mcp")])
async def test_what_cannot_be_reached_is_unavailable(way: UpstreamProgram | UpstreamEndpoint) -> None:
    upstream = open_upstream(UpstreamSettings("notes", way), dict(os.environ))
    try:
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(UpstreamUnavailable):
                await upstream.list_tools()
    finally:
        await upstream.close()


def test_an_upstream_that_is_not_used_loads_nothing() -> None:
    said = subprocess.run([sys.executable, "-c", WEIGHED], capture_output=True, check=True, timeout=PATIENCE)
    assert json.loads(said.stdout) == []
