"""Calling the tools of the memories as an assistant does, with time and embedding in hand."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from everkept.accounts.project_rule import ProjectRule
from everkept.core.answers import SectionSearch, Sources
from everkept.core.ports import AccessCount, Embedder, Library, ProjectChoice, RecordStore, RecordVector
from everkept.core.records import Batch, Change
from everkept.core.sessions import Session, ToolCall
from everkept.errors import ModelUnavailable
from everkept.families.memories.model import MEMORY, MemoryOptions
from everkept.families.memories.toolset import MemoryTools
from everkept.tools.tool import Toolset
from hash_embedder import HashingEmbedder
from records import DAY_ONE

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
    kinds: tuple[str, ...] = (MEMORY,)

    def wake(self, store: RecordStore) -> None:
        self.woken.append(store)

    async def find_fault(self) -> ModelUnavailable | None:
        return self.fault

    def is_behind(self, store: RecordStore) -> bool:
        return False

    async def wait_for(self, stores: Sequence[RecordStore], within: float) -> list[RecordStore]:
        await self.catch_up()
        return []

    async def wait_until_settled(self, within: float | None = None) -> bool:
        await self.catch_up()
        return True

    async def catch_up(self) -> None:
        while self.woken and self.embedder is not None:
            store = self.woken.pop()
            waiting = await store.find_unembedded(self.embedder.name, self.kinds, 1_000)
            if waiting:
                rows = await self.embedder.embed([record.text for record in waiting])
                items = [
                    RecordVector(record.id, record.version, row) for record, row in zip(waiting, rows, strict=True)
                ]
                await store.put_vectors(self.embedder.name, items)


class Ledger:
    """Counts accesses while the test runs."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.asked = 0

    def note(self, store: RecordStore, ids: Sequence[str]) -> None:
        self.counts.update(ids)

    async def read_accesses(self, store: RecordStore, ids: Sequence[str]) -> Mapping[str, AccessCount]:
        self.asked += 1
        return {i: AccessCount(self.counts[i], DAY_ONE) for i in ids if i in self.counts}


def codes(answer: Mapping[str, Any]) -> list[str]:
    """What an answer warns of."""
    return [warning["code"] for warning in answer.get("warnings", [])]


class Watched:
    """A store that lets something happen just before each of its commits."""

    def __init__(self, store: RecordStore, happens: Callable[[Batch], Awaitable[None]]) -> None:
        self._store = store
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, batch: Batch) -> Change:
        await self._happens(batch)
        return await self._store.commit(batch)


class WatchedProject:
    """Which project is meant, with a store that is watched."""

    def __init__(self, choice: ProjectChoice, happens: Callable[[Batch], Awaitable[None]]) -> None:
        self._choice = choice
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._choice, name)

    async def open_to_read(self, call: ToolCall, name: str | None) -> Watched:
        return Watched(await self._choice.open_to_read(call, name), self._happens)

    async def open_to_write(self, call: ToolCall, name: str | None) -> Watched:
        return Watched(await self._choice.open_to_write(call, name), self._happens)


class WatchedUser:
    """All projects, and a user's store that is watched."""

    def __init__(self, library: Library, happens: Callable[[Batch], Awaitable[None]]) -> None:
        self._library = library
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    async def open_user_store(self) -> Watched:
        return Watched(await self._library.open_user_store(), self._happens)


class CountedStore:
    """A store that counts the questions it is asked, and the records and links it gives."""

    def __init__(self, store: RecordStore, asked: Counter[str], given: Counter[str]) -> None:
        self._store = store
        self._asked = asked
        self._given = given

    def __getattr__(self, name: str) -> Any:
        async def ask(*arguments: Any, **more: Any) -> Any:
            answer = await getattr(self._store, name)(*arguments, **more)
            self._asked[name] += 1
            found = answer.links if isinstance(answer, Sources) else answer
            self._given[name] += len(found) if isinstance(found, list) else 0
            return answer

        return ask


class CountedChoice(ProjectRule):
    """Which project is meant, with a store whose questions are counted."""

    def __init__(self, library: Library) -> None:
        super().__init__(library, configured="shop")
        self.resolved = 0
        self.asked: Counter[str] = Counter()
        self.given: Counter[str] = Counter()

    def begin(self) -> None:
        self.resolved = 0
        self.asked.clear()
        self.given.clear()

    async def open_to_read(self, call: ToolCall, name: str | None) -> RecordStore:
        return self._counted(await super().open_to_read(call, name))

    async def open_to_write(self, call: ToolCall, name: str | None) -> RecordStore:
        return self._counted(await super().open_to_write(call, name))

    def _counted(self, store: RecordStore) -> RecordStore:
        self.resolved += 1
        return cast(RecordStore, CountedStore(store, self.asked, self.given))


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
        options: MemoryOptions | None = None,
        choice: ProjectChoice | None = None,
        bank: SectionSearch | None = None,
    ) -> None:
        self.library = library
        self.clock = clock or Time()
        self.session = session or Session(client="test", id="one")
        self.indexing = indexing or PromptIndexing()
        self.accesses = Ledger()
        self.choice: ProjectChoice = choice or ProjectRule(library, configured=project)
        # No limit on time: a loaded machine must not change what a test sees.
        self.options = options or MemoryOptions(time_limit=None, started_at=DAY_ONE)
        self.family = MemoryTools(self.choice, library, self.indexing, self.accesses, self.clock, self.options, bank)
        self.tools = Toolset(self.family.list_tools())

    async def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        await self.indexing.catch_up()
        return (await self.tools.get(tool).run(self.call(tool), arguments)).facts

    def call(self, tool: str) -> ToolCall:
        return ToolCall(self.session, tool)

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
        return await self.choice.open_to_read(self.call("test"), None)

    def beside(self, session: str) -> "Assistant":
        """Another client of the same data."""
        return Assistant(
            self.library, clock=self.clock, session=Session(client="other", id=session), options=self.options
        )

    def watched(
        self,
        *,
        project: Callable[[Batch], Awaitable[None]] | None = None,
        user: Callable[[Batch], Awaitable[None]] | None = None,
    ) -> "Assistant":
        """The same client, with something that happens just before a commit."""
        choice = cast(ProjectChoice, WatchedProject(self.choice, project)) if project else None
        library = cast(Library, WatchedUser(self.library, user)) if user else self.library
        return Assistant(
            library, clock=self.clock, session=self.session, options=self.options, choice=choice or self.choice
        )
