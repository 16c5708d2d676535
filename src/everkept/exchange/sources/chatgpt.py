"""ChatGPT: the conversations of a data export, and the memories that they mention."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from everkept.core.transcripts import ASSISTANT, USER, Transcript
from everkept.exchange.export_archives import (
    ExportedConversation,
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
from everkept.transcripts.source_programs import as_list, as_mapping, as_text, compute_fingerprint, parse_time
from everkept.transcripts.turns import TranscriptMessage, as_name

NAME = "chatgpt"
EXPECTED = "an export of ChatGPT"
HINT = "Pass the zip archive, its folder, or one of its conversations files."
MEMORY_TOOL = "bio"  # the recipient of texts that ChatGPT remembers
EXCLUDED = "conversation marked as not to remember"
_CITATION = re.compile("\ue200[^\ue200\ue201]{0,400}\ue201|[\ue200-\ue2ff]")
_LISTED = re.compile(r"(?:\d{1,4}\.|[-*])\s+(?:\[[^\[\]]{4,30}\]\.?\s*)?(.+)")  # `1. [2025-03-02]. Likes tea`
_SPOKEN = {"user": USER, "assistant": ASSISTANT}

_Row = Mapping[str, Any]


def list_transcripts(place: Path) -> list[Transcript]:
    files = list_export_files(place)
    return [ExportTranscript(NAME, file, parse) for file in files if is_conversation_file(file, len(files))]


def parse(row: _Row, skipped: Counter[str]) -> ExportedConversation | None:
    """Return the conversation as its last message saw it."""
    if not _is_conversation(row):
        return None
    if row.get("is_do_not_remember") is True:
        skipped[EXCLUDED] += 1
        return None
    spoken = (_build_message(message) for message in _list_messages(row))
    return ExportedConversation(_get_id(row), as_text(row.get("title")), [each for each in spoken if each])


def _is_conversation(row: _Row) -> bool:
    return isinstance(row.get("mapping"), Mapping) and bool(_get_id(row))


def _get_id(row: _Row) -> str:
    return as_name(row.get("conversation_id")) or as_name(row.get("id"))


def _list_messages(row: _Row) -> list[_Row]:
    nodes = {key: as_mapping(node) for key, node in as_mapping(row.get("mapping")).items()}
    parents = {key: as_text(node.get("parent")) or None for key, node in nodes.items()}
    last = as_text(row.get("current_node"))
    if last not in nodes:
        times = {
            key: parse_time(as_mapping(node.get("message")).get("create_time")) or 0 for key, node in nodes.items()
        }
        last = max(times, key=lambda key: times[key], default="")
    return [as_mapping(nodes[key].get("message")) for key in walk_to_root(last, parents)]


def _build_message(message: _Row) -> TranscriptMessage | None:
    """Return what a person or the assistant said, or the tool that the assistant called."""
    author = _SPOKEN.get(as_text(as_mapping(message.get("author")).get("role")))
    details = as_mapping(message.get("metadata"))
    if author is None or details.get("is_visually_hidden_from_conversation") is True:
        return None
    recipient = as_name(message.get("recipient")) or "all"
    return TranscriptMessage(
        as_name(message.get("id")) or compute_fingerprint(_read_text(message)),
        author,
        _read_text(message) if recipient == "all" else "",
        parse_time(message.get("create_time")),
        as_name(details.get("model_slug")) or None,
        tools=() if recipient == "all" else (recipient,),
    )


def _read_text(message: _Row) -> str:
    content = as_mapping(message.get("content"))
    kind = content.get("content_type")
    if kind in ("text", "multimodal_text"):
        parts = (
            part if isinstance(part, str) else as_mapping(part).get("text") for part in as_list(content.get("parts"))
        )
        return _CITATION.sub("", join_texts(parts))
    if kind == "code":
        text = as_text(content.get("text")).strip()
        return f"```{as_name(content.get('language')).replace('unknown', '')}\n{text}\n```" if text else ""
    return ""


def read(place: Path, skipped: Skipped) -> Iterator[ForeignItem]:
    """Yield what ChatGPT remembered in its conversations. The export has no file of its memories."""
    found = False
    files = list_export_files(place)
    for file in files:
        if is_conversation_file(file, len(files)):
            for row in file.read_objects():
                if _is_conversation(row):
                    found = True
                    yield from _read_memories(row)
    if not found:
        raise build_wrong_place_error(place, EXPECTED, HINT)


def _read_memories(row: _Row) -> Iterator[ForeignMemory]:
    if row.get("is_do_not_remember") is True:
        return
    for message in _list_messages(row):
        content = as_mapping(message.get("content"))
        at = parse_time(message.get("create_time"))
        if message.get("recipient") == MEMORY_TOOL and (text := _read_text(message) or as_text(content.get("text"))):
            yield _build_memory(text, at, _get_id(row))
        for line in as_text(content.get("model_set_context")).split("\n"):
            if listed := _LISTED.fullmatch(line.strip()):
                yield _build_memory(listed[1], at, None)


def _build_memory(text: str, at: int | None, session: str | None) -> ForeignMemory:
    """Return the memory. A text that several conversations repeat is one memory."""
    return ForeignMemory(
        compute_fingerprint(text.strip()),
        text.strip(),
        kind="saved memory",
        scope="user",
        session=session,
        tags=(NAME,),
        created_at=at,
    )


def find(machine: Machine) -> list[Path]:
    """Return none: the name of a downloaded export is any name."""
    return []


CHATGPT = ForeignSource(
    NAME,
    "ChatGPT",
    "PATH is the zip archive of its data export, its folder, or one of its conversations files. Conversations go to "
    "the history. Memories that they mention may be out of date.",
    read,
    find,
    list_transcripts,
)
