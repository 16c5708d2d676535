"""One request to an application in this process, and its whole answer."""

import json
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from everkept.transports.http_exchange import ASGIApp, Message


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def asked(
    app: ASGIApp,
    path: str = "/",
    method: str = "GET",
    *,
    address: str = "192.0.2.1",
    scope: dict[str, Any] | None = None,
    body: bytes | Awaitable[bytes] = b"",
    **headers: str,
) -> Answer:
    """`scope` takes what the server knows of the request beside, and gets what is added to it."""
    sent: list[Message] = []
    named = {"host": "localhost", **headers}
    scope = {} if scope is None else scope
    scope |= {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "client": (address, 50_000),
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": body if isinstance(body, bytes) else await body}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start, *rest = sent
    got = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], got, b"".join(message["body"] for message in rest))
