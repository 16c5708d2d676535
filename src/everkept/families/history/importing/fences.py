"""Fenced blocks in what was said."""

import re

from everkept.patterns import compile_late
from everkept.values import Value

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


def blocks(text: str) -> list[Block]:
    """Those that hold anything, in order; the last one may be without its end."""
    if "```" not in text and "~~~" not in text:
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
    if "```" not in text and "~~~" not in text:
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
