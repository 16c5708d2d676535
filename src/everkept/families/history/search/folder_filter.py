"""Past conversations as they may be given out: without those of folders that are switched off."""

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from everkept.core.records import Link, Match, Record, Weights, Where
from everkept.core.walking import Hops, hop_by_hop
from everkept.families.history.importing.quiet import Quiet, Workspace
from everkept.families.history.model import CODE, CONVERSATION, SYMBOL, TURN, HistoryOptions
from everkept.values import Value, replace

if TYPE_CHECKING:  # an assistant's hooks look through this too, and load only what they use
    import numpy as np
    from numpy.typing import NDArray

    from everkept.core.ports import Direction, Library, Order, RecordStore, Seen, Tally
    from everkept.core.projects import Silence
    from everkept.language.words import WordQuery


KINDS = (CONVERSATION, TURN, CODE, SYMBOL)

# Of the port, what tells nothing of what was said: names, numbers over all records, and states.
PASSED = frozenset({"authors", "count", "frequencies", "stamp", "vector_counts"})


async def folders_of(store: "RecordStore") -> frozenset[str]:
    """In which anything was said that is kept."""
    return frozenset([scope for kind in KINDS for scope in await store.scopes(kind)])


def without(
    store: "RecordStore", folders: Collection[str], hidden: frozenset[str]
) -> "RecordStore":
    """The store as if nothing had been said in the hidden ones of its folders."""
    if not hidden:
        return store
    others = tuple(sorted(folder for folder in folders if folder not in hidden))
    return cast("RecordStore", Discreet(store, hidden, others))


class Discreet:
    """Reads of a store of which the records of some scopes cannot be reached.

    What is neither defined here nor passed on is not there: a way to read that the port gets one
    day must be thought about first.
    """

    def __init__(
        self, store: "RecordStore", hidden: frozenset[str], others: tuple[str, ...]
    ) -> None:
        self._store = store
        self._hidden = hidden
        self._others = others

    def __getattr__(self, name: str) -> Any:
        if name not in PASSED:
            raise AttributeError(f"{name} may tell what is hidden here")
        return getattr(self._store, name)

    async def get(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[Record]:
        found = await self._store.get(ids, include_deleted=include_deleted)
        return [record for record in found if record.scope not in self._hidden]

    async def scan(
        self,
        where: Where,
        *,
        order: "Order" = "age",
        after: "Seen | None" = None,
        limit: int | None = None,
    ) -> list[Record]:
        meant = self._narrowed(where)
        if meant is None:
            return []
        return await self._store.scan(meant, order=order, after=after, limit=limit)

    async def match(
        self, words: "WordQuery", where: Where, weights: Weights, limit: int
    ) -> list[Match]:
        meant = self._narrowed(where)
        return [] if meant is None else await self._store.match(words, meant, weights, limit)

    async def containing(self, text: str, where: Where, limit: int) -> list[Match]:
        meant = self._narrowed(where)
        return [] if meant is None else await self._store.containing(text, meant, limit)

    async def near(
        self,
        model: str,
        vector: "NDArray[np.float32]",
        where: Where,
        limit: int,
        also: Sequence[str] = (),
    ) -> list[Match]:
        meant = self._narrowed(where)
        if meant is None:
            return []
        known = [record.id for record in await self.get(also)] if also else ()
        return await self._store.near(model, vector, meant, limit, known)

    async def links(
        self,
        ids: Sequence[str],
        *,
        direction: "Direction" = "both",
        sources: Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Link]:
        found = await self._store.links(ids, direction=direction, sources=sources, limit=limit)
        ends = {end for link in found for end in (link.source, link.target)}
        known = {record.id for record in await self.get(list(ends))} if ends else ends
        return [link for link in found if link.source in known and link.target in known]

    async def walk(self, ids: Sequence[str], hops: Hops) -> list[list[Link]]:
        return await hop_by_hop(self.links, ids, hops)

    async def how_many(self, where: Where) -> int:
        if where == Where():  # the number that frequencies are shares of
            return await self._store.how_many(where)
        meant = self._narrowed(where)
        return 0 if meant is None else await self._store.how_many(meant)

    async def tally(self, kinds: Sequence[str]) -> "list[Tally]":
        found = await self._store.tally(kinds)
        return [tally for tally in found if tally.scope not in self._hidden]

    async def scopes(self, kind: str) -> list[str]:
        return [scope for scope in await self._store.scopes(kind) if scope not in self._hidden]

    async def unembedded(self, model: str, kinds: Sequence[str], limit: int) -> list[Record]:
        """Of the first ones that wait, so that these may be fewer than the limit allows."""
        found = await self._store.unembedded(model, kinds, limit)
        return [record for record in found if record.scope not in self._hidden]

    def _narrowed(self, where: Where) -> Where | None:
        """None where nothing is left that it could mean."""
        wanted = where.scopes or self._others
        scopes = tuple(scope for scope in wanted if scope not in self._hidden)
        return replace(where, scopes=scopes) if scopes else None


class Reachable(Value):
    """What is there of the past to whoever asks now."""

    store: "RecordStore"
    whole: "RecordStore"  # with what may not be given out
    hidden: frozenset[str] = frozenset()  # folders

    async def stamp(self) -> object:
        """Another value once an answer may be another."""
        return await self.store.stamp(), self.hidden


async def reachable(library: "Library", options: HistoryOptions) -> Reachable:
    store = await library.history()
    quiet = _quiet(tuple(await library.silences()), options.workspace)
    if not quiet.off:
        return Reachable(store, store)
    from asyncio import to_thread

    folders = await folders_of(store)
    hidden = await to_thread(quiet.hidden, folders)
    return Reachable(without(store, folders, hidden), store, hidden)


async def project_off(library: "Library", options: HistoryOptions, folder: str) -> str | None:
    """The name of the project that a folder belongs to and that is off."""
    from asyncio import to_thread

    quiet = _quiet(tuple(await library.silences()), options.workspace)
    around = await to_thread(quiet.switched_off, folder)
    project = None if around is None else await library.project_of_workspace(around)
    return None if project is None else project.name


@lru_cache(8)
def _quiet(silences: "tuple[Silence, ...]", workspace: Workspace) -> Quiet:
    """Kept from call to call: it looks at each folder on the disk once."""
    return Quiet(silences, workspace)
