"""The store on SurrealDB: the port's questions and commits, each checked for what became of it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from everkept.core.ports import Access, Direction, Embedded, Order, Purged, Redaction, Seen, Tally
from everkept.core.records import Batch, Change, Edit, Link, Match, Record, Ref, Weights, Where
from everkept.core.subgraphs import Selection, Subgraph, ask_for_subgraph
from everkept.core.times import Clock, now
from everkept.core.walking import Hops, Sources, hop_by_hop, sources_in
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
from everkept.language.words import WordQuery
from everkept.values import replace

if TYPE_CHECKING:  # numpy is loaded by whoever brings vectors
    import numpy as np
    from numpy.typing import NDArray

    from everkept.core.copies import Stock


class SurrealStore:
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
        self._tables = Tables(connection, database, name or database, of_project=of_project)
        self._clock = clock

    async def commit(self, batch: Batch) -> Change:
        return await commit.commit(self._tables, batch)

    async def get(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[Record]:
        return await reading.get_records(self._tables, ids, include_deleted=include_deleted)

    async def scan(
        self,
        where: Where,
        *,
        order: Order = "age",
        after: Seen | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        return await reading.scan(self._tables, where, order, after, limit)

    async def match(
        self, words: WordQuery, where: Where, weights: Weights, limit: int
    ) -> list[Match]:
        return await matching.match(self._tables, words, where, weights, limit)

    async def containing(self, text: str, where: Where, limit: int) -> list[Match]:
        return await reading.containing(self._tables, text, where, limit)

    async def links(
        self,
        ids: Sequence[str],
        *,
        direction: Direction = "both",
        sources: Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Link]:
        return await reading.links(self._tables, ids, direction, sources, limit)

    async def subgraph(self, wanted: Selection) -> Subgraph:
        return await ask_for_subgraph(self, wanted)

    async def walk(self, ids: Sequence[str], hops: Hops) -> list[list[Link]]:
        return await hop_by_hop(self.links, ids, hops)

    async def sources_of(self, ids: Sequence[str], where: Where, limit: int) -> Sources:
        links = await self.links(ids, direction="in", sources=where.kinds)
        found = {link.source for link in links}
        wanted = found if where.ids is None else found.intersection(where.ids)
        some = await self.scan(replace(where, ids=tuple(wanted))) if wanted else []
        fitting = {record.id for record in some}
        return sources_in([link for link in links if link.source in fitting], limit)

    async def get_links(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[Link]:
        return await reading.get_links(self._tables, ids, include_deleted=include_deleted)

    async def scan_links(self, *, deleted: bool | None, containing: str = "") -> list[Link]:
        return await reading.scan_links(self._tables, deleted, containing)

    async def count(self) -> Mapping[str, int]:
        return await reading.count(self._tables)

    async def how_many(self, where: Where) -> int:
        return await reading.how_many(self._tables, where)

    async def changes(
        self,
        *,
        after: int = 0,
        limit: int = 100,
        newest_first: bool = False,
        most_edits: int | None = None,
    ) -> list[Change]:
        return await reading.changes(
            self._tables, after, limit, newest_first=newest_first, most_edits=most_edits
        )

    async def history(self, refs: Sequence[Ref], *, after: int = 0) -> list[tuple[int, Edit]]:
        return await reading.history(self._tables, refs, after)

    async def purge(self, refs: Sequence[Ref]) -> Purged:
        at = self._clock()
        return await self._tables.in_turn(lambda: purging.purge(self._tables, refs, at))

    async def redact(self, refs: Sequence[Ref], clean: Redaction) -> Purged:
        at = self._clock()
        return await self._tables.in_turn(lambda: redacting.redact(self._tables, refs, clean, at))

    async def revision(self) -> int:
        return (await self._tables.state()).seq

    async def stamp(self) -> tuple[int, int]:
        state = await self._tables.state()
        return state.seq, state.moves

    async def check(self) -> list[str]:
        return await checking.faults(self._tables)

    async def tally(self, kinds: Sequence[str]) -> list[Tally]:
        return await reading.tally(self._tables, kinds)

    async def scopes(self, kind: str) -> list[str]:
        return await reading.scopes(self._tables, kind)

    async def authors(self) -> list[str]:
        return await reading.authors(self._tables)

    async def frequencies(self, words: Sequence[str]) -> Mapping[str, float]:
        return await matching.frequencies(self._tables, words)

    async def unembedded(self, model: str, kinds: Sequence[str], limit: int) -> list[Record]:
        return await meaning.unembedded(self._tables, model, kinds, limit)

    async def vector_counts(self, model: str, kinds: Sequence[str]) -> tuple[int, int]:
        return await meaning.vector_counts(self._tables, model, kinds)

    async def put_vectors(self, model: str, items: Sequence[Embedded]) -> int:
        if not items:
            return 0
        return await self._tables.in_turn(lambda: meaning.put_vectors(self._tables, model, items))

    async def vectors(self, model: str, ids: Sequence[str]) -> "Mapping[str, NDArray[np.float32]]":
        return await meaning.vectors(self._tables, model, ids)

    async def near(
        self,
        model: str,
        vector: "NDArray[np.float32]",
        where: Where,
        limit: int,
        also: Sequence[str] = (),
    ) -> list[Match]:
        return await meaning.near(self._tables, model, vector, where, limit, also)

    async def note_accesses(self, counts: Mapping[str, int], at: int) -> None:
        if counts:
            await reading.note_accesses(self._tables, counts, at)

    async def accesses(self, ids: Sequence[str]) -> Mapping[str, Access]:
        return await reading.accesses(self._tables, ids)

    async def most_accessed(self, limit: int) -> Mapping[str, Access]:
        return await reading.most_accessed(self._tables, limit)

    async def restock(self, stock: "Stock") -> None:
        await self._tables.in_turn(lambda: restocking.restock(self._tables, stock))

    async def size(self) -> int:
        return 0
