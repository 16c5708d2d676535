"""A line of JSON as the record it means, whatever is in it."""

import json
import re
from collections.abc import Mapping
from typing import Any, cast

BROKEN = "broken line"
WRONG_SHAPE = "wrong shape"
TOO_LONG = "line too long"

_BLANK = b" \t\r\n\0"  # zeros are what a crash leaves where nothing was written yet
_BOM = b"\xef\xbb\xbf"
# An object for every three bytes would take a hundred times the line's size.
_LONG = 256 * 1024
_MOST_PARTS = 500_000
# Half characters, and control characters: escapes that may mean them.
_UNCLEAN = re.compile(rb"\\u00[01]|\\u[dD][89a-fA-F]|\\[bf]|\x7f")
_COLOURS = re.compile("\x1b\\[[0-?]{0,40}[ -/]?[@-~]")  # of terminals
_CONTROL = {code: None for code in (*range(32), 127) if chr(code) not in "\t\n\r"}


class NoRecord(Exception):
    """A line that holds no record; `reason` is what it is counted as."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def record_of(line: bytes | None) -> Mapping[str, Any] | None:
    """The object; None for a blank line. Texts in it can be stored anywhere.

    A line that is None was too long to be held. Raises NoRecord.
    """
    if line is None:
        raise NoRecord(TOO_LONG)
    data = line.strip(_BLANK).removeprefix(_BOM)
    if not data:
        return None
    if len(data) > _LONG and data.count(b",") + data.count(b"{") + data.count(b"[") > _MOST_PARTS:
        raise NoRecord(TOO_LONG)
    try:
        value = json.loads(data.decode("utf-8", errors="replace"))
        if _UNCLEAN.search(data):
            value = _cleaned(value)
    except (ValueError, RecursionError):
        raise NoRecord(BROKEN) from None
    if not isinstance(value, dict):
        raise NoRecord(WRONG_SHAPE)
    return cast(Mapping[str, Any], value)


def value_in(text: str) -> Any:
    """What a text inside a record means, where it is JSON itself; else None."""
    try:
        return _cleaned(json.loads(text))
    except (ValueError, RecursionError):
        return None


def storable(raw: bytes) -> str:
    """The text of a file, without what no text should hold."""
    return _visible(raw.decode("utf-8-sig", "replace"))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return _visible(value).encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_cleaned(part) for part in cast(list[Any], value)]
    if isinstance(value, dict):
        parts = cast(dict[str, Any], value)
        return {_cleaned(name): _cleaned(part) for name, part in parts.items()}
    return value


def _visible(text: str) -> str:
    return (_COLOURS.sub("", text) if "\x1b" in text else text).translate(_CONTROL)
