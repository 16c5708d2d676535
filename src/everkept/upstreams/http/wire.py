"""The HTTP below the SDK: failures stay with the request they belong to, and are remembered.

The SDK ends the whole connection, and every call on it, when one exchange fails in a way that it
does not expect. So nothing is raised through it: an exchange that fails is an empty answer to the
SDK, and the reason is kept for whoever sent the request.
"""

import ssl
from collections.abc import Callable
from typing import cast

import httpx2
from anyio.abc import TaskGroup

from everkept.core.protocol import MESSAGE_LIMIT
from everkept.core.upstreams import JSON
from everkept.errors import UpstreamUnavailable
from everkept.upstreams.http.events import AnswerEvents, Notices, is_answer
from everkept.upstreams.http.faults import (
    BAD_REQUEST,
    BUSY,
    EXPIRED,
    FAILURES,
    FORBIDDEN,
    NOT_FOUND,
    UNAUTHORIZED,
    Fault,
    not_resumed,
    of_content,
    of_exception,
    of_redirect,
    of_status,
    overlong,
    unreadable,
)
from everkept.upstreams.http.places import Target
from everkept.upstreams.http.posts import Body, Post, current_post
from everkept.upstreams.messages import Unreadable, read

REFUSAL_LIMIT = 64 * 1024  # bytes of an answer that is an error
IDLE = 3.0  # seconds; servers close a connection after 5, and it must not be used just then
NOTE_PATIENCE = 2.0  # seconds for what nobody waits for, a farewell among it

ACCEPTED = 202
MOVED = (307, 308)
OF_US = (UNAUTHORIZED, FORBIDDEN, BUSY)  # who asks, and not what is asked
UNAVAILABLE = 503  # what the SDK is told in place of an exception
METHOD_NOT_FOUND = -32601
UNREAD = (-32000, -32600)  # codes of servers that refuse a session they do not know
SESSION = "mcp-session-id"
PROXIES = ("http", "https")
EVENTS, PLAIN = "text/event-stream", "application/json"

Watch = Callable[[Fault | None], None]


class Wire(httpx2.AsyncBaseTransport):
    """The way to one server. `watch` is told whether it is there to say something by itself."""

    def __init__(self, target: Target, watch: Watch) -> None:
        self._shown = target.shown
        self._watch = watch
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
        if request.method == "GET":
            return await self._resume(request, post)
        request.stream = Body(post)
        request.headers["content-length"] = str(len(post.body))
        try:
            response = await post.step(lambda: self._inner.handle_async_request(request))
        except FAILURES as error:
            post.fail(of_exception(error, self._shown))
            return httpx2.Response(UNAVAILABLE)
        response.request = request
        post.status = response.status_code
        if 300 <= post.status < 400:
            post.fault = of_redirect(post.status, _location(request, response), self._shown)
            return await _without_body(response)
        post.fault = None
        if post.status >= 400:
            return await self._refused(request, response, post)
        kind = response.headers.get("content-type", "").lower()
        if post.status != ACCEPTED and kind.startswith(EVENTS):
            return self._events(response, post)
        if post.status != ACCEPTED and kind.startswith(PLAIN):
            return await self._plain(response, post)
        post.fault = of_content("" if post.status == ACCEPTED else kind, self._shown)
        await response.aclose()
        return httpx2.Response(UNAVAILABLE)

    async def _resume(self, request: httpx2.Request, post: Post) -> httpx2.Response:
        """The rest of a stream that broke off. The server had the request, so nothing that it
        answers here is about that, and nothing means that it may be sent again."""
        try:
            response = await post.step(lambda: self._inner.handle_async_request(request))
        except FAILURES as error:
            post.fault = not_resumed(of_exception(error, self._shown))
            return httpx2.Response(UNAVAILABLE)
        response.request = request
        post.status = status = response.status_code
        kind = response.headers.get("content-type", "").lower()
        if response.is_success and kind.startswith(EVENTS):
            post.fault = None
            return self._events(response, post)
        if 300 <= status < 400:
            why = of_redirect(status, _location(request, response), self._shown)
        else:
            is_said = status >= BAD_REQUEST
            why = of_status(status, self._shown) if is_said else of_content(kind, self._shown)
        post.fault = not_resumed(why)
        bare = await _without_body(response)
        return httpx2.Response(UNAVAILABLE) if bare.is_success else bare

    def _events(self, response: httpx2.Response, post: Post) -> httpx2.Response:
        events = AnswerEvents(response, post, self._shown)
        return httpx2.Response(200, headers=_headers(EVENTS, response), stream=events)

    async def _refused(
        self, request: httpx2.Request, response: httpx2.Response, post: Post
    ) -> httpx2.Response:
        """A status that is an error: an answer where the server says more in JSON-RPC."""
        status = response.status_code
        message = await self._message(response, post, REFUSAL_LIMIT)
        has_session = SESSION in request.headers
        error = message.get("error") if message is not None else None
        if message is None or not isinstance(error, dict) or status in OF_US:
            is_expired = status == NOT_FOUND and has_session
            kind = response.headers.get("content-type", "").lower()
            post.fault = EXPIRED if is_expired else of_status(status, self._shown, kind)
            return httpx2.Response(UNAVAILABLE)
        code = cast(JSON, error).get("code")
        is_unknown = status == NOT_FOUND and code != METHOD_NOT_FOUND
        is_unread = status == BAD_REQUEST and message.get("id") is None and code in UNREAD
        if has_session and is_unknown and message.get("id") == post.request_id:
            # It may have read the request: the session is made anew, and the request not sent anew.
            self._watch(EXPIRED)
        elif has_session and (is_unknown or is_unread):
            post.fault = EXPIRED
            return httpx2.Response(UNAVAILABLE)
        post.fault, post.answer = None, message
        return httpx2.Response(200, headers={"content-type": PLAIN}, content=post.stand_in)

    async def _plain(self, response: httpx2.Response, post: Post) -> httpx2.Response:
        """An answer that is a single message. Whatever id the server wrote: there is no other
        request that it could answer."""
        message = await self._message(response, post, MESSAGE_LIMIT)
        if not is_answer(message):
            post.fault = post.fault or unreadable("it is no message of JSON-RPC")
            return httpx2.Response(UNAVAILABLE)
        post.answer = message
        headers = _headers(PLAIN, response)
        return httpx2.Response(200, headers=headers, content=post.stand_in)

    async def _message(self, response: httpx2.Response, post: Post, limit: int) -> JSON | None:
        """The body, where it is an object; what cannot be read is a fault."""
        try:
            message = read(await post.step(lambda: _body(response, limit)))
        except FAILURES as error:
            post.fail(of_exception(error, self._shown))
        except Unreadable as error:
            post.fault = unreadable(str(error))
        except _OverlongError:
            post.fault = overlong(limit)
        else:
            return cast(JSON, message) if isinstance(message, dict) else None
        finally:
            await response.aclose()
        return None

    async def _wait_for_notices(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except FAILURES as error:
            self._watch(of_exception(error, self._shown))
            return httpx2.Response(UNAVAILABLE)
        is_expired = response.status_code == NOT_FOUND and SESSION in request.headers
        self._watch(EXPIRED if is_expired else None)
        if not response.is_success:
            return await _without_body(response)
        response.request = request
        headers = {"content-type": response.headers.get("content-type", "")}
        return httpx2.Response(response.status_code, headers=headers, stream=Notices(response))

    async def _send_note(self, request: httpx2.Request) -> None:
        response = await self._send_briefly(request)
        if response.status_code in MOVED and (moved := _moved(request, response)) is not None:
            await self._send_briefly(moved)

    async def _send_briefly(self, request: httpx2.Request) -> httpx2.Response:
        limits = dict.fromkeys(("connect", "read", "write", "pool"), NOTE_PATIENCE)
        request.extensions = {**request.extensions, "timeout": limits}
        try:
            return await _without_body(await self._inner.handle_async_request(request))
        except FAILURES:
            return httpx2.Response(UNAVAILABLE)


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
            retry_possible=False,
        ) from error


def _proxy(target: Target) -> httpx2.Proxy | None:
    if target.proxy is None:
        return None
    wrong = "is no address"
    try:
        proxy = httpx2.Proxy(target.proxy)
        if proxy.url.scheme in PROXIES:
            return proxy
        wrong = f"speaks {proxy.url.scheme}, which is not supported"
    except (ValueError, httpx2.InvalidURL):
        pass
    raise UpstreamUnavailable(
        target.upstream,
        f"cannot be reached: the proxy that the environment names {wrong}.",
        hint="HTTPS_PROXY, HTTP_PROXY and ALL_PROXY name it, NO_PROXY the exceptions.",
        retry_possible=False,
    )


def _location(request: httpx2.Request, response: httpx2.Response) -> str:
    """Where a redirect leads, without what may be secret in it."""
    url = _next(request, response)
    if url is None:
        return "an address that is none"
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


def _moved(request: httpx2.Request, response: httpx2.Response) -> httpx2.Request | None:
    """The same for the place that a redirect names, where it is on the same server."""
    here, there = request.url, _next(request, response)
    if there is None or there.userinfo or _server(there) != _server(here):
        return None
    return httpx2.Request("POST", there, headers=request.headers, content=request.content)


def _next(request: httpx2.Request, response: httpx2.Response) -> httpx2.URL | None:
    try:
        return request.url.join(response.headers.get("location", ""))
    except httpx2.InvalidURL:
        return None


def _server(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


async def _without_body(response: httpx2.Response) -> httpx2.Response:
    """Its status, and where it leads. The SDK would read whatever comes, for ever."""
    await response.aclose()
    location = response.headers.get("location")
    headers = {} if location is None else {"location": location}
    return httpx2.Response(response.status_code, headers=headers)


def _headers(content_type: str, response: httpx2.Response) -> dict[str, str]:
    """Those that the SDK looks at."""
    session = response.headers.get(SESSION)
    return {"content-type": content_type} | ({SESSION: session} if session else {})


async def _body(response: httpx2.Response, limit: int) -> bytes:
    size, chunks = 0, list[bytes]()
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > limit:
            raise _OverlongError
        chunks.append(chunk)
    return b"".join(chunks)


class _OverlongError(Exception):
    """A body that has more bytes than are read."""
