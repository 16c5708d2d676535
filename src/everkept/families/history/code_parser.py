"""Parsing of code with tree-sitter, including code with gaps, prompts and cut ends."""

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

MAX_LINE_CHARACTERS = 2_000  # a longer line is minified code or data without useful names

PORTION_CHARACTERS = 1_000  # size of the portions that are tested for words
MIN_WORD_SHARE = 0.15  # share of letters and digits in a portion; in code it is about half
MAX_BRACKET_DEPTH = 100  # nesting of brackets that are closed

# The line of a patch that names the file, in git's format and in that of editing tools.
_PATCH_FILE = re.compile(r"(?:\+\+\+ (?:b/)?|\*\*\* (?:Add|Update) File: )([^\t\n]+)")
_PATCH_HEADER = re.compile(
    r"diff --git |index [0-9a-f]{4,}|--- |\+\+\+ |@@|\*\*\* |\\ No newline"
    r"|(?:new|deleted) file mode|(?:old|new) mode|similarity index|rename (?:from|to) "
)
_PATCH_START = re.compile(r"^(?:diff --git |@@ .*@@|\+\+\+ |\*\*\* (?:Add|Update) File: )", re.M)
_PROMPT = re.compile(r"^(?:>>>|\.\.\.|In \[\d+\]:|\s+\.\.\.:)(?: |$)")
_PROMPT_START = re.compile(r"^(?:>>> |In \[\d+\]: )", re.M)
_CONTINUATION_STARTS = frozenset(("", " ", "\t", ")", "]", "}"))  # first characters of lines that continue another
_NON_WORD = re.compile(r"[\W_]+")
# "..." for omitted code, with or without a description.
_GAP = re.compile(r"^([ \t]*)(?:\.\.\.|…)(?:[ \t].*)?$", re.M)


class CodeFragment(Value):
    """Text in one language, if the language is known."""

    text: str
    language: str | None


def split_fragments(text: str, language: str | None) -> Iterator[CodeFragment]:
    """Yield the code of a text: for a patch, each file after the change, otherwise the whole text."""
    readable = text.replace("\0", " ")
    short = "\n".join(line for line in readable.split("\n") if len(line) <= MAX_LINE_CHARACTERS)
    wordy = [each.text for each in split_pieces(short, PORTION_CHARACTERS) if _has_words(each.text)]
    lines = "\n".join(wordy).split("\n")
    parts = _apply_patch(lines, language) if _is_patch(text, lines, language) else [(lines, language)]
    for shown, spoken in parts:
        if shown:
            yield CodeFragment(_fix_gaps("\n".join(shown), spoken), spoken)


class FragmentPiece(Value):
    """A part of a fragment. A continued piece begins inside the definition of the previous one."""

    text: str
    is_continued: bool = False


def split_pieces(text: str, size: int) -> Iterator[FragmentPiece]:
    """Yield whole lines of at most `size` characters, split between definitions if possible."""
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
    """Return whether a portion has words. Drawings and broken data have none, and parsing them takes very long."""
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
# Brackets, and strings and comments whose brackets do not count. In some languages a single quote does not begin a
# string, so only quotes around one character count.
_BRACKETS = re.compile(r"""[()\[\]{}]|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'|`[^`]*`|//[^\n]*|/\*.*?(?:\*/|\Z)""", re.S)


def find_missing_brackets(text: str) -> str:
    """Return the brackets that close an incomplete text."""
    opened: list[str] = []
    for piece in _BRACKETS.findall(text):
        if piece in _CLOSING:
            opened.append(_CLOSING[piece])
        elif opened and piece == opened[-1]:
            opened.pop()
    return "".join(reversed(opened[-MAX_BRACKET_DEPTH:]))


MAX_CAPTURE_BYTES = 2_000  # of one capture
# Error recovery takes time and memory quadratic in the number of errors, and only the end of the text stops the parser.
# So texts are split into pieces of this size, and the text ends when the time is over.
MAX_PIECE_CHARACTERS = 10_000
PARSE_SECONDS = 0.2  # CPU time of this thread; a piece of real code takes about 1 % of it
MAX_ERRORS = 400  # a piece with more errors is not parsed again
READ_BYTES = 256
MAX_ACTIVE_MATCHES = 10_000  # limit of the query cursor

_ERROR_QUERY = "\n(ERROR) @error\n(MISSING) @missing\n"
_ERROR_COSTS = {"error": 2, "missing": 1}  # a missing bracket is less bad


class CapturedSpan(Value):
    text: str
    start: int
    end: int


class ParsedCode(Value):
    """The matches of the query, each a mapping from capture names to spans."""

    found: list[Mapping[str, CapturedSpan]]
    errors: int = 0
    is_wrapped: bool = False  # parsed inside an added class
    end: int = 0  # of the text itself, without added brackets


def parse_code(text: str, language: str | None) -> ParsedCode:
    """Parse with the grammar that gives the fewest errors. Return no matches if the language has no grammar."""
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
    """One way to parse a text, with the code to add around it."""

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
    found: list[Mapping[str, CapturedSpan]] = [
        {name: _build_span(captured[0], source) for name, captured in nodes.items()}
        for nodes in matches
        if not nodes.keys() & _ERROR_COSTS
    ]
    errors = sum(_ERROR_COSTS.get(name, 0) for nodes in matches for name in nodes)
    end = len(f"{way.before}{way.text.rstrip()}".encode("utf-8", "replace"))
    return ParsedCode(found, errors, bool(way.before), end)


def _parse_tree(source: bytes, language: "Language", until: float) -> "Node":
    """Parse as much of the text as the time allows."""
    from tree_sitter import Parser

    end = 0

    def read(offset: int, _point: "Point") -> bytearray:
        nonlocal end
        # Ranges that were read before are returned again, so that the text appears to end there.
        if thread_time() <= until:
            end = max(end, offset + READ_BYTES)
        return _BUFFERS.fill(source[offset : min(offset + READ_BYTES, end)])

    return Parser(language).parse(read).root_node


class _ParserBuffers(threading.local):
    """Buffers that the parser reads from. The binding never releases a buffer, so the same few are reused."""

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


def _build_span(node: "Node", source: bytes) -> CapturedSpan:
    start, end = node.start_byte, node.end_byte
    name = source[start : min(end, start + MAX_CAPTURE_BYTES)]
    return CapturedSpan(name.decode("utf-8", "replace"), start, end)


class _LoadedGrammar(Value):
    language: "Language"
    query: "Query"


@cache
def _load_grammar(grammar: Grammar) -> _LoadedGrammar | None:
    """Load a grammar. Return None if it is not installed, or if its version does not support the query."""
    try:
        from tree_sitter import Language, Query

        language = Language(grammar.load())
        return _LoadedGrammar(language, Query(language, grammar.query + _ERROR_QUERY))
    except (ImportError, ValueError):
        return None
