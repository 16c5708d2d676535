"""Requests and answers below the protocol: their types, plain answers, routes, and rate limits."""

import asyncio
import json
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
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


MOST_KEYS = 4096  # of which something is remembered; the one that came longest ago is forgotten
ROUNDING = 1e-6  # seconds; sums of intervals are not exact

Seconds = Callable[[], float]


class Buckets:
    """Each key may come as often as `per_minute` at once, and then as evenly as a minute allows."""

    def __init__(self, per_minute: int, clock: Seconds) -> None:
        self._interval = 60 / per_minute
        self._clock = clock
        # When the bucket of each will be full again: all that there is to know of it.
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def wait(self, key: str) -> float:
        """Seconds until it may come again; 0: now."""
        wait = self._after(key) - self._clock() - 60
        return wait if wait > ROUNDING else 0

    def take(self, key: str) -> float:
        """The same; where it may come now, it has come."""
        wait = self.wait(key)
        if wait == 0:
            self._full_at[key] = self._after(key)
            self._full_at.move_to_end(key)
            if len(self._full_at) > MOST_KEYS:
                self._full_at.popitem(last=False)
        return wait

    def give_back(self, key: str) -> None:
        """It has not come after all."""
        if key in self._full_at:
            self._full_at[key] -= self._interval

    def _after(self, key: str) -> float:
        """When the bucket would be full after one more."""
        return max(self._full_at.get(key, 0), self._clock()) + self._interval


class Queues:
    """Those of one key come one after another; more than `most` of them do not wait."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: Counter[str] = Counter()
        self._turns: dict[str, asyncio.Lock] = {}

    def is_full(self, key: str) -> bool:
        return self._waiting[key] >= self._most

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncGenerator[None, None]:
        """Begins when all of the key have left that came before."""
        self._waiting[key] += 1
        try:
            async with self._turns.setdefault(key, asyncio.Lock()):
                yield
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key], self._turns[key]
