"""Indexes of large stores, each built by one server while others read and write.

There are two kinds: of the vectors of one store and model, and of the parts of texts, where the
database has the extension for it. While there is none, or a broken one, all vectors are compared
and all texts are read: slower, with the same answer.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

import psycopg
from psycopg.sql import Literal

from everkept.core.text import digest
from everkept.engines.postgres.connection import Connection
from everkept.engines.postgres.schema import VECTOR_INDEXES
from everkept.engines.postgres.statements import Answer, Cursor, ask, cursor_on

_TURN = "SELECT pg_try_advisory_lock(hashtextextended(current_schema() || %s, 0))"
_TURN_OVER = "SELECT pg_advisory_unlock(hashtextextended(current_schema() || %s, 0))"


@contextmanager
def turn(cursor: Cursor, index: str) -> Generator[bool, None, None]:
    """Gives False where another is just making it."""
    if not ask(cursor, _TURN, index).fetchall()[0][0]:
        yield False
        return
    try:
        yield True
    finally:
        cursor.execute(_TURN_OVER, [index])


def drop(cursor: Cursor, index: str) -> None:
    cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {index}")


MANY = 30_000  # vectors; up to here comparing all of them takes about as long as the index does
MOST_DIMENSIONS = 4_000  # that such an index takes
NEIGHBOURS, WIDTH = 24, 200  # of the graph, and of the search for them while it is made
# Bytes for its making; what does not fit is made many times slower.
BESIDE = 300  # each vector, for its neighbours
LEAST_MEMORY, MOST_MEMORY = 2**26, 2**30

# What several processes share, or a container's part of it, was too small for that.
_CROWDED = ("53100", "53200", "58030")
USABLE = "SELECT FROM pg_index WHERE indisvalid AND indexrelid = to_regclass(%s)"
_MANY = (
    f"SELECT model, dims FROM vectors WHERE store = %s AND dims <= {MOST_DIMENSIONS} "
    "GROUP BY model, dims HAVING count(*) > %s"
)
_THERE = (
    "SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
    "WHERE i.indrelid = to_regclass('vectors') AND starts_with(c.relname, %s)"
)
_COUNT = "SELECT count(*) FROM vectors WHERE store = %s AND model = %s AND dims = %s"


class IndexedVectors(NamedTuple):
    """Vectors that can be compared with each other."""

    store: int
    model: str
    dims: int

    @property
    def name(self) -> str:
        """Its name says whose it is: that of a store which is gone is found by it."""
        return f"{_prefix(self.store)}{digest(f'{self.dims} {self.model}')[:16]}"

    @property
    def expression(self) -> str:
        return f"v::halfvec({self.dims})"

    @property
    def predicate(self) -> str:
        """With its values: the planner has to see that it is what the index says."""
        model = Literal(self.model).as_string(None).replace("%", "%%")
        return f"store = {self.store} AND model = {model} AND dims = {self.dims}"


def ask_usable(cursor: Cursor, vectors: IndexedVectors) -> Answer:
    """The answer has a row if there is an index that can be used."""
    return ask(cursor, USABLE, vectors.name)


def unindexed(cursor: Cursor, store: int, many: int = MANY) -> list[IndexedVectors]:
    """Those of a store that are more than so many, and have no index that could be used."""
    usable = {name for name, is_valid in _there(cursor, _prefix(store)) if is_valid}
    found = [IndexedVectors(store, *row) for row in ask(cursor, _MANY, store, many)]
    return [vectors for vectors in found if vectors.name not in usable]


def build_vector_index(connection: Connection, vectors: IndexedVectors) -> bool:
    """Makes the index beside whoever reads and writes; False where another is just doing that.

    What is left of a making that did not come to its end is removed first. Each statement on the
    connection is a transaction of its own.
    """
    cursor = cursor_on(connection)
    with turn(cursor, vectors.name) as is_ours:
        if is_ours:
            _build(cursor, vectors)
    return is_ours


def orphans(cursor: Cursor) -> list[str]:
    """The names of the indexes whose stores are gone."""
    owners = {
        name: int(name.removeprefix(VECTOR_INDEXES).partition("_")[0])
        for name, _ in _there(cursor, VECTOR_INDEXES)
    }
    if not owners:
        return []
    stores = {row[0] for row in ask(cursor, "SELECT number FROM stores")}
    return [name for name, owner in owners.items() if owner not in stores]


def remove_orphans(connection: Connection) -> None:
    cursor = cursor_on(connection)
    for name in orphans(cursor):
        drop(cursor, name)


def _build(cursor: Cursor, vectors: IndexedVectors) -> None:
    state = dict(_there(cursor, vectors.name))
    if state.get(vectors.name):
        return
    count = ask(cursor, _COUNT, *vectors).fetchall()[0][0]
    cursor.execute(f"SET maintenance_work_mem = '{memory(count, vectors.dims) // 2**10}kB'")
    try:
        _create(cursor, vectors)
    except psycopg.Error as error:
        if error.sqlstate not in _CROWDED:
            raise
        cursor.execute("SET max_parallel_maintenance_workers = 0")
        _create(cursor, vectors)


def memory(count: int, dims: int) -> int:
    """Bytes that an index over so many needs for its making, as far as it gets them."""
    return min(max(count * (2 * dims + BESIDE), LEAST_MEMORY), MOST_MEMORY)


def _create(cursor: Cursor, vectors: IndexedVectors) -> None:
    drop(cursor, vectors.name)
    cursor.execute(
        f"CREATE INDEX CONCURRENTLY {vectors.name} ON vectors "
        f"USING hnsw (({vectors.expression}) halfvec_ip_ops) "
        f"WITH (m = {NEIGHBOURS}, ef_construction = {WIDTH}) "
        f"WHERE {vectors.predicate}",
        [],
    )


def _there(cursor: Cursor, prefix: str) -> list[tuple[str, bool]]:
    return [(name, is_valid) for name, is_valid in ask(cursor, _THERE, prefix)]


def _prefix(store: int) -> str:
    return f"{VECTOR_INDEXES}{store}_"


EXTENSION = "pg_trgm"
METHOD, OPERATORS = "gin", "gin_trgm_ops"
TRIGRAM_INDEX = "records_trigrams"

_PLACE = (
    "SELECT quote_ident(n.nspname) FROM pg_extension e "
    "JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = %s"
)
_USABLE = (
    "SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
    "WHERE i.indrelid = to_regclass('records') AND c.relname = %s AND i.indisvalid"
)


def is_trigram_index_wanted(cursor: Cursor) -> bool:
    """Whether it could be there, and is not or cannot be used."""
    return _place(cursor) is not None and ask(cursor, _USABLE, TRIGRAM_INDEX).fetchone() is None


def build_trigram_index(connection: Connection) -> None:
    """Each statement on the connection is a transaction of its own."""
    cursor = cursor_on(connection)
    with turn(cursor, TRIGRAM_INDEX) as is_ours:
        place = _place(cursor)
        if is_ours and place is not None and is_trigram_index_wanted(cursor):
            drop(cursor, TRIGRAM_INDEX)  # what is left of a making that did not come to its end
            # The same expressions as in a question for a part, or it is not used.
            columns = ", ".join(f"lower({c}) {place}.{OPERATORS}" for c in ("name", "type", "text"))
            cursor.execute(
                f"CREATE INDEX CONCURRENTLY {TRIGRAM_INDEX} ON records USING {METHOD} ({columns}) "
                "WHERE deleted_at IS NULL"
            )


def _place(cursor: Cursor) -> str | None:
    row = ask(cursor, _PLACE, EXTENSION).fetchone()
    return None if row is None else row[0]
