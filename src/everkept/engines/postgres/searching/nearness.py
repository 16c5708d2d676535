"""The nearest vectors: all are compared where they are few, and an index leads where many are."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from everkept.core.questions import (
    FindNear,
)
from everkept.core.records import Match, Where
from everkept.engines.postgres.connecting.database import Cursor
from everkept.engines.postgres.connecting.wire import Answer
from everkept.engines.postgres.records.asking import ask, most, rows_of
from everkept.engines.postgres.records.filters import condition
from everkept.engines.postgres.records.rows import given, kept, kept_all
from everkept.engines.postgres.searching.halves import floats_to, halves_to
from everkept.engines.postgres.searching.vector_index import USABLE, IndexedVectors, ask_usable

if TYPE_CHECKING:  # numpy is loaded by whoever brings vectors
    import numpy as np
    from numpy.typing import NDArray

SEARCHED = 4  # times as many as are wanted are looked at, before it is asked which of them fit
FEWEST_SEARCHED = 100
HELD = 400  # vectors that the index keeps in mind on its way: the more, the fewer are missed
HELD_EACH = 8  # for each one that is wanted
MOST_HELD = 1_000
TAKEN = 2  # times as many as are wanted: it gives them in about the right order
DEPTH = 2  # times as many as it keeps in mind it gives: what is further away it finds less surely

# Each row is looked up by its key (LATERAL, and OFFSET 0 keeps it so): where the server has no
# statistics yet it takes everything for one row, and would compare all with all.
_OWN = "v.store = %s AND v.model = %s AND v.dims = %s"
_COSINE = "-(n.v::vector <#> %s::vector)"
_ALL_SEARCHED = (
    f"WITH n AS MATERIALIZED (SELECT v.record, v.v FROM vectors v WHERE {_OWN} "
    f"AND NOT EXISTS ({USABLE}) "
    "ORDER BY v.v <#> %s::halfvec LIMIT %s) "
    f"SELECT r.id, r.parent, r.age, {_COSINE} AS cosine, (SELECT count(*) FROM n) "
    "FROM n CROSS JOIN LATERAL (SELECT r.* FROM records r "
    "WHERE r.store = %s AND r.id = n.record OFFSET 0) r WHERE "
)
_BY_INDEX = (
    "SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true), "
    "set_config('hnsw.ef_search', %s, true), "
    # Nothing but the index gives vectors in this order unsorted.
    "set_config('enable_sort', 'off', true)"
)
_SORTING_AGAIN = "SELECT set_config('enable_sort', 'on', true)"

Row = tuple[Any, ...]  # id, parent, age and cosine of a record


def near(cursor: Cursor, store: int, question: FindNear) -> list[Match]:
    asking = _Asking(cursor, store, kept(question.model), question.vector)
    # First, for it goes out with what the nearest are asked by.
    also = question.also
    named = asking.all_that_fit("r.id = ANY(%s::text[])", [kept_all(also)]) if also else None
    found = asking.nearest(question.where, question.limit) if question.limit > 0 else []
    by_id = {row[0]: row for row in (*found, *rows_of(named))}
    ordered = sorted(by_id.values(), key=lambda row: (-row[3], row[2]))
    return [Match(given(row[0]), row[1] and given(row[1]), row[3]) for row in ordered]


class _Asking:
    """One question, in its ways."""

    def __init__(
        self, cursor: Cursor, store: int, model: str, vector: "NDArray[np.float32]"
    ) -> None:
        self._cursor = cursor
        self._own = IndexedVectors(store, model, len(vector))
        self._half = halves_to(vector)
        self._exact = floats_to(vector)

    def nearest(self, where: Where, limit: int) -> list[Row]:
        sql, values = condition(where)
        found = None
        if where.ids is None:
            # Together: where there is an index, the second finds nothing and looks at nothing.
            usable = ask_usable(self._cursor, self._own)
            among_all = self._among_all(sql, values, limit)
            is_indexed = usable.rowcount > 0
            found = self._by_index(sql, values, limit) if is_indexed else among_all()
        return self.all_that_fit(sql, values, limit).fetchall() if found is None else found

    def all_that_fit(self, sql: str, values: Sequence[Any], limit: int | None = None) -> Answer:
        """First who fits, and then the vectors of these: quick for few, and right for any."""
        return ask(
            self._cursor,
            "WITH r AS MATERIALIZED (SELECT r.id, r.parent, r.age FROM records r "
            f"WHERE r.store = %s AND {sql}), "
            "n AS (SELECT r.id, r.parent, r.age, v.v FROM r CROSS JOIN LATERAL "
            f"(SELECT v.v FROM vectors v WHERE v.record = r.id AND {_OWN} OFFSET 0) v "
            "ORDER BY v.v <#> %s::halfvec, r.age LIMIT %s) "
            f"SELECT n.id, n.parent, n.age, {_COSINE} FROM n",
            self._own.store,
            *values,
            *self._own,
            self._half,
            most(limit),
            self._exact,
        )

    def _among_all(
        self, sql: str, values: Sequence[Any], limit: int
    ) -> Callable[[], list[Row] | None]:
        """The nearest of all vectors; None where those that fit among them are too few."""
        many = max(SEARCHED * limit, FEWEST_SEARCHED)
        asked = ask(
            self._cursor,
            f"{_ALL_SEARCHED}{sql} ORDER BY cosine DESC, r.age LIMIT %s",
            *self._own,
            self._own.name,
            self._half,
            most(many),
            self._exact,
            self._own.store,
            *values,
            most(limit),
        )

        def found() -> list[Row] | None:
            rows = asked.fetchall()
            is_enough = len(rows) == limit or (rows and rows[0][4] < many)
            return [row[:4] for row in rows] if is_enough else None

        return found

    def _by_index(self, sql: str, values: Sequence[Any], limit: int) -> list[Row] | None:
        """What the index leads to; None where too little of it fits."""
        held = min(max(HELD, HELD_EACH * limit), MOST_HELD)
        if TAKEN * limit > DEPTH * held:
            return None
        expression = self._own.expression
        ask(self._cursor, _BY_INDEX, str(held))
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
            DEPTH * held,
            self._own.store,
            *values,
            TAKEN * limit,
        )
        ask(self._cursor, _SORTING_AGAIN)
        rows = found.fetchall()
        return rows[:limit] if len(rows) >= limit else None
