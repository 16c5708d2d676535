"""The only search in the product: families differ by their profiles."""

from collections.abc import Sequence
from datetime import UTC, tzinfo

from everkept.core.ports import Embedder
from everkept.retrieval.profile import (
    Found,
    Fusion,
    Hit,
    Notice,
    Parts,
    Place,
    Profile,
    Shares,
    Strategy,
    Tier,
)
from everkept.retrieval.ranked import Accesses, Circumstances, by_rank
from everkept.retrieval.words import by_tiers

__all__ = [
    "Accesses",
    "Found",
    "Fusion",
    "Hit",
    "Notice",
    "Parts",
    "Place",
    "Profile",
    "Shares",
    "Strategy",
    "Tier",
    "search",
]


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
