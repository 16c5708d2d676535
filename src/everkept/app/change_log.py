"""The change log of all projects, with one line per change, and undo."""

import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from everkept.app.change_summary import PURGE_TOOL, REDACT_TOOL, summarize_changes
from everkept.app.engines import PendingChange, ReadPendingChanges, read_no_changes
from everkept.core.commits import commit, find_undone, plan_undo, retry_moved
from everkept.core.ports import Library, RecordStore
from everkept.core.projects import USER_PROJECT, is_trash_name
from everkept.core.records import EXPIRE_TOOL, Batch, Change
from everkept.core.text import clip_text
from everkept.core.times import Clock
from everkept.errors import EverkeptError, InvalidInput, NotFound, ProjectArchived, ProjectOff, Refused
from everkept.families.bank.model import INDEX_BANK, MERGE_GRAPH_FILE
from everkept.families.memories.lifecycle import FADING_TOOL, PROMOTING_TOOL
from everkept.families.memories.memory_identity import SESSION
from everkept.families.memories.memory_record import HOOK_PREFIX, is_hidden_session
from everkept.families.memories.stores import CLOSING_TOOL
from everkept.values import Value, replace

if TYPE_CHECKING:
    from everkept.accounts.project_changes import ProjectChanges
    from everkept.accounts.project_events import ProjectEvent
    from everkept.app.bank_changes import BankChanges, BankWrite

# `undo` never chooses these changes by itself: redactions, session summaries, updates of the index, merges from git,
# faded memories and expired documents.
BOOKKEEPING_TOOLS = (REDACT_TOOL, CLOSING_TOOL, INDEX_BANK, MERGE_GRAPH_FILE, FADING_TOOL, EXPIRE_TOOL)
PENDING_MARK = "~"  # marks the number of a pending change, which counts only in the local copy
EVENT_MARK = "p"  # marks the number of a change of a whole project
SHORT_ID_CHARACTERS = 8  # of a project in the trash
MAX_DIGITS = 18  # a longer text is not a change number
MAX_SEARCHED_CHANGES = 1_000  # changes searched for the newest one that can be undone

_BANK_WRITE = re.compile(r".*:b[0-9a-f]{7}", re.DOTALL)
log = logging.getLogger(__name__)


class ChangeLogEntry(Value):
    """A change with its project and a summary. `effect` says what its undo just did."""

    project: str
    change: Change
    summary: str
    is_undone: bool
    is_numbered_here: bool = False
    effect: str = ""
    event: "ProjectEvent | None" = None  # for a change of the whole project
    written: "BankWrite | None" = None  # for a write of memory bank files

    @property
    def reference(self) -> str:
        if self.written is not None:
            return self.written.reference
        if self.event is not None:
            return f"{_get_event_label(self.event)}:{EVENT_MARK}{self.change.seq}"
        return f"{self.project}:{PENDING_MARK * self.is_numbered_here}{self.change.seq}"


class _ListedChange(Value):
    project: str
    store: RecordStore
    change: Change
    is_undone: bool
    is_numbered_here: bool


class ChangeLog:
    """The change log of all projects that are not turned off. Naming one that is off raises ProjectOff."""

    def __init__(
        self,
        library: Library,
        clock: Clock,
        numbered_here: ReadPendingChanges = read_no_changes,
        project_changes: "ProjectChanges | None" = None,
        bank_changes: "BankChanges | None" = None,
    ) -> None:
        self._library = library
        self._project_changes = project_changes
        self._bank_changes = bank_changes
        self._clock = clock
        self._numbered_here = numbered_here

    async def list_entries(self, project: str | None, limit: int) -> list[ChangeLogEntry]:
        """List the newest changes of one project or of all, newest first."""
        events = [*await self._list_events(project), *await self._list_bank_writes(project)]
        heads: list[_ListedChange] = []
        for name in await self._list_names(project):
            try:
                store = await self._open_active_store(name)
                changes = await _read_newest(store, limit)
                here = await self._list_pending(name)
            except EverkeptError as error:
                if project is not None and not (events and isinstance(error, NotFound | ProjectArchived)):
                    raise
                # One damaged project must not hide the changes of the others.
                log.warning("project %s skipped in the log: %s", name, error)
                continue
            taken_back = find_undone(changes)
            heads += [
                _ListedChange(name, store, each, each.seq in taken_back, _is_pending(here, each)) for each in changes
            ]
        newest = sorted([*heads, *events], key=lambda each: (each.change.at, each.change.seq), reverse=True)[:limit]
        shown = await _build_entries([each for each in newest if isinstance(each, _ListedChange)])
        shown += [each for each in newest if isinstance(each, ChangeLogEntry)]
        return sorted(shown, key=lambda each: (each.change.at, each.change.seq), reverse=True)

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
        stores. The newest change of a whole project counts too: with `or_user`, that of any project.
        """
        user = client if or_user else None
        if reference is not None and (written := await self.find_bank_write(reference)) is not None:
            effect = "" if self._bank_changes is None else await self._bank_changes.undo(written)
            return replace(_build_write_entry(written), is_undone=True, effect=effect)
        event = await (self._find_newest_event(project, user) if reference is None else self.find_event(reference))
        if event is not None and self._project_changes is not None:
            entry = _build_event_entry(event, is_undone=True)
            return replace(entry, effect=await self._project_changes.undo(event, client))
        name, change = await (
            self._find_newest(project, user) if reference is None else self._find_referenced(reference, project)
        )
        is_numbered_here = _is_pending(await self._list_pending(name), change)
        halves = [(name, change), *await self._find_counterparts(name, change)]
        # Undo the user's half last: a crash in between leaves the memory in both stores.
        halves.sort(key=lambda half: half[0] == USER_PROJECT)
        for place, its in halves:  # check both halves before changing anything
            store = await self._open_active_store(place)
            await self._plan(store, place, its, client, await store.get_revision())
        told = {place: await self._undo_change(place, its, client) for place, its in halves}
        effect = "; ".join(effect for _, effect in told.values())
        return ChangeLogEntry(name, change, told[name][0], True, is_numbered_here, effect)

    async def find_newest_time(self, project: str | None, client: str, *, or_user: bool = False) -> int | None:
        """Return the time of the change that `undo` would reverse, or None if there is nothing to undo."""
        user = client if or_user else None
        if event := await self._find_newest_event(project, user):
            return event.change.at
        try:
            _, change = await self._find_newest(project, user)
        except Refused:
            return None
        return change.at

    async def _list_events(self, project: str | None) -> list[ChangeLogEntry]:
        """List the changes of whole projects, of one or of all that are not off."""
        found: list[ChangeLogEntry] = []
        for events in await self._read_events():
            last = events[-1]
            if project in (None, last.project.name, last.name) and not last.project.is_off:
                undone = find_undone([event.change for event in events])
                found += [_build_event_entry(event, is_undone=event.change.seq in undone) for event in events]
        return found

    async def _list_bank_writes(self, project: str | None) -> list[ChangeLogEntry]:
        writes = [] if self._bank_changes is None else await self._bank_changes.list_writes(project)
        return [_build_write_entry(each) for each in writes]

    async def find_bank_write(self, reference: str) -> "BankWrite | None":
        """Return the write of memory bank files, or None if the reference has another form."""
        if _BANK_WRITE.fullmatch(reference) is None or self._bank_changes is None:
            return None
        for written in await self._bank_changes.list_writes():
            if written.reference == reference:
                return written
        raise NotFound("change", reference, hint="Run `everkept log` to list changes.")

    async def _read_events(self) -> "list[list[ProjectEvent]]":
        return [] if self._project_changes is None else await self._project_changes.list_events()

    async def find_event(self, reference: str) -> "ProjectEvent | None":
        """Return the change of a whole project, or None if the reference has another form."""
        label, _, marked = reference.rpartition(":")
        number = marked.removeprefix(EVENT_MARK)
        if number == marked or not number.isdecimal() or len(number) > MAX_DIGITS:
            return None
        for events in await self._read_events():
            if _get_event_label(events[-1]) == label:
                for event in events:
                    if event.change.seq == int(number):
                        return event
        raise NotFound("change", reference, hint="Run `everkept log` to list changes.")

    async def _find_newest_event(self, project: str | None, of_user: str | None) -> "ProjectEvent | None":
        """Return the change of a whole project that `undo` reverses, if no later change comes first.

        With `of_user`, it may be the deletion or archiving of any project.
        """
        found: list[ProjectEvent] = []
        for events in await self._read_events():
            undone = find_undone([event.change for event in events])
            standing = [e for e in events if e.change.seq not in undone and e.change.undoes is None]
            last = events[-1]
            is_named = project is not None and project in (last.project.name, last.name)
            is_gone = of_user is not None and last.after != "active"
            if standing and (is_named or is_gone) and not last.project.is_off and await self._may_undo(standing[-1]):
                found.append(standing[-1])
        event = max(found, key=lambda each: each.change.at, default=None)
        if event is None:
            return None
        try:
            _, change = await self._find_newest(project, of_user)
        except (NotFound, ProjectArchived, ProjectOff):
            return event
        except Refused:
            names = await self._list_names(None) if project is None else []
            times = [each.at for name in names if (each := await self._find_in_force(name))]
            return event if max(times, default=0) < event.change.at else None
        return event if change.at < event.change.at else None

    async def _may_undo(self, event: "ProjectEvent") -> bool:
        """Return whether `undo` may choose the change: a creation only if the project is still empty."""
        if event.before:
            return True
        try:
            store = await self._open_active_store(event.project.name)
        except EverkeptError:
            return False
        return await store.get_revision() == 0

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

    async def _undo_change(self, name: str, change: Change, client: str) -> tuple[str, str]:
        """Undo a change. Return the summaries of the change and of its reversal."""
        store = await self._open_active_store(name)

        async def attempt(seen: int) -> Change:
            return await commit(store, await self._plan(store, name, change, client, seen))

        undoing = await retry_moved(store, attempt, f'project "{name}"')
        summary, effect = await summarize_changes(store, [change, undoing])
        return summary, effect

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
        records = await store.get([e.id for e in change.edits if e.id], include_deleted=True)
        if any(map(is_hidden_session, records)):
            raise NotFound("change", f"{name}:{change.seq}", hint="Undo a change that the log shows.")
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
        if change.tool != PROMOTING_TOOL or not moved:
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
                if other.tool == PROMOTING_TOOL
                and other.seq not in taken_back
                and any(edit.id in moved for edit in other.edits)
            ][:1]
        return found

    async def _find_newest(self, project: str | None, of_user: str | None) -> tuple[str, Change]:
        """Find the newest change to undo. With `of_user`, also among this client's changes of the user.

        A person whose folder has no project yet does not mean the only project that exists.
        """
        listed = [] if project is None and of_user is not None else await self._list_names(project)
        names = [name for name in listed if name != USER_PROJECT or project == USER_PROJECT]
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


def _get_event_label(event: "ProjectEvent") -> str:
    """Return the project in the reference of a change: its name, or for one in the trash the begin of its id."""
    project = event.project
    return project.id[:SHORT_ID_CHARACTERS] if is_trash_name(project.name) else project.name


def _build_event_entry(event: "ProjectEvent", *, is_undone: bool) -> ChangeLogEntry:
    name = event.name if is_trash_name(event.project.name) else event.project.name
    return ChangeLogEntry(name, event.change, event.summary, is_undone, event=event)


def _build_write_entry(written: "BankWrite") -> ChangeLogEntry:
    write = written.write
    return ChangeLogEntry(written.project, written.change, write.summary, write.is_undone, written=written)


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
