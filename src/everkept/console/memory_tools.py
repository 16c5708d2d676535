"""Tools of the pages about memories and conversations: lists with counts, one with its versions, changes to many."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from everkept.app.app import App
from everkept.app.memory_table import (
    MAX_CHANGED,
    Flag,
    MemoryChange,
    MemorySelection,
    MemoryTable,
    Sort,
    change_memories,
    find_memory,
    open_stores,
    read_versions,
)
from everkept.console.owner import require_owner
from everkept.core.ports import AccessCount
from everkept.core.records import Record
from everkept.core.sessions import ToolCall
from everkept.core.text import clip_text
from everkept.core.times import format_iso
from everkept.families.memories.lifecycle import compute_fading_time
from everkept.families.memories.memory_record import list_linked_entities
from everkept.families.memories.model import MemoryView, TagChange
from everkept.tools.schema import Field, to_json
from everkept.tools.tool import Effect, ToolFamily, ToolResult, tool

MAX_PAGE = 200
MAX_CURSOR = 10_000_000
SHOWN_CHARACTERS = 600  # of a text in a list

Texts = Annotated[list[str], Field(max_items=100)]
ProjectName = Annotated[str, Field("Project, or @user for the user's own memories")]


class MemoryPageTools(ToolFamily):
    def __init__(self, app: App) -> None:
        self._app = app
        self._table = MemoryTable(app.guarded)

    @tool()
    async def list_memories(
        self,
        project: ProjectName | None = None,
        type: Texts | None = None,
        scope: Texts | None = None,
        tag: Texts | None = None,
        author: Texts | None = None,
        session: Texts | None = None,
        flag: list[Flag] | None = None,
        after: Annotated[int, Field(moment=True)] | None = None,
        before: Annotated[int, Field(moment=True)] | None = None,
        text: Annotated[str, Field(max_length=1_000)] = "",
        sort: Sort = "newest",
        start: Annotated[int, Field(ge=0, le=MAX_CURSOR)] = 0,
        limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50,
    ) -> ToolResult:
        """List memories with the number of matches for each trait."""
        wanted = MemorySelection(
            type or (), scope or (), tag or (), author or (), session or (), flag or (), after, before, text.strip()
        )
        page = await self._table.read_page(project, wanted, sort, start, limit)
        rows = [self._describe(name, record) for name, record in page.memories]
        if "automatic" in wanted.flags:
            await self._add_fading_times(project, page.memories, rows)
        return ToolResult({"memories": rows, "total": page.total, "facets": _to_plain(page.facets)})

    @tool()
    async def read_memory(self, memory_id: str, project: ProjectName | None = None) -> ToolResult:
        """Read one memory: its text, its versions, when it fades, and its source."""
        name, store, record = await find_memory(self._app.guarded, project, memory_id)
        accesses = await store.get_accesses([record.id])
        versions = [
            {
                "change": each.change,
                "at": format_iso(each.at),
                "tool": each.tool,
                "client": each.client,
                "operation": each.operation,
                "values": to_json(each.values),
            }
            for each in await read_versions(name, store, record)
        ]
        described = self._describe(name, record, whole=True)
        access = accesses.get(record.id)
        described["recalls"] = access.count if access else 0
        linked = await list_linked_entities(store, [record])
        described["related_entities"] = to_json(linked.get(record.id, []))
        fades_at = compute_fading_time(record, access)
        described["fades_at"] = None if fades_at is None else format_iso(fades_at)
        return ToolResult({"memory": described, "versions": versions})

    @tool(Effect.DESTROYS)
    async def change_memories(
        self,
        call: ToolCall,
        memory_ids: Annotated[list[str], Field(max_items=MAX_CHANGED)],
        pinned: bool | None = None,
        importance: Annotated[float, Field(ge=0, le=1)] | None = None,
        tags: TagChange | None = None,
        forgotten: bool | None = None,
        reason: Annotated[str, Field(max_length=2_000)] | None = None,
    ) -> ToolResult:
        """Change several memories together: pin, weigh, tag, forget or restore."""
        wanted = MemoryChange(pinned, importance, tags, forgotten, reason)
        library, settings = self._app.guarded, self._app.settings
        done = await change_memories(
            library, self._app.clock, call.session.client, memory_ids, wanted, mask=settings.mask_secrets
        )
        return ToolResult({"changed": done.changed, "changes": list(done.changes)})

    @tool()
    async def list_projects_to_show(self) -> ToolResult:
        """List the projects that the page may show, with the folder each belongs to."""
        library = self._app.guarded
        rows = [
            {
                "name": each.name,
                "description": each.description,
                "status": each.status,
                "off": each.is_off,
                "created_at": format_iso(each.created_at),
            }
            for each in await library.list_projects()
        ]
        return ToolResult({"projects": rows})

    async def _add_fading_times(
        self, project: str | None, memories: Sequence[tuple[str, Record]], rows: Sequence[dict[str, Any]]
    ) -> None:
        accesses: dict[str, AccessCount] = {}
        for name, store in (await open_stores(self._app.guarded, project)).items():
            accesses |= await store.get_accesses([record.id for place, record in memories if place == name])
        for (_, record), row in zip(memories, rows, strict=True):
            fades_at = compute_fading_time(record, accesses.get(record.id))
            row["fades_at"] = None if fades_at is None else format_iso(fades_at)

    def _describe(self, project: str, record: Record, *, whole: bool = False) -> dict[str, Any]:
        view = to_json(MemoryView.from_record(record, 0.0, project=project))
        if not whole and len(record.text) > SHOWN_CHARACTERS:
            view |= {"content": record.text[:SHOWN_CHARACTERS], "clipped": len(record.text) - SHOWN_CHARACTERS}
        del view["relevance_score"]
        return view


def _to_plain(facets: Mapping[str, Mapping[str, int]]) -> dict[str, list[list[Any]]]:
    """Return the counts as pairs, which keep their order."""
    return {trait: [[value, count] for value, count in counts.items()] for trait, counts in facets.items()}


MAX_CONVERSATIONS = 100_000
MAX_TITLE_CHARACTERS = 160


class HistoryPageTools(ToolFamily):
    def __init__(self, app: App) -> None:
        self._app = app

    @tool()
    async def list_conversations(
        self,
        folder: str | None = None,
        source: str = "",
        text: Annotated[str, Field(max_length=200)] = "",
        start: Annotated[int, Field(ge=0, le=MAX_CONVERSATIONS)] = 0,
        limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50,
    ) -> ToolResult:
        """List past conversations, newest first, and the folders they come from."""
        require_owner(self._app)
        found = await self._app.history.list_conversations(MAX_CONVERSATIONS, folder)
        wanted = text.casefold()
        kept = [
            each
            for each in found
            if wanted in (each.name or "").casefold() and source in ("", each.facets.get("source", ""))
        ]
        folders = Counter(await self._app.history.count_by_folder())
        return ToolResult(
            {
                "conversations": [_describe(each) for each in kept[start : start + limit]],
                "total": len(kept),
                "folders": [list(row) for row in folders.most_common()],
                "excluded": list(await self._app.history.list_excluded()),
            }
        )

    @tool(Effect.PERMANENT)
    async def delete_conversations(self, conversations: Annotated[list[str], Field(max_items=1_000)]) -> ToolResult:
        """Permanently delete conversations. They are never imported again."""
        require_owner(self._app)
        titles = await self._app.history.read_titles(conversations)
        gone = await self._app.history.forget([], list(titles), lambda _done, _total: None)
        return ToolResult({"conversations": gone.conversations, "turns": gone.turns})

    @tool(Effect.REPEATABLE)
    async def exclude_folder(self, folder: str, excluded: bool = True) -> ToolResult:
        """Stop importing conversations of a folder, or import them again."""
        require_owner(self._app)
        history = self._app.history
        changed = await (history.exclude(folder) if excluded else history.include(folder))
        return ToolResult({"folder": folder, "excluded": excluded, "changed": changed})


def _describe(record: Record) -> dict[str, Any]:
    facets = record.facets
    return {
        "id": record.id,
        "title": clip_text(record.name or "", MAX_TITLE_CHARACTERS),
        "source": facets.get("source", ""),
        "folder": record.scope,
        "turns": facets.get("turns", 0),
        "started": format_iso(record.effective_at),
        "ended": format_iso(facets.get("ended") or record.effective_at),
    }
