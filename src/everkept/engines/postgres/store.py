"""The store on PostgreSQL: the port's questions and commits over tables that all stores share."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from psycopg.errors import (
    ForeignKeyViolation,
    NumericValueOutOfRange,
    ProgramLimitExceeded,
    StatementTooComplex,
)

from everkept.core import store as questions
from everkept.core.answers import Access, Purged
from everkept.core.records import Batch, Change, Link, Record
from everkept.core.store import Answers, TableStore, Upkeeps
from everkept.core.times import Clock, now
from everkept.engines.postgres import commit, purge, queries, replication, search, vectors
from everkept.engines.postgres.database import Database
from everkept.engines.postgres.indexes import Growth, IndexKeeper
from everkept.engines.postgres.rows import RECORD_COLUMNS, kept
from everkept.engines.postgres.statements import LARGEST, Cursor, ask
from everkept.engines.postgres.writes import (
    StorePlace,
    aged_record,
    check_there,
    listed,
    new_words,
    state,
)
from everkept.engines.stored_text import Shift
from everkept.errors import InvalidInput, NotFound

K = TypeVar("K")
T = TypeVar("T")


class Round(Generic[K, T]):
    """Who asks before the event loop goes on shares one answer with the others."""

    def __init__(self, answer: Callable[[Sequence[K]], Awaitable[Mapping[K, T]]]) -> None:
        self._answer = answer
        self._next: _Group[K, T] | None = None  # those who can still be joined

    async def ask(self, key: K) -> T:
        """The last who stops waiting ends it."""
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
                self._leave(group)
            raise

    async def _begin(self, keys: Mapping[K, None]) -> Mapping[K, T]:
        self._next = None
        return await self._answer(list(keys))

    def _leave(self, group: "_Group[K, T]") -> None:
        """Nobody joins it any more."""
        if self._next is group:
            self._next = None


class _Group(Generic[K, T]):
    """The things that are asked for together, and how many wait."""

    def __init__(
        self, begin: Callable[[Mapping[K, None]], Coroutine[Any, Any, Mapping[K, T]]]
    ) -> None:
        self.keys: dict[K, None] = {}
        self.waiting = 0
        self.task = asyncio.get_running_loop().create_task(begin(self.keys))


SAMPLE = 200  # records whose words are made anew and compared

_RECORDS = "FROM records r JOIN stores s ON s.number = r.store WHERE r.store = %s AND "
_LINKS = "FROM links l JOIN stores s ON s.number = l.store WHERE l.store = %s AND "
_IS_THERE = "EXISTS (SELECT FROM records x WHERE x.store = {0}.store AND x.id = {1})"
# What each of these finds is wrong, however many there are.
_FINDINGS = {
    "records are not in the word index": f"{_RECORDS} r.deleted_at IS NULL AND r.words IS NULL",
    "entries of the word index have no record": (
        f"{_RECORDS} r.deleted_at IS NOT NULL AND r.words IS NOT NULL"
    ),
    "records belong to one that is not there": (
        f"{_RECORDS} r.parent IS NOT NULL AND NOT {_IS_THERE.format('r', 'r.parent')}"
    ),
    "links have an end that is not there": (
        f"{_LINKS} NOT ({_IS_THERE.format('l', 'l.source')} "
        f"AND {_IS_THERE.format('l', 'l.target')})"
    ),
    "names are not kept from being given twice": (
        f"{_RECORDS} (r.stands_for IS NULL) <> (r.name_key IS NULL OR r.deleted_at IS NOT NULL)"
    ),
    "links are not kept from being made twice": (
        f"{_LINKS} (l.says IS NULL) <> (l.deleted_at IS NOT NULL)"
    ),
    "records are younger than the store says": f"{_RECORDS} r.age > s.ages",
    "links are younger than the store says": f"{_LINKS} l.age > s.ages",
    "changes are newer than the store says": (
        "FROM changes c JOIN stores s ON s.number = c.store WHERE c.store = %s AND c.seq > s.seq"
    ),
    "edits belong to no change": (
        "FROM edits e WHERE e.store = %s AND NOT EXISTS "
        "(SELECT FROM changes c WHERE c.store = e.store AND c.seq = e.seq)"
    ),
    "vectors belong to no record": (
        f"FROM vectors v WHERE v.store = %s AND NOT {_IS_THERE.format('v', 'v.record')}"
    ),
}
_SAMPLED = (
    f"SELECT r.age, {RECORD_COLUMNS} FROM records r WHERE r.store = %s AND r.deleted_at IS NULL "
    "ORDER BY random() LIMIT %s"
)
_COMPARED = (
    "SELECT count(*) FROM json_to_recordset(%s::json) AS n(id text, words tsvector) "
    "JOIN records r ON r.store = %s AND r.id = n.id WHERE r.words IS DISTINCT FROM n.words"
)


def faults(cursor: Cursor, place: StorePlace) -> list[str]:
    check_there(cursor, place)
    asked = {
        what: ask(cursor, f"SELECT count(*) {text}", place.number)
        for what, text in _FINDINGS.items()
    }
    counts = {what: answer.fetchall()[0][0] for what, answer in asked.items()}
    stale = _stale_words(cursor, place.number)
    if stale:
        counts[f"of {SAMPLE} records are found by words that are not theirs"] = stale
    return [f"{count} {what}" for what, count in counts.items() if count]


def _stale_words(cursor: Cursor, store: int) -> int:
    sampled = [aged_record(row) for row in ask(cursor, _SAMPLED, store, SAMPLE)]
    records = {record.id: record for _, record in sampled}
    ages = {record.id: age for age, record in sampled}  # those that are read meanwhile join them
    words = new_words(cursor, store, Shift({}, records, ages))
    rows = [{"id": kept(record_id), "words": words[record_id]} for record_id in records]
    return ask(cursor, _COMPARED, listed(rows), store).fetchall()[0][0]


CLEANSING = 10.0  # seconds that a purge waits until no page has what was removed


Authors = Round[int, list[str]]  # by the number of a store


def authors_in(database: Database) -> Authors:
    """For all stores there."""
    return Round(lambda stores: database.read(lambda cursor: queries.authors(cursor, stores)))


Q = TypeVar("Q")
Answer = Callable[["PostgresStore", Q], Awaitable[T]]
_ById = TypeVar(
    "_ById",
    questions.GetRecords,
    questions.GetLinks,
    questions.FindLinks,
    questions.GetVectors,
    questions.GetAccesses,
)


def _reads(work: Callable[[Cursor, int, Q], T]) -> "Answer[Q, T]":
    """Return the answer that asks in one transaction."""

    def answer(store: "PostgresStore", question: Q) -> Awaitable[T]:
        return store.read(lambda cursor: work(cursor, store.number, question))

    return answer


def _reads_some(
    work: Callable[[Cursor, int, _ById], T], nothing: Callable[[], T]
) -> "Answer[_ById, T]":
    """Return the answer that asks only if there are ids to ask for."""

    async def answer(store: "PostgresStore", question: _ById) -> T:
        if not question.ids:
            return nothing()
        return await store.read(lambda cursor: work(cursor, store.number, question))

    return answer


class PostgresStore(TableStore):
    """One store's records: rows with its number."""

    def __init__(
        self,
        database: Database,
        number: int,
        title: str,
        clock: Clock = now,
        *,
        indexes: IndexKeeper | None = None,
        authors: Authors | None = None,
    ) -> None:
        """`title` is the name of the project, for whoever reads what went wrong.

        Without `indexes` all vectors are compared, however many there are. Stores that share
        `authors` are asked for theirs together.
        """
        self._authors = authors or authors_in(database)
        self._indexes = indexes
        self._database = database
        self.number = number
        self._place = StorePlace(number, title)
        self._cleanser = purge.Cleanser(database)
        self._clock = clock

    async def commit(self, batch: Batch) -> Change:
        change, grown = await self._write(lambda cursor: commit.commit(cursor, self._place, batch))
        self._note_growth(grown)
        return change

    async def _get_revision(self, _: questions.GetRevision) -> int:
        return (await self.read(lambda cursor: state(cursor, self._place))).seq

    async def _get_stamp(self, _: questions.GetStamp) -> tuple[int, int]:
        found = await self.read(lambda cursor: state(cursor, self._place))
        return found.seq, found.moves

    def _find_faults(self, _: questions.FindFaults) -> Awaitable[list[str]]:
        return self.read(lambda cursor: faults(cursor, self._place))

    def _list_authors(self, _: questions.ListAuthors) -> Awaitable[list[str]]:
        return self._authors.ask(self.number)

    async def _purge(self, upkeep: questions.Purge) -> Purged:
        at = self._clock()
        return await self._removed(lambda cursor: purge.purge(cursor, self._place, upkeep.refs, at))

    async def _redact(self, upkeep: questions.Redact) -> Purged:
        at = self._clock()
        return await self._removed(
            lambda cursor: purge.redact(cursor, self._place, upkeep.refs, upkeep.clean, at)
        )

    async def _put_vectors(self, upkeep: questions.PutVectors) -> int:
        if not upkeep.items:
            return 0
        came = await self._write(
            lambda cursor: vectors.put_vectors(cursor, self.number, upkeep.model, upkeep.items)
        )
        if self._indexes is not None:
            self._indexes.note(self.number, came)
        return came

    async def _note_accesses(self, upkeep: questions.NoteAccesses) -> None:
        if upkeep.counts:
            await self._write(lambda cursor: queries.note_accesses(cursor, self.number, upkeep))

    async def _restock(self, upkeep: questions.Restock) -> None:
        stock = upkeep.stock
        (grown, tables), removed_in = await self._write(
            lambda cursor: (
                replication.restock(cursor, self._place, stock),
                purge.moment(cursor),
            )
        )
        self._note_growth(grown)
        if tables:
            await self._cleanser.cleansed(removed_in, tables, CLEANSING)
        if self._indexes is not None:
            self._indexes.note(self.number, sum(map(len, stock.vectors.values())))

    async def read(self, question: Callable[[Cursor], T]) -> T:
        """Ask in one transaction that writes nothing."""

        def asked(cursor: Cursor) -> T:
            try:
                return _checked(question, cursor)
            except (ProgramLimitExceeded, StatementTooComplex) as error:
                raise InvalidInput(
                    "A question is too long or too involved for PostgreSQL.",
                    hint="Ask with fewer words, or for fewer things at once.",
                ) from error

        return await self._database.read(asked)

    async def _write(self, work: Callable[[Cursor], T]) -> T:
        def done(cursor: Cursor) -> T:
            try:
                return _checked(work, cursor, ends=True)
            except ProgramLimitExceeded as error:
                raise InvalidInput(
                    "An id or a tag is too long to be stored in PostgreSQL.", hint="Shorten it."
                ) from error
            except ForeignKeyViolation as error:
                raise NotFound(
                    "project", self._place.title, hint="It was deleted meanwhile."
                ) from error

        return await self._database.write(done)

    def _note_growth(self, grown: Growth) -> None:
        if self._indexes is not None and grown.is_doubling:
            self._indexes.note_doubling(self.number)

    async def _removed(self, work: Callable[[Cursor], purge.Removed]) -> Purged:
        (records, links, tables), removed_in = await self._write(
            lambda cursor: (work(cursor), purge.moment(cursor))
        )
        is_clean = not tables or await self._cleanser.cleansed(removed_in, tables, CLEANSING)
        return Purged(records, links, complete=is_clean)

    answers: ClassVar[Answers] = {
        questions.GetRecords: _reads_some(queries.get_records, list[Record]),
        questions.ScanRecords: _reads(queries.scan),
        questions.MatchWords: _reads(search.match),
        questions.MatchText: _reads(queries.containing),
        questions.FindLinks: _reads_some(queries.links, list[Link]),
        questions.ReadSubgraph: _reads(queries.subgraph),
        questions.WalkLinks: _reads(queries.walk),
        questions.CountSources: _reads(queries.sources_of),
        questions.GetLinks: _reads_some(queries.get_links, list[Link]),
        questions.ScanLinks: _reads(queries.scan_links),
        questions.CountLive: _reads(queries.count),
        questions.CountRecords: _reads(queries.how_many),
        questions.ReadChanges: _reads(queries.changes),
        questions.ReadHistory: _reads(queries.history),
        questions.GetRevision: _get_revision,
        questions.GetStamp: _get_stamp,
        questions.FindFaults: _find_faults,
        questions.TallyRecords: _reads(queries.tally),
        questions.ListScopes: _reads(queries.scopes),
        questions.ListAuthors: _list_authors,
        questions.MeasureWords: _reads(search.frequencies),
        questions.FindUnembedded: _reads(vectors.unembedded),
        questions.CountVectors: _reads(vectors.vector_counts),
        questions.GetVectors: _reads_some(vectors.vectors, dict[str, Any]),
        questions.FindNear: _reads(vectors.near),
        questions.GetAccesses: _reads_some(queries.accesses, dict[str, Access]),
        questions.ListMostAccessed: _reads(queries.most_accessed),
        questions.MeasureSize: _reads(queries.size),
    }
    upkeeps: ClassVar[Upkeeps] = {
        questions.Purge: _purge,
        questions.Redact: _redact,
        questions.PutVectors: _put_vectors,
        questions.NoteAccesses: _note_accesses,
        questions.Restock: _restock,
    }


def _checked(work: Callable[[Cursor], T], cursor: Cursor, *, ends: bool = False) -> T:
    """One that `ends` is committed here, for that may fail as what was written would."""
    try:
        done = work(cursor)
        if ends:
            cursor.finish()
        return done
    except UnicodeEncodeError as error:
        raise InvalidInput(
            "A text holds half a character, which cannot be stored.", hint="Remove it."
        ) from error
    except NumericValueOutOfRange as error:
        raise InvalidInput(
            "A number is too large to be stored.",
            hint=f"Whole numbers go from {-LARGEST - 1} to {LARGEST}.",
        ) from error
