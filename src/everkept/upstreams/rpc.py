"""JSON-RPC with one server, whatever carries it: calls that wait, and messages that come."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast

from everkept.core.sessions import Report
from everkept.core.upstreams import JSON
from everkept.errors import visible
from everkept.upstreams.messages import written

METHOD_NOT_FOUND = -32601
_LONGEST_QUOTE = 200  # characters of what a server wrote
_PROGRESS_KEPT = 100  # of one call, while its client does not listen
_LARGEST_AMOUNT = 1e300  # of progress; not every reader knows larger numbers

Progress = tuple[float, float | None, str | None]


class Call:
    """One request, and the progress that the server reports on it."""

    def __init__(
        self, call_id: int, method: str, params: Mapping[str, Any], report: Report | None = None
    ) -> None:
        """Raise InvalidInput for values that JSON does not have."""
        if report is not None:
            meta = {**cast(JSON, params.get("_meta") or {}), "progressToken": call_id}
            params = {**params, "_meta": meta}
        self.id = call_id
        self.method = method
        self.body = written({"id": call_id, "method": method, "params": params})
        self.answer: asyncio.Future[JSON] | None = None
        self.report = report
        self._progress: deque[Progress] = deque(maxlen=_PROGRESS_KEPT)
        self._news = asyncio.Event()

    def on_progress(self, progress: Progress) -> None:
        self._progress.append(progress)
        self._news.set()

    def on_answer(self, answer: asyncio.Future[JSON]) -> None:
        """Wake the caller. It may be cancelled before it looks, so the failure is read here."""
        if not answer.cancelled():
            answer.exception()
        self._news.set()

    async def answered(self) -> JSON:
        """Report progress in its order, then return the answer."""
        assert self.answer is not None
        while self.report is not None:
            await self._news.wait()
            self._news.clear()
            while self._progress:
                await self.report(*self._progress.popleft())
            if self.answer.done():
                break
        return await self.answer


class Rpc:
    """Calls that wait for an answer, by id. `notified` gets the server's notifications, and
    `reply` sends our answers to what the server asks."""

    def __init__(
        self, notified: Callable[[str, JSON], None], reply: Callable[[JSON], None]
    ) -> None:
        self.calls: dict[int, Call] = {}
        self._notified = notified
        self._reply = reply

    def handle(self, message: JSON) -> bool:
        """Handle a request or a notification of the server; return False for any other message."""
        method, params = message.get("method"), message.get("params")
        if not isinstance(method, str):
            return False
        named = cast(JSON, params) if isinstance(params, dict) else {}
        if "id" in message:
            self._reply({"id": message["id"], **_reply_to(method)})
        elif method == "notifications/progress":
            self._on_progress(named)
        else:
            self._notified(method, named)
        return True

    def _on_progress(self, params: JSON) -> None:
        call = self.calls.get(number(params.get("progressToken")) or 0)
        done, message = _amount(params.get("progress")), params.get("message")
        if call is not None and done is not None:
            text = message if isinstance(message, str) else None
            call.on_progress((done, _amount(params.get("total")), text))


def _reply_to(method: str) -> JSON:
    if method == "ping":
        return {"result": {}}
    short = method if len(method) <= _LONGEST_QUOTE else method[:_LONGEST_QUOTE] + "…"
    refusal = f"Method not found: {visible(short)}"
    return {"error": {"code": METHOD_NOT_FOUND, "message": refusal}}


def number(value: Any) -> int | None:
    """Return an id, also if the server wrote it as text; True is not 1."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _amount(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < _LARGEST_AMOUNT else None
