"""Scores of several searches on one scale: each calls the best that it has good."""

from collections.abc import Mapping, Sequence

from everkept.language.telling_words import stems
from everkept.retrieval.coverage import coverage

# A search calls the best that it has good, however little that is. How many of the asked words
# are in it tells searches apart: what has none of those that another has keeps this much.
LEAST = 0.6
COMPARED = 3  # of the best of each


def shares(question: str, texts: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """What the scores of each search count, given the texts of its best."""
    asked = stems(question)
    covered = {
        name: max((coverage(asked, text) for text in best[:COMPARED]), default=0.0)
        for name, best in texts.items()
    }
    most = max(covered.values(), default=0.0)
    if not most:
        return dict.fromkeys(texts, 1.0)
    return {name: LEAST + (1 - LEAST) * share / most for name, share in covered.items()}


def compared_text(title: str | None, content: str) -> str:
    return f"{title or ''}\n{content}"
