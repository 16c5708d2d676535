"""Words that say what a text is about."""

import re
from collections.abc import Set
from functools import cache
from itertools import islice
from typing import NamedTuple

from everkept.language.common_words import COMMONPLACE, DULL, FOREIGN_COMMONPLACE
from everkept.language.spellings import fold, parts_of, tokens
from everkept.language.stems import stem
from everkept.language.stop_words import FOREIGN_STOP_WORDS, STOP_WORDS
from everkept.language.words import index_text
from everkept.patterns import compile_late

MOST_WORDS = 24  # that are looked up; what has more of them is a document
LAST_WORDS = 8  # of these, from the end
LONGEST_WORD = 40  # characters; what is longer is a key or a hash
FEWEST_DIGITS = 3  # of a number that tells something, as 404 does
SHORTEST_PART = 3  # letters of a part of a name that stands for itself

_TYPED = compile_late(r"[^\W_]+")
_ELIDED = compile_late(r"\b(?:qu|[cdjlmnst])'(?=\w)", re.IGNORECASE)  # l'export is an export
_NEVER_TELLING = STOP_WORDS | FOREIGN_STOP_WORDS | FOREIGN_COMMONPLACE
_EDGES = ".,;:!?()[]{}<>*_\"'`-"


def stems(text: str) -> frozenset[str]:
    """What a text says, as far as words tell: those of `refreshToken` too, and no stop words."""
    return frozenset(map(stem, index_words(text)))


def index_words(text: str) -> list[str]:
    """The words that the index has of a text, but stop words."""
    words = map(str.lower, tokens(index_text(text)))
    return [word for word in words if word not in STOP_WORDS]


def spoken_words(text: str) -> list[str]:
    """The words of a text as it is written, but stop words."""
    return [word for word in tokens(fold(text)) if word not in STOP_WORDS]


@cache
def dull_stems() -> frozenset[str]:
    """The stems of what texts of every topic say."""
    return frozenset(map(stem, DULL))


def has_telling_words(text: str, count: int) -> bool:
    """Return whether so many words of a text say what it is about: a path is one of them."""
    if not text.isascii():  # what has no spaces is many words
        return len(stems(text)) >= count
    words = (word.strip(_EDGES).lower() for word in text.split())
    telling = (w for w in words if w and w not in STOP_WORDS and stem(w) not in dull_stems())
    return len(list(islice(telling, count))) == count


class Word(NamedTuple):
    """A telling word. A name made of several, such as LoginLimiter, has them as its `parts`."""

    text: str
    parts: tuple[str, ...] = ()

    @property
    def stems(self) -> frozenset[str]:
        """What the index may call it."""
        return frozenset(map(stem, (self.text, *self.parts)))

    def is_in(self, said: Set[str]) -> bool:
        """Whether a text with these stems has it, in one word or in its parts."""
        return stem(self.text) in said or (
            bool(self.parts) and all(stem(part) in said for part in self.parts)
        )


def telling_words(text: str, *, commonplace: bool = False) -> tuple[Word, ...]:
    """The words of a text that say what it is about, each once, in their order.

    Those that people say of anything count only where `commonplace` ones are wanted.
    """
    plain = text if text.isascii() else fold(text)
    typed = dict.fromkeys(_TYPED.findall(_ELIDED.sub(" ", plain).replace("'", "")))
    found: dict[str, Word] = {}
    for word in filter(None, map(_word, typed)):
        if commonplace or not is_commonplace(word):
            found.setdefault(word.text, word)
    words = list(found.values())
    if len(words) > MOST_WORDS:
        words = words[: MOST_WORDS - LAST_WORDS] + words[-LAST_WORDS:]
    once: dict[str, Word] = {}
    for word in words:
        once.setdefault(stem(word.text), word)
    return tuple(once.values())


def is_commonplace(word: Word) -> bool:
    """Whether people say it of anything."""
    return word.text in COMMONPLACE


def _word(typed: str) -> Word | None:
    spoken = tokens(typed)
    if len(spoken) != 1 or len(typed) > LONGEST_WORD or len(spoken[0]) < 2:
        return None
    text = spoken[0]
    if text in _NEVER_TELLING:
        return None
    if text.isdigit() and len(text) < FEWEST_DIGITS:
        return None
    if typed.islower() or typed.istitle() or typed.isupper():
        return Word(text)
    parts = [part.lower() for part in parts_of([typed]) if len(part) >= SHORTEST_PART]
    return Word(text, tuple(parts) if len(parts) > 1 else ())
