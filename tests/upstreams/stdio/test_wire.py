"""JSON-RPC over lines, with a server that says what the test wants."""

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

import pytest

from everkept.core.lines import Overlong
from everkept.errors import InvalidInput, UpstreamError
from everkept.upstreams.links import LinkEnded, NotSent
from everkept.upstreams.stdio.wire import Wire

JSON = dict[str, Any]


class Paper:
    """A pipe that keeps what is written."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.is_full = False
        self.deafness: str | None = None

    def write(self, line: bytes) -> None:
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        self.lines.append(line)

    async def drained(self) -> None:
        await self.may_write.wait()

    @property
    def sent(self) -> list[JSON]:
        return [json.loads(line) for line in self.lines]


class Talk:
    """A wire, its pipe, and what the server said by itself."""

    def __init__(self) -> None:
        self.paper = Paper()
        self.notices: list[tuple[str, JSON]] = []
        self.strays: list[bytes] = []
        self.wire = Wire(
            "notes", self.paper, lambda *notice: self.notices.append(notice), self.strays.append
        )

    def comes(self, message: Any) -> None:
        self.wire.on_line(message if isinstance(message, bytes) else json.dumps(message).encode())

    def answer(self, request_id: Any, **body: Any) -> None:
        self.comes({"jsonrpc": "2.0", "id": request_id, **body})

    async def asked(self, count: int = 1) -> list[asyncio.Task[JSON]]:
        """So many requests that wait for their answers."""
        tasks = [asyncio.create_task(self.wire.request("m", {"n": n})) for n in range(count)]
        await asyncio.sleep(0)
        return tasks


@pytest.fixture
def talk() -> Talk:
    return Talk()


async def failure(task: Awaitable[Any]) -> Exception:
    with pytest.raises((UpstreamError, LinkEnded)) as failed:
        await task
    return failed.value


async def test_answers_find_their_requests_in_any_order(talk: Talk) -> None:
    tasks = await talk.asked(3)
    assert talk.paper.sent == [
        {"jsonrpc": "2.0", "id": number + 1, "method": "m", "params": {"n": number}}
        for number in range(3)
    ]
    for number in (3, 1, 2):
        talk.answer(number, result={"for": number})
    assert await asyncio.gather(*tasks) == [{"for": 1}, {"for": 2}, {"for": 3}]


async def test_an_id_that_came_back_as_text_is_known(talk: Talk) -> None:
    [task] = await talk.asked()
    talk.answer("1", result={})
    assert await task == {}


async def test_a_batch_is_taken_apart(talk: Talk) -> None:
    tasks = await talk.asked(2)
    talk.comes([{"id": 2, "result": {"b": 1}}, {"id": 1, "result": {"a": 1}}])
    assert await asyncio.gather(*tasks) == [{"a": 1}, {"b": 1}]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"code": -1, "message": "No."}}, "No."),
        ({"error": "No."}, "No."),
        ({"error": {"code": 7}}, "error {'code': 7}"),
        ({}, "notes gave an answer without a result."),
        ({"result": None}, "notes gave an answer without a result."),
        ({"result": []}, "notes gave a result that is no object."),
    ],
)
async def test_an_answer_without_a_good_result_fails_its_request_alone(
    talk: Talk, body: JSON, words: str
) -> None:
    bad, good = await talk.asked(2)
    talk.answer(1, **body)
    talk.answer(2, result={"x": 1})
    error = await failure(bad)
    assert isinstance(error, UpstreamError)
    assert error.message == words
    assert await good == {"x": 1}


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc": "2.0", "id": 1, "result": {"x": [}}',
        b'{"id":1,"result":{"x":NaN}}',
        b'{"result":{"x":-Infinity},"id":1}',
        b'{"result":{"x":1e999},"jsonrpc":"2.0","id":1,"jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","id":1,"result":{"x":"\xff"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"x":' + b"[" * 100_000,
        b'{"jsonrpc":"2.0","id":1,"result":{"x":' + b"9" * 10_000 + b"}}",
    ],
)
async def test_an_answer_that_is_no_json_fails_its_request_alone(talk: Talk, line: bytes) -> None:
    bad, good = await talk.asked(2)
    talk.comes(line)
    talk.answer(2, result={})
    assert "no JSON" in (await failure(bad)).args[0]
    assert await good == {}


@pytest.mark.parametrize(
    "line",
    [
        Overlong(b'{"jsonrpc":"2.0","id":1,"result":{"id":2,', b"xxx"),
        Overlong(b'{"jsonrpc":"2.0","result":{"id":2,', b'"id":2}]},"id":1}'),
    ],
)
async def test_a_line_that_is_too_long_fails_the_request_that_it_answers(
    talk: Talk, line: Overlong
) -> None:
    bad, good = await talk.asked(2)
    talk.wire.on_line(line)
    talk.answer(2, result={})
    assert "16,777,216 bytes" in (await failure(bad)).args[0]
    assert await good == {}


async def test_a_line_that_is_too_long_fails_the_only_request_there_is(talk: Talk) -> None:
    [task] = await talk.asked()
    talk.wire.on_line(Overlong(b'{"result": "xxx', b"xxx"))
    assert "bytes" in (await failure(task)).args[0]


async def test_one_that_may_belong_to_several_fails_none(talk: Talk) -> None:
    tasks = await talk.asked(2)
    talk.wire.on_line(Overlong(b"xxx", b'xxx "id":1}'))
    for number in (1, 2):
        talk.answer(number, result={})
    assert await asyncio.gather(*tasks) == [{}, {}]


async def test_what_is_no_message_strays_and_does_no_harm(talk: Talk) -> None:
    [task] = await talk.asked()
    rubbish = (
        b"Hello!",
        b"{}",
        b"7",
        b'{"id": true, "result": {}}',
        b'{"method": 7}',
        b"\xff",
        b'log: {"jsonrpc":"2.0","id":1,',
    )
    for line in (*rubbish, b" "):
        talk.comes(line)
    talk.answer(1, result={})
    assert await task == {}
    assert talk.strays == list(rubbish)


async def test_an_answer_that_nobody_waits_for_is_no_matter(talk: Talk) -> None:
    [task] = await talk.asked()
    talk.answer(1, result={})
    talk.answer(1, result={"late": True})
    talk.answer(99, error={"code": 1, "message": "No."})
    assert await task == {}
    assert talk.strays == []


async def test_progress_is_asked_for_where_somebody_listens(talk: Talk) -> None:
    told: list[Any] = []

    async def report(*progress: Any) -> None:
        told.append(progress)

    params = {"_meta": {"kept": 1}}
    task = asyncio.create_task(talk.wire.request("m", params, report))
    await asyncio.sleep(0)
    assert talk.paper.sent[0]["params"]["_meta"] == {"kept": 1, "progressToken": 1}
    odd = ({"progressToken": 1}, {"progressToken": 2, "progress": 1}, {"progressToken": []})
    good = {"progressToken": 1, "progress": 0.5, "total": True, "message": 7}
    for params in (*odd, good, good | {"progress": 2, "total": 4, "message": "half"}):
        talk.comes({"method": "notifications/progress", "params": params})
    talk.answer(1, result={})
    assert await task == {}
    assert told == [(0.5, None, None), (2, 4, "half")]


async def test_a_cancelled_request_is_cancelled_there(talk: Talk) -> None:
    cancelled, other = await talk.asked(2)
    cancelled.cancel()
    await asyncio.wait({cancelled})
    assert talk.paper.sent[-1]["method"] == "notifications/cancelled"
    assert talk.paper.sent[-1]["params"]["requestId"] == 1
    talk.answer(1, result={"late": True})
    talk.answer(2, result={})
    assert await other == {}


async def test_a_request_that_was_never_written_is_not_cancelled_there(talk: Talk) -> None:
    talk.paper.may_write.clear()
    [task] = await talk.asked()
    task.cancel()
    await asyncio.wait({task})
    assert talk.paper.sent == []


async def test_the_end_reaches_all_who_wait_and_all_who_come_later(talk: Talk) -> None:
    waiting = await talk.asked(2)
    talk.paper.may_write.clear()
    [unwritten] = await talk.asked()
    talk.wire.end("ended with status 1")
    talk.paper.may_write.set()
    for task in waiting:
        error = await failure(task)
        assert not isinstance(error, NotSent)
        assert str(error) == "ended with status 1"
    for late in (unwritten, talk.wire.request("m", {})):
        assert isinstance(await failure(late), NotSent)


async def test_what_nobody_would_read_is_not_sent(talk: Talk) -> None:
    [before] = await talk.asked()
    talk.paper.deafness = "ended with status 1"
    error = await failure(talk.wire.request("m", {}))
    assert isinstance(error, NotSent)
    assert str(error) == "ended with status 1"
    assert len(talk.paper.sent) == 1
    talk.answer(1, result={})  # a last word
    assert await before == {}


async def test_what_could_not_be_written_was_not_sent(talk: Talk) -> None:
    def write(_: bytes) -> None:
        talk.paper.deafness = "closed its input or output"

    talk.paper.write = write
    assert isinstance(await failure(talk.wire.request("m", {})), NotSent)


async def test_a_server_may_ask_whether_we_live_and_nothing_else(talk: Talk) -> None:
    talk.comes({"id": "a", "method": "ping"})
    talk.comes({"id": 5, "method": "sampling/createMessage", "params": {}})
    pong, refusal = talk.paper.sent
    assert pong == {"jsonrpc": "2.0", "id": "a", "result": {}}
    assert refusal["error"]["code"] == -32601
    talk.paper.is_full = True
    talk.comes({"id": "b", "method": "ping"})
    assert len(talk.paper.sent) == 2


async def test_notices_are_passed_on(talk: Talk) -> None:
    talk.comes({"method": "notifications/tools/list_changed"})
    talk.comes({"method": "notifications/other", "params": {"x": 1}})
    assert talk.notices == [
        ("notifications/tools/list_changed", {}),
        ("notifications/other", {"x": 1}),
    ]


async def test_a_request_whose_listener_fails_is_cancelled_there(talk: Talk) -> None:
    async def report(*_: Any) -> None:
        raise ConnectionError

    task = asyncio.create_task(talk.wire.request("m", {}, report))
    await asyncio.sleep(0)
    progress = {"progressToken": 1, "progress": 1}
    talk.comes({"method": "notifications/progress", "params": progress})
    with pytest.raises(ConnectionError):
        await task
    assert talk.paper.sent[-1]["method"] == "notifications/cancelled"


async def test_an_answered_request_is_not_cancelled(talk: Talk) -> None:
    good, bad = await talk.asked(2)
    talk.answer(1, result={})
    talk.answer(2, error={"code": 1, "message": "No."})
    await asyncio.wait({good, bad})
    assert isinstance(bad.exception(), UpstreamError)
    assert len(talk.paper.sent) == 2


async def test_what_is_no_json_is_not_sent(talk: Talk) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for value in (float("nan"), float("inf"), deep):
        with pytest.raises(InvalidInput):
            await talk.wire.request("m", {"x": value})
    assert talk.paper.sent == []


async def test_half_a_character_goes_as_it_is(talk: Talk) -> None:
    task = asyncio.create_task(talk.wire.request("m", {"x": "\ud800"}))
    await asyncio.sleep(0)
    assert talk.paper.sent[0]["params"] == {"x": "\ud800"}
    talk.comes(b'{"id":1,"result":{"x":"\\ud800"}}')
    assert await task == {"x": "\ud800"}
