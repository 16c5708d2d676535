"""Gemini CLI's sessions: lines that replay a conversation, in older versions one object."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from everkept.core.disk import open_regular
from everkept.core.transcripts import ASSISTANT, USER, Event, RewindEvent, TitleEvent, Turn
from everkept.transcripts.source_programs import (
    MAX_LIST_BYTES,
    as_list,
    as_mapping,
    as_text,
    as_texts,
    decode_object,
    deduplicate_texts,
    parse_time,
)
from everkept.transcripts.turns import (
    ConversationInfo,
    TranscriptMessage,
    as_folder,
    as_name,
    as_title,
    clip_failure,
    is_continuation,
    join_messages,
    list_files,
    list_snippets,
)

# The program writes it into the folder of a project's sessions.
_OWNER_FILE = ".project_root"


class GeminiProjects:
    """Folders of Gemini's projects, read once from the program's lists. A hash resolves only to a known folder."""

    def __init__(self, home: Path, known: Iterable[str] = ()) -> None:
        self._home = home
        self._given = tuple(known)
        self._owners: dict[Path, str | None] = {}

    def find_folder(self, session: Path, project_hash: str) -> str | None:
        """Return the folder of the session in a file, or None if it is unknown."""
        place = next((above for above in session.parents if above.name == "chats"), None)
        if place is None:
            return self._folders_by_id.get(project_hash)
        by_name = self._find_owner(place.parent) or self._folders_by_id.get(place.parent.name)
        return by_name or self._folders_by_id.get(project_hash)

    def _find_owner(self, folder: Path) -> str | None:
        if folder not in self._owners:
            self._owners[folder] = as_folder((_read_content(folder / _OWNER_FILE) or "").strip()) or None
        return self._owners[folder]

    @cached_property
    def _folders_by_id(self) -> Mapping[str, str]:
        registered = as_mapping(_read_object(self._home / "projects.json").get("projects"))
        ids = dict[str, str]()
        folders = [*self._given, *_read_object(self._home / "trustedFolders.json")]
        for one, other in registered.items():
            if isinstance(other, str):
                folder, name = (one, other) if "/" in one or "\\" in one else (other, one)
                ids[name] = folder
                folders.append(folder)
        return {hashlib.sha256(f.encode("utf-8", "replace")).hexdigest(): f for f in folders} | ids


def _read_object(path: Path) -> Mapping[str, Any]:
    return decode_object(_read_content(path))


def _read_content(path: Path) -> str | None:
    try:
        with open_regular(path) as file:
            return file.read(MAX_LIST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None


_NOTICE_TYPES = ("info", "error", "warning")
_FAILED_STATUSES = ("error", "failed")
# Texts that the program sends in the user's name, at the start and after it compresses a conversation.
_INJECTED_PREFIXES = ("<session_context>", "This is the Gemini CLI. We are setting up the context")
_HOOK_TEXT = re.compile(r"\A\s*<hook_context>.*?(?:</hook_context>\s*|\Z)", re.DOTALL)  # that a hook added to a prompt
_MAX_REMEMBERED_MESSAGES = 1_000  # messages to which the user can rewind
# The position of a message in its turn.
_WHOLE_TURN, _FIRST_OF_TURN, _REST_OF_TURN = 0, 1, 2
_SUMMARY_TAG = "<state_snapshot>"


class GeminiFormat:
    """Format of Gemini sessions, which replays the lines. A repeated id replaces its message.

    Messages that the program drops to compress a conversation stay. Only a rewind by the user removes turns.
    """

    def __init__(self, path: Path, state: Mapping[str, Any] | None, projects: GeminiProjects) -> None:
        known = as_mapping(state)
        self.skipped: Counter[str] = Counter()
        self._path = path
        self._projects = projects
        self._session = as_name(known.get("session")) or path.stem
        self._hash = as_name(known.get("project"))
        self._folder = as_folder(known.get("folder"))
        # The messages of closed turns in order, with their positions in the turn.
        self._closed = {
            own: part if part in (_WHOLE_TURN, _FIRST_OF_TURN) else _REST_OF_TURN
            for own, part in as_mapping(known.get("messages")).items()
        }
        self._answer: list[TranscriptMessage] = []

    def take(self, record: Mapping[str, Any], line: int) -> list[Event]:
        if isinstance(record.get("$rewindTo"), str):
            return self._rewind(as_text(record["$rewindTo"]))
        if isinstance(record.get("$set"), Mapping):
            return self._apply_changes(as_mapping(record["$set"]))
        if isinstance(record.get("id"), str) and "type" in record:
            return self._replay(record)
        if isinstance(record.get("sessionId"), str):
            return self._apply_changes(record)
        self.skipped["unknown record"] += 1
        return []

    def list_open_turns(self) -> list[Event]:
        return [self._build_turn(self._answer)] if self._answer else []

    def get_session(self, record: Mapping[str, Any]) -> str:
        return self._session

    def get_state(self) -> dict[str, Any]:
        return {"session": self._session, "project": self._hash, "folder": self._folder, "messages": dict(self._closed)}

    def _apply_changes(self, changes: Mapping[str, Any]) -> list[Event]:
        self._session = as_name(changes.get("sessionId")) or self._session
        self._hash = as_name(changes.get("projectHash")) or self._hash
        named = as_texts(changes.get("directories"))[:1]
        self._folder = as_folder("".join(named), self.skipped) or self._folder
        events: list[Event] = []
        for message in as_list(changes.get("messages")):
            record = as_mapping(message)
            own = as_text(record.get("id"))
            if own not in self._closed and all(open_one.id != own for open_one in self._answer):
                events += self._replay(record)
        if titled := as_title(changes.get("summary")):
            events.append(TitleEvent(self._session, titled))
        return events

    def _replay(self, record: Mapping[str, Any]) -> list[Event]:
        kind = record.get("type")
        if kind not in ("user", "gemini"):
            self.skipped[f"{kind} message" if kind in _NOTICE_TYPES else "unknown message"] += 1
            return []
        message = _build_message(record, USER if kind == "user" else ASSISTANT)
        if not message.id or message.is_empty:
            self.skipped["empty message"] += 1
            return []
        return self._take_message(message)

    def _take_message(self, message: TranscriptMessage) -> list[Event]:
        for place, earlier in enumerate(self._answer):
            if earlier.id == message.id:
                self._answer[place] = message
                return []
        part = self._closed.get(message.id)
        if part == _WHOLE_TURN:
            return [self._build_turn([message])]
        if part is not None:
            self.skipped["change of an earlier answer"] += 1
            return []
        if is_continuation(message, self._answer):
            self._answer.append(message)
            return []
        events = self.close_rest()
        self._answer = [message]
        return events if message.author == ASSISTANT else events + self.close_rest()

    def close_rest(self) -> list[Event]:
        """Close the open turn and return it."""
        answer, self._answer = self._answer, []
        for message in answer:
            self._closed[message.id] = _REST_OF_TURN
        if answer:
            self._closed[answer[0].id] = _WHOLE_TURN if len(answer) == 1 else _FIRST_OF_TURN
        for forgotten in list(self._closed)[:-_MAX_REMEMBERED_MESSAGES]:
            del self._closed[forgotten]
        return [self._build_turn(answer, self.skipped)] if answer else []

    def _rewind(self, message_id: str) -> list[Event]:
        for place, message in enumerate(self._answer):
            if message.id == message_id:
                self._answer = self._answer[:place]
                return [] if self._answer else [RewindEvent(self._session, self._build_key(message_id))]
        if message_id not in self._closed:
            self.skipped["rewind to an unknown message"] += 1
            return []
        own = list(self._closed)
        place = own.index(message_id)
        # A closed answer stays complete, even if the user rewinds to its middle.
        while place < len(own) and self._closed[own[place]] == _REST_OF_TURN:
            place += 1
        gone = [*own[place:], *(message.id for message in self._answer)]
        self._answer = []
        self._closed = {kept: self._closed[kept] for kept in own[:place]}
        return [RewindEvent(self._session, self._build_key(gone[0]))] if gone else []

    def _build_turn(self, messages: list[TranscriptMessage], skipped: Counter[str] | None = None) -> Turn:
        project = self._projects.find_folder(self._path, self._hash) or self._folder or None
        setting = ConversationInfo(self._session, project, part_of=_find_parent(self._path))
        return join_messages(messages, self._build_key(messages[0].id), setting, skipped)

    def _build_key(self, message_id: str) -> str:
        return f"{self._session}:{message_id}"


def parse_object(path: Path, raw: bytes, projects: GeminiProjects) -> tuple[list[Event], Counter[str]]:
    """Parse the single object of an older session. Its turns have the same keys as in the newer format."""
    whole = decode_object(raw)
    if not whole:
        return [], Counter({"file that is not JSON": 1})
    form = GeminiFormat(path, None, projects)
    events = form.take({"$set": whole}, 1) + form.close_rest()
    if not events and not form.skipped:
        form.skipped["file without messages"] += 1
    return events, form.skipped


def _build_message(record: Mapping[str, Any], author: str) -> TranscriptMessage:
    text = _extract_text(record.get("content"), with_hooks=author == ASSISTANT)
    if text.startswith(_INJECTED_PREFIXES):
        text = ""
    calls = [as_mapping(call) for call in as_list(record.get("toolCalls"))]
    arguments = [as_mapping(call.get("args")) for call in calls]
    return TranscriptMessage(
        id=as_name(record.get("id")),
        author=author,
        text=text,
        at=parse_time(record.get("timestamp")),
        model=as_name(record.get("model")) or None,
        files=deduplicate_texts(file for each in arguments for file in list_files(each)),
        tools=deduplicate_texts(as_name(call.get("name")) for call in calls),
        snippets=tuple(
            snippet
            for call, each in zip(calls, arguments, strict=True)
            if call.get("status") not in _FAILED_STATUSES
            for snippet in list_snippets(each)
        ),
        failures=deduplicate_texts(_get_failure(call) for call in calls if call.get("status") in _FAILED_STATUSES),
        is_summary=author == USER and _SUMMARY_TAG in text,
    )


def _extract_text(content: Any, *, with_hooks: bool) -> str:
    """Return the text of a content: a text, a part or a list of parts. Skip thoughts and function calls."""
    texts = [
        part if isinstance(part, str) else as_text(as_mapping(part).get("text"))
        for part in as_list(content) or [content]
        if not as_mapping(part).get("thought")
    ]
    return "".join(texts if with_hooks else (_HOOK_TEXT.sub("", text) for text in texts)).strip()


def _get_failure(call: Mapping[str, Any]) -> str:
    for part in as_list(call.get("result")):
        response = as_mapping(as_mapping(as_mapping(part).get("functionResponse")).get("response"))
        if said := as_text(response.get("error")) or as_text(response.get("output")):
            return clip_failure(said)
    said = as_text(call.get("resultDisplay")) or f"{as_text(call.get('name'))} failed"
    return clip_failure(said)


def _find_parent(path: Path) -> str | None:
    """Return the session that started this agent. Its agents' sessions are in a folder named after it."""
    folder = path.parent
    return folder.name if folder.parent.name == "chats" else None
