"""Servers behind a gateway that die, hang and talk rubbish, and what is left of them."""

import os
import signal
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gateway_front import JSON, actor, mapped, write
from server_processes import HANG, INITIALIZE, HttpServer, StdioServer, http_server, stdio_server

UNAVAILABLE = "upstream_unavailable"
# What servers do, and what a call of theirs comes to.
SICK = {"crash": UNAVAILABLE, "wait": UNAVAILABLE, "garble": UNAVAILABLE, "broken": "upstream_error"}
SILENT = "silent"


def _file(folder: Path) -> Path:
    """Each way to be sick has a server of its own, and one is well."""
    upstreams = {name: actor("--name", name) | {"callTimeout": 2} for name in (*SICK, "well")}
    upstreams[SILENT] = actor("--silent") | {"connectTimeout": 2}
    tools = [mapped(name, "echo", {"x": "x"}, server=name) for name in ("well", SILENT)]
    for name in SICK:
        tools.append(mapped(name, name, {}, server=name))
        tools.append(mapped(f"{name}_echo", "echo", {"x": "x"}, server=name))
    return write(folder / "tools.json", {"upstreams": upstreams, "tools": tools})


@pytest.fixture
def server(tmp_path: Path) -> Generator[StdioServer, None, None]:
    given = ("--toolsets", "memories,graph,gateway", "--gateway-config", _file(tmp_path))
    with stdio_server(tmp_path / "data", *given, "--project", "p") as server:
        server.ask(0, "initialize", **INITIALIZE)
        yield server


def _all(server: StdioServer, calls: list[tuple[str, JSON]]) -> list[JSON]:
    """The results of calls that are all under way at once, in their order."""
    for number, (tool, arguments) in enumerate(calls):
        server.request(number, "tools/call", name=tool, arguments=arguments)
    answers: dict[int, JSON] = {}
    while len(answers) < len(calls):
        message = server.receive()
        answers[message["id"]] = message["result"]
    return [answers[number] for number in range(len(calls))]


def test_of_a_hundred_calls_at_once_those_of_the_sick_servers_alone_fail(server: StdioServer) -> None:
    calls: list[tuple[str, JSON]] = []
    for number in range(10):
        calls += [(name, {}) for name in (*SICK, SILENT)]
        calls += [("well", {"x": f"{number} {part}"}) for part in range(3)]
        calls += [("search_nodes", {"query": "harbour"}), ("get_memory_status", {})]
    assert len(calls) == 100
    for (tool, arguments), result in zip(calls, _all(server, calls), strict=True):
        if tool in (*SICK, SILENT):
            assert result["isError"], tool
            assert result["structuredContent"]["error"] == SICK.get(tool, UNAVAILABLE)
            assert result["content"][0]["text"].startswith("Error: ")
        else:
            assert not result.get("isError"), result
            if tool == "well":
                assert result["structuredContent"] == arguments
    for name in SICK:
        _works_again(lambda name=name: server.ask(1, "tools/call", **_echo(f"{name}_echo")))


def _echo(tool: str) -> JSON:
    return {"name": tool, "arguments": {"x": "again"}}


def _works_again(ask: Callable[[], JSON]) -> None:
    """A server that was lost is started anew, though not for every call at once."""
    deadline = time.monotonic() + HANG
    while (result := ask()["result"]).get("isError"):
        assert result["structuredContent"]["error"] == UNAVAILABLE
        assert time.monotonic() < deadline, result
    assert result["structuredContent"] == {"x": "again"}


def test_a_call_that_takes_long_holds_up_no_other(tmp_path: Path) -> None:
    started, go = tmp_path / "started", tmp_path / "go"
    tools = [mapped("wait", "wait", {"started": "started", "until": "until"}), mapped("echo", "echo", {"x": "x"})]
    file = write(tmp_path / "tools.json", {"upstream": actor(), "tools": tools})
    given = ("--toolsets", "graph,gateway", "--gateway-config", file, "--project", "p")
    with stdio_server(tmp_path / "data", *given) as server:
        server.ask(0, "initialize", **INITIALIZE)
        waiting = {"started": str(started), "until": str(go)}
        server.request("slow", "tools/call", name="wait", arguments=waiting)
        assert server.call("echo", x="1") == {"x": "1"}
        made = {"entities": [{"name": "Ada", "entity_type": "person"}]}
        assert server.ask(2, "tools/call", name="create_entities", arguments=made)["id"] == 2
        go.touch()
        assert server.receive()["id"] == "slow"


def test_a_call_that_is_cancelled_is_cancelled_behind(tmp_path: Path) -> None:
    names = ("started", "cancelled")
    tool = mapped("wait", "wait", {name: name for name in names})
    file = write(tmp_path / "tools.json", {"upstream": actor(), "tools": [tool]})
    given = ("--toolsets", "gateway", "--gateway-config", file)
    with stdio_server(tmp_path / "data", *given) as server:
        server.ask(0, "initialize", **INITIALIZE)
        places = {name: str(tmp_path / name) for name in names}
        server.request("slow", "tools/call", name="wait", arguments=places)
        _until((tmp_path / "started").exists, server)
        note = {"method": "notifications/cancelled", "params": {"requestId": "slow"}}
        server.send({"jsonrpc": "2.0", **note})
        _until((tmp_path / "cancelled").exists, server)


def _until(is_so: Callable[[], bool], server: StdioServer) -> None:
    """Each look is a request to the server, which takes its time."""
    deadline = time.monotonic() + HANG
    while not is_so():
        assert time.monotonic() < deadline
        server.ask("look", "ping")


@pytest.fixture
def lone(tmp_path: Path) -> Path:
    """A file with one server that tells who it is, and ignores a polite end."""
    upstream = actor("--stays") | {"callTimeout": 20}
    tools = [mapped("pid", "pid", {}), mapped("spawn", "spawn", {}), mapped("x", "echo", {"x": "x"})]
    return write(tmp_path / "tools.json", {"upstream": upstream, "tools": tools})


@pytest.fixture(params=["stdio", "http"])
def served(
    request: pytest.FixtureRequest, tmp_path: Path, lone: Path
) -> Generator[tuple[Any, Callable[[str], Any]], None, None]:
    """A server, and how to have a tool of it called that answers with the id of a process."""
    given = ("--toolsets", "gateway", "--gateway-config", lone)
    if request.param == "stdio":
        with stdio_server(tmp_path / "data", *given) as stdio:
            stdio.ask(0, "initialize", **INITIALIZE)
            yield stdio, lambda tool: stdio.call(tool).get("pid")
    else:
        with http_server(tmp_path / "data", *given, "--no-token") as http:
            yield http, lambda tool: _called(http, tool).get("pid")


def _called(server: HttpServer, tool: str) -> JSON:
    _, answer = server.ask("tools/call", {"name": tool, "arguments": {}})
    return answer["result"]["structuredContent"]


def _gone(pid: int) -> None:
    """Waits for the end of a process that is not our child."""
    try:
        psutil.Process(pid).wait(HANG)
    except psutil.NoSuchProcess:
        return


def test_a_server_that_was_killed_is_started_again(served: tuple[Any, Callable[[str], Any]]) -> None:
    _, pid_of = served
    first = pid_of("pid")
    os.kill(first, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
    _gone(first)
    deadline = time.monotonic() + HANG
    while (second := pid_of("pid")) is None:  # it was noticed in the middle of this call
        assert time.monotonic() < deadline
    assert second != first


def test_no_process_is_left_when_the_server_is_told_to_end(served: tuple[Any, Callable[[str], Any]]) -> None:
    server, pid_of = served
    pid = pid_of("pid")
    child = pid_of("spawn")
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(HANG)
    _gone(pid)
    _gone(child)


def test_no_process_is_left_when_the_server_is_killed(served: tuple[Any, Callable[[str], Any]]) -> None:
    server, pid_of = served
    pid = pid_of("pid")
    server.process.kill()
    server.process.wait(HANG)
    _gone(pid)


def test_no_process_is_left_when_the_client_goes(tmp_path: Path, lone: Path) -> None:
    given = ("--toolsets", "gateway", "--gateway-config", lone)
    with stdio_server(tmp_path / "data", *given) as server:
        server.ask(0, "initialize", **INITIALIZE)
        pid = server.call("pid")["pid"]
        assert server.close_input() == 0
        _gone(pid)
