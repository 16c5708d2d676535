"""A project's records in one SQLite file."""

from collections.abc import Awaitable, Callable, Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard, TypeVar

from everkept.core import store as questions
from everkept.core.records import Batch, Change, Insert, Match, Record, RecordFilter, RecordLink, Update
from everkept.core.store import Answers, TableStore, Upkeeps
from everkept.engines.sqlite import queries, vectors, word_index
from everkept.engines.sqlite.connection import Connection, DatabaseFile, Work
from everkept.engines.sqlite.schema import PROJECT
from everkept.errors import Conflict, NotFound, ProjectArchived, StoreDamaged, Unavailable
from everkept.language.words import AnyOf, WordPhrase, WordQuery
from everkept.values import replace

if TYPE_CHECKING:  # a hook loads only what it uses, and the first query that needs numpy loads it
    from everkept.core.answers import PurgeResult, Sources, Subgraph
    from everkept.core.times import Clock
    from everkept.engines.sqlite.nearness import VectorIndexes
    from everkept.engines.sqlite.search import FilterCache, Postings
    from everkept.engines.sqlite.substrings import SubstringIndex

T = TypeVar("T")

DELETED_GENERATION = 0
MAX_FTS5_ROWS = 5_000  # up to this number of indexed rows, FTS5 ranks as fast as arrays
MIN_CACHED_TEXTS, MAX_CACHED_TEXTS = 1_000, 60_000  # range in which texts are cached in memory; fewer are read quickly
FOLD_SECONDS = 5.0  # how long a purge waits for readers of old pages
MAX_SHORT_ROWS = 200  # limit of a query that still counts as short
MAX_SHORT_GRAPH_ROWS = 1_000  # the whole graph of a project up to this size is read quickly
MAX_SHORT_STEPS, MAX_SHORT_CHARACTERS = 50, 20_000  # limits of a short write


Q = TypeVar("Q", bound=questions.StoreQuestion[Any])
AnswerMethod = Callable[["SqliteStore", Q], Awaitable[T]]
IsLong = bool | Callable[["SqliteStore", Q], bool]  # a long query does not run in the caller's thread
_ById = questions.GetRecords | questions.GetLinks | questions.FindLinks | questions.GetAccesses


def _make_reader(work: Callable[[Connection, Q], T], is_long: "IsLong[Q]" = False) -> "AnswerMethod[Q, T]":
    """Return an answer that runs `work` against one state of the file."""

    def answer(store: "SqliteStore", question: Q) -> Awaitable[T]:
        long = is_long if isinstance(is_long, bool) else is_long(store, question)
        return store.database.read(lambda db: work(db, question), long=long)

    return answer


def _has_many_ids(_store: "SqliteStore", question: _ById) -> bool:
    return len(question.ids) > MAX_SHORT_ROWS


def _is_far_walk(store: "SqliteStore", question: questions.WalkLinks) -> bool:
    return store.has_many_rows and (question.hops.count > 1 or len(question.ids) > MAX_SHORT_ROWS)


def _walk_links(db: Connection, question: questions.WalkLinks) -> list[list[RecordLink]]:
    from everkept.engines.sqlite import graph_queries

    return graph_queries.walk(db, question)


def _count_sources(db: Connection, question: questions.CountSources) -> "Sources":
    from everkept.engines.sqlite import graph_queries

    return graph_queries.count_sources(db, question)


def _read_changes(db: Connection, question: questions.ReadChanges) -> list[Change]:
    return queries.read_changes(
        db, question.after, question.limit, newest_first=question.newest_first, most_edits=question.most_edits
    )


def _get_revision(db: Connection, _: questions.GetRevision) -> int:
    from everkept.engines.sqlite.commit import read_newest_change

    # SQLite's data_version would start over when the file is reopened.
    return read_newest_change(db)


def _get_stamp(db: Connection, _: questions.GetStamp) -> tuple[int, int]:
    from everkept.engines.sqlite.commit import read_newest_change

    return read_newest_change(db), vectors.read_newest_vector(db)


def _find_faults(db: Connection, _: questions.FindFaults) -> list[str]:
    from everkept.engines.sqlite.snapshot import find_faults, find_row_faults, find_value_faults

    return [*find_faults(db), *find_row_faults(db), *find_value_faults(db)]


class SqliteStore(TableStore):
    """The port over one file. Every write checks that the file was not archived since it was opened."""

    def __init__(
        self, database: DatabaseFile, name: str, generation: int | None, clock: "Clock", many: float = MAX_FTS5_ROWS
    ) -> None:
        """Pass no generation for a file that belongs to no project: it is never archived and has its own.

        Beyond `many` rows in the word index, any-word queries use arrays.
        """
        self.database = database
        self._many = many
        self._name = name
        self._clock = clock
        self.generation = generation
        self._is_of_project = generation is not None
        self._indexed_generation = generation
        self._indexed_file: int = database.reopened
        self._rows = inf  # rows of the word index, as far as known
        self._nearness: VectorIndexes | None = None
        self._postings: Postings | None = None
        self._sieve: FilterCache | None = None
        self._substrings: SubstringIndex | None = None
        self._is_reading_texts = False

    async def commit(self, batch: Batch) -> Change:
        from everkept.engines.sqlite import commit

        return await self._write(lambda db: commit.commit_batch(db, batch), short=_is_small_batch(batch))

    def _match_words(self, question: questions.MatchWords) -> Awaitable[list[Match]]:
        def ask(db: Connection) -> list[Match]:
            words = question.words
            if self._count_rows(db) and _has_single_words(words):
                self._reset_if_restored(db)
                where = replace(question.where, deleted=False)
                return self._get_postings().match(db, words, where, question.weights, question.limit)
            return queries.match(db, question)

        return self.database.read(ask, long=self.has_many_rows)

    async def _match_text(self, question: questions.MatchText) -> list[Match]:
        def ask(db: Connection) -> list[Match]:
            self._reset_if_restored(db)
            self._count_rows(db)
            texts = self._substrings
            is_known = texts is not None and texts.generation == self._indexed_generation
            among = texts.find(db, question.text) if texts is not None and is_known else None
            return queries.match_text(db, question, among)

        found = await self.database.read(ask, long=self.has_many_rows)
        if self._should_read_texts():
            self._is_reading_texts = True
            self.database.read_later(self._read_texts)
        return found

    def _read_subgraph(self, question: questions.ReadSubgraph) -> "Awaitable[Subgraph]":
        from everkept.engines.sqlite import graph_queries

        wanted = question.wanted

        def ask(db: Connection) -> "Subgraph":
            self._count_rows(db)
            return graph_queries.read_subgraph(db, wanted)

        asked = wanted.limit if wanted.ids is None else len(wanted.ids)
        is_short = asked is not None and asked <= MAX_SHORT_ROWS
        return self.database.read(ask, long=not is_short and self._rows > MAX_SHORT_GRAPH_ROWS)

    def _measure_words(self, question: questions.MeasureWords) -> Awaitable[Mapping[str, float]]:
        def ask(db: Connection) -> dict[str, float]:
            if self._count_rows(db):
                self._reset_if_restored(db)
                return self._get_postings().measure_words(db, question.words)
            return word_index.measure_words(db, question.words)

        return self.database.read(ask, long=self.has_many_rows)

    async def _find_near(self, question: questions.FindNear) -> list[Match]:
        def ask(db: Connection) -> list[Match] | None:
            self._reset_if_restored(db)
            return self._get_vector_indexes().find_nearest(
                db, question.model, question.vector, question.where, question.limit, question.also
            )

        is_long = self._nearness is None or self.has_many_rows  # the first query reads all vectors
        while (found := await self.database.read(ask, long=is_long)) is None:
            await self.database.read(lambda db: self._get_vector_indexes().catch_up(db, question.model), aside=True)
        return found

    async def _measure_size(self, _: questions.MeasureSize) -> int:
        return self.database.measure_size()

    async def _purge(self, upkeep: questions.Purge) -> "PurgeResult":
        from everkept.engines.sqlite import purge

        records, links = await self._write(lambda db: purge.purge(db, upkeep.refs, self._clock()))
        return await self._finish_purge(records, links)

    async def _redact(self, upkeep: questions.Redact) -> "PurgeResult":
        from everkept.engines.sqlite import purge

        records, links = await self._write(lambda db: purge.redact(db, upkeep.refs, upkeep.clean, self._clock()))
        return await self._finish_purge(records, links)

    def _put_vectors(self, upkeep: questions.PutVectors) -> Awaitable[int]:
        halved = vectors.to_half_vectors(upkeep.items)
        return self._write(lambda db: vectors.put_vectors(db, upkeep.model, halved))

    async def _note_accesses(self, upkeep: questions.NoteAccesses) -> None:
        if upkeep.counts:
            await self._write(lambda db: vectors.note_accesses(db, upkeep))

    async def _replicate(self, upkeep: questions.Replicate) -> None:
        from everkept.engines.sqlite.replication import apply_page

        stock = upkeep.stock
        halved = {model: vectors.to_half_vectors(items) for model, items in stock.vectors.items()}
        if await self._write(lambda db: apply_page(db, stock, halved)):
            await self._cleanse()

    async def _write(self, work: Work[T], *, short: bool = False) -> T:
        def checked(db: Connection) -> T:
            self._check_generation(db)
            return work(db)

        return await self.database.write(checked, short=short)

    async def _finish_purge(self, records: int, links: int) -> "PurgeResult":
        from everkept.core.answers import PurgeResult

        return PurgeResult(records, links, complete=await self._cleanse())

    async def _cleanse(self) -> bool:
        """Erase all bytes of removed data. Return False if that was not possible."""
        from everkept.engines.sqlite import purge

        try:
            until = await self.database.read(purge.read_newest_moment)
            for _ in range(purge.MAX_STEPS):
                if not await self.database.read(lambda db: purge.has_marks(db, until)):
                    return await self.database.fold(FOLD_SECONDS)
                await self._write(purge.cleanse_step)
        except Unavailable:
            pass  # the data stays removed
        return False

    def _get_vector_indexes(self) -> "VectorIndexes":
        if self._nearness is None:
            from everkept.engines.sqlite.nearness import VectorIndexes

            self._nearness = VectorIndexes(self._get_filter_cache())
        return self._nearness

    def _get_postings(self) -> "Postings":
        if self._postings is None:
            from everkept.engines.sqlite.search import Postings

            self._postings = Postings(self._get_filter_cache())
        return self._postings

    def _should_read_texts(self) -> bool:
        is_missing = self._substrings is None or self._substrings.is_outdated
        return is_missing and not self._is_reading_texts and MIN_CACHED_TEXTS <= self._rows <= MAX_CACHED_TEXTS

    def _read_texts(self, db: Connection) -> None:
        from everkept.engines.sqlite.substrings import SubstringIndex

        try:
            self._substrings = SubstringIndex(db, read_generation(db))
        finally:
            self._is_reading_texts = False

    def _get_filter_cache(self) -> "FilterCache":
        if self._sieve is None:
            from everkept.engines.sqlite.search import FilterCache

            self._sieve = FilterCache()
        return self._sieve

    @property
    def has_many_rows(self) -> bool:
        return self._rows > self._many

    def _count_rows(self, db: Connection) -> bool:
        self._rows = word_index.count_indexed_rows(db)
        return self.has_many_rows

    def _reset_if_restored(self, db: Connection) -> None:
        """Discard caches if a backup or another file has replaced the file."""
        found, file = read_generation(db), self.database.reopened
        if found != self._indexed_generation or file != self._indexed_file:
            self._indexed_generation, self._indexed_file = found, file
            self._nearness = self._postings = self._sieve = self._substrings = None

    def _check_generation(self, db: Connection) -> None:
        found = read_generation(db)
        if found == self.generation:
            return
        if not self._is_of_project:
            self._adopt_generation(db, found)
            return
        _refuse_if_being_restored(db, "..")
        if found == DELETED_GENERATION:
            raise NotFound("project", self._name, hint="It was deleted. Select another project.")
        if found < 0:
            raise ProjectArchived(self._name)
        raise Conflict(f'Project "{self._name}" was archived and restored since it was opened.', hint="Try again.")

    def _adopt_generation(self, db: Connection, found: int) -> None:
        is_first, is_whole = self.generation is None, found > 0
        if is_whole:
            self.generation = found
        else:
            _refuse_if_being_restored(db, ".")
        if not is_first or not is_whole:
            raise Conflict(f"{self._name}.db was restored from a backup.", hint="Try again.")

    answers: ClassVar[Answers] = {
        questions.GetRecords: _make_reader(queries.get_records, _has_many_ids),
        questions.FindByPrefix: _make_reader(queries.find_by_prefix),
        questions.ScanRecords: _make_reader(
            queries.scan, lambda _, question: not _is_small_query(question.where, question.limit)
        ),
        questions.MatchWords: _match_words,
        questions.MatchText: _match_text,
        questions.FindLinks: _make_reader(queries.list_links, _has_many_ids),
        questions.ReadSubgraph: _read_subgraph,
        questions.WalkLinks: _make_reader(_walk_links, _is_far_walk),
        questions.CountSources: _make_reader(_count_sources, lambda store, _: store.has_many_rows),
        questions.GetLinks: _make_reader(queries.get_links, _has_many_ids),
        questions.ScanLinks: _make_reader(queries.scan_links, is_long=True),
        questions.CountLive: _make_reader(queries.count_live, is_long=True),
        questions.CountRecords: _make_reader(queries.count_records, is_long=True),
        questions.ReadChanges: _make_reader(_read_changes, lambda _, q: q.limit > MAX_SHORT_ROWS),
        questions.ReadHistory: _make_reader(queries.read_history, lambda _, q: len(q.refs) > MAX_SHORT_ROWS),
        questions.GetRevision: _make_reader(_get_revision),
        questions.GetStamp: _make_reader(_get_stamp),
        questions.FindFaults: _make_reader(_find_faults, is_long=True),
        questions.TallyRecords: _make_reader(queries.tally, is_long=True),
        questions.ListScopes: _make_reader(queries.list_scopes),
        questions.ListAuthors: _make_reader(queries.list_authors),
        questions.MeasureWords: _measure_words,
        questions.FindUnembedded: _make_reader(vectors.find_unembedded, lambda _, q: q.limit > 1),
        questions.CountVectors: _make_reader(vectors.count_vectors, is_long=True),
        questions.GetVectors: _make_reader(vectors.get_vectors, is_long=True),
        questions.FindNear: _find_near,
        questions.GetAccesses: _make_reader(vectors.get_accesses, _has_many_ids),
        questions.ListMostAccessed: _make_reader(vectors.list_most_accessed, is_long=True),
        questions.MeasureSize: _measure_size,
    }
    upkeeps: ClassVar[Upkeeps] = {
        questions.Purge: _purge,
        questions.Redact: _redact,
        questions.PutVectors: _put_vectors,
        questions.NoteAccesses: _note_accesses,
        questions.Replicate: _replicate,
    }


def read_generation(db: Connection) -> int:
    found: object = db.execute("SELECT value FROM meta WHERE key = 'generation'").get
    if not str(found).removeprefix("-").isdecimal():
        path = next(path for _, _, path in db.execute("PRAGMA database_list"))
        raise StoreDamaged(f"{Path(path).name} is damaged: it has no generation.", hint=PROJECT.when_damaged)
    return int(str(found))


def _refuse_if_being_restored(db: Connection, way: str) -> None:
    """Raise Unavailable if an unfinished restore explains the mismatch. `way` leads to the data folder."""
    from pathlib import Path

    from everkept.engines.sqlite.snapshot import find_unfinished_restore

    file = db.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").get
    found = find_unfinished_restore((Path(file).parent / way).resolve())
    if found is not None:
        raise found.build_error()


def _is_small_query(where: RecordFilter, limit: int | None) -> bool:
    """Return whether an index finds all rows, and they are few."""
    names = where.ids or where.name_keys or where.places
    if names is not None:
        return len(names) <= MAX_SHORT_ROWS
    is_plain = where == RecordFilter(kinds=where.kinds, parents=where.parents, deleted=where.deleted)
    return limit is not None and limit <= MAX_SHORT_ROWS and is_plain


def _is_small_batch(batch: Batch) -> bool:
    """Return whether the batch is small and affects no other records. Deletions and new names affect others."""
    characters = 0
    for step in batch.steps:
        if isinstance(step, Insert):
            characters += len(step.item.text) if isinstance(step.item, Record) else 0
        elif isinstance(step, Update) and "name" not in step.values:
            characters += len(step.values.get("text", ""))
        else:
            return False
    return len(batch.steps) <= MAX_SHORT_STEPS and characters <= MAX_SHORT_CHARACTERS


def _has_single_words(words: WordQuery) -> TypeGuard[AnyOf]:
    """Return whether arrays should rank the query. Phrases are rare enough for FTS5 to rank."""
    return isinstance(words, AnyOf) and any(isinstance(part, WordPhrase) for part in words.parts)
