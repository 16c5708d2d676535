"""Names in a query: who is asked about, and what is left of the question without them.

A name dominates the vector of a short text: a question about Caroline finds what was said to her,
not what she said. So names stay in the word query and leave the one for meaning.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from everkept.core.transcripts import ASSISTANT, USER
from everkept.language.stop_words import STOP_WORDS

COMMON = 0.08  # of the records: a capitalised word that stands in more is a name to all intents
FEWEST_RECORDS = 50  # below, one record is a share too large to say anything
ROLES = frozenset((USER, ASSISTANT))  # authors without a name: "user" is a word of many questions
FEWEST_WORDS = 2  # that tell something, for a question to be left of it

_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_POSSESSIVE = re.compile(r"['’]s?$")


def capitalised(text: str) -> list[str]:
    """The words that may be names, each once, as they would stand in the index."""
    words = (_bare(word) for word in _WORD.findall(text))
    named = (w for w in words if w[:1].isupper() and w.lower() not in STOP_WORDS)
    return list(dict.fromkeys(word.lower() for word in named))


def common(shares: Mapping[str, float]) -> list[str]:
    """Those of the words that stand in so many records that they tell them badly apart."""
    return [word for word, share in shares.items() if share > COMMON]


def authors_named(text: str, authors: Iterable[str]) -> frozenset[str]:
    """The authors whose name, or a part of it, is a word of the text.

    A name that is an ordinary word too, as Will is, counts as one only where it is capitalised.
    """
    typed = {_bare(word) for word in _WORD.findall(text)}
    lowered = {word.lower() for word in typed if word.lower() not in STOP_WORDS}

    def is_named(author: str) -> bool:
        return any(
            (word.lower() in lowered) or (word in typed and word.istitle() and len(word) > 1)
            for word in _WORD.findall(author)
        )

    return frozenset(author for author in authors if author not in ROLES and is_named(author))


def without_names(text: str, names: Sequence[str]) -> str:
    """The text without the words of these names."""
    unwanted = {word.lower() for name in names for word in _WORD.findall(name)}
    left = _WORD.sub(lambda found: "" if _bare(found[0]).lower() in unwanted else found[0], text)
    return " ".join(left.split())


def tells(text: str) -> bool:
    """Whether there is enough in a text to ask for its meaning."""
    telling = [word for word in _WORD.findall(text) if word.lower() not in STOP_WORDS]
    return len(telling) >= FEWEST_WORDS


def _bare(word: str) -> str:
    return _POSSESSIVE.sub("", word)
