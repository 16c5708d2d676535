"""The store on SurrealDB: the port's questions and commits, each checked for what became of it."""

from collections.abc import Awaitable, Callable
from typing import ClassVar, TypeVar

from everkept.core import questions
from everkept.core.fallback_answers import ask_for_subgraph, hop_by_hop
from everkept.core.records import Batch, Change, Link
from everkept.core.store import Answers, TableStore, Upkeeps
from everkept.core.stored import Purged
from everkept.core.subgraphs import Subgraph
from everkept.core.times import Clock, now
from everkept.core.walking import Sources, sources_in
from everkept.engines.surreal.connecting.connection import Connection
from everkept.engines.surreal.records import (
    checking,
    commit,
    matching,
    meaning,
    purging,
    reading,
    redacting,
    restocking,
)
from everkept.engines.surreal.records.tables import Tables
from everkept.values import replace

Q = TypeVar("Q")
T = TypeVar("T")


def _reads(
    work: Callable[[Tables, Q], Awaitable[T]],
) -> "Callable[[SurrealStore, Q], Awaitable[T]]":
    """Return the answer that the work reads from the tables of a store."""
    return lambda store, question: work(store.tables, question)


class SurrealStore(TableStore):
    """A project's records in a database of SurrealDB."""

    def __init__(
        self,
        connection: Connection,
        database: str,
        clock: Clock = now,
        name: str = "",
        *,
        of_project: bool = True,
    ) -> None:
        """`name` is that of the project, for whoever reads what went wrong.

        One that is of no project is made anew where it is missing.
        """
        self.tables = Tables(connection, database, name or database, of_project=of_project)
        self._clock = clock

    async def commit(self, batch: Batch) -> Change:
        return await commit.commit(self.tables, batch)

    async def _count_sources(self, question: questions.CountSources) -> Sources:
        where = question.where
        links = await self.links(question.ids, direction="in", sources=where.kinds)
        found = {link.source for link in links}
        wanted = found if where.ids is None else found.intersection(where.ids)
        some = await self.scan(replace(where, ids=tuple(wanted))) if wanted else []
        fitting = {record.id for record in some}
        return sources_in([link for link in links if link.source in fitting], question.limit)

    def _read_subgraph(self, question: questions.ReadSubgraph) -> Awaitable[Subgraph]:
        return ask_for_subgraph(self, question.wanted)

    def _walk_links(self, question: questions.WalkLinks) -> Awaitable[list[list[Link]]]:
        return hop_by_hop(self.ask, question.ids, question.hops)

    async def _get_revision(self, _: questions.GetRevision) -> int:
        return (await self.tables.state()).seq

    async def _get_stamp(self, _: questions.GetStamp) -> tuple[int, int]:
        state = await self.tables.state()
        return state.seq, state.moves

    def _find_faults(self, _: questions.FindFaults) -> Awaitable[list[str]]:
        return checking.faults(self.tables)

    async def _measure_size(self, _: questions.MeasureSize) -> int:
        return 0

    async def _purge(self, upkeep: questions.Purge) -> Purged:
        at = self._clock()
        return await self.tables.in_turn(lambda: purging.purge(self.tables, upkeep.refs, at))

    async def _redact(self, upkeep: questions.Redact) -> Purged:
        at = self._clock()
        return await self.tables.in_turn(
            lambda: redacting.redact(self.tables, upkeep.refs, upkeep.clean, at)
        )

    async def _put_vectors(self, upkeep: questions.PutVectors) -> int:
        if not upkeep.items:
            return 0
        return await self.tables.in_turn(lambda: meaning.put_vectors(self.tables, upkeep))

    async def _note_accesses(self, upkeep: questions.NoteAccesses) -> None:
        if upkeep.counts:
            await reading.note_accesses(self.tables, upkeep)

    async def _restock(self, upkeep: questions.Restock) -> None:
        await self.tables.in_turn(lambda: restocking.restock(self.tables, upkeep.stock))

    answers: ClassVar[Answers] = {
        questions.GetRecords: _reads(reading.get_records),
        questions.ScanRecords: _reads(reading.scan),
        questions.MatchWords: _reads(matching.match),
        questions.MatchText: _reads(reading.containing),
        questions.FindLinks: _reads(reading.links),
        questions.ReadSubgraph: _read_subgraph,
        questions.WalkLinks: _walk_links,
        questions.CountSources: _count_sources,
        questions.GetLinks: _reads(reading.get_links),
        questions.ScanLinks: _reads(reading.scan_links),
        questions.CountLive: _reads(reading.count),
        questions.CountRecords: _reads(reading.how_many),
        questions.ReadChanges: _reads(reading.changes),
        questions.ReadHistory: _reads(reading.history),
        questions.GetRevision: _get_revision,
        questions.GetStamp: _get_stamp,
        questions.FindFaults: _find_faults,
        questions.TallyRecords: _reads(reading.tally),
        questions.ListScopes: _reads(reading.scopes),
        questions.ListAuthors: _reads(reading.authors),
        questions.MeasureWords: _reads(matching.frequencies),
        questions.FindUnembedded: _reads(meaning.unembedded),
        questions.CountVectors: _reads(meaning.vector_counts),
        questions.GetVectors: _reads(meaning.vectors),
        questions.FindNear: _reads(meaning.near),
        questions.GetAccesses: _reads(reading.accesses),
        questions.ListMostAccessed: _reads(reading.most_accessed),
        questions.MeasureSize: _measure_size,
    }
    upkeeps: ClassVar[Upkeeps] = {
        questions.Purge: _purge,
        questions.Redact: _redact,
        questions.PutVectors: _put_vectors,
        questions.NoteAccesses: _note_accesses,
        questions.Restock: _restock,
    }
