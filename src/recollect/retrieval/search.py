"""The only search in the product: words in tiers, children merged into what they describe."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Literal

from recollect.core.cursors import cursor_of, position_of
from recollect.core.ports import RecordStore
from recollect.core.records import Match, Record, Weights, Where
from recollect.core.words import Query, WordQuery, parse_query
from recollect.errors import InvalidInput

Tier = Literal["expression", "all", "any", "substring"]
DEFAULT_WEIGHTS = Weights()
TIERS: tuple[Tier, ...] = ("expression", "all", "any", "substring")


@dataclass(frozen=True, slots=True)
class Profile:
    """How one family searches: over which kinds, with what counting how much."""

    kinds: tuple[str, ...]
    weights: Weights = DEFAULT_WEIGHTS
    merge_children: bool = False  # a hit in a child counts for its parent


@dataclass(frozen=True, slots=True)
class Hit:
    record: Record
    score: float


@dataclass(frozen=True, slots=True)
class Found:
    """A page of hits. `tier` says how literally the query was taken to find them."""

    hits: list[Hit]
    tier: Tier | None
    next_cursor: str | None = None


async def search(
    store: RecordStore, query: str, profile: Profile, *, limit: int, cursor: str | None = None
) -> Found:
    """The first of these that finds anything: the query as an expression, all of its words, any
    of them, the text as a substring. So ordinary text never fails and never comes back empty
    where a looser reading would find something."""
    parsed = parse_query(query)
    wanted, offset = _position(cursor)
    async for tier, matches in _tiers(store, parsed, profile, wanted, offset + limit + 1):
        page = matches[offset : offset + limit]
        if not page:
            continue
        records = {r.id: r for r in await store.get([match.id for match in page])}
        more = len(matches) > offset + limit
        return Found(
            [Hit(records[match.id], match.score) for match in page if match.id in records],
            tier,
            cursor_of(tier, offset + limit) if more else None,
        )
    return Found([], None)


async def _tiers(
    store: RecordStore, query: Query, profile: Profile, wanted: Tier | None, needed: int
) -> AsyncIterator[tuple[Tier, list[Match]]]:
    readings: dict[Tier, WordQuery | None] = {
        "expression": query.expression,
        "all": query.all_terms(),
        "any": query.any_term(),
    }
    where = Where(kinds=profile.kinds)
    for tier in TIERS if wanted is None else (wanted,):
        if tier == "substring":
            if query.text:
                yield (
                    tier,
                    await _enough(
                        lambda rows: store.containing(query.text, where, rows), profile, needed
                    ),
                )
        elif (words := readings[tier]) is not None:
            yield (
                tier,
                await _enough(
                    lambda rows, words=words: store.match(words, where, profile.weights, rows),
                    profile,
                    needed,
                ),
            )


async def _enough(ask: Callable[[int], Any], profile: Profile, needed: int) -> list[Match]:
    """Asks for more rows until enough distinct things came of them, or there are no more."""
    rows = needed * 4 if profile.merge_children else needed
    while True:
        matches: list[Match] = await ask(rows)
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


def _position(cursor: str | None) -> tuple[Tier | None, int]:
    if cursor is None:
        return None, 0
    tier, offset = position_of(cursor, str, int)
    if tier not in TIERS or offset < 0:
        raise InvalidInput("`cursor` leads nowhere.", argument="cursor", value=cursor)
    return tier, offset
