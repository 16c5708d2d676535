"""MCP over standard input and output."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from everkept.core.json_encoder import encode_small
from everkept.core.lines import Lines, Overlong, id_in
from everkept.core.protocol import MESSAGE_LIMIT
from everkept.core.sessions import Session
from everkept.transports.connection import JSON, Connection
from everkept.transports.dispatch import (
    INVALID_REQUEST,
    PARSE_ERROR,
    Answer,
    Dispatcher,
    ProtocolError,
)
from everkept.transports.pipes import open_writer, start_reading
from everkept.transports.signals import on_signals

if TYPE_CHECKING:  # loaded by the program itself, long before
    from everkept.first_answers import Start

GRACE = 0.4  # seconds that calls under way get when we are told to stop
LAST_CALLS = 5.0  # seconds for calls under way when the input has ended: the client still reads
LAST_WORDS = 0.1  # seconds for those that were cancelled, and for what is still to be written

PROGRESS = "notifications/progress"
MOST_WAITING = 100  # messages to the client before progress is left out

log = logging.getLogger(__name__)


def claim_wire() -> tuple[int, int]:
    """Keeps the wire for ourselves: a stray print goes to stderr, a child reads nothing."""
    written, read = os.dup(1), os.dup(0)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout = sys.stderr
    return read, written


async def serve_stdio(
    dispatcher: Dispatcher, read: int, written: int, start: "Start | None" = None
) -> None:
    """Serves one client until its input ends or a signal comes.

    `start` has the requests that were answered before, and the input that followed them.
    """
    await _Exchange(dispatcher, written).run(read, start)


class _Exchange:
    def __init__(self, dispatcher: Dispatcher, written: int) -> None:
        self._dispatcher = dispatcher
        self._connection = Connection(Session())
        self._running: dict[str | int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # those too that were canceled
        self._stop = asyncio.Event()
        self._writer = open_writer(written, self._hurry)

    async def run(self, read: int, start: "Start | None" = None) -> None:
        on_signals(asyncio.get_running_loop(), self._hurry)
        lines = Lines(MESSAGE_LIMIT)

        def deliver(data: bytes) -> None:
            for line in lines.feed(data):
                self._on_line(line)

        if start is not None:
            for message in start.answered:
                await self._handle(message["id"], message["method"], message.get("params") or {})
            deliver(start.rest)
        start_reading(read, deliver, self._stop.set)
        await self._stop.wait()
        await self._finish()
        await self._writer.close(LAST_WORDS)

    def _on_line(self, line: bytes | Overlong) -> None:
        if isinstance(line, Overlong):
            reason = f"A message may have {MESSAGE_LIMIT:,} bytes at most."
            self._send_error(id_in(line.head, line.tail), INVALID_REQUEST, reason)
            return
        if not line.strip():
            return
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            self._send_error(None, PARSE_ERROR, f"This line is not JSON: {error}")
            return
        if isinstance(message, list):
            # Batches existed in one revision; their members are answered one by one.
            for member in cast(list[Any], message):
                self._on_message(member)
        else:
            self._on_message(message)

    def _on_message(self, message: Any) -> None:
        if not isinstance(message, dict):
            self._send_error(None, INVALID_REQUEST, "A message must be an object.")
            return
        message = cast(JSON, message)
        method, request_id = message.get("method"), message.get("id")
        params: Any = message.get("params") or {}
        if not isinstance(method, str):
            if "result" not in message and "error" not in message:
                self._send_error(request_id, INVALID_REQUEST, "A request needs a `method`.")
        elif not isinstance(params, dict):
            self._send_error(request_id, INVALID_REQUEST, "`params` must be an object.")
        elif "id" not in message:
            self._on_notification(method, cast(JSON, params))
        elif isinstance(request_id, bool) or not isinstance(request_id, str | int):
            self._send_error(None, INVALID_REQUEST, "`id` must be a string or a whole number.")
        elif request_id in self._running:
            self._send_error(request_id, INVALID_REQUEST, "A request with this `id` is running.")
        else:
            task = _start(self._answer(request_id, method, cast(JSON, params)))
            if not task.done():
                self._running[request_id] = task
                self._tasks.add(task)
                task.add_done_callback(lambda _: self._end(request_id, task))

    def _on_notification(self, method: str, params: JSON) -> None:
        if method == "notifications/cancelled":
            cancelled = params.get("requestId")
            task = self._running.pop(cancelled, None) if isinstance(cancelled, str | int) else None
            if task is not None:
                task.cancel()

    def _end(self, request_id: str | int, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._running.get(request_id) is task:
            del self._running[request_id]

    async def _answer(self, request_id: str | int, method: str, params: JSON) -> None:
        try:
            answer = await self._handle(request_id, method, params)
        except ProtocolError as error:
            self._put(error.respond(request_id))
        else:
            self._put(answer.respond(request_id))

    async def _handle(self, request_id: str | int, method: str, params: JSON) -> Answer:
        return await self._dispatcher.handle(
            self._connection,
            request_id,
            method,
            params,
            notify=self._notify,
            announce=self._notify,
        )

    async def _notify(self, method: str, params: JSON) -> None:
        if method == PROGRESS and self._writer.pending > MOST_WAITING:
            return  # the client is behind, and the next progress says more than this one
        try:
            self._put(encode_small({"jsonrpc": "2.0", "method": method, "params": params}))
        except ValueError:  # NaN, which JSON does not have
            log.warning("cannot write a notification of %s", method)

    def _send_error(self, request_id: Any, code: int, text: str) -> None:
        known = request_id if isinstance(request_id, str | int) else None
        self._put(ProtocolError(code, text).respond(known))

    def _put(self, message: bytes) -> None:
        self._writer.put(message + b"\n")

    def _hurry(self) -> None:
        """Stop for a signal, or a client that is gone: calls under way have little time."""
        self._stop.set()
        asyncio.get_running_loop().call_later(GRACE, self._cancel)

    async def _finish(self) -> None:
        """Let the calls under way end, then cancel them."""
        self._connection.close()
        self._dispatcher.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_CALLS)
        if self._tasks:
            self._cancel()
            await asyncio.wait(self._tasks, timeout=LAST_WORDS)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


def _start(answer: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start the task immediately if Python can: an answer that waits for nothing is then given."""
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        return asyncio.Task(answer, loop=loop, eager_start=True)
    return loop.create_task(answer)
