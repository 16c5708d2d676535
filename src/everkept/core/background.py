"""Background of an embedding model: how near texts lie that have nothing in common, and texts that have much.

Each model has its own scale of cosines. So a limit is not a cosine but a level: the cosine below which a share of known
pairs of texts lies. The background of a model turns a level into a cosine.
"""

from bisect import bisect_right
from typing import Literal

from everkept.values import Value

SHARES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1.0)

# Pairs of texts: without anything in common, a question and its answer, and one statement in two wordings.
Pairs = Literal["unrelated", "answers", "alike"]


class Level(Value):
    """Nearness that means the same for each model: this share of the pairs is less near."""

    pairs: Pairs
    share: float


class Background(Value):
    """Cosines of the pairs at each of the SHARES."""

    unrelated: tuple[float, ...]
    answers: tuple[float, ...]
    alike: tuple[float, ...]

    def find(self, level: Level) -> float:
        """Return the cosine of a level."""
        cosines = {"unrelated": self.unrelated, "answers": self.answers, "alike": self.alike}[level.pairs]
        upper = min(bisect_right(SHARES, level.share), len(SHARES) - 1)
        low, high = SHARES[upper - 1], SHARES[upper]
        part = (level.share - low) / (high - low)
        return cosines[upper - 1] + part * (cosines[upper] - cosines[upper - 1])

    def compute_share(self, cosine: float) -> float:
        """Return the share of unrelated pairs that are less near."""
        upper = bisect_right(self.unrelated, cosine)
        if upper in (0, len(SHARES)):
            return 0.0 if upper == 0 else 1.0
        low, high = self.unrelated[upper - 1], self.unrelated[upper]
        return SHARES[upper - 1] + (cosine - low) / (high - low) * (SHARES[upper] - SHARES[upper - 1])
