"""The stdio transport, against a real server on pipes."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_front import actor, mapped, write
from server_processes import HANG, INITIALIZE, READY, StdioServer, command, environment, stdio_server

LIMIT = 16 * 1024 * 1024


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StdioServer]:
    with stdio_server(tmp_path / "data", "--project", "test") as started:
        yield started


def test_the_handshake_is_answered_and_notifications_are_not(server: StdioServer) -> None:
    answer = server.ask(1, "initialize", **INITIALIZE)
    server.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert answer["result"]["protocolVersion"] == "2025-11-25"
    assert server.ask(2, "ping") == {"jsonrpc": "2.0", "id": 2, "result": {}}


def test_ids_come_back_as_they_were(server: StdioServer) -> None:
    assert server.ask("1", "ping")["id"] == "1"
    assert server.ask(1, "ping")["id"] == 1


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"not json\n", -32700),
        (b'{"jsonrpc": "2.0", "id": 1, "method"\n', -32700),
        (b"\xff\xfe\n", -32700),
        (b"[" * 100_000 + b"\n", -32700),
        (b"12\n", -32600),
        (b'"text"\n', -32600),
        (b"null\n", -32600),
        (b"[]\n", -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}\n', -32600),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}\n', -32600),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}\n', -32600),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}\n', -32600),
        (b'{"jsonrpc": "2.0", "id": 1}\n', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 7}\n', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}\n', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "no/such"}\n', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}\n', -32602),
    ],
)
def test_a_wrong_message_gets_an_error_and_the_next_is_served(server: StdioServer, line: bytes, code: int) -> None:
    server.write(line)
    assert server.receive()["error"]["code"] == code
    assert server.ask(2, "ping")["result"] == {}


def test_blank_lines_and_answers_nobody_asked_for_are_passed_over(server: StdioServer) -> None:
    server.write(b"\n  \r\n")
    server.send({"jsonrpc": "2.0", "id": 9, "result": {}})
    server.send({"jsonrpc": "2.0", "id": 9, "error": {"code": 1, "message": ""}})
    assert server.ask(1, "ping")["id"] == 1


def test_a_line_beyond_the_limit_is_refused_and_the_next_is_served(server: StdioServer) -> None:
    text = "x" * (20 * 1024 * 1024)
    server.request(1, "tools/call", name="search_nodes", arguments={"query": text})
    refused = server.receive()
    assert (refused["id"], refused["error"]["code"]) == (1, -32600)
    assert f"{LIMIT:,}" in refused["error"]["message"]
    assert server.ask(2, "ping")["result"] == {}


def test_the_members_of_a_batch_are_answered_one_by_one(server: StdioServer) -> None:
    batch = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in (1, 2)]
    server.send([*batch, "odd"])
    answers = [server.receive() for _ in range(3)]
    assert sorted(answer["id"] for answer in answers if "result" in answer) == [1, 2]
    assert [answer["error"]["code"] for answer in answers if "error" in answer] == [-32600]


def test_an_id_that_is_still_running_cannot_be_used_again(server: StdioServer) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    server.request(1, "subscriptions/listen", _meta=meta, notifications={})
    assert server.receive()["method"]
    again = server.ask(1, "ping")
    assert (again["id"], again["error"]["code"]) == (1, -32600)


def test_a_cancelled_request_is_not_answered(server: StdioServer) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    server.request(1, "subscriptions/listen", _meta=meta, notifications={})
    assert server.receive()["method"] == "notifications/subscriptions/acknowledged"
    for cancelled in ([], None, 77, 1):
        server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": cancelled}})
    # The id is free again, so the stream has ended; and it ended without an answer.
    assert server.ask(2, "ping")["id"] == 2
    assert server.ask(1, "ping") == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_half_a_character_from_another_server_comes_out_as_it_was(tmp_path: Path) -> None:
    echo = mapped("echo", "echo", {"text": "text"})
    write(tmp_path / "tools.json", {"upstream": actor(), "tools": [echo]})
    options = ("--toolsets", "gateway", "--gateway-config", str(tmp_path / "tools.json"))
    with stdio_server(tmp_path / "data", *options) as server:
        server.ask(1, "initialize", **INITIALIZE)
        arguments = {"text": "half \ud83d, whole 😀"}
        answer = server.ask(2, "tools/call", name="echo", arguments=arguments)
        assert answer["result"]["structuredContent"] == arguments


def test_the_end_of_input_ends_the_server_well(server: StdioServer) -> None:
    server.ask(1, "ping")
    assert server.close_input() == 0


def test_what_was_asked_before_the_end_of_input_is_answered(server: StdioServer) -> None:
    arguments = {"entities": [{"name": "Ada", "entity_type": "person"}]}
    server.request(1, "tools/call", name="create_entities", arguments=arguments)
    assert server.close_input() == 0
    [answer] = server.rest()
    assert answer["result"]["isError"] is False


def test_a_last_line_without_its_line_break_counts(server: StdioServer) -> None:
    server.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}')
    assert server.close_input() == 0
    assert server.rest() == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


def test_half_a_line_at_the_end_of_input_does_no_harm(server: StdioServer) -> None:
    server.write(b'{"jsonrpc": "2.0", "id": 1, "meth')
    assert server.close_input() == 0
    assert [answer["error"]["code"] for answer in server.rest()] == [-32700]


def test_calls_that_are_sent_at_once_take_effect_in_their_order(server: StdioServer) -> None:
    entity = {"name": "Ada", "entity_type": "person"}
    rounds = [
        ("create_entities", {"entities": [entity]}),
        ("add_observations", {"observations": [{"entity_name": "Ada", "contents": ["x"]}]}),
        ("search_nodes", {"query": "x"}),
        ("delete_entities", {"names": ["Ada"]}),
        ("search_nodes", {"query": "x"}),
    ]
    calls: list[tuple[str, dict[str, Any]]] = [("create_project", {"name": "shop"}), *rounds * 5]
    messages = [
        {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls)
    ]
    server.write("".join(json.dumps(message) + "\n" for message in messages).encode())
    answers = {answer["id"]: answer["result"] for answer in (server.receive() for _ in messages)}
    assert [answers[number]["isError"] for number in range(len(calls))] == [False] * len(calls)
    found = [
        len(answers[number]["structuredContent"]["entities"])
        for number, (name, _) in enumerate(calls)
        if name == "search_nodes"
    ]
    assert found == [1, 0] * 5


def test_a_signal_ends_the_server_while_a_large_call_runs(server: StdioServer) -> None:
    large = [{"name": f"n{i}", "entity_type": "t", "observations": [f"{i} {j}" for j in range(9)]} for i in range(500)]
    server.request(1, "tools/call", name="create_entities", arguments={"entities": large})
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(HANG) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_well(server: StdioServer, number: int) -> None:
    server.ask(1, "ping")
    server.process.send_signal(number)
    assert server.process.wait(HANG) == 0
    assert server.finish() == READY


def test_a_signal_ends_open_streams_with_an_answer(server: StdioServer) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    server.request(1, "subscriptions/listen", _meta=meta, notifications={})
    server.receive()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(HANG) == 0
    assert [answer["id"] for answer in server.rest()] == [1]


def test_a_client_that_stops_reading_does_not_keep_the_server(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("serve", "--data-dir", tmp_path / "data"),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode() + b"\n"
    process.stdin.write(ping * 20)
    process.stdin.flush()
    process.stdout.read(1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG) == 0
    process.stdin.close()
    process.stdout.close()


def test_a_client_that_closed_its_end_ends_the_server(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("serve", "--data-dir", tmp_path / "data"),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    process.stdin.flush()
    assert process.wait(HANG) == 0
    process.stdin.close()


def test_a_stray_print_goes_to_standard_error(tmp_path: Path) -> None:
    script = (
        "import os, subprocess, sys\n"
        "from everkept.transports.stdio import claim_stdio\n"
        "read, written = claim_stdio()\n"
        "print('stray')\n"
        "os.write(1, b'low\\n')\n"
        "subprocess.run([sys.executable, '-c', 'print(input())'], stderr=subprocess.DEVNULL)\n"
        "os.write(written, os.read(read, 100))\n"
    )
    done = subprocess.run(
        [*command()[:1], "-c", script], capture_output=True, check=True, input=b"wire\n", timeout=HANG
    )
    assert done.stdout == b"wire\n"
    assert sorted(done.stderr.split()) == [b"low", b"stray"]


def asked(*methods: str) -> bytes:
    messages = ({"jsonrpc": "2.0", "id": number, "method": name} for number, name in enumerate(methods))
    return "".join(json.dumps(message) + "\n" for message in messages).encode()


def test_a_message_on_pipes_takes_no_thread(tmp_path: Path) -> None:
    script = (
        "import sys, threading\n"
        "from everkept.cli.main import main\n"
        "started, start = [], threading.Thread.start\n"
        "threading.Thread.start = lambda thread: [started.append(thread), start(thread)]\n"
        "sys.argv = ['everkept', 'serve', '--data-dir', sys.argv[1]]\n"
        "main()\n"
        "print(len(started), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [*command()[:1], "-c", script, tmp_path],
        capture_output=True,
        check=True,
        env=environment(),
        input=asked("ping", "ping", "ping"),
        timeout=HANG,
    )
    assert len(done.stdout.splitlines()) == 3
    # Windows' event loop cannot wait for pipes: one thread reads and one writes.
    assert done.stderr.splitlines()[1:] == ([b"0"] if sys.platform != "win32" else [b"3"])


def test_files_and_a_shared_error_stream_are_served_too(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(asked("ping", "no/such", "ping"))
    with (tmp_path / "in").open("rb") as given, (tmp_path / "out").open("wb") as written:
        served = command("serve", "--data-dir", tmp_path / "data")
        streams = {"stdin": given, "env": environment(), "timeout": HANG}
        subprocess.run(served, stdout=written, stderr=subprocess.DEVNULL, check=True, **streams)
        given.seek(0)
        shared = subprocess.run(served, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True, **streams)
    for answers in ((tmp_path / "out").read_bytes(), shared.stdout):
        assert [json.loads(line)["id"] for line in answers.splitlines()] == [0, 1, 2]


def test_large_messages_go_both_ways(tmp_path: Path) -> None:
    texts = [f"{number} " + "ä" * 49_000 for number in range(100)]  # some 10 MB
    with stdio_server(tmp_path / "data", "--dialect", "server-memory") as server:
        entity = {"name": "Ada", "entityType": "person", "observations": texts}
        line = json.dumps(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "create_entities", "arguments": {"entities": [entity]}},
            },
            ensure_ascii=False,
        )
        server.write(line.encode() + b"\n")
        assert server.receive()["result"]["isError"] is False
        result = server.ask(2, "tools/call", name="read_graph", arguments={})["result"]
        assert result["structuredContent"]["entities"][0]["observations"] == texts
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
