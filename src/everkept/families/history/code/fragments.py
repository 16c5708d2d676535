"""Code as people show it, with gaps, prompts and cut ends, made into what a parser reads."""

import re
from collections.abc import Iterator

from everkept.families.history.code.languages import language_of
from everkept.values import Value

LONGEST_LINE = 2_000  # characters; a longer one is packed code or data, and its names say nothing

PORTION = 1_000  # characters that are looked at together
FEWEST_WORDS = 0.15  # the part of a portion that letters and digits take; in code it is half
DEEPEST = 100  # brackets inside brackets that are closed

# Where a patch says which file comes: git's, and that of editing tools.
_FILE = re.compile(r"(?:\+\+\+ (?:b/)?|\*\*\* (?:Add|Update) File: )([^\t\n]+)")
_HEADER = re.compile(
    r"diff --git |index [0-9a-f]{4,}|--- |\+\+\+ |@@|\*\*\* |\\ No newline"
    r"|(?:new|deleted) file mode|(?:old|new) mode|similarity index|rename (?:from|to) "
)
_IS_PATCH = re.compile(r"^(?:diff --git |@@ .*@@|\+\+\+ |\*\*\* (?:Add|Update) File: )", re.M)
_PROMPT = re.compile(r"(?:>>>|\.\.\.|In \[\d+\]:|\s+\.\.\.:)(?: |$)")
_HAS_PROMPTS = re.compile(r"^(?:>>> |In \[\d+\]: )", re.M)
_INSIDE = frozenset(("", " ", "\t", ")", "]", "}"))  # how a line begins that goes on with another
_NO_WORD = re.compile(r"[\W_]+")
# "..." for what is left out, alone or with a word about it.
_GAP = re.compile(r"^([ \t]*)(?:\.\.\.|…)(?:[ \t].*)?$", re.M)


class Fragment(Value):
    """Text in one language, as far as is known."""

    text: str
    language: str | None


def fragments(text: str, language: str | None) -> Iterator[Fragment]:
    """What a text shows: of a patch each file as it is afterwards, else the whole."""
    readable = text.replace("\0", " ")
    short = "\n".join(line for line in readable.split("\n") if len(line) <= LONGEST_LINE)
    wordy = [each.text for each in pieces(short, PORTION) if _has_words(each.text)]
    lines = "\n".join(wordy).split("\n")
    parts = _patched(lines, language) if _is_patch(text, lines, language) else [(lines, language)]
    for shown, spoken in parts:
        if shown:
            yield Fragment(_mended("\n".join(shown), spoken), spoken)


class Piece(Value):
    """A part of a fragment. One that is continued begins inside of what the last one began."""

    text: str
    is_continued: bool = False


def pieces(text: str, size: int) -> Iterator[Piece]:
    """Whole lines, no more than that many characters, cut between definitions where it can be."""
    lines: list[str] = []
    length = outermost = 0
    is_continued = False
    for line in text.split("\n"):
        begins = line[:1] not in _INSIDE
        while lines and (length + len(line) > size or (is_continued and begins)):
            cut = outermost or len(lines)
            yield Piece("\n".join(lines[:cut]), is_continued)
            lines = lines[cut:]
            length = sum(len(each) + 1 for each in lines)
            outermost, is_continued = 0, not lines
        if begins:
            outermost = len(lines)
            is_continued = is_continued and bool(lines)
        lines.append(line)
        length += len(line) + 1
    yield Piece("\n".join(lines), is_continued)


def _has_words(portion: str) -> bool:
    """Drawings and broken data have none, and a parser takes for ever over them."""
    dense = "".join(portion.split())
    if len(dense) < PORTION // 4:
        return True
    return len(_NO_WORD.sub("", dense)) > FEWEST_WORDS * len(dense)


def _is_patch(text: str, lines: list[str], language: str | None) -> bool:
    if language == "diff" or _IS_PATCH.search(text):
        return True
    signs = {line[0] for line in lines if line.strip()}
    return signs <= {"+", "-", " "} and "+" in signs


def _patched(lines: list[str], language: str | None) -> Iterator[tuple[list[str], str | None]]:
    spoken = None if language == "diff" else language
    shown: list[str] = []
    for line in lines:
        if named := _FILE.match(line):
            yield shown, spoken
            shown = []
            spoken = language_of(None, named[1].strip()) or spoken
        elif _HEADER.match(line):
            shown.append("")
        elif not line.startswith("-"):
            shown.append(line[1:] if line.startswith(("+", " ")) else line)
    yield shown, spoken


def _mended(text: str, language: str | None) -> str:
    if language != "python":
        return _GAP.sub(r"\1", text)
    if _HAS_PROMPTS.search(text):
        typed = (line for line in text.split("\n") if _PROMPT.match(line))
        return "\n".join(_PROMPT.sub("", line, count=1) for line in typed)
    return _GAP.sub(r"\1...", text)


_CLOSING = {"(": ")", "[": "]", "{": "}"}
# Brackets, and what brackets may stand in without being any. In some languages a single quote
# begins other things than a string, so only one character's worth of it counts.
_BRACKETS = re.compile(
    r"""[()\[\]{}]|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'|`[^`]*`|//[^\n]*|/\*.*?(?:\*/|\Z)""", re.S
)


def missing_end(text: str) -> str:
    """The brackets that close what a text that breaks off has left open."""
    opened: list[str] = []
    for piece in _BRACKETS.findall(text):
        if piece in _CLOSING:
            opened.append(_CLOSING[piece])
        elif opened and piece == opened[-1]:
            opened.pop()
    return "".join(reversed(opened[-DEEPEST:]))
