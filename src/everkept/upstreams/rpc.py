"""JSON-RPC with one server, whatever carries it: messages, calls that wait, and results."""

import asyncio
import json
import math
import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast

from everkept.core.protocol import META
from everkept.core.sessions import Report
from everkept.core.upstreams import JSON
from everkept.errors import InvalidInput, UpstreamError, visible

_QUOTED_DIGITS = 50  # characters


class Unreadable(ValueError):
    """What came is no JSON that could be passed on; the message says why, without a full stop."""


def written(message: JSON) -> bytes:
    """In ASCII: half a character is no UTF-8, and can be said all the same."""
    try:
        text = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            "The arguments cannot be sent: they hold NaN or Infinity, which are no JSON, or are "
            "nested too deep."
        ) from error
    return text.encode("ascii")


def read(text: bytes | str) -> Any:
    """Raises Unreadable, also for numbers that Python knows and JSON does not."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except Unreadable:
        raise
    except json.JSONDecodeError as error:
        raise Unreadable(str(error)) from error
    except UnicodeDecodeError as error:
        raise Unreadable("it is not encoded in UTF-8") from error
    except RecursionError as error:
        raise Unreadable("it is nested too deep") from error
    except ValueError as error:
        digits = f"{sys.get_int_max_str_digits():,}"
        raise Unreadable(f"it holds a number of more than {digits} digits") from error


def _refuse_constant(name: str) -> float:
    raise Unreadable(f"{name} is no number of JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):  # we could not write it again
        short = digits if len(digits) <= _QUOTED_DIGITS else digits[:_QUOTED_DIGITS] + "…"
        raise Unreadable(f"{visible(short)} is too large for a number")
    return number


METHOD_NOT_FOUND = -32601
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
    """Calls that wait for an answer, by id. `reply` sends our answers to what the server asks."""

    def __init__(self, tools_changed: Callable[[], None], reply: Callable[[JSON], None]) -> None:
        self.calls: dict[int, Call] = {}
        self._tools_changed = tools_changed
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
        elif method == "notifications/tools/list_changed":
            self._tools_changed()
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
    refusal = f"Method not found: {_quoted(method)}"
    return {"error": {"code": METHOD_NOT_FOUND, "message": refusal}}


def number(value: Any) -> int | None:
    """Return an id, also if the server wrote it as text; True is not 1."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _amount(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < _LARGEST_AMOUNT else None


COMPLETE = "complete"

_QUOTED = 200  # characters of what a server wrote
_MOST_DATA = 4096  # bytes of JSON that an error may bring along

# Others of the protocol's keys are about the result: that of a task that it belongs to, say.
_OF_THE_ERA = frozenset(
    META + key
    for key in (
        "clientCapabilities",
        "clientInfo",
        "logLevel",
        "protocolVersion",
        "serverInfo",
        "subscriptionId",
    )
)


def result_of(message: JSON, upstream: str) -> JSON:
    """The result of an answer; UpstreamError in the server's own words where it is an error."""
    error, result = message.get("error"), message.get("result")
    if error is not None:
        raise _refusal(error, upstream)
    if isinstance(result, dict):
        return cast(JSON, result)
    wrong = "an answer without a result" if result is None else "a result that is no object"
    raise UpstreamError(f"{upstream} gave {wrong}.", upstream=upstream)


def _refusal(error: Any, upstream: str) -> UpstreamError:
    body = cast(JSON, error) if isinstance(error, dict) else {"message": error}
    said, code = body.get("message"), body.get("code")
    is_number = isinstance(code, int) and not isinstance(code, bool)
    return UpstreamError(
        said if isinstance(said, str) and said.strip() else f"error {_quoted(str(body))}",
        upstream=upstream,
        upstream_code=code if is_number else None,
        upstream_data=body.get("data") if _is_small(body.get("data")) else None,
    )


def _is_small(data: Any) -> bool:
    try:
        return len(json.dumps(data)) <= _MOST_DATA
    except RecursionError:
        return False


def _quoted(text: str) -> str:
    return visible(text if len(text) <= _QUOTED else text[:_QUOTED] + "…")


def answered(result: JSON, upstream: str) -> JSON:
    """The result without what the stateless era adds to it; all else as it came."""
    kind = result.get("resultType", COMPLETE)
    if kind != COMPLETE:
        wanted = _quoted(repr(kind))
        raise UpstreamError(
            f"It wants more before it answers ({wanted}), and a gateway has nothing to give.",
            upstream=upstream,
        )
    kept = {key: value for key, value in result.items() if key != "resultType"}
    meta = kept.get("_meta")
    if isinstance(meta, dict):
        named = cast(dict[str, Any], meta)
        others = {key: value for key, value in named.items() if key not in _OF_THE_ERA}
        if len(others) < len(named):
            kept["_meta"] = others
            if not others:
                del kept["_meta"]
    return kept
