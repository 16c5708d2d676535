"""The ready-made files of the gateway, against what they are made for."""

import subprocess
from pathlib import Path
from typing import Any

from episodic_server import CONVERSATION
from gateway_front import npx, write
from server_processes import HANG, INITIALIZE, HttpServer, command, environment, http_server, stdio_server


def _run(*arguments: object, **variables: str) -> str:
    done = subprocess.run(
        command(*arguments),
        capture_output=True,
        check=False,
        encoding="utf-8",
        env=environment() | variables,
        stdin=subprocess.DEVNULL,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_file_for_episodic_memory_fits_its_schemas(tmp_path: Path) -> None:
    """Its package is not installed here: the stand-in has the schemas that it publishes."""
    variables = npx(tmp_path / "bin")
    file = tmp_path / "tools.json"
    _run("gateway", "init", "--ready", "episodic-memory", "--gateway-config", file)
    checked = _run("gateway", "check", "--gateway-config", file, **variables)
    assert "2 tools" in checked
    given = ("--toolsets", "gateway", "--gateway-config", file)
    with stdio_server(tmp_path / "data", *given, **variables) as server:
        server.ask(0, "initialize", **INITIALIZE)
        query = {"query": "the harbour", "mode": "text", "limit": 5, "after": "2026-01-01"}
        found = server.ask(1, "tools/call", name="memory__search", arguments=query)
        assert found["result"]["content"][0]["text"].startswith("Found 1")
        read = server.ask(2, "tools/call", name="memory__read", arguments={"path": CONVERSATION})
        assert read["result"]["content"][0]["text"].startswith("# Conversation")


def test_the_file_for_another_everkept_stores_and_recalls_there(tmp_path: Path) -> None:
    there = tmp_path / "there"
    token = _run("token", "--data-dir", there).strip()
    given = ("--toolsets", "memories", "--project", "far")
    with http_server(there, *given) as other:
        file = _ready_for(other, tmp_path)
        checked = _run("gateway", "check", "--gateway-config", file, EVERKEPT_TOKEN=token)
        assert "tools" in checked
        here = ("--toolsets", "gateway", "--gateway-config", file)
        with stdio_server(tmp_path / "here", *here, EVERKEPT_TOKEN=token) as server:
            server.ask(0, "initialize", **INITIALIZE)
            memory = {"content": "Ships dock in the north", "type": "semantic", "scope": "project"}
            stored = server.call("memory__store", **memory)
            assert stored["memory_id"]
            found: dict[str, Any] = server.call("memory__recall", query="ships")
            assert [each["content"] for each in found["memories"]] == [memory["content"]]


def _ready_for(other: HttpServer, folder: Path) -> Path:
    text = _run("gateway", "init", "--ready", "everkept", "--print")
    usual = "http://127.0.0.1:8081/mcp"
    assert usual in text
    return write(folder / "tools.json", text.replace(usual, other.url))
