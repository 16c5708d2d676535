"""Streams of a server, read here first: the SDK sees no answer, and nothing that would harm it."""

from collections.abc import AsyncIterator
from typing import Any, TypeGuard, cast

import httpx2

from everkept.core.protocol import MESSAGE_LIMIT
from everkept.core.upstreams import JSON
from everkept.upstreams.http.faults import FAILURES, of_end, of_exception, overlong, unreadable
from everkept.upstreams.http.posts import Post
from everkept.upstreams.messages import Unreadable, read

LARGEST_AMOUNT = 1e300  # of progress; beyond, it can be no float
RESUME = (100, 60_000)  # milliseconds before a stream is resumed, whatever the server wishes


class AnswerEvents(httpx2.AsyncByteStream):
    """The stream of one answer. The SDK stops reading once it has the answer: a stream that was
    read to its end had none."""

    def __init__(self, response: httpx2.Response, post: Post, shown: str) -> None:
        self._response = response
        self._post = post
        self._shown = shown

    async def __aiter__(self) -> AsyncIterator[bytes]:
        events = aiter(httpx2.EventSource(self._response, max_event_size=MESSAGE_LIMIT))
        try:
            while (event := await self._post.step(lambda: anext(events, None))) is not None:
                yield self._passed_on(event)
        except httpx2.SSEError:
            self._post.fault = overlong(MESSAGE_LIMIT)
            raise
        except FAILURES as error:
            self._post.fail(of_exception(error, self._shown))
        else:
            self._post.fault = of_end(self._shown)

    async def aclose(self) -> None:
        await self._response.aclose()

    def _passed_on(self, event: httpx2.ServerSentEvent) -> bytes:
        if not _has_message(event):
            return _event(event, "")
        try:
            message = read(event.data)
        except Unreadable as error:
            self._post.fault = unreadable(str(error))
            return _event(event, self._post.stand_in.decode())
        if _is_said_unasked(message):
            return _event(event, event.data if _is_harmless(message) else "")
        if is_answer(message):
            self._post.answer = message
        else:
            self._post.fault = unreadable("it is no message of JSON-RPC")
        return _event(event, self._post.stand_in.decode())


class Notices(httpx2.AsyncByteStream):
    """The stream of what a server says by itself."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for event in httpx2.EventSource(self._response, max_event_size=MESSAGE_LIMIT):
            yield _event(event, event.data if _is_notice(event) else "")

    async def aclose(self) -> None:
        await self._response.aclose()


def is_answer(message: Any) -> TypeGuard[JSON]:
    return isinstance(message, dict) and ("result" in message or "error" in message)


def _is_notice(event: httpx2.ServerSentEvent) -> bool:
    try:
        message: Any = read(event.data) if _has_message(event) else None
    except Unreadable:
        return False
    return _is_said_unasked(message) and _is_harmless(message)


def _has_message(event: httpx2.ServerSentEvent) -> bool:
    return event.event == "message" and bool(event.data)


def _is_said_unasked(message: Any) -> TypeGuard[JSON]:
    return isinstance(message, dict) and isinstance(cast(JSON, message).get("method"), str)


def _is_harmless(message: JSON) -> bool:
    """The SDK ends the connection over progress that is no float."""
    params: Any = message.get("params")
    if message["method"] != "notifications/progress" or not isinstance(params, dict):
        return True
    amounts = (cast(JSON, params).get(key) for key in ("progress", "total"))
    return all(
        abs(amount) < LARGEST_AMOUNT for amount in amounts if isinstance(amount, int | float)
    )


def _event(event: httpx2.ServerSentEvent, data: str) -> bytes:
    """The event anew. One without data still says from where a stream that breaks is resumed."""
    lines = [f"data: {line}" for line in data.split("\n")]
    if event.id:
        lines.append(f"id: {event.id}")
    if event.retry is not None:
        least, most = RESUME
        lines.append(f"retry: {min(max(event.retry, least), most)}")
    return "\n".join((*lines, "", "")).encode(errors="replace")
