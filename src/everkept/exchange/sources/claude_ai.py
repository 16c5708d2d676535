"""Claude.ai: the conversations and memories of a data export."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from everkept.core.transcripts import ASSISTANT, USER, Transcript
from everkept.exchange.export_archives import (
    ExportedConversation,
    ExportFile,
    ExportTranscript,
    is_conversation_file,
    join_texts,
    list_export_files,
    walk_to_root,
)
from everkept.exchange.foreign import (
    ForeignItem,
    ForeignMemory,
    ForeignSource,
    Machine,
    Skipped,
    build_wrong_place_error,
)
from everkept.exchange.markdown_notes import split_blocks
from everkept.transcripts.source_programs import (
    as_list,
    as_mapping,
    as_text,
    compute_fingerprint,
    deduplicate_texts,
    parse_time,
)
from everkept.transcripts.turns import TranscriptMessage, as_name

NAME = "claude-ai"
EXPECTED = "an export of Claude.ai"
HINT = "Pass the zip archive, its folder, or one of its files."
_SPOKEN = {"human": USER, "assistant": ASSISTANT}
_HEADING = re.compile(r"^#{1,6}[ \t]+(.{1,200}?)[ \t#]*$", re.MULTILINE)
_TITLE = re.compile(r"\*{1,3}([^*\n]{1,200})\*{1,3}:?")

_Row = Mapping[str, Any]


def list_transcripts(place: Path) -> list[Transcript]:
    files = list_export_files(place)
    read = partial(parse, projects=_read_projects(files))
    return [ExportTranscript(NAME, file, read) for file in files if is_conversation_file(file, len(files))]


def _read_projects(files: list[ExportFile]) -> dict[str, str]:
    """Return the names of projects by their ids."""
    rows = (row for file in files if _is_part(file, "projects") for row in file.read_objects())
    return {as_text(row.get("uuid")): as_text(row.get("name")).strip() for row in rows}


def _is_part(file: ExportFile, part: str) -> bool:
    """Return whether a file, such as projects.json or projects/ID.json, has this part of the export."""
    place = PurePosixPath((file.member or str(file.path)).replace("\\", "/"))
    return place.name.lower().startswith(part) or place.parent.name.lower() == part


def parse(row: _Row, skipped: Counter[str], projects: Mapping[str, str]) -> ExportedConversation | None:
    if not _is_conversation(row):
        return None
    project = projects.get(as_text(as_mapping(row.get("project")).get("uuid")))
    spoken = [_build_message(message) for message in _list_messages(row)]
    return ExportedConversation(
        as_name(row.get("uuid")), as_text(row.get("name")), [each for each in spoken if each], project or None
    )


def _is_conversation(row: _Row) -> bool:
    return isinstance(row.get("chat_messages"), list) and bool(as_name(row.get("uuid")))


def _list_messages(row: _Row) -> list[_Row]:
    """Return the newest path of messages. Siblings are edited or repeated ones."""
    messages = [as_mapping(each) for each in as_list(row.get("chat_messages"))]
    by_id = {as_text(message.get("uuid")): message for message in messages}
    parents = {key: as_text(message.get("parent_message_uuid")) or None for key, message in by_id.items()}
    if not any(parent in by_id for parent in parents.values()):
        return messages  # an older export has no parents
    newest = max(by_id, key=lambda key: parse_time(by_id[key].get("created_at")) or 0)
    return [by_id[key] for key in walk_to_root(newest, parents)]


def _build_message(message: _Row) -> TranscriptMessage | None:
    author = _SPOKEN.get(as_text(message.get("sender")))
    if author is None:
        return None
    content = [as_mapping(part) for part in as_list(message.get("content"))]
    said = join_texts(part.get("text") for part in content if part.get("type") == "text")
    tools = (as_name(part.get("name")) for part in content if part.get("type") == "tool_use")
    files = (
        as_mapping(each).get("file_name")
        for each in (*as_list(message.get("attachments")), *as_list(message.get("files")))
    )
    text = said or as_text(message.get("text")).strip()
    return TranscriptMessage(
        as_name(message.get("uuid")) or compute_fingerprint(text),
        author,
        text,
        parse_time(message.get("created_at")),
        files=deduplicate_texts(files),
        tools=deduplicate_texts(tools),
    )


def read(place: Path, skipped: Skipped) -> Iterator[ForeignItem]:
    """Yield the memories of the account and of its projects."""
    files = list_export_files(place)
    projects = _read_projects(files)
    found = False
    for file in files:
        is_memory = len(files) == 1 or _is_part(file, "memories")
        if is_memory or is_conversation_file(file, len(files)):
            for row in file.read_objects():
                found = found or _is_conversation(row) or "conversations_memory" in row
                yield from _read_memories(row, projects)
    if not found:
        raise build_wrong_place_error(place, EXPECTED, HINT)


def _read_memories(row: _Row, projects: Mapping[str, str]) -> Iterator[ForeignMemory]:
    for text in _split_memory(as_text(row.get("conversations_memory"))):
        yield ForeignMemory(f"user {compute_fingerprint(text)}", text, scope="user", tags=(NAME,))
    for project, told in as_mapping(row.get("project_memories")).items():
        for text in _split_memory(as_text(told)):
            name = projects.get(project) or None
            yield ForeignMemory(f"{project} {compute_fingerprint(text)}", text, project=name, tags=(NAME,))


def _split_memory(text: str) -> Iterator[str]:
    """Yield each paragraph and item, after the title above it. A title may be a line of bold or italic text."""
    title = ""
    for block in split_blocks(_HEADING.sub(r"\n**\1**\n", text)):
        if found := _TITLE.fullmatch(block.text):
            title = found[1].strip().removesuffix(":")
        else:
            yield f"{title}: {block.text}" if title else block.text


def find(machine: Machine) -> list[Path]:
    """Return the exports that were downloaded."""
    return sorted((machine.home / "Downloads").glob("data-*-batch-*.zip"))


CLAUDE_AI = ForeignSource(
    NAME,
    "Claude.ai",
    "PATH is the zip archive of its data export, a folder with such archives, or one of its files. Conversations go "
    "to the history, memories to the user and to their projects.",
    read,
    find,
    list_transcripts,
)
