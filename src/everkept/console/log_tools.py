"""Tools of the page about changes: the log in pages, what one change altered, and undo."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from everkept.app.app import App
from everkept.app.change_log import ChangeLog, ChangeLogEntry
from everkept.app.memory_table import open_stores, read_change
from everkept.core.ports import Library, RecordStore
from everkept.core.records import Edit, Record, RecordLink, Ref
from everkept.core.sessions import ToolCall
from everkept.core.text import clip_text
from everkept.core.times import format_iso
from everkept.errors import InvalidInput, NotFound
from everkept.families.memories.memory_record import is_hidden_session
from everkept.tools.schema import Field, to_json
from everkept.tools.tool import Effect, ToolFamily, ToolResult, tool
from everkept.values import Value, replace

MAX_LISTED = 5_000  # changes that the pages reach back
MAX_EDITS = 500  # of one change to show
MAX_VALUE_CHARACTERS = 20_000

_RECORD_FIELDS = ("kind", "name", "type", "text", "tags", "importance", "scope", "author", "occurred_at", "facets")
_LINK_FIELDS = ("source", "verb", "target", "facets")
_LINK_ENDS = ("source", "target")


class ChangePage(Value):
    """Part of the log, newest first. `following` continues it; None at the end."""

    entries: Sequence[ChangeLogEntry]
    following: str | None


class ShownEdit(Value):
    """One edit of a change: the thing, and its values that differ before and after."""

    operation: str
    subject: str
    id: str
    kind: str
    title: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]


async def read_page(
    log: ChangeLog,
    project: str | None,
    limit: int,
    cursor: str | None = None,
    *,
    tool: str = "",
    client: str = "",
    record: str = "",
) -> ChangePage:
    """Read the changes before the cursor that match: made with a tool, by a client, or of one record."""
    before = None if cursor is None else _parse_cursor(cursor)
    asked = limit * 2
    while True:
        listed = await log.list_entries(project, asked)
        found = [each for each in listed if before is None or _get_position(each) < before]
        found = [
            each
            for each in found
            if tool in ("", each.change.tool)
            and client in each.change.client
            and (not record or any(edit.id == record for edit in each.change.edits))
        ]
        if len(found) > limit or len(listed) < asked or asked >= MAX_LISTED:
            break
        asked = min(asked * 4, MAX_LISTED)
    page = found[:limit]
    return ChangePage(page, _encode_cursor(page[-1]) if len(found) > limit else None)


def _get_position(entry: ChangeLogEntry) -> tuple[int, int]:
    return entry.change.at, entry.change.seq


def _encode_cursor(entry: ChangeLogEntry) -> str:
    at, seq = _get_position(entry)
    return f"{at}.{seq}"


def _parse_cursor(text: str) -> tuple[int, int]:
    at, _, seq = text.partition(".")
    if not (at.isascii() and at.isdecimal() and seq.isascii() and seq.isdecimal() and len(text) < 40):
        raise InvalidInput("This is not a cursor.", hint="Pass the `cursor` of the page before.", argument="cursor")
    return int(at), int(seq)


async def read_edits(library: Library, project: str, seq: int) -> list[ShownEdit]:
    """Return what a change altered. Raise NotFound."""
    store = (await open_stores(library, project))[project]
    change = await read_change(store, seq)
    if change is None:
        raise NotFound("change", f"{project}:{seq}", hint="Run `everkept log` to list changes.")
    edits = [edit for edit in change.edits if edit.id is not None][:MAX_EDITS]
    refs = list(dict.fromkeys(Ref(edit.subject, edit.id or "") for edit in edits))
    later = await _read_later(store, refs, seq)
    now = await _read_now(store, refs)
    hidden = {ref for ref, thing in now.items() if isinstance(thing, Record) and is_hidden_session(thing)}
    edits = [edit for edit in edits if Ref(edit.subject, edit.id or "") not in hidden]
    shown = [_show(edit, now.get(Ref(edit.subject, edit.id or "")), later) for edit in edits]
    return await _name_ends(store, shown)


async def _name_ends(store: RecordStore, edits: Sequence[ShownEdit]) -> list[ShownEdit]:
    """Replace the ids of a link's ends with their names."""
    sides = [side for edit in edits if edit.subject == "link" for side in (edit.before, edit.after)]
    ids = list(dict.fromkeys(side[end] for side in sides for end in _LINK_ENDS if end in side))
    found = await store.get(ids, include_deleted=True)
    names = {each.id: _get_title(each) for each in found if not is_hidden_session(each)}

    def name(side: Mapping[str, Any]) -> dict[str, Any]:
        return {key: names.get(value) or value if key in _LINK_ENDS else value for key, value in side.items()}

    return [
        replace(edit, before=name(edit.before), after=name(edit.after)) if edit.subject == "link" else edit
        for edit in edits
    ]


async def _read_later(store: RecordStore, refs: Sequence[Ref], seq: int) -> dict[Ref, list[Edit]]:
    later: dict[Ref, list[Edit]] = {}
    for number, edit in await store.read_history(refs, after=seq):
        if number > seq:
            later.setdefault(Ref(edit.subject, edit.id or ""), []).append(edit)
    return later


async def _read_now(store: RecordStore, refs: Sequence[Ref]) -> dict[Ref, Record | RecordLink]:
    records = await store.get([ref.id for ref in refs if ref.subject == "record"], include_deleted=True)
    links = await store.get_links([ref.id for ref in refs if ref.subject == "link"], include_deleted=True)
    return {each.ref: each for each in (*records, *links)}


def _show(edit: Edit, now: Record | RecordLink | None, later: Mapping[Ref, Sequence[Edit]]) -> ShownEdit:
    ref = Ref(edit.subject, edit.id or "")
    fields = _RECORD_FIELDS if edit.subject == "record" else _LINK_FIELDS
    current = {name: getattr(now, name) for name in fields} if now is not None else {}
    # A value was what the next edit replaced, and what it is now if nothing replaced it since.
    for follower in reversed(later.get(ref, ())):
        current |= {name: value for name, value in (follower.before or {}).items() if name in fields}
    before = {name: value for name, value in (edit.before or {}).items() if name in fields}
    if edit.operation == "update":
        after = {name: current.get(name) for name in before}
        changed = [name for name in before if before[name] != after[name]]
        before, after = ({name: side[name] for name in changed} for side in (before, after))
    elif edit.operation == "delete":
        before, after = current, {}
    else:
        before, after = {}, current
    kind = now.kind if isinstance(now, Record) else "relation"
    return ShownEdit(edit.operation, edit.subject, ref.id, kind, _get_title(now), _shorten(before), _shorten(after))


def _get_title(thing: Record | RecordLink | None) -> str:
    if thing is None:
        return ""
    if isinstance(thing, RecordLink):
        return thing.verb
    return clip_text(thing.name or thing.text, 120)


def _shorten(values: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in values.items() if value not in (None, "", (), {}, [])}
    return {name: value[:MAX_VALUE_CHARACTERS] if isinstance(value, str) else value for name, value in kept.items()}


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
