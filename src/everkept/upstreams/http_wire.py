"""HTTP with one server: each request is an exchange by itself, and so is its failure."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any, cast

import httpx2

from everkept import __version__
from everkept.core.protocol import MESSAGE_LIMIT
from everkept.core.sessions import Report
from everkept.core.upstreams import GATEWAY_CLIENT, JSON
from everkept.upstreams.http_faults import (
    BAD_REQUEST,
    BUSY,
    EXPIRED,
    FAILURES,
    FORBIDDEN,
    NOT_FOUND,
    UNAUTHORIZED,
    Fault,
    Kind,
    NoAnswer,
    not_resumed,
    of_content,
    of_end,
    of_exception,
    of_redirect,
    of_status,
    overlong,
    unreadable,
)
from everkept.upstreams.http_target import VERSION, Target, transport_to
from everkept.upstreams.rpc import METHOD_NOT_FOUND, Call, Unreadable, read, written
from everkept.values import replace

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

    def failed(self, fault: Fault) -> NoAnswer:
        """Never take what has been sent as unsent, whatever an exception is called."""
        is_sent = self.is_sent and fault.kind is Kind.UNREACHED
        return NoAnswer(replace(fault, kind=Kind.BROKEN) if is_sent else fault)


class Wire:
    """The way to one server. `handle` gets messages, and returns False for an answer; `watch` is
    told why the server cannot say anything by itself, or None if it can."""

    def __init__(
        self,
        target: Target,
        connect_seconds: float,
        handle: Callable[[JSON], bool],
        watch: Callable[[Fault | None], None],
    ) -> None:
        self.session = ""
        self.version = ""  # of the handshake era
        self._shown = target.shown
        self._handle = handle
        self._watch = watch
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
        response = await self._sent(post)
        try:
            post.status = status = response.status_code
            if status >= BAD_REQUEST:
                return await self._refusal(response, post)
            if post.method == "initialize":
                self.session = response.headers.get(SESSION, "")
            kind = _kind(response) if status != ACCEPTED else ""
            if kind.startswith(EVENTS):
                return await self._streamed(response, post)
            if kind.startswith(PLAIN):
                # Whatever id the server wrote: there is no other request that it could answer.
                return _answer(await self._message(response, post, MESSAGE_LIMIT))
            raise NoAnswer(of_content(kind, self._shown))
        finally:
            await response.aclose()

    async def hear(self) -> None:
        """Read what the server says by itself in a session, as long as the server lets us."""
        last, pause, failures = "", RESUME_PAUSE, 0
        while self.session and failures < MAX_RESUMES:
            failures += 1
            try:
                response = await self._followed(self._request("GET", _resuming(last)))
            except FAILURES as error:
                self._watch(of_exception(error, self._shown))
            except NoAnswer:
                return  # it is elsewhere
            else:
                self._watch(EXPIRED if response.status_code == NOT_FOUND else None)
                if _has_events(response):
                    failures = 0
                try:
                    async for event in _events(response):
                        last, pause = event.id or last, _pause(event, pause)
                        with suppress(NoAnswer):
                            self._answer_in(event)
                except httpx2.SSEError:
                    failures += 1  # it is not a stream, or has an event that is too long
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

    async def _sent(self, post: Post) -> httpx2.Response:
        request = self._request("POST", post.headers, post.body)
        request.stream = post
        try:
            return await self._followed(request)
        except FAILURES as error:
            raise post.failed(of_exception(error, self._shown)) from None

    async def _refusal(self, response: httpx2.Response, post: Post) -> JSON:
        """Return what the server says in JSON-RPC with a status that is an error."""
        status, has_session = response.status_code, SESSION in response.request.headers
        try:
            message = await self._message(response, post, REFUSAL_LIMIT)
        except NoAnswer:
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

    async def _message(self, response: httpx2.Response, post: Post, limit: int) -> Any:
        size, chunks = 0, list[bytes]()
        try:
            async for chunk in response.aiter_bytes():
                size += len(chunk)
                if size > limit:
                    raise NoAnswer(overlong(limit))
                chunks.append(chunk)
            return read(b"".join(chunks))
        except FAILURES as error:
            raise post.failed(of_exception(error, self._shown)) from None
        except Unreadable as error:
            raise NoAnswer(unreadable(str(error))) from None

    async def _streamed(self, response: httpx2.Response, post: Post) -> JSON:
        """Return the answer in a stream, which is resumed if it breaks off and says from where."""
        last, pause = "", RESUME_PAUSE
        while True:
            try:
                async for event in _events(response):
                    last, pause = event.id or last, _pause(event, pause)
                    if (answer := self._answer_in(event)) is not None:
                        return answer
                fault = of_end(self._shown)
            except httpx2.SSEError:
                raise NoAnswer(overlong(MESSAGE_LIMIT)) from None
            except FAILURES as error:
                fault = post.failed(of_exception(error, self._shown)).fault
            finally:
                await response.aclose()
            if not last:
                raise NoAnswer(fault)
            response = await self._resumed(post, last, pause)

    def _answer_in(self, event: httpx2.ServerSentEvent) -> JSON | None:
        if event.event != "message" or not event.data:
            return None
        try:
            message = read(event.data)
        except Unreadable as error:
            raise NoAnswer(unreadable(str(error))) from None
        if isinstance(message, dict) and self._handle(cast(JSON, message)):
            return None
        return _answer(message)

    async def _resumed(self, post: Post, last: str, pause: float) -> httpx2.Response:
        """Return the rest of a stream. The server had the call, so nothing that it answers here
        is about that, and nothing means that the call may be sent again."""
        fault = of_end(self._shown)
        for _ in range(MAX_RESUMES):
            await asyncio.sleep(pause)
            try:
                response = await self._followed(self._request("GET", _resuming(last)))
            except FAILURES as error:
                fault = of_exception(error, self._shown)
                continue
            except NoAnswer as failed:
                fault = failed.fault
                continue
            post.status = status = response.status_code
            if _has_events(response):
                return response
            await response.aclose()
            is_said = status >= BAD_REQUEST
            kind = _kind(response)
            fault = of_status(status, self._shown) if is_said else of_content(kind, self._shown)
        raise NoAnswer(not_resumed(fault))

    async def _send_briefly(self, request: httpx2.Request) -> None:
        with suppress(NoAnswer, *FAILURES):  # TimeoutError among them
            async with asyncio.timeout(NOTE_SECONDS):
                await (await self._followed(request)).aclose()

    async def _followed(self, request: httpx2.Request) -> httpx2.Response:
        """Send it, and again if the server moves it to another place of its own."""
        for _ in range(MAX_REDIRECTS):
            response = await self._transport.handle_async_request(request)
            response.request = request
            if not 300 <= response.status_code < 400:
                return response
            await response.aclose()  # unread: its body may never come
            if (moved := _moved(request, response)) is None:
                break
            if isinstance(request.stream, Post):
                request.stream.is_sent = False  # who sends it elsewhere has done nothing with it
            request = moved
        status = response.status_code
        raise NoAnswer(of_redirect(status, _location(request, response), self._shown))

    def _request(
        self, method: str, headers: Mapping[str, str], body: bytes = b""
    ) -> httpx2.Request:
        whole = {**self._headers, "content-length": str(len(body))}
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


def _answer(message: Any) -> JSON:
    if isinstance(message, dict) and ("result" in message or "error" in message):
        return cast(JSON, message)
    raise NoAnswer(unreadable("it is no message of JSON-RPC"))


def _events(response: httpx2.Response) -> AsyncIterator[httpx2.ServerSentEvent]:
    return aiter(httpx2.EventSource(response, max_event_size=MESSAGE_LIMIT))


def _has_events(response: httpx2.Response) -> bool:
    return response.is_success and _kind(response).startswith(EVENTS)


def _kind(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").lower()


def _resuming(last: str) -> dict[str, str]:
    return {"last-event-id": last} if last else {}


def _pause(event: httpx2.ServerSentEvent, pause: float) -> float:
    """Return the seconds that the server wishes for, within bounds."""
    if event.retry is None:
        return pause
    least, most = RESUME_SECONDS
    return max(least, min(event.retry, most * 1000) / 1000)


def _location(request: httpx2.Request, response: httpx2.Response) -> str:
    """Where a redirect leads, without what may be secret in it."""
    url = _next(request, response)
    if url is None:
        return "an address that is none"
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


def _moved(request: httpx2.Request, response: httpx2.Response) -> httpx2.Request | None:
    """Return the same request for the place that a redirect names, if it is on the same server,
    or the same host with TLS."""
    keeps_method = request.method == "GET" or response.status_code in KEEPS_METHOD
    here, there = request.url, _next(request, response)
    if there is None or there.userinfo or not keeps_method:
        return None
    is_here = (there.scheme, there.host, there.port) == (here.scheme, here.host, here.port)
    upgrade = ("http", "https", here.host, None, None)
    is_upgrade = (here.scheme, there.scheme, there.host, here.port, there.port) == upgrade
    if not (is_here or is_upgrade):
        return None
    return httpx2.Request(
        request.method,
        there,
        headers=request.headers,
        stream=request.stream,
        extensions=request.extensions,
    )


def _next(request: httpx2.Request, response: httpx2.Response) -> httpx2.URL | None:
    try:
        return request.url.join(response.headers["location"])
    except (KeyError, httpx2.InvalidURL):
        return None
