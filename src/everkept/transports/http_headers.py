"""What the headers of a request must say, on their own and in agreement with its body."""

from collections.abc import Mapping
from typing import Any, cast

from everkept.core.protocol import STATELESS_VERSION
from everkept.transports.asgi import PLAIN_JSON, Message, Refusal, Rejected
from everkept.transports.connection import JSON
from everkept.transports.dispatch import (
    CLIENT_CAPABILITIES,
    INVALID_PARAMS,
    PROTOCOL_VERSION,
    UNSUPPORTED_VERSION,
    ProtocolError,
)
from everkept.transports.parameter_headers import (
    ParameterHeader,
    decode_value,
    find_mismatch,
)

VERSION, METHOD, NAME = "mcp-protocol-version", "mcp-method", "mcp-name"
EVENT_STREAM = "text/event-stream"

HEADER_MISMATCH = -32020

# The parameter that `Mcp-Name` repeats, by the methods that have one.
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def check_accept(headers: Mapping[str, str], *wanted: str) -> None:
    """Raise Rejected unless the client takes each of these content types."""
    accepted = {
        part.partition(";")[0].strip().lower() for part in headers.get("accept", "").split(",")
    }
    for kind in wanted:
        if not accepted & {kind, kind.partition("/")[0] + "/*", "*/*"}:
            raise Rejected(Refusal(406, f"The client must accept {' and '.join(wanted)}."))


def check_content_type(headers: Mapping[str, str]) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != PLAIN_JSON:
        raise Rejected(Refusal(415, f"Content-Type must be {PLAIN_JSON}."))


def check_envelope(scope: Message, headers: Mapping[str, str], method: str, params: JSON) -> None:
    """Raise ProtocolError unless a stateless request has its `_meta` and headers that agree."""
    meta: Any = params.get("_meta")
    meta = cast(JSON, meta) if isinstance(meta, dict) else {}
    if missing := [key for key in (PROTOCOL_VERSION, CLIENT_CAPABILITIES) if key not in meta]:
        raise ProtocolError(INVALID_PARAMS, f"`params._meta` lacks {', '.join(missing)}.")
    for header in find_repeated_headers(scope) & {VERSION, METHOD, NAME}:
        raise _mismatch(f"The header {header} appears more than once.")
    version = headers.get(VERSION)
    if version is None or version != meta[PROTOCOL_VERSION]:
        raise _mismatch(f"The header {VERSION} does not agree with `{PROTOCOL_VERSION}`.")
    if headers.get(METHOD) != method:
        raise _mismatch(f"The header {METHOD} does not agree with the method.")
    named = params.get(_NAMED[method]) if method in _NAMED else None
    if named is not None and decode_value(headers.get(NAME, "")) != named:
        raise _mismatch(f"The header {NAME} does not agree with `{_NAMED[method]}`.")
    check_version(version)


def check_version(version: str) -> None:
    if version != STATELESS_VERSION:
        raise ProtocolError(
            UNSUPPORTED_VERSION,
            "Unsupported protocol version",
            {"supported": [STATELESS_VERSION], "requested": version},
        )


def check_parameters(
    scope: Message,
    headers: Mapping[str, str],
    declared: tuple[ParameterHeader, ...],
    arguments: JSON,
) -> None:
    """Raise ProtocolError if a header and the argument that it repeats do not agree."""
    mismatch = find_mismatch(declared, arguments, headers, find_repeated_headers(scope))
    if mismatch is not None:
        raise _mismatch(mismatch)


def find_repeated_headers(scope: Message) -> set[str]:
    seen: set[bytes] = set()
    repeated: set[str] = set()
    for name, _ in scope["headers"]:
        if name in seen:
            repeated.add(name.decode("latin-1"))
        seen.add(name)
    return repeated


def _mismatch(sentence: str) -> ProtocolError:
    return ProtocolError(HEADER_MISMATCH, sentence)
