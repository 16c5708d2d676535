"""Conversations in the database of the Cursor editor."""

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import apsw

from everkept.core.transcripts import (
    ASSISTANT,
    USER,
    Event,
    ExclusionEvent,
    Mark,
    Portion,
    Snippet,
    TitleEvent,
    Transcript,
    Turn,
    has_marker_in_json,
)
from everkept.errors import Unavailable
from everkept.transcripts.source_programs import (
    CURSOR,
    MAX_VALUE_BYTES,
    PORTION_CHARACTERS,
    PORTION_EVENTS,
    as_list,
    as_mapping,
    as_text,
    decode_object,
    deduplicate_texts,
    parse_time,
)
from everkept.transcripts.sqlite_files import (
    ForeignConnection,
    build_read_only_uri,
    get_wal_path,
    is_immutable,
    open_read_only,
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
from everkept.values import Value, replace

_TABLE = "cursorDiskKV"
_BOUNDED_VALUE_SQL = f"CASE WHEN octet_length(value) <= {MAX_VALUE_BYTES} THEN CAST(value AS BLOB) END"


class OversizedValue:
    """Placeholder for a value that is too large to read."""


OVERSIZED_VALUE = OversizedValue()
StoredValue = bytes | OversizedValue | None


class CursorDatabase:
    """Read-only access to the database. A lock lasts only as long as reading one value."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def modified_at(self) -> int:
        """Return the time of the last write in microseconds, including writes that are only in the WAL file."""
        return max(_read_modified(self._path), _read_modified(get_wal_path(self._path)))

    def list_keys(self, prefix: str) -> list[str] | None:
        """Return the keys with this prefix, or None if the table does not exist."""
        with self._open() as connection:
            if not _has_table(connection):
                return None
            rows = connection.execute(
                f"SELECT CAST(key AS BLOB) FROM {_TABLE} WHERE key >= ? AND key < ?",
                (prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)),
            )
            return [key.decode("utf-8", "replace") for (key,) in rows]

    def read_values(self, keys: Sequence[str]) -> Iterator[StoredValue]:
        """Yield the value of each key in order, or None for a missing key."""
        with self._open() as connection:
            if not _has_table(connection):
                yield from [None] * len(keys)
                return
            for key in keys:
                yield _read_value(connection, key)

    @contextmanager
    def _open(self) -> Generator[ForeignConnection, None, None]:
        try:
            address = build_read_only_uri(self._path)
            before = self._path.stat()
            with open_read_only(address) as connection:
                yield connection
            after = self._path.stat()
        except (apsw.Error, OSError) as error:
            raise _build_unreadable_error(self._path, error) from error
        if is_immutable(address) and (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
            message = f"Cursor's database {self._path} changed while it was read."
            raise Unavailable(message, hint="Import again.", path=str(self._path))


def _read_modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1000
    except OSError:
        return 0


def _has_table(connection: ForeignConnection) -> bool:
    sought = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
    return any(True for _ in connection.execute(sought, (_TABLE,)))


def _read_value(connection: ForeignConnection, key: str) -> StoredValue:
    asked = f"SELECT octet_length(value), {_BOUNDED_VALUE_SQL} FROM {_TABLE} WHERE key = ?"
    # Read to the end of the rows, which releases the lock.
    rows = list(connection.execute(asked, (key,)))
    if not rows:
        return None
    size, value = rows[0]
    return OVERSIZED_VALUE if size is not None and value is None else value


def _build_unreadable_error(path: Path, error: Exception) -> Unavailable:
    return Unavailable(
        f"Cannot read Cursor's database {path}: {error}.",
        hint="Close Cursor, or open and close it once. Then import again.",
        path=str(path),
    )


DATABASE_PATH = Path("globalStorage", "state.vscdb")

_COMPOSER_PREFIX = "composerData:"
_STATE_READER = "state"
_AUTHORS = {1: USER, 2: ASSISTANT}
_FAILED_STATUSES = ("error", "failed")
_OVERSIZED_REASON = "value over 8 MiB"
_NOT_JSON_REASON = "value that is not JSON"


def list_composers(path: Path) -> list[Transcript]:
    """Return the non-empty conversations, or one transcript that raises the error if the database is unreadable."""
    database = CursorDatabase(path)
    found: list[Transcript] = []
    try:
        keys = database.list_keys(_COMPOSER_PREFIX)
        if keys is None:
            return [_UnreadDatabase(database, path, "database without conversations")]
        for key, raw in zip(keys, database.read_values(keys), strict=True):
            own = key.removeprefix(_COMPOSER_PREFIX)
            composer = Composer(database, path, own, _ComposerHead.from_value(raw))
            if composer.size and as_name(own) == own:
                found.append(composer)
    except Unavailable as error:
        return [_UnreadDatabase(database, path, error)]
    return found


class _ComposerHead(Value):
    """The size of a conversation. `damage` is the reason why it cannot be read."""

    bubbles: int = 0
    modified: int | None = None
    damage: str | None = None

    @staticmethod
    def from_value(raw: StoredValue) -> "_ComposerHead":
        if isinstance(raw, OversizedValue):
            return _ComposerHead(damage=_OVERSIZED_REASON)
        if raw is None or raw.strip() == b"null":  # the editor deletes a conversation this way
            return _ComposerHead()
        if not (data := decode_object(raw)):
            return _ComposerHead(damage=_NOT_JSON_REASON)
        modified = parse_time(data.get("lastUpdatedAt")) or parse_time(data.get("createdAt"))
        return _ComposerHead(len(_list_bubbles(data)), modified)


class Composer:
    """One conversation. Reading continues at the turn that may have grown."""

    def __init__(self, database: CursorDatabase, path: Path, composer: str, head: _ComposerHead) -> None:
        self._database = database
        self.source = CURSOR
        self.session = composer
        self.name = f"{path}#{composer}"
        self._head = head

    @property
    def size(self) -> int:
        return self._head.bubbles + (1 if self._head.damage else 0)

    @property
    def modified(self) -> int:
        return self._database.modified_at if self._head.modified is None else self._head.modified

    def read_portions(self, mark: Mark | None) -> Iterator[Portion]:
        if self._head.damage:
            skipped = {self._head.damage: 1}
            yield Portion((), mark or {}, self.size, skipped, is_last=True)
            return
        [raw] = self._database.read_values([_COMPOSER_PREFIX + self.session])
        raw = None if isinstance(raw, OversizedValue) else raw
        is_marked = raw is not None and has_marker_in_json(raw)
        yield from _BubbleReader(self._database, self.session, decode_object(raw), is_marked).read_portions(mark)


class _UnreadDatabase:
    """A database from which no conversations could be read."""

    def __init__(self, database: CursorDatabase, path: Path, reason: Unavailable | str) -> None:
        self._database = database
        self.source = CURSOR
        self.name = str(path)
        self.size = 1
        self._reason = reason

    @property
    def modified(self) -> int:
        return self._database.modified_at

    def read_portions(self, mark: Mark | None) -> Iterator[Portion]:
        if isinstance(self._reason, Unavailable):
            raise self._reason
        yield Portion((), {}, self.size, {self._reason: 1}, is_last=True)


class _BubbleReader:
    """Reader for the bubbles of a conversation. The last answer may still grow."""

    def __init__(self, database: CursorDatabase, composer: str, data: Mapping[str, Any], is_marked: bool) -> None:
        self._database = database
        self._is_marked = is_marked
        self._is_anew = False
        self._bubbles = _list_bubbles(data)
        self._composer = composer
        self._skipped: Counter[str] = Counter()
        self._title = as_title(data.get("name"))
        self._setting = ConversationInfo(
            composer,
            self._limit_folder(_parse_path(as_mapping(data.get("workspaceIdentifier")).get("uri"))),
            as_name(data.get("createdOnBranch")) or None,
            as_name(as_mapping(data.get("modelConfig")).get("modelName")) or None,
            reader=_STATE_READER,
        )
        self._began = parse_time(data.get("createdAt"))
        self._answer: list[TranscriptMessage] = []
        self._answer_from = 0

    def read_portions(self, mark: Mark | None) -> Iterator[Portion]:
        start = self._find_start(mark or {})
        self._is_anew = mark is not None and start == 0
        events: list[Event] = [TitleEvent(self._composer, self._title)] if self._title else []
        text = 0
        for place, bubble in enumerate(self._read_bubbles(start), start):
            closed = self._take_bubble(bubble, place)
            events += closed
            text += sum(len(event.text) for event in closed if isinstance(event, Turn))
            if len(events) >= PORTION_EVENTS or text >= PORTION_CHARACTERS:
                yield self._build_portion(events, place + 1)
                events, text = [], 0
        yield self._build_portion([*events, *self._list_open_turns()], len(self._bubbles), is_last=True)

    def _find_start(self, mark: Mark) -> int:
        """Return the bubble to continue from.

        It follows a bubble that has not moved, and starts the answer that was open unless that was regenerated.
        """
        place: Any = mark.get("bubble")
        if not isinstance(place, int) or not 0 < place <= len(self._bubbles):
            return 0
        if self._get_id(place - 1) != mark.get("after"):
            return 0
        if (answer := mark.get("open")) and (place == len(self._bubbles) or self._get_id(place) != answer):
            return 0
        self._setting = _with_folder(self._setting, as_text(mark.get("project")))
        return place

    def _build_portion(self, events: list[Event], done: int, *, is_last: bool = False) -> Portion:
        place = self._answer_from if self._answer else done
        skipped, self._skipped = self._skipped, Counter()
        mark = {
            "bubble": place,
            "after": self._get_id(place - 1) if place else "",
            "open": self._get_id(place) if self._answer else "",
            "project": self._setting.project or "",
        }
        # A conversation without any messages is corrupt, so the turns read earlier stay.
        is_anew = self._is_anew and any(isinstance(event, Turn) for event in events)
        self._is_anew = self._is_anew and not is_anew
        marked = [ExclusionEvent(self._composer)] if self._is_marked else []
        return Portion((*marked, *events), mark, done, skipped, is_anew=is_anew, is_last=is_last)

    def _limit_folder(self, path: str | None) -> str | None:
        return as_folder(path, self._skipped) or None

    def _read_bubbles(self, start: int) -> Iterator[Mapping[str, Any]]:
        """Yield the bubbles. They have their own rows, or in older versions are part of the conversation."""
        own = self._bubbles[start:]
        keys = [f"bubbleId:{self._composer}:{as_text(each.get('bubbleId'))}" for each in own]
        for bubble, raw in zip(own, self._database.read_values(keys), strict=True):
            data = bubble if "text" in bubble else decode_object(None)
            if isinstance(raw, bytes):
                data = decode_object(raw)
                self._is_marked = self._is_marked or has_marker_in_json(raw)
            if not data:
                self._skipped[_get_skip_reason(raw)] += 1
            yield data

    def _take_bubble(self, bubble: Mapping[str, Any], place: int) -> list[Event]:
        if not bubble:
            return []
        kind: Any = bubble.get("type")
        author = _AUTHORS.get(kind) if isinstance(kind, int) else None
        if author is None:
            self._skipped["unknown message"] += 1
            return []
        uris = as_list(bubble.get("workspaceUris"))
        folder = as_text(bubble.get("workspaceProjectDir")) or (_parse_path(uris[0]) if uris else None)
        self._setting = _with_folder(self._setting, self._limit_folder(folder) or "")
        message = _build_message(bubble, author, self._get_id(place), self._began if place == 0 else None)
        if message.is_empty:  # usually a thought of the model
            return []
        if is_continuation(message, self._answer):
            self._answer.append(message)
            return []
        events = self._close()
        self._answer, self._answer_from = [message], place
        return events if author == ASSISTANT else events + self._close()

    def _close(self) -> list[Event]:
        events = self._list_open_turns(self._skipped)
        self._answer = []
        return events

    def _list_open_turns(self, skipped: Counter[str] | None = None) -> list[Event]:
        if not self._answer:
            return []
        key = f"{self._composer}:{self._answer[0].id}"
        return [join_messages(self._answer, key, self._setting, skipped)]

    def _get_id(self, place: int) -> str:
        return as_name(self._bubbles[place].get("bubbleId")) or str(place)


def _get_skip_reason(raw: StoredValue) -> str:
    if isinstance(raw, OversizedValue):
        return _OVERSIZED_REASON
    return "missing message" if raw is None else _NOT_JSON_REASON


def _list_bubbles(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    headers = as_list(data.get("fullConversationHeadersOnly")) or as_list(data.get("conversation"))
    return [as_mapping(header) for header in headers]


def _build_message(bubble: Mapping[str, Any], author: str, own_id: str, began: int | None) -> TranscriptMessage:
    text = as_text(bubble.get("text")).strip()
    call = as_mapping(bubble.get("toolFormerData"))
    arguments = {**decode_object(call.get("rawArgs")), **decode_object(call.get("params"))}
    has_failed = call.get("status") in _FAILED_STATUSES
    timing = as_mapping(bubble.get("timingInfo"))
    code = tuple(_extract_code(bubble, text))
    return TranscriptMessage(
        id=own_id,
        author=author,
        text=text,
        at=parse_time(bubble.get("createdAt")) or parse_time(timing.get("clientRpcSendTime")) or began,
        model=as_name(as_mapping(bubble.get("modelInfo")).get("modelName")) or None,
        files=deduplicate_texts([*list_files(arguments), *(snippet.file for snippet in code)]),
        tools=deduplicate_texts([as_name(call.get("name"))]),
        snippets=code if has_failed else (*list_snippets(arguments), *code),
        failures=(_get_failure(call),) if has_failed else (),
    )


def _extract_code(bubble: Mapping[str, Any], text: str) -> Iterator[Snippet]:
    """Yield the code blocks that the text does not already contain."""
    for block in map(as_mapping, as_list(bubble.get("codeBlocks"))):
        code = as_text(block.get("content"))
        if code.strip() and code.strip() not in text:
            language = as_name(block.get("languageId")) or None
            yield Snippet(code, _parse_path(block.get("uri")), language)


def _get_failure(call: Mapping[str, Any]) -> str:
    said = call.get("error") or call.get("result")
    result = decode_object(said) or as_mapping(said)
    inner = as_text(result.get("error")) or as_text(result.get("message")) or as_text(said)
    return clip_failure(inner or f"{as_text(call.get('name')) or 'a tool'} failed")


def _with_folder(setting: ConversationInfo, folder: str) -> ConversationInfo:
    return replace(setting, project=setting.project or folder or None)


def _parse_path(uri: Any) -> str | None:
    """Return the path of a local file that the editor stored as a URI or as its parts."""
    if isinstance(uri, Mapping):
        parts = as_mapping(uri)
        if as_text(parts.get("scheme")) not in ("", "file"):
            return None
        return as_text(parts.get("fsPath")) or as_text(parts.get("path")) or None
    text = as_text(uri)
    if "://" not in text:
        return text or None
    try:
        address = urlsplit(text)
    except ValueError:
        return None
    path = unquote(address.path)
    if address.scheme != "file" or not path:
        return None
    return path[1:] if path[2:3] == ":" else path  # /c:/… is a path on a Windows drive
