"""How far a transcript was read, under which conditions, and what must be known to read on."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

from everkept.core.paths import Exclusion
from everkept.core.records import Insert, Record, Step, Update
from everkept.core.transcripts import Mark, Transcript
from everkept.families.history.model import TRANSCRIPT, transcript_id
from everkept.values import Value, replace

# What names sessions and folders; it goes with what is forgotten.
TELLING = ("mark", "previous", "title")


class Previous(Value):
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
    previous: Previous | None = None
    title: tuple[str, str] | None = None  # of a conversation of which no turn was kept yet
    reading: int = 0
    oldest: int = 0  # the first reading of which tags may be left
    off: tuple[str, ...] = ()  # folders whose projects were switched off

    @classmethod
    def of(cls, transcript: Transcript, record: Record | None) -> "Checkpoint":
        found = transcript_id(transcript.source, transcript.name)
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
            Previous(**previous) if previous else None,
            (title[0], title[1]) if title else None,
            reading,
            oldest,
            tuple(cast(list[str], facets.get("off", []))),
        )

    @property
    def tag(self) -> str:
        """Of the turns that came in this reading."""
        return _tag(self.id, self.reading)

    @property
    def old_tags(self) -> tuple[str, ...]:
        return tuple(_tag(self.id, number) for number in range(self.oldest, self.reading))

    @property
    def is_unmarked(self) -> bool:
        """Whether it was read before, and how far is not known any more."""
        return self.stored is not None and self.mark is None

    def covers(self, since: int | None, exclusion: Exclusion, off: Sequence[str] = ()) -> bool:
        """Whether what was left out would be left out now."""
        is_early = self.since is None or (since is not None and since >= self.since)
        is_excluded = set(self.excluded) <= set(exclusion.patterns)
        return is_early and is_excluded and set(self.off) <= set(off)

    def is_of(self, size: int, modified: int) -> bool:
        """Whether all was read of a transcript that is as large and as old as this."""
        return (self.size, self.modified) == (size, modified)

    def from_start(self) -> "Checkpoint":
        """Of a reading that tells all anew."""
        return Checkpoint(self.id, self.stored, reading=self.reading + 1, oldest=self.oldest)

    def moved(
        self,
        mark: Mark | None,
        skipped: Mapping[str, int],
        seen: tuple[int, int] | None,
    ) -> "Checkpoint":
        """With what a portion says; `seen` is given with the last one."""
        counts = Counter(self.skipped or {}) + Counter(skipped)
        size, modified = seen or (None, None)
        return replace(self, mark=mark, size=size, modified=modified, skipped=dict(counts))

    def settled(self, seen: tuple[int, int]) -> "Checkpoint":
        """Once what did not come again was taken back."""
        return replace(self, oldest=self.reading, size=seen[0], modified=seen[1])

    def step(self, source: str, name: str | None, at: int) -> Step:
        facets = self._facets(source)
        if self.stored is not None:
            return Update(self.id, {"facets": facets}, self.stored.version)
        return Insert(
            Record(
                id=self.id,
                kind=TRANSCRIPT,
                created_at=at,
                updated_at=at,
                name=name,
                facets=facets,
            )
        )

    def committed(self, step: Step) -> "Checkpoint":
        """As it is once its step is stored."""
        if isinstance(step, Insert):
            return replace(self, stored=cast(Record, step.item))
        stored = cast(Record, self.stored)
        facets = cast(Update, step).values["facets"]
        version = stored.version + (facets != stored.facets)
        return replace(self, stored=replace(stored, facets=facets, version=version))

    def _facets(self, source: str) -> dict[str, Any]:
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


def transcript_of(tag: str) -> str | None:
    """The id of the transcript that a turn has the tag from, if it has it from one."""
    owner, _, reading = tag.partition(" ")
    return owner if reading.isdecimal() else None


def _tag(transcript: str, reading: int) -> str:
    return f"{transcript} {reading}"
