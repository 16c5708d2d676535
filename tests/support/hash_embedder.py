"""Vectors without a model: texts are near each other when they share words and parts of words."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

from everkept.core.ports import Background
from everkept.core.text import blake2b
from everkept.embedders.onnx import measure_background, read_texts
from everkept.errors import ModelUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DIMENSIONS = 384
TRIGRAM_WEIGHT = 0.3  # against 1 for the whole word
CACHED_WORDS = 16_384

_WORD = re.compile(r"\w+")


class HashingEmbedder:
    """Words and their trigrams, each at a place and with a sign that its hash decides.

    The same on every machine and at every time, and it knows nothing of meaning: for tests, and
    where there is no model.
    """

    name = "hashing"
    dimensions = DIMENSIONS
    fault = None

    @property
    def background(self) -> Background:
        return _background()

    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """A row for each text; one without words gets a vector all the same."""
        return await asyncio.to_thread(_vectors, texts)

    async def close(self) -> None:
        """Nothing is held."""


def _vectors(texts: Sequence[str]) -> "NDArray[np.float32]":
    import numpy as np

    sums = np.zeros((len(texts), DIMENSIONS), np.float32)
    for row, text in zip(sums, texts, strict=True):
        for word in _WORD.findall(text.casefold()):
            for place, weight in _features(word):
                row[place] += weight
        if not row.any():
            row[0] = 1.0
    return sums / np.linalg.norm(sums, axis=1, keepdims=True)


@lru_cache(1)
def _background() -> Background:
    return measure_background(_vectors(read_texts()))


@lru_cache(CACHED_WORDS)
def _features(word: str) -> tuple[tuple[int, float], ...]:
    """Where in the vector a word counts, and how much."""
    return (_feature(word, 1.0), *(_feature(part, TRIGRAM_WEIGHT) for part in _trigrams(word)))


def _trigrams(word: str) -> Iterator[str]:
    fenced = f"<{word}>"  # no character of a word, so that starts and ends count apart
    return (fenced[start : start + 3] for start in range(len(fenced) - 2))


def _feature(text: str, weight: float) -> tuple[int, float]:
    number = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
    return number // 2 % DIMENSIONS, weight if number % 2 else -weight


class BrokenEmbedder(HashingEmbedder):
    """A model whose file is damaged."""

    async def embed(self, texts: Sequence[str]) -> NoReturn:
        raise ModelUnavailable("model.onnx", "is damaged")
