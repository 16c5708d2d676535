"""The store on PostgreSQL: the port's questions and commits over tables that all stores share."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from psycopg.errors import (
    ForeignKeyViolation,
    NumericValueOutOfRange,
    ProgramLimitExceeded,
    StatementTooComplex,
)

from everkept.core.ports import Access, Direction, Embedded, Order, Purged, Redaction, Seen, Tally
from everkept.core.records import Batch, Change, Edit, Link, Match, Record, Ref, Weights, Where
from everkept.core.subgraphs import Selection, Subgraph
from everkept.core.times import Clock, now
from everkept.core.walking import Hops, Sources
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
from everkept.language.words import WordQuery

if TYPE_CHECKING:  # numpy is loaded by whoever brings vectors
    import numpy as np
    from numpy.typing import NDArray

    from everkept.core.copies import Stock

T = TypeVar("T")

CLEANSING = 10.0  # seconds that a purge waits until no page has what was removed


Authors = Round[int, list[str]]  # by the number of a store


def authors_in(database: Database) -> Authors:
    """For all stores there."""
    return Round(lambda stores: database.read(lambda cursor: counting.authors(cursor, stores)))


class PostgresStore:
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
        self._number = number
        self._place = Place(number, title)
        self._cleanser = cleansing.Cleanser(database)
        self._clock = clock

    async def commit(self, batch: Batch) -> Change:
        change, grown = await self._write(lambda cursor: commit.commit(cursor, self._place, batch))
        self._note_growth(grown)
        return change

    async def get(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[Record]:
        if not ids:
            return []
        return await self._read(
            lambda cursor: reading.get_records(
                cursor, self._number, ids, include_deleted=include_deleted
            )
        )

    async def scan(
        self,
        where: Where,
        *,
        order: Order = "age",
        after: Seen | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        return await self._read(
            lambda cursor: reading.scan(cursor, self._number, where, order, after, limit)
        )

    async def match(
        self, words: WordQuery, where: Where, weights: Weights, limit: int
    ) -> list[Match]:
        return await self._read(
            lambda cursor: _words.match(cursor, self._number, words, where, weights, limit)
        )

    async def containing(self, text: str, where: Where, limit: int) -> list[Match]:
        return await self._read(
            lambda cursor: reading.containing(cursor, self._number, text, where, limit)
        )

    async def links(
        self,
        ids: Sequence[str],
        *,
        direction: Direction = "both",
        sources: Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Link]:
        if not ids:
            return []
        return await self._read(
            lambda cursor: reading.links(cursor, self._number, ids, direction, sources, limit)
        )

    async def subgraph(self, wanted: Selection) -> Subgraph:
        return await self._read(lambda cursor: reading.subgraph(cursor, self._number, wanted))

    async def walk(self, ids: Sequence[str], hops: Hops) -> list[list[Link]]:
        return await self._read(lambda cursor: walking.walk(cursor, self._number, ids, hops))

    async def sources_of(self, ids: Sequence[str], where: Where, limit: int) -> Sources:
        return await self._read(
            lambda cursor: walking.sources_of(cursor, self._number, ids, where, limit)
        )

    async def get_links(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[Link]:
        if not ids:
            return []
        return await self._read(
            lambda cursor: reading.get_links(
                cursor, self._number, ids, include_deleted=include_deleted
            )
        )

    async def scan_links(self, *, deleted: bool | None, containing: str = "") -> list[Link]:
        return await self._read(
            lambda cursor: reading.scan_links(cursor, self._number, deleted, containing)
        )

    async def count(self) -> Mapping[str, int]:
        return await self._read(lambda cursor: counting.count(cursor, self._number))

    async def how_many(self, where: Where) -> int:
        return await self._read(lambda cursor: counting.how_many(cursor, self._number, where))

    async def changes(
        self,
        *,
        after: int = 0,
        limit: int = 100,
        newest_first: bool = False,
        most_edits: int | None = None,
    ) -> list[Change]:
        return await self._read(
            lambda cursor: log.changes(
                cursor,
                self._number,
                after,
                limit,
                newest_first=newest_first,
                most_edits=most_edits,
            )
        )

    async def history(self, refs: Sequence[Ref], *, after: int = 0) -> list[tuple[int, Edit]]:
        return await self._read(lambda cursor: log.history(cursor, self._number, refs, after))

    async def purge(self, refs: Sequence[Ref]) -> Purged:
        at = self._clock()
        return await self._removed(lambda cursor: purging.purge(cursor, self._place, refs, at))

    async def redact(self, refs: Sequence[Ref], clean: Redaction) -> Purged:
        at = self._clock()
        return await self._removed(
            lambda cursor: redacting.redact(cursor, self._place, refs, clean, at)
        )

    async def revision(self) -> int:
        return (await self._read(lambda cursor: state(cursor, self._place))).seq

    async def stamp(self) -> tuple[int, int]:
        found = await self._read(lambda cursor: state(cursor, self._place))
        return found.seq, found.moves

    async def check(self) -> list[str]:
        return await self._read(lambda cursor: checking.faults(cursor, self._place))

    async def tally(self, kinds: Sequence[str]) -> list[Tally]:
        return await self._read(lambda cursor: counting.tally(cursor, self._number, kinds))

    async def scopes(self, kind: str) -> list[str]:
        return await self._read(lambda cursor: counting.scopes(cursor, self._number, kind))

    async def authors(self) -> list[str]:
        return await self._authors.ask(self._number)

    async def frequencies(self, words: Sequence[str]) -> Mapping[str, float]:
        return await self._read(lambda cursor: _words.frequencies(cursor, self._number, words))

    async def unembedded(self, model: str, kinds: Sequence[str], limit: int) -> list[Record]:
        return await self._read(
            lambda cursor: meaning.unembedded(cursor, self._number, model, kinds, limit)
        )

    async def vector_counts(self, model: str, kinds: Sequence[str]) -> tuple[int, int]:
        return await self._read(
            lambda cursor: meaning.vector_counts(cursor, self._number, model, kinds)
        )

    async def put_vectors(self, model: str, items: Sequence[Embedded]) -> int:
        if not items:
            return 0
        came = await self._write(
            lambda cursor: meaning.put_vectors(cursor, self._number, model, items)
        )
        if self._indexes is not None:
            self._indexes.note(self._number, came)
        return came

    async def vectors(self, model: str, ids: Sequence[str]) -> "Mapping[str, NDArray[np.float32]]":
        if not ids:
            return {}
        return await self._read(lambda cursor: meaning.vectors(cursor, self._number, model, ids))

    async def near(
        self,
        model: str,
        vector: "NDArray[np.float32]",
        where: Where,
        limit: int,
        also: Sequence[str] = (),
    ) -> list[Match]:
        return await self._read(
            lambda cursor: meaning.near(cursor, self._number, model, vector, where, limit, also)
        )

    async def note_accesses(self, counts: Mapping[str, int], at: int) -> None:
        if counts:
            await self._write(
                lambda cursor: counting.note_accesses(cursor, self._number, counts, at)
            )

    async def accesses(self, ids: Sequence[str]) -> Mapping[str, Access]:
        if not ids:
            return {}
        return await self._read(lambda cursor: counting.accesses(cursor, self._number, ids))

    async def most_accessed(self, limit: int) -> Mapping[str, Access]:
        return await self._read(lambda cursor: counting.most_accessed(cursor, self._number, limit))

    async def restock(self, stock: "Stock") -> None:
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
            self._indexes.note(self._number, sum(map(len, stock.vectors.values())))

    async def size(self) -> int:
        return await self._read(lambda cursor: counting.size(cursor, self._number))

    async def _read(self, question: Callable[[Cursor], T]) -> T:
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
            self._indexes.note_doubling(self._number)

    async def _removed(self, work: Callable[[Cursor], cleansing.Removed]) -> Purged:
        (records, links, tables), removed_in = await self._write(
            lambda cursor: (work(cursor), cleansing.moment(cursor))
        )
        is_clean = not tables or await self._cleanser.cleansed(removed_in, tables, CLEANSING)
        return Purged(records, links, complete=is_clean)


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
