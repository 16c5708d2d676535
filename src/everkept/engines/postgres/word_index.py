"""Records and word queries as PostgreSQL's index has them: tsvector and tsquery.

A tsvector holds 1 MB, positions up to 16,383, and 255 of them for one lexeme. A longer text has
pages: a page ends where one of these is reached, the next one begins its positions anew, and its
lexemes have its number behind them. So every word is found, and every phrase too.
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

NAME, TEXT, CONTEXT = COLUMNS = "ABC"  # the weights of a tsvector, one for each column
MAX_POSITION = 16_383
MAX_LEXEME_POSITIONS = 255  # of one lexeme
MAX_POSITIONED_BYTES = 500_000  # from here on words are found, but not which stand together
MAX_TSVECTOR_BYTES = 1_040_000  # some 70,000 different words; what is left out is found as a substring
MAX_LEXEME_BYTES = 1_000  # of a lexeme as it is; no index takes more than two thousand

# No word has these characters.
PAGE_MARK = "~"
STORE_MARK = "@"
_DIGEST_MARK = "#"

# Words that are on the next page too, so that no phrase ends with its page.
_REPEATED_WORDS = MAX_PHRASE_WORDS - 1


def build_tsvector(store: int, record: Record, context: Sequence[str]) -> str:
    """For a cast to tsvector. `context` are the parent's name, and the texts around."""
    said = [part for part in (record.type, record.text) if part]
    pages = _Pages()
    words = 0
    for column, texts in zip(COLUMNS, ([record.name or ""], said, context), strict=True):
        stems = _list_lexemes(texts)
        pages.add(column, stems)
        words += len(stems)
    # How long it is stands where no word does: in the position of the lexeme that names its store.
    length = min(max(words, 1), MAX_POSITION)
    return " ".join([f"'{format_store_lexeme(store)}':{length}", *pages.format_lexemes()])


def format_store_lexeme(store: int) -> str:
    """Every record of the store has it: so one index answers each store alone."""
    return f"{STORE_MARK}{store}"


def format_lexeme(word: str) -> str:
    """A stem as the index has it; of a very long one the beginning and a digest."""
    written = word.encode()
    if len(written) <= MAX_LEXEME_BYTES:
        return word
    return f"{format_lexeme_prefix(word)}{_DIGEST_MARK}{blake2b(written, digest_size=16).hexdigest()}"


def format_lexeme_prefix(word: str) -> str:
    """What the lexemes of all words with this beginning have in common."""
    return word.encode()[: MAX_LEXEME_BYTES // 2].decode(errors="ignore")


def _list_lexemes(texts: Iterable[str]) -> list[str]:
    found = split_tokens(join_index_texts([prepare_text(text) for text in texts]))
    return [format_lexeme(stem(word)) for word in found]


class _Pages:
    """The positions of each lexeme, and where on its page the next word stands."""

    def __init__(self) -> None:
        self._positions: dict[str, list[str]] = {}
        self._page = 0
        self._next = 1
        self._bytes = 0

    def add(self, column: str, words: Sequence[str]) -> None:
        """The words of a column; no phrase goes on into the next one."""
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
        """False where the page has no room for it."""
        lexeme = f"{word}{PAGE_MARK}{self._page}" if self._page else word
        positions = self._positions.get(lexeme)
        if self._next >= MAX_POSITION or (positions and len(positions) == MAX_LEXEME_POSITIONS):
            return False
        if positions is None:
            if self._page and word not in self._positions:
                # So that who asks for a word alone need not know of pages. It has a position, of
                # no column: PostgreSQL finds no phrase with a word that has none.
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
    """What may match: of the pages of a long text it does not say which words share one."""
    return _format_tsquery(words, is_wanted=True)


def build_name_tsquery(phrases: Iterable[WordPhrase]) -> str:
    """Any of them, in the name of a record: names are short, and on the first page."""
    return " | ".join(f"({_format_in_name(phrase)})" for phrase in phrases)


def list_terms(phrase: WordPhrase) -> list[str]:
    """The lexemes of its words; the last one of a prefix phrase is a beginning."""
    *first, last = phrase.words
    ending = format_lexeme_prefix(compute_indexed_prefix(last)) if phrase.prefix else format_lexeme(stem(last))
    return [format_lexeme(stem(word)) for word in first] + [ending] if first else [ending]


def list_phrases(words: WordQuery) -> list[WordPhrase]:
    """The phrases that are asked for, without those that are not wanted."""
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
            # Nothing is left out that might be meant: whoever reads the positions looks again.
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
