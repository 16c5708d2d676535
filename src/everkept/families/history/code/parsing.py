"""What tree-sitter finds in a text; the one place that knows it."""

import threading
from collections.abc import Iterator, Mapping
from functools import cache
from time import thread_time
from typing import TYPE_CHECKING

from everkept.families.history.code.fragments import missing_end
from everkept.families.history.code.grammars import GRAMMARS, Grammar
from everkept.values import Value

if TYPE_CHECKING:  # only who parses needs it
    from tree_sitter import Language, Node, Point, Query

LONGEST_NAME = 2_000  # bytes of a capture
# To recover from errors a parser takes the square of their number, in time and in memory, and
# nothing stops it but a text that ends. So it gets pieces of this many characters, whose square is
# small, and no more of one than there is time for.
LONGEST_PIECE = 10_000
PATIENCE = 0.2  # seconds of this thread; a piece of real code takes a hundredth of them
MOST_ERRORS = 400  # of a piece that is worth a second look
READ_AT_ONCE = 256  # bytes
MOST_AT_ONCE = 10_000  # matches in progress

_ERRORS = "\n(ERROR) @error\n(MISSING) @missing\n"
_COSTS = {"error": 2, "missing": 1}  # a bracket too few is the lesser evil


class Span(Value):
    """A captured piece of the text."""

    text: str
    start: int
    end: int


class Parsed(Value):
    """The matches of the query, each a span by its capture's name.

    `is_wrapped` where a class had to be written around the text for it to be understood. `end` is
    that of the text itself, before what was added for it to be complete.
    """

    found: list[Mapping[str, Span]]
    errors: int = 0
    is_wrapped: bool = False
    end: int = 0


def parsed(text: str, language: str | None) -> Parsed:
    """As the grammar reads it that understands it best; nothing where there is none."""
    best: Parsed | None = None
    until = thread_time() + PATIENCE
    for way in _ways(text, GRAMMARS.get(language or "", ())):
        reading = _read(way, until)
        if reading is not None and (best is None or reading.errors < best.errors):
            best = reading
        is_worth_more = best is None or 0 < best.errors <= MOST_ERRORS
        if not is_worth_more or thread_time() > until:
            break
    return best or Parsed([])


class _Way(Value):
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


def _read(way: _Way, until: float) -> Parsed | None:
    loaded = _loaded(way.grammar)
    if loaded is None:
        return None
    source = f"{way.before}{way.text}{way.after}".encode("utf-8", "replace")
    matches = _matches(_root(source, loaded.language, until), loaded.query)
    found = [_spans(nodes, source) for nodes in matches if not nodes.keys() & _COSTS]
    errors = sum(_COSTS.get(name, 0) for nodes in matches for name in nodes)
    end = len(f"{way.before}{way.text.rstrip()}".encode("utf-8", "replace"))
    return Parsed(found, errors, bool(way.before), end)


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


class _Loaded(Value):
    language: "Language"
    query: "Query"


@cache
def _loaded(grammar: Grammar) -> _Loaded | None:
    """None where it is not installed, or is of a version that the query does not fit."""
    try:
        from tree_sitter import Language, Query

        language = Language(grammar.load())
        return _Loaded(language, Query(language, grammar.query + _ERRORS))
    except (ImportError, ValueError):
        return None
