"""What an attacker may try with the console: accounts, pinned and read-only servers, and requests without a token."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from asgi_client import Answer, asked
from clocks import Clock
from everkept.accounts.access_log import AccessLog
from everkept.app.app import App
from everkept.console.access import CODE_SECONDS, IDLE_SECONDS, MAX_SECONDS, MAX_SESSIONS, ConsoleAccess
from everkept.console.server import MAX_CODE_BYTES, MAX_PROJECTS, ConsoleServer
from everkept.settings import read_settings
from everkept.transports.guard import Guard, TokenAuth
from everkept.transports.http_exchange import ASGIApp, Message, route_by_path, send_answer
from hash_embedder import HashingEmbedder
from server_processes import HANG


class Console:
    """A console behind the guard, and requests to it."""

    def __init__(self, app: App) -> None:
        self.app, self.clock = app, Clock()
        self.access = ConsoleAccess(self.clock)
        token_auth = TokenAuth(app.accounts.authenticate, rate_limit=0)
        log = AccessLog(app.settings.data_dir / "log")
        routes = ConsoleServer(app, self.access, log, token_auth).build_routes()
        self.guarded: ASGIApp = Guard(
            route_by_path(_answer_nothing, routes), "127.0.0.1", token_auth, open_paths=routes
        )

    def begin(self) -> str:
        token = self.access.redeem_code(self.access.create_code())
        assert token is not None
        return token

    async def post(self, path: str, token: str = "", body: Any = None, **headers: str) -> Answer:
        told: dict[str, Any] = {
            "content-type": "application/json",
            "accept": "*/*",
            "host": "127.0.0.1:8000",
            **headers,
        }
        if token:
            told["authorization"] = f"Bearer {token}"
        sent = cast("Awaitable[bytes]", body) if isinstance(body, Awaitable) else json.dumps(body or {}).encode()
        return await asked(self.guarded, f"/console/api/{path}", "POST", body=sent, **told)

    async def call(self, token: str, tool: str, **arguments: Any) -> Any:
        """Return the facts, or the code of the error."""
        told = (await self.post("call", token, {"name": tool, "arguments": arguments})).json
        return told["error"]["error"] if "error" in told else told["result"]


async def _answer_nothing(_scope: Message, _receive: Any, send: Any) -> None:
    await send_answer(send, 404, b"{}")


OpenConsole = Callable[..., Console]


@pytest.fixture
async def open_console(tmp_path: Path) -> AsyncIterator[OpenConsole]:
    async with AsyncExitStack() as stack:

        def build(**settings: Any) -> Console:
            told = {"data_dir": tmp_path / "data", "transport": "http", **settings}
            app = App(read_settings(told, {}), embedder=HashingEmbedder())
            stack.push_async_callback(app.close)
            return Console(app)

        yield build


async def _fill(console: Console) -> str:
    """Create two projects. Return the token of an account that may read only the first."""
    for name in ("shop", "secret plan"):
        await console.app.library.create(name, "")
    _, anna = await console.app.accounts.create_token("anna", "")
    await console.app.accounts.grant("anna", await console.app.library.get_project("shop"), "read")
    return anna


async def test_the_log_of_an_account_does_not_contain_projects_of_others(open_console: OpenConsole) -> None:
    console = open_console()
    anna = await _fill(console)
    for arguments in ({}, {"project": "secret plan"}):
        assert "secret" not in json.dumps(await console.call(anna, "list_changes", **arguments))
    for change in ("secret plan:p1", "shop:p1"):
        assert await console.call(anna, "undo_change", change=change) == "not_found"
    assert [each.status for each in await console.app.library.list_projects()] == ["active", "active"]


async def test_an_account_does_not_reach_the_sessions_of_others_in_a_shared_project(open_console: OpenConsole) -> None:
    console = open_console(project="shop")
    await _fill(console)
    owner, shop = console.begin(), await console.app.library.get_project("shop")
    tokens = {name: (await console.app.accounts.create_token(name, ""))[1] for name in ("anna", "ben")}
    for name in tokens:
        await console.app.accounts.grant(name, shop, "write")
    stored: list[str] = []
    for token in (owner, tokens["ben"]):
        made = await console.call(
            token,
            "store_memory",
            content=f"Hidden thought {len(stored)}",
            scope="session",
            session_id="one",
            project="shop",
            related_entities=["Redis"],
        )
        stored.append(made["memory_id"])
    anna = tokens["anna"]
    [entity] = (await console.call(anna, "find_entities", project="shop", text="Redis"))["entities"]
    seen = [
        await console.call(anna, "list_changes", project="shop"),
        *[await console.call(anna, "read_change", change=f"shop:{number}") for number in (1, 2)],
        await console.call(anna, "read_graph_entity", project="shop", entity_id=entity["id"]),
        await console.call(anna, "recall_memories", query="hidden thought", session_id="one", project="shop"),
    ]
    assert "not_found" not in seen
    assert "Hidden" not in json.dumps(seen)
    for memory in stored:
        changes: dict[str, dict[str, Any]] = {
            "change_memories": {"memory_ids": [memory], "forgotten": True},
            "forget_memory": {"memory_id": memory, "project": "shop"},
            "update_memory": {"memory_id": memory, "content": "Changed", "project": "shop"},
            "store_memory": {"supersedes": memory, "content": "Changed", "project": "shop"},
        }
        for tool, arguments in changes.items():
            assert await console.call(anna, tool, **arguments) == "not_found", tool
    for number in (1, 2):
        assert await console.call(anna, "undo_change", change=f"shop:{number}") == "not_found"
    owners = await console.call(owner, "list_memories", project="shop")
    assert sorted(each["content"] for each in owners["memories"]) == ["Hidden thought 0", "Hidden thought 1"]
    own = {"query": "hidden thought", "session_id": "one", "project": "shop"}
    for token, text in ((owner, "Hidden thought 0"), (tokens["ben"], "Hidden thought 1")):
        found = await console.call(token, "recall_memories", **own)
        assert [each["content"] for each in found["memories"]] == [text]


CHANGES: dict[str, dict[str, Any]] = {
    "change_memories": {"memory_ids": []},
    "create_account_token": {"account": "eve"},
    "delete_conversations": {"conversations": []},
    "exclude_folder": {"folder": "/work"},
    "export_all_data": {},
    "make_data_backup": {},
    "mask_stored_secrets": {},
    "remove_account": {"account": "anna"},
    "revoke_account_token": {"token_id": "1"},
    "set_access": {"account": "anna", "project": "secret plan", "access": "write"},
    "turn_project_off": {"project": "shop"},
    "undo_change": {"change": "shop:p1"},
}


async def test_a_server_that_only_reads_changes_nothing_through_the_console(open_console: OpenConsole) -> None:
    await _fill(open_console())
    console = open_console(read_only=True)
    owner = console.begin()
    for tool, arguments in CHANGES.items():
        assert await console.call(owner, tool, **arguments) == "invalid_input", tool
    assert [each["name"] for each in (await console.call(owner, "list_team"))["accounts"]] == ["anna"]
    assert not any(each.is_off for each in await console.app.library.list_projects())


async def test_a_pinned_server_shows_nothing_of_other_projects(open_console: OpenConsole) -> None:
    await _fill(open_console())
    console = open_console(only_project="shop")
    owner = console.begin()
    reads: dict[str, dict[str, Any]] = {
        **{"read_overview": {}, "list_team": {}, "read_access_log": {}, "list_conversations": {}, "read_health": {}},
        **{
            "list_clients": {},
            "find_stored_secrets": {},
            "list_data_backups": {},
            "list_changes": {},
            "list_projects_to_show": {},
        },
        "outline_graph": {"project": "secret plan"},
        "list_memories": {"project": "secret plan"},
    }
    for tool, arguments in {**CHANGES, **reads}.items():
        if tool == "undo_change":
            continue  # its own project
        assert "secret" not in json.dumps(await console.call(owner, tool, **arguments)), tool
    [grant] = await console.app.accounts.list_grants()
    assert (grant.user, grant.access) == ("anna", "read")


async def test_quotas_of_an_account_count_in_the_console(open_console: OpenConsole) -> None:
    console = open_console(quota_calls=1)
    anna = await _fill(console)
    asked_for, released = asyncio.Event(), asyncio.Event()

    async def read_body() -> bytes:
        asked_for.set()
        await released.wait()
        return b'{"name": "read_console_state"}'

    slow = asyncio.create_task(console.post("call", anna, read_body()))
    async with asyncio.timeout(HANG):
        await asked_for.wait()
    assert (await console.post("call", anna, {"name": "read_console_state"})).status == 429
    assert (await console.post("call", console.begin(), {"name": "read_console_state"})).status == 200
    released.set()
    assert (await slow).json["result"]["account"] == "anna"
    small = open_console(quota_answer_bytes=65_536)
    text = "- item\n" * 6_000
    assert await small.call(anna, "read_markdown", text=text) == "quota_exceeded"
    assert (await small.call(small.begin(), "read_markdown", text=text))["rest"] == 0


async def test_a_request_without_a_token_is_small(open_console: OpenConsole) -> None:
    console = open_console()
    assert (await console.post("session", body={"code": "x" * MAX_CODE_BYTES})).status == 413
    assert (await console.post("call", body={"name": "x" * MAX_CODE_BYTES})).status == 401


async def test_a_code_begins_one_session_and_ends_with_time(open_console: OpenConsole) -> None:
    console = open_console()
    code = console.access.create_code()
    first = await console.post("session", body={"code": code})
    assert first.status == 200
    token = first.json["token"]
    wrong_codes: list[Any] = [code, "", "x" * 43, None, 5, ["a"], {}]
    for wrong in wrong_codes:
        assert (await console.post("session", body={"code": wrong})).status == 401
    late = console.access.create_code()
    console.clock.now += CODE_SECONDS
    assert (await console.post("session", body={"code": late})).status == 401
    assert (await console.post("call", token, {"name": "read_console_state"})).status == 200
    console.clock.now += IDLE_SECONDS + 1
    assert (await console.post("call", token, {"name": "read_console_state"})).status == 401


async def test_a_session_that_is_used_ends_after_half_a_day(open_console: OpenConsole) -> None:
    console = open_console()
    token = console.begin()
    while console.clock.now + IDLE_SECONDS / 2 < MAX_SECONDS:
        console.clock.now += IDLE_SECONDS / 2
        assert console.access.check_token(token)
    console.clock.now += IDLE_SECONDS / 2
    assert not console.access.check_token(token)


async def test_sessions_and_codes_do_not_fill_the_memory(open_console: OpenConsole) -> None:
    console = open_console()
    tokens = [console.begin() for _ in range(3 * MAX_SESSIONS)]
    assert sum(map(console.access.check_token, tokens)) == MAX_SESSIONS
    for _ in range(3 * MAX_SESSIONS):
        assert (await console.post("call", tokens[-1], {"name": "read_console_state", "project": "x"})).status == 200


async def test_an_account_does_not_end_the_sessions_of_others(open_console: OpenConsole, tmp_path: Path) -> None:
    """A session keeps its mode, and what it has read of a bank."""
    console = open_console(toolsets="bank,graph", path=tmp_path)
    anna = await _fill(console)
    owner = console.begin()
    await console.call(owner, "switch_mode", mode="debug")
    for number in range(MAX_PROJECTS * 3):
        await console.post("call", anna, {"name": "read_console_state", "project": f"x{number}"})
    assert (await console.call(owner, "get_current_mode"))["mode"] == "debug"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"host": ""}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"origin": "https://127.0.0.1:8000"}, 403),
        ({"origin": "http://localhost:8000"}, 403),
        ({"origin": "http://127.0.0.1:8000@evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"origin": "http://127.0.0.1:8000", "sec-fetch-site": "same-origin"}, 200),
    ],
)
async def test_only_the_page_itself_may_begin_a_session(
    open_console: OpenConsole, headers: dict[str, str], status: int
) -> None:
    console = open_console()
    code = console.access.create_code()
    assert (await console.post("session", body={"code": code}, **headers)).status == status


@pytest.mark.parametrize(
    "path",
    ["../owner.py", "%2e%2e/owner.py", "static/../../owner.py", "/etc/passwd", "..\\owner.py", "pages/../../x", "."],
)
async def test_only_files_of_the_page_are_served(open_console: OpenConsole, path: str) -> None:
    console = open_console()
    assert (await asked(console.guarded, "/console/main.js", host="127.0.0.1:8000")).status == 200
    assert (await asked(console.guarded, f"/console/{path}", host="127.0.0.1:8000")).status in (401, 404)


async def test_a_backup_from_the_console_is_beside_the_data(open_console: OpenConsole, tmp_path: Path) -> None:
    console = open_console()
    await _fill(console)
    owner = console.begin()
    made = await console.call(owner, "make_data_backup")
    assert Path(made["file"]).parent == tmp_path / "data-backups"
    assert [each["file"] for each in (await console.call(owner, "list_data_backups"))["backups"]] == [made["file"]]
