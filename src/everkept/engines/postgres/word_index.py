"""Records and word queries in the forms of PostgreSQL's index: tsvector and tsquery.

A tsvector holds 1 MB, positions up to 16,383, and 255 positions per lexeme. So a longer text is split into pages. A
page ends when one of these limits is reached. The next page counts its positions from 1, and its lexemes end with its
number. So every word and every phrase is found.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from everkept.core.records import Record
from everkept.language.spellings import split_tokens, stem
from everkept.language.words import (
    MAX_PHRASE_WORDS,
    AllOf,
    AnyOf,
    Without,
    WordPhrase,
    WordQuery,
    compute_indexed_prefix,
    join_index_texts,
    prepare_text,
)

NAME, TEXT, CONTEXT = COLUMNS = "ABC"  # weights of a tsvector, one per column
MAX_POSITION = 16_383
MAX_LEXEME_POSITIONS = 255
MAX_POSITIONED_BYTES = 500_000  # above this, words are found but phrases are not
MAX_TSVECTOR_BYTES = 1_040_000  # about 70,000 distinct words; a substring search finds the rest
MAX_LEXEME_BYTES = 1_000  # longer words are shortened; an index entry has at most about 2,000 bytes

# Characters that no word contains.
PAGE_MARK = "~"
STORE_MARK = "@"
_DIGEST_MARK = "#"

# Words that the next page repeats, so that no phrase is split between pages.
_REPEATED_WORDS = MAX_PHRASE_WORDS - 1


def build_tsvector(store: int, record: Record, context: Sequence[str]) -> str:
    """Return the text of a tsvector. `context` has the parent's name and the texts around the record."""
    said = [part for part in (record.type, record.text) if part]
    pages = _Pages()
    words = 0
    for column, texts in zip(COLUMNS, ([record.name or ""], said, context), strict=True):
        stems = _list_lexemes(texts)
        pages.add(column, stems)
        words += len(stems)
    # The length is stored as the position of the lexeme that names the store, because no word is there.
    length = min(max(words, 1), MAX_POSITION)
    return " ".join([f"'{format_store_lexeme(store)}':{length}", *pages.format_lexemes()])


def format_store_lexeme(store: int) -> str:
    """Return the lexeme that every record of the store has, so that one index can search each store separately."""
    return f"{STORE_MARK}{store}"


def format_lexeme(word: str) -> str:
    """Return the lexeme of a stem. A very long stem is replaced by its beginning and a digest."""
    written = word.encode()
    if len(written) <= MAX_LEXEME_BYTES:
        return word
    return f"{format_lexeme_prefix(word)}{_DIGEST_MARK}{blake2b(written, digest_size=16).hexdigest()}"


def format_lexeme_prefix(word: str) -> str:
    """Return the common beginning of the lexemes of all words that begin like this."""
    return word.encode()[: MAX_LEXEME_BYTES // 2].decode(errors="ignore")


def _list_lexemes(texts: Iterable[str]) -> list[str]:
    found = split_tokens(join_index_texts([prepare_text(text) for text in texts]))
    return [format_lexeme(stem(word)) for word in found]


class _Pages:
    """Positions of each lexeme, and the next position on the current page."""

    def __init__(self) -> None:
        self._positions: dict[str, list[str]] = {}
        self._page = 0
        self._next = 1
        self._bytes = 0

    def add(self, column: str, words: Sequence[str]) -> None:
        """Add the words of a column. A phrase does not continue in the next column."""
        for number, word in enumerate(words):
            if self._bytes > MAX_POSITIONED_BYTES:
                self._add_bare(word)
            elif not self._put(column, word):
                self._start_page(column, words[max(number - _REPEATED_WORDS, 0) : number])
                self._put(column, word)
        self._next += 1

    def format_lexemes(self) -> Iterable[str]:
        for lexeme, positions in self._positions.items():
            yield f"'{lexeme}':{','.join(positions)}" if positions else f"'{lexeme}'"

    def _put(self, column: str, word: str) -> bool:
        """Add a word to the page. Return False if the page is full."""
        lexeme = f"{word}{PAGE_MARK}{self._page}" if self._page else word
        positions = self._positions.get(lexeme)
        if self._next >= MAX_POSITION or (positions and len(positions) == MAX_LEXEME_POSITIONS):
            return False
        if positions is None:
            if self._page and word not in self._positions:
                # So a query for a single word does not depend on pages. The position has no column. It is needed
                # because PostgreSQL finds no phrase with a word that has no position.
                self._add(word).append(str(MAX_POSITION))
            positions = self._add(lexeme)
        positions.append(f"{self._next}{column}")
        self._next += 1
        self._bytes += 2
        return True

    def _start_page(self, column: str, repeated: Sequence[str]) -> None:
        self._page += 1
        self._next = 1
        for word in repeated:
            self._put(column, word)

    def _add_bare(self, word: str) -> None:
        if word not in self._positions and self._bytes < MAX_TSVECTOR_BYTES:
            self._add(word)

    def _add(self, lexeme: str) -> list[str]:
        self._bytes += len(lexeme.encode()) + 6
        return self._positions.setdefault(lexeme, [])


def restrict_to_store(store: int, tsquery: str) -> str:
    return f"'{format_store_lexeme(store)}' & ({tsquery})"


def build_tsquery(words: WordQuery) -> str:
    """Return a query for possible matches. In a long text, the words of a match may be on different pages."""
    return _format_tsquery(words, is_wanted=True)


def build_name_tsquery(phrases: Iterable[WordPhrase]) -> str:
    """Return a query for any of the phrases in a record's name. Names are short, so they are on the first page."""
    return " | ".join(f"({_format_in_name(phrase)})" for phrase in phrases)


def list_terms(phrase: WordPhrase) -> list[str]:
    """Return the lexemes of the phrase. In a prefix phrase, the last one is a beginning."""
    *first, last = phrase.words
    ending = format_lexeme_prefix(compute_indexed_prefix(last)) if phrase.prefix else format_lexeme(stem(last))
    return [format_lexeme(stem(word)) for word in first] + [ending] if first else [ending]


def list_phrases(words: WordQuery) -> list[WordPhrase]:
    """Return the phrases that a match may contain, without the excluded ones."""
    match words:
        case WordPhrase():
            return [words]
        case AllOf(parts) | AnyOf(parts):
            return list(dict.fromkeys([leaf for part in parts for leaf in list_phrases(part)]))
        case Without(wanted):
            return list_phrases(wanted)


def list_unwanted_phrases(words: WordQuery) -> list[WordPhrase]:
    match words:
        case WordPhrase():
            return []
        case AllOf(parts) | AnyOf(parts):
            return [leaf for part in parts for leaf in list_unwanted_phrases(part)]
        case Without(wanted, unwanted):
            return [*list_unwanted_phrases(wanted), *list_phrases(unwanted), *list_unwanted_phrases(unwanted)]


def _format_tsquery(words: WordQuery, *, is_wanted: bool) -> str:
    match words:
        case WordPhrase():
            return _format_any_page(words) if is_wanted else _format_first_page(words)
        case AllOf(parts):
            return " & ".join(f"({_format_tsquery(part, is_wanted=is_wanted)})" for part in parts)
        case AnyOf(parts):
            return " | ".join(f"({_format_tsquery(part, is_wanted=is_wanted)})" for part in parts)
        case Without(wanted, unwanted):
            # Excludes no possible match: the scorer checks the positions again.
            left_out = _format_tsquery(unwanted, is_wanted=not is_wanted)
            return f"({_format_tsquery(wanted, is_wanted=is_wanted)}) & !({left_out})"


def _format_any_page(phrase: WordPhrase) -> str:
    *first, last = list_terms(phrase)
    if not first:
        return _format_last_term(phrase, last)
    every = [*first] if phrase.prefix else [*first, last]
    operands = [f"('{term}' | '{term}{PAGE_MARK}':*)" for term in every]
    return " <-> ".join([*operands, f"'{last}':*"] if phrase.prefix else operands)


def _format_first_page(phrase: WordPhrase) -> str:
    *first, last = list_terms(phrase)
    return " <-> ".join([*(f"'{term}'" for term in first), _format_last_term(phrase, last)])


def _format_in_name(phrase: WordPhrase) -> str:
    *first, last = list_terms(phrase)
    ending = f"'{last}':*{NAME}" if phrase.prefix else f"'{last}':{NAME}"
    return " <-> ".join([*(f"'{term}':{NAME}" for term in first), ending])


def _format_last_term(phrase: WordPhrase, term: str) -> str:
    return f"'{term}':*" if phrase.prefix else f"'{term}'"
