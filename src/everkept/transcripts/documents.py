"""Transcripts in files: JSON Lines, compressed or not, read in portions, and documents read as a whole.

Includes the plain format, into which any data can be converted: `session, author, timestamp, text`.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from os import stat_result
from pathlib import Path
from typing import Any, Protocol

from everkept.core.disk import open_regular
from everkept.core.transcripts import (
    ASSISTANT,
    USER,
    Event,
    ExclusionEvent,
    Mark,
    Portion,
    RewindEvent,
    TitleEvent,
    Turn,
    has_marker_in_json,
)
from everkept.errors import Unavailable
from everkept.transcripts.content import (
    START_POSITION,
    ReadPosition,
    TranscriptContent,
    TranscriptLine,
    find_position,
    open_content,
    read_chunks,
    split_lines,
)
from everkept.transcripts.source_programs import (
    MAX_DOCUMENT_BYTES,
    MAX_NAME_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    MAX_TURN_ITEMS,
    PORTION_BYTES,
    PORTION_CHARACTERS,
    PORTION_EVENTS,
    NoRecord,
    as_mapping,
    as_text,
    as_texts,
    compute_fingerprint,
    deduplicate_texts,
    parse_record,
    parse_time,
)
from everkept.transcripts.turns import CLIPPED_TURN, as_folder, as_name, as_title
from everkept.values import replace


class FileTranscript:
    """Base class of transcripts in files. `seen` is the file's status at the time of discovery."""

    def __init__(self, path: Path, source: str, seen: stat_result | None = None) -> None:
        self._path = path
        self.source = source
        self.name = str(path)
        self._about = seen

    @property
    def size(self) -> int:
        return self._read_stat().st_size

    @property
    def modified(self) -> int:
        return self._read_stat().st_mtime_ns // 1000

    def _read_stat(self) -> stat_result:
        try:
            return self._about or self._path.stat()
        except OSError as error:
            raise build_unreadable_error(self._path, error) from error


def build_unreadable_error(path: Path, error: OSError) -> Unavailable:
    return Unavailable(
        f"Cannot read the transcript {path}: {error.strerror or error}.",
        hint="Check whether it was deleted or moved. The next import looks for it again.",
        path=str(path),
    )


# The events of a document in order, and counts of skipped records.
ParsedDocument = tuple[list[Event], Counter[str]]


class DocumentTranscript(FileTranscript):
    """A transcript that is read as a whole. `read` parses it and must give each turn the same key every time."""

    def __init__(
        self, path: Path, source: str, read: Callable[[Path, bytes], ParsedDocument], *, seen: stat_result | None = None
    ) -> None:
        super().__init__(path, source, seen)
        self._read = read

    def read_portions(self, mark: Mark | None) -> Iterator[Portion]:
        raw = self._read_content()
        size = len(raw)
        if size > MAX_DOCUMENT_BYTES:
            skipped = {"file over 32 MiB": 1}
            yield Portion((), mark or {}, self._read_stat().st_size, skipped, is_last=True)
            return
        digest = hashlib.sha256(raw).hexdigest()
        is_same = mark is not None and mark.get("document") == digest
        given = mark.get("events") if mark and is_same else 0
        given = given if isinstance(given, int) and given > 0 else 0
        events, skipped = self._parse_events(raw)
        del raw
        # A document without turns is usually corrupt, so the turns read earlier stay.
        is_anew = mark is not None and not is_same and any(isinstance(e, Turn) for e in events)
        for start in range(given, max(len(events), given + 1), PORTION_EVENTS):
            end = min(start + PORTION_EVENTS, len(events))
            is_last = end == len(events)
            yield Portion(
                tuple(events[start:end]),
                {"document": digest, "events": end},
                size if is_last else size * end // len(events),
                skipped if is_last else {},
                is_anew=is_anew and start == 0,
                is_last=is_last,
            )

    def _parse_events(self, raw: bytes) -> ParsedDocument:
        events, skipped = self._read(self._path, raw)
        if has_marker_in_json(raw):
            sessions = dict.fromkeys(event.session for event in events)
            events = [*map(ExclusionEvent, sessions), *events]
        return events, skipped

    def _read_content(self) -> bytes:
        try:
            with open_regular(self._path) as file:
                return file.read(MAX_DOCUMENT_BYTES + 1)
        except OSError as error:
            raise build_unreadable_error(self._path, error) from error


DAMAGED_FILE = "damaged file"


class TranscriptFormat(Protocol):
    """Interpreter of one program's lines. Each reading creates its own instance."""

    skipped: Counter[str]  # counts of skipped records by reason

    def take(self, record: Mapping[str, Any], line: int) -> list[Event]:
        """Return the events that are now complete, usually the turn that this record ends."""
        ...

    def list_open_turns(self) -> list[Event]:
        """Return the open turns in their present state, without closing them."""
        ...

    def get_session(self, record: Mapping[str, Any]) -> str:
        """Return the conversation of the record, which is empty for a broken line, or an empty text if unknown."""
        ...

    def get_state(self) -> dict[str, Any]:
        """Return the state needed to continue after the last closed turn, as if no turn had begun since.

        A new JSON object for each call. It never contains words of the conversation, which may be secret.
        """
        ...


# Creates the format for a file from the state in a mark, or from None at the start of the file.
MakeFormat = Callable[[Path, Mapping[str, Any] | None], TranscriptFormat]


class LineTranscript(FileTranscript):
    """A file of JSON lines in a given format. It may be compressed."""

    def __init__(
        self,
        path: Path,
        source: str,
        make_format: MakeFormat,
        *,
        seen: stat_result | None = None,
        turns_in_portion: int = PORTION_EVENTS,
    ) -> None:
        super().__init__(path, source, seen)
        self._make_format = make_format
        self._turns_in_portion = turns_in_portion

    def read_portions(self, mark: Mark | None) -> Iterator[Portion]:
        """Yield the portions after the mark. The last one comes even if nothing is new."""
        try:
            with open_content(self._path) as content:
                if place := find_position(mark, content):
                    yield from self._read_portions(content, place)
                    return
                # Turns after a damaged part are unreadable, but not deleted.
                is_anew = mark is not None and not content.damaged
            with open_content(self._path) as content:
                yield from self._read_portions(content, START_POSITION, is_anew=is_anew)
        except OSError as error:
            raise build_unreadable_error(self._path, error) from error

    def _read_portions(
        self, content: TranscriptContent, place: ReadPosition, *, is_anew: bool = False
    ) -> Iterator[Portion]:
        form = self._make_format(self._path, place.state)
        return _LineReader(content, form, place, self._turns_in_portion, is_anew).read_portions()


class _LineReader:
    """Reader from a position to the end of the file."""

    def __init__(
        self, content: TranscriptContent, form: TranscriptFormat, place: ReadPosition, most_turns: int, is_anew: bool
    ) -> None:
        self._is_anew = is_anew  # until the first turn is reported
        self._is_marked = False  # until the conversation of the exclusion marker is known
        self._content = content
        self._format = form
        self._most_turns = most_turns
        self._line = place.line
        self._offset = self._portion_start = place.offset
        self._tail = place.tail
        self._open: frozenset[str] = frozenset()
        # The last position at which no turn was open. Its state is requested only when needed, because the format's
        # state does not change until a turn begins.
        self._safe = place
        self._reported = Counter(place.reported)
        self._events: list[Event] = []
        self._turns = self._characters = 0

    def read_portions(self) -> Iterator[Portion]:
        for line in split_lines(read_chunks(self._content), self._offset):
            self._take_line(line)
            if self._is_full():
                yield self._build_portion()
        if self._content.damaged:
            self._format.skipped[DAMAGED_FILE] += 1
        self._add_events(self._format.list_open_turns())
        yield self._build_portion(is_last=True)

    def _take_line(self, line: TranscriptLine) -> None:
        self._line += 1
        if not line.ended:
            self._take_last_line(line)
        else:
            counts = dict(self._format.skipped)
            before = self._open
            record = None
            try:
                record = parse_record(line.data)
            except NoRecord as found:
                self._format.skipped[found.reason] += 1
            if record is not None:
                self._take_record(record)
            self._note_marker(line, record)
            if not self._open and not self._is_marked:
                counts = dict(self._format.skipped)
                self._safe = ReadPosition(line.end, self._line, line.tail, None, counts)
            elif self._open and self._open.isdisjoint(before):
                state = self._format.get_state()
                self._safe = ReadPosition(line.start, self._line - 1, self._tail, state, counts)
            self._tail = line.tail
        self._offset = line.end

    def _take_last_line(self, line: TranscriptLine) -> None:
        """Read a line without a line break, which may be complete or still being written."""
        try:
            record = parse_record(line.data)
        except NoRecord:
            return
        if record is not None:
            self._keep_state()
            self._take_record(record)
            self._note_marker(line, record)

    def _take_record(self, record: Mapping[str, Any]) -> None:
        self._add_events(self._format.take(record, self._line))
        self._open = frozenset(
            event.key if isinstance(event, Turn | RewindEvent) else event.session
            for event in self._format.list_open_turns()
        )

    def _note_marker(self, line: TranscriptLine, record: Mapping[str, Any] | None) -> None:
        """Record an exclusion marker. It counts anywhere in a line, even in skipped records."""
        found = line.data is not None and has_marker_in_json(line.data)
        self._is_marked = self._is_marked or found
        if self._is_marked and (session := self._format.get_session(record or {})):
            self._is_marked = False
            if (marked := ExclusionEvent(session)) not in self._events:
                self._events.append(marked)

    def _add_events(self, events: list[Event]) -> None:
        self._events += events
        for event in events:
            if isinstance(event, Turn):
                self._turns += 1
                self._characters += _count_characters(event)

    def _is_full(self) -> bool:
        return (
            self._turns >= self._most_turns
            or self._characters >= PORTION_CHARACTERS
            # Earlier turns stay until a new turn comes, because a file of zeros is corrupt.
            or (self._offset - self._portion_start >= PORTION_BYTES and (self._turns > 0 or not self._is_anew))
        )

    def _build_portion(self, *, is_last: bool = False) -> Portion:
        self._keep_state()
        is_anew = self._is_anew and self._turns > 0
        skipped = self._format.skipped
        new = {kind: n for kind in skipped if (n := skipped[kind] - self._reported[kind]) > 0}
        self._reported.update(new)
        portion = Portion(
            tuple(self._events),
            self._safe.to_mark(self._content.read_head(), self._reported),
            self._content.count_read(self._offset),
            new,
            is_anew=is_anew,
            is_last=is_last,
        )
        self._is_anew = self._is_anew and not is_anew
        self._events = []
        self._turns = self._characters = 0
        self._portion_start = self._offset
        return portion

    def _keep_state(self) -> None:
        if self._safe.state is None:
            self._safe = replace(self._safe, state=self._format.get_state())


def _count_characters(turn: Turn) -> int:
    code = sum(len(part.text) + len(part.replaced or "") for part in turn.snippets)
    return len(turn.text) + sum(map(len, turn.failures)) + code


_SHORT_ID_CHARACTERS = 150  # the prefix of a longer id, before its fingerprint
_ROLES = {"user": USER, "human": USER, "assistant": ASSISTANT, "ai": ASSISTANT}


class PlainFormat:
    """Plain format: each line is one turn.

    Optional fields are `project`, `id`, `title`, `branch`, `model`, `files` and `tools`. Lines with the same author,
    time and text are one turn. Lines without a time are distinguished by their line number.
    """

    def __init__(self, path: Path, state: Mapping[str, Any] | None) -> None:
        self.skipped: Counter[str] = Counter()
        # The session of the last line.
        self._session = as_name(as_mapping(state).get("session")) or path.stem
        self._title: TitleEvent | None = None

    def take(self, record: Mapping[str, Any], line: int) -> list[Event]:
        session = _to_identifier(record.get("session"))
        self._session = session or self._session
        author = as_text(record.get("author")).strip()[:MAX_NAME_CHARACTERS]
        text = as_text(record.get("text"))
        for field, value in (("session", session), ("author", author), ("text", text.strip())):
            if not value:
                self.skipped[f"line without {field}"] += 1
                return []
        if len(text) > MAX_TEXT_CHARACTERS:
            self.skipped[CLIPPED_TURN] += 1
        at = self._parse_time(record.get("timestamp"))
        # The raw value, because a time without a zone changes with the time zone of the machine.
        when = str(line if at is None else record.get("timestamp"))
        files = (as_folder(file, self.skipped) for file in as_texts(record.get("files")))
        id = _to_identifier(record.get("id")) or compute_fingerprint(author, when, text)
        turn = Turn(
            key=f"{session}:{id}",
            session=session,
            author=_ROLES.get(author.lower(), author),
            text=text[:MAX_TEXT_CHARACTERS],
            at=at,
            project=as_folder(record.get("project"), self.skipped) or None,
            branch=as_name(record.get("branch")) or None,
            model=as_name(record.get("model")) or None,
            files=deduplicate_texts(files)[:MAX_TURN_ITEMS],
            tools=deduplicate_texts(map(as_name, as_texts(record.get("tools"))))[:MAX_TURN_ITEMS],
        )
        return [*self._take_title(TitleEvent(session, as_title(record.get("title")))), turn]

    def list_open_turns(self) -> list[Event]:
        return []

    def get_session(self, record: Mapping[str, Any]) -> str:
        return self._session

    def get_state(self) -> dict[str, Any]:
        return {"session": self._session}

    def _parse_time(self, value: Any) -> int | None:
        at = parse_time(value)
        if at is None and value is not None:
            self.skipped["invalid timestamp"] += 1
        return at

    def _take_title(self, event: TitleEvent) -> list[Event]:
        if not event.title or event == self._title:
            return []
        self._title = event
        return [event]


def _to_identifier(value: Any) -> str:
    """Return a text or number as an identifier. Shorten long ones, but keep them unique."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    text = as_text(value).strip()
    if len(text) <= MAX_NAME_CHARACTERS:
        return text
    return f"{text[:_SHORT_ID_CHARACTERS]}#{compute_fingerprint(text)}"
