"""Past conversations as they may be given out: without those of projects that are switched off."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from recollect.core.ports import Library, Order, RecordStore, Seen, Tally
from recollect.core.records import Match, Record, Weights, Where
from recollect.core.words import WordQuery
from recollect.families.history.importing.quiet import Quiet
from recollect.families.history.model import CODE, CONVERSATION, SYMBOL, TURN, HistoryOptions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

KINDS = (CONVERSATION, TURN, CODE, SYMBOL)


@dataclass(frozen=True, slots=True)
class Reachable:
    """What is there of the past to whoever asks now."""

    store: RecordStore
    hidden: frozenset[str] = frozenset()  # folders

    async def stamp(self) -> object:
        """Another value once an answer may be another."""
        return await self.store.stamp(), self.hidden


async def reachable(library: Library, options: HistoryOptions) -> Reachable:
    store = await library.history()
    quiet = Quiet(await library.silences(), options.workspace)
    if not quiet.off:
        return Reachable(store)
    folders = {scope for kind in KINDS for scope in await store.scopes(kind)}
    hidden = await asyncio.to_thread(
        lambda: frozenset(folder for folder in folders if quiet.switched_off(folder) is not None)
    )
    if not hidden:
        return Reachable(store)
    discreet = _Discreet(store, hidden, tuple(sorted(folders - hidden)))
    return Reachable(cast(RecordStore, discreet), hidden)


class _Discreet:
    """A store of which the records of some scopes cannot be read; all else is as it was."""

    def __init__(self, store: RecordStore, hidden: frozenset[str], others: tuple[str, ...]) -> None:
        self._store = store
        self._hidden = hidden
        self._others = others

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[Record]:
        found = await self._store.get(ids, include_deleted=include_deleted)
        return [record for record in found if record.scope not in self._hidden]

    async def scan(
        self,
        where: Where,
        *,
        order: Order = "age",
        after: Seen | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        meant = self._narrowed(where)
        if meant is None:
            return []
        return await self._store.scan(meant, order=order, after=after, limit=limit)

    async def match(
        self, words: WordQuery, where: Where, weights: Weights, limit: int
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
        return [] if meant is None else await self._store.near(model, vector, meant, limit, also)

    async def how_many(self, where: Where) -> int:
        meant = self._narrowed(where)
        return 0 if meant is None else await self._store.how_many(meant)

    async def tally(self, kinds: Sequence[str]) -> list[Tally]:
        found = await self._store.tally(kinds)
        return [tally for tally in found if tally.scope not in self._hidden]

    def _narrowed(self, where: Where) -> Where | None:
        """None where nothing is left that it could mean."""
        wanted = where.scopes or self._others
        scopes = tuple(scope for scope in wanted if scope not in self._hidden)
        return replace(where, scopes=scopes) if scopes else None
