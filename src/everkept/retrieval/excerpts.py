"""Excerpts of long texts around the words of a query, and the share of those words in a text."""

import re
from collections.abc import Set
from functools import lru_cache
from itertools import accumulate

from everkept.language.spellings import fold, stem
from everkept.language.telling_words import list_index_words, list_stems
from everkept.values import Value

MAX_TEXT_CHARACTERS = 600
LEAD_DIVISOR = 4  # in a line that is too long, a fourth of the excerpt may precede the words

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_WORD = re.compile(r"\S+")
_ROOT_CHARACTERS = 3  # every word of a stem begins with these characters
_WITHOUT_JOINTS = str.maketrans("", "", "-_.'")
_CUT = "\ufffd"  # first byte of a cut character at the end of a stem


class TextExcerpt(Value):
    """Part of a text; `skipped` counts the lines before it."""

    text: str
    skipped: int = 0


def select_excerpt(text: str, query: str, most: int = MAX_TEXT_CHARACTERS) -> TextExcerpt:
    """Return the text, or at most `most` characters from the line with most of the query's words."""
    text = text.rstrip()
    if len(text) <= most:
        return TextExcerpt(text)
    lines = _LINE.findall(text)
    starts = [0, *accumulate(map(len, lines))]
    asked = _build_search(query)
    told = [len(asked.find_stems(line)) if line.strip() else -1 for line in lines]  # empty lines come last
    best = max(range(len(lines)), key=lambda at: (told[at], -at))
    while best and len(text) - starts[best - 1] <= most:  # more lines fit before it
        best -= 1
    start = starts[best]
    if len(lines[best]) > most:
        start += _find_start(lines[best], asked, most)
    end = start + most
    shown = text[start:end].strip() + ("…" if end < len(text) else "")
    return TextExcerpt(("… " if start else "") + shown, best)


class StemSearch:
    """Search for stems in texts. It stems only words that may have one of these stems."""

    __slots__ = ("_roots", "stems")

    def __init__(self, stems: frozenset[str]) -> None:
        self.stems = stems
        self._roots = tuple({root for stem in stems for root in _list_roots(stem)})

    def can_be_in(self, text: str) -> bool:
        """Return whether a text may contain any of the stems. Takes a fraction of the time of `find_stems`."""
        if not text.isascii():
            return True
        plain = fold(text).lower().translate(_WITHOUT_JOINTS)
        return any(root in plain for root in self._roots)

    def find_stems(self, text: str) -> frozenset[str]:

        if text.isascii():
            text = " ".join(filter(self.can_be_in_chunk, text.split()))
        if not text:
            return frozenset()
        words = (word for word in list_index_words(text) if word.startswith(self._roots))
        return frozenset(found for word in words if (found := stem(word)) in self.stems)

    def can_be_in_chunk(self, chunk: str) -> bool:
        """Return whether a chunk may contain a stem. A plain word is judged by its beginning only."""
        if chunk.startswith(self._roots):
            return True
        if chunk.isalpha() and chunk.islower() and chunk.isascii():
            return False
        return self.can_be_in(chunk)


def _list_roots(stem: str) -> list[str]:
    """Return the possible beginnings of a stem's words. A final `y` of a word is an `i` in its stem."""
    root = stem[:_ROOT_CHARACTERS].partition(_CUT)[0]
    return [root, f"{root[:-1]}y"] if stem == root and root.endswith("i") else [root]


@lru_cache(8)
def _build_search(query: str) -> StemSearch:
    return StemSearch(list_stems(query))


def _find_start(line: str, asked: StemSearch, most: int) -> int:
    """Return where to begin in a long line: shortly before the first word of the query."""
    words = list(_WORD.finditer(line))
    place = next((word.start() for word in words if asked.find_stems(word[0])), 0)
    earliest = min(place - most // LEAD_DIVISOR, len(line) - most)
    return next((word.start() for word in words if word.start() >= earliest), 0)


MAX_COMPARED_CHARACTERS = 4_000


def compute_coverage(asked: Set[str], text: str) -> float:
    """Return the share of the asked stems that occur in the text, 0 to 1."""
    return len(asked & list_stems(text[:MAX_COMPARED_CHARACTERS])) / len(asked) if asked else 0.0
