"""What tree-sitter finds in a text; the one place that knows it."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from time import thread_time
from typing import TYPE_CHECKING

from recollect.families.history.code.fragments import missing_end, split
from recollect.families.history.code.grammars import GRAMMARS, Grammar

if TYPE_CHECKING:  # only who parses needs it
    from tree_sitter import Language, Node, Point, Query

LONGEST_NAME = 2_000  # bytes of a capture
# A parser that recovers from errors takes the square of their number, in time and in memory, and
# nothing stops it but a text that ends. So a text that is longer than this many characters is
# tried in portions first, and those go that are no code of the language.
PORTION = 6_000
MOST_ERRORS = 150  # in a portion; one that is cut out of the midst of code has a tenth of them
PATIENCE = 0.5  # seconds of this thread; real code takes a tenth of them
READ_AT_ONCE = 256  # bytes
MOST_AT_ONCE = 10_000  # matches in progress

_ERRORS = "\n(ERROR) @error\n(MISSING) @error\n"


@dataclass(frozen=True, slots=True)
class Span:
    """A captured piece of the text."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Parsed:
    """The matches of the query, each a span by its capture's name.

    `is_wrapped` where a class had to be written around the text for it to be understood.
    """

    found: list[Mapping[str, Span]]
    errors: int = 0
    is_wrapped: bool = False


def parsed(text: str, language: str | None) -> Parsed:
    """As the grammar reads it that understands it best; nothing where there is none."""
    grammars = GRAMMARS.get(language or "", ())
    until = thread_time() + PATIENCE
    if len(text) > PORTION and grammars:
        portions = split(text, PORTION)
        text = "\n".join(each for each in portions if _is_understood(each, grammars[-1], until))
        until = thread_time() + PATIENCE
    best: Parsed | None = None
    for way in _ways(text, grammars):
        if best is not None and not (0 < best.errors <= MOST_ERRORS and thread_time() < until):
            break
        reading = _read(way, until)
        if reading is not None and (best is None or reading.errors < best.errors):
            best = reading
    return best or Parsed([])


@dataclass(frozen=True, slots=True)
class _Way:
    """How a text may be read, with what has to stand around it."""

    grammar: Grammar
    text: str
    before: str = ""
    after: str = ""


def _ways(text: str, grammars: tuple[Grammar, ...]) -> Iterator[_Way]:
    for grammar in grammars:
        yield _Way(grammar, text)
    end = missing_end(text)
    for grammar in grammars:
        if end:
            yield _Way(grammar, text, after=f"\n{end}")
    for grammar in grammars:
        if grammar.around:
            before, after = grammar.around
            yield _Way(grammar, text, before, f"\n{end}{after}")


def _is_understood(text: str, grammar: Grammar, until: float) -> bool:
    loaded = _loaded(grammar)
    if loaded is None or thread_time() > until:
        return False
    root = _root(text.encode("utf-8", "replace"), loaded.language, until)
    return len(_matches(root, loaded.errors)) <= MOST_ERRORS


def _read(way: _Way, until: float) -> Parsed | None:
    loaded = _loaded(way.grammar)
    if loaded is None:
        return None
    source = f"{way.before}{way.text}{way.after}".encode("utf-8", "replace")
    matches = _matches(_root(source, loaded.language, until), loaded.query)
    found = [_spans(nodes, source) for nodes in matches if "error" not in nodes]
    return Parsed(found, len(matches) - len(found), bool(way.before))


def _root(source: bytes, language: "Language", until: float) -> "Node":
    """The tree of as much of the text as there is time for."""
    from tree_sitter import Parser

    end = 0

    def read(offset: int, _point: "Point") -> bytearray:
        nonlocal end
        # What was given once is given again, so that the text seems to end there.
        if thread_time() <= until:
            end = max(end, offset + READ_AT_ONCE)
        return _WINDOWS.showing(source[offset : min(offset + READ_AT_ONCE, end)])

    return Parser(language).parse(read).root_node


class _Windows(threading.local):
    """Where the parser sees a piece of text until it asks for the next one.

    The binding never lets go of what it is given, so it gets the same few arrays again and again.
    """

    def __init__(self) -> None:
        self._by_length: dict[int, bytearray] = {}

    def showing(self, piece: bytes) -> bytearray:
        window = self._by_length.setdefault(len(piece), bytearray(len(piece)))
        window[:] = piece
        return window


_WINDOWS = _Windows()


def _matches(root: "Node", query: "Query") -> "list[dict[str, list[Node]]]":
    from tree_sitter import QueryCursor

    return [nodes for _, nodes in QueryCursor(query, match_limit=MOST_AT_ONCE).matches(root)]


def _spans(nodes: Mapping[str, "list[Node]"], source: bytes) -> Mapping[str, Span]:
    return {name: _span(captured[0], source) for name, captured in nodes.items()}


def _span(node: "Node", source: bytes) -> Span:
    start, end = node.start_byte, node.end_byte
    name = source[start : min(end, start + LONGEST_NAME)]
    return Span(name.decode("utf-8", "replace"), start, end)


@dataclass(frozen=True, slots=True)
class _Loaded:
    language: "Language"
    query: "Query"
    errors: "Query"


@cache
def _loaded(grammar: Grammar) -> _Loaded | None:
    """None where it is not installed, or is of a version that the query does not fit."""
    try:
        from tree_sitter import Language, Query

        language = Language(grammar.load())
        query = Query(language, grammar.query + _ERRORS)
        return _Loaded(language, query, Query(language, _ERRORS))
    except (ImportError, ValueError):
        return None
