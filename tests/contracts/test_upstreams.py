"""What every upstream promises, however it is reached."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everkept.core.mcp import Upstream
from everkept.errors import UpstreamError, UpstreamUnavailable
from examples import examples
from upstream_tools import ODD, Actor
from upstreams import CRASHING_SCENES, PATIENCE, SCENES, Scene, there

NUMBERS = (
    st.integers()
    | st.integers(-(10**60), 10**60)
    | st.floats(allow_nan=False).filter(lambda number: abs(number) != float("inf"))
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(params=SCENES)
async def upstream(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Upstream]:
    async with SCENES[request.param](tmp_path) as scene:
        yield scene.upstream


@pytest.fixture(params=CRASHING_SCENES)
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    async with CRASHING_SCENES[request.param](tmp_path) as scene:
        yield scene


@given(st.dictionaries(st.text(), VALUES, max_size=4))
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_values_go_there_and_back_as_they_are(upstream: Upstream, arguments: dict[str, Any]) -> None:
    answer = await upstream.call("echo", arguments)
    assert repr(answer["structuredContent"]) == repr(arguments)  # 1, 1.0 and True are not the same


async def test_what_nobody_knows_in_a_result_is_kept(upstream: Upstream) -> None:
    assert await upstream.call("odd", {}) == json.loads(ODD)


async def test_a_hundred_calls_at_once_get_each_its_own_answer(upstream: Upstream) -> None:
    calls = (upstream.call("echo", {"number": number}) for number in range(100))
    answers = await asyncio.gather(*calls)
    assert [answer["structuredContent"]["number"] for answer in answers] == list(range(100))


async def test_a_call_that_takes_long_holds_up_no_other(upstream: Upstream, tmp_path: Path) -> None:
    until, started = tmp_path / "until", tmp_path / "started"
    arguments = {"until": str(until), "started": str(started)}
    slow = asyncio.create_task(upstream.call("wait", arguments))
    await there(started)
    assert (await upstream.call("echo", {"a": 1}))["structuredContent"] == {"a": 1}
    assert not slow.done()
    until.touch()
    assert (await slow)["structuredContent"] == {"waited": True}


async def test_progress_is_told_in_its_order_and_before_the_answer(upstream: Upstream) -> None:
    told: list[tuple[float, float | None, str | None]] = []

    async def report(done: float, total: float | None, message: str | None) -> None:
        told.append((done, total, message))

    answer = await upstream.call("progress", {"steps": 3}, report)
    assert told == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
    assert answer["structuredContent"] == {"steps": 3}


async def test_a_cancelled_call_is_cancelled_there_too(upstream: Upstream, tmp_path: Path) -> None:
    started, cancelled = tmp_path / "started", tmp_path / "cancelled"
    arguments = {"started": str(started), "cancelled": str(cancelled)}
    call = asyncio.create_task(upstream.call("wait", arguments))
    await there(started)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await there(cancelled)
    assert (await upstream.call("echo", {"a": 1}))["structuredContent"] == {"a": 1}


async def test_a_result_that_is_an_error_is_a_result(upstream: Upstream) -> None:
    answer = await upstream.call("fails", {"text": "The disk is full."})
    assert answer == {"content": [{"type": "text", "text": "The disk is full."}], "isError": True}


async def test_an_error_comes_in_the_words_of_the_server(upstream: Upstream) -> None:
    with pytest.raises(UpstreamError) as refused:
        await upstream.call("error", {"code": -32050, "message": "Not on a Sunday."})
    assert refused.value.message == "Not on a Sunday."
    assert refused.value.facts == {"upstream": "notes", "upstream_code": -32050}


async def test_an_unknown_tool_is_an_error_of_the_server(upstream: Upstream) -> None:
    with pytest.raises(UpstreamError) as refused:
        await upstream.call("nonsense", {})
    assert refused.value.message == "Unknown tool: nonsense"


async def test_a_crash_fails_the_call_and_not_the_next(scene: Scene) -> None:
    upstream = scene.upstream
    await upstream.call("echo", {})
    with pytest.raises(UpstreamUnavailable):
        await upstream.call("crash", {})
    scene.revive()
    async with asyncio.timeout(PATIENCE):
        assert (await _answered(upstream))["structuredContent"] == {"a": 1}


async def _answered(upstream: Upstream) -> Any:
    """The first answer of a server that may still be starting."""
    while True:
        try:
            return await upstream.call("echo", {"a": 1})
        except UpstreamUnavailable:
            await asyncio.sleep(0.01)


async def test_every_tool_is_listed_as_the_server_describes_it(upstream: Upstream) -> None:
    assert await upstream.list_tools() == Actor().listed()["tools"]


async def test_each_question_reaches_the_server(upstream: Upstream) -> None:
    for _ in range(2):
        await upstream.call("echo", {})
    assert (await upstream.call("count", {}))["structuredContent"] == {"calls": 3}


async def test_changed_tools_are_told_of_and_listed(upstream: Upstream) -> None:
    await upstream.list_tools()
    told = asyncio.Event()
    upstream.on_tools_changed(told.set)
    await upstream.call("change", {"name": "new"})
    async with asyncio.timeout(PATIENCE):
        await told.wait()
    assert (await upstream.list_tools())[-1]["name"] == "new"


async def test_nothing_is_left_after_the_end(upstream: Upstream) -> None:
    before = asyncio.all_tasks()
    await upstream.call("echo", {})
    await upstream.close()
    await upstream.close()
    assert asyncio.all_tasks() <= before
    with pytest.raises(UpstreamUnavailable):
        await upstream.call("echo", {})
    with pytest.raises(UpstreamUnavailable):
        await upstream.list_tools()


async def test_one_that_was_never_used_can_be_closed(upstream: Upstream) -> None:
    await upstream.close()
