"""How many records have a word: counted, or in a large store estimated where it is common."""

from collections.abc import Sequence
from typing import cast

from everkept.engines.postgres.connecting.database import Cursor
from everkept.engines.postgres.records.asking import ask
from everkept.engines.postgres.searching.querying import in_store
from everkept.values import Value

SMALL = 20_000  # records; up to here all is counted
SAMPLED = 400  # ages of a larger store; links have some of them, and what is gone had some
FEWEST_SAMPLED = 100  # records among these; where they are fewer, there are
MOST_SAMPLED = 20_000  # ages
COMMON = 0.02  # of the sample: what so many have is not counted
MOST_COUNTED = 1_000  # records with a word that is rarer in the sample

_LIVE = "SELECT count(*) FROM records r WHERE r.store = s.number AND r.deleted_at IS NULL"
_COUNT = "SELECT count(*) FROM records r WHERE r.words @@ q.query::tsquery"
_COUNTED = (
    f"SELECT s.ages, CASE WHEN s.ages <= %s THEN ({_LIVE}) END, CASE WHEN s.ages <= %s "
    f"THEN (SELECT array_agg(({_COUNT}) ORDER BY q.number) "
    "FROM unnest(%s::text[]) WITH ORDINALITY AS q(query, number)) END "
    "FROM stores s WHERE s.number = %s"
)
_SAMPLE = (
    "SELECT count(*), (SELECT array_agg((SELECT count(*) FROM sample WHERE "
    "sample.words @@ q.query::tsquery) ORDER BY q.number) "
    "FROM unnest(%s::text[]) WITH ORDINALITY AS q(query, number)) FROM sample"
)
# Ages from all over the store: what is new may be about other things than what is old.
_SAMPLED = (
    "WITH sample AS MATERIALIZED (SELECT r.words FROM records r WHERE r.store = %s "
    f"AND r.age = ANY(%s::bigint[]) AND r.deleted_at IS NULL) {_SAMPLE}"
)
_FEW = (
    "SELECT count(*) FROM (SELECT 1 FROM records r WHERE r.words @@ q.query::tsquery "
    f"LIMIT {MOST_COUNTED}) few"
)
_EACH = (
    f"SELECT ({_FEW}) FROM unnest(%s::text[]) WITH ORDINALITY AS q(query, number) ORDER BY q.number"
)


class Counted(Value):
    """The live records of a store, and how many of them fit each query."""

    records: float
    fitting: Sequence[float]


def counted(cursor: Cursor, store: int, tsqueries: Sequence[str]) -> Counted:
    """`tsqueries` say nothing of the store."""
    queries = [in_store(store, query) for query in tsqueries]
    row = ask(cursor, _COUNTED, SMALL, SMALL, queries, store).fetchone()
    if row is None:
        return Counted(0, [0.0] * len(queries))
    ages, records, fitting = row
    if records is not None:
        return Counted(records, fitting or [])
    return _estimated(cursor, store, ages, queries)


def _estimated(cursor: Cursor, store: int, ages: int, queries: Sequence[str]) -> Counted:
    for size in (SAMPLED, MOST_SAMPLED):
        some = range(1, ages + 1, max(ages // size, 1))
        sampled, answered = ask(cursor, _SAMPLED, store, list(some), queries).fetchall()[0]
        if sampled >= FEWEST_SAMPLED:
            break
    else:  # of what ever came, almost nothing is there
        [(_, records, fitting)] = ask(cursor, _COUNTED, ages, ages, queries, store).fetchall()
        return Counted(records, fitting or [])
    hits = cast(list[int], answered or [])
    estimated = ages * sampled / len(some)
    having: list[float] = [estimated * hit / sampled for hit in hits]
    rare = [n for n, hit in enumerate(hits) if hit < COMMON * sampled]
    for n, (count,) in zip(rare, ask(cursor, _EACH, [queries[n] for n in rare]), strict=True):
        having[n] = max(having[n], count) if count == MOST_COUNTED else count
    return Counted(estimated, having)
