"""Files of an export, read as streams: a zip archive, a folder of files or archives, or one file; and conversations.

Conversations of an assistant are read as transcripts: whole files of them, one conversation at a time.
"""

import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from everkept.core.disk import open_regular
from everkept.core.transcripts import ASSISTANT, Event, Mark, Portion, TitleEvent, Turn
from everkept.core.zip_files import open_member, open_zip
from everkept.errors import InvalidInput
from everkept.exchange.foreign import NOTHING_IMPORTED
from everkept.exchange.json_files import JsonItem, NotJsonItems, read_json_items
from everkept.transcripts.source_programs import PORTION_EVENTS, as_mapping, as_text
from everkept.transcripts.turns import ConversationInfo, TranscriptMessage, as_title, is_continuation, join_messages
from everkept.values import Value

MAX_FILES = 10_000  # of one export
MAX_RATIO = 200  # of a file in an archive to its compressed size; JSON has about 10
_UNCHECKED_BYTES = 4096
_IGNORED_FOLDER = "__MACOSX"
_JSON_SUFFIX, _ZIP_SUFFIX = ".json", ".zip"
_ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError)


class ExportFile(Value):
    """JSON file of an export, in an archive if it has a `member`."""

    path: Path
    info: zipfile.ZipInfo | None
    size: int
    modified: int  # time of the file or its archive

    @property
    def member(self) -> str | None:
        return None if self.info is None else self.info.filename

    @property
    def name(self) -> str:
        """Return the name of the file without folders."""
        return Path(self.path.name if self.member is None else self.member).name

    @property
    def place(self) -> str:
        return str(self.path) if self.member is None else f"{self.path}!/{self.member}"

    def read_items(self) -> Iterator[JsonItem]:
        """Yield the items of the file. Raise InvalidInput if it is not JSON or cannot be read."""
        with self.open() as file:
            yield from read_json_items(file)

    def read_objects(self) -> Iterator[Mapping[str, Any]]:
        """Yield the objects of a list, or the one object that the file is."""
        whole: dict[str, Any] = {}
        for key, value in self.read_items():
            if key is None:
                yield as_mapping(value)
            else:
                whole[key] = value
        if whole:
            yield whole

    @contextmanager
    def open(self) -> Generator[IO[bytes], None, None]:
        """Open the file. Raise InvalidInput if it cannot be read, also for errors of its reader."""
        try:
            with open_regular(self.path) as file:
                if self.info is None:
                    yield file
                else:
                    with open_member(file, self.info) as content:
                        yield content
        except (NotJsonItems, OSError, *_ARCHIVE_ERRORS) as error:
            raise _build_unreadable_error(self.place, error) from error


def list_export_files(place: Path) -> list[ExportFile]:
    """List the JSON files of an export. Return none if there are none. Raise InvalidInput for a broken archive."""
    if place.is_dir():
        every = sorted(path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
        paths = [path for path in every if path.suffix.lower() in (_JSON_SUFFIX, _ZIP_SUFFIX)]
    else:
        paths = [place] if place.is_file() else []
    found = [file for path in paths[:MAX_FILES] for file in _list_files(path)]
    return found[:MAX_FILES]


def _list_files(path: Path) -> Iterator[ExportFile]:
    try:
        about = path.stat()
        if path.suffix.lower() != _ZIP_SUFFIX:
            yield ExportFile(path, None, about.st_size, about.st_mtime_ns // 1_000)
            return
        with open_regular(path) as file, open_zip(file) as archive:
            for info in sorted(archive.infolist(), key=lambda each: each.filename):
                parts = Path(info.filename).parts
                if info.filename.lower().endswith(_JSON_SUFFIX) and _IGNORED_FOLDER not in parts:
                    _check_compression(info)
                    yield ExportFile(path, info, info.file_size, about.st_mtime_ns // 1_000)
    except (OSError, *_ARCHIVE_ERRORS) as error:
        raise _build_unreadable_error(str(path), error) from error


def _check_compression(info: zipfile.ZipInfo) -> None:
    """Raise BadZipFile for a file that unpacks to far more than any export, or needs much memory to unpack."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise zipfile.BadZipFile(f"{info.filename} is compressed in an unusual way")
    if info.file_size > MAX_RATIO * (info.compress_size + _UNCHECKED_BYTES):
        raise zipfile.BadZipFile(f"{info.filename} unpacks to more than {MAX_RATIO} times its size")


def _build_unreadable_error(place: str, error: Exception) -> InvalidInput:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return InvalidInput(
        f"{place} cannot be read: {reason}.",
        hint=f"{NOTHING_IMPORTED} Download the export again, or pass another PATH.",
        argument="PATH",
        value=place,
    )


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
