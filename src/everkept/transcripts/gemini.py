"""Gemini CLI's sessions: lines that replay a conversation, in older versions one object."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from everkept.core.transcripts import ASSISTANT, USER, Event, Rewound, Titled, Turn
from everkept.transcripts.source_programs import (
    LARGEST_LIST,
    decoded,
    listed,
    mapping,
    moment,
    string,
    strings,
    unique,
)
from everkept.transcripts.turns import (
    Message,
    Setting,
    belongs,
    failure,
    files_of,
    folder,
    name,
    snippets_of,
    title,
    turn_of,
)
from everkept.transcripts.turns import folder as bounded

# Written by the program into the folder of a project's sessions.
_OWNER = ".project_root"


class GeminiProjects:
    """Looks into the program's own lists once. Hashes lead to a folder only where it is known."""

    def __init__(self, home: Path, known: Iterable[str] = ()) -> None:
        self._home = home
        self._given = tuple(known)
        self._owners: dict[Path, str | None] = {}

    def folder(self, session: Path, project_hash: str) -> str | None:
        """Of the session in a file; None where nothing tells."""
        place = next((above for above in session.parents if above.name == "chats"), None)
        if place is None:
            return self._by_id.get(project_hash)
        by_name = self._owner(place.parent) or self._by_id.get(place.parent.name)
        return by_name or self._by_id.get(project_hash)

    def _owner(self, folder: Path) -> str | None:
        if folder not in self._owners:
            self._owners[folder] = bounded((_content(folder / _OWNER) or "").strip()) or None
        return self._owners[folder]

    @cached_property
    def _by_id(self) -> Mapping[str, str]:
        registered = mapping(_object(self._home / "projects.json").get("projects"))
        ids = dict[str, str]()
        folders = [*self._given, *_object(self._home / "trustedFolders.json")]
        for one, other in registered.items():
            if isinstance(other, str):
                folder, name = (one, other) if _is_path(one) else (other, one)
                ids[name] = folder
                folders.append(folder)
        return {hashlib.sha256(f.encode("utf-8", "replace")).hexdigest(): f for f in folders} | ids


def _is_path(text: str) -> bool:
    return "/" in text or "\\" in text


def _object(path: Path) -> Mapping[str, Any]:
    return decoded(_content(path))


def _content(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST_LIST).decode("utf-8", "replace")
    except OSError:
        return None


_NOTICES = ("info", "error", "warning")
_FAILED = ("error", "failed")
# What the program says in the user's name, to begin with and after it shortened a conversation.
_INJECTED = ("<session_context>", "This is the Gemini CLI. We are setting up the context")
_MOST_REMEMBERED = 1_000  # messages, back to which one can rewind
# What a message is of its turn.
_WHOLE, _FIRST, _FURTHER = 0, 1, 2
_SUMMARY = "<state_snapshot>"


class GeminiFormat:
    """Replays the lines. An id that comes again stands for the newer form of its message.

    What the program leaves out of a conversation to shorten it stays, only what the user takes
    back goes.
    """

    def __init__(
        self, path: Path, state: Mapping[str, Any] | None, projects: GeminiProjects
    ) -> None:
        known = mapping(state)
        self.skipped: Counter[str] = Counter()
        self._path = path
        self._projects = projects
        self._session = name(known.get("session")) or path.stem
        self._hash = name(known.get("project"))
        self._folder = folder(known.get("folder"))
        # The messages of turns that are closed, in order, and what each is of its turn.
        self._closed = {
            own: part if part in (_WHOLE, _FIRST) else _FURTHER
            for own, part in mapping(known.get("messages")).items()
        }
        self._answer: list[Message] = []

    def take(self, record: Mapping[str, Any], line: int) -> list[Event]:
        if isinstance(record.get("$rewindTo"), str):
            return self._rewind(string(record["$rewindTo"]))
        if isinstance(record.get("$set"), Mapping):
            return self._describe(mapping(record["$set"]))
        if isinstance(record.get("id"), str) and "type" in record:
            return self._replay(record)
        if isinstance(record.get("sessionId"), str):
            return self._describe(record)
        self.skipped["unknown record"] += 1
        return []

    def pending(self) -> list[Event]:
        return [self._turn(self._answer)] if self._answer else []

    def session_of(self, record: Mapping[str, Any]) -> str:
        return self._session

    def state(self) -> dict[str, Any]:
        return {
            "session": self._session,
            "project": self._hash,
            "folder": self._folder,
            "messages": dict(self._closed),
        }

    def rest(self) -> list[Event]:
        """The turn that is open, where nothing comes any more."""
        return self._close()

    def _describe(self, changes: Mapping[str, Any]) -> list[Event]:
        self._session = name(changes.get("sessionId")) or self._session
        self._hash = name(changes.get("projectHash")) or self._hash
        named = strings(changes.get("directories"))[:1]
        self._folder = folder("".join(named), self.skipped) or self._folder
        events: list[Event] = []
        for message in listed(changes.get("messages")):
            record = mapping(message)
            if not self._is_known(string(record.get("id"))):
                events += self._replay(record)
        if titled := title(changes.get("summary")):
            events.append(Titled(self._session, titled))
        return events

    def _replay(self, record: Mapping[str, Any]) -> list[Event]:
        kind = record.get("type")
        if kind not in ("user", "gemini"):
            self.skipped[f"{kind} message" if kind in _NOTICES else "unknown message"] += 1
            return []
        message = _message(record, USER if kind == "user" else ASSISTANT)
        if not message.id or message.is_empty:
            self.skipped["empty message"] += 1
            return []
        return self._say(message)

    def _say(self, message: Message) -> list[Event]:
        for place, earlier in enumerate(self._answer):
            if earlier.id == message.id:
                self._answer[place] = message
                return []
        part = self._closed.get(message.id)
        if part == _WHOLE:
            return [self._turn([message])]
        if part is not None:
            self.skipped["change of an earlier answer"] += 1
            return []
        if belongs(message, self._answer):
            self._answer.append(message)
            return []
        events = self._close()
        self._answer = [message]
        return events if message.author == ASSISTANT else events + self._close()

    def _close(self) -> list[Event]:
        answer, self._answer = self._answer, []
        for message in answer:
            self._closed[message.id] = _FURTHER
        if answer:
            self._closed[answer[0].id] = _WHOLE if len(answer) == 1 else _FIRST
        for forgotten in list(self._closed)[:-_MOST_REMEMBERED]:
            del self._closed[forgotten]
        return [self._turn(answer, self.skipped)] if answer else []

    def _rewind(self, message_id: str) -> list[Event]:
        for place, message in enumerate(self._answer):
            if message.id == message_id:
                self._answer = self._answer[:place]
                return [] if self._answer else [Rewound(self._session, self._key(message_id))]
        if message_id not in self._closed:
            self.skipped["rewind to an unknown message"] += 1
            return []
        own = list(self._closed)
        place = own.index(message_id)
        # An answer that is closed stays as a whole, also where only its end is taken back.
        while place < len(own) and self._closed[own[place]] == _FURTHER:
            place += 1
        gone = [*own[place:], *(message.id for message in self._answer)]
        self._answer = []
        self._closed = {kept: self._closed[kept] for kept in own[:place]}
        return [Rewound(self._session, self._key(gone[0]))] if gone else []

    def _is_known(self, message_id: str) -> bool:
        is_open = any(message.id == message_id for message in self._answer)
        return is_open or message_id in self._closed

    def _turn(self, messages: list[Message], skipped: Counter[str] | None = None) -> Turn:
        project = self._projects.folder(self._path, self._hash) or self._folder or None
        setting = Setting(self._session, project, part_of=_parent(self._path))
        return turn_of(messages, self._key(messages[0].id), setting, skipped)

    def _key(self, message_id: str) -> str:
        return f"{self._session}:{message_id}"


def object_events(
    path: Path, raw: bytes, projects: GeminiProjects
) -> tuple[list[Event], Counter[str]]:
    """What the one object of an older session holds; it has the keys that its lines would have."""
    whole = decoded(raw)
    if not whole:
        return [], Counter({"file that is no JSON": 1})
    form = GeminiFormat(path, None, projects)
    events = form.take({"$set": whole}, 1) + form.rest()
    if not events and not form.skipped:
        form.skipped["file without messages"] += 1
    return events, form.skipped


def _message(record: Mapping[str, Any], author: str) -> Message:
    text = _text(record.get("content"))
    if text.startswith(_INJECTED):
        text = ""
    calls = [mapping(call) for call in listed(record.get("toolCalls"))]
    arguments = [mapping(call.get("args")) for call in calls]
    return Message(
        id=name(record.get("id")),
        author=author,
        text=text,
        at=moment(record.get("timestamp")),
        model=name(record.get("model")) or None,
        files=unique(file for each in arguments for file in files_of(each)),
        tools=unique(name(call.get("name")) for call in calls),
        snippets=tuple(
            snippet
            for call, each in zip(calls, arguments, strict=True)
            if call.get("status") not in _FAILED
            for snippet in snippets_of(each)
        ),
        failures=unique(_failure(call) for call in calls if call.get("status") in _FAILED),
        is_summary=author == USER and _SUMMARY in text,
    )


def _text(content: Any) -> str:
    """Of a text, a part or a list of them; thoughts and calls of functions are no text."""
    if isinstance(content, str):
        return content.strip()
    texts = [
        part if isinstance(part, str) else string(mapping(part).get("text"))
        for part in listed(content) or [content]
        if not mapping(part).get("thought")
    ]
    return "".join(texts).strip()


def _failure(call: Mapping[str, Any]) -> str:
    for part in listed(call.get("result")):
        response = mapping(mapping(mapping(part).get("functionResponse")).get("response"))
        if said := string(response.get("error")) or string(response.get("output")):
            return failure(said)
    said = string(call.get("resultDisplay")) or f"{string(call.get('name'))} failed"
    return failure(said)


def _parent(path: Path) -> str | None:
    """The session that sent an agent: the sessions of its agents are in a folder of its name."""
    folder = path.parent
    return folder.name if folder.parent.name == "chats" else None
