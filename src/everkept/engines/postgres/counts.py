"""Counts of records, links and accesses, and the statistics that the server plans with."""

from collections.abc import Sequence
from typing import NamedTuple

from everkept.core import questions
from everkept.core.ports import Access, Tally
from everkept.engines.postgres.connection import Connection
from everkept.engines.postgres.queries import within
from everkept.engines.postgres.rows import given, kept, kept_all
from everkept.engines.postgres.schema import PREFIX, VECTOR_INDEXES
from everkept.engines.postgres.statements import Cursor, ask, ask_last, cursor_on, most


def _bytes(*tables: str) -> str:
    return " + ".join(f"pg_total_relation_size('{table}')" for table in tables)


# From each value to the next one in the index: there are few, however many records.
_DISTINCT = """
WITH RECURSIVE found(value) AS (
    (SELECT {0} FROM records r WHERE {1} ORDER BY 1 LIMIT 1) UNION ALL
    SELECT (SELECT {0} FROM records r WHERE {1} AND {0} > found.value ORDER BY 1 LIMIT 1)
    FROM found WHERE found.value IS NOT NULL)
SELECT value FROM found WHERE length(value) < {2} UNION ALL
SELECT w.value FROM found CROSS JOIN LATERAL (
    SELECT DISTINCT r.{3} AS value FROM records r WHERE {1} AND {0} = found.value) w
WHERE length(found.value) = {2}
"""
_COUNTED = "SELECT a.record, a.count, a.last_at FROM accesses a "
# An index over the vectors of one store is its own. How many vectors there are is not known
# exactly, and not at all before the server has looked at them.
_SIZE = f"""
SELECT (({_bytes("records", "links", "accesses")}) * s.ages / greatest(a.ages, 1)
    + ({_bytes("changes", "edits")}) * s.seq / greatest(a.seq, 1)
    + ({_bytes("vectors")} - n.every) * v.own / greatest(v.own, v.every, 1) + n.own)::bigint
FROM stores s CROSS JOIN (SELECT sum(ages) AS ages, sum(seq) AS seq FROM stores) a
CROSS JOIN LATERAL (SELECT
    (SELECT count(*) FROM vectors v WHERE v.store = s.number) AS own,
    CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint ELSE (SELECT count(*) FROM vectors) END
    AS every FROM pg_class c WHERE c.oid = to_regclass('vectors')) v
CROSS JOIN LATERAL (SELECT coalesce(sum(bytes), 0) AS every,
    coalesce(sum(bytes) FILTER (WHERE starts_with(relname, %s)), 0) AS own
    FROM (SELECT c.relname, pg_relation_size(c.oid) AS bytes FROM pg_index i
        JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indrelid = to_regclass('vectors') AND starts_with(c.relname, %s)) x) n
WHERE s.number = %s
"""


def count(cursor: Cursor, store: int, _: questions.CountLive) -> dict[str, int]:
    rows = ask_last(
        cursor,
        "SELECT kind, count(*) FROM records WHERE store = %s AND deleted_at IS NULL GROUP BY kind "
        "UNION ALL SELECT NULL, count(*) FROM links WHERE store = %s AND deleted_at IS NULL",
        store,
        store,
    )
    return {"link" if kind is None else given(kind): many for kind, many in rows}


def how_many(cursor: Cursor, store: int, question: questions.CountRecords) -> int:
    wanted = within(store, question.where)
    rows = ask_last(cursor, f"SELECT count(*) FROM records r WHERE {wanted.sql}", *wanted.values)
    return rows.fetchall()[0][0]


def tally(cursor: Cursor, store: int, question: questions.TallyRecords) -> list[Tally]:
    rows = ask_last(
        cursor,
        "SELECT kind, scope, type, deleted_at IS NOT NULL, count(*) FROM records "
        "WHERE store = %s AND kind = ANY(%s::text[]) GROUP BY 1, 2, 3, 4",
        store,
        kept_all(question.kinds),
    )
    return [
        Tally(given(kind), given(scope), _text(record_type), is_deleted, many)
        for kind, scope, record_type, is_deleted, many in rows
    ]


def scopes(cursor: Cursor, store: int, question: questions.ListScopes) -> list[str]:
    live = "r.store = %s AND r.kind = %s AND r.deleted_at IS NULL"
    values = store, kept(question.kind)
    rows = ask_last(cursor, _distinct("scope", live), *values, *values, *values)
    return sorted([given(value) for (value,) in rows])


def authors(cursor: Cursor, stores: Sequence[int]) -> dict[int, list[str]]:
    """Those of each store."""
    distinct = _distinct(
        "author", "r.store = s.number AND r.author IS NOT NULL AND r.deleted_at IS NULL"
    )
    rows = ask_last(
        cursor,
        "SELECT s.number, a.value FROM unnest(%s::integer[]) AS s(number) "
        f"CROSS JOIN LATERAL ({distinct}) a WHERE a.value <> ''",
        stores,
    )
    found: dict[int, list[str]] = {store: [] for store in stores}
    for store, author in rows:
        found[store].append(given(author))
    return {store: sorted(names) for store, names in found.items()}


def _distinct(column: str, condition: str) -> str:
    """Of long values the index has the beginning; who share one are looked at."""
    return _DISTINCT.format(f"left(r.{column}, {PREFIX})", condition, PREFIX, column)


def note_accesses(cursor: Cursor, store: int, upkeep: questions.NoteAccesses) -> None:
    """In the order of their ids, so that two who count the same do not wait for each other."""
    ask_last(
        cursor,
        "INSERT INTO accesses AS a (store, record, count, last_at) "
        "SELECT r.store, r.id, n.count, %s FROM unnest(%s::text[], %s::bigint[]) AS n(id, count) "
        "JOIN records r ON r.store = %s AND r.id = n.id ORDER BY r.id "
        "ON CONFLICT (store, record) DO UPDATE SET count = a.count + excluded.count, "
        "last_at = greatest(a.last_at, excluded.last_at)",
        upkeep.at,
        [kept(record_id) for record_id in upkeep.counts],
        list(upkeep.counts.values()),
        store,
    )


def accesses(cursor: Cursor, store: int, question: questions.GetAccesses) -> dict[str, Access]:
    if not question.ids:
        return {}
    rows = ask_last(
        cursor,
        f"{_COUNTED} WHERE a.store = %s AND a.record = ANY(%s)",
        store,
        kept_all(question.ids),
    )
    return {given(record_id): Access(many, last_at) for record_id, many, last_at in rows}


def most_accessed(
    cursor: Cursor, store: int, question: questions.ListMostAccessed
) -> dict[str, Access]:
    rows = ask_last(
        cursor,
        f"{_COUNTED} JOIN records r ON r.store = a.store AND r.id = a.record "
        "WHERE a.store = %s AND r.deleted_at IS NULL "
        "ORDER BY a.count DESC, a.last_at DESC, a.record LIMIT %s",
        store,
        most(question.limit),
    )
    return {given(record_id): Access(many, last_at) for record_id, many, last_at in rows}


def size(cursor: Cursor, store: int, _: questions.MeasureSize) -> int:
    """The store's share of what the tables of all take.

    By what ever came into it, which is known: counting its rows would take long. Its vectors are
    counted: they take the most, and not every store has any.
    """
    rows = ask_last(cursor, _SIZE, f"{VECTOR_INDEXES}{store}_", VECTOR_INDEXES, store).fetchall()
    return rows[0][0] if rows else 0


def _text(value: str | None) -> str | None:
    return None if value is None else given(value)


FIRST = 1_024  # records and links of a store, from which on it matters

_TABLES = ("records", "vectors", "edits")
# Nothing is known of it, or of less than half of it. Its pages are looked at too, for ages count
# links and what is gone.
_IS_STALE = """
SELECT NOT EXISTS (SELECT FROM pg_stats WHERE schemaname = current_schema()
        AND tablename = 'records')
    OR (c.reltuples < (SELECT sum(ages) FROM stores) / 2 AND c.relpages
        < pg_relation_size(c.oid) / current_setting('block_size')::integer / 2)
FROM pg_class c WHERE c.oid = to_regclass('records') AND (SELECT sum(ages) FROM stores) >= %s
"""


class Growth(NamedTuple):
    """Ages of a store, before something came and after."""

    before: int
    after: int

    @property
    def is_doubling(self) -> bool:
        """Whether it has passed a power of two: for one of those who write together it is so."""
        return self.after >= FIRST and self.before.bit_length() < self.after.bit_length()


def is_stale(cursor: Cursor) -> bool:
    row = ask(cursor, _IS_STALE, FIRST).fetchone()
    return row is not None and bool(row[0])


def gather(connection: Connection) -> None:
    cursor_on(connection).execute(f"ANALYZE {', '.join(_TABLES)}")
