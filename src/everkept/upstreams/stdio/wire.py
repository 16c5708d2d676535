"""JSON-RPC with one server over lines: requests side by side, progress, cancellation."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Protocol, cast

from everkept.core.lines import Overlong, id_in
from everkept.core.protocol import MESSAGE_LIMIT
from everkept.core.sessions import Report
from everkept.core.upstreams import JSON
from everkept.errors import UpstreamError, visible
from everkept.upstreams.links import LinkEnded, NotSent
from everkept.upstreams.messages import Unreadable, read, written
from everkept.upstreams.results import result_of
from everkept.values import Value, field

_METHOD_NOT_FOUND = -32601
_LONGEST_QUOTE = 200  # characters of what a server wrote
_PROGRESS_KEPT = 100  # of one request, while its client does not listen

Progress = tuple[float, float | None, str | None]


class _Pending(Value, frozen=False, eq=False):
    answer: asyncio.Future[JSON]
    progress: deque[Progress] = field(default_factory=lambda: deque(maxlen=_PROGRESS_KEPT))
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Pipe(Protocol):
    """Where lines go."""

    def write(self, line: bytes) -> None: ...

    async def drained(self) -> None:
        """Waits until the other side has read most of it."""
        ...

    @property
    def deafness(self) -> str | None:
        """Why the other side will not read what is written now; None where it may."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether far too much waits there."""
        ...


class Wire:
    """What is sent, and what comes back; `notified` is told what the server says by itself, and
    `strayed` of the lines that are no messages."""

    def __init__(
        self,
        upstream: str,
        pipe: Pipe,
        notified: Callable[[str, JSON], None],
        strayed: Callable[[bytes], None],
    ) -> None:
        self.upstream = upstream
        self._pipe = pipe
        self._notified = notified
        self._strayed = strayed
        self._ids = count(1)
        self._pending: dict[int, _Pending] = {}
        self._end: str | None = None

    async def request(
        self, method: str, params: Mapping[str, Any], report: Report | None = None
    ) -> JSON:
        """The result as it came; progress is asked for where there is someone to tell."""
        self._check_open()
        request_id = next(self._ids)
        if report is not None:
            meta = {**cast(JSON, params.get("_meta", {})), "progressToken": request_id}
            params = {**params, "_meta": meta}
        line = _line({"id": request_id, "method": method, "params": params})
        await self._pipe.drained()
        self._check_open()
        pending = _Pending(asyncio.get_running_loop().create_future())
        self._pending[request_id] = pending
        self._pipe.write(line)
        try:
            self._check_open()  # the program may have gone unnoticed
            if report is not None:
                await _pass_on(pending, report)
            return await pending.answer
        finally:
            del self._pending[request_id]
            if not pending.answer.done() or pending.answer.cancelled():
                given_up = {"requestId": request_id, "reason": "The client does not wait."}
                self.notify("notifications/cancelled", given_up)
            pending.answer.cancel()

    def notify(self, method: str, params: JSON) -> None:
        if self._end is None:
            self._pipe.write(_line({"method": method, "params": params}))

    def end(self, reason: str) -> None:
        """Every request that waits, and every later one, is told that no answer will come."""
        if self._end is None:
            self._end = reason
            for pending in self._pending.values():
                self._settle(pending, LinkEnded(reason))

    def on_line(self, line: bytes | Overlong) -> None:
        if isinstance(line, Overlong):
            self._on_overlong(line)
        elif stripped := line.strip():
            try:
                message = read(stripped)
            except Unreadable as error:
                self._on_unreadable(stripped, str(error))
                return
            # Batches existed in one revision of the protocol.
            members = cast(list[Any], message) if isinstance(message, list) else [message]
            for member in members:
                if not isinstance(member, dict) or not self._on_message(cast(JSON, member)):
                    self._strayed(stripped)

    def _on_message(self, message: JSON) -> bool:
        """Whether it was a message at all."""
        method, has_id = message.get("method"), "id" in message
        params: Any = message.get("params")
        named = cast(JSON, params) if isinstance(params, dict) else {}
        if isinstance(method, str):
            if has_id:
                self._on_request(message["id"], method)
            elif method == "notifications/progress":
                self._on_progress(named)
            else:
                self._notified(method, named)
            return True
        answered = _number(message.get("id"))
        if method is not None or answered is None:
            return False
        # One that nobody waits for came too late, and is no matter.
        if pending := self._pending.get(answered):
            self._on_answer(pending, message)
        return True

    def _on_request(self, request_id: Any, method: str) -> None:
        if method == "ping":
            answer: JSON = {"result": {}}
        else:
            refusal = f"Method not found: {_quoted(method)}"
            answer = {"error": {"code": _METHOD_NOT_FOUND, "message": refusal}}
        # A server that asks and asks, and never reads, gets no more answers.
        if self._end is None and not self._pipe.is_full:
            self._pipe.write(_line({"id": request_id, **answer}))

    def _on_answer(self, pending: _Pending, message: JSON) -> None:
        try:
            self._settle(pending, result_of(message, self.upstream))
        except UpstreamError as error:
            self._settle(pending, error)

    def _fault(self, text: str) -> UpstreamError:
        return UpstreamError(text, upstream=self.upstream)

    def _on_progress(self, params: JSON) -> None:
        pending = self._pending.get(_number(params.get("progressToken")) or 0)
        done, message = _amount(params.get("progress")), params.get("message")
        if pending is not None and done is not None:
            text = message if isinstance(message, str) else None
            pending.progress.append((done, _amount(params.get("total")), text))
            pending.news.set()

    def _on_overlong(self, line: Overlong) -> None:
        owner = self._owner(line.head, line.tail)
        if owner is None and len(self._pending) == 1:
            [owner] = self._pending.values()
        if owner is None:
            self._strayed(line.head)
        else:
            limit = f"{MESSAGE_LIMIT:,}"
            self._settle(owner, self._fault(f"The answer has more than {limit} bytes."))

    def _on_unreadable(self, line: bytes, reason: str) -> None:
        if owner := self._owner(line, line):
            self._settle(
                owner, self._fault(f"{self.upstream} gave an answer that is no JSON: {reason}")
            )
        else:
            self._strayed(line)

    def _owner(self, head: bytes, tail: bytes) -> _Pending | None:
        found = id_in(head, tail)
        return self._pending.get(found) if isinstance(found, int) else None

    def _settle(self, pending: _Pending, answer: JSON | Exception) -> None:
        if pending.answer.done():
            return
        if isinstance(answer, Exception):
            pending.answer.set_exception(answer)
            pending.answer.exception()  # the one who waits may be cancelled before it looks
        else:
            pending.answer.set_result(answer)
        pending.news.set()

    def _check_open(self) -> None:
        if reason := self._end or self._pipe.deafness:
            raise NotSent(reason)


async def _pass_on(pending: _Pending, report: Report) -> None:
    """Tells of progress, in its order, until the answer is there."""
    while True:
        await pending.news.wait()
        pending.news.clear()
        while pending.progress:
            await report(*pending.progress.popleft())
        if pending.answer.done():
            return


def _line(message: JSON) -> bytes:
    return written(message) + b"\n"


def _number(value: Any) -> int | None:
    """An id or a code; True is no 1, and some servers make texts of ids."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _amount(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _quoted(text: str) -> str:
    short = text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "…"
    return visible(short)
