"""Past conversations for tests: turns with their code, put straight into a store."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from assistant import PromptIndexing
from everkept.core.answers import Finder
from everkept.core.answers import SearchRecord as Searched
from everkept.core.peers import Peers
from everkept.core.ports import Embedder, Library, RecordStore, RecordVector
from everkept.core.records import Batch, Insert, Record, RecordLink, Step
from everkept.core.sessions import Session, ToolCall
from everkept.core.times import Clock
from everkept.families.history.model import (
    CODE,
    CONVERSATION,
    DEFINES,
    IMPORT_TOOL,
    SAID,
    SYMBOL,
    TURN,
    HistoryOptions,
    build_block_id,
    build_conversation_id,
    build_symbol_id,
    build_turn_id,
)
from everkept.families.history.toolset import HistoryTools
from everkept.families.history.unified_search import UnifiedSearch
from everkept.tools.tool import ToolResult, Toolset
from hash_embedder import HashingEmbedder
from records import DAY_ONE

SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 86_400 * SECOND
SHOP = "/home/ann/shop-api"


@dataclass(frozen=True)
class Written:
    """Code of a turn; `defines` are names of functions."""

    text: str
    language: str | None = "python"
    file: str | None = None
    defines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Said:
    author: str
    text: str
    type: str = SAID
    code: tuple[Written, ...] = ()
    facets: dict[str, Any] = field(default_factory=dict[str, Any])


def user(text: str, **more: Any) -> Said:
    return Said("user", text, **more)


def assistant(text: str, **more: Any) -> Said:
    return Said("assistant", text, **more)


async def tell(
    store: RecordStore,
    session: str,
    *turns: Said | str,
    project: str = SHOP,
    source: str = "claude-code",
    at: int = DAY_ONE,
    title: str | None = None,
    **facets: Any,
) -> list[str]:
    """Stores a conversation and gives the ids of its turns. A bare text is the user's and the
    assistant's in turn; a minute lies between two of them."""
    said = [
        turn if isinstance(turn, Said) else Said(("user", "assistant")[number % 2], turn)
        for number, turn in enumerate(turns)
    ]
    parent = build_conversation_id(source, session)
    about = {"source": source, "project": project, "turns": len(said), "ended": at + max(len(said) - 1, 0) * MINUTE}
    steps: list[Step] = [
        Insert(
            Record(
                id=parent,
                kind=CONVERSATION,
                created_at=at,
                updated_at=at,
                name=title or (said[0].text[:60] if said else session),
                session=session,
                scope=project,
                occurred_at=at,
                facets=about | facets,
            )
        )
    ]
    ids: list[str] = []
    for number, turn in enumerate(said):
        record = Record(
            id=build_turn_id(source, f"{session}/{number}"),
            kind=TURN,
            created_at=at,
            updated_at=at,
            text=turn.text,
            type=turn.type,
            parent=parent,
            author=turn.author,
            session=session,
            position=number,
            scope=project,
            occurred_at=at + number * MINUTE,
            facets={"source": source} | turn.facets,
        )
        ids.append(record.id)
        steps.append(Insert(record))
        for place, code in enumerate(turn.code):
            steps += await _coded(store, record, place, code)
    await store.commit(Batch(tuple(steps), at, IMPORT_TOOL, derived=True))
    return ids


async def embed(store: RecordStore, embedder: Embedder | None = None, kinds: Sequence[str] = (TURN, CODE)) -> None:
    """Gives all that waits its vector."""
    model = embedder or HashingEmbedder()
    waiting = await store.find_unembedded(model.name, kinds, 10_000)
    if waiting:
        rows = await model.embed([record.text for record in waiting])
        items = [RecordVector(r.id, r.version, row) for r, row in zip(waiting, rows, strict=True)]
        await store.put_vectors(model.name, items)


async def _coded(store: RecordStore, turn: Record, place: int, code: Written) -> list[Step]:
    record = Record(
        id=build_block_id(turn.id, place),
        kind=CODE,
        created_at=turn.created_at,
        updated_at=turn.updated_at,
        text=code.text,
        type=code.language,
        name=code.file,
        parent=turn.id,
        author=turn.author,
        session=turn.session,
        scope=turn.scope,
        occurred_at=turn.occurred_at,
        facets={"change": "block", "turn_position": turn.position},
    )
    steps: list[Step] = [Insert(record)]
    for name in code.defines:
        symbol = build_symbol_id(turn.scope, name)
        if not await store.get([symbol]):
            steps.append(
                Insert(
                    Record(
                        id=symbol,
                        kind=SYMBOL,
                        created_at=turn.created_at,
                        updated_at=turn.updated_at,
                        name=name,
                        name_key=name,
                        variant=turn.scope,
                        type="function",
                        scope=turn.scope,
                    )
                )
            )
        link = f"{record.id} {name}"
        steps.append(Insert(RecordLink(link, record.id, DEFINES, symbol, turn.created_at)))
    return steps


@dataclass
class Moment:
    """A clock that stands still until it is set."""

    at: int = DAY_ONE + DAY

    def __call__(self) -> int:
        return self.at


class Book:
    """What was searched for, while the test runs."""

    def __init__(self) -> None:
        self.noted: list[Searched] = []

    def note(self, search: Searched) -> None:
        self.noted.append(search)

    async def list_newest(self, *, session: str | None = None, limit: int = 100) -> list[Searched]:
        return self.noted[::-1][:limit]


class Historian:
    """Calls the tools of past conversations and gives their structured answers."""

    def __init__(
        self,
        library: Library,
        clock: Clock,
        *,
        indexing: PromptIndexing | None = None,
        options: HistoryOptions | None = None,
        finders: Sequence[Finder] = (),
        peers: Peers | None = None,
    ) -> None:
        self.book = Book()
        self.session = Session("test")
        self._indexing = indexing or PromptIndexing(kinds=(TURN, CODE))
        settings = options or HistoryOptions(time_limit=None)
        unified = UnifiedSearch(library, finders, self._indexing, clock, settings)
        self.tools = Toolset(
            HistoryTools(library, self._indexing, self.book, clock, settings, unified, peers).list_tools()
        )

    async def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return (await self.result(tool, **arguments)).facts

    async def result(self, tool: str, **arguments: Any) -> ToolResult:
        found = self.tools.get(tool)
        return await found.run(ToolCall(self.session, found.name), arguments)
