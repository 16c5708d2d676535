"""The store on PostgreSQL: the port's questions and commits over tables that all stores share."""

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeVar

from psycopg.errors import (
    ForeignKeyViolation,
    NumericValueOutOfRange,
    ProgramLimitExceeded,
    StatementTooComplex,
)

from everkept.core import questions
from everkept.core.records import Batch, Change, Link, Record
from everkept.core.store import Answers, TableStore, Upkeeps
from everkept.core.stored import Access, Purged
from everkept.core.times import Clock, now
from everkept.engines.postgres.changing import (
    checking,
    cleansing,
    commit,
    purging,
    redacting,
    restocking,
)
from everkept.engines.postgres.changing.turns import Place, state
from everkept.engines.postgres.connecting.database import Cursor, Database
from everkept.engines.postgres.connecting.rounds import Round
from everkept.engines.postgres.records import counting, log, reading, walking
from everkept.engines.postgres.records.asking import LARGEST
from everkept.engines.postgres.records.statistics import Growth
from everkept.engines.postgres.searching import meaning
from everkept.engines.postgres.searching import words as _words
from everkept.engines.postgres.searching.index_keeping import IndexKeeper
from everkept.errors import InvalidInput, NotFound

T = TypeVar("T")

CLEANSING = 10.0  # seconds that a purge waits until no page has what was removed


Authors = Round[int, list[str]]  # by the number of a store


def authors_in(database: Database) -> Authors:
    """For all stores there."""
    return Round(lambda stores: database.read(lambda cursor: counting.authors(cursor, stores)))


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
        self._place = Place(number, title)
        self._cleanser = cleansing.Cleanser(database)
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
        return self.read(lambda cursor: checking.faults(cursor, self._place))

    def _list_authors(self, _: questions.ListAuthors) -> Awaitable[list[str]]:
        return self._authors.ask(self.number)

    async def _purge(self, upkeep: questions.Purge) -> Purged:
        at = self._clock()
        return await self._removed(
            lambda cursor: purging.purge(cursor, self._place, upkeep.refs, at)
        )

    async def _redact(self, upkeep: questions.Redact) -> Purged:
        at = self._clock()
        return await self._removed(
            lambda cursor: redacting.redact(cursor, self._place, upkeep.refs, upkeep.clean, at)
        )

    async def _put_vectors(self, upkeep: questions.PutVectors) -> int:
        if not upkeep.items:
            return 0
        came = await self._write(
            lambda cursor: meaning.put_vectors(cursor, self.number, upkeep.model, upkeep.items)
        )
        if self._indexes is not None:
            self._indexes.note(self.number, came)
        return came

    async def _note_accesses(self, upkeep: questions.NoteAccesses) -> None:
        if upkeep.counts:
            await self._write(lambda cursor: counting.note_accesses(cursor, self.number, upkeep))

    async def _restock(self, upkeep: questions.Restock) -> None:
        stock = upkeep.stock
        (grown, tables), removed_in = await self._write(
            lambda cursor: (
                restocking.restock(cursor, self._place, stock),
                cleansing.moment(cursor),
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

    async def _removed(self, work: Callable[[Cursor], cleansing.Removed]) -> Purged:
        (records, links, tables), removed_in = await self._write(
            lambda cursor: (work(cursor), cleansing.moment(cursor))
        )
        is_clean = not tables or await self._cleanser.cleansed(removed_in, tables, CLEANSING)
        return Purged(records, links, complete=is_clean)

    answers: ClassVar[Answers] = {
        questions.GetRecords: _reads_some(reading.get_records, list[Record]),
        questions.ScanRecords: _reads(reading.scan),
        questions.MatchWords: _reads(_words.match),
        questions.MatchText: _reads(reading.containing),
        questions.FindLinks: _reads_some(reading.links, list[Link]),
        questions.ReadSubgraph: _reads(reading.subgraph),
        questions.WalkLinks: _reads(walking.walk),
        questions.CountSources: _reads(walking.sources_of),
        questions.GetLinks: _reads_some(reading.get_links, list[Link]),
        questions.ScanLinks: _reads(reading.scan_links),
        questions.CountLive: _reads(counting.count),
        questions.CountRecords: _reads(counting.how_many),
        questions.ReadChanges: _reads(log.changes),
        questions.ReadHistory: _reads(log.history),
        questions.GetRevision: _get_revision,
        questions.GetStamp: _get_stamp,
        questions.FindFaults: _find_faults,
        questions.TallyRecords: _reads(counting.tally),
        questions.ListScopes: _reads(counting.scopes),
        questions.ListAuthors: _list_authors,
        questions.MeasureWords: _reads(_words.frequencies),
        questions.FindUnembedded: _reads(meaning.unembedded),
        questions.CountVectors: _reads(meaning.vector_counts),
        questions.GetVectors: _reads_some(meaning.vectors, dict[str, Any]),
        questions.FindNear: _reads(meaning.near),
        questions.GetAccesses: _reads_some(counting.accesses, dict[str, Access]),
        questions.ListMostAccessed: _reads(counting.most_accessed),
        questions.MeasureSize: _reads(counting.size),
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
