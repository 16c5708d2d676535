"""Records and word queries as PostgreSQL's index has them: tsvector and tsquery.

A tsvector holds 1 MB, positions up to 16,383, and 255 of them for one lexeme. A longer text has
pages: a page ends where one of these is reached, the next one begins its positions anew, and its
lexemes have its number behind them. So every word is found, and every phrase too.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from everkept.core.records import Record
from everkept.language.spellings import stem, tokens
from everkept.language.words import (
    MAX_PHRASE_WORDS,
    AllOf,
    AnyOf,
    Phrase,
    Without,
    WordQuery,
    indexed_prefix,
    joined_texts,
    prepared,
)

NAME, TEXT, CONTEXT = COLUMNS = "ABC"  # the weights of a tsvector, one for each column
LAST_POSITION = 16_383
MOST_POSITIONS = 255  # of one lexeme
POSITIONED_BYTES = 500_000  # from here on words are found, but not which stand together
MOST_BYTES = 1_040_000  # some 70,000 different words; what is left out is found as a substring
LONGEST_BYTES = 1_000  # of a lexeme as it is; no index takes more than two thousand

# No word has these characters.
PAGE = "~"
STORE = "@"
_DIGEST = "#"

# Words that are on the next page too, so that no phrase ends with its page.
_REPEATED = MAX_PHRASE_WORDS - 1


def lexemes(store: int, record: Record, context: Sequence[str]) -> str:
    """For a cast to tsvector. `context` are the parent's name, and the texts around."""
    said = [part for part in (record.type, record.text) if part]
    pages = _Pages()
    words = 0
    for column, texts in zip(COLUMNS, ([record.name or ""], said, context), strict=True):
        stems = _stems(texts)
        pages.add(column, stems)
        words += len(stems)
    # How long it is stands where no word does: in the position of the lexeme that names its store.
    length = min(max(words, 1), LAST_POSITION)
    return " ".join([f"'{store_lexeme(store)}':{length}", *pages.texts()])


def store_lexeme(store: int) -> str:
    """Every record of the store has it: so one index answers each store alone."""
    return f"{STORE}{store}"


def lexeme_of(word: str) -> str:
    """A stem as the index has it; of a very long one the beginning and a digest."""
    written = word.encode()
    if len(written) <= LONGEST_BYTES:
        return word
    return f"{lexeme_beginning(word)}{_DIGEST}{blake2b(written, digest_size=16).hexdigest()}"


def lexeme_beginning(word: str) -> str:
    """What the lexemes of all words with this beginning have in common."""
    return word.encode()[: LONGEST_BYTES // 2].decode(errors="ignore")


def _stems(texts: Iterable[str]) -> list[str]:
    found = tokens(joined_texts([prepared(text) for text in texts]))
    return [lexeme_of(stem(word)) for word in found]


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
            if self._bytes > POSITIONED_BYTES:
                self._add_bare(word)
            elif not self._put(column, word):
                self._turn(column, words[max(number - _REPEATED, 0) : number])
                self._put(column, word)
        self._next += 1

    def texts(self) -> Iterable[str]:
        for lexeme, positions in self._positions.items():
            yield f"'{lexeme}':{','.join(positions)}" if positions else f"'{lexeme}'"

    def _put(self, column: str, word: str) -> bool:
        """False where the page has no room for it."""
        lexeme = f"{word}{PAGE}{self._page}" if self._page else word
        positions = self._positions.get(lexeme)
        if self._next >= LAST_POSITION or (positions and len(positions) == MOST_POSITIONS):
            return False
        if positions is None:
            if self._page and word not in self._positions:
                # So that who asks for a word alone need not know of pages. It has a position, of
                # no column: PostgreSQL finds no phrase with a word that has none.
                self._add(word).append(str(LAST_POSITION))
            positions = self._add(lexeme)
        positions.append(f"{self._next}{column}")
        self._next += 1
        self._bytes += 2
        return True

    def _turn(self, column: str, repeated: Sequence[str]) -> None:
        self._page += 1
        self._next = 1
        for word in repeated:
            self._put(column, word)

    def _add_bare(self, word: str) -> None:
        if word not in self._positions and self._bytes < MOST_BYTES:
            self._add(word)

    def _add(self, lexeme: str) -> list[str]:
        self._bytes += len(lexeme.encode()) + 6
        return self._positions.setdefault(lexeme, [])


def in_store(store: int, tsquery: str) -> str:
    return f"'{store_lexeme(store)}' & ({tsquery})"


def tsquery(words: WordQuery) -> str:
    """What may match: of the pages of a long text it does not say which words share one."""
    return _written(words, is_wanted=True)


def in_name(phrases: Iterable[Phrase]) -> str:
    """Any of them, in the name of a record: names are short, and on the first page."""
    return " | ".join(f"({_named(phrase)})" for phrase in phrases)


def terms_of(phrase: Phrase) -> list[str]:
    """The lexemes of its words; the last one of a prefix phrase is a beginning."""
    *first, last = phrase.words
    ending = lexeme_beginning(indexed_prefix(last)) if phrase.prefix else lexeme_of(stem(last))
    return [lexeme_of(stem(word)) for word in first] + [ending] if first else [ending]


def leaves(words: WordQuery) -> list[Phrase]:
    """The phrases that are asked for, without those that are not wanted."""
    match words:
        case Phrase():
            return [words]
        case AllOf(parts) | AnyOf(parts):
            return list(dict.fromkeys([leaf for part in parts for leaf in leaves(part)]))
        case Without(wanted):
            return leaves(wanted)


def unwanted_leaves(words: WordQuery) -> list[Phrase]:
    match words:
        case Phrase():
            return []
        case AllOf(parts) | AnyOf(parts):
            return [leaf for part in parts for leaf in unwanted_leaves(part)]
        case Without(wanted, unwanted):
            return [*unwanted_leaves(wanted), *leaves(unwanted), *unwanted_leaves(unwanted)]


def _written(words: WordQuery, *, is_wanted: bool) -> str:
    match words:
        case Phrase():
            return _on_any_page(words) if is_wanted else _on_first_page(words)
        case AllOf(parts):
            return " & ".join(f"({_written(part, is_wanted=is_wanted)})" for part in parts)
        case AnyOf(parts):
            return " | ".join(f"({_written(part, is_wanted=is_wanted)})" for part in parts)
        case Without(wanted, unwanted):
            # Nothing is left out that might be meant: whoever reads the positions looks again.
            left_out = _written(unwanted, is_wanted=not is_wanted)
            return f"({_written(wanted, is_wanted=is_wanted)}) & !({left_out})"


def _on_any_page(phrase: Phrase) -> str:
    *first, last = terms_of(phrase)
    if not first:
        return _last(phrase, last)
    every = [*first] if phrase.prefix else [*first, last]
    operands = [f"('{term}' | '{term}{PAGE}':*)" for term in every]
    return " <-> ".join([*operands, f"'{last}':*"] if phrase.prefix else operands)


def _on_first_page(phrase: Phrase) -> str:
    *first, last = terms_of(phrase)
    return " <-> ".join([*(f"'{term}'" for term in first), _last(phrase, last)])


def _named(phrase: Phrase) -> str:
    *first, last = terms_of(phrase)
    ending = f"'{last}':*{NAME}" if phrase.prefix else f"'{last}':{NAME}"
    return " <-> ".join([*(f"'{term}':{NAME}" for term in first), ending])


def _last(phrase: Phrase, term: str) -> str:
    return f"'{term}':*" if phrase.prefix else f"'{term}'"
