"""Transcripts of Cursor's agents: JSON Lines without ids or times, in older versions plain text."""

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from everkept.core.transcripts import ASSISTANT, USER, Event, Turn
from everkept.transcripts.source_programs import (
    as_list,
    as_mapping,
    as_text,
    compute_fingerprint,
    decode_text,
    deduplicate_texts,
    parse_time,
)
from everkept.transcripts.turns import (
    ConversationInfo,
    TranscriptMessage,
    as_name,
    clip_failure,
    is_continuation,
    join_messages,
    list_files,
    list_snippets,
    strip_leading_tags,
    strip_tags,
)

_NON_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]+")
_MAX_FOLDER_ENTRIES = 20_000


@lru_cache(256)
def find_folder(slug: str) -> str | None:
    """Return the one folder on this machine that matches the slug. Return None if none or several match."""
    root, rest = _split_root(_NON_ALPHANUMERIC.sub("-", slug).strip("-"))
    found = list(_find_matching_folders(root, rest)) if rest else []
    return found[0] if len(found) == 1 else None


def _split_root(name: str) -> tuple[Path, str]:
    if sys.platform == "win32":
        drive, _, rest = name.partition("-")
        return Path(f"{drive}:\\"), rest if len(drive) == 1 else ""
    return Path("/"), name


def _find_matching_folders(folder: Path, name: str) -> Iterator[str]:
    for entry in _list_names(folder):
        part = _NON_ALPHANUMERIC.sub("-", entry).strip("-")
        path = folder / entry
        if not part or not (name + "-").startswith(part + "-") or not _is_folder(path):
            continue
        if part == name:
            yield str(path)
        else:
            yield from _find_matching_folders(path, name[len(part) + 1 :])


def _list_names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, _MAX_FOLDER_ENTRIES)]
    except OSError:
        return []


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a parent folder that this process may not read
        return False


FILE_READER = "file"

_AGENTS_FOLDER = "subagents"
_REDACTED_MARKER = "[REDACTED]"  # replaces the reasoning of the model
_QUERY_PATTERN = re.compile(r"<user_query>(.*?)(?:</user_query>|\Z)", re.DOTALL)
_TIMESTAMP_PATTERN = re.compile(r"<timestamp>(.{1,100}?)</timestamp>", re.DOTALL)
# Elements that the program adds to a prompt.
_INJECTED_TAG_LIST = """
    timestamp system_reminder system_notification user_info attached_files image_files open_and_recently_viewed_files
    additional_data project_layout git_status rules agent_skills agent_transcripts mcp_meta_tools
"""
_INJECTED_TAGS = tuple(_INJECTED_TAG_LIST.split())
_SPELLED_TIME_PATTERN = re.compile(
    r"(?:\w+,\s*)?(?P<month>[A-Z][a-z]{2})[a-z]*\.?\s+(?P<day>\d{1,2}),?\s+(?P<year>\d{4})"
    r"(?:,?\s+(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::\d\d)?(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?)?"
    r"(?:\s*\((?:UTC|GMT)(?P<offset>[+-]\d{1,2}(?::?\d\d)?)?\))?"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SPEAKER_PATTERN = re.compile(r"^(user|assistant):[ \t\r]*$", re.MULTILINE | re.IGNORECASE)
_CALL_PATTERN = re.compile(r"\[Tool call\]\s+(\S+)")
_ARGUMENT_PATTERN = re.compile(r"[ \t]+(\w+):[ \t]*(.*)")


class CursorFormat:
    """Format of Cursor's agent transcripts.

    Records have no ids. A turn's key combines the file's first message with the turn's position, because its text
    may be regenerated.
    """

    def __init__(self, path: Path, state: Mapping[str, Any] | None) -> None:
        count = as_mapping(state).get("turns")
        self.skipped: Counter[str] = Counter()
        self._setting = _build_setting(path)
        self._count = count if isinstance(count, int) else 0
        self._beginning = as_name(as_mapping(state).get("beginning"))  # fingerprint of the first message
        self._answer: list[TranscriptMessage] = []

    def take(self, record: Mapping[str, Any], line: int) -> list[Event]:
        if record.get("type") == "turn_ended":
            return self._take_end(record)
        role = record.get("role")
        if role not in (USER, ASSISTANT):
            self.skipped["unknown record"] += 1
            return []
        message = _build_message(role, as_mapping(record.get("message")).get("content"))
        if message.is_empty:
            self.skipped["empty message"] += 1
            return []
        return self._take_message(message)

    def list_open_turns(self) -> list[Event]:
        return [self._build_turn()] if self._answer else []

    def get_session(self, record: Mapping[str, Any]) -> str:
        return self._setting.session

    def get_state(self) -> dict[str, Any]:
        return {"turns": self._count, "beginning": self._beginning if self._count else ""}

    def _take_message(self, message: TranscriptMessage) -> list[Event]:
        if is_continuation(message, self._answer):
            self._answer.append(message)
            return []
        events = self._close()
        self._answer = [message]
        if not self._count:
            self._beginning = message.id
        return events if message.author == ASSISTANT else events + self._close()

    def _take_end(self, record: Mapping[str, Any]) -> list[Event]:
        reason = as_text(record.get("error")) or as_text(as_mapping(record.get("error")).get("message"))
        if reason and self._answer:
            failed = TranscriptMessage("", ASSISTANT, failures=(clip_failure(reason),))
            self._answer.append(failed)
        return self._close()

    def _close(self) -> list[Event]:
        events: list[Event] = [self._build_turn(self.skipped)] if self._answer else []
        self._count += len(events)
        self._answer = []
        return events

    def _build_turn(self, skipped: Counter[str] | None = None) -> Turn:
        key = f"{self._setting.session}:{self._beginning}:{self._count}"
        return join_messages(self._answer, key, self._setting, skipped)


def parse_text(path: Path, raw: bytes) -> tuple[list[Event], Counter[str]]:
    """Parse a file of the older format: paragraphs below `user:` and `assistant:`."""
    setting = _build_setting(path)
    skipped: Counter[str] = Counter()
    events: list[Event] = []
    beginning = ""
    for author, said in _split_messages(decode_text(raw)):
        message = _parse_plain_message(author, said)
        if message.is_empty:
            skipped["empty message"] += 1
            continue
        beginning = beginning or message.id
        key = f"{setting.session}:{beginning}:{len(events)}"
        events.append(join_messages([message], key, setting, skipped))
    if not events and not skipped:
        skipped["file without turns"] += 1
    return events, skipped


def _build_setting(path: Path) -> ConversationInfo:
    """Build the conversation info. A file is named after its session, with or without its own folder."""
    folders = [folder.name for folder in path.parents]
    parent = folders[1] if len(folders) > 1 and folders[0] == _AGENTS_FOLDER else None
    place = folders.index("agent-transcripts") if "agent-transcripts" in folders else None
    slug = folders[place + 1] if place is not None and place + 1 < len(folders) else ""
    return ConversationInfo(path.stem, find_folder(slug) if slug else None, part_of=parent, reader=FILE_READER)


def _build_message(author: str, content: Any) -> TranscriptMessage:
    blocks = [as_mapping(block) for block in as_list(content)]
    if isinstance(content, str):
        blocks = [{"type": "text", "text": content}]
    whole = "\n\n".join(as_text(b.get("text")) for b in blocks if b.get("type") == "text")
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    arguments = [as_mapping(call.get("input")) for call in calls]
    tools = deduplicate_texts(as_name(call.get("name")) for call in calls)
    return TranscriptMessage(
        id=compute_fingerprint(whole, *tools),
        author=author,
        text=_extract_query(whole) if author == USER else _strip_redacted(whole),
        at=_find_time(whole) if author == USER else None,
        files=deduplicate_texts(file for each in arguments for file in list_files(each)),
        tools=tools,
        snippets=tuple(snippet for each in arguments for snippet in list_snippets(each)),
    )


def _extract_query(text: str) -> str:
    """Return the text that the user wrote, without the elements that the program added."""
    queries = [query.strip() for query in _QUERY_PATTERN.findall(text)]
    if queries:
        return "\n\n".join(filter(None, queries))
    return strip_tags(strip_leading_tags(text, _INJECTED_TAGS), _INJECTED_TAGS)


def _strip_redacted(text: str) -> str:
    if _REDACTED_MARKER in text:
        text = "\n".join(line for line in text.splitlines() if line.strip() != _REDACTED_MARKER)
    return text.strip()


def _find_time(text: str) -> int | None:
    tag = _TIMESTAMP_PATTERN.search(text)
    if tag is None:
        return None
    written = tag[1].strip()
    spelled = _SPELLED_TIME_PATTERN.fullmatch(written)
    return _parse_spelled_time(spelled) if spelled else parse_time(written)


def _parse_spelled_time(match: "re.Match[str]") -> int | None:
    """Parse a time such as `Monday, Mar 2, 2026, 3:01 PM (UTC-5)`."""
    if match["month"] not in _MONTHS:
        return None
    hour = int(match["hour"] or 0)
    if match["half"]:
        hour = hour % 12 + (12 if match["half"] in "Pp" else 0)
    try:
        at = datetime(
            int(match["year"]),
            _MONTHS.index(match["month"]) + 1,
            int(match["day"]),
            hour,
            int(match["minute"] or 0),
            tzinfo=_parse_zone(match),
        )
    except ValueError:
        return None
    return parse_time(at.isoformat())


def _parse_zone(match: "re.Match[str]") -> timezone | None:
    """Return the time zone of the match, or None for the zone of this machine."""
    if match["offset"] is None:
        return UTC if match[0].endswith(")") else None
    digits = match["offset"][1:].replace(":", "")
    hours, minutes = (digits[:-2], digits[-2:]) if len(digits) > 2 else (digits, "0")
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    return timezone(-offset if match["offset"].startswith("-") else offset)


def _split_messages(text: str) -> Iterator[tuple[str, str]]:
    heads = list(_SPEAKER_PATTERN.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    for head, end in zip(heads, ends, strict=False):
        yield head[1].lower(), text[head.end() : end]


def _parse_plain_message(author: str, said: str) -> TranscriptMessage:
    if author == USER:
        text = _extract_query(said)
        return TranscriptMessage(compute_fingerprint(said.strip()), USER, text, at=_find_time(said))
    kept: list[str] = []
    tools: list[str] = []
    files: list[str] = []
    in_call = False
    for line in said.splitlines():
        if call := _CALL_PATTERN.match(line):
            tools.append(call[1])
            in_call = True
        elif line.startswith(("[Tool result]", "[Thinking]")):
            in_call = False
        elif in_call and (argument := _ARGUMENT_PATTERN.fullmatch(line)):
            files += list_files({argument[1]: argument[2].strip()})
        else:
            in_call = False
            kept.append(line)
    text = _strip_redacted("\n".join(kept))
    return TranscriptMessage(
        compute_fingerprint(said.strip()),
        ASSISTANT,
        text,
        files=deduplicate_texts(files),
        tools=deduplicate_texts(tools),
    )
