"""The messages of SurrealDB's protocol, in bytes.

Importing this costs half a second, with all that it needs.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from surrealdb.cbor import CBOREncodeError
from surrealdb.data.cbor import decode, encode

from everkept.errors import InvalidInput

DIALECT_PROBE = "RETURN type::record('a', 'b')"  # no function of two arguments before version 3


class UnreadableMessage(Exception):
    """These bytes are no message of the protocol."""


def encode_request(number: int, method: str, params: Sequence[Any]) -> bytes:
    try:
        return encode({"id": str(number), "method": method, "params": list(params)})
    except (CBOREncodeError, BufferError, OverflowError, RecursionError, ValueError) as error:
        raise InvalidInput("A value cannot be sent to SurrealDB.", hint="Change it.") from error


def decode_answer(frame: bytes) -> Mapping[str, Any]:
    try:
        answer: Any = decode(frame)
    except Exception as error:  # whatever bytes from outside made of it
        raise UnreadableMessage from error
    if not isinstance(answer, dict):
        raise UnreadableMessage
    return cast(Mapping[str, Any], answer)


def is_modern(answer: Mapping[str, Any]) -> bool:
    """Whether the probe worked."""
    told = answer.get("result")
    statements = cast(list[Any], told) if isinstance(told, list) else []
    first = statements[0] if statements else None
    return isinstance(first, dict) and cast(Mapping[str, Any], first).get("status") == "OK"
