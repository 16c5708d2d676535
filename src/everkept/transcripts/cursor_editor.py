"""Conversations in the database of Cursor's editor."""

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import unquote, urlsplit

import apsw

from everkept.core.transcripts import (
    ASSISTANT,
    USER,
    Event,
    Mark,
    Marked,
    Portion,
    Snippet,
    Titled,
    Transcript,
    Turn,
    has_marker_within,
)
from everkept.errors import Unavailable
from everkept.transcripts.source_programs import (
    CURSOR,
    LARGEST_VALUE,
    PORTION_EVENTS,
    PORTION_TEXT,
    decoded,
    listed,
    mapping,
    moment,
    string,
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
from everkept.values import Value, replace

_TABLE = "cursorDiskKV"
_WAIT = 2_000  # milliseconds for whoever writes
_JOURNAL_MODE = 18  # place of the byte in the header that says how changes are written
_WRITE_AHEAD = 2
_LARGEST = f"CASE WHEN octet_length(value) <= {LARGEST_VALUE} THEN CAST(value AS BLOB) END"


class TooLarge:
    """In place of a value that is not read."""


TOO_LARGE = TooLarge()
Stored = bytes | TooLarge | None


class _Connection(Protocol):
    def execute(
        self, statements: str, bindings: Sequence[Any] | None = None
    ) -> Iterator[tuple[Any, ...]]: ...

    def set_busy_timeout(self, milliseconds: int) -> None: ...

    def close(self, force: bool = False) -> None: ...


class Database:
    """No lock is held for longer than it takes to read one value."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def modified(self) -> int:
        """When anything was written last, also what lies beside it until it is taken over."""
        return max(_time(self._path), _time(_ahead(self._path)))

    def keys(self, prefix: str) -> list[str] | None:
        """Those that begin with it; None where the table is missing."""
        with self._opened() as connection:
            if not _has_table(connection):
                return None
            rows = connection.execute(
                f"SELECT CAST(key AS BLOB) FROM {_TABLE} WHERE key >= ? AND key < ?",
                (prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)),
            )
            return [key.decode("utf-8", "replace") for (key,) in rows]

    def values(self, keys: Sequence[str]) -> Iterator[Stored]:
        """Of each key, one after the other; None where there is none."""
        with self._opened() as connection:
            if not _has_table(connection):
                yield from [None] * len(keys)
                return
            for key in keys:
                yield _lookup(connection, key)

    @contextmanager
    def _opened(self) -> Generator[_Connection, None, None]:
        try:
            address, is_fixed = _address(self._path)
            before = self._path.stat()
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            connection = cast(_Connection, apsw.Connection(address, flags=flags))
            try:
                connection.set_busy_timeout(_WAIT)
                yield connection
            finally:
                connection.close(True)
            after = self._path.stat()
        except (apsw.Error, OSError) as error:
            raise _unreadable(self._path, error) from error
        if is_fixed and (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
            raise _changed(self._path)


def _address(path: Path) -> tuple[str, bool]:
    """How to open it without writing anything; and whether that trusts that nobody writes."""
    name = path.absolute().as_uri()
    if _writes_ahead(path) and not _size(_ahead(path)):
        # All is in the file. To open it as usual would make two more files beside it.
        return f"{name}?immutable=1", True
    return f"{name}?mode=ro&readonly_shm=1", False


def _writes_ahead(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(_JOURNAL_MODE + 1)[_JOURNAL_MODE:] == bytes([_WRITE_AHEAD])


def _ahead(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _time(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1000
    except OSError:
        return 0


def _has_table(connection: _Connection) -> bool:
    sought = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
    return any(True for _ in connection.execute(sought, (_TABLE,)))


def _lookup(connection: _Connection, key: str) -> Stored:
    asked = f"SELECT octet_length(value), {_LARGEST} FROM {_TABLE} WHERE key = ?"
    # To the end of the rows, which is what ends the lock.
    rows = list(connection.execute(asked, (key,)))
    return _value(*rows[0]) if rows else None


def _value(size: int | None, value: bytes | None) -> Stored:
    return TOO_LARGE if size is not None and value is None else value


def _unreadable(path: Path, error: Exception) -> Unavailable:
    return Unavailable(
        f"Cursor's database {path} cannot be read: {error}.",
        hint="Close Cursor, or open and close it once, and import again.",
        path=str(path),
    )


def _changed(path: Path) -> Unavailable:
    return Unavailable(
        f"Cursor's database {path} was changed while it was read.",
        hint="Import again.",
        path=str(path),
    )


DATABASE = Path("globalStorage", "state.vscdb")

_COMPOSER = "composerData:"
_FROM_STATE = "state"
_AUTHORS = {1: USER, 2: ASSISTANT}
_FAILED = ("error", "failed")
_TOO_LARGE = "value over 8 MiB"
_NO_JSON = "value that is no JSON"


def composers(path: Path) -> list[Transcript]:
    """The conversations in a database that hold anything.

    Where it cannot be read, one transcript that says so to whoever reads it.
    """
    database = Database(path)
    found: list[Transcript] = []
    try:
        keys = database.keys(_COMPOSER)
        if keys is None:
            return [_Unread(database, path, "database without conversations")]
        for key, raw in zip(keys, database.values(keys), strict=True):
            own = key.removeprefix(_COMPOSER)
            composer = Composer(database, path, own, _Head.of(raw))
            if composer.size and name(own) == own:
                found.append(composer)
    except Unavailable as error:
        return [_Unread(database, path, error)]
    return found


class _Head(Value):
    """How much there is of a conversation; `damage` is why nothing of it can be read."""

    bubbles: int = 0
    modified: int | None = None
    damage: str | None = None

    @staticmethod
    def of(raw: Stored) -> "_Head":
        if isinstance(raw, TooLarge):
            return _Head(damage=_TOO_LARGE)
        if raw is None or raw.strip() == b"null":  # how the editor deletes one
            return _Head()
        if not (data := decoded(raw)):
            return _Head(damage=_NO_JSON)
        modified = moment(data.get("lastUpdatedAt")) or moment(data.get("createdAt"))
        return _Head(len(_bubbles(data)), modified)


class Composer:
    """One conversation. It is read anew from the turn that may have grown."""

    def __init__(self, database: Database, path: Path, composer: str, head: _Head) -> None:
        self._database = database
        self._path = path
        self._id = composer
        self._head = head

    @property
    def source(self) -> str:
        return CURSOR

    @property
    def session(self) -> str:
        return self._id

    @property
    def name(self) -> str:
        return f"{self._path}#{self._id}"

    @property
    def size(self) -> int:
        return self._head.bubbles + (1 if self._head.damage else 0)

    @property
    def modified(self) -> int:
        return self._database.modified if self._head.modified is None else self._head.modified

    def portions(self, mark: Mark | None) -> Iterator[Portion]:
        if self._head.damage:
            skipped = {self._head.damage: 1}
            yield Portion((), mark or {}, self.size, skipped, is_last=True)
            return
        [raw] = self._database.values([_COMPOSER + self._id])
        raw = None if isinstance(raw, TooLarge) else raw
        is_marked = raw is not None and has_marker_within(raw)
        yield from _Reading(self._database, self._id, decoded(raw), is_marked).portions(mark)


class _Unread:
    """A database out of which no conversations came."""

    def __init__(self, database: Database, path: Path, reason: Unavailable | str) -> None:
        self._database = database
        self._path = path
        self._reason = reason

    @property
    def source(self) -> str:
        return CURSOR

    @property
    def name(self) -> str:
        return str(self._path)

    @property
    def size(self) -> int:
        return 1

    @property
    def modified(self) -> int:
        return self._database.modified

    def portions(self, mark: Mark | None) -> Iterator[Portion]:
        if isinstance(self._reason, Unavailable):
            raise self._reason
        yield Portion((), {}, self.size, {self._reason: 1}, is_last=True)


class _Reading:
    """Goes through the bubbles of a conversation, of which the last answer may grow."""

    def __init__(
        self, database: Database, composer: str, data: Mapping[str, Any], is_marked: bool
    ) -> None:
        self._database = database
        self._is_marked = is_marked
        self._is_anew = False
        self._bubbles = _bubbles(data)
        self._composer = composer
        self._skipped: Counter[str] = Counter()
        self._title = title(data.get("name"))
        self._setting = Setting(
            composer,
            self._bounded(_path(mapping(data.get("workspaceIdentifier")).get("uri"))),
            name(data.get("createdOnBranch")) or None,
            name(mapping(data.get("modelConfig")).get("modelName")) or None,
            reader=_FROM_STATE,
        )
        self._began = moment(data.get("createdAt"))
        self._answer: list[Message] = []
        self._answer_from = 0

    def portions(self, mark: Mark | None) -> Iterator[Portion]:
        start = self._start(mark or {})
        self._is_anew = mark is not None and start == 0
        events: list[Event] = [Titled(self._composer, self._title)] if self._title else []
        text = 0
        for place, bubble in enumerate(self._read(start), start):
            closed = self._take(bubble, place)
            events += closed
            text += sum(len(event.text) for event in closed if isinstance(event, Turn))
            if len(events) >= PORTION_EVENTS or text >= PORTION_TEXT:
                yield self._portion(events, place + 1)
                events, text = [], 0
        yield self._portion([*events, *self._open()], len(self._bubbles), is_last=True)

    def _start(self, mark: Mark) -> int:
        """Where to read on: behind a bubble that is still where it was, and before the answer
        that was open, if it has not been given anew."""
        place: Any = mark.get("bubble")
        if not isinstance(place, int) or not 0 < place <= len(self._bubbles):
            return 0
        if self._id(place - 1) != mark.get("after"):
            return 0
        if (answer := mark.get("open")) and (
            place == len(self._bubbles) or self._id(place) != answer
        ):
            return 0
        self._setting = _with_folder(self._setting, string(mark.get("project")))
        return place

    def _portion(self, events: list[Event], done: int, *, is_last: bool = False) -> Portion:
        place = self._answer_from if self._answer else done
        skipped, self._skipped = self._skipped, Counter()
        mark = {
            "bubble": place,
            "after": self._id(place - 1) if place else "",
            "open": self._id(place) if self._answer else "",
            "project": self._setting.project or "",
        }
        # A conversation whose messages are all missing is a broken one: what was read stays.
        is_anew = self._is_anew and any(isinstance(event, Turn) for event in events)
        self._is_anew = self._is_anew and not is_anew
        marked = [Marked(self._composer)] if self._is_marked else []
        return Portion((*marked, *events), mark, done, skipped, is_anew=is_anew, is_last=is_last)

    def _bounded(self, path: str | None) -> str | None:
        return folder(path, self._skipped) or None

    def _read(self, start: int) -> Iterator[Mapping[str, Any]]:
        """The bubbles themselves: in rows of their own, in older versions right here."""
        own = self._bubbles[start:]
        keys = [f"bubbleId:{self._composer}:{string(each.get('bubbleId'))}" for each in own]
        for bubble, raw in zip(own, self._database.values(keys), strict=True):
            data = bubble if "text" in bubble else decoded(None)
            if isinstance(raw, bytes):
                data = decoded(raw)
                self._is_marked = self._is_marked or has_marker_within(raw)
            if not data:
                self._skipped[_lack(raw)] += 1
            yield data

    def _take(self, bubble: Mapping[str, Any], place: int) -> list[Event]:
        if not bubble:
            return []
        kind: Any = bubble.get("type")
        author = _AUTHORS.get(kind) if isinstance(kind, int) else None
        if author is None:
            self._skipped["unknown message"] += 1
            return []
        self._setting = _with_folder(self._setting, self._bounded(_folder(bubble)) or "")
        message = _message(bubble, author, self._id(place), self._began if place == 0 else None)
        if message.is_empty:  # what the model thought, as a rule
            return []
        if belongs(message, self._answer):
            self._answer.append(message)
            return []
        events = self._close()
        self._answer, self._answer_from = [message], place
        return events if author == ASSISTANT else events + self._close()

    def _close(self) -> list[Event]:
        events = self._open(self._skipped)
        self._answer = []
        return events

    def _open(self, skipped: Counter[str] | None = None) -> list[Event]:
        if not self._answer:
            return []
        key = f"{self._composer}:{self._answer[0].id}"
        return [turn_of(self._answer, key, self._setting, skipped)]

    def _id(self, place: int) -> str:
        return name(self._bubbles[place].get("bubbleId")) or str(place)


def _lack(raw: Stored) -> str:
    if isinstance(raw, TooLarge):
        return _TOO_LARGE
    return "message that is missing" if raw is None else _NO_JSON


def _bubbles(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What is known of each message, in order."""
    headers = listed(data.get("fullConversationHeadersOnly")) or listed(data.get("conversation"))
    return [mapping(header) for header in headers]


def _message(bubble: Mapping[str, Any], author: str, own_id: str, began: int | None) -> Message:
    text = string(bubble.get("text")).strip()
    call = mapping(bubble.get("toolFormerData"))
    arguments = {**decoded(call.get("rawArgs")), **decoded(call.get("params"))}
    has_failed = call.get("status") in _FAILED
    code = tuple(_code(bubble, text))
    return Message(
        id=own_id,
        author=author,
        text=text,
        at=moment(bubble.get("createdAt")) or _sent(bubble) or began,
        model=name(mapping(bubble.get("modelInfo")).get("modelName")) or None,
        files=unique([*files_of(arguments), *(snippet.file for snippet in code)]),
        tools=unique([name(call.get("name"))]),
        snippets=code if has_failed else (*snippets_of(arguments), *code),
        failures=(_failure(call),) if has_failed else (),
    )


def _sent(bubble: Mapping[str, Any]) -> int | None:
    return moment(mapping(bubble.get("timingInfo")).get("clientRpcSendTime"))


def _code(bubble: Mapping[str, Any], text: str) -> Iterator[Snippet]:
    """Blocks that the text does not show already."""
    for block in map(mapping, listed(bubble.get("codeBlocks"))):
        code = string(block.get("content"))
        if code.strip() and code.strip() not in text:
            language = name(block.get("languageId")) or None
            yield Snippet(code, _path(block.get("uri")), language)


def _failure(call: Mapping[str, Any]) -> str:
    said = call.get("error") or call.get("result")
    result = decoded(said) or mapping(said)
    inner = string(result.get("error")) or string(result.get("message")) or string(said)
    return failure(inner or f"{string(call.get('name')) or 'a tool'} failed")


def _folder(bubble: Mapping[str, Any]) -> str:
    uris = listed(bubble.get("workspaceUris"))
    return string(bubble.get("workspaceProjectDir")) or (_path(uris[0]) or "" if uris else "")


def _with_folder(setting: Setting, folder: str) -> Setting:
    return replace(setting, project=setting.project or folder or None)


def _path(uri: Any) -> str | None:
    """Of a file on this machine, which the editor writes as an address or as its parts."""
    if isinstance(uri, Mapping):
        parts = mapping(uri)
        if string(parts.get("scheme")) not in ("", "file"):
            return None
        return string(parts.get("fsPath")) or string(parts.get("path")) or None
    text = string(uri)
    if "://" not in text:
        return text or None
    try:
        address = urlsplit(text)
    except ValueError:
        return None
    path = unquote(address.path)
    if address.scheme != "file" or not path:
        return None
    return path[1:] if path[2:3] == ":" else path  # /c:/… is on a drive
