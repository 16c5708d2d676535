"""Calibration of scores: the probability that a record answers the query.

The order of the records comes from the fusion. A curve turns it into probabilities. A record counts by its share of the
best relevance. The best one counts by its nearness in meaning and by the words of the query that it has. So the
probabilities of one query keep the order, and queries are comparable.

The curves were fitted to our questions about a coding assistant's memories, half of them without their answer in the
store. `docs/benchmarks.md` shows how well they hold on other questions.
"""

import math

from everkept.core.background import Background, Level
from everkept.core.records import Record
from everkept.language.telling_words import list_stems
from everkept.retrieval.dates import remove_dates
from everkept.retrieval.excerpts import compute_coverage
from everkept.values import Value

# A nearness of 0 is that of texts with nothing in common, 1 that of a question and its answer.
FAR_LEVEL, NEAR_LEVEL = Level("unrelated", 0.5), Level("answers", 0.5)

MAX_NEARNESS = 1.2  # beyond it, the questions that the curves were fitted to show nothing


class Curve(Value):
    """Logistic curve, as summands of the logarithm of the odds."""

    base: float
    share: float  # of the best relevance
    nearness: float  # of the nearest record
    coverage: float  # share of the words of the query that the best record has

    def compute_log_odds(self, share: float, nearness: float, coverage: float) -> float:
        return self.base + self.share * share + self.nearness * nearness + self.coverage * coverage


BY_MEANING = Curve(base=-15.6, share=10.1, nearness=4.1, coverage=2.0)
BY_WORDS = Curve(base=-10.8, share=7.2, nearness=0.0, coverage=4.7)  # if the best record has no embedding


class QueryFit(Value):
    """How well the best record matches the query."""

    nearness: float | None  # None without an embedding
    coverage: float

    def compute_probability(self, share: float) -> float:
        """Return the probability that a record answers that has this share of the best relevance."""
        curve = BY_WORDS if self.nearness is None else BY_MEANING
        # A text with most of the words, such as the name of a file, answers even if its meaning differs.
        nearness = min(max(self.nearness or 0.0, 2 * self.coverage - 1), MAX_NEARNESS)
        return 1 / (1 + math.exp(-curve.compute_log_odds(share, nearness, self.coverage)))


def compute_nearness(cosine: float, background: Background) -> float:
    """Return where a cosine is between texts with nothing in common and a question and its answer."""
    far, near = background.find(FAR_LEVEL), background.find(NEAR_LEVEL)
    return (cosine - far) / max(near - far, 1e-6)


def compute_query_coverage(query: str, record: Record, date: float | None) -> float:
    """Return the share of the query that a record has: of its words, and of its date as one more word.

    A query that has the whole name of the record, such as the path of its file, is covered.
    """
    asked = list_stems(remove_dates(query))
    if record.name and list_stems(record.name) <= asked:
        return 1.0
    words = len(asked) * compute_coverage(asked, "\n".join(filter(None, (record.name, record.author, record.text))))
    size = len(asked) + (date is not None)
    return (words + (date or 0.0)) / size if size else 0.0


def shift_odds(probability: float, shift: float) -> float:
    """Return a probability after adding the shift to the logarithm of its odds."""
    factor = math.exp(shift)
    return factor * probability / (1 + (factor - 1) * probability)
