"""The rule for the project of a folder, shared by commands, servers, hooks and the library.

A call uses the project that it names, otherwise that of its session, otherwise the configured one. This module decides
all other calls. The project that a command chose for a folder is linked to the folder, and noted with the one before.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from everkept.core.projects import DEFAULT_PROJECT, Project, WorkspaceInfo, encode_path, find_workspace
from everkept.core.text import parse_json_object
from everkept.errors import NotFound

if TYPE_CHECKING:  # a hook does not load it
    from everkept.core.library import Library

CHOICE_PREFIX = "folder project "  # of notes; a folder follows
ENDED_PREFIX = "ended folder project "  # of choices that ended with their project; a folder follows


class ProjectReader(Protocol):
    """The questions to a library that the rule needs."""

    async def get_project(self, name: str) -> Project: ...

    async def find_workspace_project(self, path: str) -> Project | None: ...

    async def get_note(self, key: str) -> str | None: ...


class FolderChoice(NamedTuple):
    """Project that a command chose for a folder, and the name of the folder's own project, if it has one."""

    project: str
    own: str | None = None


class FolderProject(NamedTuple):
    """Project of a folder. `project` is None until the first write creates it under `name`.

    `home` is the folder to which the project is linked, or None for the project `default`. `lost` is the name of a
    chosen project that no longer exists.
    """

    name: str
    project: Project | None = None
    home: WorkspaceInfo | None = None
    choice: FolderChoice | None = None
    lost: str | None = None


async def find_folder_project(
    library: ProjectReader, folder: Path | WorkspaceInfo | None, *, has_choice: bool = True
) -> FolderProject:
    """Return the project of a folder. A given workspace has a project in any case.

    `has_choice` is False for an account, because only the owner chooses. Without a folder, the home folder counts.
    """
    home = find_workspace(folder) if isinstance(folder, Path) else folder
    if home is not None:
        linked = await _find_linked(library, home, folder)
        if linked is not None:
            return linked
    key = get_choice_key(folder)
    choice = await read_choice(library, key) if has_choice else None
    project = None if choice is None else await find_chosen(library, choice)
    lost = choice.project if choice is not None and (project is None or project.name != choice.project) else None
    if home is not None and (home.marker or project is not None or not isinstance(folder, Path)):
        return FolderProject(home.name if project is None else project.name, project, home, choice, lost)
    if project is None:
        with suppress(NotFound):
            project = await library.get_project(DEFAULT_PROJECT)
    return FolderProject(DEFAULT_PROJECT if project is None else project.name, project, None, choice, lost)


async def explain_folder_project(library: ProjectReader, folder: Path | None) -> FolderProject:
    """Return the same with the choice behind it, which only people need to know."""
    found = await find_folder_project(library, folder)
    if found.choice is None and (choice := await read_choice(library, get_choice_key(folder))) is not None:
        return found._replace(choice=choice) if choice.project == found.name else found
    return found


async def _find_linked(
    library: ProjectReader, home: WorkspaceInfo, folder: Path | WorkspaceInfo | None
) -> FolderProject | None:
    """Return the project that is linked to the workspace.

    A folder without a marker is part of a linked folder around it.
    """
    if (project := await library.find_workspace_project(home.key)) is not None:
        return FolderProject(project.name, project, home)
    if home.marker or not isinstance(folder, Path):
        return None
    for around in _list_around(folder):
        if (project := await library.find_workspace_project(around.key)) is not None:
            return FolderProject(project.name, project, around)
    return None


def _list_around(folder: Path) -> list[WorkspaceInfo]:
    """Return the folders around this one, up to the home folder or the root."""
    found: list[WorkspaceInfo] = []
    for parent in folder.resolve().parents:
        if parent in (Path.home().resolve(), Path(parent.anchor)):
            break
        found.append(WorkspaceInfo(encode_path(parent), parent.name))
    return found


def get_choice_key(folder: Path | WorkspaceInfo | None) -> str:
    """Return the folder for which a choice counts: the workspace, or the home folder or root itself."""
    home = find_workspace(folder) if isinstance(folder, Path) else folder
    return (
        home.key if home is not None else encode_path((folder if isinstance(folder, Path) else Path.home()).resolve())
    )


async def read_choice(library: ProjectReader, key: str) -> FolderChoice | None:
    """Return what a command chose for the folder."""
    return parse_choice(await library.get_note(CHOICE_PREFIX + key))


async def find_chosen(library: ProjectReader, choice: FolderChoice) -> Project | None:
    """Return the chosen project, otherwise the folder's own one, or None if neither exists."""
    for name in (choice.project, choice.own):
        if name is not None:
            with suppress(NotFound):
                return await library.get_project(name)
    return None


def parse_choice(note: str | None) -> FolderChoice | None:
    """Return the choice in a note, or None if the note is missing or damaged."""
    fields = parse_json_object(note) or {}
    project, own = fields.get("project"), fields.get("own")
    return FolderChoice(project, own if isinstance(own, str) else None) if isinstance(project, str) else None


def format_choice(choice: FolderChoice) -> str:
    return json.dumps(choice._asdict(), ensure_ascii=False)


async def choose_project(library: "Library", folder: Path | None, name: str) -> None:
    """Use the project in the folder from now on, for commands, servers and hooks.

    The note comes first: if the process is killed in between, the folder keeps its project.
    """
    project = await library.get_project(name)
    key, home = get_choice_key(folder), None if folder is None else find_workspace(folder)
    linked = None if home is None else await library.find_workspace_project(key)
    choice = await read_choice(library, key)
    own = None if choice is None else choice.own
    if linked is not None and (choice is None or linked.name != choice.project):
        own = linked.name
    if name == own:
        await release_folder(library, folder)
        return
    await library.set_note(CHOICE_PREFIX + key, format_choice(FolderChoice(name, own)))
    await library.set_note(ENDED_PREFIX + key, None)
    if home is not None:
        await library.move_workspace(key, project)


async def release_folder(library: "Library", folder: Path | None) -> bool:
    """Use the folder's own project again. Return whether this changed anything."""
    key = get_choice_key(folder)
    choice = await read_choice(library, key)
    await library.set_note(ENDED_PREFIX + key, None)
    if choice is None:
        return False
    await release_key(library, key, choice)
    return True


async def end_choice(library: "Library", folder: Path | None, ended: str, project_id: str) -> bool:
    """Use the folder's own project again if it uses the ended one, and note that, so that an undo restores it.

    `ended` is the name that the project had. Return whether this changed anything.
    """
    key = get_choice_key(folder)
    choice = await read_choice(library, key)
    if choice is None or choice.project != ended:
        return False
    is_linked = folder is not None and find_workspace(folder) is not None
    note = json.dumps({**choice._asdict(), "id": project_id, "linked": is_linked}, ensure_ascii=False)
    await library.set_note(ENDED_PREFIX + key, note)
    await release_key(library, key, choice)
    return True


async def restore_choices(library: "Library", project: Project) -> None:
    """Choose a restored project again for the folders whose choice ended with it."""
    for note, value in (await _list_ended(library, project.id)).items():
        key, ended = note.removeprefix(ENDED_PREFIX), parse_choice(value)
        if ended is None or await read_choice(library, key) is not None:
            continue
        linked = await library.find_workspace_project(key)
        own = ended.own if linked is None else linked.name
        await library.set_note(CHOICE_PREFIX + key, format_choice(FolderChoice(project.name, own)))
        if (parse_json_object(value) or {}).get("linked"):
            await library.move_workspace(key, project)
        await library.set_note(note, None)


async def forget_ended_choices(library: "Library", project: Project) -> None:
    """Forget the choices that ended with a project, because it is never restored."""
    for note in await _list_ended(library, project.id):
        await library.set_note(note, None)


async def _list_ended(library: "Library", project_id: str) -> dict[str, str]:
    """Return the notes of the choices that ended with a project. Another one may have its name."""
    notes = await library.list_notes(ENDED_PREFIX)
    return {note: value for note, value in notes.items() if (parse_json_object(value) or {}).get("id") == project_id}


async def release_key(library: "Library", key: str, choice: FolderChoice) -> None:
    """Drop the choice for a folder, by its key. The folder's own project is linked again, if it still exists."""
    linked = await library.find_workspace_project(key)
    if linked is None or linked.name == choice.project:
        own = None
        if choice.own is not None:
            with suppress(NotFound):
                own = await library.get_project(choice.own)
        await library.move_workspace(key, own)
    await library.set_note(CHOICE_PREFIX + key, None)


async def list_choices(library: "Library") -> dict[str, FolderChoice]:
    """Return the choices by the key of the folder."""
    return parse_choices(await library.list_notes(CHOICE_PREFIX))


def parse_choices(notes: Mapping[str, str]) -> dict[str, FolderChoice]:
    found = ((key.removeprefix(CHOICE_PREFIX), parse_choice(value)) for key, value in notes.items())
    return {key: choice for key, choice in found if choice is not None}


def explain_choice(found: FolderProject, folder: Path | None) -> str:
    """Return why the folder has this project, as the end of a sentence. Empty for the folder's own project."""
    if found.lost is not None:
        return ""
    if found.choice is not None:
        return "chosen for this folder"
    if found.home is None:
        return "because this folder is not a project"
    if folder is not None and not found.home.marker:
        return f"of the folder {found.home.key}"
    return ""


def format_lost(found: FolderProject) -> str:
    """Return the warning about a chosen project that no longer exists."""
    return (
        f'Project "{found.lost}", chosen for this folder, no longer exists. Project "{found.name}" is used instead. '
        "To clear the choice, run `everkept doctor --fix`."
    )
