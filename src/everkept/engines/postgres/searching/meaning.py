"""Vectors beside the records: no change, and no part of an undo."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from everkept.core.ports import Embedded
from everkept.core.questions import (
    CountVectors,
    FindUnembedded,
    GetVectors,
)
from everkept.core.records import Record
from everkept.engines.postgres.connecting.cursor import Cursor
from everkept.engines.postgres.connecting.wire import Answer
from everkept.engines.postgres.records.asking import LARGEST, ask, ask_last
from everkept.engines.postgres.records.rows import (
    RECORD_COLUMNS,
    given,
    kept,
    kept_all,
    record_from,
)
from everkept.engines.postgres.searching.halves import halves_from, halves_to
from everkept.engines.postgres.searching.nearness import near as near
from everkept.engines.postgres.searching.schema import EMBEDDABLE

if TYPE_CHECKING:  # numpy is loaded by whoever brings vectors
    import numpy as np
    from numpy.typing import NDArray

_OF_KIND = f"FROM records r WHERE r.store = %(store)s AND r.kind = k.kind AND {EMBEDDABLE}"
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
_COUNTS = (
    "SELECT r.embedded, count(*) FROM records r WHERE r.store = %s "
    f"AND r.kind = ANY(%s::text[]) AND {EMBEDDABLE} GROUP BY r.embedded"
)
_WITH_ANOTHER = (
    "SELECT count(*) FROM records r WHERE r.store = %s AND r.kind = ANY(%s::text[]) "
    f"AND {EMBEDDABLE} AND r.embedded <> %s AND r.text <> ''"
)
_TAKE = "SELECT 1 FROM stores WHERE number = %s FOR NO KEY UPDATE"
_PUT = """
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
_FORGET = (
    "WITH gone AS (DELETE FROM vectors WHERE store = %s AND record = ANY(%s::text[]) RETURNING 1), "
    "lost AS (SELECT count(*) AS many FROM gone) UPDATE stores SET moves = moves + lost.many "
    "FROM lost WHERE number = %s AND lost.many > 0"
)
_VECTORS = (
    "SELECT record, halfvec_send(v) FROM vectors "
    "WHERE store = %s AND model = %s AND record = ANY(%s::text[])"
)


def unembedded(cursor: Cursor, store: int, question: FindUnembedded) -> list[Record]:
    if question.limit <= 0 or not question.kinds:
        return []
    values = {
        "store": store,
        "model": kept(question.model),
        "kinds": kept_all(question.kinds),
        "limit": min(question.limit, LARGEST),
    }
    rows = cursor.ask_last(_UNEMBEDDED, values)
    return [record_from(row) for row in rows]


def vector_counts(cursor: Cursor, store: int, question: CountVectors) -> tuple[int, int]:
    wanted, name = kept_all(question.kinds), kept(question.model)
    counts: dict[str | None, int] = dict(ask(cursor, _COUNTS, store, wanted).fetchall())
    waiting = counts.get(None, 0)
    if counts.keys() - {None, name}:
        waiting += ask(cursor, _WITH_ANOTHER, store, wanted, name).fetchall()[0][0]
    return counts.get(name, 0), waiting


def put_vectors(
    cursor: Cursor,
    store: int,
    model: str,
    items: Sequence[Embedded],
    *,
    include_deleted: bool = False,
) -> int:
    """Says how many were kept."""
    last = {kept(item.id): item for item in items}
    if not last:
        return 0
    values = {
        "store": store,
        "model": kept(model),
        "ids": list(last),
        "versions": [item.version for item in last.values()],
        "vectors": [halves_to(item.vector) for item in last.values()],
        "include_deleted": include_deleted,
    }
    # First of all, as whoever commits does: so nobody waits for one who waits for them.
    ask(cursor, _TAKE, store)
    row = cursor.ask(_PUT, values).fetchone()
    return row[0] if row else 0


def forget_vectors(cursor: Cursor, store: int, ids: Iterable[str]) -> Answer | None:
    """Takes the vectors of these away, of whatever model. What waits says the record itself.

    Whoever looks at the answer finds a row in it if there were any.
    """
    gone = kept_all(list(ids))
    return ask(cursor, _FORGET, store, gone, store) if gone else None


def vectors(cursor: Cursor, store: int, question: GetVectors) -> "dict[str, NDArray[np.float32]]":
    if not question.ids:
        return {}
    rows = ask_last(cursor, _VECTORS, store, kept(question.model), kept_all(question.ids))
    return {given(record_id): halves_from(sent) for record_id, sent in rows}
