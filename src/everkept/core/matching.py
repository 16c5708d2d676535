"""Which records a word query finds, and how well, for an engine that keeps no word index."""

from everkept.core.records import Weights
from everkept.language.spellings import tokens
from everkept.language.stems import stem
from everkept.language.words import (
    AllOf,
    AnyOf,
    Phrase,
    Without,
    WordQuery,
    index_text,
    indexed_prefix,
)

HEARD = 500  # characters of a text beside a record that it is found by; the nearest ones

Fields = tuple[list[str], list[str], list[str]]  # the stems of name, text and context


def fields_of(name: str, text: str, context: str) -> Fields:
    return _stems(name), _stems(text), _stems(context)


def heard(text: str, *, before: bool) -> str:
    """What counts of a text just before a record, or just after it: the end, or the beginning."""
    if len(text) <= HEARD:
        return text
    # No half word, where there are blanks between words.
    if before:
        near = text[-HEARD:]
        return near.partition(" ")[2] or near
    near = text[:HEARD]
    return near.rpartition(" ")[0] or near


def matches(fields: Fields, query: WordQuery) -> bool:
    match query:
        case Phrase():
            return any(_occurrences(field, query) for field in fields)
        case AllOf(parts):
            return all(matches(fields, part) for part in parts)
        case AnyOf(parts):
            return any(matches(fields, part) for part in parts)
        case Without(wanted, unwanted):
            return matches(fields, wanted) and not matches(fields, unwanted)


def score(fields: Fields, query: WordQuery, weights: Weights) -> float:
    """The weighted hits, shorter fields first."""
    match query:
        case Phrase():
            counted = zip(fields, (weights.name, weights.text, weights.context), strict=True)
            return sum(
                weight * _occurrences(field, query) / (1 + len(field)) for field, weight in counted
            )
        case AllOf(parts) | AnyOf(parts):
            return sum(score(fields, part, weights) for part in parts)
        case Without(wanted):
            return score(fields, wanted, weights)


def _occurrences(field: list[str], phrase: Phrase) -> int:
    prefix = phrase.prefix
    first = [stem(word) for word in phrase.words[:-1]]
    last = indexed_prefix(phrase.words[-1]) if prefix else stem(phrase.words[-1])
    return sum(
        field[i : i + len(first)] == first
        and (field[i + len(first)].startswith(last) if prefix else field[i + len(first)] == last)
        for i in range(len(field) - len(first))
    )


def _stems(text: str) -> list[str]:
    return [stem(word) for word in tokens(index_text(text))]
