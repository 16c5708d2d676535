"""What the server and the gateway's client share of MCP: constants, JSON, and lines of bytes."""

import json
from typing import Any

from everkept.patterns import compile_late
from everkept.values import Value

# Revisions that begin with a handshake, the oldest first, and the one that needs none.
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_VERSION = "2026-07-28"

META = "io.modelcontextprotocol/"  # how the protocol's own keys in `_meta` begin
MESSAGE_LIMIT = 16 * 1024 * 1024  # bytes of one message, on every transport


_STANDARD = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_ESCAPING = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def encode(value: Any) -> str:
    """Return the JSON text of plain values; raise ValueError if NaN or Infinity is among them."""
    return encode_utf8(value).decode()


def encode_utf8(value: Any) -> bytes:
    """Return the same text as bytes."""
    import orjson  # takes milliseconds to load, and neither a start nor a hook needs it

    try:
        data = orjson.dumps(value)
    except TypeError:  # an unpaired surrogate, an integer over 64 bits, or a very deep value
        return encode_small(value)
    if not isinstance(value, str) and _has_null(data):
        _STANDARD.encode(value)  # refuses NaN, which orjson writes as null
    return data


def encode_small(value: Any) -> bytes:
    """Return the same text by the standard library, which is loaded anyway."""
    try:
        return _STANDARD.encode(value).encode()
    except UnicodeEncodeError:  # an unpaired surrogate, which only an escape can express
        return _ESCAPING.encode(value).encode()


def _has_null(data: bytes) -> bool:
    """Whether a value is null, or a text seems to have one. A pattern takes 20 ms a megabyte."""
    place = data.find(b"null")
    while place > 0 and data[place - 1] not in b"[:,":
        place = data.find(b"null", place + 4)
    return place >= 0


_KEPT = 4096  # bytes of either end of a line that is too long
_TAIL = 400  # bytes at the end of a line that an id is looked for in

# The id of a message that cannot be read as a whole, where the usual writers put it.
_ID = rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{0,200}")\s*'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_ID_AT_HEAD = compile_late(rb"\s*\{\s*(?:" + _VERSION + rb",\s*)?" + _ID + rb",")
_ID_AT_TAIL = compile_late(_ID + rb"(?:,\s*" + _VERSION + rb")?\}\s*$")


class Overlong(Value):
    """A line that was dropped because it is too long; its ends may tell what it was."""

    head: bytes
    tail: bytes


class Lines:
    """Takes bytes in any pieces, and gives whole lines without their ends."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head: bytes | None = None  # of the line that is being dropped

    def feed(self, data: bytes) -> list[bytes | Overlong]:
        *ended, rest = data.split(b"\n")
        lines: list[bytes | Overlong] = []
        for piece in ended:
            self._add(piece)
            lines.append(self._taken())
        self._add(rest)
        return lines

    def rest(self) -> bytes:
        """What came after the last end of a line."""
        return b"".join(self._parts)

    def _add(self, piece: bytes) -> None:
        if not piece:
            return
        self._parts.append(piece)
        self._size += len(piece)
        if self._size <= self._limit:
            return
        whole = b"".join(self._parts)
        if self._head is None:
            self._head = whole[:_KEPT]
        self._parts = [whole[-_KEPT:]]

    def _taken(self) -> bytes | Overlong:
        whole, head = b"".join(self._parts), self._head
        self._parts, self._size, self._head = [], 0, None
        return whole if head is None else Overlong(head, whole)


def id_in(head: bytes, tail: bytes) -> str | int | None:
    """The id of a message of which only the ends are known; None where they do not tell."""
    if not head.lstrip().startswith(b"{"):
        return None
    found = _ID_AT_HEAD.match(head) or _ID_AT_TAIL.search(tail[-_TAIL:])
    try:
        return None if found is None else json.loads(found[1])
    except ValueError:  # a text that is none
        return None
