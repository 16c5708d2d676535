"""Encoding and decoding of SurrealDB's protocol messages.

The import takes half a second, including its dependencies.
"""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import files
from typing import Any, cast

from surrealdb.cbor import CBOREncodeError
from surrealdb.data.cbor import decode, encode

from everkept.errors import InvalidInput

DIALECT_PROBE = "RETURN type::record('a', 'b')"  # the function takes two arguments only from version 3 on


_PARTS_FILE = ".cyclonedx.json"
_CORE = "surrealdb-core"


def read_engine_version() -> str:
    """Return the version of the embedded engine, or an empty text. The engine itself reports that of its package."""
    listed = next((path for path in files("surrealdb") or () if path.name.endswith(_PARTS_FILE)), None)
    if listed is None:
        return ""
    try:
        parts = json.loads(listed.read_text(encoding="utf-8"))["components"]
        return next((str(part["version"]) for part in parts if part["name"] == _CORE), "")
    except (OSError, ValueError, KeyError, TypeError):
        return ""


class UnreadableMessage(Exception):
    """The bytes are not a message of the protocol."""


def encode_request(number: int, method: str, params: Sequence[Any]) -> bytes:
    try:
        return encode({"id": str(number), "method": method, "params": list(params)})
    except (CBOREncodeError, BufferError, OverflowError, RecursionError, ValueError) as error:
        raise InvalidInput("A value cannot be sent to SurrealDB.", hint="Use another value.") from error


def decode_answer(frame: bytes) -> Mapping[str, Any]:
    try:
        answer: Any = decode(frame)
    except Exception as error:  # invalid bytes can raise any error
        raise UnreadableMessage from error
    if not isinstance(answer, dict):
        raise UnreadableMessage
    return cast(Mapping[str, Any], answer)


def is_modern(answer: Mapping[str, Any]) -> bool:
    """Return whether DIALECT_PROBE succeeded."""
    told = answer.get("result")
    statements = cast(list[Any], told) if isinstance(told, list) else []
    first = statements[0] if statements else None
    return isinstance(first, dict) and cast(Mapping[str, Any], first).get("status") == "OK"
