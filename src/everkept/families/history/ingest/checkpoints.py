"""How far a transcript was read, what an import counted, and the record each commit passes."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from everkept.core.commits import commit, retry
from everkept.core.paths import FolderExclusion
from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Insert, Record, Step, Update
from everkept.core.times import Clock
from everkept.core.transcripts import Mark, Transcript
from everkept.families.history.model import FORGET_TOOL, TRANSCRIPT, build_transcript_id
from everkept.values import Value, field, list_fields, replace


class TranscriptFailure(Value):
    """A transcript that could not be read, and why."""

    source: str
    name: str
    reason: str


class ImportCounts(Value, frozen=False):
    """Of one source, or of all."""

    transcripts: int = 0  # that were there
    read: int = 0  # of which something was new
    unchanged: int = 0
    left_out: int = 0  # that were read, and of which nothing was to be kept
    failed: int = 0
    conversations: int = 0  # that were new
    conversations_left_out: int = 0
    turns: int = 0  # that were new
    turns_changed: int = 0
    turns_removed: int = 0  # that were taken back
    turns_left_out: int = 0
    decisions: int = 0
    code: int = 0
    symbols: int = 0
    links: int = 0
    masked: Counter[str] = field(default_factory=Counter[str])
    skipped: Counter[str] = field(default_factory=Counter[str])

    def add(self, other: "ImportCounts") -> None:
        for each in list_fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class ImportReport(Value, frozen=False):
    """What was taken in, by source."""

    sources: dict[str, ImportCounts] = field(default_factory=dict[str, ImportCounts])
    failures: list[TranscriptFailure] = field(default_factory=list[TranscriptFailure])

    def get_counts(self, source: str) -> ImportCounts:
        return self.sources.setdefault(source, ImportCounts())

    @property
    def total(self) -> ImportCounts:
        total = ImportCounts()
        for counts in self.sources.values():
            total.add(counts)
        return total


# What names sessions and folders; it goes with what is forgotten.
NAMING_FACETS = ("mark", "previous", "title")


class PreviousTurn(Value):
    """The turn before, for the next one of its conversation, which may not say all by itself."""

    conversation: str
    at: int | None = None
    project: str | None = None
    copied: str | None = None  # the session that it is a copy from


class Checkpoint(Value):
    """Where a transcript is read on from.

    `since`, `excluded` and `off` are what turns were left out by: once they hold no longer, all has
    to be read again. Readings from the start are counted: each turn has a tag with the number of
    the one it came in last, so that what does not come again is known.
    """

    id: str
    stored: Record | None
    mark: Mark | None = None
    size: int | None = None
    modified: int | None = None
    skipped: Mapping[str, int] | None = None
    since: int | None = None
    excluded: tuple[str, ...] = ()
    previous: PreviousTurn | None = None
    title: tuple[str, str] | None = None  # of a conversation of which no turn was kept yet
    reading: int = 0
    oldest: int = 0  # the first reading of which tags may be left
    off: tuple[str, ...] = ()  # folders whose projects were switched off

    @classmethod
    def from_record(cls, transcript: Transcript, record: Record | None) -> "Checkpoint":
        found = build_transcript_id(transcript.source, transcript.name)
        facets: Mapping[str, Any] = {} if record is None else record.facets
        previous = cast(Mapping[str, Any] | None, facets.get("previous"))
        title = cast(list[str] | None, facets.get("title"))
        oldest, reading = cast(list[int], facets.get("readings", [0, 0]))
        return cls(
            found,
            record,
            facets.get("mark"),
            facets.get("size"),
            facets.get("modified"),
            facets.get("skipped"),
            facets.get("since"),
            tuple(cast(list[str], facets.get("excluded", []))),
            PreviousTurn(**previous) if previous else None,
            (title[0], title[1]) if title else None,
            reading,
            oldest,
            tuple(cast(list[str], facets.get("off", []))),
        )

    @property
    def tag(self) -> str:
        """Of the turns that came in this reading."""
        return _build_tag(self.id, self.reading)

    @property
    def old_tags(self) -> tuple[str, ...]:
        return tuple(_build_tag(self.id, number) for number in range(self.oldest, self.reading))

    @property
    def is_unmarked(self) -> bool:
        """Whether it was read before, and how far is not known any more."""
        return self.stored is not None and self.mark is None

    def covers(self, since: int | None, exclusion: FolderExclusion, off: Sequence[str] = ()) -> bool:
        """Whether what was left out would be left out now."""
        is_early = self.since is None or (since is not None and since >= self.since)
        is_excluded = set(self.excluded) <= set(exclusion.patterns)
        return is_early and is_excluded and set(self.off) <= set(off)

    def matches_file(self, size: int, modified: int) -> bool:
        """Whether all was read of a transcript that is as large and as old as this."""
        return (self.size, self.modified) == (size, modified)

    def restart(self) -> "Checkpoint":
        """Of a reading that tells all anew."""
        return Checkpoint(self.id, self.stored, reading=self.reading + 1, oldest=self.oldest)

    def advance(self, mark: Mark | None, skipped: Mapping[str, int], seen: tuple[int, int] | None) -> "Checkpoint":
        """With what a portion says; `seen` is given with the last one."""
        counts = Counter(self.skipped or {}) + Counter(skipped)
        size, modified = seen or (None, None)
        return replace(self, mark=mark, size=size, modified=modified, skipped=dict(counts))

    def settle(self, seen: tuple[int, int]) -> "Checkpoint":
        """Once what did not come again was taken back."""
        return replace(self, oldest=self.reading, size=seen[0], modified=seen[1])

    def build_step(self, source: str, name: str | None, at: int) -> Step:
        facets = self._build_facets(source)
        if self.stored is not None:
            return Update(self.id, {"facets": facets}, self.stored.version)
        return Insert(Record(id=self.id, kind=TRANSCRIPT, created_at=at, updated_at=at, name=name, facets=facets))

    def with_stored(self, step: Step) -> "Checkpoint":
        """As it is once its step is stored."""
        if isinstance(step, Insert):
            return replace(self, stored=cast(Record, step.item))
        stored = cast(Record, self.stored)
        facets = cast(Update, step).values["facets"]
        version = stored.version + (facets != stored.facets)
        return replace(self, stored=replace(stored, facets=facets, version=version))

    def _build_facets(self, source: str) -> dict[str, Any]:
        previous = self.previous and {
            name: value
            for name in ("conversation", "at", "project", "copied")
            if (value := getattr(self.previous, name)) is not None
        }
        facets: dict[str, Any] = {
            "source": source,
            "mark": self.mark,
            "size": self.size,
            "modified": self.modified,
            "skipped": self.skipped or None,
            "since": self.since,
            "excluded": list(self.excluded) or None,
            "off": list(self.off) or None,
            "previous": previous,
            "title": self.title and list(self.title),
            "readings": [self.oldest, self.reading] if self.reading else None,
        }
        known = {name: value for name, value in facets.items() if value is not None}
        return json.loads(json.dumps(known))  # as the store gives it back


def parse_transcript_tag(tag: str) -> str | None:
    """The id of the transcript that a turn has the tag from, if it has it from one."""
    owner, _, reading = tag.partition(" ")
    return owner if reading.isdecimal() else None


def _build_tag(transcript: str, reading: int) -> str:
    return f"{transcript} {reading}"


GATE_ID = "gate"  # its id and kind

_FolderChange = Callable[[Sequence[str]], Sequence[str]]


def build_gate_check(gate: Record) -> Step:
    """Changes nothing, and is refused once the gate was closed."""
    return Update(gate.id, {}, gate.version)


def list_unfinished_folders(gate: Record) -> list[str]:
    """The folders that are being forgotten, or were when somebody was interrupted."""
    return cast(list[str], gate.facets.get("forgetting", []))


async def read_gate(store: RecordStore, clock: Clock) -> Record:
    async def found() -> Record:
        for gate in await store.get([GATE_ID]):
            return gate
        at = clock()
        gate = Record(id=GATE_ID, kind=GATE_ID, created_at=at, updated_at=at)
        await commit(store, Batch((Insert(gate),), at, FORGET_TOOL, derived=True))
        return gate

    return await retry(found, "the gate")


async def close_gate(store: RecordStore, clock: Clock, folders: Sequence[str]) -> None:
    """Stops what was planned before, and remembers the folders until it is opened again."""
    await _update_gate(store, clock, lambda known: sorted({*known, *folders}))


async def reopen_gate(store: RecordStore, clock: Clock, folders: Sequence[str]) -> None:
    await _update_gate(store, clock, lambda known: [each for each in known if each not in folders])


async def _update_gate(store: RecordStore, clock: Clock, change: _FolderChange) -> None:
    async def attempt() -> None:
        gate = await read_gate(store, clock)
        facets = {"closed": gate.facets.get("closed", 0) + 1, "forgetting": list(change(list_unfinished_folders(gate)))}
        step = Update(gate.id, {"facets": facets}, gate.version)
        await commit(store, Batch((step,), clock(), FORGET_TOOL, derived=True))

    await retry(attempt, "the gate")
