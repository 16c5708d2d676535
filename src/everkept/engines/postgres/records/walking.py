"""Walks along links, however many hops, in one statement."""

from everkept.core.questions import (
    CountSources,
    FindLinks,
    WalkLinks,
)
from everkept.core.records import Link
from everkept.core.walking import Sources
from everkept.engines.postgres.connecting.database import Cursor
from everkept.engines.postgres.records import reading
from everkept.engines.postgres.records.asking import ask_last, most
from everkept.engines.postgres.records.filters import condition
from everkept.engines.postgres.records.rows import LINK_COLUMNS, given, kept_all, link_from

# A row for each hop: the links at the records of the one before, oldest first, and of the records
# that these name the first that were not seen. Of a link it has the id, and the rest is looked up
# at the end, for each link by itself: the planner knows nothing of how many there are.
_WALK = """
WITH RECURSIVE hops(number, edge, seen, met) AS (
    SELECT 0, w.ids, w.ids, '{{}}'::text[] COLLATE "C"
    FROM (SELECT %s::text[] COLLATE "C") AS w(ids)
    UNION ALL
    SELECT h.number + 1, n.edge, h.seen || n.edge, n.met
    FROM hops h CROSS JOIN LATERAL (
        WITH found AS MATERIALIZED (
            SELECT l.id, l.source, l.target,
                row_number() OVER (ORDER BY l.created_at, l.age) AS place
            FROM ({sides}) AS l {kinds} ORDER BY l.created_at, l.age LIMIT %s)
        SELECT
            ARRAY(SELECT f.id FROM found f) AS met,
            ARRAY(
                SELECT e.id
                FROM found f CROSS JOIN LATERAL (VALUES (f.source), (f.target)) AS e(id)
                WHERE e.id NOT IN (SELECT unnest(h.seen))
                GROUP BY e.id ORDER BY min(f.place) LIMIT %s) AS edge
    ) AS n
    WHERE h.number < %s AND cardinality(h.edge) > 0)
SELECT m.hop, {columns}
FROM (SELECT i.id, min(h.number) AS hop FROM hops h CROSS JOIN unnest(h.met) AS i(id)
    GROUP BY i.id) AS m
CROSS JOIN LATERAL (SELECT * FROM links WHERE store = %s AND id = m.id LIMIT 1) AS l
ORDER BY m.hop, l.created_at, l.age
"""
_SIDE = (
    "SELECT x.id, x.source, x.target, x.created_at, x.age FROM links x "
    "WHERE x.store = %s AND x.{side} = ANY(h.edge) AND x.deleted_at IS NULL"
)
_KINDS = (
    "WHERE EXISTS (SELECT FROM records s WHERE s.store = %s AND s.id = l.source "
    "AND s.kind = ANY(%s::text[]))"
)
# The links to some records from those that fit, in their order. A row of the answer is a link with
# its place, or how many link to a record.
_SOURCES = """
WITH met AS MATERIALIZED (
    SELECT {columns}, row_number() OVER (ORDER BY l.created_at, l.age) AS place
    FROM links l JOIN records r ON r.store = l.store AND r.id = l.source
    WHERE l.store = %s AND l.target = ANY(%s::text[]) AND l.deleted_at IS NULL AND {wanted})
SELECT 0, l.target, count(DISTINCT l.source)::text, NULL, NULL, NULL, NULL, NULL
FROM met l GROUP BY l.target
UNION ALL
SELECT l.place, {columns} FROM met l
WHERE l.source IN (SELECT source FROM met GROUP BY source ORDER BY max(place) DESC LIMIT %s)
ORDER BY 1
"""


def walk(cursor: Cursor, store: int, question: WalkLinks) -> list[list[Link]]:
    hops = question.hops
    if hops.count == 1:  # which a plain question answers sooner
        plain = FindLinks(question.ids, hops.direction, hops.sources, hops.limit)
        found = reading.links(cursor, store, plain)
        return [found] if found else []
    sides = reading.SIDES[hops.direction]
    rows = ask_last(
        cursor,
        _WALK.format(
            sides=" UNION ".join(_SIDE.format(side=side) for side in sides),
            kinds=_KINDS if hops.sources else "",
            columns=LINK_COLUMNS,
        ),
        kept_all(question.ids),
        *[store] * len(sides),
        *((store, kept_all(hops.sources)) if hops.sources else ()),
        most(hops.limit),
        most(hops.width),
        hops.count,
        store,
    )
    walked: dict[int, list[Link]] = {}
    for hop, *row in rows:
        walked.setdefault(hop, []).append(link_from(tuple(row)))
    return list(walked.values())


def sources_of(cursor: Cursor, store: int, question: CountSources) -> Sources:
    wanted, values = condition(question.where)
    statement = _SOURCES.format(columns=LINK_COLUMNS, wanted=wanted)
    counts: dict[str, int] = {}
    links: list[Link] = []
    for place, *row in ask_last(
        cursor, statement, store, kept_all(question.ids), *values, most(question.limit)
    ):
        if place:
            links.append(link_from(tuple(row)))
        else:
            counts[given(row[0])] = int(row[1])
    return Sources(counts, links)
