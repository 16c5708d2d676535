"""Conversations in the export of an assistant, read as transcripts: whole files of them, one conversation at a time."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from everkept.core.transcripts import ASSISTANT, Event, Mark, Portion, TitleEvent, Turn
from everkept.exchange.export_archives import ExportFile
from everkept.exchange.json_files import read_json_items
from everkept.transcripts.source_programs import PORTION_EVENTS, as_mapping, as_text
from everkept.transcripts.turns import ConversationInfo, TranscriptMessage, as_title, is_continuation, join_messages
from everkept.values import Value


class ExportedConversation(Value):
    """One conversation with its messages in order."""

    id: str
    title: str
    messages: Sequence[TranscriptMessage]
    project: str | None = None


# Parses an item of the file, and counts what it skips. Returns None if the item is not a conversation.
ParseConversation = Callable[[Mapping[str, Any], "Counter[str]"], ExportedConversation | None]


class ExportTranscript:
    """File of an export. A later export of the same conversations adds only their new turns."""

    def __init__(self, source: str, file: ExportFile, parse: ParseConversation) -> None:
        self.source = source
        self.name = file.place
        self.size = file.size
        self.modified = file.modified
        self._file = file
        self._parse = parse

    def read_portions(self, mark: Mark | None) -> Iterator[Portion]:
        is_same = mark is not None and (mark.get("size"), mark.get("modified")) == (self.size, self.modified)
        first, given = (int(mark["items"]), int(mark["events"])) if mark is not None and is_same else (0, 0)
        skipped: Counter[str] = Counter()
        item = first
        with self._file.open() as file:
            for item, (key, value) in islice(enumerate(read_json_items(file)), first, None):
                events = self._list_events(value, skipped) if key is None else []
                for start in range(given, len(events), PORTION_EVENTS):
                    end = min(start + PORTION_EVENTS, len(events))
                    place = (item + 1, 0) if end == len(events) else (item, end)
                    yield Portion(tuple(events[start:end]), self._build_mark(*place), min(file.tell(), self.size))
                given = 0
        # A conversation that a later file does not have stays, so the reading never begins again.
        yield Portion((), self._build_mark(item + 1, 0), self.size, dict(skipped), is_last=True)

    def _list_events(self, value: Any, skipped: "Counter[str]") -> list[Event]:
        found = self._parse(as_mapping(value), skipped)
        if found is None:
            return []
        turns = list(_join_turns(found, skipped))
        title = [TitleEvent(found.id, as_title(found.title))] if found.title.strip() and turns else []
        return [*title, *turns]

    def _build_mark(self, items: int, events: int) -> Mark:
        return {"items": items, "events": events, "size": self.size, "modified": self.modified}


def _join_turns(found: ExportedConversation, skipped: "Counter[str]") -> Iterator[Turn]:
    info = ConversationInfo(found.id, found.project)
    answer: list[TranscriptMessage] = []
    for message in found.messages:
        if message.is_empty:
            continue
        is_answer = bool(answer) and answer[0].author == ASSISTANT
        if answer and not (is_answer and is_continuation(message, answer)):
            yield join_messages(answer, answer[0].id, info, skipped)
            answer = []
        answer.append(message)
    if answer:
        yield join_messages(answer, answer[0].id, info, skipped)


def walk_to_root(last: str, parents: Mapping[str, str | None]) -> list[str]:
    """Return the messages from the first to the last one. Other branches are edited or repeated messages."""
    path: dict[str, None] = {}
    each: str | None = last
    while each is not None and each in parents and each not in path:
        path[each] = None
        each = parents[each]
    return [*reversed(path)]


def join_texts(parts: Iterable[Any]) -> str:
    return "\n\n".join(text for part in parts if (text := as_text(part).strip()))


def is_conversation_file(file: ExportFile, count: int) -> bool:
    """Return whether the file can have conversations: by its name if the export has several files."""
    return count == 1 or file.name.lower().startswith("conversations")
