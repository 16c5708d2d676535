"""How well a record fits a word query: FTS5's bm25, from the positions in its tsvector."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log

from everkept.core.records import Weights
from everkept.engines.postgres.searching.lexemes import (
    COLUMNS,
    CONTEXT,
    NAME,
    PAGE,
    STORE,
    TEXT,
)
from everkept.engines.postgres.searching.querying import leaves, terms_of, unwanted_leaves
from everkept.language.words import AllOf, AnyOf, Phrase, Without, WordQuery
from everkept.values import Value

# As in FTS5's bm25().
_K1, _B = 1.2, 0.75
_LEAST_IDF = 1e-6
MOST_NAMED = 20  # words that an expression lists; to look at every lexeme is quicker then

FEW = 50  # records; to look at every lexeme of these is quicker than to make an expression

Times = tuple[int, int, int]  # in name, text and context
_NEVER: Times = (0, 0, 0)

# Of one record: how often it has each phrase, by its number.
Fits = Callable[[Sequence[Times]], bool]


def idf(records: float, having: float) -> float:
    """What a word counts that so many of the records have."""
    return max(log((max(records, having) - having + 0.5) / (having + 0.5)), _LEAST_IDF)


class Hits(Value):
    """How long a record is, and where in it the words of a query stand.

    Of each lexeme the positions on each page, as the tsvector has them.
    """

    length: int
    positions: Mapping[str, Mapping[str, str]]

    def of(self, lexeme: str, *, prefix: bool) -> Iterable[tuple[str, str]]:
        """Pages, and what the lexeme has there, or all that begin with it."""
        if not prefix:
            return self.positions.get(lexeme, {}).items()
        every = (pages for found, pages in self.positions.items() if found.startswith(lexeme))
        return (item for pages in every for item in pages.items())


class _Terms(Value):
    """A phrase by its lexemes: worked out once, not for every record."""

    first: tuple[str, ...]
    last: str
    prefix: bool

    def times(self, hits: Hits) -> Times:
        if not self.prefix and self.last not in hits.positions:
            return _NEVER
        if self.first:
            return self._together(hits)
        name = text = context = 0
        is_there = False
        for _, positions in hits.of(self.last, prefix=self.prefix):
            is_there = True
            name += positions.count(NAME)
            text += positions.count(TEXT)
            context += positions.count(CONTEXT)
        if not is_there:
            return _NEVER
        if not name and not context:  # of a very long text not all positions are kept
            text = max(text, 1)
        return name, text, context

    def _together(self, hits: Hits) -> Times:
        """How often the words stand one behind the other, page by page."""
        counts = dict.fromkeys(COLUMNS, 0)
        behind = _by_page(hits.of(self.last, prefix=self.prefix))
        lexemes = [_by_page(hits.of(term, prefix=False)) for term in self.first]
        for page, ends in behind.items():
            starts = [lexeme.get(page, {}) for lexeme in lexemes]
            for position, column in ends.items():
                begins = position - len(self.first)
                if all(start.get(begins + n) == column for n, start in enumerate(starts)):
                    counts[column] += 1
        return (counts["A"], counts["B"], counts["C"]) if any(counts.values()) else _NEVER


class Scorer:
    """For one query: `idfs` are those of its phrases."""

    def __init__(self, words: WordQuery, idfs: Mapping[Phrase, float], weights: Weights) -> None:
        phrases = dict.fromkeys((*leaves(words), *unwanted_leaves(words)))
        # By number: to hash them again for every record takes longer than all the rest.
        numbers = {phrase: number for number, phrase in enumerate(phrases)}
        self._terms = [_terms(phrase) for phrase in phrases]
        self._fits = _fits(words, numbers)
        self._idfs = [(numbers[phrase], inverse) for phrase, inverse in idfs.items()]
        self._weights = weights
        self._wanted = {term for terms in self._terms for term in terms.first}
        self._wanted.update(terms.last for terms in self._terms if not terms.prefix)
        self._prefixes = tuple(terms.last for terms in self._terms if terms.prefix)
        # Most words of a long query are not in a record: only those that are get looked at.
        self._single: dict[str, list[int]] = {}
        self._involved: list[int] = []
        for number, terms in enumerate(self._terms):
            if terms.first or terms.prefix:
                self._involved.append(number)
            else:
                self._single.setdefault(terms.last, []).append(number)

    def scores(self, tsvectors: Sequence[str]) -> list[float | None]:
        """None of what only seemed to match."""
        entry = _ENTRY if len(tsvectors) <= FEW else _entry(self._wanted, self._prefixes)
        every = [self._hits(entry, tsvector) for tsvector in tsvectors]
        mean = sum(hits.length for hits in every) / max(len(every), 1)
        return [self._score(hits, hits.length / mean) for hits in every]

    def _hits(self, entry: "re.Pattern[str]", tsvector: str) -> Hits:
        wanted, prefixes = self._wanted, self._prefixes
        positions: dict[str, dict[str, str]] = {}
        length = 1
        for word, page, where in entry.findall(tsvector):
            if word[0] == STORE:
                length = int(where)
            elif word in wanted or (prefixes and word.startswith(prefixes)):
                positions.setdefault(word, {})[page] = where
        return Hits(length, positions)

    def _score(self, hits: Hits, relative_length: float) -> float | None:
        times = self._times(hits)
        if not self._fits(times):
            return None
        longer = _K1 * (1 - _B + _B * relative_length)
        weights = self._weights
        total = 0.0
        for number, inverse in self._idfs:
            if (found := times[number]) is not _NEVER:
                name, text, context = found
                often = name * weights.name + text * weights.text + context * weights.context
                total += inverse * often * (_K1 + 1) / (often + longer)
        return total

    def _times(self, hits: Hits) -> list[Times]:
        times = [_NEVER] * len(self._terms)
        for number in self._involved:
            times[number] = self._terms[number].times(hits)
        for lexeme in hits.positions:
            for number in self._single.get(lexeme, ()):
                times[number] = self._terms[number].times(hits)
        return times


def _entry(wanted: set[str], prefixes: Sequence[str]) -> "re.Pattern[str]":
    """What finds these alone, where they are few enough."""
    if len(wanted) + len(prefixes) > MOST_NAMED:
        return _ENTRY
    named = [re.escape(word) for word in wanted]
    begun = [f"{re.escape(prefix)}[^'{PAGE}]*" for prefix in prefixes]
    return _entry_of("|".join((rf"{STORE}\d+", *named, *begun)))


def _entry_of(words: str) -> "re.Pattern[str]":
    """A lexeme of a tsvector's text, its page and its positions."""
    return re.compile(rf"'({words})(?:{PAGE}(\d+))?'(?::(\S+))?")


def _terms(phrase: Phrase) -> _Terms:
    *first, last = terms_of(phrase)
    return _Terms(tuple(first), last, phrase.prefix)


def _fits(words: WordQuery, numbers: Mapping[Phrase, int]) -> Fits:
    """Whether a record is one of those that are meant."""
    match words:
        case Phrase():
            number = numbers[words]
            return lambda times: times[number] is not _NEVER
        case AllOf(parts):
            every = [_fits(part, numbers) for part in parts]
            return lambda times: all(fits(times) for fits in every)
        case AnyOf(parts):
            some = [_fits(part, numbers) for part in parts]
            return lambda times: any(fits(times) for fits in some)
        case Without(wanted, unwanted):
            is_wanted, is_not = _fits(wanted, numbers), _fits(unwanted, numbers)
            return lambda times: is_wanted(times) and not is_not(times)


def _by_page(found: Iterable[tuple[str, str]]) -> dict[str, dict[int, str]]:
    """The columns of the positions on each page."""
    pages: dict[str, dict[int, str]] = {}
    for page, positions in found:
        if positions:
            here = pages.setdefault(page, {})
            for position in positions.split(","):
                if position[-1] in COLUMNS:
                    here[int(position[:-1])] = position[-1]
    return pages


_ENTRY = _entry_of(f"[^'{PAGE}]+")
