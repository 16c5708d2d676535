"""How well a record fits a word query: FTS5's bm25, from the positions in its tsvector."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log

from recollect.core.records import Weights
from recollect.core.words import AllOf, AnyOf, Phrase, Without, WordQuery
from recollect.engines.postgres.searching.lexemes import COLUMNS, PAGE, STORE, TEXT
from recollect.engines.postgres.searching.querying import leaves, terms_of, unwanted_leaves

# As in FTS5's bm25().
_K1, _B = 1.2, 0.75
_LEAST_IDF = 1e-6

Times = tuple[int, int, int]  # in name, text and context
_NEVER: Times = (0, 0, 0)


def idf(records: float, having: float) -> float:
    """What a word counts that so many of the records have."""
    return max(log((max(records, having) - having + 0.5) / (having + 0.5)), _LEAST_IDF)


@dataclass(frozen=True, slots=True)
class Hits:
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


class Scorer:
    """For one query: `idfs` are those of its phrases."""

    def __init__(self, words: WordQuery, idfs: Mapping[Phrase, float], weights: Weights) -> None:
        self._words = words
        self._idfs = idfs
        self._weights = weights
        self._wanted: set[str] = set()
        prefixes: list[str] = []
        for phrase in (*leaves(words), *unwanted_leaves(words)):
            *first, last = terms_of(phrase)
            self._wanted.update(first)
            if phrase.prefix:
                prefixes.append(last)
            else:
                self._wanted.add(last)
        self._prefixes = tuple(prefixes)

    def scores(self, tsvectors: Sequence[str]) -> list[float | None]:
        """None of what only seemed to match."""
        every = [self._hits(tsvector) for tsvector in tsvectors]
        mean = sum(hits.length for hits in every) / max(len(every), 1)
        return [self._score(hits, hits.length / mean) for hits in every]

    def _hits(self, tsvector: str) -> Hits:
        positions: dict[str, dict[str, str]] = {}
        length = 1
        for entry in tsvector.split(" "):
            lexeme, _, where = entry.partition("':")
            word, _, page = lexeme.strip("'").partition(PAGE)
            if word.startswith(STORE):
                length = int(where)
            elif word in self._wanted or (self._prefixes and word.startswith(self._prefixes)):
                positions.setdefault(word, {})[page] = where
        return Hits(length, positions)

    def _score(self, hits: Hits, relative_length: float) -> float | None:
        times: dict[Phrase, Times] = {}
        if not _matches(self._words, hits, times):
            return None
        longer = _K1 * (1 - _B + _B * relative_length)
        total = 0.0
        for phrase, inverse in self._idfs.items():
            found = _found(phrase, hits, times)
            name, text, context = found
            weights = self._weights
            often = name * weights.name + text * weights.text + context * weights.context
            total += inverse * often * (_K1 + 1) / (often + longer)
        return total


def _matches(words: WordQuery, hits: Hits, times: dict[Phrase, Times]) -> bool:
    match words:
        case Phrase():
            return any(_found(words, hits, times))
        case AllOf(parts):
            return all(_matches(part, hits, times) for part in parts)
        case AnyOf(parts):
            return any(_matches(part, hits, times) for part in parts)
        case Without(wanted, unwanted):
            return _matches(wanted, hits, times) and not _matches(unwanted, hits, times)


def _found(phrase: Phrase, hits: Hits, times: dict[Phrase, Times]) -> Times:
    if phrase not in times:
        times[phrase] = _times(phrase, hits)
    return times[phrase]


def _times(phrase: Phrase, hits: Hits) -> Times:
    *first, last = terms_of(phrase)
    if first:
        return _together(first, last, phrase, hits)
    counts = [0, 0, 0]
    is_there = False
    for _, positions in hits.of(last, prefix=phrase.prefix):
        is_there = True
        for number, column in enumerate(COLUMNS):
            counts[number] += positions.count(column)
    if is_there and not any(counts):  # so long a text that not all positions are kept
        counts[COLUMNS.index(TEXT)] = 1
    return counts[0], counts[1], counts[2]


def _together(first: Sequence[str], last: str, phrase: Phrase, hits: Hits) -> Times:
    """How often the words stand one behind the other, page by page."""
    counts = dict.fromkeys(COLUMNS, 0)
    behind = _by_page(hits.of(last, prefix=phrase.prefix))
    lexemes = [_by_page(hits.of(term, prefix=False)) for term in first]
    for page, ends in behind.items():
        starts = [lexeme.get(page, {}) for lexeme in lexemes]
        for position, column in ends.items():
            begins = position - len(first)
            if all(start.get(begins + n) == column for n, start in enumerate(starts)):
                counts[column] += 1
    return counts["A"], counts["B"], counts["C"]


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
