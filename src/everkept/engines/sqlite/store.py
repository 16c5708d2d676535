"""A project's records in one SQLite file."""

from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard, TypeVar

from everkept.core import store as questions
from everkept.core.records import Batch, Change, Insert, Link, Match, Record, Update, Where
from everkept.core.store import Answers, TableStore, Upkeeps
from everkept.engines.sqlite import queries, vectors, word_index
from everkept.engines.sqlite.connection import Connection, DatabaseFile, Work
from everkept.errors import Conflict, NotFound, ProjectArchived, Unavailable
from everkept.language.words import AnyOf, Phrase, WordQuery
from everkept.values import replace

if TYPE_CHECKING:  # a hook loads only what it uses, and numpy the first question that needs it
    from everkept.core.answers import Purged, Sources, Subgraph
    from everkept.core.times import Clock
    from everkept.engines.sqlite.nearness import Nearness
    from everkept.engines.sqlite.search import Postings, Sieve
    from everkept.engines.sqlite.substrings import Substrings

T = TypeVar("T")

DELETED_GENERATION = 0
MANY = 5_000  # rows of the word index; up to here FTS5 ranks them as quickly as arrays
FEWEST_TEXTS, MOST_TEXTS = 1_000, 60_000  # kept in memory; fewer are soon read
FOLD_PATIENCE = 5.0  # seconds a purge waits for readers that hold old pages
SHORT_ROWS = 200  # that a question may ask for and still be a short one
SHORT_GRAPH = 1_000  # rows of a project whose whole graph is soon read
SHORT_STEPS, SHORT_TEXT = 50, 20_000  # steps and characters of a short write


Q = TypeVar("Q", bound=questions.Question[Any])
Answer = Callable[["SqliteStore", Q], Awaitable[T]]
IsLong = bool | Callable[["SqliteStore", Q], bool]  # a long question leaves the caller's thread
_ById = questions.GetRecords | questions.GetLinks | questions.FindLinks | questions.GetAccesses


def _reads(work: Callable[[Connection, Q], T], is_long: "IsLong[Q]" = False) -> "Answer[Q, T]":
    """Return the answer that runs the work against one state of the file."""

    def answer(store: "SqliteStore", question: Q) -> Awaitable[T]:
        long = is_long if isinstance(is_long, bool) else is_long(store, question)
        return store.database.read(lambda db: work(db, question), long=long)

    return answer


def _has_many_rows(store: "SqliteStore", _question: object) -> bool:
    return store.has_many_rows


def _has_many_ids(_store: "SqliteStore", question: _ById) -> bool:
    return len(question.ids) > SHORT_ROWS


def _walks_far(store: "SqliteStore", question: questions.WalkLinks) -> bool:
    return store.has_many_rows and (question.hops.count > 1 or len(question.ids) > SHORT_ROWS)


def _walk_links(db: Connection, question: questions.WalkLinks) -> list[list[Link]]:
    from everkept.engines.sqlite import graph_queries

    return graph_queries.walk(db, question)


def _count_sources(db: Connection, question: questions.CountSources) -> "Sources":
    from everkept.engines.sqlite import graph_queries

    return graph_queries.sources_of(db, question)


def _read_changes(db: Connection, question: questions.ReadChanges) -> list[Change]:
    return queries.changes(
        db,
        question.after,
        question.limit,
        newest_first=question.newest_first,
        most_edits=question.most_edits,
    )


def _get_revision(db: Connection, _: questions.GetRevision) -> int:
    from everkept.engines.sqlite.commit import newest_change

    # SQLite's own data_version would begin anew when the file is closed and opened again.
    return newest_change(db)


def _get_stamp(db: Connection, _: questions.GetStamp) -> tuple[int, int]:
    from everkept.engines.sqlite.commit import newest_change

    return newest_change(db), vectors.newest_vector(db)


def _find_faults(db: Connection, _: questions.FindFaults) -> list[str]:
    from everkept.engines.sqlite.snapshot import faults

    return faults(db)


class SqliteStore(TableStore):
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
        self.database = database
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

    def _match_words(self, question: questions.MatchWords) -> Awaitable[list[Match]]:
        def ask(db: Connection) -> list[Match]:
            words = question.words
            if self._counts_many(db) and _has_single_words(words):
                self._begin_anew_if_restored(db)
                where = replace(question.where, deleted=False)
                return self._arrays().match(db, words, where, question.weights, question.limit)
            return queries.match(db, question)

        return self.database.read(ask, long=self.has_many_rows)

    async def _match_text(self, question: questions.MatchText) -> list[Match]:
        def ask(db: Connection) -> list[Match]:
            self._begin_anew_if_restored(db)
            self._counts_many(db)
            texts = self._substrings
            is_known = texts is not None and texts.generation == self._indexed_generation
            among = texts.find(db, question.text) if texts is not None and is_known else None
            return queries.containing(db, question, among)

        found = await self.database.read(ask, long=self.has_many_rows)
        if self._needs_texts():
            self._is_reading_texts = True
            self.database.read_later(self._read_texts)
        return found

    def _read_subgraph(self, question: questions.ReadSubgraph) -> "Awaitable[Subgraph]":
        from everkept.engines.sqlite import graph_queries

        wanted = question.wanted

        def ask(db: Connection) -> "Subgraph":
            self._counts_many(db)
            return graph_queries.read_subgraph(db, wanted)

        asked = wanted.limit if wanted.ids is None else len(wanted.ids)
        is_short = asked is not None and asked <= SHORT_ROWS
        return self.database.read(ask, long=not is_short and self._rows > SHORT_GRAPH)

    def _measure_words(self, question: questions.MeasureWords) -> Awaitable[Mapping[str, float]]:
        def ask(db: Connection) -> dict[str, float]:
            if self._counts_many(db):
                self._begin_anew_if_restored(db)
                return self._arrays().frequencies(db, question.words)
            return word_index.frequencies(db, question.words)

        return self.database.read(ask, long=self.has_many_rows)

    async def _find_near(self, question: questions.FindNear) -> list[Match]:
        def ask(db: Connection) -> list[Match] | None:
            self._begin_anew_if_restored(db)
            return self._index().near(
                db,
                question.model,
                question.vector,
                question.where,
                question.limit,
                question.also,
            )

        is_long = (
            self._nearness is None or self.has_many_rows
        )  # the first question reads all vectors
        while (found := await self.database.read(ask, long=is_long)) is None:
            await self.database.read(
                lambda db: self._index().catch_up(db, question.model), aside=True
            )
        return found

    async def _measure_size(self, _: questions.MeasureSize) -> int:
        return self.database.size()

    async def _purge(self, upkeep: questions.Purge) -> "Purged":
        from everkept.engines.sqlite import purge

        records, links = await self._write(lambda db: purge.remove(db, upkeep.refs, self._clock()))
        return await self._purged(records, links)

    async def _redact(self, upkeep: questions.Redact) -> "Purged":
        from everkept.engines.sqlite import purge

        records, links = await self._write(
            lambda db: purge.rewrite(db, upkeep.refs, upkeep.clean, self._clock())
        )
        return await self._purged(records, links)

    def _put_vectors(self, upkeep: questions.PutVectors) -> Awaitable[int]:
        halved = vectors.halved(upkeep.items)
        return self._write(lambda db: vectors.put_vectors(db, upkeep.model, halved))

    async def _note_accesses(self, upkeep: questions.NoteAccesses) -> None:
        if upkeep.counts:
            await self._write(lambda db: vectors.note_accesses(db, upkeep))

    async def _restock(self, upkeep: questions.Restock) -> None:
        from everkept.engines.sqlite.replication import restock

        stock = upkeep.stock
        halved = {model: vectors.halved(items) for model, items in stock.vectors.items()}
        if await self._write(lambda db: restock(db, stock, halved)):
            await self._cleansed()

    async def _write(self, work: Work[T], *, short: bool = False) -> T:
        def checked(db: Connection) -> T:
            self._check_generation(db)
            return work(db)

        return await self.database.write(checked, short=short)

    async def _purged(self, records: int, links: int) -> "Purged":
        from everkept.core.answers import Purged

        return Purged(records, links, complete=await self._cleansed())

    async def _cleansed(self) -> bool:
        """Leaves no byte of what was removed; False where that could not be done."""
        from everkept.engines.sqlite import purge

        try:
            until = await self.database.read(purge.newest_moment)
            for _ in range(purge.MOST_STEPS):
                if not await self.database.read(lambda db: purge.has_marks(db, until)):
                    return await self.database.fold(FOLD_PATIENCE)
                await self._write(purge.cleanse_some)
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
            from everkept.engines.sqlite.search import Postings

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
            from everkept.engines.sqlite.search import Sieve

            self._sieve = Sieve()
        return self._sieve

    @property
    def has_many_rows(self) -> bool:
        return self._rows > self._many

    def _counts_many(self, db: Connection) -> bool:
        self._rows = word_index.indexed_rows(db)
        return self.has_many_rows

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

    answers: ClassVar[Answers] = {
        questions.GetRecords: _reads(queries.get_records, _has_many_ids),
        questions.ScanRecords: _reads(
            queries.scan, lambda _, question: not _asks_for_few(question.where, question.limit)
        ),
        questions.MatchWords: _match_words,
        questions.MatchText: _match_text,
        questions.FindLinks: _reads(queries.links, _has_many_ids),
        questions.ReadSubgraph: _read_subgraph,
        questions.WalkLinks: _reads(_walk_links, _walks_far),
        questions.CountSources: _reads(_count_sources, _has_many_rows),
        questions.GetLinks: _reads(queries.get_links, _has_many_ids),
        questions.ScanLinks: _reads(queries.scan_links, is_long=True),
        questions.CountLive: _reads(queries.count, is_long=True),
        questions.CountRecords: _reads(queries.how_many, is_long=True),
        questions.ReadChanges: _reads(_read_changes, lambda _, q: q.limit > SHORT_ROWS),
        questions.ReadHistory: _reads(queries.history, lambda _, q: len(q.refs) > SHORT_ROWS),
        questions.GetRevision: _reads(_get_revision),
        questions.GetStamp: _reads(_get_stamp),
        questions.FindFaults: _reads(_find_faults, is_long=True),
        questions.TallyRecords: _reads(queries.tally, is_long=True),
        questions.ListScopes: _reads(queries.scopes),
        questions.ListAuthors: _reads(queries.authors),
        questions.MeasureWords: _measure_words,
        questions.FindUnembedded: _reads(vectors.unembedded, lambda _, q: q.limit > 1),
        questions.CountVectors: _reads(vectors.vector_counts, is_long=True),
        questions.GetVectors: _reads(vectors.vectors, is_long=True),
        questions.FindNear: _find_near,
        questions.GetAccesses: _reads(vectors.accesses, _has_many_ids),
        questions.ListMostAccessed: _reads(vectors.most_accessed, is_long=True),
        questions.MeasureSize: _measure_size,
    }
    upkeeps: ClassVar[Upkeeps] = {
        questions.Purge: _purge,
        questions.Redact: _redact,
        questions.PutVectors: _put_vectors,
        questions.NoteAccesses: _note_accesses,
        questions.Restock: _restock,
    }


def generation_of(db: Connection) -> int:
    return int(db.execute("SELECT value FROM meta WHERE key = 'generation'").get)


def _refuse_if_being_restored(db: Connection, way: str) -> None:
    """Files that do not fit together are no sign of anything else then.

    `way` leads from the folder of the file to the data folder.
    """
    from pathlib import Path

    from everkept.engines.sqlite.snapshot import find_unfinished_restore

    file = db.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").get
    found = find_unfinished_restore((Path(file).parent / way).resolve())
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
