"""Archiving, deletion and restoring of whole projects, each of which is in the change log and can be undone.

A deleted project goes to the trash: it is archived under a name that no one else uses. So it keeps all its data, and
its own name is free. Only a purge, or the time, removes it permanently.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from everkept.accounts.account_library import GuardedLibrary, check_free_name, translate_project_errors
from everkept.accounts.grants import (
    Grant,
    build_grant_key,
    build_grants_prefix,
    encode_grant,
    iterate_stored_names,
    parse_grants,
)
from everkept.accounts.project_events import (
    EventNote,
    ProjectEvent,
    ProjectState,
    delete_permanently,
    find_undone_events,
    get_state,
    read_events,
)
from everkept.core.folder_project import restore_choices
from everkept.core.library import Library, SetProjectStatus
from everkept.core.ports import RecordStore
from everkept.core.projects import Project, TrashedProject, build_project_error, build_trash_name
from everkept.core.sessions import get_acting_account
from everkept.core.times import Clock
from everkept.errors import (
    AmbiguousId,
    Conflict,
    EverkeptError,
    NotFound,
    ProjectExists,
    ProjectStatusConflict,
    Refused,
)
from everkept.values import replace

DAY_MICROSECONDS = timedelta(days=1) // timedelta(microseconds=1)
_NAME_HINT = "Call restore_project and pass another name as `new_name`."
MIN_ID_CHARACTERS = 4  # of an id that is typed in part


async def list_trashed(library: Library, days: int = 0) -> list[TrashedProject]:
    """Return the projects in the trash, the last deleted first."""
    found: list[TrashedProject] = []
    for events in (await read_events(library)).values():
        last = events[-1]
        if get_state(last.project) == "trash":
            at = last.change.at if last.after == "trash" else last.project.updated_at
            name = last.name if last.after == "trash" else last.project.id
            status = "archived" if last.before == "archived" else "active"
            until = at + days * DAY_MICROSECONDS if days else None
            found.append(TrashedProject(last.project, name, at, until, status, last.was_off))
    return sorted(found, key=lambda each: -each.deleted_at)


async def empty_trash(library: Library, days: int, now: int) -> list[TrashedProject]:
    """Permanently delete the projects whose time in the trash is over, and return them."""
    over = [each for each in await list_trashed(library, days) if each.until is not None and each.until <= now]
    for each in over:
        with suppress(NotFound):  # another process was first
            await delete_permanently(library, each.project)
    return over


def label_trashed(trashed: TrashedProject) -> str:
    """Return a name for commands that cannot be that of another project."""
    return f"{trashed.name} (in the trash: {trashed.project.id[:8]})"


@asynccontextmanager
async def open_trashed(library: Library, trashed: TrashedProject) -> AsyncGenerator[RecordStore]:
    """Open a project in the trash to purge or mask items. It stays there, also after a crash."""
    project = trashed.project
    if project.status == "archived":
        with suppress(ProjectStatusConflict):  # another process does the same
            await library.restore(project.name)
    try:
        yield (await library.open(project.name))[1]
    finally:
        with suppress(NotFound, ProjectStatusConflict):  # purged or restored by another process
            await library.archive(project.name)


class ProjectChanges:
    """Changes of whole projects by the acting account. A pinned server passes its `only` project."""

    def __init__(
        self, library: Library, guarded: GuardedLibrary, clock: Clock, days: int, only: str | None = None
    ) -> None:
        self._library = library
        self._guarded = guarded
        self._clock = clock
        self._days = days
        self._only = only

    async def archive(self, name: str, client: str) -> Project:
        stored = await self._guarded.resolve_own_project(name)
        with translate_project_errors(stored.name, name):
            return replace(await self._move(stored, "archived", client), name=name)

    async def delete(self, name: str, client: str) -> TrashedProject:
        """Move a project to the trash."""
        stored = await self._guarded.resolve_own_project(name)
        with translate_project_errors(stored.name, name):
            moved = await self._move(stored, "trash", client)
        for trashed in await self.list_trash():
            if trashed.project.id == moved.id:
                return trashed
        raise Conflict(f'Project "{name}" was restored by another process.', hint="Try again.", project=name)

    async def restore(self, name: str, client: str, new_name: str | None = None) -> Project:
        """Restore an archived project, otherwise the last deleted one with this name or id."""
        trashed = await self.find_trashed(name)
        live = await self._find_live(name) if new_name is None else None
        if live is not None and (live.status == "archived" or trashed is None):
            stored = await self._guarded.resolve_own_project(name)
            with translate_project_errors(stored.name, name):
                return replace(await self._move(stored, "active", client), name=name)
        if trashed is None:
            raise build_project_error(name)
        return await self._take_out(trashed, trashed.name if new_name is None else new_name, "active", client)

    async def list_trash(self) -> list[TrashedProject]:
        """Return the acting account's own projects in the trash, the last deleted first."""
        found = await list_trashed(self._library, self._days)
        if self._only is not None:
            found = [each for each in found if each.name == self._only]
        if get_acting_account() is None:
            return found
        own = {grant.project_id: grant for grant in await self._list_own_grants()}
        return [replace(each, name=own[each.project.id].name) for each in found if each.project.id in own]

    async def find_trashed(self, name: str) -> TrashedProject | None:
        """Return the last deleted project with this name, otherwise the one whose id begins so."""
        trash = await self.list_trash()
        named = [each for each in trash if each.name == name]
        typed = [each for each in trash if each.project.id.startswith(name)] if len(name) >= MIN_ID_CHARACTERS else []
        if not named and len(typed) > 1:
            raise AmbiguousId("project", name, {each.project.id: each.name for each in typed})
        return next(iter(named or typed), None)

    async def purge(self, trashed: TrashedProject) -> None:
        await delete_permanently(self._library, trashed.project)

    async def list_events(self) -> list[list[ProjectEvent]]:
        """Return the changes of each project, oldest first. An account gets those of projects that it owns."""
        found = [*(await read_events(self._library)).values()]
        if self._only is not None:
            found = [each for each in found if each[-1].name == self._only]
        if get_acting_account() is None:
            return found
        own = {grant.project_id: grant.name for grant in await self._list_own_grants()}
        return [
            [_rename_event(event, own[event.project.id]) for event in events]
            for events in found
            if events[-1].project.id in own
        ]

    async def undo(self, event: ProjectEvent, client: str) -> str:
        """Undo a change of a project. Return what that did. Raise Refused after a later change."""
        events = await self._find_events(event)
        undone, seq = find_undone_events(events), event.change.seq
        later = [each for each in events if each.change.seq > seq and each.change.undoes is None]
        standing = [each for each in later if each.change.seq not in undone]
        if seq in undone or standing:
            problem = "already undone" if seq in undone else "not its last one"
            raise Refused(
                f'This change of project "{event.name}" is {problem}.',
                hint="Run `everkept log` to see the changes.",
                change=seq,
            )
        target: ProjectState = event.before or "trash"
        if get_state(event.project) == "trash":
            trashed = await self.find_trashed(event.project.id)
            assert trashed is not None
            status = "archived" if target == "archived" else "active"
            await self._take_out(trashed, trashed.name, status, client, seq)
        else:
            stored = (await read_events(self._library))[event.project.id][-1].project
            await self._move(stored, target, client, undoes=seq)
        return (await self._find_events(event))[-1].summary

    async def _find_events(self, event: ProjectEvent) -> list[ProjectEvent]:
        """Return all changes of the event's project. Raise NotFound if the acting account does not own it."""
        for events in await self.list_events():
            if events[-1].project.id == event.project.id:
                return events
        raise build_project_error(event.name)

    async def _move(
        self, stored: Project, after: ProjectState, client: str, *, new_name: str = "", undoes: int | None = None
    ) -> Project:
        """Change the state of a project, which the log notes first."""
        events = (await read_events(self._library)).get(stored.id)
        note = EventNote(self._library, self._clock)
        await note.write(events[-1] if events else None, stored, after, client, undoes)
        name = build_trash_name(stored.id) if after == "trash" else new_name
        try:
            moved = await self._library.apply(
                SetProjectStatus(stored.name, "active" if after == "active" else "archived", name)
            )
        except EverkeptError as error:
            await note.withdraw(error)
            raise
        if after == "active":
            await restore_choices(self._library, moved)
        if after == "trash" and moved.is_off:
            # What is said in its folder from now on belongs to another project.
            moved = await self._library.set_off(moved.name, off=False)
        return moved

    async def _take_out(
        self, trashed: TrashedProject, name: str, status: ProjectState, client: str, undoes: int | None = None
    ) -> Project:
        """Restore a project from the trash under a name that must be free."""
        check_free_name(name)
        if self._only not in (None, name):
            raise Refused(f'This server serves only project "{self._only}".', hint="Omit new_name.", project=self._only)
        if await self._find_live(name) is not None:
            raise ProjectExists(name, hint=_NAME_HINT)
        if trashed.is_off:
            await self._library.set_off(trashed.project.name, off=True)
        account = get_acting_account()
        stored_names = [name] if account is None else iterate_stored_names(name, account.name)
        for stored_name in stored_names:
            try:
                moved = await self._move(trashed.project, status, client, new_name=stored_name, undoes=undoes)
            except ProjectExists:
                if account is None:
                    raise ProjectExists(name, hint=_NAME_HINT) from None
                continue
            await self._rename_grant(moved, name)
            return replace(moved, name=name)
        raise build_project_error(name)

    async def _find_live(self, name: str) -> Project | None:
        try:
            return await self._guarded.get_project(name)
        except NotFound:
            return None

    async def _list_own_grants(self) -> Sequence[Grant]:
        account = get_acting_account()
        if account is None:
            return []
        notes = await self._library.list_notes(build_grants_prefix(account.name))
        return [grant for grant in parse_grants(notes) if grant.access == "own"]

    async def _rename_grant(self, project: Project, name: str) -> None:
        for grant in await self._list_own_grants():
            if grant.project_id == project.id and grant.name != name:
                key = build_grant_key(grant.user, project.id)
                await self._library.set_note(key, encode_grant(replace(grant, name=name)))


def _rename_event(event: ProjectEvent, name: str) -> ProjectEvent:
    """Return the event under the name that an account has for its project."""
    project = event.project
    shown = project if get_state(project) == "trash" else replace(project, name=name)
    return replace(event, name=name, project=shown)
