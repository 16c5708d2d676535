"""What of a long text is shown: where it says most of what was asked, and how much that is."""

import re
from collections.abc import Sequence, Set
from functools import lru_cache
from itertools import accumulate

from everkept.language.spellings import fold, stem
from everkept.language.telling_words import list_index_words, list_stems
from everkept.values import Value

MAX_TEXT_CHARACTERS = 600  # characters of a text in an answer
LEAD_DIVISOR = 4  # a fourth of what is shown may stand before the words, in a line that is too long

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_WORD = re.compile(r"\S+")
_ROOT_CHARACTERS = 3  # characters of a stem with which each of its words begins
_WITHOUT_JOINTS = str.maketrans("", "", "-_.'")
_CUT = "\ufffd"  # half a character at the end of a stem


class TextExcerpt(Value):
    """`skipped` lines of the text stand before it."""

    text: str
    skipped: int = 0


def select_excerpt(text: str, query: str, most: int = MAX_TEXT_CHARACTERS) -> TextExcerpt:
    """The text, or as much as fits; it begins at the line that says most of what was asked."""
    text = text.rstrip()
    if len(text) <= most:
        return TextExcerpt(text)
    lines = _LINE.findall(text)
    starts = [0, *accumulate(map(len, lines))]
    asked = _build_search(query)
    best = _find_best_line(lines, asked)
    while best and len(text) - starts[best - 1] <= most:  # room for what stands before it
        best -= 1
    start = starts[best]
    if len(lines[best]) > most:
        start += _find_start(lines[best], asked, most)
    end = start + most
    shown = text[start:end].strip() + ("…" if end < len(text) else "")
    return TextExcerpt(("… " if start else "") + shown, best)


class StemSearch:
    """Stems that are looked for in texts. Only words that may have one of them are stemmed."""

    __slots__ = ("_roots", "stems")

    def __init__(self, stems: frozenset[str]) -> None:
        self.stems = stems
        self._roots = tuple({root for stem in stems for root in _list_roots(stem)})

    def can_be_in(self, text: str) -> bool:
        """Tell by a glance, which takes a fraction of reading, whether a text may have any."""
        if not text.isascii():
            return True
        plain = fold(text).lower().translate(_WITHOUT_JOINTS)
        return any(root in plain for root in self._roots)

    def find_stems(self, text: str) -> frozenset[str]:
        """Find those that a text has."""
        if text.isascii():
            text = " ".join(filter(self.can_be_in_chunk, text.split()))
        if not text:
            return frozenset()
        words = (word for word in list_index_words(text) if word.startswith(self._roots))
        return frozenset(found for word in words if (found := stem(word)) in self.stems)

    def can_be_in_chunk(self, chunk: str) -> bool:
        """Tell a plain word by how it begins, and what may be several words by a glance."""
        if chunk.startswith(self._roots):
            return True
        if chunk.isalpha() and chunk.islower() and chunk.isascii():
            return False
        return self.can_be_in(chunk)


def _list_roots(stem: str) -> list[str]:
    """With what every word of a stem begins. A `y` at the end of a word is an `i` in its stem."""
    root = stem[:_ROOT_CHARACTERS].partition(_CUT)[0]
    return [root, f"{root[:-1]}y"] if stem == root and root.endswith("i") else [root]


@lru_cache(8)
def _build_search(query: str) -> StemSearch:
    return StemSearch(list_stems(query))


def _find_best_line(lines: Sequence[str], asked: StemSearch) -> int:
    """The line with most of the words; the first one that is not blank where none has any."""
    told = [len(asked.find_stems(line)) if line.strip() else -1 for line in lines]
    return max(range(len(lines)), key=lambda at: (told[at], -at))


def _find_start(line: str, asked: StemSearch, most: int) -> int:
    """Where to begin in a long line: shortly before the first word that was asked for."""
    words = list(_WORD.finditer(line))
    place = next((word.start() for word in words if asked.find_stems(word[0])), 0)
    earliest = min(place - most // LEAD_DIVISOR, len(line) - most)
    return next((word.start() for word in words if word.start() >= earliest), 0)


MAX_COMPARED_CHARACTERS = 4_000  # characters of a text


def compute_coverage(asked: Set[str], text: str) -> float:
    """The share of the asked words, given as stems, that the text has: 0 to 1."""
    return len(asked & list_stems(text[:MAX_COMPARED_CHARACTERS])) / len(asked) if asked else 0.0
