"""Vault of Obsidian with a note for each memory and entity, which can be edited and imported again.

The properties of a note hold the id, so that `import obsidian` finds what the note stands for. Each observation ends
with its id as the mark of its block. Links follow a comment, which Obsidian hides.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from everkept.core.ports import RecordStore
from everkept.core.projects import Project
from everkept.core.records import Record, RecordFilter, RecordLink
from everkept.errors import InvalidInput
from everkept.exchange.export_format import (
    MANIFEST_FILE,
    ExportDrafts,
    build_file_name,
    format_exact_time,
    read_manifest,
)
from everkept.exchange.exporter import get_store_folder
from everkept.exchange.foreign import OWN_ID, ForeignEntity, ForeignItem, ForeignLink, ForeignMemory, ForeignRelation
from everkept.exchange.markdown_notes import OWN_ID_KEY, Note, NoteIndex, is_task, parse_relation
from everkept.families.memories.model import DEFAULT_IMPORTANCE, MEMORY, MemoryType, Scope
from everkept.graph.entities import ENTITY, OBSERVATION
from everkept.transcripts.source_programs import as_texts, parse_time

OWN = "everkept"
LINKS_COMMENT = "%% links %%"
MEMORY_FOLDER = "memories"
MAX_TITLE_CHARACTERS = 60
_UNLINKABLE = re.compile(r'[#^\[\]|%\s\x00-\x1f\x7f<>:"/\\?*]+')  # in links, or in names of files
_UNPRINTABLE = re.compile("[\x7f-\x9f\ufeff\ufffe\uffff\u2028\u2029]")  # YAML refuses some of them
_ITEM = re.compile(r"- (.*)")
_MARK = re.compile(r"\s\^([A-Za-z0-9-]{1,80})\s*\Z")
_TYPES: dict[str, MemoryType] = {
    "semantic": "semantic",
    "episodic": "episodic",
    "procedural": "procedural",
    "working": "working",
}
_SCOPES: dict[str, Scope] = {"user": "user", "session": "session"}


async def write_notes(drafts: ExportDrafts, place: str, store: RecordStore, project: Project | None) -> int:
    """Write the notes of a project, or of the user, and return their number."""
    folder = get_store_folder(place, project)
    records = [
        *await store.scan(RecordFilter(kinds=(ENTITY,)), order="name"),
        *await store.scan(RecordFilter(kinds=(MEMORY,))),
    ]
    ids = tuple(record.id for record in records)
    observations: dict[str, list[Record]] = {}
    for each in await store.scan(RecordFilter(kinds=(OBSERVATION,), parents=ids)) if ids else ():
        observations.setdefault(each.parent or "", []).append(each)
    links: dict[str, list[RecordLink]] = {}
    for link in await store.find_links(ids, direction="out") if ids else ():
        links.setdefault(link.source, []).append(link)
    paths = _assign_paths(folder, records)
    for record in records:
        with drafts.open(f"{paths[record.id]}.md") as file:
            told = observations.get(record.id, ())
            changed = max(each.updated_at for each in (record, *told))
            file.write(_format_properties(record, changed, None if project is None else project.name))
            file.writelines(_format_body(record, told))
            file.writelines(_format_links(record, links.get(record.id, ()), paths))
    return len(records)


def refuse_edited_notes(folder: Path) -> None:
    """Raise InvalidInput if a note was edited since it was written: another export would lose the edit."""
    manifest = read_manifest(folder) if folder.is_dir() else None
    if manifest is None:
        return
    written = (folder / MANIFEST_FILE).stat().st_mtime_ns
    for name in manifest.files:
        path = folder / name
        if path.suffix == ".md" and path.is_file() and path.stat().st_mtime_ns > written:
            raise InvalidInput(
                f"{path} was edited after the export, which would replace it.",
                hint=f"To import your edits, run `everkept import obsidian {folder}`. Then export to a new folder.",
            )


def _assign_paths(folder: str, records: Sequence[Record]) -> dict[str, str]:
    """Return a distinct path for each record. The ids decide the order, so that paths stay the same."""
    paths: dict[str, str] = {}
    taken: set[str] = set()
    for record in sorted(records, key=lambda each: each.id):
        words = record.text.strip().split("\n", 1)[0] if record.kind == MEMORY else record.name or ""
        title = _UNLINKABLE.sub(" ", words[:MAX_TITLE_CHARACTERS]).strip(" .") or record.id
        inner = f"{folder}/{MEMORY_FOLDER}" if record.kind == MEMORY else folder
        first = path = f"{inner}/{build_file_name(title).replace('%', '-')}"
        tried = 0
        while (key := _fold_path(path)) in taken:
            mark = build_file_name(record.id.rpartition("-")[2][-12:]).replace("%", "-")
            path, tried = f"{first} {mark}{f' {tried}' if tried else ''}", tried + 1
        taken.add(key)
        paths[record.id] = path
    return paths


def _fold_path(path: str) -> str:
    """Return the same text for paths that are one file on macOS or Windows."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _format_properties(record: Record, changed: int, project: str | None) -> str:
    named: dict[str, Any] = {OWN: record.kind, OWN_ID_KEY: record.id, "type": record.type, "project": project}
    if record.kind == ENTITY:
        named["title"] = record.name
    else:
        named |= {
            "scope": record.scope,
            "importance": record.importance,
            "session": record.session,
            "author": record.author,
            "occurred": record.occurred_at and format_exact_time(record.occurred_at),
            "tags": list(record.tags),
            "pinned": record.facets.get("pinned"),
            "supersedes": record.facets.get("supersedes"),
        }
    named["created"] = format_exact_time(record.created_at)
    named["updated"] = format_exact_time(changed)
    lines = [f"{name}: {_format_value(value)}" for name, value in named.items() if value not in (None, "", [])]
    return "\n".join(["---", *lines, "---", ""])


def _format_value(value: Any) -> str:
    """Return the value as JSON, which is YAML too if it has no unprintable characters."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def _format_body(record: Record, observations: Sequence[Record]) -> Iterator[str]:
    if record.kind == MEMORY:
        yield record.text.strip("\n") + "\n"
    for each in observations:
        text = each.text.strip("\n").replace("\n", "\n  ")
        yield f"- {text} ^{each.id}\n"


def _format_links(record: Record, links: Sequence[RecordLink], paths: Mapping[str, str]) -> Iterator[str]:
    shown = [link for link in links if link.target in paths]
    if shown or LINKS_COMMENT in record.text:
        yield f"\n{LINKS_COMMENT}\n"
    for link in shown:
        verb = link.verb if re.fullmatch(r'[^\s"\[\]`]{1,100}', link.verb) else f'"{link.verb}"'
        path = paths[link.target]
        yield f"- {verb} [[{path}|{PurePosixPath(path).name}]]\n"


def is_own_note(note: Note) -> bool:
    return note.get_text(OWN) in (ENTITY, MEMORY) and bool(note.own_id)


def read_own_note(note: Note, index: NoteIndex) -> Iterator[ForeignItem]:
    """Yield the memory or entity of a note that an export wrote, with its links. Other lines below the links, where
    people add some, belong to its text.
    """
    above, comment, below = note.body.rpartition(LINKS_COMMENT)
    lines = below.split("\n") if comment else []
    links = [found for line in lines if (found := _parse_link(line))]
    added = "\n".join(line for line in lines if _parse_link(line) is None).strip()
    text = "\n\n".join(filter(None, (above.rstrip(), added))) if comment else note.body
    own = index.get_id(note)
    project = note.get_text("project") or None
    if note.get_text(OWN) == MEMORY:
        yield _build_memory(note, own, project, text)
    else:
        items = list(_split_items(text))
        plain = [(words, mark) for words, mark in items if mark or not (is_task(words) or parse_relation(words))]
        links += [found for words, mark in items if not mark and (found := parse_relation(words))]
        yield ForeignEntity(
            own,
            note.title,
            note.get_text("type"),
            tuple(words for words, _ in plain),
            project,
            note.created_at,
            scope="project" if project else "user",
            observation_ids=tuple(mark for _, mark in plain),
            updated_at=note.modified_at,
        )
    for verb, link in links:
        target = index.find(link, note)
        if target is not None and target.startswith(OWN_ID):
            yield ForeignLink(own, verb, target, note.modified_at)
        elif target is not None and note.get_text(OWN) == ENTITY:
            scope = "project" if project else "user"
            yield ForeignRelation(own, verb, target, project, note.modified_at, scope=scope)


def _build_memory(note: Note, own: str, project: str | None, text: str) -> ForeignMemory:
    importance = note.get_text("importance")
    replaced = note.get_text("supersedes")
    return ForeignMemory(
        own,
        text.strip("\n"),
        kind="note of a memory",
        type=_TYPES.get(note.get_text("type"), "semantic"),
        scope=_SCOPES.get(note.get_text("scope"), "project" if project else "user"),
        project=project,
        session=note.get_text("session") or None,
        author=note.get_text("author") or None,
        importance=_read_number(importance),
        tags=as_texts(note.properties.get("tags")),
        created_at=note.created_at,
        updated_at=note.modified_at,
        occurred_at=parse_time(note.properties.get("occurred")),
        supersedes=f"{OWN_ID}{replaced}" if replaced else None,
        is_pinned=note.get_text("pinned") == "true",
    )


def _read_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return DEFAULT_IMPORTANCE


def _parse_link(line: str) -> tuple[str, str] | None:
    item = _ITEM.match(line.strip())
    return parse_relation(item[1]) if item else None


def _split_items(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield each item with its mark. Its other lines are indented; lines between items belong to none."""
    item: list[str] | None = None
    for line in [*text.split("\n"), "- "]:
        begins = _ITEM.match(line)
        if item is not None and (begins or (line.strip() and not line.startswith("  "))):
            whole = "\n".join(item).strip()
            mark = _MARK.search(whole)
            if words := whole[: mark.start()] if mark else whole:
                yield words, mark[1] if mark else None
            item = None
        if begins:
            item = [begins[1]]
        elif item is not None:
            item.append(line.removeprefix("  "))
