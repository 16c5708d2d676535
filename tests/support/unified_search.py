"""A search over everything, with a history to find things in and other families in hand."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from assistant import PromptIndexing
from conversations import embed
from everkept.core.answers import SearchFinding, SearchFindings, SearchType
from everkept.core.ports import Library, RecordStore
from everkept.core.sessions import Session, ToolCall
from everkept.errors import EverkeptError
from everkept.families.history.model import CODE, TURN, HistoryOptions
from everkept.families.history.search_answers import UnifiedAnswer
from everkept.families.history.unified_search import UnifiedSearch
from records import DAY_ONE


@dataclass
class Told:
    """A family that has an answer ready, keeps one waiting for ever, or fails."""

    name: str
    hits: list[SearchFinding] = field(default_factory=list[SearchFinding])
    notices: list[str] = field(default_factory=list[str])
    fails_with: EverkeptError | None = None
    is_late: bool = False
    asked: list[tuple[str, tuple[SearchType, ...], int]] = field(
        default_factory=list[tuple[str, tuple[SearchType, ...], int]]
    )
    state: object = 0

    async def find(
        self, call: ToolCall, query: str, ways: Sequence[SearchType], limit: int, *, all_projects: bool = False
    ) -> SearchFindings:
        self.asked.append((query, tuple(ways), limit))
        if self.is_late:
            await asyncio.Event().wait()
        if self.fails_with is not None:
            raise self.fails_with
        return SearchFindings(self.hits, self.notices)

    async def get_stamp(self, call: ToolCall) -> object:
        if self.fails_with is not None:
            raise self.fails_with
        return self.state


@dataclass
class Everything:
    """Searches as an assistant does; every turn has its vector."""

    library: Library
    now: int = DAY_ONE
    indexing: PromptIndexing = field(default_factory=lambda: PromptIndexing(kinds=(TURN, CODE)))

    async def store(self) -> RecordStore:
        return await self.library.open_history_store()

    def unified(self, *families: Told, time_limit: float | None = None) -> UnifiedSearch:
        options = HistoryOptions(time_limit=time_limit)
        return UnifiedSearch(self.library, families, self.indexing, lambda: self.now, options)

    async def __call__(
        self,
        query: str,
        *families: Told,
        limit: int = 10,
        merge: bool = True,
        include_graph: bool = True,
        time_limit: float | None = None,
    ) -> UnifiedAnswer:
        if self.indexing.embedder is not None:
            await embed(await self.store(), self.indexing.embedder)
        return await self.unified(*families, time_limit=time_limit).search(
            ToolCall(Session(), "unified_memory_search"), query, limit=limit, merge=merge, include_graph=include_graph
        )
