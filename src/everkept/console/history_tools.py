"""Tools of the page about conversations: the list, and what may be removed from it. Only the owner may use them."""

from collections import Counter
from typing import Annotated, Any

from everkept.app.app import App
from everkept.console.owner import require_owner
from everkept.core.records import Record
from everkept.core.text import clip_text
from everkept.core.times import format_iso
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, ToolFamily, ToolResult, tool

MAX_PAGE = 200
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
