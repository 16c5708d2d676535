"""In which encoding a file is: UTF-8, another that its first bytes tell, or nothing to edit."""

import codecs
import re

from everkept.errors import Refused, visible
from everkept.tools.tool import Warned

# Those of UTF-32 first: the one of UTF-16 is how one of them begins.
_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
_UNDECODED = re.compile("[\udc80-\udcff]")
NOT_UTF8 = "not_utf8"


def marked_encoding(data: bytes) -> str | None:
    """What a byte order mark says, unless it is that of UTF-8."""
    return next((name for mark, name in _MARKS if data.startswith(mark)), None)


def as_utf8(data: bytes) -> bytes:
    """The same text in UTF-8, where a mark tells how to read it; else the bytes as they are."""
    encoding = marked_encoding(data)
    return data if encoding is None else data.decode(encoding, "replace").encode("utf-8", "replace")


def as_text(data: bytes) -> str:
    """Bytes that are no text survive the way there and back."""
    return data.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def presentable(text: str) -> str:
    """What came from bytes that are no text appears as U+FFFD."""
    return _UNDECODED.sub("\ufffd", text)


def check_editable(name: str, data: bytes) -> None:
    """Refused for what an edit could not keep whole; single bytes that are no UTF-8 can be kept."""
    if reason := _no_text(data):
        raise Refused(
            f"{visible(name)} was not changed: {reason}, and an edit would break it.",
            hint="Save it as UTF-8 first.",
            filename=name,
        )


def decoding_warning(name: str, data: bytes) -> Warned | None:
    """About a file that is no plain UTF-8, for who is shown its text."""
    if reason := _no_text(data):
        advice = "tools that edit refuse it until it is saved as UTF-8."
        return Warned(NOT_UTF8, f"{visible(name)}: {reason}; {advice}")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Warned(
            NOT_UTF8,
            f"{visible(name)} is not UTF-8 (first at byte {error.start}): what cannot be decoded "
            "appears as U+FFFD, and writing this text back would lose it.",
        )
    return None


def _no_text(data: bytes) -> str | None:
    if encoding := marked_encoding(data):
        return f"it is {encoding}, not UTF-8"
    return "it holds NUL bytes, as no text in UTF-8 does" if b"\0" in data else None
