"""The only search in the product: families differ by their profiles."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from datetime import UTC, tzinfo

from everkept.core.answers import decode_cursor, encode_cursor
from everkept.core.ports import SHIPPED_MODEL, Embedder, RecordStore, VectorIndexer
from everkept.core.records import Record
from everkept.core.text import format_count
from everkept.errors import InvalidInput
from everkept.language.telling_words import is_foreign
from everkept.language.words import TypedQuery, parse_query
from everkept.retrieval.candidates import (
    LATE_PART,
    MAX_CANDIDATES,
    Key,
    Scores,
    UnindexedRecords,
    is_unchanged_since,
    read_unindexed,
    score_by_words,
    search_by_tiers,
)
from everkept.retrieval.evidence import Evidence, gather_evidence
from everkept.retrieval.fusion import CandidateSignals, compute_floor, compute_relevance, sum_columns
from everkept.retrieval.profile import Deadline, SearchNotice, SearchPage, SearchPlace, SearchProfile
from everkept.retrieval.scores import Accesses, RankingContext, choose_weights, rank_candidates
from everkept.values import replace

MAX_LOADED_RECORDS = 128

_BREADTH = {"session": 0, "project": 1, "user": 2}
_RANKED = "ranked"


async def search(
    places: Sequence[SearchPlace],
    query: str,
    profile: SearchProfile,
    *,
    limit: int,
    cursor: str | None = None,
    embedder: Embedder | None = None,
    now: int = 0,
    zone: tzinfo = UTC,
    as_of: int | None = None,
    time_limit: float | None = None,
    accesses: Accesses | None = None,
) -> SearchPage:
    """Return the best records of all places for a query. No text is an error.

    `now` and `zone` are those of the caller: dates in words and fading count from there. With `as_of` the answer is
    what was known at that moment. After `time_limit` seconds the results so far are returned, and a notice names the
    missing parts. `accesses` returns how often records of a place were returned before.
    """
    if profile.reading == "tiers":
        return await search_by_tiers(places, query, profile, limit, cursor)
    around = RankingContext(embedder, now, zone, as_of, time_limit, accesses)
    return await search_by_rank(places, query, profile, around, limit, cursor)


async def search_by_rank(
    places: Sequence[SearchPlace],
    text: str,
    profile: SearchProfile,
    around: RankingContext,
    limit: int,
    cursor: str | None,
) -> SearchPage:
    """Return a page of the best records of all places, best first. Pages end with the candidates of the legs."""
    offset = _parse_offset(cursor)
    query = parse_query(text)
    if not query.text:
        return SearchPage([])
    deadline = Deadline.from_seconds(around.time_limit)
    places = [_narrow_place(place, profile, around.as_of) for place in places]
    unindexed = await read_unindexed(places, around.as_of, deadline)
    evidence = await gather_evidence(places, query, profile, around.embedder, deadline)
    pool = await _load_pool(places, evidence, unindexed, profile, offset + limit)
    pool = {key: pool[key] for key in pool if is_unchanged_since(pool[key], around.as_of)}
    if not unindexed.is_whole:
        evidence.late.append(LATE_PART)
    if unindexed.records:
        await _score_by_words(places, query, evidence, pool, unindexed, deadline)
    end = offset + limit
    page = slice(offset, end)
    ranking = await rank_candidates(query, profile, around, evidence, _remove_duplicates(pool), places)
    total = len(ranking.hits)
    return SearchPage(
        ranking.hits[page],
        total,
        evidence.strategy,
        evidence.tier,
        encode_cursor(_RANKED, end) if total > end else None,
        [*evidence.notices, *_build_late_notices(evidence.late, around.time_limit, found=total > 0)],
        ranking.nearest is None and (evidence.is_capped or bool(evidence.late) or _has_more_by_meaning(evidence)),
        ranking.nearest,
        ranking.fit,
    )


LANGUAGE_CODE = "other_language"
LANGUAGE_NOTICE = SearchNotice(
    LANGUAGE_CODE,
    "The query is not in English, the only language of the embedding model. Texts match by their words. To match by "
    "meaning, use a multilingual model (setting `embedding_model`).",
)


def find_language_notice(query: str, embedder: Embedder | None) -> SearchNotice | None:
    """Return a notice if the shipped model cannot understand the query."""
    is_shipped = embedder is not None and embedder.name == SHIPPED_MODEL
    return LANGUAGE_NOTICE if is_shipped and is_foreign(query) else None


MAX_WAIT_SECONDS = 1.0  # for the embeddings of texts that were just stored
WAIT_TIME_SHARE = 0.5  # of the time limit of the search


async def wait_for_embeddings(
    indexing: VectorIndexer, stores: Sequence[RecordStore], time_limit: float | None
) -> list[RecordStore]:
    """Wait briefly for texts that were just stored, so that the search finds them by meaning.

    Return the stores that need more time. A long queue is not awaited.
    """
    if indexing.embedder is None or indexing.fault is not None:
        return []
    limit = MAX_WAIT_SECONDS if time_limit is None else min(MAX_WAIT_SECONDS, WAIT_TIME_SHARE * time_limit)
    return await indexing.wait_for(stores, limit)


PENDING_NOTICE_SHARE = 0.1  # share of pending records from which the notice appears


async def find_pending_notice(
    stores: Sequence[RecordStore],
    embedder: Embedder | None,
    kind: str,
    nouns: tuple[str, str],
    least: int = 1,
    least_share: float = PENDING_NOTICE_SHARE,
) -> SearchNotice | None:
    """Return a notice if at least `least` records of a kind, and more than a share of all, have no embedding yet."""
    if embedder is None:
        return None
    ready = left = 0
    for store in stores:
        # Finding one pending record is about a hundred times faster than counting all.
        if await store.find_unembedded(embedder.name, (kind,), 1):
            there, missing = await store.count_vectors(embedder.name, (kind,))
            ready, left = ready + there, left + missing
    total = ready + left
    if left < least or left <= least_share * total:
        return None
    has, its = ("has", "its") if total == 1 else ("have", "their")
    message = f"{left:,} of {format_count(total, *nouns)} {has} no embedding yet, so only {its} words are searched."
    return SearchNotice("partial_results", message)


def _has_more_by_meaning(evidence: Evidence) -> bool:
    """Return whether records beyond the nearest ones of a place may be near enough to match."""
    floor = compute_floor(evidence.cosines.values(), evidence.limits)
    near = Counter(place for (place, _), cosine in evidence.cosines.items() if cosine >= floor)
    return max(near.values(), default=0) >= MAX_CANDIDATES


def _parse_offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    name, offset = decode_cursor(cursor, str, int)
    if name != _RANKED or offset < 0:
        raise InvalidInput(
            "`cursor` is not valid for this query.", hint="Omit it to start again.", argument="cursor", value=cursor
        )
    return offset


def _narrow_place(place: SearchPlace, profile: SearchProfile, as_of: int | None) -> SearchPlace:
    where = profile.narrow(place.where)
    if as_of is not None:
        known = min(as_of, as_of if where.created_before is None else where.created_before)
        where = replace(where, created_before=known)
    return replace(place, where=where)


async def _load_pool(
    places: Sequence[SearchPlace], evidence: Evidence, unindexed: UnindexedRecords, profile: SearchProfile, needed: int
) -> dict[Key, Record]:
    """Load the records that the evidence found, in the state that the query asks about."""
    _drop(evidence.words, unindexed.hidden)
    _drop(evidence.cosines, unindexed.retold)
    found = evidence.words.keys() | evidence.cosines.keys() | evidence.closeness.keys()
    wanted: list[list[str]] = [[] for _ in places]
    indexed = found - unindexed.hidden
    chosen = _select_promising(indexed, evidence, profile, max(MAX_LOADED_RECORDS, 2 * needed))
    for number, record_id in chosen:
        wanted[number].append(record_id)
    evidence.is_capped |= _is_match_among(indexed.difference(chosen), evidence)
    loaded = await asyncio.gather(*(_load_records(place, ids) for place, ids in zip(places, wanted, strict=True)))
    pool = {
        (number, record.id): record
        for number, (place, records) in enumerate(zip(places, loaded, strict=True))
        if place.where.deleted is not True
        for record in records
    }
    return pool | {key: unindexed.records[key] for key in found & unindexed.records.keys()}


def _is_match_among(keys: Set[Key], evidence: Evidence) -> bool:
    """Return whether one of the records that are not read matches. Its author and date are unknown."""
    floor = compute_floor(evidence.cosines.values(), evidence.limits)
    return any(
        key in evidence.words or key in evidence.closeness or evidence.cosines.get(key, 0.0) >= floor for key in keys
    )


async def _load_records(place: SearchPlace, ids: Sequence[str]) -> list[Record]:
    return await place.store.get(ids) if ids else []


def _select_promising(found: Set[Key], evidence: Evidence, profile: SearchProfile, most: int) -> Collection[Key]:
    """Return the best candidates by words, meaning and graph. Nothing later lifts another one to the top."""
    if len(found) <= most:
        return found
    keys = list(found)
    close = evidence.closeness
    signs = CandidateSignals(
        keyword=[evidence.words.get(key) for key in keys],
        cosine=[evidence.cosines.get(key) for key in keys],
        neighbours=[()] * len(keys),
        closeness=[close.get(key, 0.0) for key in keys] if close else None,
        limits=evidence.limits,
    )
    scores = sum_columns(compute_relevance(signs, choose_weights(profile, evidence.strategy)))
    order = sorted(range(len(keys)), key=lambda i: (-scores[i], keys[i]))
    return [keys[i] for i in order[:most]]


def _drop(scores: Scores, keys: Iterable[Key]) -> None:
    """Remove scores that come from the current text, because they do not apply to an older text."""
    for key in keys:
        scores.pop(key, None)


async def _score_by_words(
    places: Sequence[SearchPlace],
    query: TypedQuery,
    evidence: Evidence,
    pool: dict[Key, Record],
    unindexed: UnindexedRecords,
    deadline: Deadline,
) -> None:
    """Score all records that words may find, including indexed ones, on one scale."""
    by_index = {key: pool[key] for key in evidence.words if key in pool}
    scores, all_read = await score_by_words(places, by_index | unindexed.records, query, deadline)
    if not all_read:
        evidence.late.append(LATE_PART)
    pool |= {key: unindexed.records[key] for key in scores if key in unindexed.records}
    evidence.words = dict.fromkeys(by_index, 0.0) | scores


def _remove_duplicates(pool: Mapping[Key, Record]) -> dict[Key, Record]:
    """Keep each record once. A record that moves to a wider scope is in two places; the wider one counts."""
    kept: dict[str, Key] = {}
    for key in sorted(pool):
        other = kept.get(key[1])
        if other is None or _get_breadth(pool[key]) > _get_breadth(pool[other]):
            kept[key[1]] = key
    return {key: pool[key] for key in kept.values()}


def _get_breadth(record: Record) -> int:
    return _BREADTH.get(record.scope, 0)


def _build_late_notices(late: Sequence[str], time_limit: float | None, *, found: bool) -> list[SearchNotice]:
    if not late:
        return []
    # Without a time limit of the search, only the database's own limit can stop a query.
    within = "the time limit of the database" if time_limit is None else f"{time_limit:g} s"
    if not found:
        return [SearchNotice("query_timeout", f"The search found nothing within {within}.")]
    missing = " and ".join(dict.fromkeys(late))
    message = f"Results are incomplete: {missing} did not finish within {within}."
    return [SearchNotice("partial_results", message)]
