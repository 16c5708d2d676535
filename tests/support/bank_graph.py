"""The graph of a memory bank, with or without its mirror, and a store that counts its work."""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from everkept.core.ports import Library, RecordStore
from everkept.engines.memory.library import MemoryLibrary
from everkept.families.bank.banks import Bank
from everkept.families.bank.graph.graph_events import OwnChange
from everkept.families.bank.graph.mirror import GraphMirror
from everkept.families.bank.graph.tools import BankGraphTools, DocPointerTools
from everkept.tools.tool import ToolWarning
from memory_bank import Banking, HomeRecords, bank_in


@dataclass
class SilentMirror:
    """Has no file; knows how often it was met and followed, and says what it is told to."""

    met: int = 0
    times_followed: int = 0
    says: list[ToolWarning] = field(default_factory=list[ToolWarning])

    async def merge_log(self, bank: Bank) -> list[ToolWarning]:
        self.met += 1
        return list(self.says)

    async def append_changes(
        self, bank: Bank, store: RecordStore | None = None, own: OwnChange | None = None
    ) -> list[ToolWarning]:
        self.times_followed += 1
        return []

    def get_appended_seq(self, bank: Bank) -> int | None:
        return None


@dataclass
class Graphing:
    """An assistant at the graph's tools: called by their names without `graph_`."""

    banking: Banking
    mirror: SilentMirror

    async def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return await self.banking(f"graph_{tool}", **arguments)

    async def entity(self, name: str, kind: str = "thing", **attrs: Any) -> str:
        given = {"attrs": attrs} if attrs else {}
        made = await self("upsert_entity", name=name, entityType=kind, **given)
        return made["entity"]["id"]

    async def observe(self, entity: str, text: str, **more: Any) -> str:
        return (await self("add_observation", entity=entity, text=text, **more))["observation"]["id"]

    async def link(self, source: str, verb: str, target: str) -> None:
        await self("link_entities", **{"from": source, "relationType": verb, "to": target})

    async def search(self, query: str, **more: Any) -> dict[str, Any]:
        return await self("search", query=query, **more)

    async def names(self, query: str, **more: Any) -> list[str]:
        return [entity["name"] for entity in (await self.search(query, **more))["entities"]]

    async def store(self) -> RecordStore:
        return await self.banking.records.open_to_write(self.banking.bank)


@asynccontextmanager
async def graph_in(home: Path, *, mask: bool = True, library: Library | None = None) -> AsyncGenerator[Graphing, None]:
    library = library or MemoryLibrary()
    async with bank_in(home / "project", library=library) as banking:
        mirror = SilentMirror()
        offer(banking, HomeRecords(library), mirror, mask=mask)
        yield Graphing(banking, mirror)
    await library.close()


def offer(banking: Banking, records: Any, mirror: GraphMirror, *, mask: bool = True) -> None:
    parts = (banking.banks, records, mirror, banking.clock)
    banking.offer(BankGraphTools(*parts, mask=mask), DocPointerTools(*parts, mask=mask))


class CountingStore:
    """Passes every question on, and counts them and the rows of their answers."""

    def __init__(self, store: RecordStore, calls: Counter[str], rows: Counter[str]) -> None:
        self._store = store
        self._calls = calls
        self._rows = rows

    def __getattr__(self, name: str) -> Any:
        ask = cast(Callable[..., Awaitable[Any]], getattr(self._store, name))

        async def counted(*arguments: Any, **options: Any) -> Any:
            answer: object = await ask(*arguments, **options)
            self._calls[name] += 1
            self._rows[name] += len(cast(list[Any], answer)) if isinstance(answer, list) else 0
            return answer  # pyright: ignore[reportUnknownVariableType]

        return counted


@dataclass
class CountingRecords:
    """The records of a bank behind a store that counts."""

    inner: HomeRecords
    calls: Counter[str] = field(default_factory=Counter[str])
    rows: Counter[str] = field(default_factory=Counter[str])

    async def find_project_id(self, bank: Bank) -> str | None:
        return await self.inner.find_project_id(bank)

    async def open_to_read(self, bank: Bank) -> RecordStore:
        return cast(RecordStore, CountingStore(await self.inner.open_to_read(bank), self.calls, self.rows))

    async def open_to_write(self, bank: Bank) -> RecordStore:
        return cast(RecordStore, CountingStore(await self.inner.open_to_write(bank), self.calls, self.rows))

    def begin(self) -> None:
        self.calls.clear()
        self.rows.clear()
