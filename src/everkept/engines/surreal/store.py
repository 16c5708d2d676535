"""Store on SurrealDB: queries and commits of the port, each checked for its outcome."""

from collections.abc import Awaitable, Callable
from typing import ClassVar, TypeVar

from everkept.core import store as questions
from everkept.core.answers import PurgeResult, Sources, Subgraph, count_sources
from everkept.core.fallback_answers import ask_for_subgraph, walk_by_hops
from everkept.core.records import Batch, Change, RecordLink
from everkept.core.store import Answers, TableStore, Upkeeps
from everkept.core.text import format_count
from everkept.core.times import Clock, read_clock
from everkept.engines.surreal import commit, purge, queries, replication, search, vectors
from everkept.engines.surreal.connection import Connection
from everkept.engines.surreal.queries import build_row_range
from everkept.engines.surreal.schema import StoreTables
from everkept.values import replace

# Each query finds faults of one kind.
_FAULT_QUERIES = {
    ("record", "deleted but still in the word index"): (
        "SELECT VALUE id FROM word WHERE of.age IS NONE OR of.deleted_at IS NOT NONE"
    ),
    ("record", "with a missing parent"): "SELECT VALUE id FROM record WHERE parent IS NOT NONE AND parent.age IS NONE",
    ("link", "with a missing end"): "SELECT VALUE id FROM link WHERE in.age IS NONE OR out.age IS NONE",
    ("record", "with an age above the store's counter"): "SELECT VALUE id FROM record WHERE age > meta:store.ages",
    ("link", "with an age above the store's counter"): "SELECT VALUE id FROM link WHERE age > meta:store.ages",
    ("change", "with a number above the store's counter"): (
        "SELECT VALUE id FROM change WHERE record::id(id) > meta:store.seq"
    ),
}


async def find_faults(tables: StoreTables) -> list[str]:
    state = await tables.read_state()
    word_of = build_row_range(tables, "word", "record::id(id)")
    wrong = {
        ("record", "not in the word index"): (
            f"SELECT VALUE id FROM record WHERE deleted_at IS NONE AND {word_of}.of != id"
        ),
        **_FAULT_QUERIES,
    }
    parts = [f"array::len(({text}))" for text in wrong.values()]
    parts += [
        f"array::len((SELECT VALUE id FROM {model.table} WHERE of.embedded != $m{number}))"
        for number, model in enumerate(state.models)
    ]
    # In one query, so that nothing changes between two counts.
    counts = await tables.ask(
        f"RETURN [{', '.join(parts)}]",
        **{f"m{number}": model.to_row()["name"] for number, model in enumerate(state.models)},
    )
    faults = [*wrong, *(("vector", f"of {m.name} without a record") for m in state.models)]
    return [f"{format_count(n, noun)} {fault}" for n, (noun, fault) in zip(counts, faults, strict=True) if n]


Q = TypeVar("Q")
T = TypeVar("T")


def _build_read(work: Callable[[StoreTables, Q], Awaitable[T]]) -> "Callable[[SurrealStore, Q], Awaitable[T]]":
    """Return a method that runs the query on the tables of a store."""
    return lambda store, question: work(store.tables, question)


class SurrealStore(TableStore):
    """Store of records in a SurrealDB database."""

    def __init__(
        self,
        connection: Connection,
        database: str,
        clock: Clock = read_clock,
        name: str = "",
        *,
        of_project: bool = True,
        counts_files: bool = False,
    ) -> None:
        """Use the store in this database. `name` is the name of the project, for error messages.

        A store without a project is created again if it is missing. The files belong to all stores together; the one
        that `counts_files` has their size.
        """
        self._counts_files = counts_files
        self.tables = StoreTables(connection, database, name or database, of_project=of_project)
        self._clock = clock

    async def commit(self, batch: Batch) -> Change:
        return await commit.commit(self.tables, batch)

    async def _count_sources(self, question: questions.CountSources) -> Sources:
        where = question.where
        links = await self.find_links(question.ids, direction="in", sources=where.kinds)
        found = {link.source for link in links}
        wanted = found if where.ids is None else found.intersection(where.ids)
        some = await self.scan(replace(where, ids=tuple(wanted))) if wanted else []
        fitting = {record.id for record in some}
        return count_sources([link for link in links if link.source in fitting], question.limit)

    def _read_subgraph(self, question: questions.ReadSubgraph) -> Awaitable[Subgraph]:
        return ask_for_subgraph(self, question.wanted)

    def _walk_links(self, question: questions.WalkLinks) -> Awaitable[list[list[RecordLink]]]:
        return walk_by_hops(self.ask, question.ids, question.hops)

    async def _get_revision(self, _: questions.GetRevision) -> int:
        return (await self.tables.read_state()).seq

    async def _get_stamp(self, _: questions.GetStamp) -> tuple[int, int]:
        state = await self.tables.read_state()
        return state.seq, state.moves

    def _find_faults(self, _: questions.FindFaults) -> Awaitable[list[str]]:
        return find_faults(self.tables)

    async def _measure_size(self, _: questions.MeasureSize) -> int:
        files = await self.tables.measure_files()
        if files is None:
            return await queries.estimate_size(self.tables)
        return files if self._counts_files else 0

    async def _purge(self, upkeep: questions.Purge) -> PurgeResult:
        at = self._clock()
        return await self.tables.run_in_turn(lambda: purge.purge(self.tables, upkeep.refs, at))

    async def _redact(self, upkeep: questions.Redact) -> PurgeResult:
        at = self._clock()
        return await self.tables.run_in_turn(lambda: purge.redact(self.tables, upkeep.refs, upkeep.clean, at))

    async def _put_vectors(self, upkeep: questions.PutVectors) -> int:
        if not upkeep.items:
            return 0
        return await self.tables.run_in_turn(lambda: vectors.put_vectors(self.tables, upkeep))

    async def _note_accesses(self, upkeep: questions.NoteAccesses) -> None:
        if upkeep.counts:
            await queries.note_accesses(self.tables, upkeep)

    async def _replicate(self, upkeep: questions.Replicate) -> None:
        await self.tables.run_in_turn(lambda: replication.apply_page(self.tables, upkeep.stock))

    answers: ClassVar[Answers] = {
        questions.GetRecords: _build_read(queries.get_records),
        questions.FindByPrefix: _build_read(queries.find_by_prefix),
        questions.ScanRecords: _build_read(queries.scan),
        questions.MatchWords: _build_read(search.match),
        questions.MatchText: _build_read(queries.match_text),
        questions.FindLinks: _build_read(queries.list_links),
        questions.ReadSubgraph: _read_subgraph,
        questions.WalkLinks: _walk_links,
        questions.CountSources: _count_sources,
        questions.GetLinks: _build_read(queries.get_links),
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
        questions.ListAuthors: _build_read(queries.list_authors),
        questions.MeasureWords: _build_read(search.measure_words),
        questions.FindUnembedded: _build_read(vectors.find_unembedded),
        questions.CountVectors: _build_read(vectors.count_vectors),
        questions.GetVectors: _build_read(vectors.get_vectors),
        questions.FindNear: _build_read(vectors.find_nearest),
        questions.GetAccesses: _build_read(queries.get_accesses),
        questions.ListMostAccessed: _build_read(queries.list_most_accessed),
        questions.MeasureSize: _measure_size,
    }
    upkeeps: ClassVar[Upkeeps] = {
        questions.Purge: _purge,
        questions.Redact: _redact,
        questions.PutVectors: _put_vectors,
        questions.NoteAccesses: _note_accesses,
        questions.Replicate: _replicate,
    }
