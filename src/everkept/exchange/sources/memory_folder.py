"""Folders of Markdown in which assistants keep memories: Claude Code, Anthropic's memory tool, Codex and Letta."""

import re
from collections.abc import Iterator
from pathlib import Path

from everkept.core.disk import open_regular
from everkept.core.projects import find_workspace
from everkept.exchange.foreign import (
    ForeignItem,
    ForeignLink,
    ForeignMemory,
    ForeignSource,
    Machine,
    Skipped,
    build_wrong_place_error,
)
from everkept.exchange.markdown_notes import LINKS_TO, OMITTED, Note, clean_target, find_links, split_parts, walk_notes
from everkept.transcripts.source_programs import as_mapping, as_text, compute_fingerprint, decode_object, parse_time
from everkept.values import replace

INDEX = "MEMORY.md"
SUFFIXES = (".md", ".txt", ".xml", ".json", ".yaml", ".yml")  # models choose the names
EXPECTED = "a folder of memories: it has no text file"
HINT = "Pass a folder such as ~/.claude/projects/NAME/memory, or one file of it."
NOT_PERSONAL = OMITTED | {"team", "logs", "sessions", "proposals", "skills"}  # of Claude Code and Codex
DERIVED = ("memory_summary.md", "raw_memories.md")  # Codex repeats its summaries there
USER_TYPES, FEEDBACK = ("user", "feedback"), "feedback"
MAX_TRANSCRIPTS, MAX_HEAD_BYTES = 20, 256 * 1024  # read to find the folder of a project
_INDEX_LINE = re.compile(r"\[[^\[\]\n]*\]\(([^()\n]+)\)")
_HEADER = re.compile(r"(thread_id|updated_at|rollout_path|cwd|git_branch):[ \t]*(.*)")


def read(place: Path, skipped: Skipped) -> Iterator[ForeignItem]:
    """Yield a memory for each file with properties, and for each part of the other files."""
    is_managed = place.is_dir() and (place / INDEX).is_file()
    omitted = NOT_PERSONAL if is_managed else OMITTED
    notes = list(walk_notes(place, skipped, suffixes=SUFFIXES, omitted=omitted))
    if not notes:
        raise build_wrong_place_error(place, EXPECTED, HINT)
    name, project, author = _name_folder(place if place.is_dir() else place.parent)
    paths = {note.path.stem: str(note.path) for note in notes}
    paths |= {note.get_text("name"): str(note.path) for note in notes}
    for note in notes:
        if is_managed and note.path.name in DERIVED:
            skipped["file that repeats others"] += 1
            continue
        for memory in _read_note(note, {*paths.values()}, skipped):
            is_personal = memory.project is None and (project is None or memory.kind in USER_TYPES)
            yield replace(
                memory,
                id=f"{name}/{memory.id}",
                scope="user" if is_personal else "project",
                project=memory.project or project,
                author=author,
                tags=(*memory.tags, *note.path.parent.parts),
                created_at=memory.created_at or note.created_at,
                updated_at=memory.updated_at or note.modified_at,
                file=str(note.path),
            )
            if memory.id == str(note.path):  # links in files with several memories belong to none of them
                targets = {paths.get(clean_target(link), memory.id) for link in find_links(note.body)}
                for target in sorted(targets - {memory.id}):
                    yield ForeignLink(f"{name}/{memory.id}", LINKS_TO, f"{name}/{target}", memory.created_at)


def _name_folder(place: Path) -> tuple[str, str | None, str | None]:
    """Return a name for the folder that stays the same, its project, and the agent to which it belongs."""
    place = place.absolute()
    if place.name == "memory" and place.parent.parent.name == "projects":
        return place.parent.name, _find_project(place.parent), None
    if place.parent.name.startswith("agent-memory"):
        return f"{place.parent.name}/{place.name}", None, place.name
    return place.name, None, None


def _find_project(folder: Path) -> str | None:
    """Return the project of a folder of Claude Code: its transcripts have the path, and its name does not."""
    for path in sorted(folder.glob("*.jsonl"))[:MAX_TRANSCRIPTS]:
        try:
            with open_regular(path) as file:
                records = map(decode_object, file.read(MAX_HEAD_BYTES).split(b"\n"))
                found = next(filter(None, (as_text(record.get("cwd")) for record in records)), None)
            if found:
                home = find_workspace(Path(found)) if Path(found).is_dir() else None
                return home.name if home else _get_last_part(found)
        except OSError:
            continue
    return None


def _get_last_part(folder: str) -> str | None:
    """Return the name of a folder, also of another system."""
    return re.split(r"[\\/]", folder.rstrip("\\/"))[-1] or None


def _read_note(note: Note, files: set[str], skipped: Skipped) -> Iterator[ForeignMemory]:
    if "rollout_summaries" in note.path.parts:
        yield _read_summary(note)
    elif note.properties:
        described = as_mapping(note.properties.get("metadata"))
        kind = as_text(described.get("type")) or note.get_text("type")
        modified = parse_time(described.get("modified"))
        yield ForeignMemory(
            str(note.path),
            "\n\n".join(filter(None, (note.get_text("description"), note.body.strip()))),
            kind=kind,
            type="procedural" if kind == FEEDBACK else "semantic",
            session=as_text(described.get("originSessionId")) or None,
            tags=(kind, *note.tags),
            created_at=modified,
            updated_at=modified,
        )
    else:
        for text in split_parts(note.body):
            listed = _INDEX_LINE.match(text)
            if note.path.name == INDEX and listed and listed[1] in files:
                skipped["line of the index"] += 1
            else:
                yield ForeignMemory(f"{note.path}#{compute_fingerprint(text)}", text)


def _read_summary(note: Note) -> ForeignMemory:
    """Return what Codex wrote about one conversation. The first lines are about it."""
    head, _, text = note.body.partition("\n\n")
    named = (_HEADER.fullmatch(line.strip()) for line in head.split("\n"))
    facts = {str(found[1]): str(found[2]) for found in named if found}
    at = parse_time(facts.get("updated_at"))
    return ForeignMemory(
        str(note.path),
        text.strip() if facts else note.body.strip(),
        kind="summary",
        type="episodic",
        project=_get_last_part(facts.get("cwd", "")),
        session=facts.get("thread_id") or None,
        tags=("summary",),
        created_at=at,
        updated_at=at,
    )


def find(machine: Machine) -> list[Path]:
    """Return the folders of Claude Code's projects and agents, and that of Codex."""
    claude = machine.get_folder("CLAUDE_CONFIG_DIR", machine.home / ".claude")
    codex = machine.get_folder("CODEX_HOME", machine.home / ".codex") / "memories"
    folders = [*claude.glob("projects/*/memory"), *claude.glob("agent-memory/*"), codex]
    return [folder for folder in sorted(folders) if any(folder.glob("*.md"))]


MEMORY_FOLDER = ForeignSource(
    "memory-folder",
    "folders of Markdown memories",
    "PATH is a folder in which Claude Code, Codex, Letta or Anthropic's memory tool keeps memories, or one file of it.",
    read,
    find,
)
