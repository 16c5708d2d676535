"""Which records match a filter or a word query, and how well, for code that has them at hand."""

from everkept.core.records import SESSION_SCOPE, Record, Weights, Where
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


def fits(record: Record, where: Where) -> bool:
    touched = max(record.updated_at, record.deleted_at or 0)
    return (
        (where.deleted is None or where.deleted == (record.deleted_at is not None))
        and (not where.kinds or record.kind in where.kinds)
        and (where.ids is None or record.id in where.ids)
        and (where.name_keys is None or record.name_key in where.name_keys)
        and (where.parents is None or record.parent in where.parents)
        and (not where.types or record.type in where.types)
        and (not where.scopes or record.scope in where.scopes)
        and (where.sessions is None or record.session in where.sessions)
        and (where.places is None or (record.session, record.position) in where.places)
        and (
            where.visible_to is None
            or record.scope != SESSION_SCOPE
            or record.session == where.visible_to
        )
        and (not where.tags or not set(where.tags).isdisjoint(record.tags))
        and (not where.pinned or bool(record.facets.get("pinned")))
        and (not where.automatic or bool(record.facets.get("automatic")))
        and (where.min_importance is None or (record.importance or 0) >= where.min_importance)
        and (where.after is None or record.at >= where.after)
        and (where.before is None or record.at <= where.before)
        and (where.created_before is None or record.created_at <= where.created_before)
        and (where.touched_after is None or touched > where.touched_after)
    )


def hears(record: Record, other: Record) -> bool:
    """Whether the other's text is part of what the record is found by.

    It stands just before or after it in a session, and whoever sees the record may see it too.
    """
    return (
        record.session is not None
        and record.position is not None
        and other.position in (record.position - 1, record.position + 1)
        and (other.kind, other.session) == (record.kind, record.session)
        and other.deleted_at is None
        and (other.scope != SESSION_SCOPE or record.scope == SESSION_SCOPE)
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
