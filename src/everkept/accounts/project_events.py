"""Changes of whole projects for the change log: creation, archiving, restoring and deletion.

The project itself shows its creation. Each later change is a note of the library, written before the change happens.
After a crash in between, the note does not lead to the project's state, and is ignored.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Literal, cast
from uuid import uuid4

from everkept.accounts.grants import GRANT_NOTE_PREFIX, build_grant_key, encode_ended_grant, get_moment, parse_grants
from everkept.core.commits import find_undone
from everkept.core.folder_project import forget_ended_choices
from everkept.core.ports import Library
from everkept.core.projects import Project, is_trash_name
from everkept.core.records import Change
from everkept.core.sessions import format_signature, is_private_name
from everkept.core.text import parse_json_object
from everkept.core.times import Clock
from everkept.errors import EverkeptError, Unavailable
from everkept.values import Value

EVENT_PREFIX = "project.event."  # of notes; the project's id, a number and a random part follow
CREATION = 1  # number of a project's creation

ProjectState = Literal["", "active", "archived", "trash"]  # empty before the creation
_STATES = ("active", "archived", "trash")
_TOOLS = {"active": "restore_project", "archived": "archive_project", "trash": "delete_project"}
_WORDS = {"active": "Restored", "archived": "Archived", "trash": "Deleted"}


class ProjectEvent(Value):
    """One change of a whole project. `name` is the one that the project had, and `project` how it is stored now."""

    project: Project
    change: Change
    name: str
    before: ProjectState
    after: ProjectState
    was_off: bool = False

    @property
    def summary(self) -> str:
        verb = "Created" if self.before == "" else _WORDS[self.after]
        source = " from the trash" if (self.before, self.after) == ("trash", "active") else ""
        return f'{verb} project "{self.name}"{source}'


def get_state(project: Project) -> ProjectState:
    return "trash" if is_trash_name(project.name) else project.status


async def read_events(library: Library) -> dict[str, list[ProjectEvent]]:
    """Return the changes of each project by its id, oldest first."""
    notes: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for key, value in (await library.list_notes(EVENT_PREFIX)).items():
        notes[_parse_id(key)][key] = value
    grants = parse_grants(await library.list_notes(GRANT_NOTE_PREFIX))
    owners = {grant.project_id: grant.user for grant in grants if grant.access == "own"}
    projects = [each for each in await library.list_projects() if not is_private_name(each.name)]
    return {each.id: _follow(each, notes[each.id], owners.get(each.id, "")) for each in projects}


def find_undone_events(events: list[ProjectEvent]) -> set[int]:
    return find_undone([event.change for event in events])


class EventNote:
    """Note of a change of a project that is about to happen."""

    def __init__(self, library: Library, clock: Clock) -> None:
        self._library = library
        self._clock = clock
        self._key = ""

    async def write(
        self, event: ProjectEvent | None, project: Project, after: ProjectState, client: str, undoes: int | None = None
    ) -> None:
        """Write the note. `event` is the newest change of the project."""
        name = project.name if event is None or get_state(project) != "trash" else event.name
        number = CREATION if event is None else event.change.seq
        self._key = f"{_build_prefix(project.id)}{number + 1:06}.{uuid4().hex[:8]}"
        fields = {
            "at": self._clock(),
            "name": name,
            "before": get_state(project),
            "after": after,
            "client": format_signature(client),
            "undoes": undoes,
            "off": project.is_off or (event is not None and event.was_off and get_state(project) == "trash"),
        }
        await self._library.set_note(self._key, json.dumps(fields, ensure_ascii=False))

    async def withdraw(self, error: EverkeptError) -> None:
        """Remove the note of a change that failed. An unreachable server may have made the change."""
        if not isinstance(error, Unavailable):
            await self._library.set_note(self._key, None)


async def delete_permanently(library: Library, project: Project) -> None:
    """Delete a project by its stored name, with its events and ended choices, and end its grants."""
    await library.delete(project.name)
    await forget_ended_choices(library, project)
    for grant in parse_grants(await library.list_notes(GRANT_NOTE_PREFIX)):
        if grant.project_id == project.id:
            await library.set_note(build_grant_key(grant.user, project.id), encode_ended_grant(grant))
    for key in await library.list_notes(_build_prefix(project.id)):
        await library.set_note(key, None)


def _build_prefix(project_id: str) -> str:
    return f"{EVENT_PREFIX}{project_id}."


def _parse_id(key: str) -> str:
    return key.removeprefix(EVENT_PREFIX).rsplit(".", 2)[0]


def _follow(project: Project, notes: Mapping[str, str], owner: str) -> list[ProjectEvent]:
    """Return the events that led to the project's state, going back from it."""
    state, found = get_state(project), list[ProjectEvent]()
    for key in sorted(notes, reverse=True):
        event = _decode(project, key, notes[key])
        if event is not None and event.after == state:
            found.insert(0, event)
            state = event.before
    name = found[0].name if found else project.name
    made = Change(CREATION, project.created_at, "create_project", owner, None, ())
    return [ProjectEvent(project, made, name, "", "active"), *found]


def _decode(project: Project, key: str, value: str) -> ProjectEvent | None:
    fields, number = parse_json_object(value) or {}, key.rsplit(".", 2)[1]
    before, after, undoes = fields.get("before"), fields.get("after"), fields.get("undoes")
    if before not in _STATES or after not in _STATES or not number.isdecimal():
        return None
    tool = "undo" if isinstance(undoes, int) else _TOOLS[after]
    client = str(fields.get("client") or "")
    change = Change(int(number), get_moment(fields, "at"), tool, client, undoes, ())
    states = cast(ProjectState, before), cast(ProjectState, after)
    return ProjectEvent(project, change, str(fields.get("name") or project.id), *states, bool(fields.get("off")))
