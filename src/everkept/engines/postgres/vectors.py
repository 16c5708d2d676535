"""Vectors of records and the search for the nearest. Vectors are not part of a change or an undo."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from everkept.core.ports import RecordVector
from everkept.core.records import Match, Record, RecordFilter
from everkept.core.store import CountVectors, FindNear, FindUnembedded, GetVectors
from everkept.engines.postgres.indexes import USABLE_INDEX_QUERY, IndexedVectors, ask_usable
from everkept.engines.postgres.rows import (
    RECORD_COLUMNS,
    decode_record,
    escape_text,
    escape_texts,
    format_filter,
    unescape_text,
)
from everkept.engines.postgres.schema import EMBEDDABLE_CONDITION
from everkept.engines.postgres.statements import MAX_INTEGER, Cursor, QueryResult, ask, ask_last, fetch_rows, to_limit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_HEADER_BYTES = 4  # before the numbers: their count, and an unused field


def format_halves(vector: "NDArray[np.float32]") -> str:
    """Format a vector for the database. Five digits distinguish all half-precision numbers."""
    import numpy as np

    return f"[{','.join([f'{x:.5g}' for x in vector.astype(np.float16).tolist()])}]"


def format_floats(vector: "NDArray[np.float32]") -> str:
    return f"[{','.join([f'{x:.9g}' for x in vector.tolist()])}]"


def parse_halves(sent: bytes) -> "NDArray[np.float32]":
    """Parse the result of `halfvec_send`."""
    import numpy as np

    return np.frombuffer(sent, ">f2", offset=_HEADER_BYTES).astype(np.float32)


SEARCH_FACTOR = 4  # times the limit: vectors to read before the filter applies
MIN_SEARCHED_VECTORS = 100
INDEX_CANDIDATES = 400  # that the index tracks: more of them miss fewer vectors
CANDIDATES_PER_RESULT = 8
MAX_INDEX_CANDIDATES = 1_000
RESULT_FACTOR = 2  # times the limit, because the index returns vectors only roughly in order
DEPTH_FACTOR = 2  # times the candidates to return: the index finds more distant vectors less reliably

# Each row is looked up by its key, with LATERAL and OFFSET 0. A server without statistics expects one row everywhere
# and would otherwise compare all rows with all.
_OWN_CONDITION = "v.store = %s AND v.model = %s AND v.dims = %s"
_COSINE = "-(n.v::vector <#> %s::vector)"
_FULL_SEARCH_QUERY = (
    f"WITH n AS MATERIALIZED (SELECT v.record, v.v FROM vectors v WHERE {_OWN_CONDITION} "
    f"AND NOT EXISTS ({USABLE_INDEX_QUERY}) "
    "ORDER BY v.v <#> %s::halfvec LIMIT %s) "
    f"SELECT r.id, r.parent, r.age, {_COSINE} AS cosine, (SELECT count(*) FROM n) "
    "FROM n CROSS JOIN LATERAL (SELECT r.* FROM records r "
    "WHERE r.store = %s AND r.id = n.record OFFSET 0) r WHERE "
)
_INDEX_SETTINGS = (
    "SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true), "
    "set_config('hnsw.ef_search', %s, true), "
    # With sorting off, only the index returns vectors in this order.
    "set_config('enable_sort', 'off', true)"
)
_SORT_SETTING = "SELECT set_config('enable_sort', 'on', true)"

Row = tuple[Any, ...]  # id, parent, age and cosine of a record


def find_nearest(cursor: Cursor, store: int, question: FindNear) -> list[Match]:
    asking = _NearestQuery(cursor, store, escape_text(question.model), question.vector)
    # Queued first, so that it is sent together with the query for the nearest.
    also = question.also
    named = asking.ask_fitting("r.id = ANY(%s::text[])", [escape_texts(also)]) if also else None
    found = asking.find_nearest(question.where, question.limit) if question.limit > 0 else []
    by_id = {row[0]: row for row in (*found, *fetch_rows(named))}
    ordered = sorted(by_id.values(), key=lambda row: (-row[3], row[2]))
    return [Match(unescape_text(row[0]), row[1] and unescape_text(row[1]), row[3]) for row in ordered]


class _NearestQuery:
    """Search for the nearest vectors, by index or by comparison."""

    def __init__(self, cursor: Cursor, store: int, model: str, vector: "NDArray[np.float32]") -> None:
        self._cursor = cursor
        self._own = IndexedVectors(store, model, len(vector))
        self._half = format_halves(vector)
        self._exact = format_floats(vector)

    def find_nearest(self, where: RecordFilter, limit: int) -> list[Row]:
        sql, values = format_filter(where)
        found = None
        if where.ids is None:
            # Sent together: if the index is usable, the second query reads nothing.
            usable = ask_usable(self._cursor, self._own)
            among_all = self._ask_all(sql, values, limit)
            is_indexed = usable.rowcount > 0
            found = self._find_by_index(sql, values, limit) if is_indexed else among_all()
        return self.ask_fitting(sql, values, limit).fetchall() if found is None else found

    def ask_fitting(self, sql: str, values: Sequence[Any], limit: int | None = None) -> QueryResult:
        """Queue a query that filters first, then compares vectors: fast for few records, and always correct."""
        return ask(
            self._cursor,
            "WITH r AS MATERIALIZED (SELECT r.id, r.parent, r.age FROM records r "
            f"WHERE r.store = %s AND {sql}), "
            "n AS (SELECT r.id, r.parent, r.age, v.v FROM r CROSS JOIN LATERAL "
            f"(SELECT v.v FROM vectors v WHERE v.record = r.id AND {_OWN_CONDITION} OFFSET 0) v "
            "ORDER BY v.v <#> %s::halfvec, r.age LIMIT %s) "
            f"SELECT n.id, n.parent, n.age, {_COSINE} FROM n",
            self._own.store,
            *values,
            *self._own,
            self._half,
            to_limit(limit),
            self._exact,
        )

    def _ask_all(self, sql: str, values: Sequence[Any], limit: int) -> Callable[[], list[Row] | None]:
        """Queue a query over all vectors. The returned function gives None if too few of the nearest match."""
        many = max(SEARCH_FACTOR * limit, MIN_SEARCHED_VECTORS)
        asked = ask(
            self._cursor,
            f"{_FULL_SEARCH_QUERY}{sql} ORDER BY cosine DESC, r.age LIMIT %s",
            *self._own,
            self._own.name,
            self._half,
            to_limit(many),
            self._exact,
            self._own.store,
            *values,
            to_limit(limit),
        )

        def found() -> list[Row] | None:
            rows = asked.fetchall()
            is_enough = len(rows) == limit or (rows and rows[0][4] < many)
            return [row[:4] for row in rows] if is_enough else None

        return found

    def _find_by_index(self, sql: str, values: Sequence[Any], limit: int) -> list[Row] | None:
        """Return the nearest vectors by index, or None if too few of them pass the filter."""
        held = min(max(INDEX_CANDIDATES, CANDIDATES_PER_RESULT * limit), MAX_INDEX_CANDIDATES)
        if RESULT_FACTOR * limit > DEPTH_FACTOR * held:
            return None
        expression = self._own.expression
        ask(self._cursor, _INDEX_SETTINGS, str(held))
        found = ask(
            self._cursor,
            f"SELECT n.id, n.parent, n.age, {_COSINE} AS cosine FROM (SELECT r.id, r.parent, "
            "r.age, v.v FROM (SELECT record, v FROM vectors "
            f"WHERE {self._own.predicate} ORDER BY {expression} <#> %s::halfvec "
            "LIMIT %s) v "
            "CROSS JOIN LATERAL (SELECT r.id, r.parent, r.age FROM records r "
            f"WHERE r.store = %s AND r.id = v.record AND {sql} OFFSET 0) r LIMIT %s) n "
            "ORDER BY cosine DESC, n.age",
            self._exact,
            self._half,
            DEPTH_FACTOR * held,
            self._own.store,
            *values,
            RESULT_FACTOR * limit,
        )
        ask(self._cursor, _SORT_SETTING)
        rows = found.fetchall()
        return rows[:limit] if len(rows) >= limit else None


_OF_KIND = f"FROM records r WHERE r.store = %(store)s AND r.kind = k.kind AND {EMBEDDABLE_CONDITION}"
_NEWEST = "ORDER BY r.age DESC LIMIT %(limit)s"
# Jumps from each model to the next one in the index: there are few models, however many records.
_UNEMBEDDED = f"""
WITH RECURSIVE kinds(kind) AS (SELECT unnest(%(kinds)s::text[])),
other(kind, model) AS (
    SELECT k.kind, (SELECT min(r.embedded) {_OF_KIND}) FROM kinds k
    UNION ALL
    SELECT k.kind, (SELECT min(r.embedded) {_OF_KIND} AND r.embedded > k.model)
    FROM other k WHERE k.model IS NOT NULL),
waiting(id) AS (
    SELECT w.id FROM kinds k CROSS JOIN LATERAL (
        SELECT r.id, r.age {_OF_KIND} AND r.embedded IS NULL {_NEWEST}) w
    UNION ALL
    SELECT w.id FROM other k CROSS JOIN LATERAL (
        SELECT r.id, r.age {_OF_KIND} AND r.embedded = k.model AND r.text <> '' {_NEWEST}) w
    WHERE k.model <> %(model)s)
SELECT {RECORD_COLUMNS} FROM records r JOIN waiting w ON w.id = r.id
WHERE r.store = %(store)s {_NEWEST}
"""
_COUNTS_QUERY = (
    "SELECT r.embedded, count(*) FROM records r WHERE r.store = %s "
    f"AND r.kind = ANY(%s::text[]) AND {EMBEDDABLE_CONDITION} GROUP BY r.embedded"
)
_OTHER_MODEL_COUNT = (
    "SELECT count(*) FROM records r WHERE r.store = %s AND r.kind = ANY(%s::text[]) "
    f"AND {EMBEDDABLE_CONDITION} AND r.embedded <> %s AND r.text <> ''"
)
_LOCK_STORE = "SELECT 1 FROM stores WHERE number = %s FOR NO KEY UPDATE"
_PUT_VECTORS = """
WITH given AS (SELECT * FROM unnest(%(ids)s::text[], %(versions)s::bigint[], %(vectors)s::text[])
    AS g(id, version, v)),
fitting AS MATERIALIZED (SELECT g.id, g.v::halfvec AS v FROM given g JOIN records r ON r.id = g.id
    WHERE r.store = %(store)s AND r.version = g.version
    AND (r.deleted_at IS NULL OR %(include_deleted)s)),
gone AS (DELETE FROM vectors o USING fitting f
    WHERE o.store = %(store)s AND o.record = f.id AND o.model <> %(model)s),
put AS (INSERT INTO vectors(store, model, dims, record, v)
    SELECT %(store)s, %(model)s, vector_dims(f.v), f.id, f.v FROM fitting f
    ON CONFLICT (store, model, record) DO UPDATE SET dims = excluded.dims, v = excluded.v),
marked AS (UPDATE records r SET embedded = %(model)s FROM fitting f
    WHERE r.store = %(store)s AND r.id = f.id AND r.embedded IS DISTINCT FROM %(model)s)
UPDATE stores SET moves = moves + (SELECT count(*) FROM fitting) WHERE number = %(store)s
RETURNING (SELECT count(*) FROM fitting)
"""
_FORGET_VECTORS = (
    "WITH gone AS (DELETE FROM vectors WHERE store = %s AND record = ANY(%s::text[]) RETURNING 1), "
    "lost AS (SELECT count(*) AS many FROM gone) UPDATE stores SET moves = moves + lost.many "
    "FROM lost WHERE number = %s AND lost.many > 0"
)
_VECTORS_QUERY = (
    "SELECT record, halfvec_send(v) FROM vectors WHERE store = %s AND model = %s AND record = ANY(%s::text[])"
)


def find_unembedded(cursor: Cursor, store: int, question: FindUnembedded) -> list[Record]:
    if question.limit <= 0 or not question.kinds:
        return []
    values = {
        "store": store,
        "model": escape_text(question.model),
        "kinds": escape_texts(question.kinds),
        "limit": min(question.limit, MAX_INTEGER),
    }
    rows = cursor.ask_last(_UNEMBEDDED, values)
    return [decode_record(row) for row in rows]


def count_vectors(cursor: Cursor, store: int, question: CountVectors) -> tuple[int, int]:
    wanted, name = escape_texts(question.kinds), escape_text(question.model)
    counts: dict[str | None, int] = dict(ask(cursor, _COUNTS_QUERY, store, wanted).fetchall())
    waiting = counts.get(None, 0)
    if counts.keys() - {None, name}:
        waiting += ask(cursor, _OTHER_MODEL_COUNT, store, wanted, name).fetchall()[0][0]
    return counts.get(name, 0), waiting


def put_vectors(
    cursor: Cursor, store: int, model: str, items: Sequence[RecordVector], *, include_deleted: bool = False
) -> int:
    """Store the vectors of records that still have these versions. Return how many were stored."""
    last = {escape_text(item.id): item for item in items}
    if not last:
        return 0
    values = {
        "store": store,
        "model": escape_text(model),
        "ids": list(last),
        "versions": [item.version for item in last.values()],
        "vectors": [format_halves(item.vector) for item in last.values()],
        "include_deleted": include_deleted,
    }
    # Lock the store first, as a commit does, so that the two cannot deadlock.
    ask(cursor, _LOCK_STORE, store)
    row = cursor.ask(_PUT_VECTORS, values).fetchone()
    return row[0] if row else 0


def forget_vectors(cursor: Cursor, store: int, ids: Iterable[str]) -> QueryResult | None:
    """Delete the vectors of these records for every model. The caller resets `embedded` of the records.

    The result has a row if there were any vectors.
    """
    gone = escape_texts(list(ids))
    return ask(cursor, _FORGET_VECTORS, store, gone, store) if gone else None


def get_vectors(cursor: Cursor, store: int, question: GetVectors) -> "dict[str, NDArray[np.float32]]":
    rows = ask_last(cursor, _VECTORS_QUERY, store, escape_text(question.model), escape_texts(question.ids))
    return {unescape_text(record_id): parse_halves(sent) for record_id, sent in rows}
