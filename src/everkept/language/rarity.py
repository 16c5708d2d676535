"""How much words tell: the rarer, the more. And how much of what is asked a text says."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from math import log
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # searches without prompts need no lists of words
    from everkept.language.telling_words import Word

RAREST = 0.001  # the share of records below which a word tells no more
COMMON = 0.5  # the weight below which a word tells little
DOUBT = 1.0  # the rarest words that a text must have for half of what they say to be believed
# Beside those at hand: what all of three texts have is their topic, and not an empty word.
OTHER_TEXTS = 20


def rarity_of(share: float, least: float = RAREST) -> float:
    """How much a word tells that this share of records has."""
    return 1 + log(1 / max(share, least))


def rarity_among(texts: Sequence[Sequence[str]]) -> Mapping[str, float]:
    """How much each word tells among these texts, of which each is given as its words."""
    found_in = Counter(word for text in texts for word in set(text))
    count = len(texts) + OTHER_TEXTS
    return {word: log(1 + count / found) for word, found in found_in.items()}


class Rarity:
    """The weights of words, 0 to 1: the rarer, the heavier.

    A word that nobody has ever used is as heavy as can be.
    """

    def __init__(self, shares: "Mapping[Word, float]") -> None:
        """`shares` is the share of records that have each word, 0 to 1."""
        known = [share for share in shares.values() if share > 0]
        # In a small store no share is near the rarest one; a new word is half as common there.
        least = max(RAREST, min(known, default=RAREST) / 2)
        heaviest = rarity_of(least, least)
        self._known = {word for word, share in shares.items() if share > 0}
        self._weights = {word: rarity_of(share, least) / heaviest for word, share in shares.items()}

    def is_known(self, word: "Word") -> bool:
        """Whether anybody has ever used it."""
        return word in self._known

    def has_rare(self, words: "Iterable[Word]") -> bool:
        """Whether any of them is known and not common."""
        return any(self.is_known(word) and self._weights[word] >= COMMON for word in words)

    def weight(self, words: "Iterable[Word]") -> float:
        return sum(self._weights.get(word, 0.0) for word in words)

    def share(self, words: "Sequence[Word]", said: Set[str]) -> float:
        """How much of these words a text with these stems has, 0 to 1, rare ones counting more."""
        whole = self.weight(words)
        return self.weight(word for word in words if word.is_in(said)) / whole if whole else 0.0

    def likeness(self, words: "Sequence[Word]", said: Set[str]) -> float:
        """The share, as far as so many words can be believed: a few common ones come together in
        any long text. It comes near 1 where a text has many rare words, and all of them."""
        had = self.weight(word for word in words if word.is_in(said))
        return self.share(words, said) * had / (had + DOUBT)
