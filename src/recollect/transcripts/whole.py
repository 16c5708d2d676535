"""A transcript that is one document: it is read as a whole whenever it has changed."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from os import stat_result
from pathlib import Path
from typing import Any

from recollect.core.transcripts import Event, Mark, Portion, Rewound, Turn
from recollect.errors import Unavailable
from recollect.transcripts.fields import strings

LARGEST = 32 * 1024 * 1024  # bytes: it is held in memory as a whole

_PORTION = 64  # events
# What a document holds, in its order, and what was left out of it.
Read = tuple[list[Event], Counter[str]]


class WholeTranscript:
    """`read` gives the events of a document; a turn has the same key each time."""

    def __init__(self, path: Path, source: str, read: Callable[[Path, bytes], Read]) -> None:
        self._path = path
        self._source = source
        self._read = read

    @property
    def source(self) -> str:
        return self._source

    @property
    def name(self) -> str:
        return str(self._path)

    @property
    def size(self) -> int:
        return self._seen().st_size

    @property
    def modified(self) -> int:
        return self._seen().st_mtime_ns // 1000

    def portions(self, mark: Mark | None) -> Iterator[Portion]:
        raw = self._content()
        size = len(raw)
        if size > LARGEST:
            yield Portion((), {}, self.size, {"file over 32 MiB": 1})
            return
        digest = hashlib.sha256(raw).hexdigest()
        events, skipped = self._read(self._path, raw)
        del raw
        earlier = mark or {}
        given = _count(earlier) if earlier.get("document") == digest else 0
        known = strings(earlier.get("keys"))
        gone = [] if given else _gone(events, known)
        for start in range(given, max(len(events), given + 1), _PORTION):
            end = min(start + _PORTION, len(events))
            is_last = end == len(events)
            keys = [event.key for event in events[:end] if isinstance(event, Turn)]
            yield Portion(
                (*gone, *events[start:end]),
                {"document": digest, "events": end, "keys": keys or list(known)},
                size if is_last else size * end // len(events),
                skipped if is_last else {},
            )
            gone = []

    def _content(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                return file.read(LARGEST + 1)
        except OSError as error:
            raise unreadable(self._path, error) from error

    def _seen(self) -> stat_result:
        try:
            return self._path.stat()
        except OSError as error:
            raise unreadable(self._path, error) from error


def unreadable(path: Path, error: OSError) -> Unavailable:
    return Unavailable(
        f"The transcript {path} cannot be read: {error.strerror or error}.",
        hint="It may have been deleted or moved; the next import looks for it again.",
        path=str(path),
    )


def _count(mark: Mark) -> int:
    given: Any = mark.get("events")
    return given if isinstance(given, int) and given > 0 else 0


def _gone(events: Sequence[Event], keys: Sequence[str]) -> list[Event]:
    """What takes back the turns that an earlier reading had and this one does not."""
    turns = {event.key: event for event in events if isinstance(event, Turn)}
    first = next((key for key in keys if key not in turns), None)
    if first is None:
        return []
    session = next((turn.session for turn in turns.values()), None)
    return [Rewound(session, first)] if session else []
