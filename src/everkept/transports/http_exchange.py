"""One request over HTTP and its answer: a JSON document, or a stream of events."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, cast

from everkept.core.protocol import MESSAGE_LIMIT
from everkept.transports.asgi import (
    PLAIN_JSON,
    Headers,
    Message,
    Receive,
    Refusal,
    Rejected,
    Send,
    answer,
    read_headers,
)
from everkept.transports.dispatch import PARSE_ERROR
from everkept.transports.http_headers import EVENT_STREAM, check_accept, check_content_type

PING = b": ping\r\n\r\n"
PING_SECONDS = 15.0  # of silence, before a proxy takes the connection for dead
WATCH_AFTER_SECONDS = 0.05  # most answers are complete by then and need no watch

EVENT_HEADERS: Headers = (
    (b"content-type", EVENT_STREAM.encode()),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class Exchange:
    """A request as it came, and the only way to answer it."""

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
        """Return the body; raise Rejected if this request cannot carry a message."""
        check_accept(self.headers, PLAIN_JSON, EVENT_STREAM)
        check_content_type(self.headers)
        body = await self._read()
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            message = f"The body is not valid JSON: {error}"
            raise Rejected(Refusal(400, message, code=PARSE_ERROR)) from error

    async def send_document(self, body: bytes, status: int = 200) -> None:
        self._is_ended = True  # a ping may come while the client reads slowly
        await answer(self._send, status, body, headers=self.answer_headers)

    async def send_events(self, events: bytes, *, is_last: bool = False) -> None:
        """Make the answer a stream, if it is not one, and send these events."""
        async with self._lock:
            if self._is_ended:
                return
            if not self.is_stream:
                self.is_stream = True
                headers = [*EVENT_HEADERS, *self.answer_headers]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            self._is_ended = is_last
            await self._send(
                {"type": "http.response.body", "body": events, "more_body": not is_last}
            )

    async def ping(self) -> None:
        await self.send_events(PING)

    async def _read(self) -> bytes:
        parts: list[bytes] = []
        size, has_more = 0, True
        while has_more:
            part = await self.receive()
            parts.append(part.get("body", b""))
            size += len(parts[-1])
            if size > MESSAGE_LIMIT:
                raise Rejected(Refusal(413, f"A message may have {MESSAGE_LIMIT:,} bytes at most."))
            has_more = part.get("more_body", False)
        return b"".join(parts)


class KeepAlive:
    """Pings while the answer that is made inside is silent.

    It begins after a moment, so that quick answers cost no task, and ends when the client leaves.
    """

    def __init__(
        self,
        exchange: Exchange,
        ping: Callable[[], Awaitable[None]],
        on_leave: Callable[[], None] | None = None,
    ) -> None:
        self._exchange = exchange
        self._ping = ping
        self._on_leave = on_leave
        self._watching: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(WATCH_AFTER_SECONDS, self._begin)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
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


class WhileConnected:
    """Keeps an answer alive, and quietly cancels what runs inside when the client leaves."""

    def __init__(self, exchange: Exchange) -> None:
        self._keep_alive = KeepAlive(exchange, exchange.ping, self._leave)
        self._task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._is_gone = False

    def __enter__(self) -> None:
        self._keep_alive.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._keep_alive.__exit__(kind, error, trace)
        if not self._is_gone or not isinstance(error, asyncio.CancelledError):
            return False
        self._task.uncancel()
        return True

    def _leave(self) -> None:
        self._is_gone = True
        self._task.cancel()
