"""Answers computed in Python, for stores without a faster way and for records in memory.

Hooks load this module to match words, but do not walk: `answers` is imported late.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from everkept.core.records import SESSION_SCOPE, Record, RecordFilter, RecordLink, Weights
from everkept.core.store import FindLinks, RecordStore
from everkept.language.spellings import split_tokens, stem
from everkept.language.words import (
    AllOf,
    AnyOf,
    Without,
    WordPhrase,
    WordQuery,
    build_index_text,
    compute_indexed_prefix,
)

if TYPE_CHECKING:
    from everkept.core.answers import Hops, Selection, Subgraph


def is_selected(record: Record, where: RecordFilter) -> bool:
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
        and (where.visible_to is None or record.scope != SESSION_SCOPE or record.session == where.visible_to)
        and (not where.tags or not set(where.tags).isdisjoint(record.tags))
        and (not where.pinned or bool(record.facets.get("pinned")))
        and (not where.automatic or bool(record.facets.get("automatic")))
        and (where.min_importance is None or (record.importance or 0) >= where.min_importance)
        and (where.after is None or record.effective_at >= where.after)
        and (where.before is None or record.effective_at <= where.before)
        and (where.created_before is None or record.created_at <= where.created_before)
        and (where.touched_after is None or touched > where.touched_after)
    )


def has_context(record: Record, other: Record) -> bool:
    """Return whether the other record's text is part of the context that this record is found by.

    That is so if it comes just before or after in a session and is visible to the same readers.
    """
    return (
        record.session is not None
        and record.position is not None
        and other.position in (record.position - 1, record.position + 1)
        and (other.kind, other.session) == (record.kind, record.session)
        and other.deleted_at is None
        and (other.scope != SESSION_SCOPE or record.scope == SESSION_SCOPE)
    )


CONTEXT_CHARACTERS = 500  # nearest characters of a neighboring text that a record is found by

Fields = tuple[list[str], list[str], list[str]]  # stems of name, text and context


def split_fields(name: str, text: str, context: str) -> Fields:
    return _list_stems(name), _list_stems(text), _list_stems(context)


def clip_context(text: str, *, before: bool) -> str:
    """Return the end of the text before a record, or the beginning of the text after it."""
    if len(text) <= CONTEXT_CHARACTERS:
        return text
    # Do not cut words, if the text has spaces.
    if before:
        near = text[-CONTEXT_CHARACTERS:]
        return near.partition(" ")[2] or near
    near = text[:CONTEXT_CHARACTERS]
    return near.rpartition(" ")[0] or near


def is_match(fields: Fields, query: WordQuery) -> bool:
    match query:
        case WordPhrase():
            return any(_count_occurrences(field, query) for field in fields)
        case AllOf(parts):
            return all(is_match(fields, part) for part in parts)
        case AnyOf(parts):
            return any(is_match(fields, part) for part in parts)
        case Without(wanted, unwanted):
            return is_match(fields, wanted) and not is_match(fields, unwanted)


def compute_score(fields: Fields, query: WordQuery, weights: Weights) -> float:
    """Return the sum of the weighted matches. Shorter fields count more."""
    match query:
        case WordPhrase():
            counted = zip(fields, (weights.name, weights.text, weights.context), strict=True)
            return sum(weight * _count_occurrences(field, query) / (1 + len(field)) for field, weight in counted)
        case AllOf(parts) | AnyOf(parts):
            return sum(compute_score(fields, part, weights) for part in parts)
        case Without(wanted):
            return compute_score(fields, wanted, weights)


def _count_occurrences(field: list[str], phrase: WordPhrase) -> int:
    prefix = phrase.prefix
    first = [stem(word) for word in phrase.words[:-1]]
    last = compute_indexed_prefix(phrase.words[-1]) if prefix else stem(phrase.words[-1])
    return sum(
        field[i : i + len(first)] == first
        and (field[i + len(first)].startswith(last) if prefix else field[i + len(first)] == last)
        for i in range(len(field) - len(first))
    )


def _list_stems(text: str) -> list[str]:
    return [stem(word) for word in split_tokens(build_index_text(text))]


async def walk_by_hops(
    ask: Callable[[FindLinks], Awaitable[list[RecordLink]]], ids: Sequence[str], hops: "Hops"
) -> list[list[RecordLink]]:
    """Answer `WalkLinks` with one question for each hop."""
    from everkept.core.answers import list_next_ids

    walked: list[list[RecordLink]] = []
    seen, met, edge = set(ids), set[str](), list(ids)
    for _ in range(hops.count):
        if not edge:
            break
        found = await ask(FindLinks(edge, hops.direction, hops.sources, hops.limit))
        new = [x for x in found if x.id not in met]
        if not new:
            break
        walked.append(new)
        met.update(link.id for link in new)
        edge = list_next_ids(new, seen, hops.width)
        seen.update(edge)
    return walked


async def ask_for_subgraph(store: RecordStore, wanted: "Selection") -> "Subgraph":
    """Answer `ReadSubgraph` with four other questions."""
    from everkept.core.answers import Subgraph, apply_limit, assemble, list_other_ends

    kind = wanted.kind
    if wanted.ids is None:
        where = RecordFilter(kinds=(kind,))
        records = await store.scan(where, order=wanted.order, after=wanted.after, limit=wanted.row_limit)
    else:
        records = [record for record in await store.get(wanted.ids) if record.kind == kind]
    records, has_more = apply_limit(wanted, records)
    ids = [record.id for record in records]
    if not ids:
        return Subgraph([], [], has_more)
    children = await store.scan(RecordFilter(kinds=(wanted.leaf_kind,), parents=tuple(ids)))
    links = await store.find_links(ids, direction=wanted.direction, sources=(kind,))
    others = await store.get(list_other_ends(records, links))
    return assemble(records, children, links, others, has_more=has_more)
