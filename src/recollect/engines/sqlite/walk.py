"""Walks along links, and what links to a record."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recollect.core.driving import driven
from recollect.core.records import Link, Where
from recollect.core.walking import Hops, Sources, hop_by_hop
from recollect.engines.sqlite import queries
from recollect.engines.sqlite.filters import KEYS_OF_IDS, conditions
from recollect.engines.sqlite.rows import LINK_COLUMNS, link_from, listed
from recollect.engines.sqlite.sql import Connection

if TYPE_CHECKING:  # a hook loads only what it uses
    from recollect.core.walking import Direction

# The links to some records from those that fit, in their order. A row of the answer is a link with
# its place, or how many link to a record. CROSS JOIN: the links lead, whatever else is asked.
_SOURCES = f"""
WITH met AS MATERIALIZED (
    SELECT l.key, l.source, l.target, row_number() OVER (ORDER BY l.created_at, l.key) AS place
    FROM links l CROSS JOIN records r ON r.key = l.source
    WHERE l.deleted_at IS NULL AND l.target IN ({KEYS_OF_IDS}) AND {{wanted}})
SELECT 0, (SELECT t.id FROM records t WHERE t.key = m.target), count(DISTINCT m.source),
    NULL, NULL, NULL, NULL, NULL FROM met m GROUP BY m.target
UNION ALL
SELECT m.place, {LINK_COLUMNS} FROM met m CROSS JOIN links l ON l.key = m.key
WHERE m.source IN (SELECT source FROM met GROUP BY source ORDER BY max(place) DESC LIMIT ?)
"""


def walk(db: Connection, ids: Sequence[str], hops: Hops) -> list[list[Link]]:
    """Every hop of it is read from one state of the file."""

    async def links_at(
        ids: Sequence[str], *, direction: "Direction", sources: Sequence[str], limit: int | None
    ) -> list[Link]:
        return queries.links(db, ids, direction, sources, limit)

    return driven(hop_by_hop(links_at, ids, hops))


def sources_of(db: Connection, ids: Sequence[str], where: Where, limit: int) -> Sources:
    wanted = conditions(where)
    rows = db.execute(_SOURCES.format(wanted=wanted.sql), (listed(ids), *wanted.bindings, limit))
    counts: dict[str, int] = {}
    links: list[tuple[int, Link]] = []
    for place, *row in rows:
        if place:
            links.append((place, link_from(tuple(row))))
        else:
            counts[row[0]] = row[1]
    links.sort(key=lambda numbered: numbered[0])
    return Sources(counts, [link for _, link in links])
