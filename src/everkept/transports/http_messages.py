"""Messages of JSON-RPC in the body of a request and in the events of a stream."""

from typing import Any, NamedTuple, cast

from everkept.core.json_encoder import encode_small
from everkept.transports.connection import JSON
from everkept.transports.dispatch import INVALID_REQUEST, ProtocolError


class Call(NamedTuple):
    """A request of the client."""

    id: str | int
    method: str
    params: JSON


class Notification(NamedTuple):
    """A message of the client that is not answered."""

    method: str
    params: JSON


class ClientAnswer(NamedTuple):
    """What the client answers to a question of the server; None if it reports an error."""

    id: object
    result: JSON | None


Incoming = Call | Notification | ClientAnswer


def parse_message(message: Any) -> Incoming:
    """Return one message; raise ProtocolError if it is not valid."""
    if not isinstance(message, dict):
        raise ProtocolError(INVALID_REQUEST, "The body must be a JSON-RPC message.")
    message = cast(JSON, message)
    if message.get("jsonrpc") != "2.0":
        raise ProtocolError(INVALID_REQUEST, '`jsonrpc` must be "2.0".')
    method, request_id = message.get("method"), message.get("id")
    if method is None and ("result" in message or "error" in message):
        result: Any = message.get("result")
        return ClientAnswer(request_id, cast(JSON, result) if isinstance(result, dict) else None)
    if not isinstance(method, str):
        raise ProtocolError(INVALID_REQUEST, "A request needs a `method`.")
    params: Any = message.get("params")
    if not isinstance(params, dict | None):
        raise ProtocolError(INVALID_REQUEST, "`params` must be an object.")
    params = cast(JSON, params or {})
    if "id" not in message:
        return Notification(method, params)
    if isinstance(request_id, bool) or not isinstance(request_id, str | int):
        raise ProtocolError(INVALID_REQUEST, "`id` must be a string or an integer.")
    return Call(request_id, method, params)


def encode_notification(method: str, params: JSON) -> bytes:
    return encode_small({"jsonrpc": "2.0", "method": method, "params": params})


def make_event(text: bytes, event_id: bytes = b"") -> bytes:
    """Return a message as an event of a stream; without an id it cannot be resumed from."""
    numbered = b"id: %b\r\n" % event_id if event_id else b""
    return b"event: message\r\n%bdata: %b\r\n\r\n" % (numbered, text)
