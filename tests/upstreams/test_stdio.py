"""JSON-RPC over lines, with a server that says what the test wants."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from everkept.core.mcp import SINGLE_UPSTREAM, OverlongLine, Upstream, UpstreamProgram, UpstreamSettings
from everkept.errors import InvalidInput, UpstreamError, UpstreamUnavailable
from everkept.upstreams.child import ChildProgram
from everkept.upstreams.link import LinkEnded, NotSent, UpstreamLink
from everkept.upstreams.stdio import StdioLink, connect_stdio
from upstreams import PATIENCE, Clock, actor, gone, owned, pid_of, started, there, until

JSON = dict[str, Any]


class Paper:
    """A pipe that keeps what is written."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.is_full = False
        self.closed_reason: str | None = None

    def write(self, line: bytes) -> None:
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        self.lines.append(line)

    async def wait_drained(self) -> None:
        await self.may_write.wait()

    @property
    def sent(self) -> list[JSON]:
        return [json.loads(line) for line in self.lines]


class Talk:
    """A link, its pipe, and what the server said by itself."""

    def __init__(self) -> None:
        self.paper = Paper()
        self.changes: list[str] = []  # of the tools
        self.strays: list[bytes] = []
        self.link = StdioLink(
            "notes", cast(ChildProgram, self.paper), lambda: self.changes.append("told"), self.strays.append
        )

    def comes(self, message: Any) -> None:
        self.link.handle_line(message if isinstance(message, bytes) else json.dumps(message).encode())

    def answer(self, request_id: Any, **body: Any) -> None:
        self.comes({"jsonrpc": "2.0", "id": request_id, **body})

    async def asked(self, count: int = 1) -> list[asyncio.Task[JSON]]:
        """So many requests that wait for their answers."""
        tasks = [asyncio.create_task(self.link.request("m", {"n": n})) for n in range(count)]
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
        {"jsonrpc": "2.0", "id": number + 1, "method": "m", "params": {"n": number}} for number in range(3)
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
        ({}, "notes sent an answer without a result."),
        ({"result": None}, "notes sent an answer without a result."),
        ({"result": []}, "notes sent a result that is not an object."),
    ],
)
async def test_an_answer_without_a_good_result_fails_its_request_alone(talk: Talk, body: JSON, words: str) -> None:
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
    assert "is not JSON" in (await failure(bad)).args[0]
    assert await good == {}


@pytest.mark.parametrize(
    "line",
    [
        OverlongLine(b'{"jsonrpc":"2.0","id":1,"result":{"id":2,', b"xxx"),
        OverlongLine(b'{"jsonrpc":"2.0","result":{"id":2,', b'"id":2}]},"id":1}'),
    ],
)
async def test_a_line_that_is_too_long_fails_the_request_that_it_answers(talk: Talk, line: OverlongLine) -> None:
    bad, good = await talk.asked(2)
    talk.link.handle_line(line)
    talk.answer(2, result={})
    assert "16,777,216 bytes" in (await failure(bad)).args[0]
    assert await good == {}


async def test_a_line_that_is_too_long_fails_the_only_request_there_is(talk: Talk) -> None:
    [task] = await talk.asked()
    talk.link.handle_line(OverlongLine(b'{"result": "xxx', b"xxx"))
    assert "bytes" in (await failure(task)).args[0]


async def test_one_that_may_belong_to_several_fails_none(talk: Talk) -> None:
    tasks = await talk.asked(2)
    talk.link.handle_line(OverlongLine(b"xxx", b'xxx "id":1}'))
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
    task = asyncio.create_task(talk.link.request("m", params, report))
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
    talk.link.end("ended with status 1")
    talk.paper.may_write.set()
    for task in waiting:
        error = await failure(task)
        assert not isinstance(error, NotSent)
        assert str(error) == "ended with status 1"
    for late in (unwritten, talk.link.request("m", {})):
        assert isinstance(await failure(late), NotSent)


async def test_what_nobody_would_read_is_not_sent(talk: Talk) -> None:
    [before] = await talk.asked()
    talk.paper.closed_reason = "ended with status 1"
    error = await failure(talk.link.request("m", {}))
    assert isinstance(error, NotSent)
    assert str(error) == "ended with status 1"
    assert len(talk.paper.sent) == 1
    talk.answer(1, result={})  # a last word
    assert await before == {}


async def test_what_could_not_be_written_was_not_sent(talk: Talk) -> None:
    def write(_: bytes) -> None:
        talk.paper.closed_reason = "closed its input or output"

    talk.paper.write = write
    assert isinstance(await failure(talk.link.request("m", {})), NotSent)


async def test_a_server_may_ask_whether_we_live_and_nothing_else(talk: Talk) -> None:
    talk.comes({"id": "a", "method": "ping"})
    talk.comes({"id": 5, "method": "sampling/createMessage", "params": {}})
    pong, refusal = talk.paper.sent
    assert pong == {"jsonrpc": "2.0", "id": "a", "result": {}}
    assert refusal["error"]["code"] == -32601
    talk.paper.is_full = True
    talk.comes({"id": "b", "method": "ping"})
    assert len(talk.paper.sent) == 2


async def test_changed_tools_are_told_and_other_notices_are_no_matter(talk: Talk) -> None:
    talk.comes({"method": "notifications/other", "params": {"x": 1}})
    assert talk.changes == []
    talk.comes({"method": "notifications/tools/list_changed"})
    assert talk.changes == ["told"]
    assert talk.strays == []


async def test_a_request_whose_listener_fails_is_cancelled_there(talk: Talk) -> None:
    async def report(*_: Any) -> None:
        raise ConnectionError

    task = asyncio.create_task(talk.link.request("m", {}, report))
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
            await talk.link.request("m", {"x": value})
    assert talk.paper.sent == []


async def test_half_a_character_goes_as_it_is(talk: Talk) -> None:
    task = asyncio.create_task(talk.link.request("m", {"x": "\ud800"}))
    await asyncio.sleep(0)
    assert talk.paper.sent[0]["params"] == {"x": "\ud800"}
    talk.comes(b'{"id":1,"result":{"x":"\\ud800"}}')
    assert await task == {"x": "\ud800"}


ERAS = pytest.mark.parametrize("era", ["handshake", "stateless"])


@asynccontextmanager
async def linked() -> AsyncIterator[UpstreamLink]:
    """A connection without an owner."""
    reach = UpstreamSettings("notes", actor("--era", "handshake"))
    async with connect_stdio(reach, dict(os.environ), lambda: None) as link:
        yield link


async def said(upstream: Upstream, tool: str, **arguments: Any) -> Any:
    return (await upstream.call(tool, arguments))["structuredContent"]


async def reason(upstream: Upstream, tool: str = "echo", **arguments: Any) -> str:
    with pytest.raises(UpstreamUnavailable) as failed:
        await upstream.call(tool, arguments)
    return failed.value.message


async def test_a_server_that_speaks_both_eras_shakes_hands() -> None:
    async with started("--era", "both") as upstream:
        assert (await upstream.call("odd", {}))["_meta"] == {"example.org/kept": 1}


@ERAS
async def test_a_server_that_prints_rubbish_is_understood_nevertheless(
    era: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with started("--era", era, "--prints", "Welcome!") as upstream:
        assert await said(upstream, "rubbish") == {"rubbish": 15}
        assert await said(upstream, "echo", a=1) == {"a": 1}
    assert [message for message in caplog.messages if "not a message" in message] == [
        "notes wrote a line that is not a message, ignored: Welcome!"
    ]


@ERAS
async def test_half_an_answer_and_the_end_fail_that_call(era: str) -> None:
    async with started("--era", era) as upstream:
        assert "ended with status 0" in await reason(upstream, "garble")
        assert await said(upstream, "echo", a=1) == {"a": 1}


async def test_an_answer_that_is_no_json_fails_that_call_and_no_other(tmp_path: Path) -> None:
    async with started() as upstream:
        before = await pid_of(upstream)
        until = tmp_path / "until"
        waiting = asyncio.create_task(upstream.call("wait", {"until": str(until)}))
        for tool in ("broken", "neither"):
            with pytest.raises(UpstreamError):
                await upstream.call(tool, {})
        until.touch()
        assert (await waiting)["structuredContent"] == {"waited": True}
        assert await pid_of(upstream) == before


async def test_an_answer_that_is_too_large_fails_that_call() -> None:
    async with started() as upstream:
        before = await pid_of(upstream)
        with pytest.raises(UpstreamError):
            await upstream.call("big", {"bytes": 17 * 1024 * 1024})
        [content] = (await upstream.call("big", {"bytes": 2_000_000}))["content"]
        assert len(content["text"]) == 2_000_000
        assert await pid_of(upstream) == before


async def test_a_second_answer_to_one_call_is_no_matter() -> None:
    async with started() as upstream:
        assert await said(upstream, "twice") == {"answer": 1}
        assert await said(upstream, "echo", a=1) == {"a": 1}


async def test_a_late_answer_is_no_matter(tmp_path: Path) -> None:
    cancelled = tmp_path / "cancelled"
    async with started(call_timeout=2.0) as upstream:
        pid = await pid_of(upstream)
        # It hears that nobody waits any more, and answers all the same.
        late = {"late": True, "cancelled": str(cancelled)}
        assert "within 2 s" in await reason(upstream, "wait", **late)
        await there(cancelled)
        assert await pid_of(upstream) == pid


@pytest.mark.parametrize(("method", "answer"), [("ping", "result"), ("sampling/createMessage", "error")])
async def test_what_a_server_asks_of_us_is_answered(method: str, answer: str) -> None:
    async with started("--era", "handshake") as upstream:
        assert answer in await said(upstream, "ask", method=method)


async def test_a_kill_under_load_fails_the_calls_that_were_under_way(tmp_path: Path) -> None:
    async with started() as upstream:
        pid = await pid_of(upstream)
        started_files = [tmp_path / str(number) for number in range(20)]
        calls = [asyncio.create_task(upstream.call("wait", {"started": str(path)})) for path in started_files]
        for path in started_files:
            await there(path)
        os.kill(pid, 9)
        failures = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(failure) for failure in failures} == {UpstreamUnavailable}
        answers = await asyncio.gather(*(said(upstream, "echo", n=n) for n in range(20)))
        assert answers == [{"n": n} for n in range(20)]


async def test_a_server_that_does_not_read_holds_up_nobody_for_ever() -> None:
    async with started(call_timeout=2.0, probe=0.1) as upstream:
        deaf = await pid_of(upstream)
        await upstream.call("deaf", {})
        text = "x" * 1_000_000
        calls = (reason(upstream, "echo", text=text) for _ in range(3))
        assert all("within 2 s" in why for why in await asyncio.gather(*calls))
        await gone(deaf)  # it answered nothing at all, and was let go
        assert await said(upstream, "echo", a=1) == {"a": 1}


async def test_a_server_that_closes_its_output_is_started_again() -> None:
    async with started() as upstream:
        before = await pid_of(upstream)
        assert "closed its input or output" in await reason(upstream, "hang_up")
        assert await pid_of(upstream) != before
        await gone(before)


async def test_why_a_server_ended_is_said_in_its_own_words(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with started("--says", "no database\nat /x", "--ends", "7") as upstream:
        assert await reason(upstream) == "notes ended with status 7: no database / at /x."
    assert "notes: no database" in caplog.messages


async def test_what_is_asked_just_after_the_end_was_not_sent() -> None:
    async with linked() as link:
        answer = await link.request("tools/call", {"name": "pid", "arguments": {}})
        # It holds the pipes, so that the last word may still come.
        await link.request("tools/call", {"name": "spawn", "arguments": {}})
        pid = answer["structuredContent"]["pid"]
        os.kill(pid, 9)
        await until(lambda: not psutil.pid_exists(pid))
        with pytest.raises(NotSent):
            await link.request("tools/list", {})


async def test_secrets_in_a_servers_words_reach_neither_the_log_nor_the_caller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    says = "cannot log in with correct-horse, password=Tr0ub4dor&3xyz"
    launch = actor("--prints", says, "--says", says, "--ends", "1", KEY="${SECRET}")
    ours = {"PATH": os.environ["PATH"], "SECRET": "correct-horse"}
    async with owned(launch, connect_stdio, environment=ours) as upstream:
        why = await reason(upstream)
    for text in (why, caplog.text):
        assert "cannot log in with [masked" in text
        assert "correct-horse" not in text
        assert "Tr0ub4dor" not in text


async def test_nothing_is_run_from_the_folder_that_we_are_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran, home = tmp_path / "ran", tmp_path / "home"
    module = f"open({str(ran)!r}, 'w').close()"
    (tmp_path / "notes_server.py").write_text(module, encoding="utf-8")
    home.mkdir()
    monkeypatch.chdir(tmp_path)
    ours = dict(os.environ) | {"HOME": str(home), "USERPROFILE": str(home)}
    launch = UpstreamProgram(sys.executable, ("-m", "notes_server"))
    async with owned(launch, connect_stdio, environment=ours) as upstream:
        assert "No module named notes_server" in await reason(upstream)
    assert not ran.exists()


async def test_whatever_a_server_writes_is_a_sign_of_life() -> None:
    async with linked() as link:
        await link.request("tools/call", {"name": "deaf", "arguments": {"mutters": True}})
        async with asyncio.timeout(PATIENCE):
            await link.probe()  # the question itself has no answer


async def test_a_server_that_never_greets_is_given_up() -> None:
    async with started("--silent", connect_timeout=0.5) as upstream:
        assert await reason(upstream) == "notes was not ready within 0.5 s."


async def test_what_a_server_wrote_that_was_never_ready_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, begun = Clock(monkeypatch), tmp_path / "begun"
    says = ("--says", "fetching, password=Tr0ub4dor&3xyz", "--prints", "Welcome!", "--starts", begun)
    async with started(*says, "--silent", connect_timeout=30) as upstream:
        asking = asyncio.create_task(reason(upstream))
        await there(begun)
        await clock.goes_on(0)  # what is in the pipes is read
        await clock.goes_on(30)
        why = await asking
    assert why.startswith("notes was not ready within 30 s. It wrote: ")
    assert "fetching" in why
    assert "Welcome!" in why
    assert "Tr0ub4dor" not in why


async def test_what_a_server_printed_before_it_ended_is_said() -> None:
    async with started("--prints", "usage: notes FILE", "--ends", "2") as upstream:
        assert await reason(upstream) == "notes ended with status 2: usage: notes FILE."


async def test_a_server_that_stands_alone_is_called_by_its_program() -> None:
    reach = UpstreamSettings(SINGLE_UPSTREAM, actor("--ends", "3"))
    with pytest.raises(UpstreamUnavailable) as failed:
        async with connect_stdio(reach, dict(os.environ), lambda: None):
            pass
    assert failed.value.message.endswith(" upstream_actors.py ended with status 3.")
    assert failed.value.message.startswith("python")


async def test_a_server_that_is_slow_to_greet_is_waited_for(tmp_path: Path) -> None:
    ready, begun = tmp_path / "ready", tmp_path / "begun"
    async with started("--greet-when", ready, "--starts", begun) as upstream:
        calls = [asyncio.create_task(said(upstream, "echo", n=n)) for n in range(3)]
        await there(begun)
        assert not any(call.done() for call in calls)
        ready.touch()
        assert await asyncio.gather(*calls) == [{"n": n} for n in range(3)]
    assert len(begun.read_text(encoding="utf-8").splitlines()) == 1


async def test_what_cannot_be_started_is_said() -> None:
    async with owned(UpstreamProgram("no-such-program"), connect_stdio) as upstream:
        assert "no-such-program" in await reason(upstream)
    async with owned(UpstreamProgram(sys.executable, ("a\0b",)), connect_stdio) as upstream:
        assert "cannot be started" in await reason(upstream)


async def test_a_program_that_is_none_for_this_machine_is_said(tmp_path: Path) -> None:
    program = tmp_path / "server.exe"
    program.write_bytes(b"\x7fELF is what it is not")
    program.chmod(0o755)
    async with owned(UpstreamProgram(str(program)), connect_stdio) as upstream:
        assert "cannot be started" in await reason(upstream)


async def test_a_server_gets_its_environment_and_its_folder(tmp_path: Path) -> None:
    launch = actor(KEY="${SECRET}")
    launch = UpstreamProgram(launch.command, launch.args, launch.env, str(tmp_path))
    ours = {"PATH": os.environ["PATH"], "SECRET": "s", "OTHER": "o", "PYTHONPATH": "/x"}
    async with owned(launch, connect_stdio, environment=ours) as upstream:
        given = await said(upstream, "env")
        assert given["KEY"] == "s"
        assert not {"SECRET", "OTHER", "PYTHONPATH"} & set(given)
        where = await said(upstream, "where")
        assert os.stat(where["cwd"]).st_ino == os.stat(tmp_path).st_ino  # noqa: PTH116


async def test_a_missing_variable_is_named() -> None:
    async with owned(actor(KEY="${SECRET}"), connect_stdio, environment={}) as upstream:
        assert "SECRET" in await reason(upstream)


async def test_a_call_that_is_under_way_ends_with_the_upstream(tmp_path: Path) -> None:
    async with started("--stays") as upstream:
        call = asyncio.create_task(reason(upstream, "wait", started=str(tmp_path / "started")))
        await there(tmp_path / "started")
        pid = await pid_of(upstream)
        async with asyncio.timeout(PATIENCE):
            await upstream.close()
        assert "was closed by Everkept" in await call
        await gone(pid)
