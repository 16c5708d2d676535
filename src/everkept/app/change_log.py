"""The change log of all projects, with one line per change, and undo."""

import logging
from collections.abc import Sequence

from everkept.app.engines import PendingChange, ReadPendingChanges, read_no_changes
from everkept.core.commits import commit, find_undone, plan_undo, retry
from everkept.core.ports import Library, RecordStore
from everkept.core.projects import USER_PROJECT
from everkept.core.records import Batch, Change, Edit, Record, RecordLink, Ref
from everkept.core.text import clip_text
from everkept.core.times import Clock
from everkept.errors import EverkeptError, InvalidInput, NotFound, ProjectOff, Refused
from everkept.families.bank.model import INDEX_BANK, MERGE_GRAPH_FILE
from everkept.families.memories.lifecycle import FADING_TOOL
from everkept.families.memories.memory_identity import SESSION, get_title
from everkept.families.memories.memory_record import HOOK_PREFIX
from everkept.families.memories.stores import CLOSING_TOOL
from everkept.values import Value

PURGE_TOOL = "purge"
REDACT_TOOL = "redact"
MAX_SUMMARY_CHARACTERS = 200
MAX_TEXT_CHARACTERS = 60  # of a text inside a summary
MAX_NAMES = 3
SESSION_KIND = "session"  # kind of the records for sessions
_PERMANENT_SUMMARIES = {PURGE_TOOL: "permanently deleted", REDACT_TOOL: "secrets permanently masked"}
_SIGNS = {"insert": "+", "update": "~", "delete": "-", "restore": "+"}


async def summarize_changes(store: RecordStore, changes: Sequence[Change]) -> list[str]:
    """Describe each change in a line, such as `+ entity Alice, + 2 × observation on Alice`."""
    refs = {Ref(e.subject, e.id) for change in changes for e in change.edits if e.id}
    records = await store.get([r.id for r in refs if r.subject == "record"], include_deleted=True)
    links = await store.get_links([r.id for r in refs if r.subject == "link"], include_deleted=True)
    known = {record.id: record for record in records}
    ends = {record.parent for record in records if record.parent}
    ends |= {end for link in links for end in (link.source, link.target)}
    for record in await store.get(list(ends - known.keys()), include_deleted=True):
        known[record.id] = record
    told = _ChangeSummarizer(known, {link.id: link for link in links})
    return [told.summarize(change) for change in changes]


class _EditedItem(Value):
    """An item as the summary names it. Its owner is the item it belongs to."""

    kind: str
    name: str = ""
    owner: str = ""


class _ChangeSummarizer:
    def __init__(self, records: dict[str, Record], links: dict[str, RecordLink]) -> None:
        self._records = records
        self._links = links

    def summarize(self, change: Change) -> str:
        if change.tool in _PERMANENT_SUMMARIES:
            return _PERMANENT_SUMMARIES[change.tool]
        groups: dict[tuple[str, str], list[_EditedItem]] = {}
        told = [self._describe_edit(edit) for edit in change.edits]
        # The first memory of a session creates its record, so only the memory is listed.
        is_beside = any(named.kind != SESSION_KIND for named in told)
        for edit, named in zip(change.edits, told, strict=True):
            if is_beside and named.kind == SESSION_KIND:
                continue
            groups.setdefault((_SIGNS[edit.operation], named.kind), []).append(named)
        parts = [f"{sign} {_format_items(kind, things)}" for (sign, kind), things in groups.items()]
        return clip_text(", ".join(parts) or "what it touched was purged", MAX_SUMMARY_CHARACTERS)

    def _describe_edit(self, edit: Edit) -> _EditedItem:
        thing = (self._records if edit.subject == "record" else self._links).get(edit.id or "")
        if thing is None:
            return _EditedItem("purged")
        if isinstance(thing, RecordLink):
            ends = self._get_name(thing.source), thing.verb, self._get_name(thing.target)
            return _EditedItem("relation", " ".join(ends))
        if thing.parent is None:
            return _EditedItem(thing.kind, self._get_name(thing.id))
        text = clip_text(get_title(thing), MAX_TEXT_CHARACTERS)
        return _EditedItem(thing.kind, f'"{text}"', self._get_name(thing.parent))

    def _get_name(self, record_id: str) -> str:
        record = self._records.get(record_id)
        return clip_text((record and get_title(record)) or record_id, MAX_TEXT_CHARACTERS)


def _format_items(kind: str, things: Sequence[_EditedItem]) -> str:
    owners = list(dict.fromkeys(thing.owner for thing in things if thing.owner))
    where = f"{kind} on {_format_names(owners)}" if owners else kind
    if len(things) == 1:
        return f"{where}{':' if owners else ''} {things[0].name}".rstrip()
    names = _format_names([thing.name for thing in things])
    return f"{len(things)} × {where}" + (f" ({names})" if names and len(owners) < 2 else "")


def _format_names(names: Sequence[str]) -> str:
    shown = [name for name in names[:MAX_NAMES] if name]
    return ", ".join(shown + ["…"] * (len(names) > MAX_NAMES and bool(shown)))


# `undo` never chooses these changes by itself: redactions, session summaries, updates of the index, merges from git,
# and faded memories.
BOOKKEEPING_TOOLS = (REDACT_TOOL, CLOSING_TOOL, INDEX_BANK, MERGE_GRAPH_FILE, FADING_TOOL)
PROMOTE_TOOL = "promote_memory"
PENDING_MARK = "~"  # marks the number of a pending change, which counts only in the local copy
MAX_DIGITS = 18  # a longer text is not a change number
MAX_SEARCHED_CHANGES = 1_000  # changes searched for the newest one that can be undone

log = logging.getLogger(__name__)


class ChangeLogEntry(Value):
    """A change with its project and a summary."""

    project: str
    change: Change
    summary: str
    is_undone: bool
    is_numbered_here: bool = False

    @property
    def reference(self) -> str:
        return f"{self.project}:{PENDING_MARK * self.is_numbered_here}{self.change.seq}"


class _ListedChange(Value):
    project: str
    store: RecordStore
    change: Change
    is_undone: bool
    is_numbered_here: bool


class ChangeLog:
    """The change log of all projects that are not turned off. Naming one that is off raises ProjectOff."""

    def __init__(self, library: Library, clock: Clock, numbered_here: ReadPendingChanges = read_no_changes) -> None:
        self._library = library
        self._clock = clock
        self._numbered_here = numbered_here

    async def list_entries(self, project: str | None, limit: int) -> list[ChangeLogEntry]:
        """List the newest changes of one project or of all, newest first."""
        heads: list[_ListedChange] = []
        for name in await self._list_names(project):
            try:
                store = await self._open_active_store(name)
                changes = await _read_newest(store, limit)
                here = await self._list_pending(name)
            except EverkeptError as error:
                if project is not None:
                    raise
                # One damaged project must not hide the changes of the others.
                log.warning("project %s skipped in the log: %s", name, error)
                continue
            taken_back = find_undone(changes)
            heads += [
                _ListedChange(name, store, each, each.seq in taken_back, _is_pending(here, each)) for each in changes
            ]
        heads.sort(key=lambda head: (head.change.at, head.change.seq), reverse=True)
        return await _build_entries(heads[:limit])

    async def open_store(self, name: str) -> RecordStore:
        """Open a project's store or the user's, to purge items. Projects that are off work too."""
        if name == USER_PROJECT:
            return await self._library.open_user_store()
        _, store = await self._library.open(name)
        return store

    async def undo(
        self, reference: str | None, project: str | None, client: str, *, or_user: bool = False
    ) -> ChangeLogEntry:
        """Undo one change, by default the newest one, and return it.

        With `or_user`, also consider the user's own changes that this client made. A promotion is undone in both
        stores.
        """
        name, change = (
            await self._find_newest(project, client if or_user else None)
            if reference is None
            else await self._find_referenced(reference, project)
        )
        is_numbered_here = _is_pending(await self._list_pending(name), change)
        halves = [(name, change), *await self._find_counterparts(name, change)]
        # Undo the user's half last: a crash in between leaves the memory in both stores.
        halves.sort(key=lambda half: half[0] == USER_PROJECT)
        for place, its in halves:  # check both halves before changing anything
            store = await self._open_active_store(place)
            await self._plan(store, place, its, client, await store.get_revision())
        told = {place: await self._undo_change(place, its, client) for place, its in halves}
        return ChangeLogEntry(name, change, told[name], True, is_numbered_here)

    async def find_newest_time(self, project: str | None, client: str, *, or_user: bool = False) -> int | None:
        """Return the time of the change that `undo` would reverse, or None if there is nothing to undo."""
        try:
            _, change = await self._find_newest(project, client if or_user else None)
        except Refused:
            return None
        return change.at

    async def _list_pending(self, name: str) -> Sequence[PendingChange]:
        """List the pending changes of a project or of the user."""
        if not self._library.condition.waiting:
            return ()
        place = None if name == USER_PROJECT else (await self._library.get_project(name)).id
        return [each for each in await self._numbered_here() if each.project_id == place]

    async def _open_active_store(self, name: str) -> RecordStore:
        """Open a store to show or undo its changes. Raises ProjectOff."""
        if name != USER_PROJECT and (await self._library.get_project(name)).is_off:
            raise ProjectOff(name)
        return await self.open_store(name)

    async def _undo_change(self, name: str, change: Change, client: str) -> str:
        """Undo a change and return its summary."""
        store = await self._open_active_store(name)
        [summary] = await summarize_changes(store, [change])
        seen = 0

        async def attempt() -> None:
            nonlocal seen
            seen = await store.get_revision()
            await commit(store, await self._plan(store, name, change, client, seen))

        async def has_moved() -> bool:
            return await store.get_revision() != seen

        await retry(attempt, f'project "{name}"', again=has_moved)
        return summary

    async def _plan(self, store: RecordStore, name: str, change: Change, client: str, seen: int) -> Batch:
        found = await store.read_changes(after=change.seq - 1, limit=MAX_SEARCHED_CHANGES)
        if not found or _get_identity(found[0]) != _get_identity(change):
            raise _build_renumbered_error(f"{name}:{change.seq}")
        if change.seq in find_undone(found):
            raise Refused(
                f"Change {name}:{change.seq} is already undone.",
                hint="Run `everkept log` to see the changes.",
                change=change.seq,
            )
        steps = await plan_undo(store, change, {SESSION})
        return Batch(steps, self._clock(), "undo", client, undoes=change.seq, revision=seen)

    async def _list_names(self, project: str | None) -> list[str]:
        if project is not None:
            return [project]
        found = await self._library.list_projects("active")
        return [each.name for each in found if not each.is_off] + [USER_PROJECT]

    async def _find_counterparts(self, name: str, change: Change) -> list[tuple[str, Change]]:
        """Find the other halves of a promotion between two databases that are still in effect."""
        moved = {e.id for e in change.edits if e.subject == "record" and e.id}
        if change.tool != PROMOTE_TOOL or not moved:
            return []
        projects = [each.name for each in await self._library.list_projects("active")]
        places = projects if name == USER_PROJECT else [USER_PROJECT]
        found: list[tuple[str, Change]] = []
        for place in places:
            changes = await (await self.open_store(place)).read_changes(limit=MAX_SEARCHED_CHANGES, newest_first=True)
            taken_back = find_undone(changes)
            found += [
                (place, other)
                for other in changes
                if other.tool == PROMOTE_TOOL
                and other.seq not in taken_back
                and any(edit.id in moved for edit in other.edits)
            ][:1]
        return found

    async def _find_newest(self, project: str | None, of_user: str | None) -> tuple[str, Change]:
        """Find the newest change to undo. With `of_user`, also among this client's changes of the user."""
        names = [name for name in await self._list_names(project) if name != USER_PROJECT or project == USER_PROJECT]
        if len(names) > 1:
            raise Refused(
                "No project is selected.", hint="Pass --project NAME, or a change such as shop:12 from `everkept log`."
            )
        found = [(name, change) for name in names if (change := await self._find_in_force(name))]
        if of_user is not None and project != USER_PROJECT:
            change = await self._find_in_force(USER_PROJECT)
            found += [(USER_PROJECT, change)] if change and change.client == of_user else []
        if not found:
            raise Refused(
                "There is nothing to undo here.", hint="Run `everkept log` to see the changes of all projects."
            )
        name, change = max(found, key=lambda pair: pair[1].at)
        if change.tool == PURGE_TOOL:
            raise Refused(
                f"The newest change, {name}:{change.seq}, is a purge, which cannot be undone.",
                hint="Pass an earlier change from `everkept log`.",
                change=change.seq,
            )
        return name, change

    async def _find_in_force(self, name: str) -> Change | None:
        """Find the newest change that is neither undone nor an undo."""
        changes = await _read_newest(await self._open_active_store(name), MAX_SEARCHED_CHANGES)
        taken_back = find_undone(changes)
        standing = (
            change
            for change in changes
            if change.seq not in taken_back
            and change.undoes is None
            and change.tool not in BOOKKEEPING_TOOLS
            and not _is_from_hooks(change)
        )
        return next(standing, None)

    async def _find_referenced(self, reference: str, project: str | None) -> tuple[str, Change]:
        name, _, number = reference.rpartition(":")
        name = name or project or ""
        is_numbered_here, number = (number.startswith(PENDING_MARK), number.removeprefix(PENDING_MARK))
        if not number.isdecimal() or len(number) > MAX_DIGITS or not name:
            raise InvalidInput(
                f'"{clip_text(reference)}" is not a change.',
                hint="Use PROJECT:NUMBER, such as shop:12. Run `everkept log` to list changes.",
                argument="change",
                value=clip_text(reference),
            )
        store = await self._open_active_store(name)
        found = await store.read_changes(after=int(number) - 1, limit=1)
        if not found or found[0].seq != int(number):
            if is_numbered_here:
                raise _build_renumbered_error(reference)
            raise NotFound("change", reference, hint="Run `everkept log` to list changes.")
        if is_numbered_here and not _is_pending(await self._list_pending(name), found[0]):
            raise _build_renumbered_error(reference)
        return name, found[0]


def _get_identity(change: Change) -> tuple[int, int, str]:
    """Return the fields of a change that no purge or redaction alters."""
    return change.seq, change.at, change.tool


def _is_pending(waiting: Sequence[PendingChange], change: Change) -> bool:
    return any((each.seq, each.at, each.tool) == _get_identity(change) for each in waiting)


def _build_renumbered_error(reference: str) -> Refused:
    return Refused(
        f"{clip_text(reference)} was the number of a pending change. The database has given it another number.",
        hint="Run `everkept log` to see its number.",
        change=clip_text(reference),
    )


def _is_from_hooks(change: Change) -> bool:
    """Return whether a hook made the change, without a call."""
    return change.tool.startswith(HOOK_PREFIX) or change.client == HOOK_PREFIX


async def _read_newest(store: RecordStore, limit: int) -> list[Change]:
    """Read the newest changes, without those of the file index, which would hide the others."""
    asked = limit
    while True:
        found = await store.read_changes(limit=asked, newest_first=True)
        meant = [change for change in found if change.tool != INDEX_BANK]
        if len(meant) >= limit or len(found) < asked:
            return meant[:limit]
        asked *= 4


async def _build_entries(heads: Sequence[_ListedChange]) -> list[ChangeLogEntry]:
    by_store: dict[RecordStore, list[Change]] = {}
    for head in heads:
        by_store.setdefault(head.store, []).append(head.change)
    told = {
        (store, change.seq): summary
        for store, changes in by_store.items()
        for change, summary in zip(changes, await summarize_changes(store, changes), strict=True)
    }
    return [
        ChangeLogEntry(h.project, h.change, told[h.store, h.change.seq], h.is_undone, h.is_numbered_here) for h in heads
    ]
