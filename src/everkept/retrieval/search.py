"""The only search in the product: families differ by their profiles."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from datetime import UTC, tzinfo

from everkept.core.answers import cursor_of, position_of
from everkept.core.ports import Access, Embedder
from everkept.core.records import Record
from everkept.errors import InvalidInput
from everkept.language.words import Query, parse_query
from everkept.retrieval.candidates import (
    LATE,
    Beyond,
    Key,
    Scores,
    beyond,
    by_tiers,
    is_as_it_was,
    judged,
)
from everkept.retrieval.dates import fit, spans
from everkept.retrieval.evidence import (
    Columns,
    Evidence,
    Signs,
    gathered,
    mixed,
    recency,
    relevance,
    spoken_for,
    totals,
)
from everkept.retrieval.profile import (
    Deadline,
    Found,
    Hit,
    Notice,
    Parts,
    Place,
    Profile,
    Strategy,
)
from everkept.values import Value, replace

Accesses = Callable[[int, Sequence[str]], Awaitable[Mapping[str, Access]]]

# What a facet leaves of a score.
FACTORS = {"superseded": ("superseded_by", 0.5), "consolidated": ("consolidated", 0.8)}
UNKNOWN_IMPORTANCE = 0.5
LOADED = 128  # candidates whose records are read
KEYWORD_ALONE = Parts(keyword=1, meaning=0, author=0, date=0, neighbour=0, closeness=0)
MEANING_ALONE = Parts(keyword=0, meaning=1, author=0, date=0, neighbour=0, closeness=0)

_DAY = 86_400 * 1_000_000
_BREADTH = {"session": 0, "project": 1, "user": 2}
_RANKED = "ranked"


class Circumstances(Value):
    """What a ranked search takes into account besides the query."""

    embedder: Embedder | None = None
    now: int = 0
    zone: tzinfo = UTC
    as_of: int | None = None
    time_limit: float | None = None
    accesses: Accesses | None = None


async def search(
    places: Sequence[Place],
    query: str,
    profile: Profile,
    *,
    limit: int,
    cursor: str | None = None,
    embedder: Embedder | None = None,
    now: int = 0,
    zone: tzinfo = UTC,
    as_of: int | None = None,
    time_limit: float | None = None,
    accesses: Accesses | None = None,
) -> Found:
    """The best records of all places for what someone typed; no text is an error.

    `now` and `zone` are those of whoever asks: dates in words and fading count from there. With
    `as_of` the answer is what was known at that moment. After `time_limit` seconds what is there
    is returned, and a notice says what is missing. `accesses` tells how often records of a place
    were given out.
    """
    if profile.reading == "tiers":
        return await by_tiers(places, query, profile, limit, cursor)
    around = Circumstances(embedder, now, zone, as_of, time_limit, accesses)
    return await by_rank(places, query, profile, around, limit, cursor)


async def by_rank(
    places: Sequence[Place],
    text: str,
    profile: Profile,
    around: Circumstances,
    limit: int,
    cursor: str | None,
) -> Found:
    """The best of all places, best first. What is past the candidates of a leg has no page."""
    offset = _offset(cursor)
    query = parse_query(text)
    if not query.text:
        return Found([])
    deadline = Deadline.within(around.time_limit)
    places = [_settled(place, profile, around.as_of) for place in places]
    unindexed = await beyond(places, around.as_of, deadline)
    evidence = await gathered(places, query, profile, around.embedder, deadline)
    pool = await _pool(places, evidence, unindexed, profile, offset + limit)
    pool = {key: pool[key] for key in pool if is_as_it_was(pool[key], around.as_of)}
    if not unindexed.is_whole:
        evidence.late.append(LATE)
    if unindexed.records:
        await _judge(places, query, evidence, pool, unindexed, deadline)
    pool = _each_once(pool)
    end = offset + limit
    hits, total = await _best(query, profile, around, evidence, pool, slice(offset, end))
    return Found(
        hits,
        total,
        evidence.strategy,
        evidence.tier,
        cursor_of(_RANKED, end) if total > end else None,
        [*evidence.notices, *_lateness(evidence.late, around.time_limit, found=total > 0)],
    )


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    name, offset = position_of(cursor, str, int)
    if name != _RANKED or offset < 0:
        raise InvalidInput("`cursor` leads nowhere.", argument="cursor", value=cursor)
    return offset


def _settled(place: Place, profile: Profile, as_of: int | None) -> Place:
    where = profile.narrow(place.where)
    if as_of is not None:
        known = min(as_of, as_of if where.created_before is None else where.created_before)
        where = replace(where, created_before=known)
    return replace(place, where=where)


async def _pool(
    places: Sequence[Place],
    evidence: Evidence,
    unindexed: Beyond,
    profile: Profile,
    needed: int,
) -> dict[Key, Record]:
    """The records behind what was found, as they are asked about."""
    _drop(evidence.words, unindexed.hidden)
    _drop(evidence.cosines, unindexed.retold)
    found = evidence.words.keys() | evidence.cosines.keys() | evidence.closeness.keys()
    wanted: list[list[str]] = [[] for _ in places]
    indexed = found - unindexed.hidden
    for number, record_id in _promising(indexed, evidence, profile, max(LOADED, 2 * needed)):
        wanted[number].append(record_id)
    loaded = await asyncio.gather(
        *(_loaded(place, ids) for place, ids in zip(places, wanted, strict=True))
    )
    pool = {
        (number, record.id): record
        for number, (place, records) in enumerate(zip(places, loaded, strict=True))
        if place.where.deleted is not True
        for record in records
    }
    return pool | {key: unindexed.records[key] for key in found & unindexed.records.keys()}


async def _loaded(place: Place, ids: Sequence[str]) -> list[Record]:
    return await place.store.get(ids) if ids else []


def _promising(found: Set[Key], evidence: Evidence, profile: Profile, most: int) -> Iterable[Key]:
    """The best by what the legs alone say: nothing lifts one of the others to the top."""
    if len(found) <= most:
        return found
    keys = list(found)
    close = evidence.closeness
    signs = Signs(
        keyword=[evidence.words.get(key) for key in keys],
        cosine=[evidence.cosines.get(key) for key in keys],
        neighbours=[()] * len(keys),
        closeness=[close.get(key, 0.0) for key in keys] if close else None,
    )
    scores = totals(relevance(signs, _parts(profile, evidence.strategy)))
    order = sorted(range(len(keys)), key=lambda i: (-scores[i], keys[i]))
    return [keys[i] for i in order[:most]]


def _drop(scores: Scores, keys: Iterable[Key]) -> None:
    """What was found by the present text says nothing about an older one."""
    for key in keys:
        scores.pop(key, None)


async def _judge(
    places: Sequence[Place],
    query: Query,
    evidence: Evidence,
    pool: dict[Key, Record],
    unindexed: Beyond,
    deadline: Deadline,
) -> None:
    """Gives everything that words may find a score on one scale, the indexed records too."""
    by_index = {key: pool[key] for key in evidence.words if key in pool}
    scores, all_read = await judged(places, by_index | unindexed.records, query, deadline)
    if not all_read:
        evidence.late.append(LATE)
    pool |= {key: unindexed.records[key] for key in scores if key in unindexed.records}
    evidence.words = dict.fromkeys(by_index, 0.0) | scores


def _each_once(pool: Mapping[Key, Record]) -> dict[Key, Record]:
    """A record that is moving to a broader scope is in two places; the broader one is true."""
    kept: dict[str, Key] = {}
    for key in sorted(pool):
        other = kept.get(key[1])
        if other is None or _breadth(pool[key]) > _breadth(pool[other]):
            kept[key[1]] = key
    return {key: pool[key] for key in kept.values()}


def _breadth(record: Record) -> int:
    return _BREADTH.get(record.scope, 0)


async def _best(
    query: Query,
    profile: Profile,
    around: Circumstances,
    evidence: Evidence,
    pool: Mapping[Key, Record],
    page: slice,
) -> tuple[list[Hit], int]:
    """A page of those for which anything speaks, best first, and how many these are."""
    dates = spans(query.text, around.now, around.zone)
    authors, close = evidence.authors, evidence.closeness
    signs = Signs(
        keyword=[evidence.words.get(key) for key in pool],
        cosine=[evidence.cosines.get(key) for key in pool],
        neighbours=_neighbours(pool),
        author=[float(r.author in authors) for r in pool.values()] if authors else None,
        date=[fit(r.at, dates) for r in pool.values()] if dates else None,
        closeness=[close.get(key, 0.0) for key in pool] if close else None,
    )
    parts = _parts(profile, evidence.strategy)
    columns = await _mixed(pool, relevance(signs, parts, profile.fusion), profile, around)
    scores = totals(columns)
    keys, records = list(pool), list(pool.values())
    spoken = spoken_for(signs, parts, profile.least_meaning)
    meant = [number for number, is_so in enumerate(spoken) if is_so]
    order = sorted(meant, key=lambda i: (-scores[i], -records[i].at, keys[i][1]))
    hits = [
        Hit(
            records[i],
            min(scores[i], 1.0),
            {name: column[i] for name, column in columns.items() if column[i]},
            keys[i][0],
            signs.cosine[i],
        )
        for i in order[page]
    ]
    return hits, len(order)


def _parts(profile: Profile, used: Strategy) -> Parts:
    """Who asks for one leg alone gets it undiluted."""
    if profile.strategy in ("keyword", "vector"):
        return MEANING_ALONE if used == "vector" else KEYWORD_ALONE
    return profile.parts


def _neighbours(pool: Mapping[Key, Record]) -> list[list[int]]:
    """For each record the numbers of those just before and after it in its session."""
    sessions: dict[tuple[int, str, str], dict[int, int]] = {}
    for number, ((place, _), record) in enumerate(pool.items()):
        if record.session is not None and record.position is not None:
            turns = sessions.setdefault((place, record.kind, record.session), {})
            turns[record.position] = number
    beside: list[list[int]] = [[] for _ in pool]
    for turns in sessions.values():
        for position, number in turns.items():
            if (following := turns.get(position + 1)) is not None:
                beside[number].append(following)
                beside[following].append(number)
    return beside


async def _counts(
    pool: Mapping[Key, Record], profile: Profile, accesses: Accesses | None
) -> dict[Key, int]:
    """How often each was given out, where that counts."""
    if accesses is None or not profile.shares.recency:
        return {}
    ids: dict[int, list[str]] = {}
    for place, record_id in pool:
        ids.setdefault(place, []).append(record_id)
    found = await asyncio.gather(*(accesses(place, some) for place, some in ids.items()))
    return {
        (place, record_id): access.count
        for place, some in zip(ids, found, strict=True)
        for record_id, access in some.items()
    }


async def _mixed(
    pool: Mapping[Key, Record], relevant: Columns, profile: Profile, around: Circumstances
) -> Columns:
    """The relevance with what each record brings along."""
    records = pool.values()
    counts = await _counts(pool, profile, around.accesses)
    now = around.now if around.as_of is None else around.as_of
    importance = [UNKNOWN_IMPORTANCE if r.importance is None else r.importance for r in records]
    recent = [
        recency((now - record.at) / _DAY, _half_life(record, profile), counts.get(key, 0))
        for key, record in pool.items()
    ]
    factors: dict[str, list[float]] = {}
    for name, (facet, factor) in FACTORS.items():
        if any(record.facets.get(facet) for record in records):
            factors[name] = [factor if record.facets.get(facet) else 1.0 for record in records]
    return mixed(relevant, importance, recent, profile.shares, factors)


def _half_life(record: Record, profile: Profile) -> float | None:
    return None if record.facets.get("pinned") else profile.half_lives.get(record.type or "")


def _lateness(late: Sequence[str], time_limit: float | None, *, found: bool) -> list[Notice]:
    if not late:
        return []
    # Where a search may take any time, it is the database that had enough of it.
    within = "the time that a query may take" if time_limit is None else f"{time_limit:g} seconds"
    if not found:
        return [Notice("query_timeout", f"Nothing was found within {within}.")]
    missing = " and ".join(dict.fromkeys(late))
    return [Notice("partial_results", f"Not everything was there within {within}: {missing}.")]
