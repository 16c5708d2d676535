"""The server of a first start: it answers while packages are installed, and hands over to the real one."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import IO, Any

import psutil
import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client as SdkClient
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult

from scratch_checkout import Checkout, scratch_checkout
from server_processes import HANG

Message = dict[str, Any]
VERSION = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": VERSION}
STATUS: Message = {"name": "get_setup_status", "arguments": {}}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return scratch_checkout(tmp_path)


class Client:
    """A client on the pipes of a server."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        assert server.stdin is not None
        assert server.stdout is not None
        self._to: IO[str] = server.stdin
        self._from: IO[str] = server.stdout

    def send(self, method: str, number: int | None = None, **params: Any) -> None:
        message: Message = {"jsonrpc": "2.0", "method": method, "params": params}
        self._to.write(json.dumps(message if number is None else message | {"id": number}) + "\n")
        self._to.flush()

    def receive(self) -> Message:
        return next(self.messages())

    def messages(self) -> Iterator[Message]:
        """Yield what comes, without the line that the scratch program prints at its start."""
        for line in self._from:
            if not line.startswith("ran "):
                yield json.loads(line)

    def ask_status(self, number: int) -> str:
        self.send("tools/call", number, **STATUS)
        return self.receive()["result"]["content"][0]["text"]


def test_a_client_is_answered_during_setup_and_served_after_it(checkout: Checkout) -> None:
    with checkout.start("serve", UV_GATE=str(checkout.gate)) as server, checkout.gate.open("w") as gate:
        client = Client(server)
        client.send("initialize", 0, protocolVersion="2025-06-18", capabilities={})
        greeting = client.receive()["result"]
        assert (greeting["protocolVersion"], greeting["serverInfo"]["name"]) == ("2025-06-18", "everkept")
        client.send("notifications/initialized")
        client.send("resources/list", 1)
        assert client.receive()["result"] == {"resources": []}
        client.send("tools/list", 2)
        assert [tool["name"] for tool in client.receive()["result"]["tools"]] == ["get_setup_status"]
        assert "setting up: 5 %" in client.ask_status(3)
        client.send("tools/call", 4, name="recall_memories", arguments={"query": "x"})
        gate.write("go\n")
        gate.close()
        heard = [client.receive() for _ in range(4)]
        changed = [each["method"] for each in heard if "method" in each]
        assert changed == [f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")]
        # The greeting reached the real server, but not twice the client.
        assert [each for each in heard if "id" in each] == [{"id": 4, "result": {"asked": "tools/call"}}]
        client.send("tools/list", 5)
        assert client.receive() == {"id": 5, "result": {"asked": "tools/list"}}
        assert "Everkept is ready" in client.ask_status(6)
        server.communicate()
    assert server.returncode == 0


def test_a_client_without_a_handshake_is_answered_too(checkout: Checkout) -> None:
    with checkout.start("serve", UV_GATE=str(checkout.gate)) as server, checkout.gate.open("w") as gate:
        client = Client(server)
        client.send("server/discover", 0, _meta=META)
        assert client.receive()["result"]["supportedVersions"] == [VERSION]
        client.send("subscriptions/listen", 1, _meta=META, notifications={"toolsListChanged": True})
        opened = client.receive()
        assert opened["method"] == "notifications/subscriptions/acknowledged"
        tag = {"io.modelcontextprotocol/subscriptionId": 1}
        assert opened["params"] == {"notifications": {"toolsListChanged": True}, "_meta": tag}
        client.send("prompts/list", 2, _meta=META)
        assert client.receive()["result"].items() >= {"prompts": [], "resultType": "complete", "ttlMs": 0}.items()
        gate.write("go\n")
        gate.close()
        changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {"_meta": tag}}
        assert client.receive() == changed
        server.communicate()


# Stands for uv like the scratch one, but installs what this environment has, so that the real server runs.
REAL_UV = """#!/bin/sh
read -r go <"$UV_GATE"
for packages in "${{4%/*}}"/../lib/python*/site-packages; do
    "{python}" -I -c 'import sys; print(*sys.path[1:], sep="\\n")' >"$packages/outer.pth"
done
"""


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_real_client_gets_the_real_tools_in_the_same_session(
    checkout: Checkout, tmp_path: Path, mode: str
) -> None:
    (tmp_path / "bench/bin/uv").write_text(REAL_UV.format(python=sys.executable), encoding="utf-8")
    variables = checkout.variables | {"UV_GATE": str(checkout.gate), "EVERKEPT_DATA_DIR": str(tmp_path / "data")}
    server = StdioServerParameters(command=str(checkout.root / "run"), args=["serve"], env=variables)
    async with asyncio.timeout(HANG), AsyncExitStack() as stack:
        client = await stack.enter_async_context(SdkClient(stdio_client(server), mode=mode))
        assert client.server_info is not None
        assert client.server_info.name == "everkept"
        early = await client.list_tools()
        assert [tool.name for tool in early.tools] == ["get_setup_status"]
        await asyncio.to_thread(checkout.gate.write_text, "go\n")
        stored = await client.call_tool("store_memory", {"content": "The teapot leaks", "scope": "user"})
        assert isinstance(stored, CallToolResult)
        assert not stored.is_error
        assert "store_memory" in [tool.name for tool in (await client.list_tools()).tools]


def test_a_failed_setup_says_why(checkout: Checkout) -> None:
    (checkout.root / "requirements/run.txt").write_text(f"nothing==1 --hash=sha256:{'0' * 64}\n")
    with checkout.start("serve", UV_FAILS="1", PIP_NO_INDEX="1") as server:
        client = Client(server)
        client.send("initialize", 0, protocolVersion="2025-06-18", capabilities={})
        client.receive()
        client.send("tools/call", 1, name="recall_memories", arguments={})
        why = client.receive()["error"]["message"]
        assert "could not be set up" in why
        assert "the disk is full" in why
        client.send("tools/list", 2)
        assert [tool["name"] for tool in client.receive()["result"]["tools"]] == ["get_setup_status"]
        assert client.ask_status(3) == why
        server.communicate()


def test_a_setup_outlives_an_impatient_client(checkout: Checkout) -> None:
    with checkout.start("serve", UV_GATE=str(checkout.gate)) as server, checkout.gate.open("w") as gate:
        (setup,) = psutil.Process(server.pid).children()
        server.kill()
        server.communicate()
        gate.write("go\n")
        gate.close()
        setup.wait(timeout=60)
    assert checkout.run("x").stderr == ""
    assert checkout.installs() == ["run"]


def test_without_a_client_the_server_starts_after_setup(checkout: Checkout) -> None:
    done = checkout.run("serve", "--read-only")
    assert (done.stdout, done.returncode) == ("ran serve --read-only\n", 0)
    assert "ready after" in done.stderr
