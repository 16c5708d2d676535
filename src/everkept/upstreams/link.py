"""Parts shared by all connections to servers: the link, its greeting, and JSON-RPC."""

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
    check_value_count,
)
from everkept.core.sessions import Report
from everkept.errors import InvalidInput, UpstreamError, UpstreamUnavailable, escape_name
from everkept.values import Value

EFFECT_UNKNOWN_HINT = "The outcome of the call is unknown, so it was not repeated."


class LinkEnded(Exception):
    """Raised if the connection is gone. The message is the end of a sentence about the server."""


class NotSent(LinkEnded):
    """Raised if the connection was gone before the server got the request, which may be sent again."""


class UpstreamLink(Protocol):
    """An open connection to a server that has been greeted, in the era that it speaks.

    Requests may run concurrently, from any task. Canceling a request also cancels it at the server.
    """

    async def request(self, method: str, params: Mapping[str, Any], report: Report | None = None) -> JSON:
        """Return the result unchanged. Wait without a limit: the caller sets the timeout.

        Raise UpstreamError for an error of the server, and LinkEnded if no answer will come.
        """
        ...

    async def probe(self) -> None:
        """Wait until the server has answered anything. Raise LinkEnded if no answer will come."""
        ...

    async def wait_ended(self) -> str:
        """Wait until the connection is gone, and return the reason."""
        ...


# Opens a link; one task enters and leaves it. Takes the settings, our environment, and a callback for changed tools.
# Raises UpstreamUnavailable if the server cannot be reached. The caller limits the time: a note on its CancelledError
# is the server's output so far.
Connect = Callable[[UpstreamSettings, Mapping[str, str], Callable[[], None]], AbstractAsyncContextManager[UpstreamLink]]

_CLIENT_INFO = {"name": GATEWAY_CLIENT, "version": __version__}

AskServer = Callable[[str, JSON], Awaitable[JSON]]
NotifyServer = Callable[[str, JSON], None]

ACCEPTED_VERSIONS = ("2024-10-07", *HANDSHAKE_VERSIONS)  # old servers answer with the first


class ServerGreeting(Value):
    """The answer of a server to the greeting."""

    is_stateless: bool
    tells_of_changes: bool  # of its tools


def build_stateless_meta() -> JSON:
    """Build the `_meta` of every request in the stateless era."""
    return {
        META_PREFIX + "protocolVersion": STATELESS_VERSION,
        META_PREFIX + "clientCapabilities": {},
        META_PREFIX + "clientInfo": _CLIENT_INFO,
    }


async def greet(upstream: str, ask: AskServer, notify: NotifyServer) -> ServerGreeting:
    """Do the handshake. If the server refuses it, try the stateless way."""
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
        # It speaks the older protocol, so its answer to the handshake is the real error.
        raise UpstreamUnavailable(upstream, f"refused the handshake: {refused.message}") from refused
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
    reason = f'speaks version "{versions}" of the protocol, but Everkept speaks {known}.'
    return build_setup_error(upstream, reason, "Update the server or Everkept.")


def build_setup_error(upstream: str, reason: str, hint: str) -> UpstreamUnavailable:
    """Build an error that stays until the settings of the upstream are changed."""
    return UpstreamUnavailable(upstream, reason, hint=hint, retry_possible=False)


MIN_SECRET_CHARACTERS = 6  # a shorter text is part of many words
_MASK = "[masked: variable]"

Mask = Callable[[str], str]


def fill_variables(values: Mapping[str, str], environment: Mapping[str, str], upstream: str) -> dict[str, str]:
    """Replace each `${NAME}`. Raise UpstreamUnavailable if it is not set, because an empty secret looks wrong."""

    def value_of(found: re.Match[str]) -> str:
        name = found[1]
        if name not in environment:
            hint = f"Set {name} in the environment of Everkept, and restart it."
            raise build_setup_error(upstream, f"needs the variable {name}, which is not set.", hint)
        return environment[name]

    return {key: VARIABLE.sub(value_of, value) for key, value in values.items()}


def build_mask(reach: UpstreamSettings, environment: Mapping[str, str]) -> Mask:
    """Return a function that masks filled-in values, and everything that looks like a secret, in a server's output.

    Variables that hold a path or a user name are not secrets.
    """
    values = reach.way.env if isinstance(reach.way, UpstreamProgram) else reach.way.headers
    named = {name for value in values.values() for name in VARIABLE.findall(value)}
    known = {environment[name] for name in named - _PATH_VARIABLES if name in environment}
    # The longest first, because one secret may be part of another.
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


_MAX_QUOTED_DIGITS = 50


class UnreadableJson(ValueError):
    """Raised for JSON that cannot be passed on. The message has no period."""


def encode_message(message: JSON) -> bytes:
    """Encode a message in ASCII, so that an unpaired surrogate can be sent as an escape."""
    try:
        text = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            "Cannot send the arguments: they contain NaN or Infinity, or are nested too deeply.",
            hint="Use only values that JSON has.",
        ) from error
    return text.encode("ascii")


def parse_message(text: bytes | str) -> Any:
    """Parse a message. Raise UnreadableJson, also for numbers that Python accepts and JSON does not have."""
    try:
        check_value_count(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    except ValueError as error:
        raise UnreadableJson(str(error)) from error
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_parse_finite)
    except UnreadableJson:
        raise
    except json.JSONDecodeError as error:
        raise UnreadableJson(str(error)) from error
    except UnicodeDecodeError as error:
        raise UnreadableJson("it is not encoded in UTF-8") from error
    except RecursionError as error:
        raise UnreadableJson("it is nested too deeply") from error
    except ValueError as error:
        digits = f"{sys.get_int_max_str_digits():,}"
        raise UnreadableJson(f"it contains a number of more than {digits} digits") from error


def _refuse_constant(name: str) -> float:
    raise UnreadableJson(f"{name} is not a JSON number")


def _parse_finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):  # it could not be written again
        short = digits if len(digits) <= _MAX_QUOTED_DIGITS else digits[:_MAX_QUOTED_DIGITS] + "…"
        raise UnreadableJson(f"{escape_name(short)} is too large for a number")
    return number


METHOD_NOT_FOUND = -32601
_MAX_PROGRESS_REPORTS = 100  # of one call, while its client does not read them
_MAX_PROGRESS_AMOUNT = 1e300  # not every program can read larger numbers

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
        """Wake the caller. The exception is read here, because the caller may be canceled first."""
        if not answer.cancelled():
            answer.exception()
        self._news.set()

    async def wait_answer(self) -> JSON:
        """Report progress in order, then return the answer."""
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
    """Pending calls by id. `reply` sends our answers to requests of the server."""

    def __init__(self, tools_changed: Callable[[], None], reply: Callable[[JSON], None]) -> None:
        self.calls: dict[int, UpstreamCall] = {}
        self._tools_changed = tools_changed
        self._reply = reply

    def handle(self, message: JSON) -> bool:
        """Handle a request or notification of the server. Return False for any other message."""
        method, params = message.get("method"), message.get("params")
        if not isinstance(method, str):
            return False
        named = cast(JSON, params) if isinstance(params, dict) else {}
        if "id" in message:
            refusal = {"code": METHOD_NOT_FOUND, "message": f"Method not found: {_quote(method)}"}
            answer: JSON = {"result": {}} if method == "ping" else {"error": refusal}
            self._reply({"id": message["id"], **answer})
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


def parse_id(value: Any) -> int | None:
    """Return an id, also if the server wrote it as text. True is not 1."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _parse_amount(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < _MAX_PROGRESS_AMOUNT else None


COMPLETE = "complete"

_MAX_QUOTED_CHARACTERS = 200  # of a server's text in a message
_MAX_DATA_BYTES = 4096  # of the data in an error

# The protocol's other keys belong to the result, for example that of its task.
_STATELESS_META_KEYS = frozenset(
    META_PREFIX + key
    for key in ("clientCapabilities", "clientInfo", "logLevel", "protocolVersion", "serverInfo", "subscriptionId")
)


def get_result(message: JSON, upstream: str) -> JSON:
    """Return the result of an answer. Raise UpstreamError with the server's message if it is an error."""
    error, result = message.get("error"), message.get("result")
    if error is not None:
        raise _to_upstream_error(error, upstream)
    if isinstance(result, dict):
        return cast(JSON, result)
    wrong = "an answer without a result" if result is None else "a result that is not an object"
    raise UpstreamError(f"{upstream} sent {wrong}.", upstream=upstream)


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
    """Return the result without the fields that the stateless era adds."""
    kind = result.get("resultType", COMPLETE)
    if kind != COMPLETE:
        raise UpstreamError(
            f"The server requires more input ({_quote(repr(kind))}), which the gateway cannot provide.",
            upstream=upstream,
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
