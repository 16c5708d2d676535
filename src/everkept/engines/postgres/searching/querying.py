"""A word query as a tsquery, every word of it quoted."""

from collections.abc import Iterable

from everkept.engines.postgres.searching.lexemes import (
    NAME,
    PAGE,
    lexeme_beginning,
    lexeme_of,
    store_lexeme,
)
from everkept.language.stems import stem
from everkept.language.words import AllOf, AnyOf, Phrase, Without, WordQuery, indexed_prefix


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
