"""What of a section is shown: where it says most of what was asked."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from recollect.core.folding import fold, tokens
from recollect.core.stemming import stem
from recollect.core.words import STOP_WORDS
from recollect.families.bank.text.markdown import lines_of

MOST_TEXT = 600  # characters of a section in an answer
LEAD = 4  # a fourth of what is shown may stand before the words, in a line that is too long

_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """`skipped` lines of the section stand before it."""

    text: str
    skipped: int = 0


def excerpt(text: str, query: str, most: int = MOST_TEXT) -> Excerpt:
    """The section, or as much as fits; it begins at the line that says most of what was asked."""
    text = text.rstrip()
    if len(text) <= most:
        return Excerpt(text)
    lines = lines_of(text)
    starts = [0, *accumulate(map(len, lines))]
    asked = _stems(query)
    best = _telling(lines, asked)
    while best and len(text) - starts[best - 1] <= most:  # room for what stands before it
        best -= 1
    start = starts[best]
    if len(lines[best]) > most:
        start += _place_in(lines[best], asked, most)
    end = start + most
    shown = text[start:end].strip() + ("…" if end < len(text) else "")
    return Excerpt(("… " if start else "") + shown, best)


def _telling(lines: Sequence[str], asked: frozenset[str]) -> int:
    """The line with most of the words; the first one that is not blank where none has any."""
    told = [len(asked & _stems(line)) if line.strip() else -1 for line in lines]
    return max(range(len(lines)), key=lambda at: (told[at], -at))


def _place_in(line: str, asked: frozenset[str], most: int) -> int:
    """Where to begin in a long line: shortly before the first word that was asked for."""
    words = list(_WORD.finditer(line))
    place = next((word.start() for word in words if asked & _stems(word.group())), 0)
    earliest = min(place - most // LEAD, len(line) - most)
    return next((word.start() for word in words if word.start() >= earliest), 0)


def _stems(text: str) -> frozenset[str]:
    words = (word.lower() for word in tokens(fold(text)))
    return frozenset(stem(word) for word in words if word not in STOP_WORDS)
