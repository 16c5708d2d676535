"""A transcript that is one document: it is read as a whole whenever it has changed."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from os import stat_result
from pathlib import Path
from typing import Any

from everkept.core.transcripts import Event, Mark, Marked, Portion, Turn, has_marker_within
from everkept.transcripts.limits import LARGEST_DOCUMENT, PORTION_EVENTS
from everkept.transcripts.reading.kept import FileTranscript, unreadable

# What a document holds, in its order, and what was left out of it.
Read = tuple[list[Event], Counter[str]]


class WholeTranscript(FileTranscript):
    """`read` gives the events of a document; a turn has the same key each time."""

    def __init__(
        self,
        path: Path,
        source: str,
        read: Callable[[Path, bytes], Read],
        *,
        seen: stat_result | None = None,
    ) -> None:
        super().__init__(path, source, seen)
        self._read = read

    def portions(self, mark: Mark | None) -> Iterator[Portion]:
        raw = self._content()
        size = len(raw)
        if size > LARGEST_DOCUMENT:
            skipped = {"file over 32 MiB": 1}
            yield Portion((), mark or {}, self._seen().st_size, skipped, is_last=True)
            return
        digest = hashlib.sha256(raw).hexdigest()
        is_same = mark is not None and mark.get("document") == digest
        given = _count(mark) if mark and is_same else 0
        events, skipped = self._events(raw)
        del raw
        # A document that holds nothing any more is a broken one as a rule: what was read stays.
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

    def _events(self, raw: bytes) -> Read:
        events, skipped = self._read(self._path, raw)
        if has_marker_within(raw):
            sessions = dict.fromkeys(event.session for event in events)
            events = [*map(Marked, sessions), *events]
        return events, skipped

    def _content(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                return file.read(LARGEST_DOCUMENT + 1)
        except OSError as error:
            raise unreadable(self._path, error) from error


def _count(mark: Mark) -> int:
    given: Any = mark.get("events")
    return given if isinstance(given, int) and given > 0 else 0
