"""The bytes of a bank's file as text: its encoding, how it is shown, and warnings about it."""

import asyncio
import codecs
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from everkept.core.secrets import masked
from everkept.errors import InvalidInput, Refused, visible
from everkept.families.bank.markdown_sections import left_open
from everkept.tools.tool import Warned
from everkept.values import Value

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


_LINE_END = re.compile(rb"\r\n|\r|\n")


class Lines(Value):
    """Some lines of a file, the first and the last of them by number, and how many it has."""

    data: bytes
    first: int
    last: int
    total: int


def shown(data: bytes) -> str:
    """What cannot be decoded becomes U+FFFD; all else stays, the mark of UTF-8 included."""
    return as_utf8(data).decode("utf-8", "replace")


def picked(name: str, data: bytes, start: int | None, end: int | None) -> Lines:
    """From the line `start` to the line `end`, both included; an end beyond the last is fine.

    Line feeds and carriage returns end a line, as everywhere.
    """
    ends = data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
    total = ends + (not data.endswith((b"\n", b"\r")) and bool(data))
    first, last = start or 1, total if end is None else min(end, total)
    if end is not None and end < first:
        raise InvalidInput(
            f"`endLine` is {end}, which is before `startLine`, {first}.", argument="endLine"
        )
    if first > max(total, 1):
        raise InvalidInput(
            f"`startLine` is {first}; {visible(name)} has {total} lines.",
            argument="startLine",
            lines=total,
        )
    begin = _after_lines(data, 0, first - 1)
    return Lines(data[begin : _after_lines(data, begin, last - first + 1)], first, last, total)


def _after_lines(data: bytes, at: int, count: int) -> int:
    """Where the line begins that comes so many lines after the one that begins at `at`."""
    if not count:
        return at
    found = next(islice(_LINE_END.finditer(data, at), count - 1, None), None)
    return len(data) if found is None else found.end()


def edit_warnings(texts: Mapping[str, str]) -> list[Warned]:
    """About files by their names: what is no UTF-8 in them, and what nobody closed."""
    found: list[Warned] = []
    for name, text in texts.items():
        if warning := decoding_warning(name, as_bytes(text)):
            found.append(warning)
        if opened := left_open(text):
            message = f"{name}: {opened}, and hides what follows where it is shown. Close it."
            found.append(Warned("left_open", message))
    return found


_AT_ONCE = 200_000  # characters; others have their turn between two such stretches


async def scan_warnings(texts: Mapping[str, str]) -> list[Warned] | None:
    """By the names of the files that the texts were written to."""
    found: list[Warned] = []
    for name, text in texts.items():
        kinds: dict[str, None] = {}
        for stretch in _stretches(text):
            kinds |= dict.fromkeys(masked(stretch)[1])
            await asyncio.sleep(0)
        if kinds:
            message = f"{name} holds what looks like a secret ({', '.join(kinds)}); it was kept."
            found.append(Warned("secret_in_file", message))
    return found or None


def _stretches(text: str) -> Iterator[str]:
    """Cut between lines where there are any."""
    at = 0
    while at < len(text):
        end = text.rfind("\n", at, at + _AT_ONCE) + 1
        if end <= at or at + _AT_ONCE >= len(text):
            end = at + _AT_ONCE
        yield text[at:end]
        at = end


def with_warnings(sentence: str, warnings: Iterable[Warned] | None) -> str:
    return "\n".join([sentence, *(f"Warning: {warned.message}" for warned in warnings or ())])
