"""What of a long text is shown: where it says most of what was asked."""

import re
from collections.abc import Callable, Sequence
from itertools import accumulate

from recollect.core.folding import tokens
from recollect.core.stemming import stem
from recollect.core.words import STOP_WORDS, index_text
from recollect.values import Value

MOST_TEXT = 600  # characters of a text in an answer
LEAD = 4  # a fourth of what is shown may stand before the words, in a line that is too long

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_WORD = re.compile(r"\S+")
_FOLDED = r"\b[cf]#|c\+\+|\.net"
_ROOT = 3  # characters of a stem that stand in each of its words


class Excerpt(Value):
    """`skipped` lines of the text stand before it."""

    text: str
    skipped: int = 0


def excerpt(text: str, query: str, most: int = MOST_TEXT) -> Excerpt:
    """The text, or as much as fits; it begins at the line that says most of what was asked."""
    text = text.rstrip()
    if len(text) <= most:
        return Excerpt(text)
    lines = _LINE.findall(text)
    starts = [0, *accumulate(map(len, lines))]
    asked = stems(query)
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
    may_have = _glance(asked)
    told = [
        len(asked & stems(line)) if may_have(line) else 0 if line.strip() else -1 for line in lines
    ]
    return max(range(len(lines)), key=lambda at: (told[at], -at))


def _place_in(line: str, asked: frozenset[str], most: int) -> int:
    """Where to begin in a long line: shortly before the first word that was asked for."""
    words = list(_WORD.finditer(line))
    may_have = _glance(asked)
    place = next(
        (word.start() for word in words if may_have(word[0]) and asked & stems(word[0])), 0
    )
    earliest = min(place - most // LEAD, len(line) - most)
    return next((word.start() for word in words if word.start() >= earliest), 0)


def _glance(asked: frozenset[str]) -> Callable[[str], bool]:
    """Whether a text may have any of the stems, as reading it takes far longer. What is folded
    before it is compared, such as `é` or `C#`, is not judged by its looks."""
    begun = "|".join(re.escape(stem[:_ROOT]) for stem in sorted(asked))
    look = re.compile(rf"{begun}|{_FOLDED}" if begun else _FOLDED, re.IGNORECASE)
    return lambda text: not text.isascii() or look.search(text) is not None


def stems(text: str) -> frozenset[str]:
    """What a text says, as far as words tell: those of `refreshToken` too, and no stop words."""
    words = (word.lower() for word in tokens(index_text(text)))
    return frozenset(stem(word) for word in words if word not in STOP_WORDS)
