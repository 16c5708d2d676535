"""Searchable words: the text that is indexed, and the query that people type.

The word lists affect rankings, so changing a list changes search results.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from everkept.language.spellings import (
    compile_unspaced_runs,
    fold,
    join_segments,
    list_compounds,
    list_other_spellings,
    split_parts,
    split_segments,
    split_tokens,
    stem,
)
from everkept.patterns import compile_late
from everkept.values import Value

_ENGLISH = """
    a about all also am an and any are arent as at be because been being but by can cant could couldnt did didnt do does
    doesnt doing dont for from had has hasnt have havent he her here hers him his how hows i if im in into is isnt it
    its ive lets me my no nor not of on or our ours please shall she should shouldnt so some such tell than that thats
    the their theirs them then there theres these they theyre this those to too very was wasnt we were werent what whats
    when where wheres which while who whom whos whose why will with wont would wouldnt you your youre yours youve
"""
_GERMAN = """
    aber als also am an auch auf aus bei bin bis bitte da damit dann das dass dein dem den denn der des dich die dies
    diese diesem diesen dieser dieses dir doch du durch ein eine einem einen einer eines er es etwas euch für gegen gibt
    habe haben hat hatte hatten hier ich ihm ihn ihr ihre im ist ja jede jedem jeden jeder jedes jetzt kann kannst kein
    keine man mehr mein meine mich mir mit muss nach nicht noch nun nur ob oder ohne schon sein seine sehr sich sie sind
    sobald soll sollte sollten statt über um und uns unser unter vom von vor war waren warum was weil welche welcher
    welches wenn wer werden wie wieder wir wird wo wurde würde zu zum zur
"""
_FRENCH = """
    ai alors au aucun aussi autre aux avant avec avez avoir avons ce cela ces cet cette comme comment contre dans de
    depuis des donc du elle elles en encore entre est et étaient était été être eu eux faire fait faut il ils je la le
    les leur leurs lui ma mais mes moi mon même ne nos notre nous on ont ou où par pas peut plus pour pourquoi qu quand
    que quel quelle quelles quels qui quoi sa sans sera ses si son sont sous sur ta te tes toi ton tous tout toute
    toutes très tu un une vos votre vous
"""
STOP_WORDS = frozenset(_ENGLISH.split())
FOREIGN_STOP_WORDS = frozenset((*_GERMAN.split(), *_FRENCH.split()))

MAX_TERMS = 64  # words of a query that count
MAX_PHRASE_WORDS = 64
MAX_EXPRESSION_CHARACTERS = 2_000  # longer text was pasted, so its words are plain
MAX_NESTED_PARENTHESES = 6  # the parser of FTS5 has a stack of 100 symbols


class WordPhrase(Value):
    """One or more consecutive lower-case words, not stemmed. With `prefix`, the last word may continue."""

    words: tuple[str, ...]
    prefix: bool = False


class AllOf(Value):
    parts: tuple["WordQuery", ...]


class AnyOf(Value):
    parts: tuple["WordQuery", ...]


class Without(Value):
    wanted: "WordQuery"
    unwanted: "WordQuery"


WordQuery = WordPhrase | AllOf | AnyOf | Without


class TypedQuery(Value):
    """A query that a person typed.

    `terms` are the typed words in order, each with its other spellings. In an expression, they are the wanted words and
    phrases. `expression` is None unless the text uses AND, OR, NOT or quotes. `is_strict` is true if it uses AND or
    NOT, so that no looser reading applies. `text` is for substring search.
    """

    terms: tuple[WordQuery, ...]
    expression: WordQuery | None
    text: str
    is_strict: bool = False

    def build_all_query(self) -> WordQuery | None:
        """Return a query for all words except stop words, or None if no words remain."""
        return _join_all(_drop_stop_words(self.terms))

    def build_any_query(self) -> WordQuery | None:
        """Return a query for at least one word except stop words, or None if no words remain."""
        return _join_any([loose for term in _drop_stop_words(self.terms) for loose in _loosen(term)])


def build_index_text(text: str) -> str:
    """Return the text for the word index: the folded text and other spellings of its words."""
    return join_index_texts([prepare_text(text)])


class PreparedText(NamedTuple):
    """A folded text and other spellings of its words."""

    folded: str
    added: tuple[str, ...]


def prepare_text(text: str) -> PreparedText:
    """Prepare a text that is indexed more than once. See `join_index_texts`."""
    folded = fold(text)
    unusual = [
        chunk
        for chunk in dict.fromkeys(folded.split())
        if len(chunk) > 2 and not (chunk.isalpha() and (chunk.islower() or chunk.istitle()))
    ]
    return PreparedText(folded, tuple(list_other_spellings(" ".join(unusual))) if unusual else ())


def join_index_texts(texts: Sequence[PreparedText]) -> str:
    """Join the texts for the word index, one per line, without repeated spellings."""
    added = dict.fromkeys(chain.from_iterable([text.added for text in texts]))
    return "\n".join([*(text.folded for text in texts), *added])


def parse_query(text: str) -> TypedQuery:
    """Parse a typed query. Any text is valid."""
    readable = _NEAR.sub(r"(\1)", text)
    try:
        parser = _Parser(_read_expression(readable))
        expression = parser.parse()
    except _NotAnExpressionError:
        return TypedQuery(tuple(_parse_plain_terms(readable)), None, text.strip())
    return TypedQuery(tuple(parser.terms), expression, text.strip(), parser.is_strict)


def to_fts5(query: WordQuery) -> str:
    """Return the query as an FTS5 MATCH expression. Every word is quoted."""
    match query:
        case WordPhrase(words, prefix):
            if prefix:
                words = (*words[:-1], _unstem(words[-1]))
            quoted = " ".join(words).replace('"', '""')
            return f'"{quoted}" *' if prefix else f'"{quoted}"'
        case AllOf(parts):
            return " AND ".join(map(_to_fts5_operand, parts))
        case AnyOf(parts):
            return " OR ".join(map(_to_fts5_operand, parts))
        case Without(wanted, unwanted):
            return f"{_to_fts5_operand(wanted)} NOT {_to_fts5_operand(unwanted)}"


def compute_indexed_prefix(word: str) -> str:
    """Return the beginning of the stems that match the last word of a prefix phrase.

    It is the typed word, or its stem if FTS5 always stems it (example: machine*).
    """
    return stem(_unstem(word))


def _to_fts5_operand(query: WordQuery) -> str:
    return to_fts5(query) if isinstance(query, WordPhrase) else f"({to_fts5(query)})"


def _unstem(word: str) -> str:
    """Return a spelling that FTS5 stems to the word itself.

    FTS5 also stems the word of a prefix query: res* would become re*, and deploy* would become deploi*. The stemmer
    only removes the added -ness.
    """
    return f"{word}ness" if stem(word) != word == stem(f"{word}ness") else word


# Commas separate words ("redis,postgres") but not digits ("1,000").
_TYPED = compile_late(r"[()]|(?:[^\s(),;、，。；！？]|,(?=\d))+")
_PARENTHESES = frozenset("()")

_ENGLISH_ENDINGS = """
    ing ed er ers es ies ation ations ization izations ational ator ative ability ibility able ible ably ance ancy ence
    ency ment ments ion ions ity ities ic ication ical ically ive ively iveness al ally ality alism alize ate ately ant
    ent ently ous ously ousness ful fully fulness ness ism ize izer ogy ely y
"""
_ENDINGS = tuple(_ENGLISH_ENDINGS.split())


def _parse_plain_terms(text: str) -> list[WordQuery]:
    terms: list[WordQuery] = []
    for typed in _TYPED.finditer(text):
        if len(terms) == MAX_TERMS:
            break
        if typed[0] not in _PARENTHESES and (term := _parse_term(typed[0])):
            terms.append(term)
    return terms


def _parse_term(typed: str) -> WordQuery | None:
    """Parse a typed word into its phrase and other spellings. Return None for punctuation."""
    folded = fold(typed)
    # **bold** is emphasis, but auth* is a prefix.
    prefix = typed.rstrip(".:!?)").endswith("*") and not typed.startswith("*")
    phrases = _build_phrases(split_tokens(folded), prefix=prefix)
    if not phrases:
        return None
    found = list_compounds(folded)
    respelled = _list_respellings(found[0], prefix=prefix) if len(found) == 1 else []
    return _join_any([*phrases, *respelled])


def _list_respellings(compound: str, *, prefix: bool) -> list[WordQuery]:
    segments = split_segments(compound)
    parts = split_parts(segments)
    spellings: list[WordQuery] = []
    if len(parts) > len(segments):
        words = split_tokens(" ".join(parts))[:MAX_PHRASE_WORDS]
        # "get the user name" matches getUserName, but "I lost my phone" does not match iPhone.
        if "." not in compound and all(len(word) > 1 and word.isalpha() for word in words):
            *first, last = words
            final = _join_any(_build_phrases([last], prefix=prefix))
            spellings += [AllOf((*(WordPhrase((word,)) for word in first), final))] if final else []
        else:
            spellings += _build_phrases(words, prefix=prefix)
    if word := join_segments(compound, segments):
        spellings += _build_phrases(split_tokens(word), prefix=prefix)
    return spellings


def _build_phrases(words: Sequence[str], *, prefix: bool) -> list[WordPhrase]:
    """Return the words as a phrase. With `prefix`, add phrases for words whose stem is shorter than the typed word."""
    words = tuple(words[:MAX_PHRASE_WORDS])
    if not words:
        return []
    last = words[-1]
    if not last.isascii() and compile_unspaced_runs().match(last):
        # The text may continue after the run, so its last character can be the middle of a piece.
        if len(last) == 1 and len(words) > 1 and len(words[-2]) == 2 and words[-2][1] == last:
            return [WordPhrase(words[:-1])]
        return [WordPhrase(words, prefix=len(last) == 1)]
    if not prefix:
        return [WordPhrase(words)]
    return [WordPhrase(words, prefix=True), *(WordPhrase((*words[:-1], w)) for w in _list_completions(last))]


def _list_completions(beginning: str) -> list[str]:
    """Return words with this beginning but other stems: "authent" is stored for authentication, not authentic."""
    if not beginning.isascii() or len(beginning) < 3:
        return []
    words = [beginning, beginning + "ing"]
    words += [
        beginning + ending[size:]
        for ending in _ENDINGS
        for size in range(1, len(ending) + 1)
        if beginning.endswith(ending[:size])
    ]
    by_stem = {stem(word): word for word in reversed(words)}
    return [word for found, word in by_stem.items() if not found.startswith(beginning)]


def _join_all(parts: Iterable[WordQuery]) -> WordQuery | None:
    distinct = tuple(dict.fromkeys(parts))
    return AllOf(distinct) if len(distinct) > 1 else next(iter(distinct), None)


def _join_any(parts: Iterable[WordQuery]) -> WordQuery | None:
    distinct = tuple(dict.fromkeys(parts))
    return AnyOf(distinct) if len(distinct) > 1 else next(iter(distinct), None)


def _drop_stop_words(terms: Sequence[WordQuery]) -> Sequence[WordQuery]:
    """Drop the stop words, unless all terms are stop words."""
    return [term for term in terms if not _is_stop_word(term)] or terms


def _is_stop_word(term: WordQuery) -> bool:
    first = term.parts[0] if isinstance(term, AnyOf) else term
    return isinstance(first, WordPhrase) and not first.prefix and "".join(first.words) in STOP_WORDS


def _loosen(term: WordQuery) -> list[WordQuery]:
    """Return the term and its pieces. A sentence without spaces is one phrase, and any piece of it may match."""
    if not isinstance(term, WordPhrase) or len(term.words) == 1:
        return [term]
    pieces = [w for w in term.words if len(w) == 2 and not w.isascii() and compile_unspaced_runs().fullmatch(w)]
    return [term, *(WordPhrase((piece,)) for piece in pieces)]


# Word distances are not supported: NEAR(a b, 10) matches both words anywhere.
_NEAR = compile_late(r"\bNEAR\(([^()]*?)(?:,\s*\d+\s*)?\)")
_QUOTE = compile_late('["“”„]')
_OPERATORS = frozenset(("AND", "OR", "NOT"))
_OPERATOR = compile_late(r"(?<![^\s()])(?:AND|OR|NOT)(?![^\s()])")


class _NotAnExpressionError(Exception):
    pass


class _Operand(Value):
    term: WordQuery | None  # None for punctuation, which takes the place of a word but matches nothing
    is_quoted: bool = False


def _read_expression(text: str) -> "list[str | _Operand]":
    is_quoting = bool(_QUOTE.search(text))
    # Parentheses without operators are ordinary prose.
    says_how = is_quoting or _OPERATOR.search(text)
    # "FILE NOT FOUND" is a message, not an exclusion of "found".
    is_shouted = "NOT" in text and not is_quoting and _OPERATOR.sub("", text).isupper()
    if not says_how or is_shouted or len(text) > MAX_EXPRESSION_CHARACTERS:
        raise _NotAnExpressionError
    lexemes = _split_lexemes(text)
    if sum(isinstance(lexeme, _Operand) for lexeme in lexemes) > MAX_TERMS:
        raise _NotAnExpressionError
    return lexemes


def _split_lexemes(text: str) -> list[str | _Operand]:
    """Split the text into operators and parentheses (strings) and operands."""
    pieces = _QUOTE.split(text)
    is_closed = len(pieces) % 2 == 1
    # 5" is a length, because a phrase does not begin inside a word.
    if not is_closed or any(piece and piece[-1] != "(" and not piece[-1].isspace() for piece in pieces[:-1:2]):
        raise _NotAnExpressionError
    lexemes: list[str | _Operand] = []
    for number, piece in enumerate(pieces):
        if number % 2:
            prefix = pieces[number + 1].lstrip().startswith("*")
            phrases = _build_phrases(split_tokens(fold(piece)), prefix=prefix)
            lexemes.append(_Operand(_join_any(phrases), is_quoted=True))
            continue
        for word in _TYPED.findall(piece):
            is_symbol = word in _OPERATORS or word in _PARENTHESES
            lexemes.append(word if is_symbol else _Operand(_parse_term(word)))
    return lexemes


class _Parser:
    """Recursive descent parser with FTS5's precedence: adjacency, then NOT, then AND, then OR."""

    def __init__(self, lexemes: Sequence[str | _Operand]) -> None:
        self._lexemes = lexemes
        self._position = 0
        self._nesting = 0
        self.terms: list[WordQuery] = []  # the wanted ones
        self.is_strict = False

    def parse(self) -> WordQuery:
        expression = self._parse_alternatives()
        if expression is None or self._position < len(self._lexemes):
            raise _NotAnExpressionError
        return expression

    def _parse_alternatives(self) -> WordQuery | None:
        parts = [self._parse_conjunction()]
        while self._accept("OR"):
            parts.append(self._parse_conjunction())
        return _join_any(part for part in parts if part)

    def _parse_conjunction(self) -> WordQuery | None:
        parts = [self._parse_exclusion()]
        while self._accept_strict("AND"):
            parts.append(self._parse_exclusion())
        return _join_all(part for part in parts if part)

    def _parse_exclusion(self) -> WordQuery | None:
        wanted = self._parse_group()
        wanted_terms = len(self.terms)
        unwanted: list[WordQuery | None] = []
        while self._accept_strict("NOT"):
            unwanted.append(self._parse_group())
        del self.terms[wanted_terms:]
        refused = _join_any(part for part in unwanted if part)
        return Without(wanted, refused) if wanted and refused else wanted

    def _parse_group(self) -> WordQuery | None:
        """Parse adjacent operands: all of them except unquoted stop words."""
        parts: list[tuple[WordQuery, bool]] = []
        start = self._position
        while self._position < len(self._lexemes):
            lexeme = self._lexemes[self._position]
            if isinstance(lexeme, _Operand):
                self._position += 1
                if lexeme.term:
                    self.terms.append(lexeme.term)
                    is_dispensable = not lexeme.is_quoted and _is_stop_word(lexeme.term)
                    parts.append((lexeme.term, is_dispensable))
            elif self._accept("("):
                if inner := self._parse_parentheses():
                    parts.append((inner, False))
            else:
                break
        if self._position == start:
            raise _NotAnExpressionError
        needed = [part for part, is_dispensable in parts if not is_dispensable]
        return _join_all(needed or [part for part, _ in parts])

    def _parse_parentheses(self) -> WordQuery | None:
        if self._accept(")"):
            return None  # main() is a word
        self._nesting += 1
        if self._nesting > MAX_NESTED_PARENTHESES:
            raise _NotAnExpressionError
        inner = self._parse_alternatives()
        self._nesting -= 1
        if not self._accept(")"):
            raise _NotAnExpressionError
        return inner

    def _accept_strict(self, symbol: str) -> bool:
        is_next = self._accept(symbol)
        self.is_strict |= is_next
        return is_next

    def _accept(self, symbol: str) -> bool:
        is_next = self._position < len(self._lexemes) and self._lexemes[self._position] == symbol
        self._position += is_next
        return is_next
