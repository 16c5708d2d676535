"""One project's records in a database that may be away, with a copy of them here."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import uuid4

from everkept.core.copies import Stock
from everkept.core.ports import (
    Access,
    Direction,
    Embedded,
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
    Delete,
    Edit,
    Insert,
    Link,
    Match,
    Record,
    Ref,
    Restore,
    Step,
    Update,
    Weights,
    Where,
)
from everkept.core.subgraphs import Selection, Subgraph
from everkept.core.walking import Hops, Sources
from everkept.engines.standby.copy.sides import Ends
from everkept.engines.standby.either import BROKEN, Either
from everkept.engines.standby.journal.acts import Commit
from everkept.engines.standby.replay.rebasing import rebased
from everkept.errors import Conflict, EverkeptError, StoreAway
from everkept.language.words import WordQuery
from everkept.values import replace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

RECENT = 200  # changes among which one is looked for that may have been made a moment ago
# Whoever compares stamps must see that the other side answers: no count of vectors is as large.
_TURN = 1 << 40
_FOR_GOOD = "cannot be removed for good while the database is away: a copy would stay there."

log = logging.getLogger(__name__)


class Wakes(Protocol):
    """Keeps the copy near the database, soon and in the background."""

    def wake(self, name: str, *, at_once: bool = False) -> None:
        """Something was stored there."""
        ...

    def learn(self, model: str, kinds: Sequence[str]) -> None:
        """Vectors of this model are in use, for records of these kinds."""
        ...


class StandbyStore:
    """Outlives every return of the database: both sides are found anew when they are needed."""

    def __init__(self, ends: Ends, either: Either, follower: Wakes) -> None:
        self.ends = ends
        self._either = either
        self._follower = follower

    async def commit(self, batch: Batch) -> Change:
        keyed = batch if batch.key else replace(batch, key=uuid4().hex)

        async def there(_again: bool) -> Change:
            change = await (await self.ends.there()).commit(keyed)
            recent = self.ends.recent
            recent.add(keyed, change)
            self._follower.wake(self.ends.name, at_once=recent.is_filling)
            return change

        return await self._either.write(there, lambda unknown: self._keep(keyed, unknown=unknown))

    async def get(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[Record]:
        return await self._read(lambda store: store.get(ids, include_deleted=include_deleted))

    async def scan(
        self,
        where: Where,
        *,
        order: Order = "age",
        after: Seen | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        return await self._read(
            lambda store: store.scan(where, order=order, after=after, limit=limit)
        )

    async def match(
        self, words: WordQuery, where: Where, weights: Weights, limit: int
    ) -> list[Match]:
        return await self._read(lambda store: store.match(words, where, weights, limit))

    async def containing(self, text: str, where: Where, limit: int) -> list[Match]:
        return await self._read(lambda store: store.containing(text, where, limit))

    async def links(
        self,
        ids: Sequence[str],
        *,
        direction: Direction = "both",
        sources: Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Link]:
        return await self._read(
            lambda store: store.links(ids, direction=direction, sources=sources, limit=limit)
        )

    async def subgraph(self, wanted: Selection) -> Subgraph:
        return await self._read(lambda store: store.subgraph(wanted))

    async def walk(self, ids: Sequence[str], hops: Hops) -> list[list[Link]]:
        return await self._read(lambda store: store.walk(ids, hops))

    async def sources_of(self, ids: Sequence[str], where: Where, limit: int) -> Sources:
        return await self._read(lambda store: store.sources_of(ids, where, limit))

    async def get_links(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[Link]:
        return await self._read(lambda store: store.get_links(ids, include_deleted=include_deleted))

    async def scan_links(self, *, deleted: bool | None, containing: str = "") -> list[Link]:
        return await self._read(
            lambda store: store.scan_links(deleted=deleted, containing=containing)
        )

    async def count(self) -> Mapping[str, int]:
        return await self._read(lambda store: store.count())

    async def how_many(self, where: Where) -> int:
        return await self._read(lambda store: store.how_many(where))

    async def changes(
        self,
        *,
        after: int = 0,
        limit: int = 100,
        newest_first: bool = False,
        most_edits: int | None = None,
    ) -> list[Change]:
        return await self._read(
            lambda store: store.changes(
                after=after, limit=limit, newest_first=newest_first, most_edits=most_edits
            )
        )

    async def history(self, refs: Sequence[Ref], *, after: int = 0) -> list[tuple[int, Edit]]:
        return await self._read(lambda store: store.history(refs, after=after))

    async def purge(self, refs: Sequence[Ref]) -> Purged:
        return await self._for_good(refs, lambda store: store.purge(refs), belongings=True)

    async def redact(self, refs: Sequence[Ref], clean: Redaction) -> Purged:
        return await self._for_good(refs, lambda store: store.redact(refs, clean), belongings=False)

    async def revision(self) -> int:
        return await self._read(lambda store: store.revision())

    async def stamp(self) -> tuple[int, int]:
        newest, moves = await self._read(lambda store: store.stamp())
        return newest, moves + self._either.reaching.turns * _TURN

    async def check(self) -> list[str]:
        return await self._read(lambda store: store.check())

    async def tally(self, kinds: Sequence[str]) -> list[Tally]:
        return await self._read(lambda store: store.tally(kinds))

    async def scopes(self, kind: str) -> list[str]:
        return await self._read(lambda store: store.scopes(kind))

    async def authors(self) -> list[str]:
        return await self._read(lambda store: store.authors())

    async def frequencies(self, words: Sequence[str]) -> Mapping[str, float]:
        return await self._read(lambda store: store.frequencies(words))

    async def unembedded(self, model: str, kinds: Sequence[str], limit: int) -> list[Record]:
        self._follower.learn(model, kinds)
        return await self._read(lambda store: store.unembedded(model, kinds, limit))

    async def vector_counts(self, model: str, kinds: Sequence[str]) -> tuple[int, int]:
        self._follower.learn(model, kinds)
        return await self._read(lambda store: store.vector_counts(model, kinds))

    async def put_vectors(self, model: str, items: Sequence[Embedded]) -> int:
        return await self._aside(lambda store: store.put_vectors(model, items))

    async def vectors(self, model: str, ids: Sequence[str]) -> "Mapping[str, NDArray[np.float32]]":
        return await self._read(lambda store: store.vectors(model, ids))

    async def near(
        self,
        model: str,
        vector: "NDArray[np.float32]",
        where: Where,
        limit: int,
        also: Sequence[str] = (),
    ) -> list[Match]:
        return await self._read(lambda store: store.near(model, vector, where, limit, also))

    async def note_accesses(self, counts: Mapping[str, int], at: int) -> None:
        await self._aside(lambda store: store.note_accesses(counts, at))

    async def accesses(self, ids: Sequence[str]) -> Mapping[str, Access]:
        return await self._read(lambda store: store.accesses(ids))

    async def most_accessed(self, limit: int) -> Mapping[str, Access]:
        return await self._read(lambda store: store.most_accessed(limit))

    async def restock(self, stock: Stock) -> None:
        await self._either.promised(
            lambda _: self._there(lambda store: store.restock(stock)),
            "What is copied cannot be kept here until the database is back.",
        )
        self._follower.wake(self.ends.name)

    async def size(self) -> int:
        return await self._read(lambda store: store.size())

    async def _read(self, ask: Callable[[RecordStore], Awaitable[T]]) -> T:
        return await self._either.read(lambda: self._there(ask), lambda: self._here(ask))

    async def _aside(self, ask: Callable[[RecordStore], Awaitable[T]]) -> T:
        return await self._either.aside(lambda: self._there(ask), lambda: self._here(ask))

    async def _there(self, ask: Callable[[RecordStore], Awaitable[T]]) -> T:
        return await ask(await self.ends.there())

    async def _here(self, ask: Callable[[RecordStore], Awaitable[T]]) -> T:
        await self.flush()
        return await ask(await self.ends.at_hand())

    async def flush(self) -> None:
        """What was stored there just now is here too, as far as that can be."""
        if not self.ends.recent:
            return
        try:
            async with self._either.alone():
                await self.ends.recent.bring_to(await self.ends.at_hand())
        except EverkeptError as error:
            log.debug("what was stored in %s just now is not here: %r", self.ends.name, error)

    async def _for_good(
        self,
        refs: Sequence[Ref],
        ask: Callable[[RecordStore], Awaitable[Purged]],
        *,
        belongings: bool,
    ) -> Purged:
        """There, here, and in what waits or is set aside."""

        async def there(again: bool) -> Purged:
            done = await self._there(ask)
            return await self._at_least(done, refs) if again else done

        done = await self._either.promised(there, f"What is stored {_FOR_GOOD}")
        is_forgotten = await self._either.forget(self.ends.name, refs, belongings=belongings)
        try:
            is_gone_here = (await self._here(ask)).complete
        except EverkeptError:  # what is left here is removed when the copy follows
            is_gone_here = False
        self._follower.wake(self.ends.name)
        return replace(done, complete=done.complete and is_forgotten and is_gone_here)

    async def _at_least(self, done: Purged, refs: Sequence[Ref]) -> Purged:
        """An attempt that got no answer may have done it: what is still here was there then."""
        try:
            records, links = await self._here(lambda store: _found(store, refs))
        except EverkeptError:
            return replace(done, complete=False)
        return replace(done, records=max(done.records, records), links=max(done.links, links))

    async def _keep(self, batch: Batch, *, unknown: bool) -> Change:
        try:
            store = await self.ends.at_hand()
            await self.ends.recent.bring_to(store)
            await store.revision()
        except BROKEN as error:
            return await self._either.kept(
                Commit(self.ends.name, batch), _raising(error), instead=lambda: _unseen(batch)
            )
        try:
            return await self._journaled(batch, store, batch)
        except Conflict:
            if not unknown:
                raise
        if made := await _logged(batch, store):
            return made
        # To refuse it would have the caller plan anew what is perhaps done already.
        fitting = await rebased(batch, store)
        if fitting is None:
            raise StoreAway(
                "The database went away while something was stored; whether that was done is not "
                f"known. {self._either.reaching.reason}",
                hint="Look whether it is there when the database is back.",
            )
        return await self._journaled(batch, store, fitting)

    async def _journaled(self, batch: Batch, store: RecordStore, here: Batch) -> Change:
        return await self._either.kept(
            Commit(self.ends.name, batch),
            lambda: store.commit(here),
            local_seq=await store.revision() + 1,
            instead=lambda: _unseen(here),
        )


async def _logged(batch: Batch, store: RecordStore) -> Change | None:
    """The change of a batch that came here with what was copied."""
    wanted = {_id_of(step) for step in batch.steps}
    for change in await store.changes(limit=RECENT, newest_first=True):
        is_like_it = (change.at, change.tool, change.client) == (batch.at, batch.tool, batch.client)
        if is_like_it and wanted <= {edit.id for edit in change.edits}:
            return change
    return None


async def _found(store: RecordStore, refs: Sequence[Ref]) -> tuple[int, int]:
    records = [ref.id for ref in refs if ref.subject == "record"]
    links = [ref.id for ref in refs if ref.subject == "link"]
    return (
        len(await store.get(records, include_deleted=True)),
        len(await store.get_links(links, include_deleted=True)),
    )


def _raising(error: Exception) -> Callable[[], Awaitable[Change]]:
    async def fails() -> Change:
        raise error

    return fails


def _unseen(batch: Batch) -> Change:
    """What a batch does, as far as that is known without what is stored; it has no number yet."""
    edits = tuple(_edit(step) for step in batch.steps)
    return Change(0, batch.at, batch.tool, batch.client, batch.undoes, edits)


def _edit(step: Step) -> Edit:
    match step:
        case Insert(item):
            return Edit("insert", item.ref.subject, item.id)
        case Update():
            return Edit("update", "record", step.id, {})
        case Delete(ref):
            return Edit("delete", ref.subject, ref.id, {"deleted_at": None})
        case Restore(ref):
            return Edit("restore", ref.subject, ref.id, {})


def _id_of(step: Step) -> str:
    match step:
        case Insert(item):
            return item.id
        case Update():
            return step.id
        case Delete(ref) | Restore(ref):
            return ref.id
