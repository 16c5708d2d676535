"""Who may talk to the HTTP server: the checks that come before the protocol."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from recollect.app.tokens import hashed
from recollect.core.protocol import MESSAGE_LIMIT
from recollect.errors import RecollectError
from recollect.transports.dispatch import INVALID_REQUEST
from recollect.transports.listening import is_loopback

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Message, Receive, Send], Awaitable[None]]
KnowsToken = Callable[[str], Awaitable[bool]]

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Refusal:
    status: int
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Guard:
    """Checks Host, Origin, token and size, in this order, of every request.

    Host and Origin keep a web page in the user's browser from reaching a server on the same
    machine under a name of its own. Beyond the loopback address any name may be the right one and
    a token is always needed; there, pages that came from the same name pass.
    """

    def __init__(self, app: ASGIApp, host: str, knows_token: KnowsToken | None) -> None:
        self._app = app
        self._knows_token = knows_token
        self._names = LOOPBACK_NAMES | {host.lower()} if is_loopback(host) else None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        refusal = (
            self._wrong_name(headers)
            or await self._wrong_token(scope, headers)
            or _wrong_size(headers)
        )
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            log.info("refused %s %s: %s", scope["method"], scope["path"], refusal.message)
            await _answer(refusal, send)

    def _wrong_name(self, headers: dict[str, str]) -> _Refusal | None:
        host = headers.get("host", "")
        name = _name("//" + host)
        if not name or (self._names is not None and name not in self._names):
            return _Refusal(421, f"This server does not answer to the Host {host!r}.")
        origin = headers.get("origin")
        if origin is not None and _name(origin) not in (self._names or {name}):
            return _Refusal(403, f"Pages of the Origin {origin!r} may not use this server.")
        return None

    async def _wrong_token(self, scope: Message, headers: dict[str, str]) -> _Refusal | None:
        if self._knows_token is None:
            return None
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        secret_hash = hashed(secret.strip())
        if scheme.lower() != "bearer" or not secret.strip():
            return _unauthorized("This server wants a bearer token.", "")
        try:
            is_known = await self._knows_token(secret_hash)
        except RecollectError as error:
            return _Refusal(503, str(error))
        if not is_known:
            return _unauthorized("This bearer token is not known.", ', error="invalid_token"')
        # The SDK lets a session be used only with the credential that opened it.
        token = AccessToken(token=secret_hash, client_id=secret_hash, scopes=[])
        scope["user"] = AuthenticatedUser(token)
        return None


class OpenRequests:
    """The requests under way, so that the server can end them when it stops."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._is_stopping = False

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        if scope["type"] != "http" or task is None:
            await self._app(scope, receive, send)
            return
        is_begun = is_ended = False

        async def watched(message: Message) -> None:
            nonlocal is_begun, is_ended
            await send(message)
            is_begun = True
            is_ended = message["type"] == "http.response.body" and not message.get("more_body")

        self._tasks[task] = scope["method"]
        try:
            await self._app(scope, receive, watched)
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
            task.uncancel()
            if not is_begun:
                await _answer(_Refusal(503, "The server is stopping."), send)
            elif not is_ended:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            del self._tasks[task]

    async def stop(self, grace: float) -> None:
        """Ends streams that only listen at once, and everything else after a moment."""
        self._is_stopping = True
        for task, method in self._tasks.items():
            if method == "GET":
                task.cancel()
        for _ in range(2):
            if self._tasks:
                await asyncio.wait(set(self._tasks), timeout=grace)
            for task in self._tasks:
                task.cancel()


def _wrong_size(headers: dict[str, str]) -> _Refusal | None:
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MESSAGE_LIMIT:
        return _Refusal(413, f"A message may have {MESSAGE_LIMIT:,} bytes at most.")
    return None


def _unauthorized(message: str, detail: str) -> _Refusal:
    challenge = f'Bearer realm="recollect"{detail}'
    hint = "`recollect token` on the server's machine makes one."
    return _Refusal(401, f"{message} {hint}", ((b"www-authenticate", challenge.encode()),))


def _name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


async def _answer(refusal: _Refusal, send: Send) -> None:
    error = {"code": INVALID_REQUEST, "message": refusal.message}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *refusal.headers,
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
