import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everkept import __version__
from everkept.accounts.access_log import AccessLog
from everkept.app.app import App
from everkept.core.peers import MAX_QUESTION_CHARACTERS
from everkept.core.sessions import Account
from everkept.transports.http_exchange import ACCOUNT_KEY, Message
from everkept.transports.peer_endpoint import MAX_BODY_BYTES, build_peer_routes
from peer_servers import ME, neighbour

SEARCH, INFO = "/peers/search", "/peers/info"
WHAT = "checkout waits for Redis"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    made = await neighbour(tmp_path)
    await made.accounts.grant("me", await made.library.get_project("shop"), "read")
    yield made
    await made.close()


@pytest.fixture
def access_log(tmp_path: Path) -> AccessLog:
    return AccessLog(tmp_path / "access")


class Server:
    """The routes, called as a server behind the guard does."""

    def __init__(self, app: App, access_log: AccessLog) -> None:
        self._routes = build_peer_routes(lambda: app.shared_search, access_log, app.clock)

    async def __call__(
        self, path: str, body: Any = b"", *, method: str = "POST", account: Account | None = ME, pieces: int = 1
    ) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        size = max(len(data) // pieces, 1)
        parts = [data[start : start + size] for start in range(0, len(data), size)] or [b""]
        sent: list[Message] = []

        async def receive() -> Message:
            if not parts:
                return {"type": "http.disconnect"}
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts)}

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {"type": "http", "method": method, "path": path, "client": ("10.0.0.7", 1234), ACCOUNT_KEY: account}
        await self._routes[path](scope, receive, send)
        start, answer = sent
        text = bytes(answer["body"])
        return start["status"], json.loads(text) if text else None


@pytest.fixture
def server(app: App, access_log: AccessLog) -> Server:
    return Server(app, access_log)


def asked(**more: Any) -> dict[str, Any]:
    return {"version": 1, "query": WHAT} | more


async def test_a_peer_is_answered_with_what_is_granted_to_it(server: Server) -> None:
    status, answer = await server(SEARCH, asked(limit=50), pieces=5)
    assert (status, answer["version"], answer["warnings"]) == (200, 1, [])
    fields = {"id", "type", "content", "score", "title", "project", "at"}
    assert all(each.keys() == fields for each in answer["results"])
    assert {each["project"] for each in answer["results"]} == {"shop"}
    assert {each["type"] for each in answer["results"]} >= {"conversation", "memory", "entity"}


@pytest.mark.parametrize("account", [None, Account("anna")])
@pytest.mark.parametrize("path", [SEARCH, INFO])
async def test_owner_and_users_are_refused(
    server: Server, access_log: AccessLog, path: str, account: Account | None
) -> None:
    method = "POST" if path == SEARCH else "GET"
    status, _ = await server(path, asked(), method=method, account=account)
    assert status == 403
    assert list(access_log.read()) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[]",
        b"\xff",
        b"[" * 50_000,
        {},
        {"query": WHAT},
        asked(version=2),
        asked(version="1"),
        asked(query=" "),
        asked(query=7),
        asked(query="x" * (MAX_QUESTION_CHARACTERS + 1)),
        asked(limit=0),
        asked(limit=51),
        asked(limit=True),
        asked(limit="5"),
        asked(types=[]),
        asked(types="memory"),
        asked(types=["memory", "section"]),
        asked(types=[["memory"]]),
        b"x" * (MAX_BODY_BYTES + 1),
    ],
)
async def test_what_is_no_question_is_refused(server: Server, access_log: AccessLog, body: Any) -> None:
    status, answer = await server(SEARCH, body)
    assert status == 400
    assert answer["error"]["message"]
    assert list(access_log.read()) == []


async def test_half_a_letter_in_a_question_is_no_fault(server: Server) -> None:
    assert (await server(SEARCH, asked(query="checkout \ud83d")))[0] == 200


async def test_only_the_right_methods_do_anything(server: Server) -> None:
    assert (await server(SEARCH, method="GET"))[0] == 405
    assert (await server(INFO, method="POST"))[0] == 405
    assert (await server(INFO, method="HEAD")) == (200, None)


async def test_a_peer_learns_what_runs_here_and_no_more(server: Server) -> None:
    told = {"name": "everkept", "version": __version__}
    assert await server(INFO, method="GET") == (200, told)


async def test_what_was_told_is_noted_before_and_without_the_words(server: Server, access_log: AccessLog) -> None:
    _, answer = await server(SEARCH, asked())
    [noted] = access_log.read()
    assert noted is not None
    assert (noted.user, noted.is_peer, noted.address) == ("me", True, "10.0.0.7")
    assert (noted.what, noted.project, noted.outcome) == (SEARCH, "shop", "ok")
    assert list(noted.ids) == [each["id"] for each in answer["results"]]
    assert noted.length == len(WHAT)
    assert "Redis" not in json.dumps(noted.as_json())


async def test_what_cannot_be_noted_is_not_told(app: App, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    server = Server(app, AccessLog(tmp_path / "file"))
    status, answer = await server(SEARCH, asked())
    assert status == 503
    assert "Redis" not in json.dumps(answer)
