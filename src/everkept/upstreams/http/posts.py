"""One request to a server over HTTP: what became of it, and the way to give it up."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import TypeVar

import anyio
import httpx2

from everkept.core.upstreams import JSON
from everkept.upstreams.http.faults import Fault, Kind
from everkept.values import replace

T = TypeVar("T")


class Post:
    """Made for one request, by whoever waits for its answer."""

    def __init__(self, request_id: int, method: str, headers: dict[str, str], body: bytes) -> None:
        self.request_id = request_id
        self.method = method
        self.headers = headers
        self.body = body  # the SDK is given none: it would make copies, and refuse half characters
        self.answer: JSON | None = None  # the whole message, and never the SDK's
        self.fault: Fault | None = None
        self.status: int | None = None
        self.is_sent = False  # the body has gone out: the server may have begun with it
        self.settled = asyncio.Event()  # set once it is known what became of it
        self._is_begun = False
        self._is_given_up = False
        self._scope: anyio.CancelScope | None = None

    @property
    def stand_in(self) -> bytes:
        """What the SDK gets in place of the answer, which is not its to judge."""
        return b'{"jsonrpc":"2.0","id":%d,"result":{}}' % self.request_id

    def takes(self, request: httpx2.Request) -> bool:
        """Whether this is the request itself, and not something that is sent on its account: our
        answer to what the server asks meanwhile."""
        is_resumed = request.method == "GET"
        is_redirected = self.status is not None and 300 <= self.status < 400
        is_itself = is_resumed or is_redirected or not self._is_begun
        if is_itself:
            self._is_begun, self.status = True, None
        if is_redirected and not is_resumed:
            self.is_sent = False  # whoever sends it elsewhere has done nothing with it
        return is_itself

    def fail(self, fault: Fault) -> None:
        """What has been sent is never taken as unsent, whatever an exception is called."""
        is_sent = self.is_sent and fault.kind is Kind.UNREACHED
        self.fault = replace(fault, kind=Kind.BROKEN) if is_sent else fault

    def give_up(self) -> None:
        """Nobody waits any more: the exchange is closed, wherever it is."""
        self._is_given_up = True
        if self._scope is not None:
            self._scope.cancel()

    async def step(self, act: Callable[[], Awaitable[T]]) -> T:
        """One wait for the network; SSEError once it is given up, which the SDK takes as final."""
        if not self._is_given_up:
            with anyio.CancelScope() as self._scope:
                return await act()
        raise httpx2.SSEError("Nobody waits for it any more.")


class Body(httpx2.AsyncByteStream):
    """The body of a request, which notes when it is sent: headers come first, and alone do
    nothing."""

    def __init__(self, post: Post) -> None:
        self._post = post

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._post.is_sent = True
        yield self._post.body


# Set around a request: the SDK carries the context of a sender along to where it is sent.
current_post: ContextVar[Post | None] = ContextVar("current_post", default=None)
