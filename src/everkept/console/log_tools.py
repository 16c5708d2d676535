"""Tools of the page about changes: the log in pages, what one change altered, and undo."""

from typing import Annotated, Any

from everkept.app.app import App
from everkept.app.change_log import ChangeLogEntry
from everkept.app.change_pages import ShownEdit, read_edits, read_page
from everkept.core.sessions import ToolCall
from everkept.core.times import format_iso
from everkept.errors import InvalidInput
from everkept.tools.schema import Field, to_json
from everkept.tools.tool import Effect, ToolFamily, ToolResult, tool

MAX_PAGE = 200

ChangeName = Annotated[str, Field("Change, such as shop:12", max_length=200)]


class LogPageTools(ToolFamily):
    def __init__(self, app: App) -> None:
        self._app = app

    @tool()
    async def list_changes(
        self,
        project: str | None = None,
        cursor: str | None = None,
        tool: str = "",
        client: str = "",
        record: str = "",
        limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50,
    ) -> ToolResult:
        """List changes, newest first."""
        log = self._app.change_log
        page = await read_page(log, project, limit, cursor, tool=tool, client=client, record=record)
        return ToolResult({"changes": [_describe(each) for each in page.entries], "cursor": page.following})

    @tool()
    async def read_change(self, change: ChangeName) -> ToolResult:
        """Read what one change altered: each value before and after it. Projects and files have none."""
        log = self._app.change_log
        if await log.find_event(change) is not None or await log.find_bank_write(change) is not None:
            return ToolResult({"change": change, "edits": []})
        project, number = _parse_reference(change)
        edits = await read_edits(self._app.guarded, project, number)
        return ToolResult({"change": change, "edits": [_describe_edit(each) for each in edits]})

    @tool(Effect.DESTROYS)
    async def undo_change(self, call: ToolCall, change: ChangeName) -> ToolResult:
        """Undo one change. It refuses if something it touched has changed since."""
        undone = await self._app.change_log.undo(change, None, call.session.client)
        return ToolResult({"undone": undone.reference, "summary": undone.summary})


def _parse_reference(change: str) -> tuple[str, int]:
    project, _, number = change.rpartition(":")
    if not project or not (number.isascii() and number.isdecimal() and len(number) < 19):
        raise InvalidInput(f'"{change[:60]}" is not a change.', hint="Pass one of list_changes.", argument="change")
    return project, int(number)


def _describe(entry: ChangeLogEntry) -> dict[str, Any]:
    change = entry.change
    return {
        "change": entry.reference,
        "project": entry.project,
        "at": format_iso(change.at),
        "tool": change.tool,
        "client": change.client,
        "summary": entry.summary,
        "edits": len(change.edits),
        "undone": entry.is_undone,
        "undoes": change.undoes,
    }


def _describe_edit(edit: ShownEdit) -> dict[str, Any]:
    shown = {name: getattr(edit, name) for name in ("operation", "subject", "id", "kind", "title")}
    return {**shown, "before": to_json(edit.before), "after": to_json(edit.after)}
