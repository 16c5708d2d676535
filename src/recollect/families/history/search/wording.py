"""What a question asks for and what a text says, as far as words tell."""

import re

from recollect.core.stemming import stem
from recollect.retrieval.excerpts import stems
from recollect.retrieval.stop_words import FOREIGN_STOP_WORDS

_MASK = re.compile(r"\[masked: [a-z ]+\]")
_FOREIGN = frozenset(stem(word) for word in FOREIGN_STOP_WORDS)


def asked_stems(query: str) -> frozenset[str]:
    """Without stop words of other languages, as long as anything is left."""
    asked = said_stems(query)
    return (asked - _FOREIGN) or asked


def said_stems(text: str) -> frozenset[str]:
    """What a mask calls a secret was said by nobody."""
    return stems(without_masks(text))


def without_masks(text: str) -> str:
    return _MASK.sub(lambda mask: " " * len(mask[0]), text)
