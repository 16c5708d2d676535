"""Indexes and statistics of large stores, and the background work that keeps them up to date.

There are two kinds of indexes: of the vectors of one store and model, and of the parts of texts,
where the database has the extension for it. While there is none, or a broken one, all vectors are
compared and all texts are read: slower, with the same answer. One server builds an index while
others read and write. Rows of deleted projects are removed in the background too.
"""

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

import psycopg
from psycopg.sql import Literal

from everkept.core.text import digest
from everkept.engines.postgres import project_lifecycle
from everkept.engines.postgres.connection import Connection, Pooled
from everkept.engines.postgres.database import Database
from everkept.engines.postgres.schema import VECTOR_INDEXES
from everkept.engines.postgres.statements import Answer, Cursor, ask, cursor_on
from everkept.errors import EverkeptError

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


AGAIN = 5.0  # seconds after which is looked whether another has removed what it was removing

log = logging.getLogger(__name__)


class Remover:
    """One for a library. Nothing of it is begun before somebody asks for it."""

    def __init__(self, database: Database, *, again: float = AGAIN) -> None:
        self._database = database
        self._again = again
        self._is_wanted = False
        self._removing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Something may be left. Returns at once."""
        self._is_wanted = True
        if self._removing is None or self._removing.done():
            self._removing = asyncio.create_task(self._remove())

    async def removed(self) -> None:
        """Waits until nothing is left but what another removes; who stops waiting ends nothing."""
        self.look()
        while self._removing is not None and not self._removing.done():
            await asyncio.wait([self._removing])

    async def close(self) -> None:
        """What is half done is begun anew by whoever looks next."""
        self._stop_timer()
        if self._removing is not None:
            self._removing.cancel()
            await asyncio.wait([self._removing])
            self._stop_timer()

    async def _remove(self) -> None:
        while self._is_wanted:
            self._is_wanted = False
            try:
                is_left = await self._database.read(_is_something_left)
                if is_left and await self._database.apart(_remove):
                    self._look_later()
            except Pooled:
                return  # the database has said so, once
            except (EverkeptError, RuntimeError) as error:  # the project is gone all the same
                log.warning("What is left of deleted projects is not removed: %s", error)

    def _look_later(self) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(self._again, self.look)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _is_something_left(cursor: Cursor) -> bool:
    return project_lifecycle.are_left(cursor) or bool(orphans(cursor))


def _remove(connection: Connection) -> bool:
    """Whether there is some that another removes just now."""
    project_lifecycle.remove(connection)
    remove_orphans(connection)
    return project_lifecycle.are_left(cursor_on(connection))


EVERY = 1_000  # vectors that came, after which a store is looked at again
CALM = 5.0  # seconds in which fewer come: what is loaded at once gets its index when it is there
PATIENCE = 1_800.0  # seconds after which it is looked at nevertheless
LATER = 8  # times as many after a failure, and again after each that follows it
MOST_FAILURES = 4  # that are told apart


class IndexKeeper:
    """One for all stores of a library: they get their indexes one after the other."""

    def __init__(
        self,
        database: Database,
        *,
        many: int = MANY,
        every: int = EVERY,
        patience: float = PATIENCE,
        calm: float = CALM,
    ) -> None:
        self._database = database
        self._remover = Remover(database)
        self._many = many
        self._every = every
        self._patience = patience
        self._calm = calm
        self._came: dict[int, int] = {}  # vectors of each store since it was looked at
        self._grew_at: dict[int, float] = {}  # when so many had come last
        self._fast_since: dict[int, float] = {}
        self._put_off: dict[int, asyncio.TimerHandle] = {}
        self._failures: dict[int, int] = {}  # of each store since it last went well
        self._waiting: dict[int, None] = {}
        self._keeping: asyncio.Task[None] | None = None

    def note(self, store: int, vectors: int) -> None:
        """So many have come there. Returns at once."""
        enough = self._every * int(LATER ** self._failures.get(store, 0))
        came = self._came.get(store, enough) + vectors  # others may have stored many before
        self._came[store] = came
        if vectors and came >= enough:
            self._came[store] = 0
            self._look_when_calm(store)

    def note_gone(self, store: int) -> None:
        """It is no more. Returns at once."""
        for kept in (self._came, self._failures, self._grew_at, self._fast_since):
            kept.pop(store, None)
        self._look_at_all_of(store)

    def note_news(self) -> None:
        """Others have changed what belongs to no store, or may have. Returns at once."""
        self._remover.look()

    def note_doubling(self, store: int) -> None:
        """It has twice as much as when this was said before. Returns at once.

        An index over its vectors that was put off stays so.
        """
        self._look_soon(store)

    async def removed(self) -> None:
        """Waits until nothing is left of stores that are no more, but what another removes."""
        await self._remover.removed()

    async def settled(self) -> None:
        """Waits until nothing is left to do; what was put off is done now."""
        for store in list(self._put_off):
            self._look_at_all_of(store)
        while self._keeping is not None and not self._keeping.done():
            await asyncio.wait([self._keeping])

    async def close(self) -> None:
        """What is half made is made anew by whoever looks next."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        await self._remover.close()
        for timer in self._put_off.values():
            timer.cancel()
        for kept in (self._put_off, self._waiting, self._came, self._grew_at, self._fast_since):
            kept.clear()

    def _look_when_calm(self, store: int) -> None:
        """An index over what is there already takes a part of the time that it takes to insert it
        vector by vector, and whoever loads them need not wait."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        grew_at = self._grew_at.get(store, -self._calm)
        self._grew_at[store] = now
        if now - grew_at >= self._calm:
            self._fast_since.pop(store, None)
        elif now - self._fast_since.setdefault(store, grew_at) < self._patience:
            self._stop_timer(store)
            self._put_off[store] = loop.call_later(self._calm, self._look_at_all_of, store)
            return
        self._look_at_all_of(store)

    def _look_at_all_of(self, store: int) -> None:
        self._stop_timer(store)
        self._look_soon(store)

    def _stop_timer(self, store: int) -> None:
        if (timer := self._put_off.pop(store, None)) is not None:
            timer.cancel()

    def _look_soon(self, store: int) -> None:
        self._waiting[store] = None
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        while self._waiting:
            store = next(iter(self._waiting))
            del self._waiting[store]
            try:
                await self._look_at(store)
                self._failures.pop(store, None)
            except Pooled:
                self._waiting.clear()  # the database has said so, once
            except (EverkeptError, RuntimeError) as error:  # nobody waits who could be told
                # Without them answers take longer, and are as right.
                failures = self._failures.get(store, 0) + 1
                self._failures[store] = min(failures, MOST_FAILURES)
                log.warning("The indexes of store %d are not kept: %s", store, error)

    async def _look_at(self, store: int) -> None:
        await self._remover.removed()  # nothing is gathered of what is to go
        wanted = await self._database.read(lambda cursor: _wanted(cursor, store, self._many))
        if store in self._put_off:
            wanted = wanted._replace(vectors=[])
        if any(wanted):
            await self._database.apart(lambda connection: _make(connection, wanted))


class _Wanted(NamedTuple):
    """What is to be made."""

    statistics: bool
    vectors: list[IndexedVectors]
    trigrams: bool


def _wanted(cursor: Cursor, store: int, many: int) -> _Wanted:
    return _Wanted(
        is_stale(cursor),
        unindexed(cursor, store, many),
        is_trigram_index_wanted(cursor),
    )


def _make(connection: Connection, wanted: _Wanted) -> None:
    """What is quick first."""
    if wanted.statistics:
        gather(connection)
    for vectors in wanted.vectors:
        build_vector_index(connection, vectors)
    if wanted.trigrams:
        build_trigram_index(connection)


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
