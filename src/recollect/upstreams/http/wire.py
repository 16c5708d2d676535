"""The HTTP below the SDK: failures stay with the request they belong to, and are remembered.

The SDK ends the whole connection, and every call on it, when one exchange fails in a way that it
does not expect. So nothing is raised through it: an exchange that fails is an empty answer to the
SDK, and the reason is kept for whoever sent the request.
"""

import json
import ssl
from collections.abc import AsyncIterator, Callable
from typing import cast

import httpx2
from anyio.abc import TaskGroup

from recollect.core.upstreams import JSON
from recollect.errors import UpstreamUnavailable
from recollect.upstreams.http.faults import (
    BUSY,
    EXPIRED,
    FORBIDDEN,
    NOT_FOUND,
    UNAUTHORIZED,
    Fault,
    Kind,
    of_content,
    of_exception,
    of_redirect,
    of_status,
)
from recollect.upstreams.http.places import Target
from recollect.upstreams.http.posts import Post, current_post

MESSAGE_LIMIT = 16 * 1024 * 1024  # bytes
REFUSAL_LIMIT = 64 * 1024  # bytes of an answer that is an error
IDLE = 3.0  # seconds; servers close a connection after 5, and it must not be used just then
NOTE_PATIENCE = 2.0  # seconds for what nobody waits for, a farewell among it

ACCEPTED, BAD_REQUEST = 202, 400
OF_US = (UNAUTHORIZED, FORBIDDEN, BUSY)  # who asks, and not what is asked
UNAVAILABLE = 503  # what the SDK is told in place of an exception
METHOD_NOT_FOUND = -32601
UNREAD = (-32000, -32600)  # codes of servers that refuse a session they do not know
SESSION = "mcp-session-id"
EVENTS, PLAIN = "text/event-stream", "application/json"

Lost = Callable[[Fault], None]

_FAILURES = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError)


class Wire(httpx2.AsyncBaseTransport):
    """The way to one server. `lost` is told when it turns out to be gone while nobody asks."""

    def __init__(self, target: Target, lost: Lost) -> None:
        self._shown = target.shown
        self._lost = lost
        self._inner = httpx2.AsyncHTTPTransport(
            verify=_trusted(target),
            proxy=_proxy(target),
            # No most: a call must not wait until another one ends.
            limits=httpx2.Limits(
                max_connections=None, max_keepalive_connections=20, keepalive_expiry=IDLE
            ),
            trust_env=False,
        )
        self.tasks: TaskGroup | None = None  # given once the greeting is over

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        post = current_post.get()
        if post is not None and post.takes(request):
            return await self._exchange(request, post)
        if request.method == "GET":
            return await self._wait_for_notices(request)
        if request.method == "POST" and self.tasks is not None:
            # The SDK sends one note after the other, and requests only then: a server that is
            # slow to take one must not hold up calls.
            self.tasks.start_soon(self._send_note, request)
            return httpx2.Response(ACCEPTED)
        return await self._send_briefly(request)

    async def _exchange(self, request: httpx2.Request, post: Post) -> httpx2.Response:
        try:
            response = await post.step(lambda: self._inner.handle_async_request(request))
        except _FAILURES as error:
            post.fault = of_exception(error, self._shown)
            return httpx2.Response(UNAVAILABLE)
        post.status = response.status_code
        if 300 <= post.status < 400:
            post.fault = of_redirect(post.status, _location(request, response), self._shown)
            return response
        post.fault = None
        if post.status >= 400:
            return await self._refused(request, response, post)
        kind = response.headers.get("content-type", "").lower()
        if post.status != ACCEPTED and kind.startswith(EVENTS):
            return _replaced(response, stream=_Events(response, post, self._shown))
        if post.status != ACCEPTED and kind.startswith(PLAIN):
            return await self._plain(request, response, post)
        post.fault = of_content("" if post.status == ACCEPTED else kind, self._shown)
        await response.aclose()
        return httpx2.Response(UNAVAILABLE)

    async def _refused(
        self, request: httpx2.Request, response: httpx2.Response, post: Post
    ) -> httpx2.Response:
        """A status that is an error: passed on where the server says more in JSON-RPC."""
        status = response.status_code
        message = _message(await self._body(request, response, post, REFUSAL_LIMIT))
        has_session = SESSION in request.headers
        error = message.get("error") if message is not None else None
        if message is None or not isinstance(error, dict) or status in OF_US:
            is_expired = status == NOT_FOUND and has_session
            post.fault = EXPIRED if is_expired else of_status(status, self._shown)
            return httpx2.Response(UNAVAILABLE)
        code = cast(JSON, error).get("code")
        is_unknown = status == NOT_FOUND and code != METHOD_NOT_FOUND
        is_unread = status == BAD_REQUEST and message.get("id") is None and code in UNREAD
        post.fault = EXPIRED if has_session and (is_unknown or is_unread) else None
        return _json(response, message | {"id": post.request_id})

    async def _plain(
        self, request: httpx2.Request, response: httpx2.Response, post: Post
    ) -> httpx2.Response:
        """An answer that is a single message. Its id is ours whatever the server wrote: there is
        no other request that it could answer."""
        body = await self._body(request, response, post, MESSAGE_LIMIT)
        message = _message(body)
        if message is None or not ("result" in message or "error" in message):
            if post.fault is None:
                post.fault = Fault(Kind.REFUSED, f"sent no JSON-RPC message from {self._shown}")
            return httpx2.Response(UNAVAILABLE)
        if message.get("id") != post.request_id:
            return _json(response, message | {"id": post.request_id})
        return httpx2.Response(response.status_code, headers=_headers(response), content=body)

    async def _body(
        self, request: httpx2.Request, response: httpx2.Response, post: Post, limit: int
    ) -> bytes:
        """All of it, unpacked; what is too long or breaks off is a fault, and nothing."""
        response.request = request
        size, chunks = 0, list[bytes]()
        try:
            stream = response.aiter_bytes().__aiter__()
            while (chunk := await post.step(lambda: anext(stream, None))) is not None:
                size += len(chunk)
                if size > limit:
                    post.fault = Fault(Kind.REFUSED, f"sent an answer of more than {limit:,} bytes")
                    return b""
                chunks.append(chunk)
        except _FAILURES as error:
            post.fault = of_exception(error, self._shown)
            return b""
        finally:
            await response.aclose()
        return b"".join(chunks)

    async def _wait_for_notices(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except _FAILURES as error:
            self._lost(of_exception(error, self._shown))
            return httpx2.Response(UNAVAILABLE)
        if response.status_code == NOT_FOUND and SESSION in request.headers:
            self._lost(EXPIRED)
        return response

    async def _send_note(self, request: httpx2.Request) -> None:
        response = await self._send_briefly(request)
        await response.aclose()

    async def _send_briefly(self, request: httpx2.Request) -> httpx2.Response:
        limits = dict.fromkeys(("connect", "read", "write", "pool"), NOTE_PATIENCE)
        request.extensions = {**request.extensions, "timeout": limits}
        try:
            return await self._inner.handle_async_request(request)
        except _FAILURES:
            return httpx2.Response(UNAVAILABLE)


class _Events(httpx2.AsyncByteStream):
    """The stream of an answer. The SDK stops reading once it has the answer: a stream that was
    read to its end had none."""

    def __init__(self, response: httpx2.Response, post: Post, shown: str) -> None:
        self._stream = cast(httpx2.AsyncByteStream, response.stream)
        self._post = post
        self._shown = shown

    async def __aiter__(self) -> AsyncIterator[bytes]:
        source = self._stream.__aiter__()
        try:
            while (chunk := await self._post.step(lambda: anext(source, None))) is not None:
                yield chunk
        except httpx2.SSEError:
            raise
        except _FAILURES as error:
            self._post.fault = of_exception(error, self._shown)
        else:
            reason = f"ended its answer at {self._shown} before it was complete"
            self._post.fault = Fault(Kind.BROKEN, reason)

    async def aclose(self) -> None:
        await self._stream.aclose()


def _trusted(target: Target) -> ssl.SSLContext:
    if target.certificates is None:
        return httpx2.create_ssl_context(trust_env=False)
    try:
        return ssl.create_default_context(cafile=target.certificates)
    except OSError as error:
        raise UpstreamUnavailable(
            target.upstream,
            f"cannot be reached: SSL_CERT_FILE is {target.certificates}, which cannot be used "
            f"({error.strerror or error}).",
            hint="It must be a file of certificates in PEM.",
        ) from error


def _proxy(target: Target) -> httpx2.Proxy | None:
    try:
        return None if target.proxy is None else httpx2.Proxy(target.proxy)
    except (ValueError, httpx2.InvalidURL) as error:
        raise UpstreamUnavailable(
            target.upstream,
            "cannot be reached: the proxy that the environment names is no address.",
            hint="HTTPS_PROXY, HTTP_PROXY and ALL_PROXY name it, NO_PROXY the exceptions.",
        ) from error


def _location(request: httpx2.Request, response: httpx2.Response) -> str:
    """Where a redirect leads, without what may be secret in it."""
    try:
        url = request.url.join(response.headers.get("location", ""))
    except httpx2.InvalidURL:
        return "an address that is none"
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


def _message(body: bytes) -> JSON | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return cast(JSON, value) if isinstance(value, dict) else None


def _replaced(response: httpx2.Response, stream: httpx2.AsyncByteStream) -> httpx2.Response:
    return httpx2.Response(
        response.status_code,
        headers=response.headers,
        stream=stream,
        extensions=response.extensions,
    )


def _headers(response: httpx2.Response) -> list[tuple[str, str]]:
    """Those that are true of a body that is unpacked already."""
    packing = ("content-encoding", "content-length", "transfer-encoding")
    return [(name, value) for name, value in response.headers.multi_items() if name not in packing]


def _json(response: httpx2.Response, message: JSON) -> httpx2.Response:
    body = json.dumps(message).encode()
    return httpx2.Response(response.status_code, headers=_headers(response), content=body)
