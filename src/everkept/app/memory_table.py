"""Lists of memories for people: pages with counts by trait, versions of one memory, and changes to many together."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal
from weakref import WeakKeyDictionary

from everkept.core.commits import ChangeWriter, Planned, retry_moved
from everkept.core.ports import Library, RecordStore
from everkept.core.projects import USER_PROJECT
from everkept.core.records import SESSION_SCOPE, Change, Delete, Record, RecordFilter, Restore, Step, Update
from everkept.core.secrets import Masker
from everkept.core.sessions import get_acting_account
from everkept.core.short_ids import require_one_id
from everkept.core.text import format_count
from everkept.core.times import Clock
from everkept.errors import InvalidInput, NotFound, ProjectOff
from everkept.families.memories.lifecycle import build_forget_steps
from everkept.families.memories.memory_record import change_tags, clear_automatic, is_hidden_session
from everkept.families.memories.model import (
    AUTOMATIC,
    DEFAULT_IMPORTANCE,
    MEMORY,
    MERGED_INTO,
    PROMOTED_FACET,
    SUPERSEDED_BY,
    TagChange,
)
from everkept.families.memories.stores import find_memories_by_prefix
from everkept.values import Value, replace

Sort = Literal["newest", "oldest", "importance"]
Flag = Literal["pinned", "automatic", "superseded", "forgotten"]

SCANNED_RECORDS = 2_000  # read together
MAX_TEXT_MATCHES = 10_000
SHOWN_VALUES = 50  # of a trait, the most frequent ones
MAX_CHANGED = 1_000  # memories in one change
BULK_TOOL = "change_memories"  # in the change log


class MemoryRow(Value):
    """What a list needs of a memory: everything but its text."""

    project: str
    id: str
    type: str
    scope: str
    tags: tuple[str, ...]
    author: str
    session: str
    importance: float
    at: int
    flags: tuple[Flag, ...]


class MemorySelection(Value):
    """Selection of memories. An empty field does not restrict; several values of a field are alternatives."""

    types: Sequence[str] = ()
    scopes: Sequence[str] = ()
    tags: Sequence[str] = ()
    authors: Sequence[str] = ()
    sessions: Sequence[str] = ()
    flags: Sequence[Flag] = ()  # each is required
    after: int | None = None
    before: int | None = None
    text: str = ""


class MemoryPage(Value):
    """Part of a list: the number of all matches, and for each trait how many match with each of its values."""

    memories: Sequence[tuple[str, Record]]  # each with the name of its project
    total: int
    facets: Mapping[str, Mapping[str, int]]


class MemoryVersion(Value):
    """State of a memory after one change."""

    change: str
    at: int
    tool: str
    client: str
    operation: str
    values: Mapping[str, Any]


_TRAITS: dict[str, Callable[[MemoryRow], Iterable[str]]] = {
    "project": lambda row: (row.project,),
    "type": lambda row: (row.type,),
    "scope": lambda row: (row.scope,),
    "tag": lambda row: row.tags,
    "author": lambda row: (row.author,) if row.author else (),
    "session": lambda row: (row.session,) if row.session else (),
    "flag": lambda row: row.flags,
}
_ORDERS: dict[Sort, Callable[[MemoryRow], Any]] = {
    "newest": lambda row: (-row.at, row.id),
    "oldest": lambda row: (row.at, row.id),
    "importance": lambda row: (-row.importance, -row.at, row.id),
}


class MemoryTable:
    """All memories as light rows, which are read again only after a store has changed."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._rows: WeakKeyDictionary[RecordStore, tuple[tuple[int, int], list[MemoryRow]]] = WeakKeyDictionary()

    async def read_page(
        self, project: str | None, wanted: MemorySelection, sort: Sort = "newest", start: int = 0, limit: int = 50
    ) -> MemoryPage:
        """Read a page of one project's memories with the user's, or of all projects that are not off."""
        stores = await open_stores(self._library, project)
        rows: list[MemoryRow] = []
        for name, store in stores.items():
            rows += [row for row in await self._read_rows(name, store) if _is_visible(row)]
        if wanted.text:
            rows = await _match_text(stores, rows, wanted.text)
        forgotten = 0
        if "forgotten" not in wanted.flags:
            forgotten = sum(_matches(row, wanted) for row in rows if "forgotten" in row.flags)
            rows = [row for row in rows if "forgotten" not in row.flags]
        matching = [row for row in rows if _matches(row, wanted)]
        matching.sort(key=_ORDERS[sort])
        page = matching[start : start + limit]
        facets = _count_traits(rows, matching, wanted)
        if forgotten:
            facets["flag"]["forgotten"] = forgotten
        return MemoryPage(await _read_records(stores, page), len(matching), facets)

    async def _read_rows(self, name: str, store: RecordStore) -> list[MemoryRow]:
        stamp = await store.get_stamp()
        known = self._rows.get(store)
        if known is not None and known[0][0] == stamp[0]:
            return known[1]
        rows: list[MemoryRow] = []
        async for page in store.scan_pages(RecordFilter(kinds=(MEMORY,), deleted=None), SCANNED_RECORDS):
            rows += [_build_row(name, record) for record in page if not _has_moved(record)]
        self._rows[store] = stamp, rows
        return rows


async def open_stores(library: Library, project: str | None) -> dict[str, RecordStore]:
    """Open a project's store and the user's, or those of all projects that are not off, by name."""
    if project == USER_PROJECT:
        return {USER_PROJECT: await library.open_user_store()}
    if project is None:
        names = [each.name for each in await library.list_projects("active") if not each.is_off]
    elif (await library.get_project(project)).is_off:
        raise ProjectOff(project)
    else:
        names = [project]
    own = {name: (await library.open(name))[1] for name in names}
    return {**own, USER_PROJECT: await library.open_user_store()}


async def find_memory(library: Library, project: str | None, typed: str) -> tuple[str, RecordStore, Record]:
    """Find a memory by its id or the beginning of it, also a forgotten one, with its project and store.

    Raise NotFound, or AmbiguousId.
    """
    stores = await open_stores(library, project)
    found = [
        (name, store, record)
        for name, store in stores.items()
        for record in await store.get([typed], include_deleted=True)
        if _is_memory(name, record)
    ]
    if not found:
        names = {id(store): name for name, store in stores.items()}
        matches = await find_memories_by_prefix([*stores.values()], typed)
        named = [(names[id(store)], store, record) for store, record in matches]
        found = [each for each in named if _is_memory(each[0], each[2])]
        meant = require_one_id(MEMORY, typed, [record for _, _, record in found])
        found = [each for each in found if each[2].id == meant]
    if not found:
        raise NotFound("memory", typed, hint="It may be in another project, or was purged.")
    return found[0]


def _is_memory(project: str, record: Record) -> bool:
    return record.kind == MEMORY and _is_visible(_build_row(project, record)) and not _has_moved(record)


async def read_versions(project: str, store: RecordStore, record: Record) -> list[MemoryVersion]:
    """Return every version of a memory that the log knows, newest first."""
    states: dict[int, tuple[str, Mapping[str, Any]]] = {}  # by the number of the change
    values = get_shown_values(record)
    for seq, edit in reversed(await store.read_history([record.ref])):
        operation, state = states.get(seq, ("update", values))
        states[seq] = operation if edit.operation == "update" else edit.operation, state
        values = {**values, **{k: v for k, v in (edit.before or {}).items() if k in values}}
    found: list[MemoryVersion] = []
    for seq, (operation, state) in states.items():
        change = await read_change(store, seq)
        if change is not None:
            found.append(MemoryVersion(f"{project}:{seq}", change.at, change.tool, change.client, operation, state))
    return found


async def read_change(store: RecordStore, seq: int) -> Change | None:
    """Return a change by its number, or None if it does not exist."""
    found = await store.read_changes(after=seq - 1, limit=1)
    return found[0] if found and found[0].seq == seq else None


def get_shown_values(record: Record) -> dict[str, Any]:
    """Return the values of a memory that a person may compare between versions."""
    return {
        "text": record.text,
        "type": record.type,
        "scope": record.scope,
        "tags": record.tags,
        "importance": record.importance,
        "author": record.author,
        "facets": record.facets,
    }


class MemoryChange(Value):
    """Change to apply to several memories. None keeps a value."""

    pinned: bool | None = None
    importance: float | None = None
    tags: TagChange | None = None
    forgotten: bool | None = None
    reason: str | None = None


class ChangedMemories(Value):
    """Number of changed memories, and the changes in the log, one for each project."""

    changed: int
    changes: Sequence[str]


async def change_memories(
    library: Library, clock: Clock, client: str, ids: Sequence[str], wanted: MemoryChange, *, mask: bool
) -> ChangedMemories:
    """Change several memories, in one change for each project. Either all of a project's change, or none."""
    if wanted == MemoryChange():
        raise InvalidInput("There is nothing to change.", hint="Pass pinned, importance, tags or forgotten.")
    if len(ids) > MAX_CHANGED:
        count = format_count(len(ids), "memory", "memories")
        raise InvalidInput(f"{count} are too many for one change.", hint=f"Pass at most {MAX_CHANGED:,}.")
    wanted = _mask_change(wanted, mask=mask)
    stores = await open_stores(library, None)
    places: dict[str, list[str]] = {}
    for name, store in stores.items():
        known = {each for ids_there in places.values() for each in ids_there}
        found = await store.get(ids, include_deleted=True)
        there = [each.id for each in found if each.kind == MEMORY and not is_hidden_session(each)]
        places[name] = [each for each in there if each not in known]
    if missing := set(ids).difference(*places.values()):
        raise NotFound("memory", min(missing), hint="It may be in a project that is off, or was purged.")
    writer = ChangeWriter(clock, BULK_TOOL, client)
    made: list[tuple[str, int, int]] = []
    for name, here in places.items():
        if here and (done := await _commit(stores[name], writer, here, wanted)) is not None:
            made.append((name, *done))
    return ChangedMemories(sum(count for _, _, count in made), [f"{name}:{seq}" for name, seq, _ in made])


async def _commit(
    store: RecordStore, writer: ChangeWriter, ids: Sequence[str], wanted: MemoryChange
) -> tuple[int, int] | None:
    """Return the number of the change and of the memories it changed, or None if nothing is different."""

    async def attempt(_: int) -> tuple[int, int] | None:
        steps, count = await _plan(store, ids, wanted)
        return ((await writer.commit_steps(store, steps, writer.clock())).seq, count) if steps else None

    return await retry_moved(store, attempt)


async def _plan(store: RecordStore, ids: Sequence[str], wanted: MemoryChange) -> Planned[int]:
    steps: list[Step] = []
    changed = 0
    for record in await store.get(ids, include_deleted=True):
        own = _plan_one(record, wanted)
        changed += bool(own)
        steps += own
    return steps, changed


def _plan_one(record: Record, wanted: MemoryChange) -> list[Step]:
    steps: list[Step] = []
    if record.deleted_at is not None:
        if wanted.forgotten is not False or MERGED_INTO in record.facets:
            return []
        facets = {name: value for name, value in record.facets.items() if name != "forgotten_reason"}
        restored = replace(record, facets=facets, deleted_at=None)
        values = {"facets": facets} if facets != record.facets else {}
        values |= _compute_values(restored, wanted)
        return [Restore(record.ref), *([Update(record.id, values, record.version)] if values else [])]
    if wanted.forgotten:
        return build_forget_steps(record, wanted.reason) if wanted.reason else [Delete(record.ref)]
    if values := _compute_values(record, wanted):
        steps.append(Update(record.id, clear_automatic(record, values), record.version))
    return steps


def _compute_values(record: Record, wanted: MemoryChange) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if wanted.importance is not None and wanted.importance != record.importance:
        values["importance"] = wanted.importance
    if wanted.tags is not None and (tags := change_tags(record.tags, wanted.tags)) != record.tags:
        values["tags"] = tags
    if wanted.pinned is not None and wanted.pinned != bool(record.facets.get("pinned")):
        facets = {name: value for name, value in record.facets.items() if name != "pinned"}
        values["facets"] = {**facets, "pinned": True} if wanted.pinned else facets
    return values


def _mask_change(wanted: MemoryChange, *, mask: bool) -> MemoryChange:
    masking = Masker(enabled=mask)
    tags = wanted.tags and replace(wanted.tags, add=masking.mask_all(wanted.tags.add or ()))
    return replace(wanted, tags=tags, reason=masking.mask_optional(wanted.reason))


def _build_row(project: str, record: Record) -> MemoryRow:
    facets = record.facets
    flags: list[Flag] = []
    if facets.get("pinned"):
        flags.append("pinned")
    if facets.get(AUTOMATIC):
        flags.append("automatic")
    if SUPERSEDED_BY in facets:
        flags.append("superseded")
    if record.deleted_at is not None:
        flags.append("forgotten")
    importance = DEFAULT_IMPORTANCE if record.importance is None else record.importance
    author, session = record.author or "", record.session or ""
    shown = record.id, record.type or "", record.scope, record.tags, author, session, importance
    return MemoryRow(project, *shown, record.effective_at, tuple(flags))


def _has_moved(record: Record) -> bool:
    """Return whether a promotion or a merge deleted it here, so that it is not forgotten."""
    return record.deleted_at is not None and (PROMOTED_FACET in record.facets or MERGED_INTO in record.facets)


def _is_visible(row: MemoryRow) -> bool:
    """Hide the sessions of others: an account sees what all may see, and the owner everything."""
    return row.scope != SESSION_SCOPE or get_acting_account() is None


async def _match_text(stores: Mapping[str, RecordStore], rows: list[MemoryRow], text: str) -> list[MemoryRow]:
    """Keep the rows whose text contains the words. Stores find them only in live records."""
    where, wanted = RecordFilter(kinds=(MEMORY,)), text.casefold()
    found: set[str] = set()
    for name, store in stores.items():
        found.update(match.id for match in await store.match_text(text, where, MAX_TEXT_MATCHES))
        gone = [row.id for row in rows if row.project == name and "forgotten" in row.flags]
        for record in await store.get(gone[:MAX_TEXT_MATCHES], include_deleted=True):
            if wanted in record.text.casefold():
                found.add(record.id)
    return [row for row in rows if row.id in found]


def _matches(row: MemoryRow, wanted: MemorySelection, without: str = "") -> bool:
    """Return whether a row matches all conditions, or all but the one of a trait."""
    return (
        (not wanted.types or without == "type" or row.type in wanted.types)
        and (not wanted.scopes or without == "scope" or row.scope in wanted.scopes)
        and (not wanted.authors or without == "author" or row.author in wanted.authors)
        and (not wanted.sessions or without == "session" or row.session in wanted.sessions)
        and (not wanted.tags or without == "tag" or any(tag in wanted.tags for tag in row.tags))
        and (not wanted.flags or all(flag in row.flags for flag in wanted.flags))
        and (wanted.after is None or row.at >= wanted.after)
        and (wanted.before is None or row.at <= wanted.before)
    )


def _count_traits(
    rows: Sequence[MemoryRow], matching: Sequence[MemoryRow], wanted: MemorySelection
) -> dict[str, dict[str, int]]:
    """Count the values of each trait among the rows that match the conditions of all other traits."""
    conditions = {
        "type": wanted.types,
        "scope": wanted.scopes,
        "tag": wanted.tags,
        "author": wanted.authors,
        "session": wanted.sessions,
    }
    counts: dict[str, dict[str, int]] = {}
    for trait, get_values in _TRAITS.items():
        counted = [row for row in rows if _matches(row, wanted, trait)] if conditions.get(trait) else matching
        counter = Counter(chain.from_iterable(map(get_values, counted)))
        counts[trait] = dict(counter.most_common(SHOWN_VALUES))
    return counts


async def _read_records(stores: Mapping[str, RecordStore], page: Sequence[MemoryRow]) -> list[tuple[str, Record]]:
    found: dict[tuple[str, str], Record] = {}
    for name, store in stores.items():
        ids = [row.id for row in page if row.project == name]
        found |= {(name, each.id): each for each in await store.get(ids, include_deleted=True)}
    return [(row.project, found[row.project, row.id]) for row in page if (row.project, row.id) in found]
