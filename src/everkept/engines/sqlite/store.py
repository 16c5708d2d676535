"""A project's records in one SQLite file."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, TypeGuard, TypeVar

from everkept.core.records import (
    Batch,
    Change,
    Edit,
    Insert,
    Link,
    Match,
    Record,
    Ref,
    Update,
    Weights,
    Where,
)
from everkept.engines.sqlite import meaning, queries, word_index
from everkept.engines.sqlite.sql import Connection, DatabaseFile, Work
from everkept.errors import Conflict, NotFound, ProjectArchived, Unavailable
from everkept.language.words import AnyOf, Phrase, WordQuery
from everkept.values import replace

if TYPE_CHECKING:  # a hook loads only what it uses, and numpy the first question that needs it
    import numpy as np
    from numpy.typing import NDArray

    from everkept.core.copies import Stock
    from everkept.core.ports import (
        Access,
        Direction,
        Embedded,
        Order,
        Purged,
        Redaction,
        Seen,
        Tally,
    )
    from everkept.core.subgraphs import Selection, Subgraph
    from everkept.core.times import Clock
    from everkept.core.walking import Hops, Sources
    from everkept.engines.sqlite.nearness import Nearness
    from everkept.engines.sqlite.postings import Postings
    from everkept.engines.sqlite.sifting import Sieve
    from everkept.engines.sqlite.substrings import Substrings

T = TypeVar("T")

DELETED_GENERATION = 0
MANY = 5_000  # rows of the word index; up to here FTS5 ranks them as quickly as arrays
FEWEST_TEXTS, MOST_TEXTS = 1_000, 60_000  # kept in memory; fewer are soon read
FOLD_PATIENCE = 5.0  # seconds a purge waits for readers that hold old pages
SHORT_ROWS = 200  # that a question may ask for and still be a short one
SHORT_GRAPH = 1_000  # rows of a project whose whole graph is soon read
SHORT_STEPS, SHORT_TEXT = 50, 20_000  # steps and characters of a short write


class SqliteStore:
    """The port over one file. Every write checks that the file was not put away meanwhile."""

    def __init__(
        self,
        database: DatabaseFile,
        name: str,
        generation: int | None,
        clock: "Clock",
        many: float = MANY,
    ) -> None:
        """A file that belongs to no project is never put away, and its generation is its own.

        Beyond `many` rows of the word index, queries for any of some words use arrays.
        """
        self._database = database
        self._many = many
        self._name = name
        self._clock = clock
        self.generation = generation
        self._is_of_project = generation is not None
        self._indexed_generation = generation
        self._rows = inf  # of the word index, as far as is known
        self._nearness: Nearness | None = None
        self._postings: Postings | None = None
        self._sieve: Sieve | None = None
        self._substrings: Substrings | None = None
        self._is_reading_texts = False

    async def commit(self, batch: Batch) -> Change:
        from everkept.engines.sqlite import commit

        return await self._write(lambda db: commit.apply(db, batch), short=_changes_little(batch))

    async def get(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[Record]:
        return await self._database.read(
            lambda db: queries.get_records(db, ids, include_deleted=include_deleted),
            long=len(ids) > SHORT_ROWS,
        )

    async def scan(
        self,
        where: Where,
        *,
        order: "Order" = "age",
        after: "Seen | None" = None,
        limit: int | None = None,
    ) -> list[Record]:
        return await self._database.read(
            lambda db: queries.scan(db, where, order, after, limit),
            long=not _asks_for_few(where, limit),
        )

    async def match(
        self, words: WordQuery, where: Where, weights: Weights, limit: int
    ) -> list[Match]:
        def ask(db: Connection) -> list[Match]:
            if self._counts_many(db) and _has_single_words(words):
                self._begin_anew_if_restored(db)
                return self._arrays().match(
                    db, words, replace(where, deleted=False), weights, limit
                )
            return queries.match(db, words, where, weights, limit)

        return await self._database.read(ask, long=self._has_many)

    async def containing(self, text: str, where: Where, limit: int) -> list[Match]:
        def ask(db: Connection) -> list[Match]:
            self._begin_anew_if_restored(db)
            self._counts_many(db)
            texts = self._substrings
            is_known = texts is not None and texts.generation == self._indexed_generation
            among = texts.find(db, text) if texts is not None and is_known else None
            return queries.containing(db, text, where, limit, among)

        found = await self._database.read(ask, long=self._has_many)
        if self._needs_texts():
            self._is_reading_texts = True
            self._database.read_later(self._read_texts)
        return found

    async def links(
        self,
        ids: Sequence[str],
        *,
        direction: "Direction" = "both",
        sources: Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Link]:
        return await self._database.read(
            lambda db: queries.links(db, ids, direction, sources, limit),
            long=len(ids) > SHORT_ROWS,
        )

    async def subgraph(self, wanted: "Selection") -> "Subgraph":
        from everkept.engines.sqlite import subgraphs

        def ask(db: Connection) -> "Subgraph":
            self._counts_many(db)
            return subgraphs.read_subgraph(db, wanted)

        asked = wanted.limit if wanted.ids is None else len(wanted.ids)
        is_short = asked is not None and asked <= SHORT_ROWS
        return await self._database.read(ask, long=not is_short and self._rows > SHORT_GRAPH)

    async def walk(self, ids: Sequence[str], hops: "Hops") -> list[list[Link]]:
        from everkept.engines.sqlite import walk

        is_long = hops.count > 1 or len(ids) > SHORT_ROWS
        return await self._database.read(
            lambda db: walk.walk(db, ids, hops), long=is_long and self._has_many
        )

    async def sources_of(self, ids: Sequence[str], where: Where, limit: int) -> "Sources":
        from everkept.engines.sqlite import walk

        return await self._database.read(
            lambda db: walk.sources_of(db, ids, where, limit), long=self._has_many
        )

    async def get_links(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[Link]:
        return await self._database.read(
            lambda db: queries.get_links(db, ids, include_deleted=include_deleted),
            long=len(ids) > SHORT_ROWS,
        )

    async def scan_links(self, *, deleted: bool | None, containing: str = "") -> list[Link]:
        return await self._database.read(
            lambda db: queries.scan_links(db, deleted, containing), long=True
        )

    async def count(self) -> Mapping[str, int]:
        return await self._database.read(queries.count, long=True)

    async def how_many(self, where: Where) -> int:
        return await self._database.read(lambda db: queries.how_many(db, where), long=True)

    async def changes(
        self,
        *,
        after: int = 0,
        limit: int = 100,
        newest_first: bool = False,
        most_edits: int | None = None,
    ) -> list[Change]:
        return await self._database.read(
            lambda db: queries.changes(
                db, after, limit, newest_first=newest_first, most_edits=most_edits
            ),
            long=limit > SHORT_ROWS,
        )

    async def history(self, refs: Sequence[Ref], *, after: int = 0) -> list[tuple[int, Edit]]:
        return await self._database.read(
            lambda db: queries.history(db, refs, after), long=len(refs) > SHORT_ROWS
        )

    async def purge(self, refs: Sequence[Ref]) -> "Purged":
        from everkept.engines.sqlite import purge

        records, links = await self._write(lambda db: purge.remove(db, refs, self._clock()))
        return await self._purged(records, links)

    async def redact(self, refs: Sequence[Ref], clean: "Redaction") -> "Purged":
        from everkept.engines.sqlite import redact

        records, links = await self._write(
            lambda db: redact.rewrite(db, refs, clean, self._clock())
        )
        return await self._purged(records, links)

    async def revision(self) -> int:
        from everkept.engines.sqlite.commit import newest_change

        # SQLite's own data_version would begin anew when the file is closed and opened again.
        return await self._database.read(newest_change)

    async def stamp(self) -> tuple[int, int]:
        from everkept.engines.sqlite.commit import newest_change

        return await self._database.read(lambda db: (newest_change(db), meaning.newest_vector(db)))

    async def check(self) -> list[str]:
        from everkept.engines.sqlite.examining import faults

        return await self._database.read(faults, long=True)

    async def tally(self, kinds: Sequence[str]) -> "list[Tally]":
        return await self._database.read(lambda db: queries.tally(db, kinds), long=True)

    async def scopes(self, kind: str) -> list[str]:
        return await self._database.read(lambda db: queries.scopes(db, kind))

    async def authors(self) -> list[str]:
        return await self._database.read(queries.authors)

    async def frequencies(self, words: Sequence[str]) -> Mapping[str, float]:
        def ask(db: Connection) -> dict[str, float]:
            if self._counts_many(db):
                self._begin_anew_if_restored(db)
                return self._arrays().frequencies(db, words)
            return word_index.frequencies(db, words)

        return await self._database.read(ask, long=self._has_many)

    async def unembedded(self, model: str, kinds: Sequence[str], limit: int) -> list[Record]:
        return await self._database.read(
            lambda db: meaning.unembedded(db, model, kinds, limit), long=limit > 1
        )

    async def vector_counts(self, model: str, kinds: Sequence[str]) -> tuple[int, int]:
        return await self._database.read(
            lambda db: meaning.vector_counts(db, model, kinds), long=True
        )

    async def put_vectors(self, model: str, items: "Sequence[Embedded]") -> int:
        halved = meaning.halved(items)
        return await self._write(lambda db: meaning.put_vectors(db, model, halved))

    async def vectors(self, model: str, ids: Sequence[str]) -> "Mapping[str, NDArray[np.float32]]":
        return await self._database.read(lambda db: meaning.vectors(db, model, ids), long=True)

    async def near(
        self,
        model: str,
        vector: "NDArray[np.float32]",
        where: Where,
        limit: int,
        also: Sequence[str] = (),
    ) -> list[Match]:
        def ask(db: Connection) -> list[Match] | None:
            self._begin_anew_if_restored(db)
            return self._index().near(db, model, vector, where, limit, also)

        is_long = self._nearness is None or self._has_many  # the first question reads all vectors
        while (found := await self._database.read(ask, long=is_long)) is None:
            await self._database.read(lambda db: self._index().catch_up(db, model), aside=True)
        return found

    async def note_accesses(self, counts: Mapping[str, int], at: int) -> None:
        if counts:
            await self._write(lambda db: meaning.note_accesses(db, counts, at))

    async def accesses(self, ids: Sequence[str]) -> "Mapping[str, Access]":
        return await self._database.read(
            lambda db: meaning.accesses(db, ids), long=len(ids) > SHORT_ROWS
        )

    async def most_accessed(self, limit: int) -> "Mapping[str, Access]":
        return await self._database.read(lambda db: meaning.most_accessed(db, limit), long=True)

    async def restock(self, stock: "Stock") -> None:
        from everkept.engines.sqlite.restocking import restock

        vectors = {model: meaning.halved(items) for model, items in stock.vectors.items()}
        if await self._write(lambda db: restock(db, stock, vectors)):
            await self._cleansed()

    async def size(self) -> int:
        return self._database.size()

    async def _write(self, work: Work[T], *, short: bool = False) -> T:
        def checked(db: Connection) -> T:
            self._check_generation(db)
            return work(db)

        return await self._database.write(checked, short=short)

    async def _purged(self, records: int, links: int) -> "Purged":
        from everkept.core.ports import Purged

        return Purged(records, links, complete=await self._cleansed())

    async def _cleansed(self) -> bool:
        """Leaves no byte of what was removed; False where that could not be done."""
        from everkept.engines.sqlite import cleansing

        try:
            until = await self._database.read(cleansing.newest_moment)
            for _ in range(cleansing.MOST_STEPS):
                if not await self._database.read(lambda db: cleansing.has_marks(db, until)):
                    return await self._database.fold(FOLD_PATIENCE)
                await self._write(cleansing.cleanse_some)
        except Unavailable:
            pass  # what was removed stays removed
        return False

    def _index(self) -> "Nearness":
        if self._nearness is None:
            from everkept.engines.sqlite.nearness import Nearness

            self._nearness = Nearness(self._filters())
        return self._nearness

    def _arrays(self) -> "Postings":
        if self._postings is None:
            from everkept.engines.sqlite.postings import Postings

            self._postings = Postings(self._filters())
        return self._postings

    def _needs_texts(self) -> bool:
        is_missing = self._substrings is None or self._substrings.is_outdated
        return (
            is_missing and not self._is_reading_texts and FEWEST_TEXTS <= self._rows <= MOST_TEXTS
        )

    def _read_texts(self, db: Connection) -> None:
        from everkept.engines.sqlite.substrings import Substrings

        try:
            self._substrings = Substrings(db, generation_of(db))
        finally:
            self._is_reading_texts = False

    def _filters(self) -> "Sieve":
        if self._sieve is None:
            from everkept.engines.sqlite.sifting import Sieve

            self._sieve = Sieve()
        return self._sieve

    @property
    def _has_many(self) -> bool:
        return self._rows > self._many

    def _counts_many(self, db: Connection) -> bool:
        self._rows = word_index.indexed_rows(db)
        return self._has_many

    def _begin_anew_if_restored(self, db: Connection) -> None:
        """What is remembered of a file says nothing of what a backup has put in its place."""
        found = generation_of(db)
        if found != self._indexed_generation:
            self._indexed_generation = found
            self._nearness = self._postings = self._sieve = self._substrings = None

    def _check_generation(self, db: Connection) -> None:
        found = generation_of(db)
        if found == self.generation:
            return
        if not self._is_of_project:
            self._adopt(db, found)
            return
        _refuse_if_being_restored(db, "..")
        if found == DELETED_GENERATION:
            raise NotFound("project", self._name, hint="It was deleted meanwhile.")
        if found < 0:
            raise ProjectArchived(self._name)
        raise Conflict(
            f'Project "{self._name}" was archived and restored meanwhile.', hint="Call again."
        )

    def _adopt(self, db: Connection, found: int) -> None:
        is_first, is_whole = self.generation is None, found > 0
        if is_whole:
            self.generation = found
        else:
            _refuse_if_being_restored(db, ".")
        if not is_first or not is_whole:
            raise Conflict(f"{self._name}.db was restored from a backup.", hint="Call again.")


def generation_of(db: Connection) -> int:
    return int(db.execute("SELECT value FROM meta WHERE key = 'generation'").get)


def _refuse_if_being_restored(db: Connection, way: str) -> None:
    """Files that do not fit together are no sign of anything else then.

    `way` leads from the folder of the file to the data folder.
    """
    from pathlib import Path

    from everkept.engines.sqlite.unfinished import unfinished

    file = db.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").get
    found = unfinished((Path(file).parent / way).resolve())
    if found is not None:
        raise found.refusal()


def _asks_for_few(where: Where, limit: int | None) -> bool:
    """Whether an index leads to all that is read, and that is little."""
    names = where.ids or where.name_keys or where.places
    if names is not None:
        return len(names) <= SHORT_ROWS
    is_plain = where == Where(kinds=where.kinds, parents=where.parents, deleted=where.deleted)
    return limit is not None and limit <= SHORT_ROWS and is_plain


def _changes_little(batch: Batch) -> bool:
    """Whether nothing goes with it that is not in the batch: a deleted record takes others along,
    and the children of a renamed one are indexed again."""
    characters = 0
    for step in batch.steps:
        if isinstance(step, Insert):
            characters += len(step.item.text) if isinstance(step.item, Record) else 0
        elif isinstance(step, Update) and "name" not in step.values:
            characters += len(step.values.get("text", ""))
        else:
            return False
    return len(batch.steps) <= SHORT_STEPS and characters <= SHORT_TEXT


def _has_single_words(words: WordQuery) -> TypeGuard[AnyOf]:
    """Words that must stand together are rare enough for FTS5 to rank."""
    return isinstance(words, AnyOf) and any(isinstance(part, Phrase) for part in words.parts)
