"""How text becomes searchable words: the text that is indexed, and the query people type.

The lists decide rankings: a change of one is a change of what is found.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from everkept.language.spellings import (
    compounds,
    fold,
    joined,
    other_ways,
    parts_of,
    segments_of,
    stem,
    tokens,
    unspaced_runs,
)
from everkept.patterns import compile_late
from everkept.values import Value

_ENGLISH = """
    a about all also am an and any are arent as at be because been being but by can cant could
    couldnt did didnt do does doesnt doing dont for from had has hasnt have havent he her here hers
    him his how hows i if im in into is isnt it its ive lets me my no nor not of on or our ours
    please shall she should shouldnt so some such tell than that thats the their theirs them then
    there theres these they theyre this those to too very was wasnt we were werent what whats when
    where wheres which while who whom whos whose why will with wont would wouldnt you your youre
    yours youve
"""
_GERMAN = """
    aber als also am an auch auf aus bei bin bis bitte da damit dann das dass dein dem den
    denn der des dich die dies diese diesem diesen dieser dieses dir doch du durch ein eine
    einem einen einer eines er es etwas euch für gegen gibt habe haben hat hatte hatten hier
    ich ihm ihn ihr ihre im ist ja jede jedem jeden jeder jedes jetzt kann kannst kein keine
    man mehr mein meine mich mir mit muss nach nicht noch nun nur ob oder ohne schon sein
    seine sehr sich sie sind sobald soll sollte sollten statt über um und uns unser unter vom
    von vor war waren warum was weil welche welcher welches wenn wer werden wie wieder wir
    wird wo wurde würde zu zum zur
"""
_FRENCH = """
    ai alors au aucun aussi autre aux avant avec avez avoir avons ce cela ces cet cette comme
    comment contre dans de depuis des donc du elle elles en encore entre est et étaient était
    été être eu eux faire fait faut il ils je la le les leur leurs lui ma mais mes moi mon
    même ne nos notre nous on ont ou où par pas peut plus pour pourquoi qu quand que quel
    quelle quelles quels qui quoi sa sans sera ses si son sont sous sur ta te tes toi ton tous
    tout toute toutes très tu un une vos votre vous
"""
STOP_WORDS = frozenset(_ENGLISH.split())
FOREIGN_STOP_WORDS = frozenset((*_GERMAN.split(), *_FRENCH.split()))


MAX_TERMS = 64  # typed words of a query that count; more of them find nothing more
MAX_PHRASE_WORDS = 64
MAX_EXPRESSION = 2_000  # characters; what is longer was pasted, and its words are plain
MAX_NESTING = 6  # parentheses inside parentheses; FTS5's parser has a stack of 100 symbols


class Phrase(Value):
    """Consecutive words, lower-case and not stemmed; one word is a phrase of one.

    With `prefix` the last word may go on: see `indexed_prefix`.
    """

    words: tuple[str, ...]
    prefix: bool = False


class AllOf(Value):
    parts: tuple["WordQuery", ...]


class AnyOf(Value):
    parts: tuple["WordQuery", ...]


class Without(Value):
    wanted: "WordQuery"
    unwanted: "WordQuery"


WordQuery = Phrase | AllOf | AnyOf | Without


class Query(Value):
    """What someone typed.

    `terms` are the typed words in order, each with its other spellings; in an expression these
    are the wanted words and phrases. `expression` is None unless the text says how its words
    belong together (AND, OR, NOT, quotes). `text` is for substring search.
    """

    terms: tuple[WordQuery, ...]
    expression: WordQuery | None
    text: str

    def all_terms(self) -> WordQuery | None:
        """Every typed word but stop words, or None if there is nothing to search for."""
        return _all_of(_telling(self.terms))

    def any_term(self) -> WordQuery | None:
        """At least one of the typed words but stop words, or None."""
        return _any_of([loose for term in _telling(self.terms) for loose in _loosened(term)])


def index_text(text: str) -> str:
    """What goes into the word index for a text: the folded text and other ways to write it."""
    return joined_texts([prepared(text)])


class Prepared(NamedTuple):
    """A folded text, and other ways to write the words in it."""

    folded: str
    added: tuple[str, ...]


def prepared(text: str) -> Prepared:
    """For who indexes a text more than once: see `joined_texts`."""
    folded = fold(text)
    unusual = [
        chunk
        for chunk in dict.fromkeys(folded.split())
        if len(chunk) > 2 and not (chunk.isalpha() and (chunk.islower() or chunk.istitle()))
    ]
    return Prepared(folded, tuple(other_ways(" ".join(unusual))) if unusual else ())


def joined_texts(texts: Sequence[Prepared]) -> str:
    """What goes into the word index for all of these, each a line: as for one text of them."""
    added = dict.fromkeys(chain.from_iterable([text.added for text in texts]))
    return "\n".join([*(text.folded for text in texts), *added])


def parse_query(text: str) -> Query:
    """Reads what someone typed; any text is a query, and none is an error."""
    readable = _NEAR.sub(r"(\1)", text)
    try:
        expression, terms = _parse_expression(readable)
    except _NotAnExpressionError:
        expression, terms = None, _plain_terms(readable)
    return Query(tuple(terms), expression, text.strip())


def to_fts5(query: WordQuery) -> str:
    """The query as an FTS5 MATCH expression, every word inside a quoted string."""
    match query:
        case Phrase(words, prefix):
            if prefix:
                words = (*words[:-1], _unstemmed(words[-1]))
            quoted = " ".join(words).replace('"', '""')
            return f'"{quoted}" *' if prefix else f'"{quoted}"'
        case AllOf(parts):
            return " AND ".join(map(_fts5_operand, parts))
        case AnyOf(parts):
            return " OR ".join(map(_fts5_operand, parts))
        case Without(wanted, unwanted):
            return f"{_fts5_operand(wanted)} NOT {_fts5_operand(unwanted)}"


def indexed_prefix(word: str) -> str:
    """What a stem in the index begins with for the last word of a prefix phrase to match it.

    It is the word as typed, or its stem where FTS5 cannot be kept from stemming, as in machine*.
    """
    return stem(_unstemmed(word))


def _fts5_operand(query: WordQuery) -> str:
    return to_fts5(query) if isinstance(query, Phrase) else f"({to_fts5(query)})"


def _unstemmed(word: str) -> str:
    """A spelling that FTS5 stems to the word itself.

    FTS5 stems the word of a prefix query too, so that res* would ask for re* and deploy* for
    deploi*; the stemmer takes -ness off again and goes no further.
    """
    return f"{word}ness" if stem(word) != word == stem(f"{word}ness") else word


# Commas part words, as in "redis,postgres", but not digits, as in "1,000".
_TYPED = compile_late(r"[()]|(?:[^\s(),;、，。；！？]|,(?=\d))+")
_PARENTHESES = frozenset("()")

_ENGLISH_ENDINGS = """
    ing ed er ers es ies ation ations ization izations ational ator ative ability ibility able ible
    ably ance ancy ence ency ment ments ion ions ity ities ic ication ical ically ive ively
    iveness al ally ality alism alize ate ately ant ent ently ous ously ousness ful fully fulness
    ness ism ize izer ogy ely y
"""
_ENDINGS = tuple(_ENGLISH_ENDINGS.split())


def _plain_terms(text: str) -> list[WordQuery]:
    terms: list[WordQuery] = []
    for typed in _TYPED.finditer(text):
        if len(terms) == MAX_TERMS:
            break
        if typed[0] not in _PARENTHESES and (term := _term(typed[0])):
            terms.append(term)
    return terms


def _term(typed: str) -> WordQuery | None:
    """A typed word: its phrase, or its parts, or the parts in one; None for mere punctuation."""
    folded = fold(typed)
    # **bold** is emphasis; auth* goes on.
    prefix = typed.rstrip(".:!?)").endswith("*") and not typed.startswith("*")
    phrases = _phrases(tokens(folded), prefix=prefix)
    if not phrases:
        return None
    found = compounds(folded)
    respelled = _respelled(found[0], prefix=prefix) if len(found) == 1 else []
    return _any_of([*phrases, *respelled])


def _respelled(compound: str, *, prefix: bool) -> list[WordQuery]:
    segments = segments_of(compound)
    parts = parts_of(segments)
    spellings: list[WordQuery] = []
    if len(parts) > len(segments):
        words = tokens(" ".join(parts))[:MAX_PHRASE_WORDS]
        # "get the user name" is getUserName, but "I lost my phone" is no iPhone.
        if "." not in compound and all(len(word) > 1 and word.isalpha() for word in words):
            *first, last = words
            final = _any_of(_phrases([last], prefix=prefix))
            spellings += [AllOf((*(Phrase((word,)) for word in first), final))] if final else []
        else:
            spellings += _phrases(words, prefix=prefix)
    if word := joined(compound, segments):
        spellings += _phrases(tokens(word), prefix=prefix)
    return spellings


def _phrases(words: Sequence[str], *, prefix: bool) -> list[Phrase]:
    """The words in a row; with `prefix` also where the index has less than was typed of them."""
    words = tuple(words[:MAX_PHRASE_WORDS])
    if not words:
        return []
    last = words[-1]
    if not last.isascii() and unspaced_runs().match(last):
        # The text may go on behind the run, so its last character can be the middle of a piece.
        if len(last) == 1 and len(words) > 1 and _is_piece_before(words[-2], last):
            return [Phrase(words[:-1])]
        return [Phrase(words, prefix=len(last) == 1)]
    if not prefix:
        return [Phrase(words)]
    return [Phrase(words, prefix=True), *(Phrase((*words[:-1], w)) for w in _completed(last))]


def _is_piece_before(piece: str, last: str) -> bool:
    return len(piece) == 2 and piece[1] == last


def _completed(beginning: str) -> list[str]:
    """Words with this beginning whose stems do not have it.

    The index has "authent" for authentication, which authentic* would not find.
    """
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


def _all_of(parts: Iterable[WordQuery]) -> WordQuery | None:
    distinct = tuple(dict.fromkeys(parts))
    return AllOf(distinct) if len(distinct) > 1 else next(iter(distinct), None)


def _any_of(parts: Iterable[WordQuery]) -> WordQuery | None:
    distinct = tuple(dict.fromkeys(parts))
    return AnyOf(distinct) if len(distinct) > 1 else next(iter(distinct), None)


def _telling(terms: Sequence[WordQuery]) -> Sequence[WordQuery]:
    """The terms that are not stop words, unless all are."""
    return [term for term in terms if not _is_stop_word(term)] or terms


def _is_stop_word(term: WordQuery) -> bool:
    first = term.parts[0] if isinstance(term, AnyOf) else term
    return isinstance(first, Phrase) and not first.prefix and "".join(first.words) in STOP_WORDS


def _loosened(term: WordQuery) -> list[WordQuery]:
    """A sentence without spaces is one phrase; any piece of it will do where any word does."""
    if not isinstance(term, Phrase) or len(term.words) == 1:
        return [term]
    pieces = [
        w for w in term.words if len(w) == 2 and not w.isascii() and unspaced_runs().fullmatch(w)
    ]
    return [term, *(Phrase((piece,)) for piece in pieces)]


# There are no distances here: NEAR(a b, 10) asks for both.
_NEAR = compile_late(r"\bNEAR\(([^()]*?)(?:,\s*\d+\s*)?\)")
_QUOTE = compile_late('["“”„]')
_OPERATORS = frozenset(("AND", "OR", "NOT"))
_OPERATOR = compile_late(r"(?<![^\s()])(?:AND|OR|NOT)(?![^\s()])")


class _NotAnExpressionError(Exception):
    pass


class _Operand(Value):
    term: WordQuery | None  # None is punctuation: it stands where a word may and asks nothing
    is_quoted: bool = False


def _parse_expression(text: str) -> tuple[WordQuery, list[WordQuery]]:
    is_quoting = bool(_QUOTE.search(text))
    # Parentheses alone are ordinary prose.
    says_how = is_quoting or _OPERATOR.search(text)
    # "FILE NOT FOUND" is a message, not a wish to leave "found" out.
    is_shouted = "NOT" in text and not is_quoting and _OPERATOR.sub("", text).isupper()
    if not says_how or is_shouted or len(text) > MAX_EXPRESSION:
        raise _NotAnExpressionError
    lexemes = _lexemes(text)
    if sum(isinstance(lexeme, _Operand) for lexeme in lexemes) > MAX_TERMS:
        raise _NotAnExpressionError
    return _Parser(lexemes).parse()


def _lexemes(text: str) -> list[str | _Operand]:
    """Operators and parentheses as strings, and the operands between them."""
    pieces = _QUOTE.split(text)
    is_closed = len(pieces) % 2 == 1
    # 5" is a length: a phrase does not begin inside a word.
    if not is_closed or any(_ends_in_word(piece) for piece in pieces[:-1:2]):
        raise _NotAnExpressionError
    lexemes: list[str | _Operand] = []
    for number, piece in enumerate(pieces):
        if number % 2:
            prefix = pieces[number + 1].lstrip().startswith("*")
            phrases = _phrases(tokens(fold(piece)), prefix=prefix)
            lexemes.append(_Operand(_any_of(phrases), is_quoted=True))
            continue
        for word in _TYPED.findall(piece):
            is_symbol = word in _OPERATORS or word in _PARENTHESES
            lexemes.append(word if is_symbol else _Operand(_term(word)))
    return lexemes


def _ends_in_word(piece: str) -> bool:
    return bool(piece) and piece[-1] != "(" and not piece[-1].isspace()


class _Parser:
    """Recursive descent with FTS5's precedence: side by side, then NOT, then AND, then OR."""

    def __init__(self, lexemes: Sequence[str | _Operand]) -> None:
        self._lexemes = lexemes
        self._position = 0
        self._nesting = 0
        self._terms: list[WordQuery] = []

    def parse(self) -> tuple[WordQuery, list[WordQuery]]:
        """The expression, and the terms it wants."""
        expression = self._alternatives()
        if expression is None or self._position < len(self._lexemes):
            raise _NotAnExpressionError
        return expression, self._terms

    def _alternatives(self) -> WordQuery | None:
        parts = [self._conjunction()]
        while self._takes("OR"):
            parts.append(self._conjunction())
        return _any_of(part for part in parts if part)

    def _conjunction(self) -> WordQuery | None:
        parts = [self._exclusion()]
        while self._takes("AND"):
            parts.append(self._exclusion())
        return _all_of(part for part in parts if part)

    def _exclusion(self) -> WordQuery | None:
        wanted = self._group()
        wanted_terms = len(self._terms)
        unwanted: list[WordQuery | None] = []
        while self._takes("NOT"):
            unwanted.append(self._group())
        del self._terms[wanted_terms:]
        refused = _any_of(part for part in unwanted if part)
        return Without(wanted, refused) if wanted and refused else wanted

    def _group(self) -> WordQuery | None:
        """Operands side by side: all of them, but for unquoted stop words."""
        parts: list[tuple[WordQuery, bool]] = []
        start = self._position
        while self._position < len(self._lexemes):
            lexeme = self._lexemes[self._position]
            if isinstance(lexeme, _Operand):
                self._position += 1
                if lexeme.term:
                    self._terms.append(lexeme.term)
                    is_dispensable = not lexeme.is_quoted and _is_stop_word(lexeme.term)
                    parts.append((lexeme.term, is_dispensable))
            elif self._takes("("):
                if inner := self._parenthesised():
                    parts.append((inner, False))
            else:
                break
        if self._position == start:
            raise _NotAnExpressionError
        needed = [part for part, is_dispensable in parts if not is_dispensable]
        return _all_of(needed or [part for part, _ in parts])

    def _parenthesised(self) -> WordQuery | None:
        if self._takes(")"):
            return None  # main() is a word
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise _NotAnExpressionError
        inner = self._alternatives()
        self._nesting -= 1
        if not self._takes(")"):
            raise _NotAnExpressionError
        return inner

    def _takes(self, symbol: str) -> bool:
        is_next = self._position < len(self._lexemes) and self._lexemes[self._position] == symbol
        self._position += is_next
        return is_next
