"""Requests and answers below the protocol: their types, plain answers, and a choice by path."""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, cast

from everkept.core.accounts import Account
from everkept.transports.dispatch import INVALID_REQUEST
from everkept.values import Value

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

ACCOUNT = "everkept.account"  # in a scope behind the guard: whose request it is
CREDENTIAL = "everkept.credential"  # in a scope behind the guard: the hash of its token
HEADERS = "everkept.headers"  # in a scope: its headers as texts
PLAIN_JSON = "application/json"


class Refusal(Value):
    """An answer to a request that did not come as far as the protocol."""

    status: int
    message: str
    headers: Headers = ()
    data: Mapping[str, Any] | None = None
    code: int = INVALID_REQUEST


class Rejected(Exception):
    """Ends a request with a refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def account_in(scope: Message) -> Account | None:
    """Whose request it is; None: the owner's."""
    return cast("Account | None", scope.get(ACCOUNT))


def read_credential(scope: Message) -> str | None:
    """Return what the request proved its account with, None if no token was asked for."""
    return cast("str | None", scope.get(CREDENTIAL))


def address_in(scope: Message) -> str:
    """The machine that it came from, as far as the server knows."""
    client: tuple[str, int] | None = scope.get("client")
    return client[0] if client else ""


async def answer(
    send: Send, status: int, body: bytes, content_type: str = PLAIN_JSON, headers: Headers = ()
) -> None:
    told = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(len(body)).encode()),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def refuse(send: Send, refusal: Refusal) -> None:
    error: dict[str, Any] = {"code": refusal.code, "message": refusal.message}
    if refusal.data is not None:
        error["data"] = dict(refusal.data)
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    await answer(send, refusal.status, body, headers=refusal.headers)


def read_headers(scope: Message) -> dict[str, str]:
    """Return the headers as texts, decoded once a request; of a repeated header, the last."""
    headers: dict[str, str] | None = scope.get(HEADERS)
    if headers is None:
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        scope[HEADERS] = headers
    return headers


def by_path(app: ASGIApp, routes: Mapping[str, ASGIApp]) -> ASGIApp:
    """Some paths have an application of their own; the rest is for the first."""

    async def choose(scope: Message, receive: Receive, send: Send) -> None:
        is_request = scope["type"] == "http"
        chosen = routes.get(scope["path"], app) if is_request else app
        await chosen(scope, receive, send)

    return choose


def for_reading(app: ASGIApp) -> ASGIApp:
    """Answers GET, and HEAD without the body; any other method is refused."""

    async def read(scope: Message, receive: Receive, send: Send) -> None:
        method = scope["method"]
        if method not in ("GET", "HEAD"):
            allowed = ((b"allow", b"GET, HEAD"),)
            await refuse(send, Refusal(405, f"{method} does nothing here.", allowed))
            return

        async def without_body(message: Message) -> None:
            await send({**message, "body": b""} if "body" in message else message)

        await app(scope, receive, without_body if method == "HEAD" else send)

    return read
