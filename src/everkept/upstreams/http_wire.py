"""HTTP with one server: each request is a separate exchange, and each failure is explained."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from enum import Enum, auto
from http import HTTPStatus
from itertools import count
from typing import Any, cast

import httpx2

from everkept import __version__
from everkept.core.mcp import GATEWAY_CLIENT, JSON, MAX_MESSAGE_BYTES
from everkept.core.sessions import Report
from everkept.core.text import format_count
from everkept.upstreams.http_target import VERSION_HEADER, HttpTarget, build_transport
from everkept.upstreams.link import METHOD_NOT_FOUND, UnreadableJson, UpstreamCall, encode_message, parse_message
from everkept.values import Value, replace

BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, NOT_ALLOWED, TOO_MANY_REQUESTS = (400, 401, 403, 404, 405, 429)
SEE_OTHER, SERVER_ERROR, NOT_IMPLEMENTED = 303, 500, 501
HTML_TYPE = "text/html"

# UnicodeError for a host name that cannot be looked up.
NETWORK_ERRORS = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, UnicodeError)
CHECK_URL_HINT = "Check its `url`: it must be the address of the MCP endpoint, including the path."
IS_RUNNING_HINT = "Check that the server is running and that the network allows the connection."


class FaultKind(Enum):
    UNREACHED = auto()  # nothing was sent
    EXPIRED = auto()  # refused without being read: the session is over
    BROKEN = auto()  # sent, but the connection ended before the answer was complete
    REFUSED = auto()  # answered: not executed
    UNCLEAR = auto()  # answered, but it is unclear whether it was executed
    UNREADABLE = auto()  # answered, but the answer cannot be passed on


class HttpFault(Value):
    """A failed request. `reason` is the end of a sentence about the server, without a period.

    `hint` and `may_pass` apply if the request itself changes nothing at the server.
    """

    kind: FaultKind
    reason: str
    hint: str | None = None
    status: int | None = None
    may_pass: bool = False  # the same request may work later

    @property
    def is_open(self) -> bool:
        """Whether the request may have taken effect."""
        return self.kind in (FaultKind.BROKEN, FaultKind.UNCLEAR)


class NoAnswer(Exception):
    """Raised if a request got no answer, or one that cannot be passed on."""

    def __init__(self, fault: HttpFault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


SESSION_EXPIRED = HttpFault(
    FaultKind.EXPIRED, "no longer knows our session", "Try again; the server still answers other calls.", may_pass=True
)


def explain_exception(error: Exception, place: str) -> HttpFault:
    """Explain a network failure. `place` is the address of the server."""
    if isinstance(error, httpx2.ProxyError):
        return _build_unreached(place, "the proxy refuses it", "Check HTTPS_PROXY and NO_PROXY.")
    if isinstance(error, httpx2.ConnectTimeout | httpx2.PoolTimeout):
        return _build_unreached(place, "it accepts no connection", IS_RUNNING_HINT, may_pass=True)
    if isinstance(error, httpx2.ConnectError):
        return _explain_connect_error(error, place)
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError | UnicodeError):
        return _build_unreached(place, "its address or headers cannot be sent", None)
    if isinstance(error, httpx2.TimeoutException):
        return _build_broken(f"stopped reading or writing at {place}")
    if isinstance(error, httpx2.DecodingError):
        return explain_unreadable("its compression is broken")
    return _build_broken(f"ended the connection at {place} before its answer was complete")


def explain_end(place: str) -> HttpFault:
    """Explain a stream that ended without an answer."""
    return _build_broken(f"ended its answer at {place} before it was complete")


def explain_unresumed(why: HttpFault) -> HttpFault:
    """Explain a stream that broke off and could not be resumed."""
    said = f"ended its answer before it was complete; when asked for the rest, it {why.reason}"
    return replace(_build_broken(said), status=why.status)


def _build_broken(reason: str) -> HttpFault:
    return HttpFault(FaultKind.BROKEN, reason, IS_RUNNING_HINT, may_pass=True)


def explain_unreadable(why: str) -> HttpFault:
    return HttpFault(FaultKind.UNREADABLE, f"sent an unreadable answer: {why}")


def explain_overlong(limit: int) -> HttpFault:
    return HttpFault(FaultKind.UNREADABLE, f"sent an answer of more than {format_count(limit, 'byte')}")


def _explain_connect_error(error: Exception, place: str) -> HttpFault:
    for cause in _walk_causes(error):
        match cause:
            case ssl.SSLCertVerificationError():
                why = getattr(cause, "verify_message", None) or "it cannot be verified"
                return _build_unreached(
                    place,
                    f"its certificate is not trusted ({why})",
                    "Set SSL_CERT_FILE to a file with the certificates that you trust.",
                )
            case ssl.SSLError():
                reason = getattr(cause, "reason", None) or "no reason is given"
                return _build_unreached(place, f"TLS failed ({reason})", "Check that the server speaks https there.")
            case socket.gaierror(errno=socket.EAI_AGAIN):
                why, hint = "its name cannot be looked up now", "Check the network connection."
                return _build_unreached(place, why, hint, may_pass=True)
            case socket.gaierror():
                return _build_unreached(place, "the host does not exist", "Check its `url`.")
            case ConnectionRefusedError():
                why = "the connection is refused"
                return _build_unreached(place, why, "Check that the server is running.", may_pass=True)
            case _:
                continue
    return _build_unreached(place, "the connection failed", IS_RUNNING_HINT, may_pass=True)


def _build_unreached(place: str, why: str, hint: str | None, *, may_pass: bool = False) -> HttpFault:
    reason = f"cannot be reached at {place}: {why}"
    return HttpFault(FaultKind.UNREACHED, reason, hint, may_pass=may_pass)


def _walk_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, its causes and contexts, and the members of groups."""
    waiting, seen = [error], set[int]()
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if isinstance(current, BaseExceptionGroup):
            waiting.extend(cast(BaseExceptionGroup[BaseException], current).exceptions)
        waiting.extend(linked for linked in (current.__cause__, current.__context__) if linked is not None)


def explain_status(status: int, place: str, content_type: str = "") -> HttpFault:
    """Explain an answer that is only an HTTP status, or a page for people."""
    hints = {
        UNAUTHORIZED: "Check the credentials in the `headers` of this server.",
        FORBIDDEN: "Check whether the credentials in the `headers` of this server allow this.",
        NOT_FOUND: CHECK_URL_HINT,
        NOT_ALLOWED: f"{CHECK_URL_HINT} The older HTTP+SSE is not supported.",
        NOT_IMPLEMENTED: CHECK_URL_HINT,
        TOO_MANY_REQUESTS: "Wait a while before the next call.",
    }
    reason = f"answered with {_format_status(status)} at {place}"
    if status >= SERVER_ERROR and status not in hints:
        return HttpFault(FaultKind.UNCLEAR, reason, "Try again later.", status, may_pass=True)
    hint = hints.get(status, CHECK_URL_HINT if content_type.startswith(HTML_TYPE) else None)
    return HttpFault(FaultKind.REFUSED, reason, hint, status, may_pass=status == TOO_MANY_REQUESTS)


def explain_redirect(status: int, location: str, place: str) -> HttpFault:
    return HttpFault(
        FaultKind.UNCLEAR if status == SEE_OTHER else FaultKind.REFUSED,
        f"redirects from {place} to {location} ({status}), which is not followed",
        "Set its `url` to that address if it is the right one.",
        status,
    )


def explain_content(content_type: str, place: str) -> HttpFault:
    """Explain an answer with a content type that no MCP server sends."""
    kind = content_type.partition(";")[0].strip() or "nothing"
    reason = f"answered with {kind} at {place}, which is not MCP"
    return HttpFault(FaultKind.UNCLEAR, reason, CHECK_URL_HINT)


def _format_status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


MAX_REFUSAL_BYTES = 64 * 1024  # of an error answer
NOTE_SECONDS = 2.0  # for messages that no call waits for, such as the end of a session
RESUME_BOUNDS_SECONDS = (0.1, 60.0)  # before a stream is resumed, whatever the server asks for
RESUME_PAUSE_SECONDS = 1.0  # if the server does not ask for one
MAX_RESUMES = 2  # failed attempts in a row
MAX_REDIRECTS = 20

ACCEPTED = 202
METHOD_KEEPING_REDIRECTS = (307, 308)
# About the caller, not about the request.
CALLER_STATUSES = UNAUTHORIZED, FORBIDDEN, TOO_MANY_REQUESTS
UNKNOWN_SESSION_CODES = (-32000, -32600)  # sent by servers that do not know the session
SESSION_HEADER = "mcp-session-id"
EVENT_STREAM_TYPE, JSON_TYPE = "text/event-stream", "application/json"

# It logs headers and addresses; our own errors have the relevant parts.
logging.getLogger("httpcore2").setLevel(logging.CRITICAL)


class PostCall(UpstreamCall, httpx2.AsyncByteStream):
    """One call over HTTP. It notes when its body is sent, because headers alone have no effect."""

    def __init__(
        self,
        call_id: int,
        method: str,
        params: Mapping[str, Any],
        headers: Mapping[str, str],
        report: Report | None = None,
    ) -> None:
        super().__init__(call_id, method, params, report)
        self.headers = headers
        self.status: int | None = None
        self.is_sent = False  # the server may have started on it
        self.settled = asyncio.Event()  # set once the outcome is known
        self.scope = asyncio.timeout(None)  # ends with the connection

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.is_sent = True
        yield self.body

    def correct_fault(self, fault: HttpFault) -> HttpFault:
        """Return the fault, but never treat a sent call as unsent, whatever the exception is."""
        is_sent = self.is_sent and fault.kind is FaultKind.UNREACHED
        return replace(fault, kind=FaultKind.BROKEN) if is_sent else fault


class HttpWire:
    """HTTP connection to one server.

    `handle` gets messages, and returns False for an answer. `watch` gets the reason why the server cannot send messages
    by itself, or None if it can. `start` runs work that no call waits for.
    """

    def __init__(
        self,
        target: HttpTarget,
        connect_seconds: float,
        handle: Callable[[JSON], bool],
        watch: Callable[[HttpFault | None], None],
        start: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self.session = ""
        self.version = ""  # in the handshake era
        self._shown = target.shown
        self._handle = handle
        self._watch = watch
        self._start = start
        self._url = httpx2.URL(target.url)
        self._headers = {
            "host": self._url.netloc.decode("ascii"),
            "user-agent": f"{GATEWAY_CLIENT}/{__version__}",
            "accept-encoding": "gzip, deflate",
            **{name.lower(): value for name, value in target.headers.items()},
            "accept": f"{JSON_TYPE}, {EVENT_STREAM_TYPE}",
            "content-type": JSON_TYPE,
        }
        # The caller decides how long to wait for an answer.
        self._extensions = {"timeout": {"connect": connect_seconds}}
        self._transport = build_transport(target)

    async def exchange(self, post: PostCall) -> JSON:
        """Send a call and return its answer. Raise NoAnswer if there is none."""
        request = self._build_request("POST", post.headers, post.body)
        request.stream = post
        try:
            response = await self._send_following(request)
            post.status = response.status_code
            if post.method == "initialize" and response.is_success:
                self.session = response.headers.get(SESSION_HEADER, "")
            if _has_events(response):
                return await self._read_streamed_answer(response, post)
            try:
                return await self._read_answer(response, post)
            finally:
                await response.aclose()
        except NETWORK_ERRORS as error:
            raise NoAnswer(post.correct_fault(explain_exception(error, self._shown))) from None
        except UnreadableJson as error:
            raise NoAnswer(explain_unreadable(str(error))) from None

    async def listen(self) -> None:
        """Read messages that the server sends by itself in a session, as long as the server allows it."""
        last, pause, failures = "", RESUME_PAUSE_SECONDS, 0
        while self.session and failures < MAX_RESUMES:
            try:
                response = await self._open_stream(last)
            except NoAnswer as failed:
                failures += 1
                is_absent = failed.fault.kind in (FaultKind.UNREACHED, FaultKind.BROKEN)
                is_expired = failed.fault.status == NOT_FOUND
                self._watch(SESSION_EXPIRED if is_expired else failed.fault if is_absent else None)
            else:
                failures = 0
                self._watch(None)
                try:
                    async for event in _read_events(response):
                        last, pause = event.id or last, _get_pause(event, pause)
                        with suppress(NoAnswer, UnreadableJson):
                            self._find_answer(event)
                except httpx2.SSEError:
                    return  # an event is too long, and would be sent again
                except NETWORK_ERRORS:
                    pass
                finally:
                    await response.aclose()
            await asyncio.sleep(pause)

    async def notify(self, message: JSON) -> None:
        """Send a message that has no answer."""
        await self._send_briefly(self._build_request("POST", {}, encode_message(message)))

    async def close(self) -> None:
        """End the session and close all connections."""
        try:
            if self.session:
                await self._send_briefly(self._build_request("DELETE", {}))
        finally:
            await self._transport.aclose()

    async def _read_answer(self, response: httpx2.Response, post: PostCall) -> JSON:
        if response.status_code >= BAD_REQUEST:
            return await self._read_refusal(response, post)
        kind = _get_content_type(response)
        if not kind.startswith(JSON_TYPE):
            raise NoAnswer(explain_content(kind, self._shown))
        # The id does not matter, because there is no other request that it could answer.
        return _check_answer(await _read_json(response, MAX_MESSAGE_BYTES))

    async def _read_refusal(self, response: httpx2.Response, post: PostCall) -> JSON:
        """Return the JSON-RPC message of an answer with an error status."""
        status, has_session = response.status_code, SESSION_HEADER in response.request.headers
        try:
            message = await _read_json(response, MAX_REFUSAL_BYTES)
        except (NoAnswer, UnreadableJson, *NETWORK_ERRORS):
            message = None
        error = cast(JSON, message).get("error") if isinstance(message, dict) else None
        if not isinstance(error, dict) or status in CALLER_STATUSES:
            is_expired = status == NOT_FOUND and has_session
            raise NoAnswer(
                SESSION_EXPIRED if is_expired else explain_status(status, self._shown, _get_content_type(response))
            )
        answer, code = cast(JSON, message), cast(JSON, error).get("code")
        is_unknown = status == NOT_FOUND and code != METHOD_NOT_FOUND
        is_unread = status == BAD_REQUEST and answer.get("id") is None and code in UNKNOWN_SESSION_CODES
        if has_session and is_unknown and answer.get("id") == post.id:
            # The server may have read the call, so the session is opened again without repeating the call.
            self._watch(SESSION_EXPIRED)
        elif has_session and (is_unknown or is_unread):
            raise NoAnswer(SESSION_EXPIRED)
        return answer

    async def _read_streamed_answer(self, response: httpx2.Response, post: PostCall) -> JSON:
        """Return the answer in a stream. Resume the stream if it breaks off and has event ids."""
        last, pause, answer = "", RESUME_PAUSE_SECONDS, None
        while True:
            events = _read_events(response)
            try:
                async for event in events:
                    last, pause = event.id or last, _get_pause(event, pause)
                    if (answer := self._find_answer(event)) is not None:
                        self._start(_read_to_end(response, events))
                        return answer
                fault = explain_end(self._shown)
            except httpx2.SSEError:
                raise NoAnswer(explain_overlong(MAX_MESSAGE_BYTES)) from None
            except NETWORK_ERRORS as error:
                fault = post.correct_fault(explain_exception(error, self._shown))
            finally:
                if answer is None:
                    await response.aclose()
            if not last:
                raise NoAnswer(fault)
            response = await self._resume_stream(last, pause)

    def _find_answer(self, event: httpx2.ServerSentEvent) -> JSON | None:
        if event.event != "message" or not event.data:
            return None
        message = parse_message(event.data)
        if isinstance(message, dict) and self._handle(cast(JSON, message)):
            return None
        return _check_answer(message)

    async def _resume_stream(self, last: str, pause: float) -> httpx2.Response:
        """Return the rest of a stream. The server had the call, so no failure here permits sending it again."""
        fault = SESSION_EXPIRED
        for _ in range(MAX_RESUMES):
            await asyncio.sleep(pause)
            try:
                return await self._open_stream(last)
            except NoAnswer as failed:
                fault = failed.fault
        raise NoAnswer(explain_unresumed(fault))

    async def _open_stream(self, last: str) -> httpx2.Response:
        """Open a stream of the events after the one with the id `last`."""
        request = self._build_request("GET", {"last-event-id": last} if last else {})
        try:
            response = await self._send_following(request)
        except NETWORK_ERRORS as error:
            raise NoAnswer(explain_exception(error, self._shown)) from None
        status, kind = response.status_code, _get_content_type(response)
        if _has_events(response):
            return response
        await response.aclose()
        is_status = status >= BAD_REQUEST
        raise NoAnswer(explain_status(status, self._shown) if is_status else explain_content(kind, self._shown))

    async def _send_briefly(self, request: httpx2.Request) -> None:
        with suppress(NoAnswer, *NETWORK_ERRORS):  # includes TimeoutError
            async with asyncio.timeout(NOTE_SECONDS):
                await (await self._send_following(request)).aclose()

    async def _send_following(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and follow redirects to the same server."""
        for moves in count():
            response = await self._transport.handle_async_request(request)
            response.request = request
            status = response.status_code
            if not 300 <= status < 400:
                return response
            await response.aclose()  # unread, because its body may never come
            moved = _find_redirect(request.url, response.headers.get("location"))
            keeps_method = request.method == "GET" or status in METHOD_KEEPING_REDIRECTS
            is_followed = keeps_method and moves < MAX_REDIRECTS
            if moved is None or not (is_followed and _is_same_server(request.url, moved)):
                raise NoAnswer(explain_redirect(status, _strip_secrets(moved), self._shown))
            if isinstance(request.stream, PostCall):
                request.stream.is_sent = False  # a server that redirects a call has not executed it
            request.url = moved
        raise AssertionError

    def _build_request(self, method: str, headers: Mapping[str, str], body: bytes = b"") -> httpx2.Request:
        whole = {**self._headers, **({"content-length": str(len(body))} if body else {})}
        if self.session:
            whole[SESSION_HEADER] = self.session
        if self.version:
            whole[VERSION_HEADER] = self.version
        return httpx2.Request(
            method,
            self._url,
            headers=httpx2.Headers({**whole, **headers}, encoding="utf-8"),
            stream=httpx2.ByteStream(body),
            extensions=self._extensions,
        )


async def _read_json(response: httpx2.Response, limit: int) -> Any:
    size, chunks = 0, list[bytes]()
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > limit:
            raise NoAnswer(explain_overlong(limit))
        chunks.append(chunk)
    return parse_message(b"".join(chunks))


def _check_answer(message: Any) -> JSON:
    if isinstance(message, dict) and ("result" in message or "error" in message):
        return cast(JSON, message)
    raise NoAnswer(explain_unreadable("it is not a JSON-RPC message"))


def _read_events(response: httpx2.Response) -> AsyncIterator[httpx2.ServerSentEvent]:
    return aiter(httpx2.EventSource(response, max_event_size=MAX_MESSAGE_BYTES))


async def _read_to_end(response: httpx2.Response, events: AsyncIterator[httpx2.ServerSentEvent]) -> None:
    """Wait for the server to end a stream after its answer, so that the next call can reuse the connection."""
    try:
        with suppress(*NETWORK_ERRORS):  # includes TimeoutError
            async with asyncio.timeout(NOTE_SECONDS):
                async for _ in events:
                    pass
    finally:
        await response.aclose()


def _has_events(response: httpx2.Response) -> bool:
    return response.is_success and _get_content_type(response).startswith(EVENT_STREAM_TYPE)


def _get_content_type(response: httpx2.Response) -> str:
    """Return the content type, or "" if the server only accepted the request."""
    is_empty = response.status_code == ACCEPTED
    return "" if is_empty else response.headers.get("content-type", "").lower()


def _get_pause(event: httpx2.ServerSentEvent, pause: float) -> float:
    """Return the seconds that the server asks for, within bounds."""
    if event.retry is None:
        return pause
    least, most = RESUME_BOUNDS_SECONDS
    return max(least, min(event.retry, most * 1000) / 1000)


def _find_redirect(here: httpx2.URL, location: str | None) -> httpx2.URL | None:
    try:
        return None if location is None else here.join(location)
    except httpx2.InvalidURL:
        return None


def _is_same_server(here: httpx2.URL, there: httpx2.URL) -> bool:
    """Return whether both URLs have the same host and port, or differ only by an upgrade to TLS."""
    if there.userinfo or there.host != here.host:
        return False
    is_upgrade = (here.scheme, there.scheme, here.port, there.port) == ("http", "https", None, None)
    return is_upgrade or (there.scheme, there.port) == (here.scheme, here.port)


def _strip_secrets(url: httpx2.URL | None) -> str:
    if url is None:
        return "an invalid address"
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))
