"""Store on PostgreSQL: queries and commits of the port on tables that all stores share."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from psycopg.errors import ForeignKeyViolation, NumericValueOutOfRange, ProgramLimitExceeded, StatementTooComplex

from everkept.core import store as questions
from everkept.core.answers import AccessCount, PurgeResult
from everkept.core.records import Batch, Change, Record, RecordLink
from everkept.core.store import Answers, TableStore, Upkeeps
from everkept.core.text import format_count
from everkept.core.times import Clock, read_clock
from everkept.engines.postgres import commit, purge, queries, replication, search, vectors
from everkept.engines.postgres.database import Database
from everkept.engines.postgres.indexes import IndexMaintenance, StoreGrowth
from everkept.engines.postgres.rows import RECORD_COLUMNS, escape_text
from everkept.engines.postgres.statements import MAX_INTEGER, Cursor, ask
from everkept.engines.postgres.writes import (
    StorePlace,
    check_exists,
    compute_words,
    decode_aged_record,
    encode_rows,
    read_state,
)
from everkept.engines.stored_text import RecordShift
from everkept.errors import InvalidInput, NotFound

K = TypeVar("K")
T = TypeVar("T")


class SharedQuery(Generic[K, T]):
    """Query that callers share if they ask before the event loop continues."""

    def __init__(self, answer: Callable[[Sequence[K]], Awaitable[Mapping[K, T]]]) -> None:
        self._answer = answer
        self._next: _Group[K, T] | None = None  # group that callers can still join

    async def ask(self, key: K) -> T:
        """Return the result for one key. When the last waiting caller is canceled, the query is canceled."""
        group = self._next
        if group is None or group.task.get_loop() is not asyncio.get_running_loop():
            group = self._next = _Group(self._begin)
        group.keys[key] = None
        group.waiting += 1
        try:
            return (await asyncio.shield(group.task))[key]
        except asyncio.CancelledError:
            group.waiting -= 1
            if not group.waiting:
                group.task.cancel()
                if self._next is group:  # no caller can join it anymore
                    self._next = None
            raise

    async def _begin(self, keys: Mapping[K, None]) -> Mapping[K, T]:
        self._next = None
        return await self._answer(list(keys))


class _Group(Generic[K, T]):
    """Keys of one shared query, and the number of waiting callers."""

    def __init__(self, begin: Callable[[Mapping[K, None]], Coroutine[Any, Any, Mapping[K, T]]]) -> None:
        self.keys: dict[K, None] = {}
        self.waiting = 0
        self.task = asyncio.get_running_loop().create_task(begin(self.keys))


SAMPLE_RECORDS = 200  # whose words are computed again and compared

_FROM_RECORDS = "FROM records r JOIN stores s ON s.number = r.store WHERE r.store = %s AND "
_FROM_LINKS = "FROM links l JOIN stores s ON s.number = l.store WHERE l.store = %s AND "
_EXISTS = "EXISTS (SELECT FROM records x WHERE x.store = {0}.store AND x.id = {1})"
# Each query counts faults of one kind.
_FAULT_QUERIES = {
    ("record", "not in the word index"): f"{_FROM_RECORDS} r.deleted_at IS NULL AND r.words IS NULL",
    ("record", "deleted but still in the word index"): (
        f"{_FROM_RECORDS} r.deleted_at IS NOT NULL AND r.words IS NOT NULL"
    ),
    ("record", "with a missing parent"): (
        f"{_FROM_RECORDS} r.parent IS NOT NULL AND NOT {_EXISTS.format('r', 'r.parent')}"
    ),
    ("link", "with a missing end"): (
        f"{_FROM_LINKS} NOT ({_EXISTS.format('l', 'l.source')} AND {_EXISTS.format('l', 'l.target')})"
    ),
    ("name", "not protected from duplicates"): (
        f"{_FROM_RECORDS} (r.stands_for IS NULL) <> (r.name_key IS NULL OR r.deleted_at IS NOT NULL)"
    ),
    ("link", "not protected from duplicates"): f"{_FROM_LINKS} (l.says IS NULL) <> (l.deleted_at IS NOT NULL)",
    ("record", "with an age above the store's counter"): f"{_FROM_RECORDS} r.age > s.ages",
    ("link", "with an age above the store's counter"): f"{_FROM_LINKS} l.age > s.ages",
    ("change", "with a number above the store's counter"): (
        "FROM changes c JOIN stores s ON s.number = c.store WHERE c.store = %s AND c.seq > s.seq"
    ),
    ("edit", "without a change"): (
        "FROM edits e WHERE e.store = %s AND NOT EXISTS "
        "(SELECT FROM changes c WHERE c.store = e.store AND c.seq = e.seq)"
    ),
    ("vector", "without a record"): f"FROM vectors v WHERE v.store = %s AND NOT {_EXISTS.format('v', 'v.record')}",
}
_SAMPLE_QUERY = (
    f"SELECT r.age, {RECORD_COLUMNS} FROM records r WHERE r.store = %s AND r.deleted_at IS NULL "
    "ORDER BY random() LIMIT %s"
)
_STALE_WORDS_QUERY = (
    "SELECT count(*) FROM json_to_recordset(%s::json) AS n(id text, words tsvector) "
    "JOIN records r ON r.store = %s AND r.id = n.id WHERE r.words IS DISTINCT FROM n.words"
)


def find_faults(cursor: Cursor, place: StorePlace) -> list[str]:
    check_exists(cursor, place)
    asked = {what: ask(cursor, f"SELECT count(*) {text}", place.number) for what, text in _FAULT_QUERIES.items()}
    counts = {what: answer.fetchall()[0][0] for what, answer in asked.items()}
    stale = "record", f"with outdated words in the index (sample of {SAMPLE_RECORDS})"
    counts[stale] = _count_stale_words(cursor, place.number)
    return [f"{format_count(count, noun)} {fault}" for (noun, fault), count in counts.items() if count]


def _count_stale_words(cursor: Cursor, store: int) -> int:
    sampled = [decode_aged_record(row) for row in ask(cursor, _SAMPLE_QUERY, store, SAMPLE_RECORDS)]
    records = {record.id: record for _, record in sampled}
    ages = {record.id: age for age, record in sampled}  # compute_words adds the ages of other records
    words = compute_words(cursor, store, RecordShift({}, records, ages))
    rows = [{"id": escape_text(record_id), "words": words[record_id]} for record_id in records]
    return ask(cursor, _STALE_WORDS_QUERY, encode_rows(rows), store).fetchall()[0][0]


VACUUM_SECONDS = 10.0  # that a purge waits until no page holds removed data


AuthorQuery = SharedQuery[int, list[str]]  # by the number of a store


def build_author_query(database: Database) -> AuthorQuery:
    """Return the shared query for the authors of all stores in the database."""
    return SharedQuery(lambda stores: database.read(lambda cursor: queries.list_authors(cursor, stores)))


Q = TypeVar("Q")
AnswerMethod = Callable[["PostgresStore", Q], Awaitable[T]]
_ById = TypeVar(
    "_ById", questions.GetRecords, questions.GetLinks, questions.FindLinks, questions.GetVectors, questions.GetAccesses
)


def _build_read(work: Callable[[Cursor, int, Q], T]) -> "AnswerMethod[Q, T]":
    """Return a method that runs the query in one transaction."""

    def answer(store: "PostgresStore", question: Q) -> Awaitable[T]:
        return store.read(lambda cursor: work(cursor, store.number, question))

    return answer


def _build_id_read(work: Callable[[Cursor, int, _ById], T], nothing: Callable[[], T]) -> "AnswerMethod[_ById, T]":
    """Return a method that runs the query only if there are ids to look up."""

    async def answer(store: "PostgresStore", question: _ById) -> T:
        if not question.ids:
            return nothing()
        return await store.read(lambda cursor: work(cursor, store.number, question))

    return answer


class PostgresStore(TableStore):
    """Store of records: the rows with its number."""

    def __init__(
        self,
        database: Database,
        number: int,
        title: str,
        clock: Clock = read_clock,
        *,
        indexes: IndexMaintenance | None = None,
        authors: AuthorQuery | None = None,
    ) -> None:
        """Use the store with this number. `title` is the name of the project, for error messages.

        Without `indexes`, all vectors are compared, however many there are. Stores that share `authors` share one query
        for their authors.
        """
        self._authors = authors or build_author_query(database)
        self._indexes = indexes
        self._database = database
        self.number = number
        self._place = StorePlace(number, title)
        self._cleanser = purge.Vacuumer(database)
        self._clock = clock

    async def commit(self, batch: Batch) -> Change:
        change, grown = await self._write(lambda cursor: commit.commit(cursor, self._place, batch))
        self._note_growth(grown)
        return change

    async def _get_revision(self, _: questions.GetRevision) -> int:
        return (await self.read(lambda cursor: read_state(cursor, self._place))).seq

    async def _get_stamp(self, _: questions.GetStamp) -> tuple[int, int]:
        found = await self.read(lambda cursor: read_state(cursor, self._place))
        return found.seq, found.moves

    def _find_faults(self, _: questions.FindFaults) -> Awaitable[list[str]]:
        return self.read(lambda cursor: find_faults(cursor, self._place))

    def _list_authors(self, _: questions.ListAuthors) -> Awaitable[list[str]]:
        return self._authors.ask(self.number)

    async def _purge(self, upkeep: questions.Purge) -> PurgeResult:
        at = self._clock()
        return await self._remove(lambda cursor: purge.purge(cursor, self._place, upkeep.refs, at))

    async def _redact(self, upkeep: questions.Redact) -> PurgeResult:
        at = self._clock()
        return await self._remove(lambda cursor: purge.redact(cursor, self._place, upkeep.refs, upkeep.clean, at))

    async def _put_vectors(self, upkeep: questions.PutVectors) -> int:
        if not upkeep.items:
            return 0
        came = await self._write(lambda cursor: vectors.put_vectors(cursor, self.number, upkeep.model, upkeep.items))
        if self._indexes is not None:
            self._indexes.note_vectors(self.number, came)
        return came

    async def _note_accesses(self, upkeep: questions.NoteAccesses) -> None:
        if upkeep.counts:
            await self._write(lambda cursor: queries.note_accesses(cursor, self.number, upkeep))

    async def _replicate(self, upkeep: questions.Replicate) -> None:
        stock = upkeep.stock
        (grown, tables), removed_in = await self._write(
            lambda cursor: (replication.apply_page(cursor, self._place, stock), purge.read_transaction_id(cursor))
        )
        self._note_growth(grown)
        if tables:
            await self._cleanser.vacuum(removed_in, tables, VACUUM_SECONDS)
        if self._indexes is not None:
            self._indexes.note_vectors(self.number, sum(map(len, stock.vectors.values())))

    async def read(self, question: Callable[[Cursor], T]) -> T:
        """Run the query in one read-only transaction."""

        def asked(cursor: Cursor) -> T:
            try:
                return _run_checked(question, cursor)
            except (ProgramLimitExceeded, StatementTooComplex) as error:
                raise InvalidInput(
                    "The query is too long or too complex for PostgreSQL.",
                    hint="Use fewer words, or request fewer items.",
                ) from error

        return await self._database.read(asked)

    async def _write(self, work: Callable[[Cursor], T]) -> T:
        def done(cursor: Cursor) -> T:
            try:
                return _run_checked(work, cursor, ends=True)
            except ProgramLimitExceeded as error:
                raise InvalidInput("An id or a tag is too long for PostgreSQL.", hint="Shorten it.") from error
            except ForeignKeyViolation as error:
                raise NotFound("project", self._place.title, hint="It was deleted. Select another project.") from error

        return await self._database.write(done)

    def _note_growth(self, grown: StoreGrowth) -> None:
        if self._indexes is not None and grown.is_doubling:
            self._indexes.note_doubling(self.number)

    async def _remove(self, work: Callable[[Cursor], purge.RemovalResult]) -> PurgeResult:
        (records, links, tables), removed_in = await self._write(
            lambda cursor: (work(cursor), purge.read_transaction_id(cursor))
        )
        is_clean = not tables or await self._cleanser.vacuum(removed_in, tables, VACUUM_SECONDS)
        return PurgeResult(records, links, complete=is_clean)

    answers: ClassVar[Answers] = {
        questions.GetRecords: _build_id_read(queries.get_records, list[Record]),
        questions.FindByPrefix: _build_read(queries.find_by_prefix),
        questions.ScanRecords: _build_read(queries.scan),
        questions.MatchWords: _build_read(search.match),
        questions.MatchText: _build_read(queries.match_text),
        questions.FindLinks: _build_id_read(queries.list_links, list[RecordLink]),
        questions.ReadSubgraph: _build_read(queries.read_subgraph),
        questions.WalkLinks: _build_read(queries.walk),
        questions.CountSources: _build_read(queries.count_sources),
        questions.GetLinks: _build_id_read(queries.get_links, list[RecordLink]),
        questions.ScanLinks: _build_read(queries.scan_links),
        questions.CountLive: _build_read(queries.count_live),
        questions.CountRecords: _build_read(queries.count_records),
        questions.ReadChanges: _build_read(queries.read_changes),
        questions.ReadHistory: _build_read(queries.read_history),
        questions.GetRevision: _get_revision,
        questions.GetStamp: _get_stamp,
        questions.FindFaults: _find_faults,
        questions.TallyRecords: _build_read(queries.tally),
        questions.ListScopes: _build_read(queries.list_scopes),
        questions.ListAuthors: _list_authors,
        questions.MeasureWords: _build_read(search.measure_words),
        questions.FindUnembedded: _build_read(vectors.find_unembedded),
        questions.CountVectors: _build_read(vectors.count_vectors),
        questions.GetVectors: _build_id_read(vectors.get_vectors, dict[str, Any]),
        questions.FindNear: _build_read(vectors.find_nearest),
        questions.GetAccesses: _build_id_read(queries.get_accesses, dict[str, AccessCount]),
        questions.ListMostAccessed: _build_read(queries.list_most_accessed),
        questions.MeasureSize: _build_read(queries.measure_size),
    }
    upkeeps: ClassVar[Upkeeps] = {
        questions.Purge: _purge,
        questions.Redact: _redact,
        questions.PutVectors: _put_vectors,
        questions.NoteAccesses: _note_accesses,
        questions.Replicate: _replicate,
    }


def _run_checked(work: Callable[[Cursor], T], cursor: Cursor, *, ends: bool = False) -> T:
    """Run the work. With `ends`, commit here too, because the commit may fail with the same errors."""
    try:
        done = work(cursor)
        if ends:
            cursor.finish()
        return done
    except UnicodeEncodeError as error:
        raise InvalidInput(
            "The text contains an unpaired surrogate (invalid Unicode), which cannot be stored.", hint="Remove it."
        ) from error
    except NumericValueOutOfRange as error:
        raise InvalidInput(
            "A number is too large to be stored.", hint=f"Use whole numbers from {-MAX_INTEGER - 1} to {MAX_INTEGER}."
        ) from error
