"""Transcripts in memory, as the port promises them, and what an import made of them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from everkept.core.ports import RecordStore
from everkept.core.records import Record, RecordFilter
from everkept.core.transcripts import (
    Event,
    ExclusionEvent,
    Mark,
    Portion,
    RewindEvent,
    Snippet,
    TitleEvent,
    Transcript,
    Turn,
)
from everkept.errors import InvalidInput, NotFound
from everkept.families.history.ingest.transcript_importer import TranscriptImporter
from everkept.families.history.model import (
    CODE,
    CONVERSATION,
    SYMBOL,
    TRANSCRIPT,
    TURN,
    HistoryOptions,
    build_conversation_id,
    build_turn_id,
)
from everkept.values import as_dict, replace
from records import DAY_ONE

SOURCE = "test"
MINUTE = 60_000_000
_KINDS: Mapping[str, type[Event]] = {
    "turn": Turn,
    "titled": TitleEvent,
    "rewound": RewindEvent,
    "marked": ExclusionEvent,
}


def turn(key: str, text: str = "", *, session: str = "s", **more: Any) -> Turn:
    """A turn of a person; a key that ends with `!` belongs to an assistant."""
    author = "assistant" if key.endswith("!") else "user"
    at = DAY_ONE + MINUTE * int("".join(filter(str.isdigit, key)) or 0)
    return Turn(key, session, **({"author": author, "text": text or key, "at": at} | more))


@dataclass
class Written:
    """A transcript that grows by lines, and may be written anew.

    A line with a turn whose key the line before has too adds to that turn; the last turn is open.
    Its marks name the folders that were worked in, as those of some programs do.
    """

    name: str
    lines: list[Event] = field(default_factory=list[Event])
    source: str = SOURCE
    portion: int = 2  # events of one
    modified: int = DAY_ONE
    opened: int = 0
    broken: Exception | None = None  # what reading ends with
    gone: Exception | None = None  # what whoever asks for its size is told
    skipped: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def size(self) -> int:
        if self.gone is not None:
            raise self.gone
        return len(self.lines)

    def add(self, *lines: Event) -> None:
        self.lines += lines
        self.modified += 1

    def rewrite(self, *lines: Event) -> None:
        self.lines = list(lines)
        self.modified += 1

    def read_portions(self, mark: Mark | None) -> Iterator[Portion]:
        self.opened += 1
        lines = list(self.lines)
        fits = bool(mark) and mark is not None and mark.get("head") == _head(lines, mark)
        start = int(mark["line"]) if mark is not None and fits else 0
        is_anew = mark is not None and not fits and any(isinstance(x, Turn) for x in lines)
        events = events_of(lines, start)
        if events and isinstance(events[-1][1], Turn):
            *_, (open_at, _) = events
        else:
            open_at = len(lines)
        for first in range(0, max(1, len(events)), self.portion):
            some = events[first : first + self.portion]
            is_last = first + self.portion >= len(events)
            end = open_at if is_last else events[first + self.portion][0]
            told = tuple(event for _, event in some)
            folders = sorted({x.project for x in lines[:end] if isinstance(x, Turn) and x.project})
            reached = {
                "line": end,
                "head": _head(lines, {"line": end}),
                "state": {"folders": folders, "session": lines[-1].session if lines else ""},
            }
            skipped = self.skipped if is_last else {}
            yield Portion(
                told, reached, end, skipped, is_anew=is_anew and first == 0, is_last=is_last and self.broken is None
            )
        if self.broken is not None:
            raise self.broken


def _head(lines: Sequence[Event], mark: Mark) -> str | None:
    end = int(mark["line"])
    if end > len(lines):
        return None
    return sha256(repr(lines[:end]).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def events_of(lines: Sequence[Event], start: int) -> list[tuple[int, Event]]:
    """With the line that each begins with."""
    found: list[tuple[int, Event]] = []
    for number, line in enumerate(lines[start:], start):
        before = found[-1][1] if found else None
        if isinstance(line, Turn) and isinstance(before, Turn) and line.key == before.key:
            found[-1] = (found[-1][0], _joined(before, line))
        else:
            found.append((number, line))
    return found


def _joined(first: Turn, more: Turn) -> Turn:
    return replace(
        first,
        text=f"{first.text}\n\n{more.text}",
        files=first.files + more.files,
        tools=first.tools + more.tools,
        snippets=first.snippets + more.snippets,
        failures=first.failures + more.failures,
    )


class WrittenTranscripts:
    """Implements Transcripts over some that are written."""

    def __init__(self, *written: Written) -> None:
        self._written = written

    @property
    def sources(self) -> list[str]:
        return sorted({each.source for each in self._written})

    def found(self, sources: Sequence[str] = (), files: Sequence[Path] = ()) -> list[Transcript]:
        if unknown := set(sources) - set(self.sources):
            raise InvalidInput(f"There is no source {', '.join(sorted(unknown))}.")
        names = [str(file) for file in files]
        if missing := set(names) - {each.name for each in self._written}:
            raise NotFound("file", missing.pop())
        return [
            each
            for each in self._written
            if (not sources or each.source in sources) and (not names or each.name in names)
        ]


def to_json(transcripts: Sequence[Written]) -> str:
    """For another process."""
    names = {kind: name for name, kind in _KINDS.items()}
    return json.dumps(
        [
            {
                "name": each.name,
                "portion": each.portion,
                "modified": each.modified,
                "lines": [[names[type(line)], as_dict(line)] for line in each.lines],
            }
            for each in transcripts
        ]
    )


def from_json(text: str) -> list[Written]:
    return [
        Written(**{**each, "lines": [_line(kind, values) for kind, values in each["lines"]]})
        for each in json.loads(text)
    ]


def _line(kind: str, values: dict[str, Any]) -> Event:
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    if "snippets" in values:
        values["snippets"] = tuple(Snippet(**snippet) for snippet in values["snippets"])
    return _KINDS[kind](**values)


def importer(store: RecordStore, **options: Any) -> TranscriptImporter:
    return TranscriptImporter(store, lambda: DAY_ONE, HistoryOptions(**options))


async def conversation(store: RecordStore, session: str = "s") -> Record:
    [found] = await store.get([build_conversation_id(SOURCE, session)])
    return found


async def turns(store: RecordStore, session: str = "s") -> list[Record]:
    """Of a conversation, in their order."""
    found = await store.scan(RecordFilter(kinds=(TURN,), parents=(build_conversation_id(SOURCE, session),)), limit=None)
    return sorted(found, key=lambda record: record.position or 0)


async def texts(store: RecordStore, session: str = "s") -> list[str]:
    return [record.text for record in await turns(store, session)]


async def code_of(store: RecordStore, key: str) -> list[Record]:
    return await store.scan(RecordFilter(kinds=(CODE,), parents=(build_turn_id(SOURCE, key),)))


async def contents(store: RecordStore) -> dict[str, Any]:
    """All that is there but for when it was stored, and in which reading.

    Of symbols those that code speaks of: what a turn that was taken back told of one may stay. A
    conversation without turns is as good as none.
    """
    links = await store.scan_links(deleted=False)
    spoken = {link.target for link in links}
    records = await store.scan(RecordFilter(kinds=(CONVERSATION, TURN, CODE, SYMBOL, TRANSCRIPT)))
    kept = [
        each
        for each in _told(records)
        if (each.kind != SYMBOL or each.id in spoken) and (each.kind != CONVERSATION or each.facets.get("turns") != 0)
    ]
    return {
        **{each.id: replace(each, created_at=0, updated_at=0, version=0) for each in kept},
        **{f"{each.source} {each.verb} {each.target}": json.dumps(each.facets, sort_keys=True) for each in links},
    }


def _told(records: Sequence[Record]) -> Iterator[Record]:
    """With a turn's place in the order of arrival instead of a number that readings differ in."""
    ranks: dict[str, list[int]] = {}
    for each in records:
        if each.kind == TURN:
            ranks.setdefault(each.parent or "", []).append(each.facets["sequence"])
    for each in records:
        facets = {name: value for name, value in each.facets.items() if name not in ("sequence", "readings")}
        match each.kind:
            case "symbol":
                yield replace(each, type=None)
            case "turn":
                facets["rank"] = sorted(ranks[each.parent or ""]).index(each.facets["sequence"])
                yield replace(each, facets=facets, tags=())
            case _:
                yield replace(each, facets=facets)
