"""The sentences of a text."""

import re
from collections.abc import Iterator

from everkept.patterns import compile_late

_FENCED = compile_late(r"(```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z))", re.DOTALL)
_INLINE_CODE = compile_late(r"`[^`\n]+`")
_BULLET = compile_late(r"^(?:[-*+•]|\d{1,3}[.)])\s+")
_INDENTED = compile_late(r"(?: {4}|\t)\s*\S")
# The end of a sentence, where another one begins: not in 3.11, nor in app.py, nor before a
# lower-case letter. Chinese and Japanese put no blank.
_END = compile_late(
    r"(?<=[.!?…])[\"')\]”’»]*\s+(?=[\"'(\[“‘«`]*[^\W_a-z])|(?<=[。！？])[」』”’]?\s*"
)
_ABBREVIATION = compile_late(
    r"(?:\b(?:e\.g|i\.e|etc|cf|vs|approx|no|nr|fig|dr|mr|mrs|ms|st|bzw|ca|[a-z])\.)\s*$",
    re.IGNORECASE,
)
_ABBREVIATED = 12  # characters that the longest of them takes at most


def sentences(text: str) -> list[str]:
    """In their order; a block of code is one, whatever it holds."""
    found: list[str] = []
    for number, part in enumerate(_FENCED.split(text)):
        if number % 2:
            found.append(part.strip())
        else:
            for paragraph in _paragraphs(part):
                found += _split(paragraph)
    return [sentence for sentence in found if any(c.isalnum() for c in sentence)]


def beginning(text: str, length: int) -> str:
    """So much of a text, to its last whole word."""
    return text if len(text) <= length else (text[:length].rsplit(maxsplit=1) or [""])[0]


def _paragraphs(text: str) -> Iterator[str]:
    """Lines are apart; those that are indented like code belong to the one above them."""
    block: list[str] = []
    for line in text.splitlines():
        if block and _INDENTED.match(line):
            block.append(line.rstrip())
            continue
        yield from ("\n".join(block),) if block else ()
        block = [_BULLET.sub("", line.strip(), count=1)] if line.strip() else []
    yield from ("\n".join(block),) if block else ()


def _split(paragraph: str) -> list[str]:
    if "\n" in paragraph:
        return [paragraph]
    masked = _INLINE_CODE.sub(lambda code: "x" * len(code[0]), paragraph)
    parts: list[str] = []
    start = 0
    for end in _END.finditer(masked):
        # Only its end is looked at: a text of nothing but abbreviations would take forever.
        if not _ABBREVIATION.search(masked[max(start, end.start() - _ABBREVIATED) : end.start()]):
            parts.append(paragraph[start : end.end()].strip())
            start = end.end()
    return [part for part in (*parts, paragraph[start:].strip()) if part]
