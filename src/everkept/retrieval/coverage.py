"""How much of a question stands in a text: a measure that is the same wherever the text is from."""

from collections.abc import Set

from everkept.language.telling_words import stems

LONGEST_COMPARED = 4_000  # characters of a text


def coverage(asked: Set[str], text: str) -> float:
    """The share of the asked words, given as stems, that the text has: 0 to 1."""
    return len(asked & stems(text[:LONGEST_COMPARED])) / len(asked) if asked else 0.0
