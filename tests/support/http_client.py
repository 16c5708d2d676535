"""A client of an application in this process that sees every part of an answer."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from server_processes import INITIALIZE, META, MODERN

Messages = asyncio.Queue[dict[str, Any]]


class Event(NamedTuple):
    """One event of a stream; `message` is None if it has no data."""

    id: str | None
    message: Any


class Exchange:
    """One request, answered as it goes."""

    def __init__(
        self,
        app: Any,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
        *,
        more_headers: Sequence[tuple[bytes, bytes]] = (),
        **scope: Any,
    ) -> None:
        self._sent: Messages = asyncio.Queue()
        self._received: Messages = asyncio.Queue()
        self._events: list[Event] = []
        data = body if isinstance(body, bytes) else b"" if body is None else encode(body)
        self._received.put_nowait({"type": "http.request", "body": data})
        if headers is None and isinstance(body, dict):
            headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": body["method"]}
        sent = {
            "host": "localhost",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **{name.lower(): value for name, value in (headers or {}).items()},
        }
        request = {
            "type": "http",
            "method": method,
            "path": "/mcp",
            "query_string": b"",
            "headers": [*((name.encode(), value.encode()) for name, value in sent.items()), *more_headers],
            **scope,
        }
        self.task = asyncio.create_task(app(request, self._received.get, self._sent.put))

    def disconnect(self) -> None:
        self._received.put_nowait({"type": "http.disconnect"})

    @property
    def is_silent(self) -> bool:
        """Whether everything that was sent has been looked at."""
        return self._sent.empty() and not self._events

    async def start(self) -> tuple[int, dict[str, str]]:
        """The status and the headers."""
        message = await self._sent.get()
        assert message["type"] == "http.response.start"
        return message["status"], {name.decode(): value.decode() for name, value in message["headers"]}

    async def part(self) -> tuple[bytes, bool]:
        """The next bytes of the body, and whether there may be more."""
        message = await self._sent.get()
        assert message["type"] == "http.response.body"
        return message["body"], message["more_body"]

    async def event(self) -> Event:
        while not self._events:
            body, _ = await self.part()
            blocks = body.decode().split("\r\n\r\n")[:-1]
            self._events += [_event(block) for block in blocks if not block.startswith(":")]
        return self._events.pop(0)

    async def document(self) -> tuple[int, Any]:
        """The status and the JSON of an answer that is no stream."""
        status, headers = await self.start()
        assert headers["content-type"] == "application/json"
        body, has_more = await self.part()
        assert not has_more
        await self.task
        return status, json.loads(body) if body else None


def _event(block: str) -> Event:
    fields = dict(line.split(":", 1) for line in block.split("\r\n"))
    data = fields["data"].strip()
    return Event(fields.get("id", "").strip() or None, json.loads(data) if data else None)


def encode(body: Any) -> bytes:
    return json.dumps(body).encode()


def request(method: str, params: Any = None, request_id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}


def stateless(method: str, **params: Any) -> dict[str, Any]:
    return request(method, {"_meta": META} | params)


class SessionClient:
    """A client after its handshake."""

    def __init__(self, app: Any, session_id: str, version: str, **scope: Any) -> None:
        self.headers = {"Mcp-Session-Id": session_id, "MCP-Protocol-Version": version}
        self._app = app
        self._scope = scope

    @classmethod
    async def begin(cls, app: Any, version: str = "2025-11-25", **scope: Any) -> "SessionClient":
        asked = request("initialize", INITIALIZE | {"protocolVersion": version})
        exchange = Exchange(app, asked, {}, **scope)
        status, headers = await exchange.start()
        assert status == 200
        await exchange.task
        return cls(app, headers["mcp-session-id"], version, **scope)

    def post(self, body: Any) -> Exchange:
        return Exchange(self._app, body, self.headers, **self._scope)

    def ask(self, method: str, params: Any = None, request_id: Any = 1) -> Exchange:
        return self.post(request(method, params, request_id))

    def note(self, method: str, **params: Any) -> Exchange:
        return self.post({"jsonrpc": "2.0", "method": method, "params": params})

    def listen(self, last_event_id: str | None = None) -> Exchange:
        resumed = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        return Exchange(self._app, None, self.headers | resumed, "GET", **self._scope)

    def delete(self) -> Exchange:
        return Exchange(self._app, None, self.headers, "DELETE", **self._scope)
