"""Folders of notes: vaults of Obsidian, and the projects of basic-memory. Each note is an entity.

A note of a vault with the tag `memory` is a memory.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from everkept.core.disk import open_regular
from everkept.exchange.foreign import (
    ForeignItem,
    ForeignLink,
    ForeignMemory,
    ForeignSource,
    Machine,
    Skipped,
    build_wrong_place_error,
    choose_type,
)
from everkept.exchange.markdown_notes import Note, NoteIndex, build_note_entity, walk_notes
from everkept.exchange.vault import is_own_note, read_own_note
from everkept.transcripts.source_programs import as_mapping, as_text, decode_object
from everkept.values import replace

MEMORY_TAG = "memory"
VAULTS_FILE, PROJECTS_FILE = "obsidian.json", "config.json"
MAX_CONFIG_BYTES = 4 * 1024 * 1024
EXPECTED = "a folder of notes: it has no Markdown file"
VAULT_HINT = "Pass the folder of a vault, or one note."
PROJECTS_HINT = f"Pass the folder with {PROJECTS_FILE} of basic-memory, or a folder of notes."


def read_vault(place: Path, skipped: Skipped) -> Iterator[ForeignItem]:
    notes = list(walk_notes(place, skipped))
    if not notes:
        raise build_wrong_place_error(place, EXPECTED, VAULT_HINT)
    index = NoteIndex(notes)
    projects = {note.path.parts[0]: note.get_text("project") for note in notes if is_own_note(note)}
    for note in notes:
        if is_own_note(note):
            yield from read_own_note(note, index)
            continue
        is_memory = MEMORY_TAG in (tag.lower() for tag in note.tags)
        for item in [_build_memory(note)] if is_memory else build_note_entity(note, index, skipped):
            yield _move_to_project(item, projects.get(note.path.parts[0]))


def _move_to_project(item: ForeignItem, project: str | None) -> ForeignItem:
    """Return the item of a new note in the project to which the exported notes of its folder belong."""
    if project is None or isinstance(item, ForeignLink):
        return item
    return replace(item, project=project) if project else replace(item, scope="user")


def _build_memory(note: Note) -> ForeignMemory:
    kind = note.get_text("type")
    return ForeignMemory(
        str(note.path),
        note.body.strip(),
        kind=kind,
        type=choose_type(kind),
        tags=[tag for tag in note.tags if tag.lower() != MEMORY_TAG],
        created_at=note.created_at,
        updated_at=note.modified_at,
        file=str(note.path),
    )


def find_vaults(machine: Machine) -> list[Path]:
    """Return the vaults that Obsidian lists."""
    if machine.platform == "darwin":
        settings = machine.home / "Library" / "Application Support" / "obsidian"
    elif machine.platform == "win32":
        settings = machine.get_folder("APPDATA", machine.home / "AppData" / "Roaming") / "obsidian"
    else:
        settings = machine.get_folder("XDG_CONFIG_HOME", machine.home / ".config") / "obsidian"
        sandboxed = machine.home / ".var/app/md.obsidian.Obsidian/config/obsidian"
        settings = settings if settings.is_dir() else sandboxed
    listed = as_mapping(_read_config(settings / VAULTS_FILE).get("vaults"))
    paths = [as_text(as_mapping(vault).get("path")) for vault in listed.values()]
    return [Path(path) for path in paths if path]


def read_projects(place: Path, skipped: Skipped) -> Iterator[ForeignItem]:
    """Yield each note as an entity, from all projects or from one folder."""
    folders: Mapping[str | None, Path] = {**_read_project_folders(place)}
    found = False
    for name, folder in (folders or {None: place}).items():
        notes = list(walk_notes(folder, skipped))
        index = NoteIndex(notes, name)
        for note in notes:
            found = True
            yield from build_note_entity(note, index, skipped)
    if not found:
        raise build_wrong_place_error(place, EXPECTED, PROJECTS_HINT)


def _read_project_folders(place: Path) -> Mapping[str, Path]:
    named = as_mapping(_read_config(place / PROJECTS_FILE).get("projects"))
    # An older version has only the path of each project.
    paths = {name: as_text(each) or as_text(as_mapping(each).get("path")) for name, each in named.items()}
    return {name: Path(path).expanduser() for name, path in paths.items() if path}


def find_projects(machine: Machine) -> list[Path]:
    settings = machine.environment.get("XDG_CONFIG_HOME")
    usual = Path(settings).expanduser() / "basic-memory" if settings else machine.home / ".basic-memory"
    folder = machine.get_folder("BASIC_MEMORY_CONFIG_DIR", usual)
    return [folder] if (folder / PROJECTS_FILE).is_file() else []


def _read_config(path: Path) -> Mapping[str, Any]:
    try:
        with open_regular(path) as file:
            return decode_object(file.read(MAX_CONFIG_BYTES))
    except OSError:
        return {}


OBSIDIAN = ForeignSource(
    "obsidian",
    "an Obsidian vault",
    "PATH is its folder. Notes become entities, and links relations. A note with the tag #memory becomes a memory.",
    read_vault,
    find_vaults,
)
BASIC_MEMORY = ForeignSource(
    "basic-memory",
    "basic-memory",
    "PATH is the folder with its config.json, or a folder of notes. Notes become entities with observations and "
    "relations.",
    read_projects,
    find_projects,
)
