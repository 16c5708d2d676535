"""Vectors beside the records, and the nearest of them: no change, and no part of an undo."""

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

_HEADER_BYTES = 4  # bytes before the numbers: how many there are, and what is unused


def format_halves(vector: "NDArray[np.float32]") -> str:
    """As the database reads it; five digits tell every half from the next."""
    import numpy as np

    return f"[{','.join([f'{x:.5g}' for x in vector.astype(np.float16).tolist()])}]"


def format_floats(vector: "NDArray[np.float32]") -> str:
    return f"[{','.join([f'{x:.9g}' for x in vector.tolist()])}]"


def parse_halves(sent: bytes) -> "NDArray[np.float32]":
    """Of what `halfvec_send` gives."""
    import numpy as np

    return np.frombuffer(sent, ">f2", offset=_HEADER_BYTES).astype(np.float32)


SEARCH_FACTOR = 4  # times as many as are wanted are looked at, before it is asked which of them fit
MIN_SEARCHED_VECTORS = 100
INDEX_CANDIDATES = 400  # vectors that the index keeps in mind on its way: the more, the fewer are missed
CANDIDATES_PER_RESULT = 8  # for each one that is wanted
MAX_INDEX_CANDIDATES = 1_000
RESULT_FACTOR = 2  # times as many as are wanted: it gives them in about the right order
DEPTH_FACTOR = 2  # times as many as it keeps in mind it gives: what is further away it finds less surely

# Each row is looked up by its key (LATERAL, and OFFSET 0 keeps it so): where the server has no
# statistics yet it takes everything for one row, and would compare all with all.
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
    # Nothing but the index gives vectors in this order unsorted.
    "set_config('enable_sort', 'off', true)"
)
_SORT_SETTING = "SELECT set_config('enable_sort', 'on', true)"

Row = tuple[Any, ...]  # id, parent, age and cosine of a record


def find_nearest(cursor: Cursor, store: int, question: FindNear) -> list[Match]:
    asking = _NearestQuery(cursor, store, escape_text(question.model), question.vector)
    # First, for it goes out with what the nearest are asked by.
    also = question.also
    named = asking.ask_fitting("r.id = ANY(%s::text[])", [escape_texts(also)]) if also else None
    found = asking.find_nearest(question.where, question.limit) if question.limit > 0 else []
    by_id = {row[0]: row for row in (*found, *fetch_rows(named))}
    ordered = sorted(by_id.values(), key=lambda row: (-row[3], row[2]))
    return [Match(unescape_text(row[0]), row[1] and unescape_text(row[1]), row[3]) for row in ordered]


class _NearestQuery:
    """One question, in its ways."""

    def __init__(self, cursor: Cursor, store: int, model: str, vector: "NDArray[np.float32]") -> None:
        self._cursor = cursor
        self._own = IndexedVectors(store, model, len(vector))
        self._half = format_halves(vector)
        self._exact = format_floats(vector)

    def find_nearest(self, where: RecordFilter, limit: int) -> list[Row]:
        sql, values = format_filter(where)
        found = None
        if where.ids is None:
            # Together: where there is an index, the second finds nothing and looks at nothing.
            usable = ask_usable(self._cursor, self._own)
            among_all = self._ask_all(sql, values, limit)
            is_indexed = usable.rowcount > 0
            found = self._find_by_index(sql, values, limit) if is_indexed else among_all()
        return self.ask_fitting(sql, values, limit).fetchall() if found is None else found

    def ask_fitting(self, sql: str, values: Sequence[Any], limit: int | None = None) -> QueryResult:
        """First who fits, and then the vectors of these: quick for few, and right for any."""
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
        """The nearest of all vectors; None where those that fit among them are too few."""
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
        """What the index leads to; None where too little of it fits."""
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
# From each other model to the next one in the index: there are few, however many records.
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
    """Says how many were kept."""
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
    # First of all, as whoever commits does: so nobody waits for one who waits for them.
    ask(cursor, _LOCK_STORE, store)
    row = cursor.ask(_PUT_VECTORS, values).fetchone()
    return row[0] if row else 0


def forget_vectors(cursor: Cursor, store: int, ids: Iterable[str]) -> QueryResult | None:
    """Takes the vectors of these away, of whatever model. What waits says the record itself.

    Whoever looks at the answer finds a row in it if there were any.
    """
    gone = escape_texts(list(ids))
    return ask(cursor, _FORGET_VECTORS, store, gone, store) if gone else None


def get_vectors(cursor: Cursor, store: int, question: GetVectors) -> "dict[str, NDArray[np.float32]]":
    if not question.ids:
        return {}
    rows = ask_last(cursor, _VECTORS_QUERY, store, escape_text(question.model), escape_texts(question.ids))
    return {unescape_text(record_id): parse_halves(sent) for record_id, sent in rows}
