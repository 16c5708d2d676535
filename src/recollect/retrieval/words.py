"""Words in tiers: the most literal reading of a query that finds anything, page by page."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from recollect.core.cursors import cursor_of, position_of
from recollect.core.ports import RecordStore
from recollect.core.records import Match, Record, Where
from recollect.core.words import Query, WordQuery, parse_query
from recollect.errors import InvalidInput
from recollect.retrieval.profile import Found, Hit, Place, Profile, Tier
from recollect.values import replace

TIERS: tuple[Tier, ...] = ("expression", "all", "any", "substring")

Ask = Callable[[int], Awaitable[list[Match]]]


async def by_tiers(
    places: Sequence[Place], query: str, profile: Profile, limit: int, cursor: str | None
) -> Found:
    """The first of these that finds anything: the query as an expression, all of its words, any
    of them, the text as a substring. So ordinary text never fails and never comes back empty
    where a looser reading would find something."""
    parsed = parse_query(query)
    wanted, offset = _position(cursor)
    async for tier, found in _tiers(places, parsed, profile, wanted, offset + limit + 1):
        page = found[offset : offset + limit]
        if not page:
            continue
        records = await _records(places, page)
        hits = [
            Hit(records[place, match.id], match.score, {"keyword": match.score}, place)
            for place, match in page
            if (place, match.id) in records
        ]
        more = len(found) > offset + limit
        next_cursor = cursor_of(tier, offset + limit) if more else None
        return Found(hits, len(found), "keyword", tier, next_cursor)
    return Found([])


def asked(place: Place, profile: Profile) -> Where:
    """Which records of the place the profile is about."""
    return replace(place.where, kinds=place.where.kinds or profile.kinds)


async def _tiers(
    places: Sequence[Place], query: Query, profile: Profile, wanted: Tier | None, needed: int
) -> AsyncIterator[tuple[Tier, list[tuple[int, Match]]]]:
    readings: dict[Tier, WordQuery | None] = {
        "expression": query.expression,
        "all": query.all_terms(),
        "any": query.any_term(),
    }
    for tier in TIERS if wanted is None else (wanted,):
        words = readings.get(tier)
        if words is None and not (tier == "substring" and query.text):
            continue
        found: list[tuple[int, Match]] = []
        for number, place in enumerate(places):
            ask = _question(place.store, words, query.text, asked(place, profile), profile)
            found += [(number, match) for match in await _enough(ask, profile, needed)]
        if len(places) > 1:
            found.sort(key=lambda entry: -entry[1].score)
        yield tier, found[:needed]


def _question(
    store: RecordStore, words: WordQuery | None, text: str, where: Where, profile: Profile
) -> Ask:
    if words is None:
        return lambda rows: store.containing(text, where, rows)
    return lambda rows: store.match(words, where, profile.weights, rows)


async def _enough(ask: Ask, profile: Profile, needed: int) -> list[Match]:
    """Asks for more rows until enough distinct things came of them, or there are no more."""
    rows = needed * 4 if profile.merge_children else needed
    while True:
        matches = await ask(rows)
        merged = _merged(matches) if profile.merge_children else matches
        if len(merged) >= needed or len(matches) < rows:
            return merged[:needed]
        rows *= 4


def _merged(matches: list[Match]) -> list[Match]:
    """Each parent once, where its best row stands."""
    best: dict[str, Match] = {}
    for match in matches:
        owner = match.parent or match.id
        best.setdefault(owner, Match(owner, None, match.score))
    return list(best.values())


async def _records(
    places: Sequence[Place], page: Sequence[tuple[int, Match]]
) -> dict[tuple[int, str], Record]:
    records: dict[tuple[int, str], Record] = {}
    for number, place in enumerate(places):
        ids = [match.id for at, match in page if at == number]
        records |= {(number, r.id): r for r in await place.store.get(ids)} if ids else {}
    return records


def _position(cursor: str | None) -> tuple[Tier | None, int]:
    if cursor is None:
        return None, 0
    tier, offset = position_of(cursor, str, int)
    if tier not in TIERS or offset < 0:
        raise InvalidInput("`cursor` leads nowhere.", argument="cursor", value=cursor)
    return tier, offset
