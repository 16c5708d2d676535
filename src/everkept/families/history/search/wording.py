"""What a question asks for and what a text says, as far as words tell."""

import re
from functools import lru_cache

from everkept.language.stems import stem
from everkept.language.stop_words import FOREIGN_STOP_WORDS
from everkept.language.telling_words import stems
from everkept.retrieval.excerpts import Sought

_MASK = re.compile(r"\[masked: [a-z ]+\]")
_BLOCK = re.compile(
    r"(?P<fence>```|~~~)[^\n`~]*\n\s*(?P<line>[^\n]*).*?(?:(?P=fence)|…?\Z)", re.DOTALL
)
_FOREIGN = frozenset(stem(word) for word in FOREIGN_STOP_WORDS)


@lru_cache(8)
def sought_by(query: str) -> Sought:
    """Without stop words of other languages, as long as anything is left."""
    asked = stems(without_masks(query))
    return Sought((asked - _FOREIGN) or asked)


def said_in(text: str, sought: Sought) -> frozenset[str]:
    """What a mask calls a secret was said by nobody."""
    return sought.said_in(without_masks(text))


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
