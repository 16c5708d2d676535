"""What every way to another server has in common: the link, its greeting, and JSON-RPC over it."""

import asyncio
import json
import math
import re
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, cast

from everkept import __version__
from everkept.core.mcp import (
    GATEWAY_CLIENT,
    HANDSHAKE_VERSIONS,
    JSON,
    META_PREFIX,
    STATELESS_VERSION,
    VARIABLE,
    UpstreamProgram,
    UpstreamSettings,
)
from everkept.core.sessions import Report
from everkept.errors import InvalidInput, UpstreamError, UpstreamUnavailable, escape_name
from everkept.values import Value

EFFECT_UNKNOWN_HINT = "Whether the call took effect is not known, so it was not repeated."


class LinkEnded(Exception):
    """The connection is gone: the message says why, as the end of a sentence about the server."""


class NotSent(LinkEnded):
    """It was gone before the server took the request: on a new connection it may be sent again."""


class UpstreamLink(Protocol):
    """An open connection to a server that has been greeted, in the era that it speaks.

    Requests may run side by side, from any task. One that is cancelled is cancelled there too.
    """

    async def request(self, method: str, params: Mapping[str, Any], report: Report | None = None) -> JSON:
        """The result as it came. UpstreamError for an answer that is an error, LinkEnded where no
        answer will come. Waits as long as it takes: the caller knows how patient it is."""
        ...

    async def probe(self) -> None:
        """Returns once the server has answered anything at all; LinkEnded like above."""
        ...

    async def wait_ended(self) -> str:
        """Waits until the connection is gone, and says why."""
        ...


# Opened and closed by one task: Link for a server, our environment, and whom to tell when the
# server says that its tools have changed. Raises UpstreamUnavailable where it cannot be reached;
# the caller bounds the time: a note on its CancelledError is what the server has written so far.
Connect = Callable[[UpstreamSettings, Mapping[str, str], Callable[[], None]], AbstractAsyncContextManager[UpstreamLink]]

_CLIENT_INFO = {"name": GATEWAY_CLIENT, "version": __version__}

AskServer = Callable[[str, JSON], Awaitable[JSON]]
NotifyServer = Callable[[str, JSON], None]

ACCEPTED_VERSIONS = ("2024-10-07", *HANDSHAKE_VERSIONS)  # old servers answer with the first


class ServerGreeting(Value):
    """What a server said of itself."""

    is_stateless: bool
    tells_of_changes: bool  # of its tools


def build_stateless_meta() -> JSON:
    """What every request of the stateless era says in `_meta`."""
    return {
        META_PREFIX + "protocolVersion": STATELESS_VERSION,
        META_PREFIX + "clientCapabilities": {},
        META_PREFIX + "clientInfo": _CLIENT_INFO,
    }


async def greet(upstream: str, ask: AskServer, notify: NotifyServer) -> ServerGreeting:
    """Shakes hands, and where the server refuses asks it in the way that needs none."""
    hello = {"protocolVersion": HANDSHAKE_VERSIONS[-1], "capabilities": {}, "clientInfo": _CLIENT_INFO}
    try:
        answer = await ask("initialize", hello)
    except UpstreamError as refused:
        return await _discover(upstream, ask, refused)
    version = answer.get("protocolVersion")
    if version not in ACCEPTED_VERSIONS:
        raise _build_version_error(upstream, str(version))
    notify("notifications/initialized", {})
    return ServerGreeting(is_stateless=False, tells_of_changes=has_tool_notifications(answer))


async def _discover(upstream: str, ask: AskServer, refused: UpstreamError) -> ServerGreeting:
    try:
        answer = await ask("server/discover", {"_meta": build_stateless_meta()})
    except UpstreamError:
        # It speaks the older way: what it said to the handshake is what is wrong.
        raise UpstreamUnavailable(upstream, f"refused to be greeted: {refused.message}") from refused
    offered = answer.get("supportedVersions")
    versions = cast(list[Any], offered) if isinstance(offered, list) else []
    if STATELESS_VERSION not in versions:
        raise _build_version_error(upstream, ", ".join(map(str, versions)))
    return ServerGreeting(is_stateless=True, tells_of_changes=has_tool_notifications(answer))


def has_tool_notifications(answer: JSON) -> bool:
    capabilities = answer.get("capabilities")
    tools = cast(JSON, capabilities).get("tools") if isinstance(capabilities, dict) else None
    return isinstance(tools, dict) and cast(JSON, tools).get("listChanged") is True


def _build_version_error(upstream: str, versions: str) -> UpstreamUnavailable:
    known = ", ".join((*ACCEPTED_VERSIONS, STATELESS_VERSION))
    return UpstreamUnavailable(
        upstream,
        f'speaks version "{versions}" of the protocol, and Everkept speaks {known}.',
        hint="Another version of the one or the other will do.",
        retry_possible=False,
    )


MIN_SECRET_CHARACTERS = 6  # what is shorter is part of many a word
_MASK = "[masked: variable]"

Mask = Callable[[str], str]


def fill_variables(values: Mapping[str, str], environment: Mapping[str, str], upstream: str) -> dict[str, str]:
    """The values with each `${NAME}` replaced. One that is not set is an UpstreamUnavailable: a
    server would take an empty secret for a wrong one."""

    def value_of(found: re.Match[str]) -> str:
        name = found[1]
        if name not in environment:
            raise UpstreamUnavailable(
                upstream,
                f"needs the variable {name}, which is not set.",
                hint=f"Set {name} in the environment of Everkept, and start it again.",
                retry_possible=False,
            )
        return environment[name]

    return {key: VARIABLE.sub(value_of, value) for key, value in values.items()}


def build_mask(reach: UpstreamSettings, environment: Mapping[str, str]) -> Mask:
    """What masks in a server's words the values that were filled in for it, and whatever else
    looks like a secret. A variable that tells of a place is none."""
    values = reach.way.env if isinstance(reach.way, UpstreamProgram) else reach.way.headers
    named = {name for value in values.values() for name in VARIABLE.findall(value)}
    known = {environment[name] for name in named - _PATH_VARIABLES if name in environment}
    # The longest first: another may be part of it.
    secrets = sorted((s for s in known if len(s) >= MIN_SECRET_CHARACTERS), key=len, reverse=True)

    def hidden(text: str) -> str:
        from everkept.core.secrets import mask_text

        for secret in secrets:
            text = text.replace(secret, _MASK)
        return mask_text(text)[0]

    return hidden


_PATH_VARIABLES = frozenset(
    {"APPDATA", "HOME", "LOCALAPPDATA", "LOGNAME", "PATH", "PWD", "TEMP", "TMPDIR", "USER"}
    | {"USERNAME", "USERPROFILE"}
)


_MAX_QUOTED_DIGITS = 50  # characters


class UnreadableJson(ValueError):
    """What came is no JSON that could be passed on; the message says why, without a full stop."""


def encode_message(message: JSON) -> bytes:
    """In ASCII: half a character is no UTF-8, and can be said all the same."""
    try:
        text = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            "The arguments cannot be sent: they hold NaN or Infinity, which are no JSON, or are nested too deep."
        ) from error
    return text.encode("ascii")


def parse_message(text: bytes | str) -> Any:
    """Raises Unreadable, also for numbers that Python knows and JSON does not."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_parse_finite)
    except UnreadableJson:
        raise
    except json.JSONDecodeError as error:
        raise UnreadableJson(str(error)) from error
    except UnicodeDecodeError as error:
        raise UnreadableJson("it is not encoded in UTF-8") from error
    except RecursionError as error:
        raise UnreadableJson("it is nested too deep") from error
    except ValueError as error:
        digits = f"{sys.get_int_max_str_digits():,}"
        raise UnreadableJson(f"it holds a number of more than {digits} digits") from error


def _refuse_constant(name: str) -> float:
    raise UnreadableJson(f"{name} is no number of JSON")


def _parse_finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):  # we could not write it again
        short = digits if len(digits) <= _MAX_QUOTED_DIGITS else digits[:_MAX_QUOTED_DIGITS] + "…"
        raise UnreadableJson(f"{escape_name(short)} is too large for a number")
    return number


METHOD_NOT_FOUND = -32601
_MAX_PROGRESS_REPORTS = 100  # of one call, while its client does not listen
_MAX_PROGRESS_AMOUNT = 1e300  # of progress; not every reader knows larger numbers

Progress = tuple[float, float | None, str | None]


class UpstreamCall:
    """One request, and the progress that the server reports on it."""

    def __init__(self, call_id: int, method: str, params: Mapping[str, Any], report: Report | None = None) -> None:
        """Raise InvalidInput for values that JSON does not have."""
        if report is not None:
            meta = {**cast(JSON, params.get("_meta") or {}), "progressToken": call_id}
            params = {**params, "_meta": meta}
        self.id = call_id
        self.method = method
        self.body = encode_message({"id": call_id, "method": method, "params": params})
        self.answer: asyncio.Future[JSON] | None = None
        self.report = report
        self._progress: deque[Progress] = deque(maxlen=_MAX_PROGRESS_REPORTS)
        self._news = asyncio.Event()

    def add_progress(self, progress: Progress) -> None:
        self._progress.append(progress)
        self._news.set()

    def wake(self, answer: asyncio.Future[JSON]) -> None:
        """Wake the caller. It may be cancelled before it looks, so the failure is read here."""
        if not answer.cancelled():
            answer.exception()
        self._news.set()

    async def wait_answer(self) -> JSON:
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
        self.calls: dict[int, UpstreamCall] = {}
        self._tools_changed = tools_changed
        self._reply = reply

    def handle(self, message: JSON) -> bool:
        """Handle a request or a notification of the server; return False for any other message."""
        method, params = message.get("method"), message.get("params")
        if not isinstance(method, str):
            return False
        named = cast(JSON, params) if isinstance(params, dict) else {}
        if "id" in message:
            self._reply({"id": message["id"], **_build_reply(method)})
        elif method == "notifications/progress":
            self._handle_progress(named)
        elif method == "notifications/tools/list_changed":
            self._tools_changed()
        return True

    def _handle_progress(self, params: JSON) -> None:
        call = self.calls.get(parse_id(params.get("progressToken")) or 0)
        done, message = _parse_amount(params.get("progress")), params.get("message")
        if call is not None and done is not None:
            text = message if isinstance(message, str) else None
            call.add_progress((done, _parse_amount(params.get("total")), text))


def _build_reply(method: str) -> JSON:
    if method == "ping":
        return {"result": {}}
    refusal = f"Method not found: {_quote(method)}"
    return {"error": {"code": METHOD_NOT_FOUND, "message": refusal}}


def parse_id(value: Any) -> int | None:
    """Return an id, also if the server wrote it as text; True is not 1."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _parse_amount(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < _MAX_PROGRESS_AMOUNT else None


COMPLETE = "complete"

_MAX_QUOTED_CHARACTERS = 200  # characters of what a server wrote
_MAX_DATA_BYTES = 4096  # bytes of JSON that an error may bring along

# Others of the protocol's keys are about the result: that of a task that it belongs to, say.
_STATELESS_META_KEYS = frozenset(
    META_PREFIX + key
    for key in ("clientCapabilities", "clientInfo", "logLevel", "protocolVersion", "serverInfo", "subscriptionId")
)


def get_result(message: JSON, upstream: str) -> JSON:
    """The result of an answer; UpstreamError in the server's own words where it is an error."""
    error, result = message.get("error"), message.get("result")
    if error is not None:
        raise _to_upstream_error(error, upstream)
    if isinstance(result, dict):
        return cast(JSON, result)
    wrong = "an answer without a result" if result is None else "a result that is no object"
    raise UpstreamError(f"{upstream} gave {wrong}.", upstream=upstream)


def _to_upstream_error(error: Any, upstream: str) -> UpstreamError:
    body = cast(JSON, error) if isinstance(error, dict) else {"message": error}
    said, code = body.get("message"), body.get("code")
    is_number = isinstance(code, int) and not isinstance(code, bool)
    return UpstreamError(
        said if isinstance(said, str) and said.strip() else f"error {_quote(str(body))}",
        upstream=upstream,
        upstream_code=code if is_number else None,
        upstream_data=body.get("data") if _is_small(body.get("data")) else None,
    )


def _is_small(data: Any) -> bool:
    try:
        return len(json.dumps(data)) <= _MAX_DATA_BYTES
    except RecursionError:
        return False


def _quote(text: str) -> str:
    return escape_name(text if len(text) <= _MAX_QUOTED_CHARACTERS else text[:_MAX_QUOTED_CHARACTERS] + "…")


def strip_stateless_fields(result: JSON, upstream: str) -> JSON:
    """The result without what the stateless era adds to it; all else as it came."""
    kind = result.get("resultType", COMPLETE)
    if kind != COMPLETE:
        wanted = _quote(repr(kind))
        raise UpstreamError(
            f"It wants more before it answers ({wanted}), and a gateway has nothing to give.", upstream=upstream
        )
    kept = {key: value for key, value in result.items() if key != "resultType"}
    meta = kept.get("_meta")
    if isinstance(meta, dict):
        named = cast(dict[str, Any], meta)
        others = {key: value for key, value in named.items() if key not in _STATELESS_META_KEYS}
        if len(others) < len(named):
            kept["_meta"] = others
            if not others:
                del kept["_meta"]
    return kept
