"""Words in tiers: the most literal reading of a query that finds anything, page by page."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from everkept.core.ports import RecordStore
from everkept.core.records import Match, Record, Where
from everkept.core.search_ports import cursor_of, position_of
from everkept.errors import InvalidInput
from everkept.language.words import Query, WordQuery, parse_query
from everkept.retrieval.profile import Found, Hit, Place, Profile, Tier

TIERS: tuple[Tier, ...] = ("expression", "all", "any", "substring")

Ask = Callable[[int], Awaitable[list[Match]]]


async def by_tiers(
    places: Sequence[Place], query: str, profile: Profile, limit: int, cursor: str | None
) -> Found:
    """The first of these that finds anything: the query as an expression, all of its words, any
    of them, the text as a substring. So ordinary text never fails and never comes back empty
    where a looser reading would find something."""
    page = await page_by_tiers(places, query, profile, limit, cursor)
    records = await _records(places, page.matches)
    hits = [
        Hit(records[place, match.id], match.score, {"keyword": match.score}, place)
        for place, match in page.matches
        if (place, match.id) in records
    ]
    if page.tier is None:
        return Found([])
    return Found(hits, page.total, "keyword", page.tier, page.next_cursor)


class MatchedPage(NamedTuple):
    """What a tier found: the number of its place with each match."""

    matches: list[tuple[int, Match]]
    total: int = 0
    tier: Tier | None = None
    next_cursor: str | None = None


async def page_by_tiers(
    places: Sequence[Place], query: str, profile: Profile, limit: int, cursor: str | None
) -> MatchedPage:
    """Return the same without the records."""
    parsed = parse_query(query)
    wanted, offset = _position(cursor)
    end = offset + limit
    for tier, words in _readings(parsed, wanted):
        found = await _found(places, words, parsed.text, profile, end + 1)
        if page := found[offset:end]:
            next_cursor = cursor_of(tier, end) if len(found) > end else None
            return MatchedPage(page, len(found), tier, next_cursor)
    return MatchedPage([])


def _readings(query: Query, wanted: Tier | None) -> list[tuple[Tier, WordQuery | None]]:
    """Return the tiers that the query has, or the one that is wanted."""
    readings: dict[Tier, WordQuery | None] = {
        "expression": query.expression,
        "all": query.all_terms(),
        "any": query.any_term(),
    }
    return [
        (tier, readings.get(tier))
        for tier in (TIERS if wanted is None else (wanted,))
        if readings.get(tier) is not None or (tier == "substring" and query.text)
    ]


async def _found(
    places: Sequence[Place], words: WordQuery | None, text: str, profile: Profile, needed: int
) -> list[tuple[int, Match]]:
    found: list[tuple[int, Match]] = []
    for number, place in enumerate(places):
        ask = _question(place.store, words, text, profile.narrow(place.where), profile)
        found += [(number, match) for match in await _enough(ask, profile, needed)]
    if len(places) > 1:
        found.sort(key=lambda entry: -entry[1].score)
    return found[:needed]


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
