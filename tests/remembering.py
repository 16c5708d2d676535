"""Calling the tools of the memories as an assistant does, with time and embedding in hand."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from making import DAY_ONE
from recollect.app.projects import ProjectRule
from recollect.core.ports import Access, Embedded, Embedder, Library, ProjectChoice, RecordStore
from recollect.core.sessions import Call, Session
from recollect.embedders.hashing import HashingEmbedder
from recollect.errors import ModelUnavailable
from recollect.families.memories.model import MEMORY, Options
from recollect.families.memories.toolset import MemoryTools
from recollect.tools.toolset import Toolset

SECOND = 1_000_000
DAY = 86_400 * SECOND


@dataclass
class Time:
    """A clock that goes a second on with every look at it."""

    at: int = DAY_ONE

    def __call__(self) -> int:
        self.at += SECOND
        return self.at

    def pass_days(self, days: float) -> None:
        self.at += int(days * DAY)


@dataclass
class PromptIndexing:
    """Embeds what waits before the next call, as the background would soon do."""

    embedder: Embedder | None = field(default_factory=HashingEmbedder)
    fault: ModelUnavailable | None = None
    woken: list[RecordStore] = field(default_factory=list[RecordStore])

    def wake(self, store: RecordStore) -> None:
        self.woken.append(store)

    async def catch_up(self) -> None:
        while self.woken and self.embedder is not None:
            store = self.woken.pop()
            waiting = await store.unembedded(self.embedder.name, (MEMORY,), 1_000)
            if waiting:
                rows = await self.embedder.embed([record.text for record in waiting])
                items = [
                    Embedded(record.id, record.version, row)
                    for record, row in zip(waiting, rows, strict=True)
                ]
                await store.put_vectors(self.embedder.name, items)


class Ledger:
    """Counts accesses while the test runs."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def note(self, store: RecordStore, ids: Sequence[str]) -> None:
        self.counts.update(ids)

    async def of(self, store: RecordStore, ids: Sequence[str]) -> Mapping[str, Access]:
        return {i: Access(self.counts[i], DAY_ONE) for i in ids if i in self.counts}


class Assistant:
    """Calls the tools of the memories and gives their structured answers."""

    def __init__(
        self,
        library: Library,
        *,
        clock: Time | None = None,
        project: str = "shop",
        session: Session | None = None,
        indexing: PromptIndexing | None = None,
        options: Options | None = None,
        choice: ProjectChoice | None = None,
    ) -> None:
        self.library = library
        self.clock = clock or Time()
        self.session = session or Session(client="test", id="one")
        self.indexing = indexing or PromptIndexing()
        self.accesses = Ledger()
        self.choice: ProjectChoice = choice or ProjectRule(library, configured=project)
        # No limit on time: a loaded machine must not change what a test sees.
        self.options = options or Options(time_limit=None, started_at=DAY_ONE)
        self.family = MemoryTools(
            self.choice, library, self.indexing, self.accesses, self.clock, self.options
        )
        self.tools = Toolset(self.family.tools())

    async def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        await self.indexing.catch_up()
        return (await self.tools.get(tool).run(self.call(tool), arguments)).structured

    def call(self, tool: str) -> Call:
        return Call(self.session, tool)

    async def store(self, content: str, scope: str = "project", **more: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {"content": content, "type": "semantic", "scope": scope}
        return await self("store_memory", **(fields | more))

    async def stored(self, content: str, scope: str = "project", **more: Any) -> str:
        return (await self.store(content, scope, **more))["memory_id"]

    async def recall(self, query: str, **more: Any) -> list[dict[str, Any]]:
        return (await self("recall_memories", query=query, **more))["memories"]

    async def texts(self, query: str, **more: Any) -> list[str]:
        return [memory["content"] for memory in await self.recall(query, **more)]

    async def project_store(self) -> RecordStore:
        return await self.choice.to_read(self.call("test"), None)

    def beside(self, session: str) -> "Assistant":
        """Another client of the same data."""
        return Assistant(
            self.library,
            clock=self.clock,
            session=Session(client="other", id=session),
            options=self.options,
        )
