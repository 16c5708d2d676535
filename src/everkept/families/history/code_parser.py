"""What tree-sitter finds in code, also if people show it with gaps, prompts and cut ends."""

import re
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from time import thread_time
from typing import TYPE_CHECKING

from everkept.families.history.code_languages import GRAMMARS, Grammar, detect_language
from everkept.values import Value

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Point, Query

MAX_LINE_CHARACTERS = 2_000  # characters; a longer one is packed code or data, and its names say nothing

PORTION_CHARACTERS = 1_000  # characters that are looked at together
MIN_WORD_SHARE = 0.15  # the part of a portion that letters and digits take; in code it is half
MAX_BRACKET_DEPTH = 100  # brackets inside brackets that are closed

# Where a patch says which file comes: git's, and that of editing tools.
_PATCH_FILE = re.compile(r"(?:\+\+\+ (?:b/)?|\*\*\* (?:Add|Update) File: )([^\t\n]+)")
_PATCH_HEADER = re.compile(
    r"diff --git |index [0-9a-f]{4,}|--- |\+\+\+ |@@|\*\*\* |\\ No newline"
    r"|(?:new|deleted) file mode|(?:old|new) mode|similarity index|rename (?:from|to) "
)
_PATCH_START = re.compile(r"^(?:diff --git |@@ .*@@|\+\+\+ |\*\*\* (?:Add|Update) File: )", re.M)
_PROMPT = re.compile(r"(?:>>>|\.\.\.|In \[\d+\]:|\s+\.\.\.:)(?: |$)")
_PROMPT_START = re.compile(r"^(?:>>> |In \[\d+\]: )", re.M)
_CONTINUATION_STARTS = frozenset(("", " ", "\t", ")", "]", "}"))  # how a line begins that goes on with another
_NON_WORD = re.compile(r"[\W_]+")
# "..." for what is left out, alone or with a word about it.
_GAP = re.compile(r"^([ \t]*)(?:\.\.\.|…)(?:[ \t].*)?$", re.M)


class CodeFragment(Value):
    """Text in one language, as far as is known."""

    text: str
    language: str | None


def split_fragments(text: str, language: str | None) -> Iterator[CodeFragment]:
    """What a text shows: of a patch each file as it is afterwards, else the whole."""
    readable = text.replace("\0", " ")
    short = "\n".join(line for line in readable.split("\n") if len(line) <= MAX_LINE_CHARACTERS)
    wordy = [each.text for each in split_pieces(short, PORTION_CHARACTERS) if _has_words(each.text)]
    lines = "\n".join(wordy).split("\n")
    parts = _apply_patch(lines, language) if _is_patch(text, lines, language) else [(lines, language)]
    for shown, spoken in parts:
        if shown:
            yield CodeFragment(_fix_gaps("\n".join(shown), spoken), spoken)


class FragmentPiece(Value):
    """A part of a fragment. One that is continued begins inside of what the last one began."""

    text: str
    is_continued: bool = False


def split_pieces(text: str, size: int) -> Iterator[FragmentPiece]:
    """Whole lines, no more than that many characters, cut between definitions where it can be."""
    lines: list[str] = []
    length = outermost = 0
    is_continued = False
    for line in text.split("\n"):
        begins = line[:1] not in _CONTINUATION_STARTS
        while lines and (length + len(line) > size or (is_continued and begins)):
            cut = outermost or len(lines)
            yield FragmentPiece("\n".join(lines[:cut]), is_continued)
            lines = lines[cut:]
            length = sum(len(each) + 1 for each in lines)
            outermost, is_continued = 0, not lines
        if begins:
            outermost = len(lines)
            is_continued = is_continued and bool(lines)
        lines.append(line)
        length += len(line) + 1
    yield FragmentPiece("\n".join(lines), is_continued)


def _has_words(portion: str) -> bool:
    """Drawings and broken data have none, and a parser takes for ever over them."""
    dense = "".join(portion.split())
    if len(dense) < PORTION_CHARACTERS // 4:
        return True
    return len(_NON_WORD.sub("", dense)) > MIN_WORD_SHARE * len(dense)


def _is_patch(text: str, lines: list[str], language: str | None) -> bool:
    if language == "diff" or _PATCH_START.search(text):
        return True
    signs = {line[0] for line in lines if line.strip()}
    return signs <= {"+", "-", " "} and "+" in signs


def _apply_patch(lines: list[str], language: str | None) -> Iterator[tuple[list[str], str | None]]:
    spoken = None if language == "diff" else language
    shown: list[str] = []
    for line in lines:
        if named := _PATCH_FILE.match(line):
            yield shown, spoken
            shown = []
            spoken = detect_language(None, named[1].strip()) or spoken
        elif _PATCH_HEADER.match(line):
            shown.append("")
        elif not line.startswith("-"):
            shown.append(line[1:] if line.startswith(("+", " ")) else line)
    yield shown, spoken


def _fix_gaps(text: str, language: str | None) -> str:
    if language != "python":
        return _GAP.sub(r"\1", text)
    if _PROMPT_START.search(text):
        typed = (line for line in text.split("\n") if _PROMPT.match(line))
        return "\n".join(_PROMPT.sub("", line, count=1) for line in typed)
    return _GAP.sub(r"\1...", text)


_CLOSING = {"(": ")", "[": "]", "{": "}"}
# Brackets, and what brackets may stand in without being any. In some languages a single quote
# begins other things than a string, so only one character's worth of it counts.
_BRACKETS = re.compile(r"""[()\[\]{}]|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'|`[^`]*`|//[^\n]*|/\*.*?(?:\*/|\Z)""", re.S)


def find_missing_brackets(text: str) -> str:
    """The brackets that close what a text that breaks off has left open."""
    opened: list[str] = []
    for piece in _BRACKETS.findall(text):
        if piece in _CLOSING:
            opened.append(_CLOSING[piece])
        elif opened and piece == opened[-1]:
            opened.pop()
    return "".join(reversed(opened[-MAX_BRACKET_DEPTH:]))


MAX_CAPTURE_BYTES = 2_000  # bytes of a capture
# To recover from errors a parser takes the square of their number, in time and in memory, and
# nothing stops it but a text that ends. So it gets pieces of this many characters, whose square is
# small, and no more of one than there is time for.
MAX_PIECE_CHARACTERS = 10_000
PARSE_SECONDS = 0.2  # seconds of this thread; a piece of real code takes a hundredth of them
MAX_ERRORS = 400  # of a piece that is worth a second look
READ_BYTES = 256
MAX_ACTIVE_MATCHES = 10_000  # matches in progress

_ERROR_QUERY = "\n(ERROR) @error\n(MISSING) @missing\n"
_ERROR_COSTS = {"error": 2, "missing": 1}  # a bracket too few is the lesser evil


class CapturedSpan(Value):
    """A captured piece of the text."""

    text: str
    start: int
    end: int


class ParsedCode(Value):
    """The matches of the query, each a span by its capture's name.

    `is_wrapped` where a class had to be written around the text for it to be understood. `end` is
    that of the text itself, before what was added for it to be complete.
    """

    found: list[Mapping[str, CapturedSpan]]
    errors: int = 0
    is_wrapped: bool = False
    end: int = 0


def parse_code(text: str, language: str | None) -> ParsedCode:
    """As the grammar reads it that understands it best; nothing where there is none."""
    best: ParsedCode | None = None
    until = thread_time() + PARSE_SECONDS
    for way in _iter_attempts(text, GRAMMARS.get(language or "", ())):
        reading = _parse_attempt(way, until)
        if reading is not None and (best is None or reading.errors < best.errors):
            best = reading
        is_worth_more = best is None or 0 < best.errors <= MAX_ERRORS
        if not is_worth_more or thread_time() > until:
            break
    return best or ParsedCode([])


class _ParseAttempt(Value):
    """How a text may be read, with what has to stand around it."""

    grammar: Grammar
    text: str
    before: str = ""
    after: str = ""


def _iter_attempts(text: str, grammars: tuple[Grammar, ...]) -> Iterator[_ParseAttempt]:
    for grammar in grammars:
        yield _ParseAttempt(grammar, text)
    end = find_missing_brackets(text)
    for grammar in grammars:
        if end:
            yield _ParseAttempt(grammar, text, after=f"\n{end}")
    for grammar in grammars:
        if grammar.around:
            before, after = grammar.around
            yield _ParseAttempt(grammar, text, before, f"\n{end}{after}")


def _parse_attempt(way: _ParseAttempt, until: float) -> ParsedCode | None:
    loaded = _load_grammar(way.grammar)
    if loaded is None:
        return None
    source = f"{way.before}{way.text}{way.after}".encode("utf-8", "replace")
    matches = _find_matches(_parse_tree(source, loaded.language, until), loaded.query)
    found = [_build_spans(nodes, source) for nodes in matches if not nodes.keys() & _ERROR_COSTS]
    errors = sum(_ERROR_COSTS.get(name, 0) for nodes in matches for name in nodes)
    end = len(f"{way.before}{way.text.rstrip()}".encode("utf-8", "replace"))
    return ParsedCode(found, errors, bool(way.before), end)


def _parse_tree(source: bytes, language: "Language", until: float) -> "Node":
    """The tree of as much of the text as there is time for."""
    from tree_sitter import Parser

    end = 0

    def read(offset: int, _point: "Point") -> bytearray:
        nonlocal end
        # What was given once is given again, so that the text seems to end there.
        if thread_time() <= until:
            end = max(end, offset + READ_BYTES)
        return _BUFFERS.fill(source[offset : min(offset + READ_BYTES, end)])

    return Parser(language).parse(read).root_node


class _ParserBuffers(threading.local):
    """Where the parser sees a piece of text until it asks for the next one.

    The binding never lets go of what it is given, so it gets the same few arrays again and again.
    """

    def __init__(self) -> None:
        self._by_length: dict[int, bytearray] = {}

    def fill(self, piece: bytes) -> bytearray:
        window = self._by_length.setdefault(len(piece), bytearray(len(piece)))
        window[:] = piece
        return window


_BUFFERS = _ParserBuffers()


def _find_matches(root: "Node", query: "Query") -> "list[dict[str, list[Node]]]":
    from tree_sitter import QueryCursor

    return [nodes for _, nodes in QueryCursor(query, match_limit=MAX_ACTIVE_MATCHES).matches(root)]


def _build_spans(nodes: Mapping[str, "list[Node]"], source: bytes) -> Mapping[str, CapturedSpan]:
    return {name: _build_span(captured[0], source) for name, captured in nodes.items()}


def _build_span(node: "Node", source: bytes) -> CapturedSpan:
    start, end = node.start_byte, node.end_byte
    name = source[start : min(end, start + MAX_CAPTURE_BYTES)]
    return CapturedSpan(name.decode("utf-8", "replace"), start, end)


class _LoadedGrammar(Value):
    language: "Language"
    query: "Query"


@cache
def _load_grammar(grammar: Grammar) -> _LoadedGrammar | None:
    """None where it is not installed, or is of a version that the query does not fit."""
    try:
        from tree_sitter import Language, Query

        language = Language(grammar.load())
        return _LoadedGrammar(language, Query(language, grammar.query + _ERROR_QUERY))
    except (ImportError, ValueError):
        return None
