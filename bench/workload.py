"""A graph of any size with words that are as unevenly frequent as in real texts."""

import itertools
import random
from collections import Counter
from typing import Any

VOCABULARY = 20_000
WORDS = (8, 20)  # in an observation, at least and at most

_ONSETS = ("b", "br", "c", "ch", "d", "f", "fl", "g", "h", "k", "l", "m", "n", "p", "r", "s", "tr")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "oo")
_CODAS = ("d", "k", "l", "m", "n", "p", "r", "s", "t", "x", "nd", "rt", "st")


def _vocabulary(chance: random.Random) -> list[str]:
    def syllable() -> str:
        return chance.choice(_ONSETS) + chance.choice(_VOWELS) + chance.choice(_CODAS)

    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        words["".join(syllable() for _ in range(chance.randint(1, 3)))] = None
    return list(words)


class Workload:
    """The same for the same size and seed."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self._words = _vocabulary(random.Random(1))
        self._chance = random.Random(seed)
        ranks = range(1, VOCABULARY + 1)
        self._weights = list(itertools.accumulate(1 / rank for rank in ranks))
        self._made = 0
        self.entities = [self._entity(f"entity {number}") for number in range(size)]
        self.relations = [
            {
                "from": f"entity {number}",
                "to": f"entity {self._chance.randrange(size)}",
                "relationType": self._chance.choice(("uses", "knows", "part_of", "depends_on")),
            }
            for number in range(size)
        ]
        self._common, self._rare = self._by_frequency()

    def new_entity(self, name: str = "new entity") -> dict[str, Any]:
        self._made += 1
        return self._entity(f"{name} {self._made} {self._chance.getrandbits(48):x}")

    def some_name(self) -> str:
        return self._chance.choice(self.entities)["name"]

    def common_word(self) -> str:
        """Found in about every tenth entity."""
        return self._chance.choice(self._common)

    def rare_word(self) -> str:
        """Of those in the fewest entities."""
        return self._chance.choice(self._rare)

    def two_words(self) -> str:
        """Two that stand side by side somewhere."""
        words = self._chance.choice(self.entities)["observations"][0].split()
        place = self._chance.randrange(len(words) - 1)
        return " ".join(words[place : place + 2])

    def _entity(self, name: str) -> dict[str, Any]:
        kind = self._chance.choice(("person", "technology", "concept", "decision"))
        observations = [self._text(), self._text()]
        return {"name": name, "entityType": kind, "observations": observations}

    def _text(self) -> str:
        count = self._chance.randint(*WORDS)
        return " ".join(self._chance.choices(self._words, cum_weights=self._weights, k=count))

    def _by_frequency(self) -> tuple[list[str], list[str]]:
        frequency: Counter[str] = Counter()
        for entity in self.entities:
            frequency.update({word for text in entity["observations"] for word in text.split()})
        tenth = len(self.entities) / 10
        common = sorted(frequency, key=lambda word: abs(frequency[word] - tenth))[:5]
        rare = sorted(frequency, key=lambda word: frequency[word])[:200]
        return common, rare
