"""One HTTP request and its answer: routes, rate limits, headers, JSON or an event stream."""

import asyncio
import json
import re
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, asynccontextmanager
from math import ceil
from types import TracebackType
from typing import Any, NamedTuple, cast

from everkept.core.mcp import MAX_MESSAGE_BYTES, STATELESS_VERSION
from everkept.core.sessions import Account
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


MAX_KEYS = 4096  # with an entry; the oldest is dropped
ROUNDING_SECONDS = 1e-6  # sums of intervals are not exact

SecondsClock = Callable[[], float]


class RateLimiter:
    """Rate limiter: each key may use its `per_minute` requests at the same time, then evenly over a minute."""

    def __init__(self, per_minute: int, clock: SecondsClock) -> None:
        self._interval = 60 / per_minute
        self._clock = clock
        # Time at which the bucket of each key is full again.
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def compute_wait(self, key: str) -> float:
        """Return the seconds to wait; 0: none."""
        wait = self._compute_full_at(key) - self._clock() - 60
        return wait if wait > ROUNDING_SECONDS else 0

    def take(self, key: str) -> float:
        """Return the seconds to wait, and count the request if it may pass now."""
        wait = self.compute_wait(key)
        if wait == 0:
            self._full_at[key] = self._compute_full_at(key)
            self._full_at.move_to_end(key)
            if len(self._full_at) > MAX_KEYS:
                self._full_at.popitem(last=False)
        return wait

    def give_back(self, key: str) -> None:
        """Do not count the request after all."""
        if key in self._full_at:
            self._full_at[key] -= self._interval

    def _compute_full_at(self, key: str) -> float:
        """Return when the bucket would be full after one more request."""
        return max(self._full_at.get(key, 0), self._clock()) + self._interval


class KeyedQueues:
    """Queues by key. Requests of one key run one after another, and at most `most` of them wait."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: Counter[str] = Counter()
        self._turns: dict[str, asyncio.Lock] = {}

    def is_full(self, key: str) -> bool:
        return self._waiting[key] >= self._most

    @asynccontextmanager
    async def wait_turn(self, key: str) -> AsyncGenerator[None, None]:
        """Wait until all earlier requests of the key have ended."""
        self._waiting[key] += 1
        try:
            async with self._turns.setdefault(key, asyncio.Lock()):
                yield
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key], self._turns[key]


class OpenCounts:
    """Counts of open requests by key."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def hold(self, key: str, limit: int, held: ExitStack) -> bool:
        """Count a request until `held` ends. Return False if the key has as many already."""
        if self._open[key] >= limit:
            return False
        self._open[key] += 1
        held.callback(self._release, key)
        return True

    def _release(self, key: str) -> None:
        self._open[key] -= 1
        if not self._open[key]:
            del self._open[key]


PARAMETER_HEADER_PREFIX = "mcp-param-"
HEADER_ANNOTATION = "x-mcp-header"

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_WHOLE_NUMBER = re.compile(r"(-?[0-9]+)(\.0+)?")
_ENCODED = re.compile(r"=\?base64\?(.*)\?=")
_HEADER_TYPES = ("string", "integer", "boolean")

# Keywords whose value is a schema, a list of schemas, or schemas by name.
_ONE_SCHEMA_KEYWORDS = frozenset(
    (
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    )
)
_SCHEMA_LIST_KEYWORDS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED_SCHEMA_KEYWORDS = frozenset(("$defs", "definitions", "dependentSchemas", "patternProperties"))

ArgumentPath = tuple[str, ...]


class ParameterHeader(NamedTuple):
    """Header that repeats an argument."""

    name: str
    path: ArgumentPath
    type: str


def find_declared_headers(schema: JSON) -> tuple[ParameterHeader, ...]:
    """Return the headers that a schema declares, or none if a declaration is invalid."""
    found: dict[str, ParameterHeader] = {}
    for path, node in _walk_schemas(schema):
        if HEADER_ANNOTATION not in node:
            continue
        token, kind = node[HEADER_ANNOTATION], node.get("type")
        is_token = isinstance(token, str) and _TOKEN.fullmatch(token) is not None
        if not path or not is_token or kind not in _HEADER_TYPES:
            return ()
        header = ParameterHeader(PARAMETER_HEADER_PREFIX + token.lower(), path, kind)
        if header.name in found:
            return ()
        found[header.name] = header
    return tuple(found.values())


def find_mismatch(
    declared: Collection[ParameterHeader], arguments: JSON, headers: Mapping[str, str], repeated: Collection[str]
) -> str | None:
    """Return a sentence about the first header that differs from its argument."""
    for header in declared:
        text, expected = headers.get(header.name), _get_value(arguments, header.path)
        argument = ".".join(header.path)
        if text is None:
            if _as_text(expected) is not None:
                return f"The header {header.name} of the argument `{argument}` is missing."
        elif header.name in repeated:
            return f"The header {header.name} appears more than once."
        elif not _is_same_value(header, expected, text):
            return f"The header {header.name} does not agree with the argument `{argument}`."
    return None


def decode_value(text: str) -> str | None:
    """Return the value of a header, which may be encoded. Return None if the encoding is wrong."""
    encoded = _ENCODED.fullmatch(text)
    if encoded is None:
        return text
    import base64  # few names need it

    try:
        data = base64.b64decode(encoded[1], validate=True)
        is_canonical = base64.b64encode(data).decode("ascii") == encoded[1]
        return data.decode("utf-8") if is_canonical else None
    except ValueError:
        return None


def _is_same_value(header: ParameterHeader, expected: Any, text: str) -> bool:
    said, wanted = decode_value(text), _as_text(expected)
    if said is None or wanted is None:
        return False
    if header.type == "integer" and not isinstance(expected, str | bool):
        one, other = _WHOLE_NUMBER.fullmatch(said), _WHOLE_NUMBER.fullmatch(wanted)
        if one and other:
            return int(one[1]) == int(other[1])
    return said == wanted


def _as_text(value: Any) -> str | None:
    """Return a value in the form of a header, or None if that is impossible."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _get_value(arguments: JSON, path: ArgumentPath) -> Any:
    value: Any = arguments
    for key in path:
        value = cast(JSON, value).get(key) if isinstance(value, dict) else None
    return value


def _walk_schemas(root: Any) -> Iterator[tuple[ArgumentPath | None, JSON]]:
    """Yield every schema within one, with its path if only `properties` lead to it."""
    waiting: list[tuple[ArgumentPath | None, Any]] = [((), root)]
    while waiting:
        path, node = waiting.pop()
        if not isinstance(node, dict):
            continue
        yield path, cast(JSON, node)
        for key, value in cast(JSON, node).items():
            if key == "properties" and isinstance(value, dict):
                for name, inner in cast(JSON, value).items():
                    waiting.append((None if path is None else (*path, name), inner))
            elif key in _ONE_SCHEMA_KEYWORDS:
                waiting.append((None, value))
            elif key in _SCHEMA_LIST_KEYWORDS and isinstance(value, list):
                waiting += [(None, inner) for inner in cast(list[Any], value)]
            elif key in _NAMED_SCHEMA_KEYWORDS and isinstance(value, dict):
                waiting += [(None, inner) for inner in cast(JSON, value).values()]


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
        self._send = send
        self._lock = asyncio.Lock()  # a ping may come while an event is sent
        self._is_ended = False

    async def read_json(self) -> Any:
        """Return the body. Raise RequestRejected if this request cannot contain a message."""
        check_accept(self.headers, JSON_TYPE, EVENT_STREAM)
        check_content_type(self.headers)
        body = await self._read_body()
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            message = f"The body is not valid JSON: {error}"
            raise RequestRejected(Refusal(400, message, code=PARSE_ERROR)) from error

    async def send_document(self, body: bytes, status: int = 200) -> None:
        self._is_ended = True  # a ping may come while the client reads slowly
        await send_answer(self._send, status, body, headers=self.answer_headers)

    async def send_events(self, events: bytes, *, is_last: bool = False) -> None:
        """Turn the answer into a stream, if necessary, and send these events."""
        async with self._lock:
            if self._is_ended:
                return
            if not self.is_stream:
                self.is_stream = True
                headers = [*EVENT_HEADERS, *self.answer_headers]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            self._is_ended = is_last
            await self._send({"type": "http.response.body", "body": events, "more_body": not is_last})

    async def ping(self) -> None:
        await self.send_events(PING_EVENT)

    async def _read_body(self) -> bytes:
        parts: list[bytes] = []
        size, has_more = 0, True
        while has_more:
            part = await self.receive()
            if part["type"] == "http.disconnect":
                raise RequestRejected(Refusal(400, "The body ended too soon."))
            parts.append(part.get("body", b""))
            size += len(parts[-1])
            if size > MAX_MESSAGE_BYTES:
                raise RequestRejected(Refusal(413, f"A message may have {MAX_MESSAGE_BYTES:,} bytes at most."))
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
