"""Ends open streams whose token was revoked meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable

from everkept.errors import EverkeptError
from everkept.transports.asgi import ASGIApp, Message, Receive, Send

INTERVAL = 3.0  # seconds after which the token of a stream is asked for again
STREAM = b"text/event-stream"

IsKnown = Callable[[], Awaitable[bool]]


async def while_known(
    app: ASGIApp,
    scope: Message,
    receive: Receive,
    send: Send,
    is_known: IsKnown,
    *,
    interval: float = INTERVAL,
) -> None:
    """Answers a request whose token was known at its beginning.

    A stream may stay open for hours: before each of its parts, and every few seconds, its token
    is asked for again, and the stream ends where that is gone. What answers a request at once,
    as the first part to a POST does, needs no second asking.
    """
    limit = asyncio.timeout(None)
    stream = _Stream(send, is_known, interval, limit)
    stream.is_fresh = scope["method"] == "POST"
    try:
        async with limit:
            await app(scope, receive, stream.send)
    except TimeoutError:
        if not limit.expired():
            raise
    finally:
        stream.leave()
    if stream.is_revoked:
        await stream.end()


class _Stream:
    def __init__(
        self, send: Send, is_known: IsKnown, interval: float, limit: asyncio.Timeout
    ) -> None:
        self.is_revoked = False
        self.is_fresh = False
        self._send = send
        self._is_known = is_known
        self._interval = interval
        self._limit = limit
        self._watching: asyncio.Task[None] | None = None
        self._is_ended = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_stream(message):
            self._watching = asyncio.create_task(self._watch(), name="token of a stream")
        elif self._watching is not None:
            if not self.is_fresh and not await self._may_go_on():
                self._revoke()
            if self.is_revoked:
                return
            self.is_fresh = False
            self._is_ended = not message.get("more_body")
        await self._send(message)

    async def end(self) -> None:
        if not self._is_ended:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def leave(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _may_go_on(self) -> bool:
        try:
            return await self._is_known()
        except EverkeptError:
            return False  # nothing is told to who cannot be known

    async def _watch(self) -> None:
        while not self.is_revoked:
            await asyncio.sleep(self._interval)
            try:
                if not await self._is_known():
                    self._revoke()
            except EverkeptError:
                continue  # it is asked before anything is told

    def _revoke(self) -> None:
        if not self.is_revoked:
            self.is_revoked = True
            self._limit.reschedule(asyncio.get_running_loop().time())


def _is_stream(message: Message) -> bool:
    headers: dict[bytes, bytes] = {name.lower(): value for name, value in message["headers"]}
    return headers.get(b"content-type", b"").startswith(STREAM)
