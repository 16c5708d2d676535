"""A store as an account reaches it: what it may not write is refused, what it writes is signed."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from everkept.app.accounts.homes import Home, home_name
from everkept.app.projects import empty_store
from everkept.core.accounts import signed
from everkept.core.ports import (
    Access,
    Direction,
    Embedded,
    Library,
    Order,
    Purged,
    RecordStore,
    Redaction,
    Seen,
    Tally,
)
from everkept.core.records import (
    Batch,
    Change,
    Edit,
    Link,
    Match,
    Record,
    Ref,
    Weights,
    Where,
)
from everkept.core.subgraphs import Selection, Subgraph
from everkept.core.walking import Hops, Sources
from everkept.errors import Conflict, NotFound, ReadOnly, Refused
from everkept.language.words import WordQuery
from everkept.values import replace

if TYPE_CHECKING:  # numpy takes a tenth of a second to import, and only who embeds needs it
    import numpy as np
    from numpy.typing import NDArray

    from everkept.core.copies import Stock


class GuardedStore:
    """Passes every question on; who writes is looked at first.

    Vectors and access counts are no changes: whoever may read may bring them along.
    """

    async def _to_read(self) -> RecordStore:
        raise NotImplementedError

    async def _to_write(self) -> RecordStore:
        raise NotImplementedError

    async def commit(self, batch: Batch) -> Change:
        store = await self._to_write()
        return await store.commit(replace(batch, client=signed(batch.client)))

    async def purge(self, refs: Sequence[Ref]) -> Purged:
        return await (await self._to_write()).purge(refs)

    async def redact(self, refs: Sequence[Ref], clean: Redaction) -> Purged:
        return await (await self._to_write()).redact(refs, clean)

    async def restock(self, stock: "Stock") -> None:
        await (await self._to_write()).restock(stock)

    async def size(self) -> int:
        """The disk is the owner's: an engine may know only what all stores take together."""
        return 0

    async def get(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[Record]:
        return await (await self._to_read()).get(ids, include_deleted=include_deleted)

    async def scan(
        self,
        where: Where,
        *,
        order: Order = "age",
        after: Seen | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        return await (await self._to_read()).scan(where, order=order, after=after, limit=limit)

    async def match(
        self, words: WordQuery, where: Where, weights: Weights, limit: int
    ) -> list[Match]:
        return await (await self._to_read()).match(words, where, weights, limit)

    async def containing(self, text: str, where: Where, limit: int) -> list[Match]:
        return await (await self._to_read()).containing(text, where, limit)

    async def links(
        self,
        ids: Sequence[str],
        *,
        direction: Direction = "both",
        sources: Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Link]:
        return await (await self._to_read()).links(
            ids, direction=direction, sources=sources, limit=limit
        )

    async def subgraph(self, wanted: Selection) -> Subgraph:
        return await (await self._to_read()).subgraph(wanted)

    async def walk(self, ids: Sequence[str], hops: Hops) -> list[list[Link]]:
        return await (await self._to_read()).walk(ids, hops)

    async def sources_of(self, ids: Sequence[str], where: Where, limit: int) -> Sources:
        return await (await self._to_read()).sources_of(ids, where, limit)

    async def get_links(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[Link]:
        return await (await self._to_read()).get_links(ids, include_deleted=include_deleted)

    async def scan_links(self, *, deleted: bool | None, containing: str = "") -> list[Link]:
        return await (await self._to_read()).scan_links(deleted=deleted, containing=containing)

    async def count(self) -> Mapping[str, int]:
        return await (await self._to_read()).count()

    async def how_many(self, where: Where) -> int:
        return await (await self._to_read()).how_many(where)

    async def changes(
        self,
        *,
        after: int = 0,
        limit: int = 100,
        newest_first: bool = False,
        most_edits: int | None = None,
    ) -> list[Change]:
        return await (await self._to_read()).changes(
            after=after, limit=limit, newest_first=newest_first, most_edits=most_edits
        )

    async def history(self, refs: Sequence[Ref], *, after: int = 0) -> list[tuple[int, Edit]]:
        return await (await self._to_read()).history(refs, after=after)

    async def revision(self) -> int:
        return await (await self._to_read()).revision()

    async def stamp(self) -> tuple[int, int]:
        return await (await self._to_read()).stamp()

    async def check(self) -> list[str]:
        return await (await self._to_read()).check()

    async def tally(self, kinds: Sequence[str]) -> list[Tally]:
        return await (await self._to_read()).tally(kinds)

    async def scopes(self, kind: str) -> list[str]:
        return await (await self._to_read()).scopes(kind)

    async def authors(self) -> list[str]:
        return await (await self._to_read()).authors()

    async def frequencies(self, words: Sequence[str]) -> Mapping[str, float]:
        return await (await self._to_read()).frequencies(words)

    async def unembedded(self, model: str, kinds: Sequence[str], limit: int) -> list[Record]:
        return await (await self._to_read()).unembedded(model, kinds, limit)

    async def vector_counts(self, model: str, kinds: Sequence[str]) -> tuple[int, int]:
        return await (await self._to_read()).vector_counts(model, kinds)

    async def put_vectors(self, model: str, items: Sequence[Embedded]) -> int:
        return await (await self._to_read()).put_vectors(model, items)

    async def vectors(self, model: str, ids: Sequence[str]) -> Mapping[str, "NDArray[np.float32]"]:
        return await (await self._to_read()).vectors(model, ids)

    async def near(
        self,
        model: str,
        vector: "NDArray[np.float32]",
        where: Where,
        limit: int,
        also: Sequence[str] = (),
    ) -> list[Match]:
        return await (await self._to_read()).near(model, vector, where, limit, also)

    async def note_accesses(self, counts: Mapping[str, int], at: int) -> None:
        await (await self._to_read()).note_accesses(counts, at)

    async def accesses(self, ids: Sequence[str]) -> Mapping[str, Access]:
        return await (await self._to_read()).accesses(ids)

    async def most_accessed(self, limit: int) -> Mapping[str, Access]:
        return await (await self._to_read()).most_accessed(limit)


class SharedStore(GuardedStore):
    """A project's store; one for all accounts that know it by this name and may do the same."""

    def __init__(self, store: RecordStore, name: str, *, writes: bool, is_own: bool) -> None:
        self.store = store
        self._name = name
        self._writes = writes
        self._is_own = is_own

    async def _to_read(self) -> RecordStore:
        return self.store

    async def _to_write(self) -> RecordStore:
        self.check_writable()
        return self.store

    def check_writable(self) -> None:
        if not self._writes:
            raise ReadOnly(
                f'Project "{self._name}" is shared with you for reading alone.',
                hint="Whoever shares it can let you write.",
                project=self._name,
            )

    def check_own(self) -> None:
        if not self._is_own:
            raise Refused(
                "This project is shared with you: a memory that becomes yours alone would be gone "
                "for all others.",
                hint="Store a memory of your own with the scope `user`.",
            )


class HomeStore(GuardedStore):
    """What is an account's alone; made at its first write."""

    def __init__(self, library: Library, home: Home, user: str) -> None:
        self._library = library
        self._name = home_name(home, user)

    async def _to_read(self) -> RecordStore:
        try:
            return (await self._library.open(self._name))[1]
        except NotFound:
            return empty_store()

    async def _to_write(self) -> RecordStore:
        try:
            return (await self._library.open(self._name))[1]
        except NotFound:
            with suppress(Conflict):  # another server was quicker
                await self._library.create(self._name, "")
        return (await self._library.open(self._name))[1]
