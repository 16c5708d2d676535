"""What a question asks for and what a text says, as far as words tell."""

import re
from functools import lru_cache
from itertools import islice

from everkept.core.stemming import stem
from everkept.core.words import STOP_WORDS
from everkept.retrieval.excerpts import Sought, stems
from everkept.retrieval.stop_words import FOREIGN_STOP_WORDS
from everkept.retrieval.topics import DULL_STEMS

_MASK = re.compile(r"\[masked: [a-z ]+\]")
_BLOCK = re.compile(
    r"(?P<fence>```|~~~)[^\n`~]*\n\s*(?P<line>[^\n]*).*?(?:(?P=fence)|…?\Z)", re.DOTALL
)
_EDGES = ".,;:!?()[]{}<>*_\"'`-"
_FOREIGN = frozenset(stem(word) for word in FOREIGN_STOP_WORDS)


@lru_cache(8)
def sought_by(query: str) -> Sought:
    """Without stop words of other languages, as long as anything is left."""
    asked = stems(without_masks(query))
    return Sought((asked - _FOREIGN) or asked)


def said_in(text: str, sought: Sought) -> frozenset[str]:
    """What a mask calls a secret was said by nobody."""
    return sought.said_in(without_masks(text))


def has_telling_words(text: str, count: int) -> bool:
    """Return whether so many words of a text say what it is about: a path is one of them."""
    if not text.isascii():  # what has no spaces is many words
        return len(stems(text)) >= count
    words = (word.strip(_EDGES).lower() for word in text.split())
    telling = (w for w in words if w and w not in STOP_WORDS and stem(w) not in DULL_STEMS)
    return len(list(islice(telling, count))) == count


def on_one_line(text: str) -> str:
    """For previews, which have no lines: a block of code is its first line there."""
    if not has_block(text):
        return text
    return _BLOCK.sub(lambda block: f"`{block['line'].strip().replace('`', '')}` … ", text)


def has_block(text: str) -> bool:
    """Tell at once whether a text has fences, as looking for a whole block takes far longer."""
    return "```" in text or "~~~" in text


def without_masks(text: str) -> str:
    if "[masked: " not in text:
        return text
    return _MASK.sub(lambda mask: " " * len(mask[0]), text)
