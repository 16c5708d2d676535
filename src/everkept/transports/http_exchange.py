"""One HTTP request and its answer: routes, headers, JSON or an event stream."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from math import ceil
from types import TracebackType
from typing import Any, cast

from everkept.core.mcp import MAX_MESSAGE_BYTES, STATELESS_VERSION, decode_message
from everkept.core.parameter_headers import ParameterHeader, decode_value, find_mismatch
from everkept.core.sessions import Account
from everkept.core.text import format_count
from everkept.transports.connection import JSON
from everkept.transports.dispatch import (
    CLIENT_CAPABILITIES,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    PROTOCOL_VERSION,
    UNSUPPORTED_VERSION,
    ProtocolError,
)
from everkept.values import Value

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

ACCOUNT_KEY = "everkept.account"  # in a scope behind the guard: the account of the request
CREDENTIAL_KEY = "everkept.credential"  # in a scope behind the guard: the hash of its token
HEADERS_KEY = "everkept.headers"  # in a scope: its headers as texts
JSON_TYPE = "application/json"


class Refusal(Value):
    """Answer to a request that was refused before the protocol."""

    status: int
    message: str
    headers: Headers = ()
    data: Mapping[str, Any] | None = None
    code: int = INVALID_REQUEST


def build_rate_limited(message: str, wait: float) -> Refusal:
    seconds = ceil(wait)
    return Refusal(
        429,
        f"{message} Try again in {seconds} s.",
        ((b"retry-after", str(seconds).encode()),),
        {"error": "rate_limited", "retry_possible": True, "retry_after_seconds": seconds},
    )


class RequestRejected(Exception):
    """Ends a request with a refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def get_account(scope: Message) -> Account | None:
    """Return the account of the request; None: the owner."""
    return cast("Account | None", scope.get(ACCOUNT_KEY))


def get_credential(scope: Message) -> str | None:
    """Return what the request proved its account with, None if no token was asked for."""
    return cast("str | None", scope.get(CREDENTIAL_KEY))


def get_client_address(scope: Message) -> str:
    """Return the address of the client, as far as the server knows it."""
    client: tuple[str, int] | None = scope.get("client")
    return client[0] if client else ""


async def send_answer(
    send: Send, status: int, body: bytes, content_type: str = JSON_TYPE, headers: Headers = ()
) -> None:
    told = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def send_refusal(send: Send, refusal: Refusal) -> None:
    error: dict[str, Any] = {"code": refusal.code, "message": refusal.message}
    if refusal.data is not None:
        error["data"] = dict(refusal.data)
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    await send_answer(send, refusal.status, body, headers=refusal.headers)


def read_headers(scope: Message) -> dict[str, str]:
    """Return the headers as texts, decoded once for each request. The last of a repeated header counts."""
    headers: dict[str, str] | None = scope.get(HEADERS_KEY)
    if headers is None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        scope[HEADERS_KEY] = headers
    return headers


def route_by_path(app: ASGIApp, routes: Mapping[str, ASGIApp]) -> ASGIApp:
    """Route some paths to their own applications, and the rest to the first."""

    async def choose(scope: Message, receive: Receive, send: Send) -> None:
        is_request = scope["type"] == "http"
        chosen = routes.get(scope["path"], app) if is_request else app
        await chosen(scope, receive, send)

    return choose


def restrict_to_get(app: ASGIApp) -> ASGIApp:
    """Answer GET, and HEAD without the body. Refuse any other method."""

    async def read(scope: Message, receive: Receive, send: Send) -> None:
        method = scope["method"]
        if method not in ("GET", "HEAD"):
            allowed = ((b"allow", b"GET, HEAD"),)
            await send_refusal(send, Refusal(405, f"{method} does nothing here.", allowed))
            return

        async def without_body(message: Message) -> None:
            await send({**message, "body": b""} if "body" in message else message)

        await app(scope, receive, without_body if method == "HEAD" else send)

    return read


VERSION_HEADER, METHOD_HEADER, NAME_HEADER = "mcp-protocol-version", "mcp-method", "mcp-name"
EVENT_STREAM = "text/event-stream"

HEADER_MISMATCH = -32020

# The parameter that `Mcp-Name` repeats, by method.
_NAME_PARAMETERS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def check_accept(headers: Mapping[str, str], *wanted: str) -> None:
    """Raise RequestRejected unless the client accepts each of these content types."""
    accepted = {part.partition(";")[0].strip().lower() for part in headers.get("accept", "").split(",")}
    for kind in wanted:
        if not accepted & {kind, kind.partition("/")[0] + "/*", "*/*"}:
            raise RequestRejected(Refusal(406, f"The client must accept {' and '.join(wanted)}."))


def check_content_type(headers: Mapping[str, str]) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON_TYPE:
        raise RequestRejected(Refusal(415, f"Content-Type must be {JSON_TYPE}."))


def check_envelope(scope: Message, headers: Mapping[str, str], method: str, params: JSON) -> None:
    """Raise ProtocolError unless a stateless request has `_meta` and matching headers."""
    meta: Any = params.get("_meta")
    meta = cast(JSON, meta) if isinstance(meta, dict) else {}
    if missing := [key for key in (PROTOCOL_VERSION, CLIENT_CAPABILITIES) if key not in meta]:
        raise ProtocolError(INVALID_PARAMS, f"`params._meta` lacks {', '.join(missing)}.")
    for header in find_repeated_headers(scope) & {VERSION_HEADER, METHOD_HEADER, NAME_HEADER}:
        raise _build_mismatch(f"The header {header} appears more than once.")
    version = headers.get(VERSION_HEADER)
    if version is None or version != meta[PROTOCOL_VERSION]:
        raise _build_mismatch(f"The header {VERSION_HEADER} does not agree with `{PROTOCOL_VERSION}`.")
    if headers.get(METHOD_HEADER) != method:
        raise _build_mismatch(f"The header {METHOD_HEADER} does not agree with the method.")
    named = params.get(_NAME_PARAMETERS[method]) if method in _NAME_PARAMETERS else None
    if named is not None and decode_value(headers.get(NAME_HEADER, "")) != named:
        raise _build_mismatch(f"The header {NAME_HEADER} does not agree with `{_NAME_PARAMETERS[method]}`.")
    check_version(version)


def check_version(version: str) -> None:
    if version != STATELESS_VERSION:
        raise ProtocolError(
            UNSUPPORTED_VERSION,
            "Unsupported protocol version",
            {"supported": [STATELESS_VERSION], "requested": version},
        )


def check_parameters(
    scope: Message, headers: Mapping[str, str], declared: tuple[ParameterHeader, ...], arguments: JSON
) -> None:
    """Raise ProtocolError if a header differs from the argument that it repeats."""
    mismatch = find_mismatch(declared, arguments, headers, find_repeated_headers(scope))
    if mismatch is not None:
        raise _build_mismatch(mismatch)


def find_repeated_headers(scope: Message) -> set[str]:
    seen: set[bytes] = set()
    repeated: set[str] = set()
    for name, _ in scope["headers"]:
        if name in seen:
            repeated.add(name.decode("latin-1"))
        seen.add(name)
    return repeated


def _build_mismatch(sentence: str) -> ProtocolError:
    return ProtocolError(HEADER_MISMATCH, sentence)


PING_EVENT = b": ping\r\n\r\n"
PING_SECONDS = 15.0  # of silence, before a proxy considers the connection dead
WATCH_AFTER_SECONDS = 0.05  # most answers are complete by then and need no watch

EVENT_HEADERS: Headers = (
    (b"content-type", EVENT_STREAM.encode()),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class Exchange:
    """A request, and the only way to answer it."""

    def __init__(self, scope: Message, receive: Receive, send: Send, ping_seconds: float) -> None:
        self.scope = scope
        self.headers = read_headers(scope)
        self.answer_headers: Headers = ()
        self.is_stream = False
        self.ping_seconds = ping_seconds
        self.receive = receive
        self.send = send
        self._lock = asyncio.Lock()  # a ping may come while an event is sent
        self._is_ended = False

    async def read_json(self, limit: int = MAX_MESSAGE_BYTES) -> Any:
        """Return the body. Raise RequestRejected if this request cannot contain a message."""
        check_accept(self.headers, JSON_TYPE, EVENT_STREAM)
        check_content_type(self.headers)
        body = await self._read_body(limit)
        try:
            return decode_message(body)
        except (ValueError, RecursionError) as error:
            message = f"The body is not valid JSON: {error}"
            raise RequestRejected(Refusal(400, message, code=PARSE_ERROR)) from error

    async def send_document(self, body: bytes, status: int = 200) -> None:
        self._is_ended = True  # a ping may come while the client reads slowly
        await send_answer(self.send, status, body, headers=self.answer_headers)

    async def send_events(self, events: bytes, *, is_last: bool = False) -> None:
        """Turn the answer into a stream, if necessary, and send these events."""
        async with self._lock:
            if self._is_ended:
                return
            if not self.is_stream:
                self.is_stream = True
                headers = [*EVENT_HEADERS, *self.answer_headers]
                await self.send({"type": "http.response.start", "status": 200, "headers": headers})
            self._is_ended = is_last
            await self.send({"type": "http.response.body", "body": events, "more_body": not is_last})

    async def ping(self) -> None:
        await self.send_events(PING_EVENT)

    async def _read_body(self, limit: int) -> bytes:
        parts: list[bytes] = []
        size, has_more = 0, True
        while has_more:
            part = await self.receive()
            if part["type"] == "http.disconnect":
                raise RequestRejected(Refusal(400, "The body ended too soon."))
            parts.append(part.get("body", b""))
            size += len(parts[-1])
            if size > limit:
                told = f"A message may have {format_count(limit, 'byte')} at most."
                raise RequestRejected(Refusal(413, told))
            has_more = part.get("more_body", False)
        return b"".join(parts)


class KeepAlive:
    """Pings while the answer is silent.

    It begins after a moment, so that quick answers need no task, and ends when the client leaves.
    """

    def __init__(
        self, exchange: Exchange, ping: Callable[[], Awaitable[None]], on_leave: Callable[[], None] | None = None
    ) -> None:
        self._exchange = exchange
        self._ping = ping
        self._on_leave = on_leave
        self._watching: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(WATCH_AFTER_SECONDS, self._begin)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()

    def _begin(self) -> None:
        self._watching = asyncio.create_task(self._watch(), name="watch over an answer")

    async def _watch(self) -> None:
        receiving = asyncio.ensure_future(self._exchange.receive())
        try:
            while True:
                done, _ = await asyncio.wait({receiving}, timeout=self._exchange.ping_seconds)
                if not done:
                    await self._ping()
                elif receiving.result()["type"] == "http.disconnect":
                    break
                else:
                    receiving = asyncio.ensure_future(self._exchange.receive())
        finally:
            receiving.cancel()
        if self._on_leave is not None:
            self._on_leave()


class DisconnectWatch:
    """Keeps an answer alive, and cancels its handler when the client leaves."""

    def __init__(self, exchange: Exchange) -> None:
        self._keep_alive = KeepAlive(exchange, exchange.ping, self._leave)
        self._task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._is_gone = False

    def __enter__(self) -> None:
        self._keep_alive.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._keep_alive.__exit__(kind, error, trace)
        if not self._is_gone or not isinstance(error, asyncio.CancelledError):
            return False
        self._task.uncancel()
        return True

    def _leave(self) -> None:
        self._is_gone = True
        self._task.cancel()
