"""Indexes and statistics of large stores, and the background work that maintains them.

There are two kinds of indexes. One covers the vectors of a store and model. The other covers the trigrams of texts, if
the database has pg_trgm. Without a valid index, a query compares all vectors or reads all texts: slower, with the same
result. One server builds an index while others read and write. Rows of deleted projects are removed in the background
too.
"""

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

import psycopg
from psycopg.sql import Literal

from everkept.core.text import compute_digest
from everkept.engines.postgres import project_lifecycle
from everkept.engines.postgres.connection import Connection, PoolerDetected
from everkept.engines.postgres.database import Database
from everkept.engines.postgres.schema import TRIGRAM_INDEX, VECTOR_INDEX_PREFIX
from everkept.engines.postgres.statements import Cursor, QueryResult, ask, open_cursor
from everkept.errors import EverkeptError

_TRY_LOCK = "SELECT pg_try_advisory_lock(hashtextextended(current_schema() || %s, 0))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended(current_schema() || %s, 0))"


@contextmanager
def try_lock(cursor: Cursor, index: str) -> Generator[bool, None, None]:
    """Yield False if another process is building this index."""
    if not ask(cursor, _TRY_LOCK, index).fetchall()[0][0]:
        yield False
        return
    try:
        yield True
    finally:
        cursor.execute(_UNLOCK, [index])


def drop_index(cursor: Cursor, index: str) -> None:
    cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {index}")


MAX_UNINDEXED_VECTORS = 30_000  # up to here, comparing all vectors takes about as long as using the index
MAX_INDEX_DIMENSIONS = 4_000  # maximum of an HNSW index
# m and ef_construction of the index
HNSW_NEIGHBORS, HNSW_BUILD_WIDTH = 24, 200
# Memory for the build. A graph that does not fit is built many times slower.
GRAPH_BYTES_PER_VECTOR = 300  # for the neighbors of each vector
MIN_BUILD_BYTES, MAX_BUILD_BYTES = 2**26, 2**30

# The shared memory of the server, or of its container, was too small.
_OUT_OF_MEMORY_CODES = ("53100", "53200", "58030")
USABLE_INDEX_QUERY = "SELECT FROM pg_index WHERE indisvalid AND indexrelid = to_regclass(%s)"
_LARGE_MODELS_QUERY = (
    f"SELECT model, dims FROM vectors WHERE store = %s AND dims <= {MAX_INDEX_DIMENSIONS} "
    "GROUP BY model, dims HAVING count(*) > %s"
)
_INDEXES_QUERY = (
    "SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
    "WHERE i.indrelid = to_regclass('vectors') AND starts_with(c.relname, %s)"
)
_VECTOR_COUNT_QUERY = "SELECT count(*) FROM vectors WHERE store = %s AND model = %s AND dims = %s"


class IndexedVectors(NamedTuple):
    """Vectors of one store and model, which can be compared with each other."""

    store: int
    model: str
    dims: int

    @property
    def name(self) -> str:
        """Return the name of the index. It contains the store's number, so that orphaned indexes are found."""
        return f"{_format_prefix(self.store)}{compute_digest(f'{self.dims} {self.model}')[:16]}"

    @property
    def expression(self) -> str:
        return f"v::halfvec({self.dims})"

    @property
    def predicate(self) -> str:
        """Return the condition with literal values, so that the planner sees that it matches the index."""
        model = Literal(self.model).as_string(None).replace("%", "%%")
        return f"store = {self.store} AND model = {model} AND dims = {self.dims}"


def ask_usable(cursor: Cursor, vectors: IndexedVectors) -> QueryResult:
    """Queue a query that returns a row if a valid index exists."""
    return ask(cursor, USABLE_INDEX_QUERY, vectors.name)


def list_unindexed(cursor: Cursor, store: int, many: int = MAX_UNINDEXED_VECTORS) -> list[IndexedVectors]:
    """Return the models of a store that have more than `many` vectors and no valid index."""
    usable = {name for name, is_valid in _list_indexes(cursor, _format_prefix(store)) if is_valid}
    found = [IndexedVectors(store, *row) for row in ask(cursor, _LARGE_MODELS_QUERY, store, many)]
    return [vectors for vectors in found if vectors.name not in usable]


def build_vector_index(connection: Connection, vectors: IndexedVectors) -> bool:
    """Build the index while others read and write. Return False if another process is building it.

    An incomplete index of an earlier build is dropped first. Each statement is its own transaction.
    """
    cursor = open_cursor(connection)
    with try_lock(cursor, vectors.name) as is_ours:
        if is_ours:
            _build(cursor, vectors)
    return is_ours


def list_orphans(cursor: Cursor) -> list[str]:
    """Return the names of the indexes whose stores are gone."""
    owners = {
        name: int(name.removeprefix(VECTOR_INDEX_PREFIX).partition("_")[0])
        for name, _ in _list_indexes(cursor, VECTOR_INDEX_PREFIX)
    }
    if not owners:
        return []
    stores = {row[0] for row in ask(cursor, "SELECT number FROM stores")}
    return [name for name, owner in owners.items() if owner not in stores]


def remove_orphans(connection: Connection) -> None:
    cursor = open_cursor(connection)
    for name in list_orphans(cursor):
        drop_index(cursor, name)


def _build(cursor: Cursor, vectors: IndexedVectors) -> None:
    state = dict(_list_indexes(cursor, vectors.name))
    if state.get(vectors.name):
        return
    count = ask(cursor, _VECTOR_COUNT_QUERY, *vectors).fetchall()[0][0]
    cursor.execute(f"SET maintenance_work_mem = '{compute_build_bytes(count, vectors.dims) // 2**10}kB'")
    try:
        _create(cursor, vectors)
    except psycopg.Error as error:
        if error.sqlstate not in _OUT_OF_MEMORY_CODES:
            raise
        cursor.execute("SET max_parallel_maintenance_workers = 0")
        _create(cursor, vectors)


def compute_build_bytes(count: int, dims: int) -> int:
    """Return the memory for building an index over `count` vectors, within the limits."""
    return min(max(count * (2 * dims + GRAPH_BYTES_PER_VECTOR), MIN_BUILD_BYTES), MAX_BUILD_BYTES)


def _create(cursor: Cursor, vectors: IndexedVectors) -> None:
    drop_index(cursor, vectors.name)
    cursor.execute(
        f"CREATE INDEX CONCURRENTLY {vectors.name} ON vectors "
        f"USING hnsw (({vectors.expression}) halfvec_ip_ops) "
        f"WITH (m = {HNSW_NEIGHBORS}, ef_construction = {HNSW_BUILD_WIDTH}) "
        f"WHERE {vectors.predicate}",
        [],
    )


def _list_indexes(cursor: Cursor, prefix: str) -> list[tuple[str, bool]]:
    return [(name, is_valid) for name, is_valid in ask(cursor, _INDEXES_QUERY, prefix)]


def _format_prefix(store: int) -> str:
    return f"{VECTOR_INDEX_PREFIX}{store}_"


TRIGRAM_EXTENSION = "pg_trgm"
TRIGRAM_METHOD, TRIGRAM_OPERATORS = "gin", "gin_trgm_ops"

_EXTENSION_SCHEMA_QUERY = (
    "SELECT quote_ident(n.nspname) FROM pg_extension e "
    "JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = %s"
)
_USABLE_TRIGRAM_QUERY = (
    "SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
    "WHERE i.indrelid = to_regclass('records') AND c.relname = %s AND i.indisvalid"
)


def is_trigram_index_wanted(cursor: Cursor) -> bool:
    """Return whether the extension exists and the index is missing or invalid."""
    return (
        _find_extension_schema(cursor) is not None
        and ask(cursor, _USABLE_TRIGRAM_QUERY, TRIGRAM_INDEX).fetchone() is None
    )


def build_trigram_index(connection: Connection) -> None:
    """Build the trigram index. Each statement is its own transaction."""
    cursor = open_cursor(connection)
    with try_lock(cursor, TRIGRAM_INDEX) as is_ours:
        place = _find_extension_schema(cursor)
        if is_ours and place is not None and is_trigram_index_wanted(cursor):
            drop_index(cursor, TRIGRAM_INDEX)  # an incomplete index of an earlier build
            # Text queries must use the same expressions, otherwise the index does not apply.
            columns = ", ".join(f"lower({c}) {place}.{TRIGRAM_OPERATORS}" for c in ("name", "type", "text"))
            cursor.execute(
                f"CREATE INDEX CONCURRENTLY {TRIGRAM_INDEX} ON records USING {TRIGRAM_METHOD} "
                f"({columns}) "
                "WHERE deleted_at IS NULL"
            )


def _find_extension_schema(cursor: Cursor) -> str | None:
    row = ask(cursor, _EXTENSION_SCHEMA_QUERY, TRIGRAM_EXTENSION).fetchone()
    return None if row is None else row[0]


RECHECK_SECONDS = 5.0  # until the next check for rows that another process was removing

log = logging.getLogger(__name__)


class LeftoverRemover:
    """Background removal of deleted stores in one library. It starts on demand."""

    def __init__(self, database: Database, *, again: float = RECHECK_SECONDS) -> None:
        self._database = database
        self._again = again
        self._is_wanted = False
        self._removing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def check_soon(self) -> None:
        """Look for deleted stores in the background."""
        self._is_wanted = True
        if self._removing is None or self._removing.done():
            self._removing = asyncio.create_task(self._remove())

    async def wait_until_removed(self) -> None:
        """Wait until only rows that another process is removing are left. Canceling the caller stops nothing."""
        self.check_soon()
        while self._removing is not None and not self._removing.done():
            await asyncio.wait([self._removing])

    async def close(self) -> None:
        """Stop the removal. The next check starts an interrupted removal again."""
        self._stop_timer()
        if self._removing is not None:
            self._removing.cancel()
            await asyncio.wait([self._removing])
            self._stop_timer()

    async def _remove(self) -> None:
        while self._is_wanted:
            self._is_wanted = False
            try:
                is_left = await self._database.read(_has_leftovers)
                if is_left and await self._database.maintain(_remove_leftovers):
                    self._stop_timer()
                    self._timer = asyncio.get_running_loop().call_later(self._again, self.check_soon)
            except PoolerDetected:
                return  # the pool has already logged it
            except (EverkeptError, RuntimeError) as error:  # the project is deleted anyway
                log.warning("rows of deleted projects not removed: %s", error)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _has_leftovers(cursor: Cursor) -> bool:
    return project_lifecycle.has_leftovers(cursor) or bool(list_orphans(cursor))


def _remove_leftovers(connection: Connection) -> bool:
    """Remove deleted stores. Return whether another process is still removing some."""
    project_lifecycle.remove_leftovers(connection)
    remove_orphans(connection)
    return project_lifecycle.has_leftovers(open_cursor(connection))


VECTORS_PER_CHECK = 1_000  # new vectors after which a store is checked again
CALM_SECONDS = 5.0  # a bulk load gets its index after this pause
MAX_DELAY_SECONDS = 1_800.0  # after which a growing store is checked anyway
BACKOFF_FACTOR = 8  # each failure in a row multiplies the vectors until the next check
MAX_COUNTED_FAILURES = 4  # further failures do not raise the factor


class IndexMaintenance:
    """Index builder of a library, one store at a time."""

    def __init__(
        self,
        database: Database,
        *,
        many: int = MAX_UNINDEXED_VECTORS,
        every: int = VECTORS_PER_CHECK,
        patience: float = MAX_DELAY_SECONDS,
        calm: float = CALM_SECONDS,
    ) -> None:
        self._database = database
        self._remover = LeftoverRemover(database)
        self._many = many
        self._every = every
        self._patience = patience
        self._calm = calm
        self._came: dict[int, int] = {}  # new vectors of each store since its last check
        self._grew_at: dict[int, float] = {}  # time when enough vectors last arrived
        self._fast_since: dict[int, float] = {}
        self._put_off: dict[int, asyncio.TimerHandle] = {}
        self._failures: dict[int, int] = {}  # failures of each store in a row
        self._waiting: dict[int, None] = {}
        self._keeping: asyncio.Task[None] | None = None

    def note_vectors(self, store: int, vectors: int) -> None:
        """Count new vectors of a store, and check it in the background when there are enough."""
        enough = self._every * int(BACKOFF_FACTOR ** self._failures.get(store, 0))
        came = self._came.get(store, enough) + vectors  # other processes may have stored many before
        self._came[store] = came
        if vectors and came >= enough:
            self._came[store] = 0
            self._check_when_calm(store)

    def note_deleted(self, store: int) -> None:
        """Remove what is left of a deleted store in the background."""
        for kept in (self._came, self._failures, self._grew_at, self._fast_since):
            kept.pop(store, None)
        self._check_fully(store)

    def note_library_change(self) -> None:
        """Look for deleted stores in the background after a change of the library."""
        self._remover.check_soon()

    def note_doubling(self, store: int) -> None:
        """Check in the background a store that has doubled in size. A postponed vector index stays postponed."""
        self._check_soon(store)

    async def wait_until_removed(self) -> None:
        """Wait until only rows that another process is removing are left."""
        await self._remover.wait_until_removed()

    async def wait_until_settled(self) -> None:
        """Wait until all work is done, including postponed work."""
        for store in list(self._put_off):
            self._check_fully(store)
        while self._keeping is not None and not self._keeping.done():
            await asyncio.wait([self._keeping])

    async def close(self) -> None:
        """Stop the work. The next check starts an interrupted build again."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        await self._remover.close()
        for timer in self._put_off.values():
            timer.cancel()
        for kept in (self._put_off, self._waiting, self._came, self._grew_at, self._fast_since):
            kept.clear()

    def _check_when_calm(self, store: int) -> None:
        """Postpone the index while vectors arrive quickly.

        Building an index over existing vectors takes a fraction of the time of inserting them one by one, and does not
        delay the load.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        grew_at = self._grew_at.get(store, -self._calm)
        self._grew_at[store] = now
        if now - grew_at >= self._calm:
            self._fast_since.pop(store, None)
        elif now - self._fast_since.setdefault(store, grew_at) < self._patience:
            self._stop_timer(store)
            self._put_off[store] = loop.call_later(self._calm, self._check_fully, store)
            return
        self._check_fully(store)

    def _check_fully(self, store: int) -> None:
        self._stop_timer(store)
        self._check_soon(store)

    def _stop_timer(self, store: int) -> None:
        if (timer := self._put_off.pop(store, None)) is not None:
            timer.cancel()

    def _check_soon(self, store: int) -> None:
        self._waiting[store] = None
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._waiting:
            store = next(iter(self._waiting))
            del self._waiting[store]
            try:
                await self._check(store)
                self._failures.pop(store, None)
            except PoolerDetected:
                self._waiting.clear()  # the pool has already logged it
            except (EverkeptError, RuntimeError) as error:  # no caller waits for this
                # Without indexes, queries are slower but return the same results.
                failures = self._failures.get(store, 0) + 1
                self._failures[store] = min(failures, MAX_COUNTED_FAILURES)
                log.warning("indexes of store %d not built: %s", store, error)

    async def _check(self, store: int) -> None:
        await self._remover.wait_until_removed()  # do not analyze rows that will be removed
        wanted = await self._database.read(
            lambda cursor: _IndexWork(
                is_stale(cursor), list_unindexed(cursor, store, self._many), is_trigram_index_wanted(cursor)
            )
        )
        if store in self._put_off:
            wanted = wanted._replace(vectors=[])
        if any(wanted):
            await self._database.maintain(lambda connection: _build_all(connection, wanted))


class _IndexWork(NamedTuple):
    """Statistics and indexes to build."""

    statistics: bool
    vectors: list[IndexedVectors]
    trigrams: bool


def _build_all(connection: Connection, wanted: _IndexWork) -> None:
    """Build everything, the quickest first."""
    if wanted.statistics:
        gather_statistics(connection)
    for vectors in wanted.vectors:
        build_vector_index(connection, vectors)
    if wanted.trigrams:
        build_trigram_index(connection)


MIN_ANALYZED_ROWS = 1_024  # records and links from which statistics matter

_ANALYZED_TABLES = ("records", "vectors", "edits")
# No statistics, or only of less than half of the rows. Pages are compared too, because ages include links and deleted
# records.
_STALENESS_QUERY = """
SELECT NOT EXISTS (SELECT FROM pg_stats WHERE schemaname = current_schema()
        AND tablename = 'records')
    OR (c.reltuples < (SELECT sum(ages) FROM stores) / 2 AND c.relpages
        < pg_relation_size(c.oid) / current_setting('block_size')::integer / 2)
FROM pg_class c WHERE c.oid = to_regclass('records') AND (SELECT sum(ages) FROM stores) >= %s
"""


class StoreGrowth(NamedTuple):
    """Highest age in a store before and after a write."""

    before: int
    after: int

    @property
    def is_doubling(self) -> bool:
        """Return whether a power of two was passed. Of several concurrent writers, this is true for one."""
        return self.after >= MIN_ANALYZED_ROWS and self.before.bit_length() < self.after.bit_length()


def is_stale(cursor: Cursor) -> bool:
    row = ask(cursor, _STALENESS_QUERY, MIN_ANALYZED_ROWS).fetchone()
    return row is not None and bool(row[0])


def gather_statistics(connection: Connection) -> None:
    open_cursor(connection).execute(f"ANALYZE {', '.join(_ANALYZED_TABLES)}")
