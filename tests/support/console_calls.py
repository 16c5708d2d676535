"""The console's endpoint in this process, as the owner in a session or as an account."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from asgi_client import Answer, asked
from everkept.accounts.access_log import LOG_FOLDER, AccessLog
from everkept.app.app import App
from everkept.console.access import ConsoleAccess
from everkept.console.server import ConsoleServer
from everkept.core.ports import Library
from everkept.core.times import read_clock
from everkept.settings import read_settings
from everkept.transports.guard import TokenAuth
from hash_embedder import HashingEmbedder

ORIGIN = "http://127.0.0.1:8123"
SECOND = 1_000_000


class ConsoleClient:
    """Every call is a second after the one before."""

    def __init__(self, library: Library, folder: Path, clock: Callable[[], float], **settings: Any) -> None:
        ticks = count(read_clock(), SECOND)
        chosen = read_settings({"data_dir": folder / "data", **settings}, {})
        self.app = App(chosen, library=library, embedder=HashingEmbedder(), clock=lambda: next(ticks))
        self.access = ConsoleAccess(clock)
        self.access_log = AccessLog(chosen.data_dir / LOG_FOLDER)
        token_auth = TokenAuth(self.app.accounts.authenticate, rate_limit=0)
        self.routes = ConsoleServer(self.app, self.access, self.access_log, token_auth).build_routes()
        self.token = self.access.redeem_code(self.access.create_code()) or ""

    async def ask(self, path: str, method: str = "GET", *, body: bytes = b"", **headers: str) -> Answer:
        """Headers are named with underscores, and None leaves one out."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await asked(self.routes[path], path, method, body=body, **{"host": "127.0.0.1:8123", **named})

    async def post(self, path: str, body: Any = None, *, token: str | None = None, **headers: str) -> Answer:
        """Post to the endpoint as the page does."""
        given = {"content_type": "application/json", "accept": "*/*", "origin": ORIGIN, **headers}
        bearer = self.token if token is None else token
        sent = json.dumps({} if body is None else body).encode()
        return await self.ask(f"/console/api/{path}", "POST", body=sent, authorization=f"Bearer {bearer}", **given)

    async def answer(self, tool: str, /, *, token: str | None = None, **arguments: Any) -> Any:
        """Call a tool and return the whole answer, a result or an error."""
        answer = await self.post("call", {"name": tool, "arguments": arguments}, token=token)
        assert answer.status == 200, answer.body
        return answer.json

    async def call(self, tool: str, /, *, token: str | None = None, **arguments: Any) -> Any:
        answer = await self.answer(tool, token=token, **arguments)
        assert "result" in answer, answer
        return answer["result"]

    async def refused(self, tool: str, /, *, token: str | None = None, **arguments: Any) -> str:
        """Return the code of the error that a call gets."""
        return (await self.answer(tool, token=token, **arguments))["error"]["error"]

    async def remember(self, text: str, project: str = "shop", **more: Any) -> str:
        """Store a memory and return its id."""
        return (await self.call("store_memory", content=text, project=project, **more))["memory_id"]

    async def create_account(self, name: str, **grants: str) -> str:
        """Create an account that may use these projects, and return its token."""
        secret = (await self.call("create_account_token", account=name))["secret"]
        for project, access in grants.items():
            await self.call("set_access", account=name, project=project, access=access)
        return secret
