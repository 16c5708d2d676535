"""The sentences of a text, and the fenced blocks of code between them."""

import re
from collections.abc import Iterator

from everkept.patterns import compile_late
from everkept.values import Value

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


# A fence may stand behind the marks of quotes and lists. What follows backticks holds none itself:
# else three of them would be a piece of code within a line.
_FENCE = compile_late(
    r"^(?P<quote>(?:[ \t]{0,80}>)*)(?P<indent>[ \t]*)(?P<item>(?:[-*+]|\d{1,9}[.)])[ \t]+)?"
    r"(?:(?P<ticks>`{3,})(?P<info>[^`\n]*)|(?P<tildes>~{3,})(?P<words>[^\n]*))$",
    re.MULTILINE,
)
_QUOTE = compile_late(r"^(?:[ \t]{0,80}>)+[ ]?", re.MULTILINE)
# What a program printed, whatever it says that it is.
_OUTPUT = compile_late(
    r"(?:ansi|console|logs?|nohighlight|none|output|plain|plaintext|stderr|stdout|terminal|text|txt"
    r"|traceback|tree)(?:\s|$)",
    re.IGNORECASE,
)


class Block(Value):
    """Code as it was shown; `info` is what stood behind the opening fence."""

    info: str
    text: str

    @property
    def is_output(self) -> bool:
        return bool(_OUTPUT.match(self.info))


def has_block(text: str) -> bool:
    """Tell at once whether a text has fences, as looking for a whole block takes far longer."""
    return "```" in text or "~~~" in text


def blocks(text: str) -> list[Block]:
    """Those that hold anything, in order; the last one may be without its end."""
    if not has_block(text):
        return []
    found: list[Block] = []
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opening is None:
            opening = fence
        elif _closes(fence, opening):
            _add(found, opening, text[opening.end() : fence.start()])
            opening = None
    if opening is not None:
        _add(found, opening, text[opening.end() :])
    return found


def without_blocks(text: str) -> str:
    """What was said around the blocks."""
    if not has_block(text):
        return text
    kept: list[str] = []
    opening: re.Match[str] | None = None
    start = 0
    for fence in _FENCE.finditer(text):
        if opening is None:
            opening = fence
            kept.append(text[start : fence.start()])
        elif _closes(fence, opening):
            opening, start = None, fence.end()
    if opening is None:
        kept.append(text[start:])
    return "\n".join(kept)


def _closes(fence: re.Match[str], opening: re.Match[str]) -> bool:
    sign, began = _sign(fence), _sign(opening)
    after = fence["info"] or fence["words"] or ""
    return (
        sign[0] == began[0] and len(sign) >= len(began) and not after.strip() and not fence["item"]
    )


def _sign(fence: re.Match[str]) -> str:
    return fence["ticks"] or fence["tildes"]


def _add(found: list[Block], opening: re.Match[str], body: str) -> None:
    body = body.removeprefix("\n")
    if opening["quote"]:
        body = _QUOTE.sub("", body)
    width = len(opening["indent"].expandtabs(4)) + len(opening["item"] or "")
    lines = [_outdented(line, width) for line in body.split("\n")]
    code = "\n".join(lines).strip("\n").rstrip()
    if code.strip():
        found.append(Block((opening["info"] or opening["words"] or "").strip(), code))


def _outdented(line: str, width: int) -> str:
    """Without the blanks that only say how deep the block stands in a list."""
    removed = 0
    while removed < width and line[:1] in (" ", "\t"):
        removed += 4 if line[0] == "\t" else 1
        line = line[1:]
    return line
