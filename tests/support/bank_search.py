"""A bank whose files are searched, with its index and the tools in hand."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from assistant import PromptIndexing, Watched
from everkept.core.ports import Library, RecordStore
from everkept.core.records import Batch, Record, RecordFilter
from everkept.families.bank.banks import Bank, BankRecords
from everkept.families.bank.model import SECTION_KIND, BankOptions
from everkept.families.bank.search_tools import SearchTools
from everkept.families.bank.section_index import IndexSyncResult, SectionIndex, compute_scope
from everkept.families.bank.section_search import BankSectionSearch
from memory_bank import Banking, HomeRecords, bank_in

Happens = Callable[[Batch], Awaitable[None]]


class WatchedRecords:
    """The records of a bank, with something that happens just before a commit."""

    def __init__(self, records: HomeRecords, happens: Happens) -> None:
        self._records = records
        self._happens = happens

    async def open_to_write(self, bank: Bank) -> Watched:
        return Watched(await self._records.open_to_write(bank), self._happens)


@dataclass
class Searched:
    """Searches as an assistant does; `at` is the bank that is searched."""

    at: Banking
    indexing: PromptIndexing = field(default_factory=lambda: PromptIndexing(kinds=(SECTION_KIND,)))
    time_limit: float | None = None
    watched: Happens | None = None  # happens just before each commit

    def __post_init__(self) -> None:
        at = self.at
        records = WatchedRecords(at.records, self.watched) if self.watched else at.records
        self.index = SectionIndex(
            cast(BankRecords, records), self.indexing, at.clock, at.banks, time_limit=self.time_limit
        )
        self.sections = BankSectionSearch(at.banks, at.records, self.index, self.indexing, at.clock, time_limit=None)
        self.at.offer(SearchTools(at.banks, self.sections, at.clock))

    async def __call__(self, query: str, **more: Any) -> dict[str, Any]:
        """Everything has its vector, as it soon would."""
        await self.sync()
        await self.indexing.catch_up()
        return await self.at("search_memory_bank", query=query, **more)

    async def lines(self, query: str, **more: Any) -> list[tuple[str, int]]:
        return [(found["file"], found["line"]) for found in (await self(query, **more))["results"]]

    async def sync(self) -> IndexSyncResult:
        return await self.index.sync(self.at.bank)

    async def store(self) -> RecordStore:
        return await self.at.records.open_to_read(self.at.bank)

    async def records(self) -> list[Record]:
        where = RecordFilter(kinds=(SECTION_KIND,), scopes=(compute_scope(self.at.bank),))
        found = await (await self.store()).scan(where)
        return sorted(found, key=lambda record: (record.type or "", record.position or 0))

    def beside(self) -> "Searched":
        """Another process at the same bank and the same records."""
        return Searched(self.at)


@asynccontextmanager
async def searched_in(
    home: Path, *, library: Library | None = None, options: BankOptions | None = None
) -> AsyncGenerator[Searched, None]:
    async with bank_in(home, library=library, options=options) as banking:
        yield Searched(banking)
