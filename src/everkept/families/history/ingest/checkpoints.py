"""Checkpoints of transcripts, counts of an import, and the gate record that each commit checks."""

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
    source: str
    name: str
    reason: str


class ImportCounts(Value, frozen=False):
    """Counts of one source, or of all sources."""

    transcripts: int = 0  # found
    read: int = 0  # with new content
    unchanged: int = 0
    left_out: int = 0  # read, but without turns to store
    failed: int = 0
    conversations: int = 0  # new
    conversations_left_out: int = 0
    turns: int = 0  # new
    turns_changed: int = 0
    turns_removed: int = 0  # no longer in the transcript, or rewound
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


# Facets that name sessions and folders. Forgetting removes them.
NAMING_FACETS = ("mark", "previous", "title")


class PreviousTurn(Value):
    """The previous turn, whose values apply to the next turn of its conversation if that lacks them."""

    conversation: str
    at: int | None = None
    project: str | None = None
    copied: str | None = None  # the session from which it was copied


class Checkpoint(Value):
    """Position from which the reading of a transcript continues.

    `since`, `excluded` and `off` are rules that excluded turns. When they no longer apply, the transcript is read
    again. Readings from the start are numbered. Each turn has a tag with the number of its last reading, so turns that
    are missing later can be found.
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
    title: tuple[str, str] | None = None  # of a conversation without stored turns
    reading: int = 0
    oldest: int = 0  # the first reading whose tags may still exist
    off: tuple[str, ...] = ()  # folders of projects that were off

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
        """Return the tag of the turns in this reading."""
        return _build_tag(self.id, self.reading)

    @property
    def old_tags(self) -> tuple[str, ...]:
        return tuple(_build_tag(self.id, number) for number in range(self.oldest, self.reading))

    @property
    def is_unmarked(self) -> bool:
        """Return whether the transcript was read before, but the position is lost."""
        return self.stored is not None and self.mark is None

    def covers(self, since: int | None, exclusion: FolderExclusion, off: Sequence[str] = ()) -> bool:
        """Return whether the current rules exclude everything that was excluded before."""
        is_early = self.since is None or (since is not None and since >= self.since)
        is_excluded = set(self.excluded) <= set(exclusion.patterns)
        return is_early and is_excluded and set(self.off) <= set(off)

    def matches_file(self, size: int, modified: int) -> bool:
        """Return whether a transcript of this size and time was read completely."""
        return (self.size, self.modified) == (size, modified)

    def restart(self) -> "Checkpoint":
        """Return the checkpoint of a new reading from the start."""
        return Checkpoint(self.id, self.stored, reading=self.reading + 1, oldest=self.oldest)

    def advance(self, mark: Mark | None, skipped: Mapping[str, int], seen: tuple[int, int] | None) -> "Checkpoint":
        """Return the checkpoint after a portion. Pass `seen` only with the last one."""
        counts = Counter(self.skipped or {}) + Counter(skipped)
        size, modified = seen or (None, None)
        return replace(self, mark=mark, size=size, modified=modified, skipped=dict(counts))

    def settle(self, seen: tuple[int, int]) -> "Checkpoint":
        """Return the checkpoint after the missing turns were removed."""
        return replace(self, oldest=self.reading, size=seen[0], modified=seen[1])

    def build_step(self, source: str, name: str | None, at: int) -> Step:
        facets = self._build_facets(source)
        if self.stored is not None:
            return Update(self.id, {"facets": facets}, self.stored.version)
        return Insert(Record(id=self.id, kind=TRANSCRIPT, created_at=at, updated_at=at, name=name, facets=facets))

    def with_stored(self, step: Step) -> "Checkpoint":
        """Return the checkpoint after its step was committed."""
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
        return json.loads(json.dumps(known))  # normalized to the values that the store returns


def parse_transcript_tag(tag: str) -> str | None:
    """Return the id of the transcript in a tag, or None for other tags."""
    owner, _, reading = tag.partition(" ")
    return owner if reading.isdecimal() else None


def _build_tag(transcript: str, reading: int) -> str:
    return f"{transcript} {reading}"


GATE_ID = "gate"  # id and kind of the gate record

_FolderChange = Callable[[Sequence[str]], Sequence[str]]


def build_gate_check(gate: Record) -> Step:
    """Return a step that changes nothing and fails if the gate was closed since it was read."""
    return Update(gate.id, {}, gate.version)


def list_unfinished_folders(gate: Record) -> list[str]:
    """Return the folders whose removal is running or was interrupted."""
    return cast(list[str], gate.facets.get("forgetting", []))


async def read_gate(store: RecordStore, clock: Clock) -> Record:
    async def found() -> Record:
        for gate in await store.get([GATE_ID]):
            return gate
        at = clock()
        gate = Record(id=GATE_ID, kind=GATE_ID, created_at=at, updated_at=at)
        await commit(store, Batch((Insert(gate),), at, FORGET_TOOL, derived=True))
        return gate

    return await retry(found, "the import gate")


async def close_gate(store: RecordStore, clock: Clock, folders: Sequence[str]) -> None:
    """Make imports fail that were planned before, and record the folders until the gate is opened again."""
    await _update_gate(store, clock, lambda known: sorted({*known, *folders}))


async def reopen_gate(store: RecordStore, clock: Clock, folders: Sequence[str]) -> None:
    await _update_gate(store, clock, lambda known: [each for each in known if each not in folders])


async def _update_gate(store: RecordStore, clock: Clock, change: _FolderChange) -> None:
    async def attempt() -> None:
        gate = await read_gate(store, clock)
        facets = {"closed": gate.facets.get("closed", 0) + 1, "forgetting": list(change(list_unfinished_folders(gate)))}
        step = Update(gate.id, {"facets": facets}, gate.version)
        await commit(store, Batch((step,), clock(), FORGET_TOOL, derived=True))

    await retry(attempt, "the import gate")
