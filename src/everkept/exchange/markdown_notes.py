"""Notes in Markdown: front matter, blocks of text, links and tags, as Obsidian and basic-memory write them."""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, cast
from urllib.parse import unquote

from everkept.core.disk import open_regular
from everkept.exchange.foreign import OWN_ID, ForeignEntity, ForeignItem, ForeignRelation, Skipped
from everkept.families.bank.markdown_sections import list_sections, split_lines
from everkept.families.bank.mode_rules import BadYaml, parse_yaml
from everkept.transcripts.source_programs import as_list, as_text, clean_value, decode_text, parse_time
from everkept.values import Value

NOTE_SUFFIX = ".md"
MAX_NOTE_BYTES = 2 * 1024 * 1024
MAX_PROPERTIES_CHARACTERS = 64 * 1024  # of a note; a megabyte of YAML takes seconds to parse
MAX_DEPTH = 20  # nested folders
LINKS_TO = "links_to"
NOTE_TYPE = "note"
OWN_ID_KEY = "everkept-id"
TASK, TOO_LARGE, TOO_MANY_PROPERTIES = "task", "file over 2 MiB", "note with properties over 64 KiB"
_CREATED, _MODIFIED = ("created", "created_at", "date"), ("modified", "updated", "updated_at")
OMITTED = frozenset(("templates", "node_modules"))  # folders, besides those with a leading dot

_FRONT_MATTER = re.compile(r"\A\ufeff?---[ \t]*\n(.*?)(?:\n|\A)---[ \t]*(?:\n|\Z)", re.DOTALL)
_HEADING = re.compile(r"#{1,6}(?:\s|$)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])[ \t]+(.*)")
_ITEM_START = re.compile(r"^[^\S\n]*(?:[-*+]|\d{1,9}[.)])[ \t]+\S", re.MULTILINE)
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_RULE = re.compile(r"\s*([-*_])(?:\s*\1){2,}\s*")
_TASK = re.compile(r"\[[ xX/-]\](?:\s|$)")
_COMMENT = re.compile(r"%%.*?%%|<!--(?:(?!<!--).)*?-->", re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_ATTACHMENTS = (".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".pdf", ".mp3", ".mp4", ".canvas", ".base")

_BLOCK_ID = re.compile(r"(?<=\s)\^([A-Za-z0-9-]{1,60})$")
_TAG = re.compile(r"(?<![\w/&#])#([\w/-]*[^\W\d][\w/-]*)")
_WIKILINK = re.compile(r"!?\[\[([^\[\]\n]{1,400})\]\]")
_LINK = re.compile(r"(?<!!)\[[^\[\]\n]{0,400}\]\(<?([^()<>\s]{1,400}\.md)(?:#[^()<>\s]*)?>?\)")
_VERB = r'(?:"([^"\n]{1,100})"|([^\s"\[\]`]{1,100}))'
_RELATION = re.compile(_VERB + r"\s+\[\[([^\[\]\n]{1,400})\]\](?:\s+\(.*\))?", re.DOTALL)


class NoteBlock(Value):
    """Item of a list, or paragraph, without its marker. `mark` is Obsidian's id of the block."""

    text: str
    mark: str | None = None


class Note(Value):
    """One file. `path` is its place below the folder of all notes."""

    path: PurePosixPath
    title: str
    properties: Mapping[str, Any]
    body: str
    tags: tuple[str, ...]
    created_at: int
    modified_at: int

    @property
    def own_id(self) -> str:
        """Return the id here, if an export of ours wrote the note."""
        return self.get_text(OWN_ID_KEY)

    def get_text(self, name: str) -> str:
        return as_text(self.properties.get(name)).strip()


def walk_notes(
    root: Path, skipped: Skipped, *, suffixes: tuple[str, ...] = (NOTE_SUFFIX,), omitted: Collection[str] = OMITTED
) -> Iterator[Note]:
    """Yield the notes in a folder and below it, or the one in a file. Folders with one of the omitted names and files
    with other suffixes are not read.
    """
    for path in [root] if root.is_file() else _walk_files(root, omitted):
        if not path.name.lower().endswith(suffixes):
            continue
        try:
            with open_regular(path) as file:
                raw = file.read(MAX_NOTE_BYTES + 1)
            modified = path.stat().st_mtime_ns // 1_000
        except OSError:
            skipped["unreadable file"] += 1
            continue
        if len(raw) > MAX_NOTE_BYTES:
            skipped[TOO_LARGE] += 1
            continue
        name, text = PurePosixPath(path.name if root.is_file() else path.relative_to(root).as_posix()), decode_text(raw)
        if _has_long_properties(text):
            skipped[TOO_MANY_PROPERTIES] += 1
            continue
        yield parse_note(text, name, modified)


def _walk_files(folder: Path, omitted: Collection[str], depth: int = 0) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in found:
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        if entry.is_dir() and depth < MAX_DEPTH and entry.name.lower() not in omitted:
            yield from _walk_files(Path(entry.path), omitted, depth + 1)
        elif entry.is_file():
            yield Path(entry.path)


def parse_note(text: str, path: PurePosixPath, modified: int) -> Note:
    text = _unify_line_ends(text)
    properties, body = _split_front_matter(text)
    changed = _read_time(properties, _MODIFIED, modified)
    return Note(
        path=path,
        title=as_text(properties.get("title")).strip() or path.stem,
        properties=properties,
        body=body,
        tags=tuple(dict.fromkeys([*_read_tags(properties.get("tags")), *find_tags(body)])),
        created_at=_read_time(properties, _CREATED, changed),
        modified_at=changed,
    )


def _has_long_properties(text: str) -> bool:
    found = _FRONT_MATTER.match(_unify_line_ends(text))
    return found is not None and found.end() > MAX_PROPERTIES_CHARACTERS


def _unify_line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _read_time(properties: Mapping[str, Any], names: Sequence[str], usual: int) -> int:
    times = (parse_time(properties.get(name)) for name in names)
    return next((at for at in times if at is not None), usual)


def _split_front_matter(text: str) -> tuple[Mapping[str, Any], str]:
    """Return the properties and the text below them. What is not a YAML mapping belongs to the text."""
    found = _FRONT_MATTER.match(text)
    if found is None:
        return {}, text.removeprefix("\ufeff")
    try:
        properties = parse_yaml(found[1])
    except BadYaml:
        properties = None
    if not isinstance(properties, dict):
        return {}, text
    named = cast(dict[Any, Any], clean_value(properties))
    return {str(name): value for name, value in named.items()}, text[found.end() :]


def _read_tags(value: Any) -> list[str]:
    every = as_list(value) or re.split(r"[,\s]+", as_text(value))
    return [tag for each in every if (tag := as_text(each).strip().lstrip("#"))]


def find_tags(text: str) -> list[str]:
    """Return the hashtags of a text, without those in code."""
    return _TAG.findall(_CODE.sub("", text))


def split_blocks(body: str) -> Iterator[NoteBlock]:
    """Yield the items and paragraphs. Headings, rules and comments are not among them; code stays whole."""
    open_lines: list[str] = []
    fence = ""
    for line in [*_COMMENT.sub("", body).split("\n"), ""]:
        bare = line.strip()
        if fence:
            open_lines.append(line)
            fence = "" if bare.startswith(fence) and not bare.strip(fence[0]) else fence
            continue
        item = _ITEM.match(line)
        begins = item is not None or _HEADING.match(line) or _RULE.fullmatch(line)
        if open_lines and (begins or not bare):
            yield from _close_block(open_lines)
            open_lines = []
        if found := _FENCE.match(line):
            fence = found[1]
        if item and not _RULE.fullmatch(line):
            open_lines = [item[1]]
        elif bare and not begins:
            open_lines.append(line if fence else bare)
    yield from _close_block(open_lines)


def _close_block(lines: Sequence[str]) -> Iterator[NoteBlock]:
    text = "\n".join(lines).strip()
    found = _BLOCK_ID.search(text)
    if found:
        text = text[: found.start()].rstrip()
    if text:
        yield NoteBlock(text, found[1] if found else None)


def split_parts(body: str) -> Iterator[str]:
    """Yield the parts of a text: each item of a list below its heading, or the whole text below a heading."""
    lines = split_lines(body)
    sections = list_sections(body)
    first = min((section.heading for section in sections), default=len(lines))
    yield from _split_section("", "".join(lines[:first]))
    for place, section in enumerate(sections):
        end = min((each.heading for each in sections[place + 1 :]), default=len(lines))
        yield from _split_section(section.title, "".join(lines[section.first : min(section.end, end)]))


def _split_section(title: str, text: str) -> Iterator[str]:
    blocks = list(split_blocks(text))
    if len(blocks) > 1 and _has_only_items(text, blocks):
        yield from (f"{title}: {block.text}" if title else block.text for block in blocks)
    elif text.strip():
        yield "\n\n".join(filter(None, (title, text.strip())))


def _has_only_items(text: str, blocks: Sequence[NoteBlock]) -> bool:
    return len(_ITEM_START.findall(text)) == len(blocks)


def is_task(text: str) -> bool:
    return _TASK.match(text) is not None


def parse_relation(text: str) -> tuple[str, str] | None:
    """Return verb and target of a line such as `depends_on [[Orders DB]]`, or None."""
    found = _RELATION.fullmatch(text)
    return None if found is None else (found[1] or found[2], found[3])


def find_links(text: str) -> list[str]:
    """Return the targets of links to other notes, without those in code."""
    plain = _CODE.sub("", text)
    return [*_WIKILINK.findall(plain), *map(unquote, _LINK.findall(plain))]


def clean_target(target: str) -> str:
    """Return the note that a link names, without heading, block and shown text."""
    return re.split(r"\\?\||#|\^", target, maxsplit=1)[0].strip().removesuffix(NOTE_SUFFIX).strip()


class NoteIndex:
    """Notes by all names that a link may use: title, path, file name, permalink and aliases."""

    def __init__(self, notes: Sequence[Note], project: str | None = None) -> None:
        self.project = project
        self._ids: dict[str, str] = {}
        for name_of in (_get_path, _get_title, _get_permalink, _get_stem):
            for note in notes:
                self._ids.setdefault(name_of(note).casefold(), self.get_id(note))
        for note in notes:
            for alias in _read_aliases(note):
                self._ids.setdefault(alias.casefold(), self.get_id(note))

    def get_id(self, note: Note) -> str:
        if note.own_id:
            return f"{OWN_ID}{note.own_id}"
        return str(note.path) if self.project is None else f"{self.project}/{note.path}"

    def find(self, target: str, origin: Note) -> str | None:
        """Return the id of the note that a link in `origin` means, the plain name if no note has it, or None."""
        name = clean_target(target)
        beside = os.path.normpath(origin.path.parent / name).replace("\\", "/")
        found = self._ids.get(beside.casefold()) or self._ids.get(name.casefold())
        is_attachment = name.lower().endswith(_ATTACHMENTS)
        return found or (None if is_attachment or not name else PurePosixPath(name).name)


def _get_path(note: Note) -> str:
    return str(note.path.with_suffix(""))


def _get_title(note: Note) -> str:
    return note.title


def _get_permalink(note: Note) -> str:
    return note.get_text("permalink")


def _get_stem(note: Note) -> str:
    return note.path.stem


def _read_aliases(note: Note) -> list[str]:
    value = note.properties.get("aliases")
    return [each.strip() for each in (as_list(value) or as_text(value).split(",")) if as_text(each).strip()]


def build_note_entity(note: Note, index: NoteIndex, skipped: Skipped) -> Iterator[ForeignItem]:
    """Yield a note as an entity: its blocks are observations, and its links relations."""
    observations: list[str] = [f"Also called {alias}" for alias in _read_aliases(note)]
    relations: dict[tuple[str, str], None] = {}
    own, project = index.get_id(note), index.project
    has_semantics = note.get_text("bm_parse_semantics").lower() != "false"
    for block in split_blocks(note.body):
        if is_task(block.text):
            skipped[TASK] += 1
            continue
        named = parse_relation(block.text) if has_semantics else None
        if named is None:
            observations.append(block.text)
        links = [named] if named else [(LINKS_TO, each) for each in find_links(block.text)] if has_semantics else []
        for verb, target in links:
            if (found := index.find(target, note)) and found != own:
                relations.setdefault((verb, found))
    tags = {"tags": [*note.tags]} if note.tags else {}
    kind = note.get_text("type") or NOTE_TYPE
    metadata = {"file": str(note.path), **tags}
    yield ForeignEntity(own, note.title, kind, tuple(observations), project, note.created_at, metadata)
    for verb, target in relations:
        yield ForeignRelation(own, verb, target, project, note.created_at)
