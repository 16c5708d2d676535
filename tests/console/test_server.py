import asyncio
import json
from typing import Any

import pytest

from console_calls import ConsoleClient
from everkept.console.access import IDLE_SECONDS
from everkept.core.ports import Library
from everkept.transports.http_exchange import Message

CALL = {"name": "list_projects_to_show", "arguments": {}}


async def test_a_code_begins_a_session_once(client: ConsoleClient) -> None:
    code = client.access.create_code()
    begun = await client.post("session", {"code": code}, token="")
    assert begun.status == 200
    assert begun.headers["cache-control"] == "no-store"
    assert "set-cookie" not in begun.headers
    token = begun.json["token"]
    assert (await client.post("call", CALL, token=token)).json["result"]["projects"][0]["name"] == "shop"
    assert (await client.post("session", {"code": code}, token="")).status == 401
    assert (await client.post("session", {"code": 5}, token="")).status == 401


@pytest.mark.parametrize("path", ["call", "watch", "lock"])
async def test_nothing_is_answered_without_a_token(client: ConsoleClient, path: str) -> None:
    for token in ("", "wrong", "$TOKEN"):
        answer = await client.post(path, CALL, token=token)
        assert answer.status == 401
        assert answer.json["error"]["error"] == "refused"
        assert b"shop" not in answer.body
    assert (await client.ask(f"/console/api/{path}", "GET", authorization=f"Bearer {client.token}")).status == 405


@pytest.mark.parametrize(
    "origin",
    [
        "http://127.0.0.1:9999",
        "http://127.0.0.1",
        "http://localhost:8123",
        "https://127.0.0.1:8123",
        "https://evil.example",
        "null",
        "",
    ],
)
async def test_pages_of_another_origin_are_refused(client: ConsoleClient, origin: str) -> None:
    for path in ("session", "call", "watch", "lock"):
        answer = await client.post(path, CALL, origin=origin)
        assert answer.status == 403, path
        assert answer.headers["content-security-policy"]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_browser_that_names_another_site_is_refused(client: ConsoleClient, site: str) -> None:
    assert (await client.post("call", CALL, sec_fetch_site=site)).status == 403
    assert (await client.post("call", CALL, sec_fetch_site="same-origin")).status == 200


async def test_forms_cannot_call(client: ConsoleClient) -> None:
    assert (await client.post("call", CALL, content_type="text/plain")).status == 415
    assert (await client.post("call", CALL, content_type="application/x-www-form-urlencoded")).status == 415


async def test_a_body_that_is_no_call_is_refused(client: ConsoleClient) -> None:
    assert (await client.post("call", ["a list"])).status == 400
    for wrong in ({}, {"name": 5}, {"name": "no_such_tool"}, {"name": "list_memories", "arguments": [1]}):
        answer = await client.post("call", wrong)
        assert "error" in answer.json, wrong
    assert await client.refused("list_memories", limit=1_000) == "invalid_input"
    assert await client.refused("list_memories", wrong=True) == "invalid_input"


async def test_a_locked_session_is_over(client: ConsoleClient) -> None:
    assert (await client.post("lock")).status == 200
    assert (await client.post("call", CALL)).status == 401


async def test_changes_name_the_console_as_the_client(client: ConsoleClient) -> None:
    await client.remember("Orders are in PostgreSQL")
    newest = (await client.call("list_changes", project="shop"))["changes"][0]
    assert (newest["tool"], newest["client"]) == ("store_memory", "console")


async def test_what_is_stored_here_is_masked(client: ConsoleClient) -> None:
    memory = await client.remember("the key is sk-ant-api03-" + "a1B2" * 20)
    found = await client.call("read_memory", memory_id=memory)
    assert "a1B2a1B2" not in found["memory"]["content"]
    await client.call("change_memories", memory_ids=[memory], tags={"add": ["ghp_" + "a1B2c3" * 6]})
    found = await client.call("read_memory", memory_id=memory)
    assert "a1B2c3" not in json.dumps(found)


async def test_calls_of_accounts_are_in_the_access_log(client: ConsoleClient) -> None:
    token = await client.create_account("mira", shop="read")
    await client.call("list_memories", token=token, project="shop")
    [newest, *_] = (await client.call("read_access_log", account="mira"))["calls"]
    assert (newest["what"], newest["project"], newest["outcome"]) == ("list_memories", "shop", "ok")


class Watcher:
    """A request that stays open, and the lines that it has got."""

    def __init__(self, client: ConsoleClient, body: Any, token: str | None = None) -> None:
        self.lines: asyncio.Queue[Any] = asyncio.Queue()
        self._left = asyncio.Event()
        self._body: bytes | None = json.dumps(body).encode()
        bearer = client.token if token is None else token
        headers = {
            "host": "127.0.0.1:8123", "content-type": "application/json", "accept": "*/*",
            "authorization": f"Bearer {bearer}",
        }  # fmt: skip
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/console/api/watch",
            "client": ("127.0.0.1", 1),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        self.task = asyncio.ensure_future(client.routes["/console/api/watch"](scope, self._receive, self._send))

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        for line in message.get("body", b"").splitlines():
            self.lines.put_nowait(json.loads(line))

    async def leave(self) -> None:
        self._left.set()
        await self.task


async def test_a_change_is_told_to_those_who_watch(client: ConsoleClient) -> None:
    watcher = Watcher(client, {"project": "shop"})
    before = (await watcher.lines.get())["changes"]
    assert set(before) == {"shop", "@user"}
    await client.remember("new")
    after = (await watcher.lines.get())["changes"]
    assert after["shop"] > before["shop"]
    assert after["@user"] == before["@user"]
    await watcher.leave()


async def test_a_page_with_a_state_is_followed_instead_of_the_changes(client: ConsoleClient) -> None:
    watcher = Watcher(client, {"project": "shop", "page": "team"})
    before = (await watcher.lines.get())["changes"]
    assert set(before) == {"team"}
    token = await client.create_account("mira", shop="read")
    assert (await watcher.lines.get())["changes"] != before
    stranger = Watcher(client, {"page": "team"}, token)
    assert "owner" in (await stranger.lines.get())["problem"]
    await watcher.leave()
    await stranger.leave()


async def test_a_watch_ends_with_its_session(library: Library, tmp_path: Any) -> None:
    now = [0.0]
    client = ConsoleClient(library, tmp_path, lambda: now[0])
    watcher = Watcher(client, {})
    await watcher.lines.get()
    now[0] += IDLE_SECONDS
    await watcher.task
    await client.app.close()
