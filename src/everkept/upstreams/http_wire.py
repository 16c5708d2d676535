"""HTTP with one server: each request is an exchange by itself, and its failure is told in words."""

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
from everkept.core.mcp import GATEWAY_CLIENT, JSON, MESSAGE_LIMIT
from everkept.core.sessions import Report
from everkept.upstreams.http_target import VERSION, Target, transport_to
from everkept.upstreams.link import METHOD_NOT_FOUND, Call, Unreadable, read, written
from everkept.values import Value, replace

BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, NOT_ALLOWED, BUSY = 400, 401, 403, 404, 405, 429
SEE_OTHER, FAILED, NOT_IMPLEMENTED = 303, 500, 501
PAGE = "text/html"

# UnicodeError: a host whose name cannot be looked up.
FAILURES = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, UnicodeError)
CHECK_URL = "Check its `url`: it must be the address of the MCP endpoint, path included."
IS_RUNNING = "Is it running, and the way to it open?"


class Kind(Enum):
    UNREACHED = auto()  # nothing was sent
    EXPIRED = auto()  # it was refused unread: the session is over
    BROKEN = auto()  # it was sent, and the connection ended before the answer did
    REFUSED = auto()  # answered: it was not done
    UNCLEAR = auto()  # answered, with what does not tell whether it was done
    UNREADABLE = auto()  # answered, with what cannot be passed on


class Fault(Value):
    """`reason` is the end of a sentence about the server, without a full stop. `hint` and
    `may_pass` hold where the request itself changes nothing there."""

    kind: Kind
    reason: str
    hint: str | None = None
    status: int | None = None
    may_pass: bool = False  # of itself: the same may work later

    @property
    def is_open(self) -> bool:
        """Whether the request may have had its effect."""
        return self.kind in (Kind.BROKEN, Kind.UNCLEAR)


class NoAnswer(Exception):
    """No answer came to a request, or one that cannot be passed on."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


EXPIRED = Fault(
    Kind.EXPIRED,
    "no longer knows our session",
    "It answers other calls: try this one again.",
    may_pass=True,
)


def of_exception(error: Exception, place: str) -> Fault:
    """What a failure of the network means; `place` is where the server should be."""
    if isinstance(error, httpx2.ProxyError):
        return _unreached(place, "the proxy refuses it", "HTTPS_PROXY and NO_PROXY say which.")
    if isinstance(error, httpx2.ConnectTimeout | httpx2.PoolTimeout):
        return _unreached(place, "it accepts no connection", IS_RUNNING, may_pass=True)
    if isinstance(error, httpx2.ConnectError):
        return _of_connecting(error, place)
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError | UnicodeError):
        return _unreached(place, "its address or headers cannot be sent", None)
    if isinstance(error, httpx2.TimeoutException):
        return _broken(f"stopped reading or writing at {place}")
    if isinstance(error, httpx2.DecodingError):
        return unreadable("its compression is broken")
    return _broken(f"ended the connection at {place} before its answer was complete")


def of_end(place: str) -> Fault:
    """A stream that has no answer in it."""
    return _broken(f"ended its answer at {place} before it was complete")


def not_resumed(why: Fault) -> Fault:
    """A stream that broke off, and whose rest cannot be had."""
    said = f"ended its answer before it was complete; asked for the rest, it {why.reason}"
    return replace(_broken(said), status=why.status)


def _broken(reason: str) -> Fault:
    return Fault(Kind.BROKEN, reason, IS_RUNNING, may_pass=True)


def unreadable(why: str) -> Fault:
    return Fault(Kind.UNREADABLE, f"gave an answer that cannot be read: {why}")


def overlong(limit: int) -> Fault:
    return Fault(Kind.UNREADABLE, f"gave an answer of more than {limit:,} bytes")


def _of_connecting(error: Exception, place: str) -> Fault:
    for cause in _causes(error):
        match cause:
            case ssl.SSLCertVerificationError():
                why = getattr(cause, "verify_message", None) or "it cannot be verified"
                return _unreached(
                    place,
                    f"its certificate is not trusted ({why})",
                    "SSL_CERT_FILE may name a file with the certificates that you trust.",
                )
            case ssl.SSLError():
                reason = getattr(cause, "reason", None) or "no reason is given"
                return _unreached(place, f"TLS failed ({reason})", "Does it speak https there?")
            case socket.gaierror(errno=socket.EAI_AGAIN):
                why, hint = "its name cannot be looked up now", "Is there a network?"
                return _unreached(place, why, hint, may_pass=True)
            case socket.gaierror():
                return _unreached(place, "there is no such host", "Check its `url`.")
            case ConnectionRefusedError():
                why = "the connection is refused"
                return _unreached(place, why, "Is it running?", may_pass=True)
            case _:
                continue
    return _unreached(place, "no connection comes about", IS_RUNNING, may_pass=True)


def _unreached(place: str, why: str, hint: str | None, *, may_pass: bool = False) -> Fault:
    reason = f"cannot be reached at {place}: {why}"
    return Fault(Kind.UNREACHED, reason, hint, may_pass=may_pass)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """All that led to it: causes, contexts and the members of groups."""
    waiting, seen = [error], set[int]()
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if isinstance(current, BaseExceptionGroup):
            waiting.extend(cast(BaseExceptionGroup[BaseException], current).exceptions)
        waiting.extend(
            linked for linked in (current.__cause__, current.__context__) if linked is not None
        )


def of_status(status: int, place: str, content_type: str = "") -> Fault:
    """An answer that is an HTTP status alone, or a page for people."""
    hints = {
        UNAUTHORIZED: "Check the `headers` of this server: it wants other credentials.",
        FORBIDDEN: "Check the `headers` of this server: these may not do that.",
        NOT_FOUND: CHECK_URL,
        NOT_ALLOWED: f"{CHECK_URL} The older HTTP+SSE is not supported.",
        NOT_IMPLEMENTED: CHECK_URL,
        BUSY: "It wants fewer calls: wait a while.",
    }
    reason = f"answered with {_named(status)} at {place}"
    if status >= FAILED and status not in hints:
        later = "It is in trouble itself: try again later."
        return Fault(Kind.UNCLEAR, reason, later, status, may_pass=True)
    hint = hints.get(status, CHECK_URL if content_type.startswith(PAGE) else None)
    return Fault(Kind.REFUSED, reason, hint, status, may_pass=status == BUSY)


def of_redirect(status: int, location: str, place: str) -> Fault:
    return Fault(
        Kind.UNCLEAR if status == SEE_OTHER else Kind.REFUSED,
        f"sends us from {place} to {location} ({status}), which is not followed",
        "Give that address as its `url` if it is the right one.",
        status,
    )


def of_content(content_type: str, place: str) -> Fault:
    """An answer of a kind that no MCP server gives."""
    kind = content_type.partition(";")[0].strip() or "nothing"
    reason = f"answered with {kind} at {place}, which is no MCP"
    return Fault(Kind.UNCLEAR, reason, CHECK_URL)


def _named(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


REFUSAL_LIMIT = 64 * 1024  # bytes of an answer that is an error
NOTE_SECONDS = 2.0  # for what no call waits for, such as a farewell
RESUME_SECONDS = (0.1, 60.0)  # before a stream is resumed, whatever the server wishes
RESUME_PAUSE = 1.0  # seconds, if the server has no wish
MAX_RESUMES = 2  # in vain, one after the other
MAX_REDIRECTS = 20

ACCEPTED = 202
KEEPS_METHOD = (307, 308)
OF_US = (UNAUTHORIZED, FORBIDDEN, BUSY)  # about who asks, not about the question
UNREAD = (-32000, -32600)  # codes of servers that refuse a session they do not know
SESSION = "mcp-session-id"
EVENTS, PLAIN = "text/event-stream", "application/json"

# It logs headers and addresses; our own errors have what matters of them.
logging.getLogger("httpcore2").setLevel(logging.CRITICAL)


class Post(Call, httpx2.AsyncByteStream):
    """One call over HTTP, which notes when its body is sent: headers alone have no effect."""

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
        self.is_sent = False  # the server may have begun with it
        self.settled = asyncio.Event()  # set once it is known what became of it
        self.scope = asyncio.timeout(None)  # ends with the connection

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.is_sent = True
        yield self.body

    def fault_of(self, fault: Fault) -> Fault:
        """Never take what has been sent as unsent, whatever an exception is called."""
        is_sent = self.is_sent and fault.kind is Kind.UNREACHED
        return replace(fault, kind=Kind.BROKEN) if is_sent else fault


class Wire:
    """The way to one server. `handle` gets messages, and returns False for an answer; `watch` gets
    why the server cannot say anything by itself, or None if it can; `start` does what no call
    waits for."""

    def __init__(
        self,
        target: Target,
        connect_seconds: float,
        handle: Callable[[JSON], bool],
        watch: Callable[[Fault | None], None],
        start: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self.session = ""
        self.version = ""  # of the handshake era
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
            "accept": f"{PLAIN}, {EVENTS}",
            "content-type": PLAIN,
        }
        # The caller knows how long to wait for an answer.
        self._extensions = {"timeout": {"connect": connect_seconds}}
        self._transport = transport_to(target)

    async def exchange(self, post: Post) -> JSON:
        """Send a call, and return the message that answers it; raise NoAnswer if none does."""
        request = self._request("POST", post.headers, post.body)
        request.stream = post
        try:
            response = await self._followed(request)
            post.status = response.status_code
            if post.method == "initialize" and response.is_success:
                self.session = response.headers.get(SESSION, "")
            if _has_events(response):
                return await self._streamed(response, post)
            try:
                return await self._answer(response, post)
            finally:
                await response.aclose()
        except FAILURES as error:
            raise NoAnswer(post.fault_of(of_exception(error, self._shown))) from None
        except Unreadable as error:
            raise NoAnswer(unreadable(str(error))) from None

    async def hear(self) -> None:
        """Read what the server says by itself in a session, as long as the server lets us."""
        last, pause, failures = "", RESUME_PAUSE, 0
        while self.session and failures < MAX_RESUMES:
            try:
                response = await self._stream(last)
            except NoAnswer as failed:
                failures += 1
                is_absent = failed.fault.kind in (Kind.UNREACHED, Kind.BROKEN)
                is_expired = failed.fault.status == NOT_FOUND
                self._watch(EXPIRED if is_expired else failed.fault if is_absent else None)
            else:
                failures = 0
                self._watch(None)
                try:
                    async for event in _events(response):
                        last, pause = event.id or last, _pause(event, pause)
                        with suppress(NoAnswer, Unreadable):
                            self._answer_in(event)
                except httpx2.SSEError:
                    return  # an event is too long, and would come again
                except FAILURES:
                    pass
                finally:
                    await response.aclose()
            await asyncio.sleep(pause)

    async def note(self, message: JSON) -> None:
        """Send what has no answer."""
        await self._send_briefly(self._request("POST", {}, written(message)))

    async def close(self) -> None:
        """Take leave of the server."""
        try:
            if self.session:
                await self._send_briefly(self._request("DELETE", {}))
        finally:
            await self._transport.aclose()

    async def _answer(self, response: httpx2.Response, post: Post) -> JSON:
        if response.status_code >= BAD_REQUEST:
            return await self._refusal(response, post)
        kind = _kind(response)
        if not kind.startswith(PLAIN):
            raise NoAnswer(of_content(kind, self._shown))
        # Whatever id the server wrote: there is no other request that it could answer.
        return _answering(await _read(response, MESSAGE_LIMIT))

    async def _refusal(self, response: httpx2.Response, post: Post) -> JSON:
        """Return what the server says in JSON-RPC with a status that is an error."""
        status, has_session = response.status_code, SESSION in response.request.headers
        try:
            message = await _read(response, REFUSAL_LIMIT)
        except (NoAnswer, Unreadable, *FAILURES):
            message = None
        error = cast(JSON, message).get("error") if isinstance(message, dict) else None
        if not isinstance(error, dict) or status in OF_US:
            is_expired = status == NOT_FOUND and has_session
            raise NoAnswer(
                EXPIRED if is_expired else of_status(status, self._shown, _kind(response))
            )
        answer, code = cast(JSON, message), cast(JSON, error).get("code")
        is_unknown = status == NOT_FOUND and code != METHOD_NOT_FOUND
        is_unread = status == BAD_REQUEST and answer.get("id") is None and code in UNREAD
        if has_session and is_unknown and answer.get("id") == post.id:
            # It may have read the call: the session is opened again, and the call not sent again.
            self._watch(EXPIRED)
        elif has_session and (is_unknown or is_unread):
            raise NoAnswer(EXPIRED)
        return answer

    async def _streamed(self, response: httpx2.Response, post: Post) -> JSON:
        """Return the answer in a stream, which is resumed if it breaks off and says from where."""
        last, pause, answer = "", RESUME_PAUSE, None
        while True:
            events = _events(response)
            try:
                async for event in events:
                    last, pause = event.id or last, _pause(event, pause)
                    if (answer := self._answer_in(event)) is not None:
                        self._start(_read_to_end(response, events))
                        return answer
                fault = of_end(self._shown)
            except httpx2.SSEError:
                raise NoAnswer(overlong(MESSAGE_LIMIT)) from None
            except FAILURES as error:
                fault = post.fault_of(of_exception(error, self._shown))
            finally:
                if answer is None:
                    await response.aclose()
            if not last:
                raise NoAnswer(fault)
            response = await self._resumed(last, pause)

    def _answer_in(self, event: httpx2.ServerSentEvent) -> JSON | None:
        if event.event != "message" or not event.data:
            return None
        message = read(event.data)
        if isinstance(message, dict) and self._handle(cast(JSON, message)):
            return None
        return _answering(message)

    async def _resumed(self, last: str, pause: float) -> httpx2.Response:
        """Return the rest of a stream. The server had the call, so nothing that it answers here
        is about that, and nothing means that the call may be sent again."""
        fault = EXPIRED
        for _ in range(MAX_RESUMES):
            await asyncio.sleep(pause)
            try:
                return await self._stream(last)
            except NoAnswer as failed:
                fault = failed.fault
        raise NoAnswer(not_resumed(fault))

    async def _stream(self, last: str) -> httpx2.Response:
        """Return a stream of events, those after the one with the id `last`."""
        request = self._request("GET", {"last-event-id": last} if last else {})
        try:
            response = await self._followed(request)
        except FAILURES as error:
            raise NoAnswer(of_exception(error, self._shown)) from None
        status, kind = response.status_code, _kind(response)
        if _has_events(response):
            return response
        await response.aclose()
        is_status = status >= BAD_REQUEST
        raise NoAnswer(
            of_status(status, self._shown) if is_status else of_content(kind, self._shown)
        )

    async def _send_briefly(self, request: httpx2.Request) -> None:
        with suppress(NoAnswer, *FAILURES):  # TimeoutError among them
            async with asyncio.timeout(NOTE_SECONDS):
                await (await self._followed(request)).aclose()

    async def _followed(self, request: httpx2.Request) -> httpx2.Response:
        """Send it, and again if the server moves it to another place of its own."""
        for moves in count():
            response = await self._transport.handle_async_request(request)
            response.request = request
            status = response.status_code
            if not 300 <= status < 400:
                return response
            await response.aclose()  # unread: its body may never come
            moved = _moved(request.url, response.headers.get("location"))
            keeps_method = request.method == "GET" or status in KEEPS_METHOD
            is_followed = keeps_method and moves < MAX_REDIRECTS
            if moved is None or not (is_followed and _is_same_server(request.url, moved)):
                raise NoAnswer(of_redirect(status, _without_secrets(moved), self._shown))
            if isinstance(request.stream, Post):
                request.stream.is_sent = False  # a server that moves a call has not done it
            request.url = moved
        raise AssertionError

    def _request(
        self, method: str, headers: Mapping[str, str], body: bytes = b""
    ) -> httpx2.Request:
        whole = {**self._headers, **({"content-length": str(len(body))} if body else {})}
        if self.session:
            whole[SESSION] = self.session
        if self.version:
            whole[VERSION] = self.version
        return httpx2.Request(
            method,
            self._url,
            headers=httpx2.Headers({**whole, **headers}, encoding="utf-8"),
            stream=httpx2.ByteStream(body),
            extensions=self._extensions,
        )


async def _read(response: httpx2.Response, limit: int) -> Any:
    size, chunks = 0, list[bytes]()
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > limit:
            raise NoAnswer(overlong(limit))
        chunks.append(chunk)
    return read(b"".join(chunks))


def _answering(message: Any) -> JSON:
    if isinstance(message, dict) and ("result" in message or "error" in message):
        return cast(JSON, message)
    raise NoAnswer(unreadable("it is no message of JSON-RPC"))


def _events(response: httpx2.Response) -> AsyncIterator[httpx2.ServerSentEvent]:
    return aiter(httpx2.EventSource(response, max_event_size=MESSAGE_LIMIT))


async def _read_to_end(
    response: httpx2.Response, events: AsyncIterator[httpx2.ServerSentEvent]
) -> None:
    """Let the server end a stream after its answer: the next call can use the connection."""
    try:
        with suppress(*FAILURES):  # TimeoutError among them
            async with asyncio.timeout(NOTE_SECONDS):
                async for _ in events:
                    pass
    finally:
        await response.aclose()


def _has_events(response: httpx2.Response) -> bool:
    return response.is_success and _kind(response).startswith(EVENTS)


def _kind(response: httpx2.Response) -> str:
    """Return what the body is; nothing if the server only accepted the request."""
    is_empty = response.status_code == ACCEPTED
    return "" if is_empty else response.headers.get("content-type", "").lower()


def _pause(event: httpx2.ServerSentEvent, pause: float) -> float:
    """Return the seconds that the server wishes for, within bounds."""
    if event.retry is None:
        return pause
    least, most = RESUME_SECONDS
    return max(least, min(event.retry, most * 1000) / 1000)


def _moved(here: httpx2.URL, location: str | None) -> httpx2.URL | None:
    try:
        return None if location is None else here.join(location)
    except httpx2.InvalidURL:
        return None


def _is_same_server(here: httpx2.URL, there: httpx2.URL) -> bool:
    """Also if it is the same host with TLS."""
    if there.userinfo or there.host != here.host:
        return False
    is_upgrade = (here.scheme, there.scheme, here.port, there.port) == ("http", "https", None, None)
    return is_upgrade or (there.scheme, there.port) == (here.scheme, here.port)


def _without_secrets(url: httpx2.URL | None) -> str:
    if url is None:
        return "an address that is none"
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))
