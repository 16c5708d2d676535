"""JSON for the wire: compact, in UTF-8, and without NaN."""

import json
from typing import Any

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
