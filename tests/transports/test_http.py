"""The HTTP transport: who may come in, sessions, streams, and the way out."""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everkept.transports.guard import is_loopback
from server_processes import INITIALIZE, META, HttpServer, http_server, run, stdio_server

LIMIT = 16 * 1024 * 1024
DISCOVER = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}
MODERN_HEADERS = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    with http_server(tmp_path_factory.mktemp("open"), "--no-token") as started:
        yield started


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "localhost:9", "[::1]:9", "LOCALHOST"])
def test_names_of_this_machine_are_answered(server: HttpServer, host: str) -> None:
    assert server.exchange(DISCOVER, MODERN_HEADERS | {"Host": host})[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:80", "127.0.0.1.nip.io"])
def test_other_names_are_not(server: HttpServer, host: str) -> None:
    assert server.exchange(DISCOVER, MODERN_HEADERS | {"Host": host})[0] == 421


@pytest.mark.parametrize("origin", ["http://localhost:6274", "http://127.0.0.1", "http://[::1]:1"])
def test_pages_of_this_machine_may_come(server: HttpServer, origin: str) -> None:
    assert server.exchange(DISCOVER, MODERN_HEADERS | {"Origin": origin})[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost.evil.example"])
def test_pages_of_others_may_not(server: HttpServer, origin: str) -> None:
    status, _, body = server.exchange(DISCOVER, MODERN_HEADERS | {"Origin": origin})
    assert status == 403
    assert origin in body["error"]["message"]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_addresses_of_this_machine_are_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org"])
def test_other_addresses_are_not_taken_for_it(host: str) -> None:
    assert not is_loopback(host)


def test_discovery_says_the_same_as_on_stdio(server: HttpServer, tmp_path: Path) -> None:
    with stdio_server(tmp_path) as other:
        told = other.ask(1, "server/discover", _meta=META)["result"]
        begun = other.ask(2, "initialize", **INITIALIZE)["result"]
        listed = other.ask(3, "tools/list")["result"]
    # Over stdio a first answer may be that of the last start, and a notification corrects it.
    begun["capabilities"]["tools"]["listChanged"] = False
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
    assert server.exchange(DISCOVER, MODERN_HEADERS)[2]["result"] == told
    assert server.exchange(body)[2]["result"] == begun
    session = server.open_session()
    ask = {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}
    assert server.exchange(ask, session)[2]["result"] == listed


def test_errors_keep_their_code_and_facts_and_get_a_status(server: HttpServer) -> None:
    status, body = server.ask("resources/read", {"uri": "memory://nothing"})
    assert body["error"]["code"] == -32602
    assert body["error"]["data"] == {"uri": "memory://nothing"}
    status, body = server.ask("no/such/method", {})
    assert (status, body["error"]["code"]) == (404, -32601)
    status, body = server.ask("ping", {})
    assert (status, body["error"]["code"]) == (404, -32601)
    status, body = server.ask("tools/call", {"name": "no_such_tool"})
    assert body["error"]["code"] == -32602


def test_headers_and_body_must_agree(server: HttpServer) -> None:
    wrong = MODERN_HEADERS | {"Mcp-Method": "tools/list"}
    status, _, body = server.exchange(DISCOVER, wrong)
    assert (status, body["error"]["code"]) == (400, -32020)


@pytest.mark.parametrize("headers", [{}, MODERN_HEADERS])
def test_what_is_no_json_is_refused(server: HttpServer, headers: dict[str, str]) -> None:
    status, _, body = server.exchange(b"not json", headers)
    assert (status, body["error"]["code"]) == (400, -32700)


def test_a_body_beyond_the_limit_is_refused_with_the_limit(server: HttpServer) -> None:
    status, _, body = server.exchange(b" " * (LIMIT + 1), MODERN_HEADERS)
    assert status == 413
    assert f"{LIMIT:,}" in body["error"]["message"]
    assert server.exchange(DISCOVER, MODERN_HEADERS)[0] == 200


def test_a_message_just_within_the_limit_is_read(server: HttpServer) -> None:
    text = "x" * (LIMIT - 1000)
    _, body = server.ask("tools/call", {"name": "search_nodes", "arguments": {"query": text}})
    assert body["result"]["structuredContent"]["error"] == "invalid_input"


def test_a_session_lasts_until_it_is_deleted(server: HttpServer) -> None:
    session = server.open_session()
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    assert server.exchange(ping, session)[0] == 200
    assert server.exchange(ping)[0] == 400
    assert server.exchange(ping, session | {"Mcp-Session-Id": "0" * 32})[0] == 404
    assert server.exchange(None, session, "DELETE")[0] == 200
    assert server.exchange(ping, session)[0] == 404


def test_two_sessions_do_not_share_their_project(server: HttpServer) -> None:
    one, two = server.open_session(), server.open_session()

    def call(session: dict[str, str], name: str, /, **arguments: Any) -> Any:
        params = {"name": name, "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params}
        return server.exchange(body, session)[2]["result"]["structuredContent"]

    call(one, "create_project", name="theirs")
    call(two, "create_project", name="ours")
    assert call(one, "get_current_project")["name"] == "theirs"
    assert call(two, "get_current_project")["name"] == "ours"
    assert "name" not in call(server.open_session(), "get_current_project")


def test_other_paths_and_methods_are_refused(server: HttpServer) -> None:
    assert server.exchange(DISCOVER, MODERN_HEADERS, "PUT")[0] == 405
    assert server.exchange(None, MODERN_HEADERS, "GET")[0] == 405


def test_without_a_token_nothing_is_served_unless_that_is_wanted(tmp_path: Path) -> None:
    refused = run("serve", "--transport", "http", "--port", 0, "--data-dir", tmp_path)
    assert refused.returncode == 2
    assert "everkept token" in refused.stderr
    assert "--no-token" in refused.stderr


@pytest.mark.parametrize("option", ["", "--no-token"])
def test_other_machines_always_need_a_token(tmp_path: Path, option: str) -> None:
    serve = ("serve", "--transport", "http", "--port", 0, "--host", "0.0.0.0")
    refused = run(*serve, "--data-dir", tmp_path, *option.split())
    assert refused.returncode == 2
    assert "everkept token" in refused.stderr


def test_a_token_is_asked_for_until_it_is_revoked(tmp_path: Path) -> None:
    made = json.loads(run("token", "--label", "one", "--json", "--data-dir", tmp_path).stdout)
    other = run("token", "--data-dir", tmp_path).stdout.strip()
    with http_server(tmp_path, "--host", "0.0.0.0") as server:
        assert "token" in server.said[-1]
        server.url = server.url.replace("0.0.0.0", "127.0.0.1")
        for wrong in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": made["token"]}):
            status, headers, _ = server.exchange(DISCOVER, MODERN_HEADERS | wrong)
            assert status == 401
            assert headers["www-authenticate"].startswith("Bearer ")
        right = {"Authorization": f"Bearer {made['token']}"}
        assert server.exchange(DISCOVER, MODERN_HEADERS | right)[0] == 200
        same_page = right | {"Host": "memory.example:1", "Origin": "http://memory.example:1"}
        assert server.exchange(DISCOVER, MODERN_HEADERS | same_page)[0] == 200
        other_page = same_page | {"Origin": "http://evil.example"}
        assert server.exchange(DISCOVER, MODERN_HEADERS | other_page)[0] == 403

        session = server.open_session(**right)
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        assert server.exchange(ping, session)[0] == 200
        thief = session | {"Authorization": f"Bearer {other}"}
        assert server.exchange(ping, thief)[0] == 404

        assert run("token", "revoke", made["id"], "--data-dir", tmp_path).returncode == 0
        assert server.exchange(ping, session)[0] == 401
        server.stop()
        assert any("not encrypted" in line for line in server.said)
        assert all(made["token"] not in line for line in server.said)


def test_tokens_are_listed_without_their_secret(tmp_path: Path) -> None:
    secret = run("token", "--label", "laptop", "--data-dir", tmp_path).stdout.strip()
    assert secret.startswith("evk_")
    listed = run("token", "list", "--data-dir", tmp_path)
    assert "laptop" in listed.stdout
    assert secret not in listed.stdout
    stored = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert secret.encode() not in stored
    assert run("token", "revoke", "nothing", "--data-dir", tmp_path).returncode == 2


def test_a_port_in_use_is_told_in_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        serve = ("serve", "--transport", "http", "--no-token", "--port", port)
        refused = run(*serve, "--data-dir", tmp_path)
    assert refused.returncode == 1
    assert str(port) in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_well_with_streams_open(tmp_path: Path, number: int) -> None:
    with http_server(tmp_path, "--no-token") as server:
        session = server.open_session()
        get = {"Accept": "text/event-stream", **session}
        standing, first = server.request(None, get, "GET")
        assert standing.status == 200
        listen = {
            "jsonrpc": "2.0",
            "id": 7,
            "method": "subscriptions/listen",
            "params": {"_meta": META, "notifications": {}},
        }
        headers = MODERN_HEADERS | {"Mcp-Method": "subscriptions/listen"}
        listening, second = server.request(listen, headers)
        assert b"message" in listening.readline()
        assert server.stop(number) == 0
        assert standing.read().startswith(b"id: 0-0\r\n")
        assert json.loads(listening.read().split(b"data: ")[-1])["id"] == 7
        first.close()
        second.close()
        assert "".join(server.said[1:]) == ""
